//! What the daemon says on its standard error: whoever says something waits for nobody.
//!
//! A line is put in a queue, and a thread of its own writes it. Where standard error is full, closed, or a pipe that nobody reads, lines
//! are left out and counted; the daemon goes on.
//!
//! Invariants:
//! - Nobody waits for a write to standard error, and no failure of one is anybody's. Who says something waits at most for another thread
//!   that does the same.
//! - At most [`LINES_MAX`] lines wait, of at most [`LINE_BYTES_MAX`] bytes each. What finds no room, or could not be written, is
//!   counted, and the count is said.
//! - A line has no control characters, whoever the names and errors in it are from: it is one line, and changes no terminal. As JSON it is
//!   one object, whatever is in it.
//! - Of what one place in the code says, [`FREE_LINES`] lines within [`WINDOW`] are written one by one; of more the last one, with how many
//!   there were. While that goes on, each window is twice as long as the one before, up to [`WINDOW_MAX`].
//!
//! A line begins with `forebay: `. Where standard error is the system's journal, or `--log-format journal` asks for it, its level stands
//! before that, as `sd-daemon(3)` says: `<2>` for a panic, `<3>` for an error, `<4>` for a warning, `<5>` for a notice. Of a line is kept what
//! it is about until it is written, so that `format` can also write it as an object.

mod format;
mod panic;

use self::format::Format;
use forebay_api::calendar;
use forebay_api::checked::without_controls;
use forebay_api::config::LogFormat;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Display, Write};
use std::io::IsTerminal;
use std::os::fd::AsRawFd;
use std::panic::Location;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// So many lines wait to be written.
const LINES_MAX: usize = 1_024;
/// What is longer is cut off.
const LINE_BYTES_MAX: usize = 8 << 10;
/// So many lines of one place are written one by one ...
const FREE_LINES: u32 = 20;
/// ... within so long.
const WINDOW: Duration = Duration::from_secs(10);
/// Longest time for which lines of one place are counted before one is written.
const WINDOW_MAX: Duration = Duration::from_secs(640);
/// Who ends the daemon, or has started it, waits so long for what was said.
const FLUSH_WAIT: Duration = Duration::from_secs(2);

/// How much a line matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The daemon ends by it.
    Critical,
    /// Something was tried and failed.
    Error,
    /// Something is not as it should be, or may fail.
    Warning,
    /// What happens, and is no fault.
    Notice,
}

/// Which volume a line is about.
#[derive(Clone, Copy)]
pub enum About<'a> {
    /// None, or several.
    Nothing,
    /// This one; the line begins with its name.
    Volume(&'a dyn Display),
    /// This one, which the text names itself.
    Named(&'a dyn Display),
}

/// `say!(Error, "cannot ...: {error}")`: a line of this level, without `forebay: ` in front. `say!(Error, volume(name), "...")` puts
/// `volume NAME: ` before the text; `say!(Error, about(name), "...")` is of a volume that the text names itself.
macro_rules! say {
    ($level:ident, volume($name:expr), $($text:tt)+) => {
        $crate::log::say!(@ $level, $crate::log::About::Volume(&$name), $($text)+)
    };
    ($level:ident, about($name:expr), $($text:tt)+) => {
        $crate::log::say!(@ $level, $crate::log::About::Named(&$name), $($text)+)
    };
    (@ $level:ident, $about:expr, $($text:tt)+) => {
        $crate::log::say_line($crate::log::Level::$level, module_path!(), $about, format_args!($($text)+))
    };
    ($level:ident, $($text:tt)+) => {
        $crate::log::say!(@ $level, $crate::log::About::Nothing, $($text)+)
    };
}
pub(crate) use say;

/// What is said, until it is written.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    /// When it was said, in milliseconds since 1970.
    time_ms: u64,
    level: Level,
    /// The module that says it.
    area: &'static str,
    /// The name of the volume that it is about.
    volume: Option<String>,
    text: String,
    /// On a terminal the next line takes its place.
    is_progress: bool,
}

impl Line {
    fn new(level: Level, area: &'static str, about: About<'_>, text: std::fmt::Arguments<'_>) -> Line {
        let (volume, text) = match about {
            About::Nothing => (None, text.to_string()),
            About::Volume(name) => (Some(name), format!("volume {name}: {text}")),
            About::Named(name) => (Some(name), text.to_string()),
        };
        let volume = volume.map(|name| plain(&name.to_string()));
        Line { time_ms: calendar::now_ms(), level, area, volume, text: plain(&text), is_progress: false }
    }

    /// Of the log itself.
    fn of_the_log(text: std::fmt::Arguments<'_>) -> Line {
        Line::new(Level::Warning, module_path!(), About::Nothing, text)
    }
}

/// A text of one line that no terminal obeys, and not a long one.
fn plain(text: &str) -> String {
    let mut text = without_controls(&text.replace(['\n', '\u{2028}', '\u{2029}'], " "));
    if text.len() > LINE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        text.push_str(" ...");
    }
    text
}

