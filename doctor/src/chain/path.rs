//! `forebay doctor path`: what one data path of this host can carry, hop by hop.

use super::ends::{End, Part, Way, resolve};
use super::hops::{Ground, Route};
use super::{Chain, Hop, Reached};
use crate::findings::Sentence;
use crate::formulas::{GB, drain_seconds};
use crate::matrix::{Matrix, table};
use crate::words::{Language, say};
use anyhow::Result;
use forebay_host::system::System;
use forebay_host::topology::Topology;
use serde::Serialize;
use std::fmt::Write;

/// Headroom from which a hop is said not to be the bound.
const NOT_THE_BOUND: f64 = 2.0;
/// A better place is told when it gives so much more.
const PLACE_GAIN: f64 = 1.05;
/// Copies that a TCP receiver makes: socket to user, user to page cache.
const COPIES_OF_RECEIVER: u32 = 2;

/// A path through this host, and what is known of it.
pub struct Question<'a> {
    /// Where bytes come from, as the user names it.
    pub from: &'a str,
    /// Where bytes go, as the user names it.
    pub to: &'a str,
    /// What somebody has measured, in bytes a second.
    pub measured: Option<f64>,
    /// How often CPUs copy. None: as often as the kernel has to.
    pub copies: Option<u32>,
}

/// What each hop of the path carries, and which one bounds it.
#[derive(Debug, Serialize)]
pub struct Answer {
    from: String,
    to: String,
    copies: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<f64>,
    hops: Vec<Told>,
    /// Bytes a second, as all below.
    bound: Option<f64>,
    /// That it bounds is certain: no hop is unknown, or what was measured is what it gives.
    certain: bool,
    /// Once the bound is cured: what bounds then.
    next_bound: Option<f64>,
    /// And what will be measured then.
    predicted: Option<f64>,
    /// What it means, in words.
    says: Vec<String>,
}

/// A hop as it is told.
#[derive(Debug, Serialize)]
struct Told {
    #[serde(flatten)]
    hop: Hop,
    says: String,
    bound: Option<f64>,
    used: Option<f64>,
    is_bound: bool,
}

/// How many copies the kernel has to make.
fn copies(from: &[Part], to: &[Part]) -> u32 {
    let has = |parts: &[Part], is: fn(&End) -> bool| parts.iter().any(|(end, _)| is(end));
    let received = has(from, |end| matches!(end, End::Nic(_)));
    let only_memory = !has(from, |end| *end != End::Ram) && !has(to, |end| *end != End::Ram);
    match (received, only_memory) {
        (true, _) => COPIES_OF_RECEIVER,
        (false, true) => 1,
        (false, false) => 0,
    }
}

/// Computes what bounds the path that is asked about.
pub fn answer(system: &System, topology: &Topology, question: &Question, language: Language) -> Result<Answer> {
    let from = resolve(system, topology, question.from, Way::From)?;
    let to = resolve(system, topology, question.to, Way::To)?;
    let copies = question.copies.unwrap_or_else(|| copies(&from, &to));
    let ground = Ground { system, topology, matrix: Matrix::kept(system) };
    let chain = ground.chain(&Route { from: &from, to: &to, copies, node: None });
    let words = Words { chain: &chain, measured: question.measured, language };
    let mut says = words.verdict();
    says.extend(words.rest());
    says.extend(words.place(&ground, &from, &to, copies));
    if to.iter().any(|(end, _)| matches!(end, End::Disk(_))) {
        says.extend(words.dirty(system, &to));
    }
    let bounding: Vec<&str> = chain.bounding().iter().map(|hop| hop.resource.as_str()).collect();
    let hops = chain.hops.iter().map(|hop| Told {
        says: say(language, &hop.text),
        bound: hop.bound(),
        used: question.measured.and_then(|measured| hop.used_at(measured)),
        is_bound: bounding.contains(&hop.resource.as_str()),
        hop: hop.clone(),
    });
    Ok(Answer {
        from: question.from.to_owned(),
        to: question.to.to_owned(),
        copies,
        measured: question.measured,
        hops: hops.collect(),
        bound: chain.bound().map(|(_, bound)| bound),
        certain: words.certain(),
        next_bound: chain.next_bound().map(|(_, bound)| bound),
        predicted: question.measured.and_then(|measured| chain.predicted(measured, &chain.cured())),
        says,
    })
}

fn rate(bytes: f64) -> String {
    if bytes >= GB { format!("{:.2} GB/s", bytes / GB) } else { format!("{:.0} MB/s", bytes / 1e6) }
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Sentences about a chain.
struct Words<'a> {
    chain: &'a Chain,
    measured: Option<f64>,
    language: Language,
}

