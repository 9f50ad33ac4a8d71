//! The report as one page that needs nothing from anywhere: no script, no font, charts as SVG. Lines differ by dashes as well
//! as by colour, and every chart's figures stand beside it as text.

use super::{ActivityReport, Chart, Latency, VolumeActivity, percent};
use crate::top::micros;
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

/// The whole report as a page of HTML that needs nothing else.
pub fn page(report: &ActivityReport) -> String {
    let t = &report.totals;
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>Forebay: what it did on {node}</title>\n<style>{STYLE}</style>\n<main>\n\
         <h1>What Forebay did on {node} in the last {window}</h1>\n<p class=\"weak\">Made {made} by version {version}.</p>\n",
        node = escaped(&report.node),
        window = escaped(&report.window),
        made = escaped(&report.made_at),
        version = escaped(&report.version)
    );
    let figures = [
        (percent(t.writes_kept, t.writes), format!("of {} writes were kept from the slow storage", t.writes)),
        (show_size(t.write_bytes_kept), format!("of {} written were kept from it", show_size(t.write_bytes))),
        (show_size(t.read_bytes_kept), format!("of {} read were found before it", show_size(t.read_bytes))),
        (show_size(t.wire_bytes_saved), "were kept from wires by compression".to_owned()),
        (report.incidents_by_kind.values().sum::<usize>().to_string(), "incidents".to_owned()),
    ];
    out.push_str("<div class=\"figures\">\n");
    for (figure, what) in figures {
        let _ = writeln!(out, "<div class=\"figure\"><b>{}</b><span>{}</span></div>", escaped(&figure), escaped(&what));
    }
    out.push_str("</div>\n<p class=\"weak\">What the journal beside an image writes in sequence is not counted as a write to the slow storage.</p>\n");
    busiest(&mut out, &report.volumes);
    for volume in &report.volumes {
        of_volume(&mut out, volume);
    }
    incidents(&mut out, report);
    out.push_str("</main>\n</html>\n");
    out
}

fn row(out: &mut String, cells: &[String]) {
    let cells: String = cells.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
    let _ = writeln!(out, "<tr>{cells}</tr>");
}

fn busiest(out: &mut String, volumes: &[VolumeActivity]) {
    out.push_str(
        "<h2>Volumes, the busiest first</h2>\n<table>\n<tr><th>volume</th><th>reads</th><th>writes</th><th>written</th>\
         <th>to the slow storage</th><th>read hit rate</th></tr>\n",
    );
    for volume in volumes {
        let t = &volume.totals;
        let hits = volume.read_hit_ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
        let sizes = [t.write_bytes, t.backing_write_bytes].map(show_size);
        let [written, destaged] = sizes;
        row(out, &[volume.name.clone(), t.reads.to_string(), t.writes.to_string(), written, destaged, hits]);
    }
    out.push_str("</table>\n");
}

fn of_volume(out: &mut String, volume: &VolumeActivity) {
    let size = show_size(volume.size_bytes);
    let _ = writeln!(out, "<h2>{} <span class=\"weak\">{size}</span></h2>", escaped(&volume.name));
    let (Some(from), Some(to)) = (volume.from, volume.to) else {
        out.push_str("<p>Nothing is known of it in this time.</p>\n");
        return;
    };
    let measured = show_seconds(to.saturating_sub(from) as f64);
    let _ = writeln!(
        out,
        "<p class=\"weak\">Measured for {measured}, up to {}.</p>",
        forebay_api::calendar::show_ms(to * 1000)
    );
    out.push_str("<h3>Latency: what clients waited, and what the slow storage takes</h3>\n");
    latency(out, &volume.latency);
    out.push_str("<h3>Written</h3>\n");
    written(out, &volume.chart);
    if volume.cache_bytes.is_some() {
        out.push_str("<h3>What a cache of another size would hit</h3>\n");
        curve(out, volume);
    }
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;

fn latency(out: &mut String, rows: &[Latency]) {
    out.push_str("<table>\n<tr><th></th><th>measured</th><th>half took less than</th><th>90 %</th><th>99 %</th><th>99.9 %</th></tr>\n");
    for l in rows.iter().filter(|l| l.count > 0) {
        let [a, b, c, d] = [l.p50_us, l.p90_us, l.p99_us, l.p999_us].map(|us| us.map_or("-".to_owned(), micros));
        row(out, &[format!("{}, {}", l.side, place_word(l)), l.count.to_string(), a, b, c, d]);
    }
    out.push_str("</table>\n");
    // One bar for each of the 99th percentiles, by powers of ten: they differ by hundreds.
    let bars: Vec<(String, f64, bool)> = rows
        .iter()
        .filter_map(|l| Some((format!("{}, {}", l.side, place_word(l)), l.p99_us?, l.place == "backing")))
        .collect();
    let largest = bars.iter().map(|(_, us, _)| *us).fold(10.0, f64::max).log10();
    if bars.is_empty() {
        return;
    }
    let height = bars.len() as f64 * 26.0 + 4.0;
    let _ = write!(
        out,
        "<figure><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"99th percentiles of latency; the table above has the figures\">"
    );
    for (number, (title, us, backing)) in bars.iter().enumerate() {
        let y = number as f64 * 26.0 + 4.0;
        let width = (us.max(1.0).log10() / largest * (WIDTH - 300.0)).max(2.0);
        let class = if *backing { "bar-two" } else { "bar-one" };
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.0}\">{}</text><rect class=\"{class}\" x=\"170\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"18\"/><text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            y + 14.0,
            escaped(title),
            176.0 + width,
            y + 14.0,
            micros(*us)
        );
    }
    out.push_str("</svg><figcaption>99 of 100 took less; bars grow by powers of ten</figcaption></figure>\n");
}

