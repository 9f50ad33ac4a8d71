//! The report as one page that needs nothing from anywhere: no script, no font, charts as SVG. Lines differ by dashes as well
//! as by colour, and every chart's figures stand beside it as text.

use super::{ActivityReport, Chart, Latency, VolumeActivity, percent};
use crate::top::micros;
use crate::words::{self, Language, Sentence, say, word};
use forebay_api::units::{show_seconds, show_size};
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --weak: #666; --line: #ccc; --one: #0072b2; --two: #b35900; --page: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --weak: #a0a0a0; --line: #444; --one: #56b4e9; --two: #e69f00; --page: #16181c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; border-bottom: 1px solid var(--line); } h3 { font-size: 1rem; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; border-bottom: 1px solid var(--line); text-align: right; }
td:first-child, th:first-child { text-align: left; padding-left: 0; } caption, figcaption { text-align: left; color: var(--weak); }
td.text { text-align: left; } .figures { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; }
.figure b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; } .figure span, .weak { color: var(--weak); }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; max-width: 52rem; } text { fill: var(--ink); font: 12px system-ui, sans-serif; }
.axis { stroke: var(--line); } .one { stroke: var(--one); fill: none; stroke-width: 2; } .two { stroke: var(--two); fill: none; stroke-width: 2; stroke-dasharray: 6 4; }
.bar-one { fill: var(--one); } .bar-two { fill: var(--two); } .dot { fill: var(--two); }
@media print { body { max-width: none; } }
";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What is written, as markup, in the user's language.
struct Page {
    language: Language,
    out: String,
}

