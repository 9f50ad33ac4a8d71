//! What was measured, for a person.

use super::{Bandwidth, Matrix, Relation, SPREAD_MAX};
use crate::findings::Sentence;
use crate::formulas::GB;
use crate::words::{Language, columns, say};
use forebay_host::topology::{NodeNumber, in_brackets};
use std::collections::BTreeSet;
use std::fmt::Write;

/// A row of a table: its cells, the first one its name.
type Row = Vec<String>;

impl Matrix {
    /// That it was measured by `--force`, and why its figures may be wrong. None: nothing spoke against measuring.
    pub fn caveat(&self, language: Language) -> Option<String> {
        let why: Vec<String> = self.forced.iter().map(|why| say(language, why)).collect();
        (!why.is_empty()).then(|| say(language, &Sentence::new("matrix.forced").with("why", why.join("; "))))
    }

    /// All tables as text for people.
    pub fn text(&self, language: Language) -> String {
        let mut text = String::new();
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let title = |key: &'static str| {
            let (pages, threads) = (self.huge_pages, self.read.first().map_or(0, |cell| cell.threads));
            let pages = word(if pages { "matrix.huge" } else { "matrix.small-pages" });
            let with = Sentence::new(key).with("instructions", &self.instructions).with("pages", pages);
            say(language, &with.with("threads", threads))
        };
        if let Some(caveat) = self.caveat(language) {
            let _ = writeln!(text, "{caveat}\n");
        }
        if let Some(hypervisor) = &self.hypervisor {
            let _ = writeln!(
                text,
                "{}\n",
                say(language, &Sentence::new("matrix.vm").with("hypervisor", in_brackets(hypervisor)))
            );
        }
        let grid = |cells: &[(NodeNumber, NodeNumber, String)]| self.grid(cells, language);
        let gigabytes = |cells: &[Bandwidth]| -> Vec<(NodeNumber, NodeNumber, String)> {
            cells.iter().map(|cell| (cell.cpus, cell.memory, format!("{:.1}", cell.bytes_per_second / GB))).collect()
        };
        table(&mut text, &title("matrix.read"), grid(&gigabytes(&self.read)));
        table(&mut text, &word("matrix.read-threads"), grid(&gigabytes(&self.read_all_threads)));
        let mixes = self.mixes.iter().map(|cell| {
            let bus = cell.bus_bytes_per_second.map_or_else(|| "-".to_owned(), |bus| format!("{:.1}", bus / GB));
            let program = format!("{:.1}", cell.bytes_per_second / GB);
            vec![
                say(language, &Sentence::new("matrix.node").with("node", cell.memory)),
                cell.mix.figures().to_owned(),
                program,
                bus,
            ]
        });
        let head = vec![String::new(), String::new(), word("matrix.program"), word("matrix.bus")];
        let head = (!self.mixes.is_empty()).then_some(head);
        table(&mut text, &word("matrix.mixes"), head.into_iter().chain(mixes).collect());
        let both = self.both_ways.iter();
        let both: Vec<Row> = both
            .map(|both| vec![format!("{} <-> {}", both.a, both.b), format!("{:.1}", both.bytes_per_second / GB)])
            .collect();
        table(&mut text, &word("matrix.both"), both);
        let latency: Vec<_> =
            self.latency.iter().map(|cell| (cell.cpus, cell.memory, format!("{:.0}", cell.nanoseconds))).collect();
        table(&mut text, &word("matrix.latency"), grid(&latency));
        for loaded in &self.loaded {
            let points = loaded.points.iter();
            let points = points.map(|(traffic, latency)| vec![format!("{:.1}", traffic / GB), format!("{latency:.0}")]);
            let head = vec!["GB/s".to_owned(), "ns".to_owned()];
            let title = say(language, &Sentence::new("matrix.loaded").with("node", loaded.node));
            table(&mut text, &title, [head].into_iter().chain(points).collect());
            let knee = match loaded.knee {
                Some(knee) => Sentence::new("matrix.knee").with("traffic", format!("{:.1}", knee / GB)),
                None => Sentence::new("matrix.no-knee"),
            };
            text.truncate(text.trim_end().len());
            let _ = writeln!(text, "\n    {}\n", say(language, &knee));
        }
        table(&mut text, &word("matrix.cores"), self.cores_by_relation(&word));
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    /// What is to be kept in mind with these figures, whichever parts of them were measured: windows that differ, small pages.
    pub fn caveats(&self) -> Vec<Sentence> {
        let streams = self.read.iter().chain(&self.read_all_threads).chain(&self.mixes).map(|cell| cell.spread);
        let others = self.both_ways.iter().map(|cell| cell.spread).chain(self.latency.iter().map(|cell| cell.spread));
        let spread = streams.chain(others).fold(0.0, f64::max);
        let noisy = Sentence::new("matrix.noisy").with("spread", format!("{:.0}", spread * 100.0));
        let small_pages = Sentence::new("matrix.tlb");
        let noisy = (spread > SPREAD_MAX).then_some(noisy);
        noisy.into_iter().chain((!self.huge_pages).then_some(small_pages)).collect()
    }