fn place_word(l: &Latency) -> &'static str {
    match l.place {
        "client" => "clients",
        _ => "slow storage",
    }
}

fn written(out: &mut String, chart: &Chart) {
    let known = || chart.written.iter().chain(&chart.destaged).flatten();
    let largest = known().copied().fold(1.0, f64::max);
    if known().next().is_none() {
        out.push_str("<p>Nothing is known of it in this time.</p>\n");
        return;
    }
    let _ = write!(
        out,
        "<figure><svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Bytes a second over time, at most {} a second\">",
        HEIGHT + 24.0,
        show_size(largest as u64)
    );
    axes(out, &format!("{}/s", show_size(largest as u64)), "0");
    for (class, values) in [("one", &chart.written), ("two", &chart.destaged)] {
        path(out, class, values, largest);
    }
    let begin = forebay_api::calendar::show_ms(chart.from * 1000);
    let end = forebay_api::calendar::show_ms(chart.to * 1000);
    let y = HEIGHT + 18.0;
    let _ = write!(
        out,
        "<text x=\"{LEFT}\" y=\"{y}\">{begin}</text><text x=\"{WIDTH}\" y=\"{y}\" text-anchor=\"end\">{end}</text>"
    );
    out.push_str("</svg><figcaption>solid: by clients; dashed: to the slow storage</figcaption></figure>\n");
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

fn curve(out: &mut String, volume: &VolumeActivity) {
    let points = &volume.miss_ratio;
    let ratio = |ratio: Option<f64>| {
        ratio.map_or("not known: too little was read".to_owned(), |r| format!("{:.1} %", r * 100.0))
    };
    if let (Some(first), Some(last)) = (points.first(), points.last())
        && points.len() > 1
    {
        let (from, to) = ((first.cache_bytes as f64).log2(), (last.cache_bytes as f64).log2());
        let x = |bytes: u64| LEFT + ((bytes as f64).log2() - from) / (to - from) * (WIDTH - LEFT - 10.0);
        let y = |hit: f64| HEIGHT - hit * (HEIGHT - 16.0);
        let _ = write!(
            out,
            "<figure><svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"Hit rate by size of the cache; the table below has the figures\">",
            HEIGHT + 24.0
        );
        axes(out, "100 %", "0 %");
        let line: Vec<String> =
            points.iter().map(|p| format!("{:.1} {:.1}", x(p.cache_bytes), y(p.hit_ratio))).collect();
        let _ = write!(out, "<path class=\"one\" d=\"M{}\"/>", line.join("L"));
        for at in &volume.at_times {
            let Some(hit) = at.hit_ratio else { continue };
            let (x, y) = (x(at.cache_bytes), y(hit));
            let _ = write!(
                out,
                "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/><text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{} x</text>",
                HEIGHT + 18.0,
                at.times
            );
        }
        out.push_str("</svg><figcaption>by size of the cache, which doubles with each equal step to the right; marks: times the cache that there is</figcaption></figure>\n");
    }
    out.push_str("<table>\n<tr><th>cache</th><th>size</th><th>hit rate</th></tr>\n");
    for at in &volume.at_times {
        row(out, &[format!("{} x", at.times), show_size(at.cache_bytes), ratio(at.hit_ratio)]);
    }
    out.push_str("</table>\n");
    let _ = write!(out, "<p>It has really hit: {}.", ratio(volume.read_hit_ratio));
    if let Some(bytes) = volume.working_set_bytes {
        let _ = write!(out, " Working set: {}.", show_size(bytes));
    }
    out.push_str("</p>\n");
}

fn incidents(out: &mut String, report: &ActivityReport) {
    out.push_str("<h2>Incidents</h2>\n");
    if report.incidents.is_empty() {
        out.push_str("<p>None.</p>\n");
        return;
    }
    let kinds: Vec<String> =
        report.incidents_by_kind.iter().map(|(kind, count)| format!("{count} × {}", escaped(kind))).collect();
    let _ = writeln!(
        out,
        "<p>{}</p>\n<table>\n<tr><th>when</th><th>what</th><th>volume</th><th></th></tr>",
        kinds.join(", ")
    );
    for event in &report.incidents {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>",
            escaped(&event.at),
            escaped(&event.what.kind),
            escaped(event.what.volume.as_deref().unwrap_or("")),
            escaped(&event.what.text)
        );
    }
    out.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_whole_and_needs_nothing_from_elsewhere() {
        let page = page(&super::super::tests::example());
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
    fn gaps_stay_gaps() {
        let mut out = String::new();
        path(&mut out, "one", &[Some(1.0), None, Some(0.5), Some(0.0)], 1.0);
        assert_eq!(out.matches('M').count(), 2, "{out}");
        assert_eq!(out.matches('L').count(), 1, "{out}");
    }
}