/// A share as a percentage.
fn share(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// The whole report as a page of HTML that needs nothing else.
pub fn page(report: &ActivityReport, language: Language) -> String {
    let mut page = Page { language, out: String::new() };
    page.begin(report);
    page.totals(report);
    page.busiest(&report.volumes);
    for volume in &report.volumes {
        page.volume(volume);
    }
    page.incidents(report);
    page.out.push_str("</main>\n</html>\n");
    page.out
}

impl Page {
    /// A sentence as text of a page: what others have named is in it.
    fn say(&self, sentence: &Sentence) -> String {
        escaped(&say(self.language, sentence))
    }

    fn text(&self, key: &'static str) -> String {
        escaped(&words::text(self.language, key))
    }

    fn heading(&mut self, level: u8, key: &'static str) {
        let text = self.text(key);
        let _ = writeln!(self.out, "<h{level}>{text}</h{level}>");
    }

    /// Words of these keys, as text that is no markup yet.
    fn words<const N: usize>(&self, keys: [&'static str; N]) -> [String; N] {
        keys.map(|key| words::text(self.language, key))
    }

    /// Begins a table with the heads of its columns.
    fn table<T: AsRef<str>>(&mut self, heads: &[T]) {
        let cells: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head.as_ref()))).collect();
        let _ = writeln!(self.out, "<table>\n<tr>{cells}</tr>");
    }

    fn row(&mut self, cells: &[String]) {
        let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _ = writeln!(self.out, "<tr>{cells}</tr>");
    }

    fn begin(&mut self, report: &ActivityReport) {
        let title = self.say(&Sentence::new("report.page.title").with("node", &report.node));
        let head = Sentence::new("report.page.head").with("node", &report.node).with("window", &report.window);
        let made = Sentence::new("report.page.made").with("made", &report.made_at).with("version", &report.version);
        let (head, made) = (self.say(&head), self.say(&made));
        let _ = write!(
            self.out,
            "<!doctype html>\n<html lang=\"{}\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n<main>\n<h1>{head}</h1>\n<p class=\"weak\">{made}</p>\n",
            self.language.word()
        );
    }

    fn totals(&mut self, report: &ActivityReport) {
        let t = &report.totals;
        let incidents = report.incidents_by_kind.values().sum::<usize>();
        let figures = [
            (percent(t.writes_kept, t.writes), Sentence::new("report.page.writes-kept").with("count", t.writes)),
            (
                show_size(t.write_bytes_kept),
                Sentence::new("report.page.write-bytes-kept").with("size", show_size(t.write_bytes)),
            ),
            (
                show_size(t.read_bytes_kept),
                Sentence::new("report.page.read-bytes-kept").with("size", show_size(t.read_bytes)),
            ),
            (show_size(t.wire_bytes_saved), Sentence::new("report.page.wires-kept")),
            (incidents.to_string(), Sentence::new("report.incidents")),
        ];
        self.out.push_str("<div class=\"figures\">\n");
        for (figure, what) in figures {
            let (figure, what) = (escaped(&figure), self.say(&what));
            let _ = writeln!(self.out, "<div class=\"figure\"><b>{figure}</b><span>{what}</span></div>");
        }
        let _ = writeln!(self.out, "</div>\n<p class=\"weak\">{}</p>", self.text("report.page.journal"));
    }

    fn busiest(&mut self, volumes: &[VolumeActivity]) {
        self.heading(2, "report.page.volumes");
        self.table(&self.words([
            "report.page.volume",
            "report.page.reads",
            "report.page.writes",
            "report.page.written",
            "report.page.destaged",
            "report.page.hits",
        ]));
        for volume in volumes {
            let t = &volume.totals;
            let hits = volume.read_hit_ratio.map_or("-".to_owned(), share);
            let [written, destaged] = [t.write_bytes, t.backing_write_bytes].map(show_size);
            self.row(&[volume.name.clone(), t.reads.to_string(), t.writes.to_string(), written, destaged, hits]);
        }
        self.out.push_str("</table>\n");
    }

    fn volume(&mut self, volume: &VolumeActivity) {
        let size = show_size(volume.size_bytes);
        let _ = writeln!(self.out, "<h2>{} <span class=\"weak\">{size}</span></h2>", escaped(&volume.name));
        let (Some(from), Some(to)) = (volume.from, volume.to) else {
            let _ = writeln!(self.out, "<p>{}</p>", self.text("report.page.nothing"));
            return;
        };
        let measured = Sentence::new("report.page.measured")
            .with("time", show_seconds(to.saturating_sub(from) as f64))
            .with("end", forebay_api::calendar::show_ms(to * 1000));
        let _ = writeln!(self.out, "<p class=\"weak\">{}</p>", self.say(&measured));
        self.heading(3, "report.page.latency");
        self.latency(&volume.latency);
        self.heading(3, "report.page.chart");
        self.written(&volume.chart);
        if volume.cache_bytes.is_some() {
            self.heading(3, "report.page.other-caches");
            self.curve(volume);
            self.caches(volume);
        }
    }

    fn incidents(&mut self, report: &ActivityReport) {
        self.heading(2, "report.page.incidents");
        if report.incidents.is_empty() {
            let _ = writeln!(self.out, "<p>{}</p>", self.text("report.page.none"));
            return;
        }
        let kind_word = |kind: &str| word(self.language, "kind", kind);
        let kind = |(kind, count): (&String, &usize)| {
            self.say(&Sentence::new("report.page.kind").with("count", count).with("kind", kind_word(kind)))
        };
        let kinds: Vec<String> = report.incidents_by_kind.iter().map(kind).collect();
        let _ = writeln!(self.out, "<p>{}</p>", kinds.join(", "));
        let [when, what, volume] = self.words(["report.page.when", "report.page.what", "report.page.volume"]);
        self.table(&[&*when, &what, &volume, ""]);
        for event in &report.incidents {
            let volume = event.what.volume.as_deref().unwrap_or("");
            let kind = word(self.language, "kind", &event.what.kind);
            let texts =
                [&*kind, volume, &event.what.text].map(|text| format!("<td class=\"text\">{}</td>", escaped(text)));
            let _ = writeln!(self.out, "<tr><td>{}</td>{}</tr>", escaped(&event.at), texts.concat());
        }
        self.out.push_str("</table>\n");
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;

/// Charts, each with its figures as text.
impl Page {
    fn latency(&mut self, rows: &[Latency]) {
        let [count, half] = self.words(["report.page.count", "report.page.half"]);
        self.table(&["", &*count, &half, "90 %", "99 %", "99.9 %"]);
        let titled: Vec<(String, &Latency)> = rows.iter().map(|leg| (self.leg(leg), leg)).collect();
        for (title, l) in titled.iter().filter(|(_, l)| l.count > 0) {
            let [a, b, c, d] = [l.p50_us, l.p90_us, l.p99_us, l.p999_us].map(|us| us.map_or("-".to_owned(), micros));
            self.row(&[title.clone(), l.count.to_string(), a, b, c, d]);
        }
        self.out.push_str("</table>\n");
        // One bar for each of the 99th percentiles, by powers of ten: they differ by hundreds.
        let bars: Vec<(String, f64, bool)> =
            titled.into_iter().filter_map(|(title, l)| Some((title, l.p99_us?, l.place == "backing"))).collect();
        let largest = bars.iter().map(|(_, us, _)| *us).fold(10.0, f64::max).log10();
        if bars.is_empty() {
            return;
        }
        self.figure(bars.len() as f64 * 26.0 + 4.0, &Sentence::new("report.page.bars"));
        for (number, (title, us, backing)) in bars.iter().enumerate() {
            let y = number as f64 * 26.0 + 4.0;
            let width = (us.max(1.0).log10() / largest * (WIDTH - 300.0)).max(2.0);
            let class = if *backing { "bar-two" } else { "bar-one" };
            let _ = write!(
                self.out,
                "<text x=\"0\" y=\"{:.0}\">{}</text><rect class=\"{class}\" x=\"170\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"18\"/><text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                y + 14.0,
                escaped(title),
                176.0 + width,
                y + 14.0,
                micros(*us)
            );
        }
        self.end_figure("report.page.bars-below");
    }

    /// What was asked for, and where it was measured.
    fn leg(&self, leg: &Latency) -> String {
        let side = Sentence::new("report.page.leg").with("side", word(self.language, "side", leg.side));
        say(self.language, &side.with("place", word(self.language, "place", leg.place)))
    }

    /// Begins a chart of this height; who cannot see it is told what it is.
    fn figure(&mut self, height: f64, what: &Sentence) {
        let what = self.say(what);
        let _ = write!(self.out, "<figure><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{what}\">");
    }

    fn end_figure(&mut self, key: &'static str) {
        let _ = writeln!(self.out, "</svg><figcaption>{}</figcaption></figure>", self.text(key));
    }

    fn written(&mut self, chart: &Chart) {
        let known = || chart.written.iter().chain(&chart.destaged).flatten();
        let largest = known().copied().fold(1.0, f64::max);
        if known().next().is_none() {
            let _ = writeln!(self.out, "<p>{}</p>", self.text("report.page.nothing"));
            return;
        }
        let most = show_size(largest as u64);
        self.figure(HEIGHT + 24.0, &Sentence::new("report.page.rates").with("most", &most));
        axes(&mut self.out, &format!("{most}/s"), "0");
        for (class, values) in [("one", &chart.written), ("two", &chart.destaged)] {
            path(&mut self.out, class, values, largest);
        }
        let begin = forebay_api::calendar::show_ms(chart.from * 1000);
        let end = forebay_api::calendar::show_ms(chart.to * 1000);
        let y = HEIGHT + 18.0;
        let _ = write!(
            self.out,
            "<text x=\"{LEFT}\" y=\"{y}\">{begin}</text><text x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{end}</text>"
        );
        self.end_figure("report.page.rates-below");
    }

    /// Hit rates by size, where there are enough for a line.
    fn curve(&mut self, volume: &VolumeActivity) {
        let points = &volume.miss_ratio;
        let [first, .., last] = points.as_slice() else { return };
        let (from, to) = ((first.cache_bytes as f64).log2(), (last.cache_bytes as f64).log2());
        let x = |bytes: u64| LEFT + ((bytes as f64).log2() - from) / (to - from) * (WIDTH - LEFT - 10.0);
        let y = |hit: f64| HEIGHT - hit * (HEIGHT - 16.0);
        self.figure(HEIGHT + 24.0, &Sentence::new("report.page.curve"));
        axes(&mut self.out, "100 %", "0 %");
        let line: Vec<String> =
            points.iter().map(|p| format!("{:.1} {:.1}", x(p.cache_bytes), y(p.hit_ratio))).collect();
        let _ = write!(self.out, "<path class=\"one\" d=\"M{}\"/>", line.join("L"));
        for at in &volume.at_times {
            let Some(hit) = at.hit_ratio else { continue };
            let (x, y) = (x(at.cache_bytes), y(hit));
            let times = self.say(&Sentence::new("report.page.times").with("times", at.times));
            let _ = write!(
                self.out,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/><text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{times}</text>",
                HEIGHT + 18.0
            );
        }
        self.end_figure("report.page.curve-below");
    }

    /// What caches of other sizes would hit, and what this one has hit.
    fn caches(&mut self, volume: &VolumeActivity) {
        self.table(&self.words(["report.page.cache", "report.page.size", "report.page.hit-rate"]));
        let ratio =
            |language, ratio: Option<f64>| ratio.map_or_else(|| words::text(language, "report.page.not-known"), share);
        for at in &volume.at_times {
            let times = say(self.language, &Sentence::new("report.page.times").with("times", at.times));
            self.row(&[times, show_size(at.cache_bytes), ratio(self.language, at.hit_ratio)]);
        }
        self.out.push_str("</table>\n");
        let hit = Sentence::new("report.page.really").with("ratio", ratio(self.language, volume.read_hit_ratio));
        let _ = write!(self.out, "<p>{}", self.say(&hit));
        if let Some(bytes) = volume.working_set_bytes {
            let working_set = Sentence::new("report.page.working-set").with("size", show_size(bytes));
            let _ = write!(self.out, " {}", self.say(&working_set));
        }
        self.out.push_str("</p>\n");
    }
}

fn axes(out: &mut String, top: &str, bottom: &str) {
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{HEIGHT}\" x2=\"{WIDTH}\" y2=\"{HEIGHT}\"/><line class=\"axis\" x1=\"{LEFT}\" y1=\"8\" x2=\"{LEFT}\" y2=\"{HEIGHT}\"/>\
         <text x=\"{right}\" y=\"16\" text-anchor=\"end\">{}</text><text x=\"{right}\" y=\"{HEIGHT}\" text-anchor=\"end\">{}</text>",
        escaped(top),
        escaped(bottom),
        right = LEFT - 6.0
    );
}

