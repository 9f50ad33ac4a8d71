//! The report for a terminal.

use super::{ActivityReport, VolumeActivity, percent};
use crate::top::micros;
use crate::words::{self, Language, Sentence, left, right, say, word};
use forebay_api::units::{show_seconds, show_size};
use std::fmt::Write;

/// Columns that are left for the titles of percentiles at least, and for each figure.
const TITLE_WIDTH: usize = 17;
const FIGURE_WIDTH: usize = 10;

/// The whole report as text.
pub fn page(report: &ActivityReport, language: Language) -> String {
    let title = Sentence::new("report.title").with("version", &report.version).with("node", &report.node);
    let title = say(language, &title.with("window", &report.window).with("made", &report.made_at));
    let mut out = format!("{title}\n\n");
    totals(&mut out, report, language);
    for volume in &report.volumes {
        of_volume(&mut out, volume, language);
    }
    let _ = writeln!(out, "\n{}", words::text(language, "report.incidents"));
    if report.incidents.is_empty() {
        let _ = writeln!(out, "  {}", words::text(language, "report.none"));
    }
    for (kind, count) in &report.incidents_by_kind {
        let kind = Sentence::new("report.kind").with("count", count).with("kind", word(language, "kind", kind));
        let _ = writeln!(out, "  {}", say(language, &kind));
    }
    for event in &report.incidents {
        let volume = event.what.volume.as_deref().unwrap_or("");
        let kind = word(language, "kind", &event.what.kind);
        let _ = writeln!(out, "  {} {kind} {volume} {}", event.at, event.what.text);
    }
    out
}

/// What went through all volumes, with the figures below each other.
fn totals(out: &mut String, report: &ActivityReport, language: Language) {
    let t = &report.totals;
    let bytes_kept = |kept, of| format!("{} ({})", show_size(kept), percent(kept, of));
    let rows = [
        ("", "report.writes", format!("{} ({})", t.writes, show_size(t.write_bytes))),
        ("", "report.writes-kept", format!("{} ({})", t.writes_kept, percent(t.writes_kept, t.writes))),
        ("  ", "report.write-bytes-kept", bytes_kept(t.write_bytes_kept, t.write_bytes)),
        ("", "report.reads", format!("{} ({})", t.reads, show_size(t.read_bytes))),
        ("  ", "report.read-bytes-kept", bytes_kept(t.read_bytes_kept, t.read_bytes)),
        ("", "report.wires-kept", show_size(t.wire_bytes_saved)),
    ];
    let rows = rows.map(|(indent, key, figure)| (format!("{indent}{}", words::text(language, key)), figure));
    let widest = rows.iter().map(|(what, _)| words::width(what)).max().unwrap_or(0);
    for (what, figure) in rows {
        let _ = writeln!(out, "{}{figure}", left(&what, widest + 2));
    }
}

fn of_volume(out: &mut String, volume: &VolumeActivity, language: Language) {
    let t = &volume.totals;
    let _ = writeln!(out, "\n{} ({})", volume.name, show_size(volume.size_bytes));
    let mut line = |text: &str| {
        let _ = writeln!(out, "  {text}");
    };
    let ratio = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:.1} %", ratio * 100.0),
        None => words::text(language, "report.not-known"),
    };
    let (Some(from), Some(to)) = (volume.from, volume.to) else {
        return line(&words::text(language, "report.nothing"));
    };
    let measured = Sentence::new("report.measured").with("time", show_seconds(to.saturating_sub(from) as f64));
    line(&say(language, &measured.with("reads", t.reads).with("writes", t.writes)));
    let kept = Sentence::new("report.kept").with("writes", percent(t.writes_kept, t.writes));
    line(&say(language, &kept.with("bytes", percent(t.write_bytes_kept, t.write_bytes))));
    for row in percentiles(volume, language) {
        line(&row);
    }
    line(&say(language, &Sentence::new("report.hits").with("ratio", ratio(volume.read_hit_ratio))));
    if let Some(bytes) = volume.working_set_bytes {
        line(&say(language, &Sentence::new("report.working-set").with("size", show_size(bytes))));
    }
    for at in &volume.at_times {
        let hit = Sentence::new("report.at").with("times", format!("{:>3}", at.times));
        line(&say(language, &hit.with("size", show_size(at.cache_bytes)).with("ratio", ratio(at.hit_ratio))));
    }
}

/// Times of each leg in columns, below their heads.
fn percentiles(volume: &VolumeActivity, language: Language) -> Vec<String> {
    let mut rows =
        vec![(String::new(), [&*words::text(language, "report.median"), "90 %", "99 %", "99.9 %"].map(str::to_owned))];
    for leg in volume.latency.iter().filter(|leg| leg.count > 0) {
        let title = Sentence::new("report.leg").with("side", word(language, "side", leg.side));
        let title = say(language, &title.with("place", word(language, "leg", leg.place)));
        let times = [leg.p50_us, leg.p90_us, leg.p99_us, leg.p999_us];
        rows.push((title, times.map(|us| us.map_or("-".to_owned(), micros))));
    }
    let widest = rows.iter().map(|(title, _)| words::width(title)).max().unwrap_or(0).max(TITLE_WIDTH);
    let in_columns = |(title, figures): (String, [String; 4])| {
        let figures: String = figures.iter().map(|figure| right(figure, FIGURE_WIDTH)).collect();
        format!("{}{figures}", left(&title, widest))
    };
    rows.into_iter().map(in_columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::tests::{LANGUAGES, all_is_said};
    use crate::words::width;

    #[test]
    fn every_number_is_there() {
        let text = page(&super::super::tests::example(), Language::En);
        for part in [
            "960 (96.0 %)",
            "(70.0 %)",
            "write backing",
            "36.0 ms",
            "2 x cache (32K): 90.0 %",
            "4 x cache (64K): not known",
            "1 x backing-failing",
        ] {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn figures_stand_below_their_heads_in_every_language() {
        for language in LANGUAGES {
            let mut report = super::super::tests::example();
            let text = page(&report, language);
            all_is_said(&text);
            let lines: Vec<&str> = text.lines().collect();
            let begins = |line: &str, figure: &str| width(&line[..line.find(figure).unwrap()]);
            let totals = [(2, "1000 ("), (3, "960 ("), (4, "6.8K ("), (5, "100 (")];
            let places: Vec<usize> = totals.iter().map(|(line, figure)| begins(lines[*line], figure)).collect();
            assert!(places.windows(2).all(|two| two[0] == two[1]), "{places:?} {text}");
            let head = lines.iter().position(|line| line.contains("99.9 %")).unwrap();
            let ends: Vec<usize> = lines[head..head + 5].iter().map(|line| width(line)).collect();
            assert!(ends.windows(2).all(|two| two[0] == two[1]) && ends[0] <= 80, "{ends:?} {text}");
            report.volumes[0].from = None;
            report.incidents.clear();
            all_is_said(&page(&report, language));
        }
        let text = page(&super::super::tests::example(), Language::Ja);
        for part in ["書き込み バッキング", "中央値", "2 倍のキャッシュ (32K): 90.0 %", "バッキング障害: 1 件"]
        {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }
}