impl Words<'_> {
    fn say(&self, sentence: &Sentence) -> String {
        say(self.language, sentence)
    }

    fn names(&self, hops: &[&Hop]) -> String {
        hops.iter().map(|hop| self.say(&hop.text)).collect::<Vec<_>>().join(", ")
    }

    /// What bounds, the lowest first, each with its own bound where these are about equal and not the same, and whether that is so. Both
    /// directions of one slot are one.
    fn bounding(&self) -> (String, bool) {
        let mut hops: Vec<(String, f64)> = Vec::new();
        for (hop, bound) in self.chain.by_bound().into_iter().take(self.chain.bounding().len()) {
            let named = self.say(&hop.text);
            if hops.iter().all(|(known, _)| *known != named) {
                hops.push((named, bound));
            }
        }
        let differ = hops.windows(2).any(|pair| pair[0].1 < pair[1].1);
        let told =
            |(named, bound): &(String, f64)| if differ { format!("{named} ({})", rate(*bound)) } else { named.clone() };
        (hops.iter().map(told).collect::<Vec<_>>().join(", "), differ)
    }

    /// What bounds, whether that is what was measured, what helps, and what comes then.
    fn verdict(&self) -> Vec<String> {
        let Some((_, bound)) = self.chain.bound() else { return vec![self.say(&Sentence::new("path.unknown"))] };
        let bounding = self.chain.bounding();
        let (named, differ) = self.bounding();
        let with = |sentence: Sentence| sentence.with("bound", rate(bound)).with("hops", &named);
        let measured = |key, measured: f64, share| {
            with(Sentence::new(key).with("measured", rate(measured)).with("share", percent(share)))
        };
        let reached = self.measured.and_then(|measured| Some((measured, self.chain.reached(measured)?)));
        let first = match reached {
            None => with(Sentence::new(if self.certain() { "path.bound" } else { "path.bound-known" })),
            Some((rate, Reached::Physics(share))) => measured("path.physics", rate, share),
            Some((rate, Reached::Bound(share))) => measured("path.reached", rate, share),
            Some((rate, Reached::Near(share))) => measured("path.near", rate, share),
            Some((rate, Reached::NotTheChain(share))) if self.unknown().is_empty() => {
                measured("path.not-the-chain", rate, share)
            }
            Some((rate, Reached::NotTheChain(share))) => measured("path.not-known-below", rate, share),
            Some((rate, Reached::MoreThanThat(share))) => measured("path.more", rate, share),
        };
        let mut says = vec![self.say(&first)];
        if differ {
            says.push(self.say(&Sentence::new("path.equal")));
        }
        if self.certain() && !matches!(reached, Some((_, Reached::NotTheChain(_) | Reached::MoreThanThat(_)))) {
            let mut cures: Vec<&Sentence> = bounding.iter().filter_map(|hop| hop.cure.as_ref()).collect();
            cures.dedup();
            says.extend(cures.into_iter().map(|cure| self.say(cure)));
            says.extend(self.after());
        }
        says
    }

    /// A hop that nobody knows may carry less than all that are known, unless the lowest of these is just what was measured.
    fn certain(&self) -> bool {
        let reached = self.measured.and_then(|measured| self.chain.reached(measured));
        self.unknown().is_empty() || matches!(reached, Some(Reached::Physics(_) | Reached::Bound(_)))
    }

    fn unknown(&self) -> Vec<&Hop> {
        self.chain.hops.iter().filter(|hop| hop.capacity.is_none()).collect()
    }

    fn after(&self) -> Option<String> {
        let (hop, next) = self.chain.next_bound()?;
        let with = |sentence: Sentence| sentence.with("next", rate(next)).with("hop", self.say(&hop.text));
        let predicted = self.measured.and_then(|measured| self.chain.predicted(measured, &self.chain.cured()));
        Some(self.say(&match predicted {
            Some(predicted) => with(Sentence::new("path.predicted").with("predicted", rate(predicted))),
            None => with(Sentence::new("path.next")),
        }))
    }

    /// What is not the bound, and what is not known.
    fn rest(&self) -> Vec<String> {
        let mut says = Vec::new();
        let delivered = self.measured.or_else(|| Some(self.chain.bound()?.1));
        let free: Vec<String> = self
            .chain
            .hops
            .iter()
            .filter_map(|hop| Some((hop, hop.headroom(delivered?)?)))
            .filter(|(_, times)| *times >= NOT_THE_BOUND)
            .map(|(hop, times)| {
                let named = Sentence::new("path.times").with("hop", self.say(&hop.text));
                self.say(&named.with("times", format!("{times:.1}")))
            })
            .collect();
        if !free.is_empty() {
            says.push(self.say(&Sentence::new("path.free").with("hops", free.join(", "))));
        }
        let unknown = self.unknown();
        if !unknown.is_empty() {
            says.push(self.say(&Sentence::new("path.not-known").with("hops", self.names(&unknown))));
        }
        if unknown.iter().any(|hop| hop.resource.starts_with("node ") || hop.resource.starts_with("link ")) {
            says.push(self.say(&Sentence::new("links.measure")));
        }
        says
    }

    /// The node where CPUs and memory in between would serve the path best, where that is more than anywhere.
    fn place(&self, ground: &Ground, from: &[Part], to: &[Part], copies: u32) -> Option<String> {
        let places = ground.places();
        if places.len() < 2 {
            return None;
        }
        let crossing = |chain: &Chain| -> f64 {
            let links = chain.hops.iter().filter(|hop| hop.resource.starts_with("link "));
            links.fold(0.0, |sum, hop| sum + hop.multiplicity)
        };
        let now = crossing(self.chain);
        let placed = places.into_iter().map(|node| {
            let chain = ground.chain(&Route { from, to, copies, node: Some(node) });
            (node, crossing(&chain), chain.bound().map(|(_, bound)| bound))
        });
        let (node, crossings, bound) = placed.min_by(|a, b| {
            let bound = |place: &(u32, f64, Option<f64>)| place.2.unwrap_or(f64::INFINITY);
            bound(b).total_cmp(&bound(a)).then(a.1.total_cmp(&b.1))
        })?;
        let gains = bound.zip(self.chain.bound()).is_some_and(|(there, (_, here))| there > here * PLACE_GAIN);
        if !gains && crossings >= now {
            return None;
        }
        let sentence = Sentence::new("path.place").with("node", node).with("now", format!("{now:.1}"));
        let bound = bound.map_or_else(|| "-".to_owned(), rate);
        Some(self.say(&sentence.with("then", format!("{crossings:.1}")).with("bound", bound)))
    }

    /// What may wait to be written, and how long that takes at least.
    fn dirty(&self, system: &System, to: &[Part]) -> Option<String> {
        let number = |name: &str| system.number::<f64>(&format!("/proc/sys/vm/{name}")).known();
        let meminfo = system.text("/proc/meminfo").known()?;
        let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let available: f64 = available.trim().strip_suffix(" kB")?.parse().ok()?;
        let dirty = match number("dirty_bytes") {
            Some(bytes) if bytes > 0.0 => bytes,
            _ => available * 1024.0 * number("dirty_ratio")? / 100.0,
        };
        let names: Vec<&String> =
            to.iter().filter_map(|(end, _)| if let End::Disk(name) = end { Some(name) } else { None }).collect();
        let is_out = |hop: &&Hop| hop.resource.ends_with(" out");
        let out = Chain { hops: self.chain.hops.iter().filter(is_out).cloned().collect() };
        let seconds = drain_seconds(dirty, out.bound()?.1);
        let sentence = Sentence::new("path.dirty").with("dirty", format!("{:.1}", dirty / GB));
        let disks = names.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        Some(self.say(&sentence.with("seconds", format!("{seconds:.0}")).with("disks", disks)))
    }
}