/// A place in the code that says something.
type Place = (&'static str, u32);

/// What one place has said of late.
struct Said {
    /// When its window began, and how long that is.
    since: Instant,
    window: Duration,
    written: u32,
    /// How many lines were not written one by one, and the last one.
    more: u32,
    last: Option<Line>,
}

/// What waits to be written, and what was said.
#[derive(Default)]
struct Queue {
    lines: VecDeque<Line>,
    /// Lines that found no room.
    lost: u64,
    /// Lines that standard error did not take, and whether it took the last ones.
    unwritten: u64,
    takes_lines: bool,
    places: BTreeMap<Place, Said>,
    /// The thread writes what it has taken.
    is_writing: bool,
    /// A thread writes.
    is_served: bool,
}

#[derive(Default)]
struct Log {
    queue: Mutex<Queue>,
    /// There is something to write, or all is written.
    changed: Condvar,
    format: OnceLock<Format>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Says a line; see [`say!`].
#[track_caller]
pub fn say_line(level: Level, area: &'static str, about: About<'_>, text: std::fmt::Arguments<'_>) {
    let place = Location::caller();
    log().say((place.file(), place.line()), Line::new(level, area, about, text), Instant::now());
}

/// Says how far something is: on a terminal the next line takes its place.
#[track_caller]
pub fn say_progress(area: &'static str, text: std::fmt::Arguments<'_>) {
    if log().format().is_json || !std::io::stderr().is_terminal() {
        return say_line(Level::Notice, area, About::Nothing, text);
    }
    log().put(Line { is_progress: true, ..Line::new(Level::Notice, area, About::Nothing, text) });
}

/// Begins to write what is said, in this format; before that, whoever says something writes it. A panic is said like everything else.
pub fn begin(format: LogFormat) -> std::io::Result<()> {
    log().format.get_or_init(|| Format::of(format));
    std::thread::Builder::new().name("log".into()).spawn(|| log().write_for_ever())?;
    log().locked().is_served = true;
    panic::say_panics();
    Ok(())
}

/// Waits until all that was said is written, but not for long.
pub fn flush() {
    let log = log();
    let mut queue = log.locked();
    queue.say_counted(|_| true, Instant::now());
    log.changed.notify_all();
    drop(log.changed.wait_timeout_while(queue, FLUSH_WAIT, |queue| queue.is_open()));
}

fn log() -> &'static Log {
    LOG.get_or_init(Log::default)
}

impl Log {
    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn format(&self) -> Format {
        *self.format.get_or_init(|| Format::of(LogFormat::Auto))
    }

    fn say(&self, place: Place, line: Line, now: Instant) {
        let line = self.locked().admit(place, line, now);
        if let Some(line) = line {
            self.put(line);
        }
    }

    fn put(&self, line: Line) {
        let mut queue = self.locked();
        if !queue.is_served {
            drop(queue);
            write(&self.format().render(&line));
            return;
        }
        queue.put(line);
        drop(queue);
        self.changed.notify_all();
    }

    fn write_for_ever(&self) {
        panic::this_thread_writes();
        let mut queue = self.locked();
        loop {
            let lines = queue.take(Instant::now());
            if lines.is_empty() {
                self.changed.notify_all();
                let rest = queue.places.values().map(|said| said.since + said.window).min();
                queue = match rest.map(|end| end.saturating_duration_since(Instant::now())) {
                    Some(rest) => self.changed.wait_timeout(queue, rest).unwrap_or_else(PoisonError::into_inner).0,
                    None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                };
                continue;
            }
            queue.is_writing = true;
            drop(queue);
            let unwritten = lines.iter().filter(|line| !write(&self.format().render(line))).count();
            queue = self.locked();
            queue.is_writing = false;
            queue.unwritten += unwritten as u64;
            queue.takes_lines = unwritten == 0;
        }
    }
}

impl Said {
    fn begin(now: Instant, window: Duration) -> Said {
        Said { since: now, window, written: 0, more: 0, last: None }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.since + self.window
    }
}

impl Queue {
    /// Something waits for a thread that writes it.
    fn is_open(&self) -> bool {
        self.is_served && (self.is_writing || !self.lines.is_empty())
    }

    fn put(&mut self, line: Line) {
        if self.lines.len() < LINES_MAX {
            self.lines.push_back(line);
        } else {
            self.lost += 1;
        }
    }

    /// All that waits, and what was counted: taken first, so that there is room for that.
    fn take(&mut self, now: Instant) -> VecDeque<Line> {
        let mut lines = std::mem::take(&mut self.lines);
        if self.takes_lines {
            self.say_unwritten();
        }
        self.say_counted(|said| said.is_over(now), now);
        self.say_lost();
        lines.append(&mut self.lines);
        lines
    }

    /// The line, if it is to be written by itself.
    fn admit(&mut self, place: Place, line: Line, now: Instant) -> Option<Line> {
        let said = self.places.entry(place).or_insert_with(|| Said::begin(now, WINDOW));
        if said.written < FREE_LINES {
            said.written += 1;
            return Some(line);
        }
        said.more += 1;
        said.last = Some(line);
        None
    }

    /// Of places whose window is over, what was counted in it.
    fn say_counted(&mut self, is_over: impl Fn(&Said) -> bool, now: Instant) {
        let over: Vec<Place> = self.places.iter().filter(|(_, said)| is_over(said)).map(|(place, _)| *place).collect();
        for place in over {
            let Some(Said { more, window, last, .. }) = self.places.remove(&place) else { continue };
            let Some(mut last) = last else { continue };
            let _ = write!(last.text, " (the last of {more} more like it within {} s)", window.as_secs());
            self.put(last);
            self.places.insert(place, Said { written: FREE_LINES, ..Said::begin(now, (window * 2).min(WINDOW_MAX)) });
        }
    }

    /// Of what standard error did not take, when it takes something again.
    fn say_unwritten(&mut self) {
        let unwritten = std::mem::take(&mut self.unwritten);
        if unwritten > 0 {
            self.put(Line::of_the_log(format_args!("{unwritten} lines before this could not be written here")));
        }
    }

    fn say_lost(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            self.put(Line::of_the_log(format_args!("{lost} lines were said faster than they could be written")));
        }
    }
}