/// A line with gaps where nothing is known.
fn path(out: &mut String, class: &str, values: &[Option<f64>], largest: f64) {
    let step = (WIDTH - LEFT) / (values.len().max(2) - 1) as f64;
    let mut text = String::new();
    let mut pen = 'M';
    for (number, value) in values.iter().enumerate() {
        match value {
            Some(value) => {
                let (x, y) = (LEFT + number as f64 * step, HEIGHT - value / largest * (HEIGHT - 8.0));
                let _ = write!(text, "{pen}{x:.1} {y:.1}");
                // A point alone is a dot.
                if pen == 'M' {
                    text.push_str("h.1");
                }
                pen = 'L';
            }
            None => pen = 'M',
        }
    }
    let _ = write!(out, "<path class=\"{class}\" d=\"{text}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tests::{LANGUAGES, all_is_said};

    #[test]
    fn page_is_whole_and_needs_nothing_from_elsewhere() {
        let page = page(&super::super::tests::example(), Language::En);
        for part in
            ["96.0 %", "36.0 ms", "2 x", "90.0 %", "M80.0", "1 × backing-failing", "<svg", "Content-Security-Policy"]
        {
            assert!(page.contains(part), "no {part} in\n{page}");
        }
        assert!(
            page.contains("no space &lt;left&gt; &amp; &quot;more&quot;"),
            "what others have named is text, never markup"
        );
        for none in ["<script", "http://", "https://", "src=", "href=", "NaN", "inf"] {
            assert!(!page.contains(none), "{none}");
        }
        for tag in ["svg", "table", "figure", "tr", "td", "h2", "main"] {
            let (open, closed) = (page.matches(&format!("<{tag}")).count(), page.matches(&format!("</{tag}>")).count());
            assert!(open >= closed && closed > 0, "{tag}: {open} {closed}");
        }
    }

    #[test]
    fn a_page_is_in_one_language() {
        for language in LANGUAGES {
            let mut report = super::super::tests::example();
            let mut pages = page(&report, language);
            assert!(pages.contains(&format!("<html lang=\"{}\">", language.word())), "{pages}");
            report.incidents.clear();
            report.volumes[0].from = None;
            pages += &page(&report, language);
            report.volumes[0].from = Some(1);
            report.volumes[0].chart = Chart::default();
            report.volumes[0].read_hit_ratio = None;
            pages += &page(&report, language);
            let pages = pages.replace(STYLE, "");
            all_is_said(&pages);
            if language == Language::En {
                continue;
            }
            // Names, units and what an event says are the same in every language.
            let names = ["Forebay", "alpha", "vm1", "no space &lt;left&gt; &amp; &quot;more&quot;"];
            let pages = names.iter().fold(pages, |text, name| text.replace(name, ""));
            let texts = pages.split('<').filter_map(|piece| piece.split_once('>')).map(|(_, text)| text);
            let words = texts.flat_map(|text| text.split(|letter: char| !letter.is_alphabetic()));
            let latin = words.filter(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
            let english: Vec<&str> = latin.filter(|word| !["us", "ms", "s", "d", "h"].contains(word)).collect();
            assert!(english.is_empty(), "{english:?}");
        }
    }

    #[test]
    fn gaps_stay_gaps() {
        let mut out = String::new();
        path(&mut out, "one", &[Some(1.0), None, Some(0.5), Some(0.0)], 1.0);
        assert_eq!(out.matches('M').count(), 2, "{out}");
        assert_eq!(out.matches('L').count(), 1, "{out}");
    }
}
