//! The last words of a daemon that panics: said like everything else, and waited for, but not for long, because the process is to end.
//!
//! Invariants:
//! - A panic ends within [`PANIC_WAIT`] of its beginning, whatever the log's thread and the reader of standard error do, and whoever holds
//!   the queue: it may be the very thread that panics.
//! - Who writes it by himself writes no more than what is taken at once.

use super::format::Format;
use super::{About, Level, Line, Log, Queue, log};
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::panic::PanicHookInfo;
use std::sync::{MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// So long the end of the process is put off at most.
const PANIC_WAIT: Duration = Duration::from_millis(500);
/// Between two looks whether the queue is free.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// What a pipe takes whole when it takes anything (`PIPE_BUF`).
const AT_ONCE_BYTES_MAX: usize = 4_096;
/// Where a line was cut.
const CUT: char = '…';

thread_local! {
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

/// This is the thread that writes what others say: nobody else writes what it says itself when it panics.
pub(super) fn this_thread_writes() {
    WRITES.set(true);
}

/// From now on a panic of any thread is a line of the log. What happens next is the same as without.
pub(super) fn say_panics() {
    std::panic::set_hook(Box::new(|info| {
        let until = Instant::now() + PANIC_WAIT;
        log().say_last([line(info)].into(), until);
        // Asked for by RUST_BACKTRACE; to find the names of functions may take long, so the rest is said before.
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            log().say_last(trace.to_string().lines().map(frame).collect(), until);
        }
    }));
}

/// `panicked at FILE:LINE:COLUMN: MESSAGE`, with the thread before it.
fn line(info: &PanicHookInfo<'_>) -> Line {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    said(format_args!("thread '{name}' {info}; this is a bug"))
}

fn frame(text: &str) -> Line {
    said(format_args!("{}", text.trim_end()))
}

fn said(text: std::fmt::Arguments<'_>) -> Line {
    Line::new(Level::Critical, module_path!(), About::Nothing, text)
}

impl Log {
    /// Says lines that must not be lost for want of room, and returns when they are written, or at `until`.
    fn say_last(&self, lines: Vec<Line>, until: Instant) {
        let queue = if WRITES.get() { None } else { self.locked_until(until) };
        let Some(mut queue) = queue.filter(|queue| queue.is_served) else {
            return lines.iter().for_each(|line| write_at_once(&at_once(self.format(), line)));
        };
        queue.lines.extend(lines);
        self.changed.notify_all();
        let rest = until.saturating_duration_since(Instant::now());
        drop(self.changed.wait_timeout_while(queue, rest, |queue| queue.is_open()));
    }

    /// None: it is held all the time, perhaps by who asks.
    fn locked_until(&self, until: Instant) -> Option<MutexGuard<'_, Queue>> {
        loop {
            match self.queue.try_lock() {
                Ok(queue) => return Some(queue),
                Err(TryLockError::Poisoned(queue)) => return Some(queue.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
            }
        }
    }
}

/// A line that is taken whole: of a longer one, the end of its text is left out.
fn at_once(format: Format, line: &Line) -> String {
    let text = format.render(line);
    let Some(over) = text.len().checked_sub(AT_ONCE_BYTES_MAX + 1) else { return text };
    // As it is rendered, no letter is shorter than as it is.
    let left = line.text.len().saturating_sub(over + 1 + CUT.len_utf8());
    let kept = &line.text[..line.text.floor_char_boundary(left)];
    format.render(&Line { text: format!("{kept}{CUT}"), ..line.clone() })
}

/// Where standard error takes nothing now, it is lost.
fn write_at_once(text: &str) {
    let mut standard_error = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor to look at, which is there for the length of the call.
    let ready = unsafe { libc::poll(&mut standard_error, 1, 0) };
    if ready == 1 && standard_error.revents & libc::POLLOUT != 0 {
        let bytes = text.as_bytes();
        // SAFETY: the bytes are there for the length of the call.
        unsafe { libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::LogFormat;
    use std::sync::mpsc;

    fn in_short() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[test]
    fn last_words_find_room_in_a_full_queue_and_are_not_waited_for_in_vain() {
        let log = Log::default();
        log.locked().is_served = true;
        (0..super::super::LINES_MAX).for_each(|_| log.put(frame("x")));
        // Nobody writes.
        log.say_last(vec![frame("the last")], in_short());
        let queue = log.locked();
        assert_eq!((queue.lines.len(), queue.lost), (super::super::LINES_MAX + 1, 0));
        assert_eq!(queue.lines.back().unwrap().text, "the last");
    }

    #[test]
    fn last_words_that_are_too_long_end_with_a_whole_letter_and_as_a_line() {
        // Letters of one to four bytes, and one that is longer as JSON, around the bound.
        for letter in ["x", "ä", "한", "😀", "\""] {
            for count in [1, 990, 1_017, 1_350, 2_000, 4_060, 4_096, 8_000] {
                let line = frame(&letter.repeat(count));
                for format in [LogFormat::Text, LogFormat::Json].map(Format::of) {
                    let (whole, written) = (format.render(&line), at_once(format, &line));
                    assert!(written.len() <= AT_ONCE_BYTES_MAX && written.ends_with('\n'), "{count} {letter}");
                    assert_eq!(written.contains(CUT), whole.len() > AT_ONCE_BYTES_MAX, "{count} {letter}");
                    assert_eq!(written == whole, whole.len() <= AT_ONCE_BYTES_MAX, "{count} {letter}");
                    if format.is_json {
                        serde_json::from_str::<serde_json::Value>(&written).expect("one object");
                    }
                }
            }
        }
    }

    #[test]
    fn a_queue_that_is_held_holds_up_no_panic() {
        let log = Log::default();
        let held = log.locked();
        // By another thread, and by the very one that panics.
        std::thread::scope(|scope| {
            let other = scope.spawn(|| log.locked_until(in_short()).is_none());
            assert!(other.join().unwrap());
        });
        assert!(log.locked_until(in_short()).is_none());
        drop(held);
        assert!(log.locked_until(in_short()).is_some());
    }

    #[test]
    fn a_panic_is_said_with_its_place_and_its_thread() {
        let (said, heard) = mpsc::channel();
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() == Some("shard-7") {
                let _ = said.send(line(info));
            }
        }));
        let shard = || std::thread::Builder::new().name("shard-7".into()).spawn(|| panic!("a\nb"));
        let ended = shard().map(|shard| shard.join().is_err());
        std::panic::set_hook(former);
        assert!(ended.unwrap());
        let line = heard.recv().unwrap();
        assert_eq!(line.level, Level::Critical);
        let (place, message) = line.text.split_once("panic.rs:").expect("the place");
        assert!(place.starts_with("thread 'shard-7' panicked at "), "{}", line.text);
        assert!(message.ends_with(": a b; this is a bug"), "{}", line.text);
    }
}
