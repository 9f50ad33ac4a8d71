//! What is new in the board's event log, as events: each entry once, also over restarts of the daemon as long as it keeps its events.
//!
//! Clocks of controllers are often wrong, so an entry is known by its line, which has its number. Where the entry that was told last is
//! not among the newest, because the log was emptied or nothing was ever told, its newest one is told with how many there are.

use crate::events::Filter;
use crate::telemetry::Telemetry;
use forebay_api::events::{EventKind, Happened, Severity};
use forebay_api::sentence::Sentence;
use forebay_doctor::checks::management::is_fault;

/// The detail of an event that has the entry's line.
const ENTRY: &str = "entry";

/// The entry that this life or an earlier one has told last.
pub fn told_last(telemetry: &Telemetry) -> Option<String> {
    let filter = Filter { kind: Some(EventKind::BoardLog.word()), ..Filter::default() };
    let last = telemetry.events(&filter, 1).pop()?;
    last.what.details.get(ENTRY)?.as_str().map(str::to_owned)
}

/// Events of what came after the entry that was told last: `newest` are the last of `entries`, oldest first.
pub fn news(told: Option<&str>, newest: &[String], entries: usize) -> Vec<Happened> {
    let Some(last) = newest.last() else { return Vec::new() };
    let event = |line: &str, sentence: Sentence| {
        let severity = if is_fault(line) { Severity::Warning } else { Severity::Info };
        Happened::new(EventKind::BoardLog, severity, sentence.with("line", line)).with(ENTRY, line)
    };
    match newest.iter().rposition(|line| Some(line.as_str()) == told) {
        Some(at) => newest[at + 1..].iter().map(|line| event(line, Sentence::new("event.board"))).collect(),
        None if entries == 1 => vec![event(last, Sentence::new("event.board-one"))],
        None => vec![event(last, Sentence::new("event.board-many").with("entries", entries))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
        numbers.map(|number| format!("{number} | 04/19/2024 | Power Unit #0x51 | Power off/down | Asserted")).collect()
    }

    fn texts(told: Option<&str>, newest: &[String], entries: usize) -> Vec<String> {
        news(told, newest, entries).into_iter().map(|event| event.text).collect()
    }

    #[test]
    fn each_entry_is_told_once() {
        let newest = lines(1..=3);
        let wanted: Vec<String> = newest[1..].iter().map(|line| format!("the board's event log: {line}")).collect();
        assert_eq!(texts(Some(&newest[0]), &newest, 3), wanted);
        assert!(news(Some(&newest[2]), &newest, 3).is_empty());
        assert!(news(None, &[], 0).is_empty() && news(Some("1 | x"), &[], 0).is_empty());
    }

    #[test]
    fn where_the_last_one_is_not_known_or_gone_the_newest_is_told_with_how_many_there_are() {
        let newest = lines(7..=9);
        for told in [None, Some("2 | long ago")] {
            let said = texts(told, &newest, 900);
            assert_eq!(said, [format!("the board's event log has 900 entries, the newest one: {}", newest[2])]);
        }
        assert!(texts(None, &newest[..1], 1)[0].starts_with("the board's event log has one entry: 7 |"));
    }

    #[test]
    fn an_entry_of_failing_hardware_is_a_warning_and_its_end_is_not() {
        let severity = |end: &str| {
            let line = format!("3 | 05/01/2024 | 01:00:09 | Power Supply #0x61 | Power Supply AC lost | {end}");
            news(None, &[line], 1)[0].severity
        };
        assert_eq!((severity("Asserted"), severity("Deasserted")), (Severity::Warning, Severity::Info));
    }
}