impl Answer {
    /// The answer as text for people.
    pub fn text(&self, language: Language) -> String {
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let title =
            Sentence::new("path.title").with("from", &self.from).with("to", &self.to).with("copies", self.copies);
        // Names are long, in words of any width: each is a line of its own, above its figures.
        let below_name = || " ".repeat(3);
        let mut head = vec![below_name(), word("path.capacity"), word("path.passes"), word("path.hop-bound")];
        if self.measured.is_some() {
            head.push(word("path.used"));
        }
        let row = |told: &Told| {
            let show = |value: Option<f64>, how: fn(f64) -> String| value.map_or_else(|| "?".to_owned(), how);
            let mut row = vec![
                below_name(),
                show(told.hop.capacity, rate),
                format!("x {:.2}", told.hop.multiplicity),
                show(told.bound, rate),
            ];
            if self.measured.is_some() {
                row.push(show(told.used, |used| format!("{:.0} %", used * 100.0)));
            }
            if told.is_bound {
                row.push(format!("<- {}", word(if self.certain { "path.mark" } else { "path.mark-known" })));
            }
            row
        };
        let mut text = String::new();
        let rows = [head].into_iter().chain(self.hops.iter().map(row)).collect();
        let mut figures = String::new();
        table(&mut figures, &say(language, &title), rows);
        let mut lines = figures.lines();
        for title_or_head in lines.by_ref().take(2) {
            let _ = writeln!(text, "{title_or_head}");
        }
        for ((number, told), figures) in (1..).zip(&self.hops).zip(lines) {
            let _ = writeln!(text, "    {number}  {}\n{figures}", told.says);
        }
        text.push('\n');
        for says in &self.says {
            let _ = writeln!(text, "{says}");
        }
        text
    }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
