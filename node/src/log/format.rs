//! What a line of the log looks like: for people, for the system's journal, and for programs.

use super::{Level, Line};
use forebay_api::calendar;
use forebay_api::config::LogFormat;
use serde::Serialize;

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Format {
    pub(super) is_json: bool,
    /// The level stands before each line, as `sd-daemon(3)` says.
    pub(super) has_priority: bool,
}

impl Format {
    pub(super) fn of(asked: LogFormat) -> Format {
        Format::beside(asked, || is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref(), stderr_is()))
    }

    fn beside(asked: LogFormat, is_journal: impl FnOnce() -> bool) -> Format {
        match asked {
            LogFormat::Text => Format { is_json: false, has_priority: false },
            LogFormat::Journal => Format { is_json: false, has_priority: true },
            LogFormat::Auto => Format { is_json: false, has_priority: is_journal() },
            // The journal takes the level away, and keeps the object.
            LogFormat::Json => Format { is_json: true, has_priority: is_journal() },
        }
    }

    /// The line with its end.
    pub(super) fn render(self, line: &Line) -> String {
        let (priority, word) = match line.level {
            Level::Critical => ("<2>", ""),
            Level::Error => ("<3>", ""),
            Level::Warning => ("<4>", "warning: "),
            Level::Notice => ("<5>", ""),
        };
        let priority = if self.has_priority { priority } else { "" };
        if self.is_json {
            return format!("{priority}{}\n", json(line));
        }
        let end = if line.is_progress { "\x1b[K\r" } else { "\n" };
        format!("{priority}forebay: {word}{}{end}", line.text)
    }
}

/// Device and inode of standard error.
fn stderr_is() -> Option<(u64, u64)> {
    // SAFETY: all zeros is one of these, and the kernel fills it.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for what is said of the descriptor.
    let looked = unsafe { libc::fstat(libc::STDERR_FILENO, &mut found) };
    (looked == 0).then_some((found.st_dev, found.st_ino))
}

/// Whether standard error is the stream to the journal that systemd has named: a process that was started with another one has inherited
/// the variable only.
fn is_journal(named: Option<&str>, stderr: Option<(u64, u64)>) -> bool {
    let named = named.and_then(|named| named.split_once(':'));
    let named = named.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    named.is_some() && named == stderr
}

/// One object; names and texts may be a stranger's, and are escaped.
fn json(line: &Line) -> String {
    #[derive(Serialize)]
    struct Object<'a> {
        time: String,
        level: &'static str,
        area: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        volume: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        volume_id: Option<String>,
        message: &'a str,
    }
    let level = match line.level {
        Level::Critical => "critical",
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Notice => "notice",
    };
    let object = Object {
        time: calendar::show_ms(line.time_ms),
        level,
        // The crate is the same in each of them.
        area: line.area.split_once("::").map_or(line.area, |(_, area)| area),
        volume: line.volume.as_deref(),
        volume_id: line.volume.as_deref().and_then(crate::names::volume_of).map(|volume| volume.to_string()),
        message: &line.text,
    };
    serde_json::to_string(&object).expect("texts are JSON")
}

#[cfg(test)]
mod tests {
    use super::super::{About, Line};
    use super::*;
    use forebay_api::record::VolumeId;
    use serde_json::Value;

    const JSON: Format = Format { is_json: true, has_priority: false };

    fn line(level: Level, about: About<'_>, text: &str) -> Line {
        let line = Line::new(level, "forebay_node::cluster::fencing", about, format_args!("{text}"));
        Line { time_ms: 1_795_000_001_250, ..line }
    }

    #[test]
    fn the_journal_is_where_systemd_says_that_standard_error_is() {
        let stderr = Some((9, 1234));
        assert!(is_journal(Some("9:1234"), stderr));
        for other in [None, Some(""), Some("9"), Some("9:1235"), Some("8:1234"), Some("9:1234:5"), Some("x:y")] {
            assert!(!is_journal(other, stderr), "{other:?}");
        }
        assert!(!is_journal(Some("9:1234"), None));
        assert!(!is_journal(None, None));
    }

    #[test]
    fn levels_are_for_the_journal_alone() {
        let format = |asked, is_journal| Format::beside(asked, || is_journal);
        let warned = line(Level::Warning, About::Nothing, "x");
        for (asked, is_journal, written) in [
            (LogFormat::Auto, false, "forebay: warning: x\n"),
            (LogFormat::Auto, true, "<4>forebay: warning: x\n"),
            (LogFormat::Text, true, "forebay: warning: x\n"),
            (LogFormat::Journal, false, "<4>forebay: warning: x\n"),
        ] {
            assert_eq!(format(asked, is_journal).render(&warned), written, "{asked:?}");
        }
        assert!(format(LogFormat::Json, true).render(&warned).starts_with("<4>{\"time\":"));
        assert!(format(LogFormat::Json, false).render(&warned).starts_with("{\"time\":"));
        let priorities = [Level::Critical, Level::Error, Level::Warning, Level::Notice]
            .map(|level| format(LogFormat::Journal, false).render(&line(level, About::Nothing, "x"))[..3].to_owned());
        assert_eq!(priorities, ["<2>", "<3>", "<4>", "<5>"]);
    }

    #[test]
    fn a_line_of_json_is_one_object_with_all_that_is_known_of_it() {
        let volume = VolumeId([0xb7; 16]);
        crate::names::learn(volume, "json-1");
        let written = JSON.render(&line(Level::Error, About::Volume(&"json-1"), "it fails"));
        assert_eq!(written.matches('\n').count(), 1, "{written}");
        let read: Value = serde_json::from_str(&written).unwrap();
        let expected = serde_json::json!({
            "time": "2026-11-18T11:06:41.250Z", "level": "error", "area": "cluster::fencing",
            "volume": "json-1", "volume_id": volume.to_string(), "message": "volume json-1: it fails",
        });
        assert_eq!(read, expected);
        // It is named in the words already.
        let written = JSON.render(&line(Level::Notice, About::Named(&"json-2"), "volume json-2 is gone"));
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!((&read["volume"], &read["message"]), (&"json-2".into(), &"volume json-2 is gone".into()));
        assert_eq!(read.get("volume_id"), None, "it is not known here");
        let written = JSON.render(&line(Level::Notice, About::Nothing, "stopped"));
        let read: Value = serde_json::from_str(&written).unwrap();
        assert_eq!((read.get("volume"), &read["message"]), (None, &"stopped".into()));
    }

    #[test]
    fn what_a_stranger_has_written_ends_no_object_and_no_line() {
        let hostile = "\",\"level\":\"notice\"}\n{\"x\":\"\\u0041\\\"\r\u{1b}[2J\u{0}\u{2028}\u{85}\u{7f}ä";
        for about in [About::Nothing, About::Volume(&hostile), About::Named(&hostile)] {
            let written = JSON.render(&line(Level::Error, about, hostile));
            assert_eq!(written.matches(char::is_control).collect::<Vec<_>>(), ["\n"], "{written:?}");
            let read: Value = serde_json::from_str(&written).unwrap();
            assert_eq!(read["level"], "error", "{written}");
            let message = read["message"].as_str().unwrap();
            assert!(message.contains("\",\"level\":\"notice\"} {\"x\":\"\\u0041\\\""), "{message:?}");
            assert!(message.ends_with('ä'), "{message:?}");
        }
    }
}