/// What cannot be written is nobody's fault, and lost: false.
fn write(line: &str) -> bool {
    let fd = std::io::stderr().as_raw_fd();
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the bytes are there for the length of the call.
        match unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) } {
            written if written > 0 => rest = &rest[written as usize..],
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Format = Format { is_json: false, has_priority: false };

    fn line(text: &str) -> Line {
        Line::new(Level::Notice, "x", About::Nothing, format_args!("{text}"))
    }

    fn admitted(queue: &mut Queue, place: Place, count: u32, now: Instant) -> usize {
        (0..count).filter_map(|i| queue.admit(place, line(&i.to_string()), now)).count()
    }

    fn written(queue: &Queue) -> Vec<String> {
        queue.lines.iter().map(|line| TEXT.render(line)).collect()
    }

    #[test]
    fn repeats_of_one_place_are_summed_up_and_another_place_is_not_hidden() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (one, other) = (("a.rs", 1), ("b.rs", 1));
        assert_eq!(admitted(&mut queue, one, 488, now), FREE_LINES as usize);
        assert_eq!(admitted(&mut queue, other, 1, now), 1);
        queue.say_counted(|_| true, now);
        assert_eq!(written(&queue), ["forebay: 487 (the last of 468 more like it within 10 s)\n"]);
        // While it goes on: once in each window, which are longer and longer.
        assert_eq!(admitted(&mut queue, one, 30, now), 0);
        queue.say_counted(|_| true, now);
        assert_eq!(written(&queue)[1], "forebay: 29 (the last of 30 more like it within 20 s)\n");
        // After a window without any it may say all again.
        queue.say_counted(|_| true, now);
        assert_eq!(admitted(&mut queue, one, 3, now), 3);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_said() {
        let mut queue = Queue::default();
        (0..LINES_MAX + 5).for_each(|_| queue.put(line("x")));
        assert_eq!((queue.lines.len(), queue.lost), (LINES_MAX, 5));
        let lines = queue.take(Instant::now());
        assert!(lines[LINES_MAX].text.contains("5 lines were said faster"), "{:?}", lines[LINES_MAX]);
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_said() {
        let mut queue = Queue { unwritten: 3, ..Queue::default() };
        queue.say_unwritten();
        queue.say_unwritten();
        assert_eq!(written(&queue), ["forebay: warning: 3 lines before this could not be written here\n"]);
    }

    #[test]
    fn a_line_of_a_volume_begins_with_its_name_unless_the_text_has_it() {
        let of = |about, text: &str| TEXT.render(&Line::new(Level::Warning, "x", about, format_args!("{text}")));
        assert_eq!(of(About::Volume(&"vm1"), "it waits"), "forebay: warning: volume vm1: it waits\n");
        assert_eq!(of(About::Named(&"vm1"), "vm1 waits"), "forebay: warning: vm1 waits\n");
    }

    #[test]
    fn a_name_from_elsewhere_ends_no_line_and_changes_no_terminal() {
        let hostile = "a\nb\x1b[2J\u{2028}\u{202e}\u{61c}";
        let line = Line::new(Level::Error, "x", About::Volume(&hostile), format_args!("x"));
        let written = TEXT.render(&line);
        assert_eq!(written.matches(char::is_control).collect::<Vec<_>>(), ["\n"], "{written:?}");
        assert!(written.ends_with(": x\n") && !written.contains(['\u{2028}', '\u{202e}', '\u{61c}']), "{written:?}");
    }

    #[test]
    fn a_long_line_is_cut_off_at_a_character() {
        let line = line(&"ä".repeat(LINE_BYTES_MAX));
        assert!(line.text.len() <= LINE_BYTES_MAX + 4 && line.text.ends_with("ä ..."), "{}", line.text.len());
    }
}
