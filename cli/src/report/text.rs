//! The report for a terminal.

use super::{ActivityReport, Latency, VolumeActivity, percent};
use crate::top::micros;
use forebay_api::units::{show_seconds, show_size};
use std::fmt::Write;

/// The whole report as text.
pub fn page(report: &ActivityReport) -> String {
    let t = &report.totals;
    let mut out = format!(
        "forebay {} on {}, the last {}, made {}\n\n",
        report.version, report.node, report.window, report.made_at
    );
    let mut row = |what: &str, text: String| {
        let _ = writeln!(out, "{what:<28}{text}");
    };
    row("writes of clients", format!("{} ({})", t.writes, show_size(t.write_bytes)));
    row("kept from the slow storage", format!("{} ({})", t.writes_kept, percent(t.writes_kept, t.writes)));
    row(
        "  bytes of them",
        format!("{} ({})", show_size(t.write_bytes_kept), percent(t.write_bytes_kept, t.write_bytes)),
    );
    row("reads of clients", format!("{} ({})", t.reads, show_size(t.read_bytes)));
    row(
        "  bytes kept from it",
        format!("{} ({})", show_size(t.read_bytes_kept), percent(t.read_bytes_kept, t.read_bytes)),
    );
    row("kept from wires", show_size(t.wire_bytes_saved));
    for volume in &report.volumes {
        of_volume(&mut out, volume);
    }
    let _ = writeln!(out, "\nincidents");
    if report.incidents.is_empty() {
        let _ = writeln!(out, "  none");
    }
    for (kind, count) in &report.incidents_by_kind {
        let _ = writeln!(out, "  {count} x {kind}");
    }
    for event in &report.incidents {
        let volume = event.what.volume.as_deref().unwrap_or("");
        let _ = writeln!(out, "  {} {} {volume} {}", event.at, event.what.kind, event.what.text);
    }
    out
}

fn of_volume(out: &mut String, volume: &VolumeActivity) {
    let t = &volume.totals;
    let _ = writeln!(out, "\n{} ({})", volume.name, show_size(volume.size_bytes));
    let (Some(from), Some(to)) = (volume.from, volume.to) else {
        let _ = writeln!(out, "  nothing is known of it in this time");
        return;
    };
    let _ =
        writeln!(out, "  measured for {}: {} reads, {} writes", show_seconds((to - from) as f64), t.reads, t.writes);
    let kept = percent(t.writes_kept, t.writes);
    let _ = writeln!(out, "  writes kept {kept}, of the bytes {}", percent(t.write_bytes_kept, t.write_bytes));
    let _ = writeln!(out, "  {:<17}{:>10}{:>10}{:>10}{:>10}", "", "half", "90 %", "99 %", "99.9 %");
    for Latency { side, place, count, p50_us, p90_us, p99_us, p999_us } in &volume.latency {
        if *count > 0 {
            let [a, b, c, d] = [p50_us, p90_us, p99_us, p999_us].map(|us| us.map_or("-".to_owned(), micros));
            let _ = writeln!(out, "  {:<17}{a:>10}{b:>10}{c:>10}{d:>10}", format!("{side} {place}"));
        }
    }
    let ratio = |ratio: Option<f64>| ratio.map_or("not known".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
    let _ = writeln!(out, "  read hit rate {}", ratio(volume.read_hit_ratio));
    if let Some(bytes) = volume.working_set_bytes {
        let _ = writeln!(out, "  working set {}", show_size(bytes));
    }
    for at in &volume.at_times {
        let _ = writeln!(out, "  {:>3} x cache ({}): {}", at.times, show_size(at.cache_bytes), ratio(at.hit_ratio));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_number_is_there() {
        let text = super::page(&super::super::tests::example());
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
}
