//! Talks to the daemon: HTTP/1.1 over its unix socket, one request per connection. A request and an answer of known
//! length are all there is, so this is smaller than a library's set-up would be.

use anyhow::{Context, Result, bail};
use forebay_api::checked::without_controls;
use forebay_api::paths;
use forebay_io::folder::Folder;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Most bytes of an answer; a list of a thousand volumes has two million.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Longest line of a stream.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// A message of a stream.
pub struct Message<'a> {
    /// Which kind of message it is, such as `event`.
    pub event: &'a str,
    data: &'a str,
}

impl Message<'_> {
    /// What it says, of which a terminal obeys nothing either.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        let mut value = serde_json::from_str(self.data)?;
        drop_controls(&mut value);
        serde_json::from_value(value)
    }
}

/// A stream has a message each second: one that is silent for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The way to a daemon.
#[derive(Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon at this socket; none: at the usual one.
    pub fn new(socket: Option<PathBuf>) -> Client {
        Client { socket: socket.unwrap_or_else(forebay_api::paths::api_socket) }
    }

    /// One call. An answer that reports a failure becomes an error with the daemon's words.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut stream = self.connect()?;
        let text = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        let lost = || format!("lost the daemon at {} during {method} {path}", self.socket.display());
        stream.write_all([head.as_bytes(), text.as_bytes()].concat().as_slice()).with_context(lost)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).with_context(lost)?;
        let (status, body) = parse_answer(&answer).with_context(lost)?;
        let mut value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(body).with_context(|| format!("the answer to {method} {path} is not JSON"))?
        };
        drop_controls(&mut value);
        if (200..300).contains(&status) {
            return Ok(value);
        }
        match value.get("error").and_then(Value::as_str) {
            Some(error) => bail!("{error}"),
            None => bail!("{method} {path}: the daemon answered with status {status}"),
        }
    }
}

/// A terminal obeys nothing of an answer: names, paths and reasons in it come from other nodes, clients, and files beside images.
fn drop_controls(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_controls(text),
        Value::Array(list) => list.iter_mut().for_each(drop_controls),
        Value::Object(fields) => fields.values_mut().for_each(drop_controls),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Client {
    fn connect(&self) -> Result<UnixStream> {
        // What is said there may change volumes: nobody else is to be in the daemon's place.
        let parent = self.socket.parent().filter(|&parent| parent == paths::run_dir());
        if let Some(parent) = parent.filter(|_| paths::run_dir_is_among_others()) {
            match Folder::open_private(parent) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context("cannot trust the folder of the daemon's socket");
                }
                _ => {}
            }
        }
        UnixStream::connect(&self.socket).with_context(|| {
            format!(
                "cannot reach the daemon at {}: start it with `forebay serve`, or name its socket with --api",
                self.socket.display()
            )
        })
    }

    /// Hands over the messages of a stream (server-sent events) until it ends.
    pub fn follow(&self, path: &str, mut take: impl FnMut(Message<'_>) -> Result<()>) -> Result<()> {
        let mut stream = self.connect()?;
        let lost = || format!("lost the daemon at {} during GET {path}", self.socket.display());
        stream.set_read_timeout(Some(SILENCE_MAX)).with_context(lost)?;
        // By HTTP/1.0 the answer comes in no chunks, and ends with the connection.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
            .with_context(lost)?;
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        let mut next = |line: &mut String| -> Result<bool> {
            line.clear();
            let got = lines.by_ref().take(LINE_BYTES_MAX).read_line(line).with_context(lost)?;
            line.truncate(line.trim_end_matches(['\r', '\n']).len());
            Ok(got > 0)
        };
        next(&mut line)?;
        let refused = line.split(' ').nth(1) != Some("200");
        while next(&mut line)? && !line.is_empty() {}
        if refused {
            next(&mut line)?;
            let error = serde_json::from_str::<Value>(&line).ok().and_then(|v| Some(v["error"].as_str()?.to_owned()));
            bail!("{}", error.unwrap_or_else(|| format!("the daemon refused GET {path}")));
        }
        let (mut event, mut data) = (String::new(), String::new());
        while next(&mut line)? {
            if let Some(word) = line.strip_prefix("event: ") {
                word.clone_into(&mut event);
            } else if let Some(text) = line.strip_prefix("data: ") {
                text.clone_into(&mut data);
            } else if line.is_empty() && !event.is_empty() {
                take(Message { event: &event, data: &data })?;
                event.clear();
                data.clear();
            }
        }
        Ok(())
    }
}

/// Status and body of a whole answer. The daemon sends a length with every body.
fn parse_answer(answer: &[u8]) -> Result<(u16, &[u8])> {
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
        bail!("the answer ends within its head");
    };
    let head = std::str::from_utf8(&answer[..end]).context("the answer's head is not text")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .with_context(|| format!("the answer begins with {:?}", head.lines().next().unwrap_or_default()))?;
    let body = &answer[end + 4..];
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(length) if body.len() < length => bail!("the answer ends after {} of {length} bytes", body.len()),
        Some(length) => Ok((status, &body[..length])),
        None => Ok((status, body)),
    }
}

/// Path of a volume in the API, with what follows its name.
pub fn volume_path(name: &str, rest: &str) -> String {
    // A name that is none must not become another path; the daemon says that there is no such volume.
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    format!("/v1/volumes/{plain}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let answer = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse_answer(answer).unwrap(), (404, &b"{}"[..]));
        assert!(parse_answer(&answer[..answer.len() - 1]).is_err());
        assert!(parse_answer(b"HTTP/1.1 200").is_err());
        assert!(parse_answer(b"nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn a_terminal_obeys_nothing_of_an_answer() {
        let mut answer =
            serde_json::json!({ "host": "a\u{1b}]0;x\u{7}", "list": [{ "name": "\u{9b}2J" }], "two": "one\nline" });
        drop_controls(&mut answer);
        let plain = serde_json::json!({ "host": "a\u{fffd}]0;x\u{fffd}", "list": [{ "name": "\u{fffd}2J" }], "two": "one\nline" });
        assert_eq!(answer, plain);
        let said: String = Message { event: "event", data: r#""a\u001b[2J\u202eb""# }.read().unwrap();
        assert_eq!(said, "a\u{fffd}[2J\u{fffd}b");
    }
}