    /// Cells with nodes of CPUs downwards and nodes of memory to the right.
    fn grid(&self, cells: &[(NodeNumber, NodeNumber, String)], language: Language) -> Vec<Row> {
        if cells.is_empty() {
            return Vec::new();
        }
        let memories: BTreeSet<NodeNumber> = cells.iter().map(|cell| cell.1).collect();
        let nodes: BTreeSet<NodeNumber> = cells.iter().map(|cell| cell.0).collect();
        let named = |key, node: NodeNumber| say(language, &Sentence::new(key).with("node", node));
        let head = [String::new()].into_iter().chain(memories.iter().map(|&node| named("matrix.memory", node)));
        let row = |node: NodeNumber| {
            let value = |memory: &NodeNumber| {
                let cell = cells.iter().find(|cell| (cell.0, cell.1) == (node, *memory));
                cell.map_or_else(|| "-".to_owned(), |cell| cell.2.clone())
            };
            [named("matrix.cpus", node)].into_iter().chain(memories.iter().map(value)).collect()
        };
        [head.collect()].into_iter().chain(nodes.into_iter().map(row)).collect()
    }

    /// For each kind of pair: how many, and the fastest and the middle one of them.
    fn cores_by_relation(&self, word: &impl Fn(&'static str) -> String) -> Vec<Row> {
        let kinds = [
            (Relation::SameCore, "matrix.same-core"),
            (Relation::SameCache, "matrix.same-cache"),
            (Relation::SameSocket, "matrix.same-socket"),
            (Relation::OtherSocket, "matrix.other-socket"),
        ];
        let row = |(relation, key)| {
            let pairs: Vec<_> = self.cores.iter().filter(|pair| pair.relation == relation).collect();
            let distinct: BTreeSet<_> = pairs.iter().map(|pair| (pair.a, pair.b)).collect();
            let middle = |of: fn(&super::Pair) -> f64| {
                super::run::median_and_spread(pairs.iter().map(|pair| of(pair)).collect()).0
            };
            let show = |min: f64, median: f64| format!("{min:.0} / {median:.0}");
            let swap = show(middle(|pair| pair.swap.min), middle(|pair| pair.swap.median));
            let lines = show(middle(|pair| pair.lines.min), middle(|pair| pair.lines.median));
            (!pairs.is_empty()).then(|| vec![word(key), distinct.len().to_string(), swap, lines])
        };
        let rows: Vec<Row> = kinds.into_iter().filter_map(row).collect();
        if rows.is_empty() {
            return rows;
        }
        let head = vec![String::new(), word("matrix.pairs"), word("matrix.swap"), word("matrix.lines")];
        [head].into_iter().chain(rows).collect()
    }
}

/// Columns that a text takes on a terminal.
fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// Writes rows below a title, the first column to the left and the others to the right. Nothing where there are none.
pub fn table(text: &mut String, title: &str, rows: Vec<Row>) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell)).max().unwrap_or(0))
        .collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}");
    for row in rows {
        let mut line = String::from("   ");
        for (column, cell) in row.iter().enumerate() {
            let space = " ".repeat(widest[column] - width(cell));
            let _ = if column == 0 { write!(line, " {cell}{space}") } else { write!(line, "  {space}{cell}") };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push('\n');
}
