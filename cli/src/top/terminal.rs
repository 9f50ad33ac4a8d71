//! The terminal: raw mode and back, its size, keys, and frames. A few escape sequences that every terminal of the last
//! decades knows, and five system calls; a library would bring an event loop of its own.

use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A key that was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character that can be printed.
    Char(char),
    /// The return key, which chooses.
    Enter,
    /// Escape, by itself.
    Escape,
    /// The last character is taken back.
    Backspace,
    /// The arrow upwards, or `k`.
    Up,
    /// The arrow downwards, or `j`.
    Down,
    /// The arrow to the left.
    Left,
    /// The arrow to the right.
    Right,
    /// One page towards the first line.
    PageUp,
    /// One page towards the last line.
    PageDown,
    /// To the first line.
    Home,
    /// To the last line.
    End,
    /// Ctrl-C, which ends the program.
    Interrupt,
}

/// The keys of what a terminal has sent; what is no key is passed over.
pub fn parse_keys(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let key = match first {
            b'\r' | b'\n' => Some(Key::Enter),
            0x7f | 0x08 => Some(Key::Backspace),
            0x03 => Some(Key::Interrupt),
            0x1b if matches!(rest.first(), Some(b'[' | b'O')) => {
                let body = &rest[1..];
                let end = body.iter().position(|b| (0x40..=0x7e).contains(b)).unwrap_or(body.len());
                let (parameters, last) = (&body[..end], body.get(end));
                rest = body.get(end + 1..).unwrap_or_default();
                match (parameters, last) {
                    (_, Some(b'A')) => Some(Key::Up),
                    (_, Some(b'B')) => Some(Key::Down),
                    (_, Some(b'C')) => Some(Key::Right),
                    (_, Some(b'D')) => Some(Key::Left),
                    (_, Some(b'H')) | (b"1" | b"7", Some(b'~')) => Some(Key::Home),
                    (_, Some(b'F')) | (b"4" | b"8", Some(b'~')) => Some(Key::End),
                    (b"5", Some(b'~')) => Some(Key::PageUp),
                    (b"6", Some(b'~')) => Some(Key::PageDown),
                    _ => None,
                }
            }
            0x1b => Some(Key::Escape),
            0x20..=0x7e => Some(Key::Char(first.into())),
            // Names have plain letters only.
            _ => None,
        };
        keys.extend(key);
    }
    keys
}

static ENDED: AtomicBool = AtomicBool::new(false);

extern "C" fn end(_: libc::c_int) {
    ENDED.store(true, Ordering::Relaxed);
}

/// A terminal in raw mode; as it was before, when this is dropped.
pub struct Terminal {
    before: libc::termios,
}

impl Terminal {
    /// Takes the terminal over: keys come one by one, and nothing is echoed.
    pub fn open() -> Result<Terminal> {
        let stdin = std::io::stdin().as_raw_fd();
        // SAFETY: all zeros are a valid termios.
        let mut before: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: a place for one termios.
        if unsafe { libc::tcgetattr(stdin, &mut before) } != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot read the terminal's settings");
        }
        let mut raw = before;
        raw.c_iflag &= !(libc::BRKINT | libc::ICRNL | libc::INPCK | libc::ISTRIP | libc::IXON);
        raw.c_lflag &= !(libc::ECHO | libc::ICANON | libc::IEXTEN | libc::ISIG);
        raw.c_cc[libc::VMIN] = 0;
        raw.c_cc[libc::VTIME] = 0;
        // SAFETY: one termios.
        if unsafe { libc::tcsetattr(stdin, libc::TCSAFLUSH, &raw) } != 0 {
            return Err(std::io::Error::last_os_error()).context("cannot change the terminal's settings");
        }
        // Whoever ends this process finds the terminal as it was.
        for signal in [libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler does nothing but store a flag.
            unsafe { libc::signal(signal, end as *const () as libc::sighandler_t) };
        }
        let terminal = Terminal { before };
        terminal.write("\x1b[?1049h\x1b[?25l\x1b[2J")?;
        Ok(terminal)
    }

    /// This process was told to end.
    pub fn ended(&self) -> bool {
        ENDED.load(Ordering::Relaxed)
    }

    /// Columns and lines of the terminal.
    pub fn size(&self) -> (usize, usize) {
        size().unwrap_or((80, 24))
    }

    /// What was pressed; waits so long for the first.
    pub fn keys(&self, wait: Duration) -> Vec<Key> {
        let stdin = std::io::stdin();
        let mut poll = libc::pollfd { fd: stdin.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        if unsafe { libc::poll(&mut poll, 1, wait.as_millis() as libc::c_int) } <= 0 {
            return Vec::new();
        }
        let mut bytes = [0; 256];
        match stdin.lock().read(&mut bytes) {
            // The terminal is gone.
            Ok(0) if poll.revents & (libc::POLLHUP | libc::POLLERR) != 0 => vec![Key::Interrupt],
            Ok(length) => parse_keys(&bytes[..length]),
            Err(_) => Vec::new(),
        }
    }

    /// Shows lines, from the top; the rest is empty.
    pub fn draw(&self, lines: &[String]) -> Result<()> {
        let mut frame = String::from("\x1b[H");
        for (number, line) in lines.iter().enumerate() {
            // No end of line behind the last: it would scroll.
            let end = if number + 1 < lines.len() { "\x1b[K\r\n" } else { "\x1b[K" };
            frame.push_str(line);
            frame.push_str(end);
        }
        frame.push_str("\x1b[J");
        self.write(&frame)
    }

    fn write(&self, text: &str) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to the terminal")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.write("\x1b[?25h\x1b[?1049l");
        // SAFETY: one termios, which this terminal has had before.
        unsafe { libc::tcsetattr(std::io::stdin().as_raw_fd(), libc::TCSAFLUSH, &self.before) };
    }
}

/// Columns and lines of the terminal that the output goes to, if it is one.
pub fn size() -> Option<(usize, usize)> {
    // SAFETY: all zeros are a valid winsize.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: a place for one winsize.
    let rc = unsafe { libc::ioctl(std::io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (rc == 0 && size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_what_terminals_send() {
        assert_eq!(
            parse_keys(b"q/\x1b[A\x1bOB\x1b[5~\x1b[6~\r\x7f\x03"),
            [
                Key::Char('q'),
                Key::Char('/'),
                Key::Up,
                Key::Down,
                Key::PageUp,
                Key::PageDown,
                Key::Enter,
                Key::Backspace,
                Key::Interrupt
            ]
        );
        assert_eq!(parse_keys(b"\x1b"), [Key::Escape]);
        assert_eq!(parse_keys(b"\x1b[H\x1b[4~\x1b[1;5Cx"), [Key::Home, Key::End, Key::Right, Key::Char('x')]);
        for nonsense in [&b"\x1b["[..], b"\x1b[99", b"\x1b[200~", b"\xff\xc3\xa9", b"\x1bO", b""] {
            assert_eq!(parse_keys(nonsense), [], "{nonsense:?}");
        }
    }
}
