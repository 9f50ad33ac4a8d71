//! The daemon's HTTP as a foreign client sees it: curl, with a time limit.

use crate::harness::{free_port, require_tool, run_command};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// What the server has answered.
#[derive(Debug)]
pub struct Answer {
    /// Status of HTTP, such as 200.
    pub status: u32,
    /// Status line and headers, as they came.
    pub head: String,
    /// What follows the headers, as text.
    pub body: String,
}

impl Answer {
    /// Value of the header of this name; none: it is not there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body, which must be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.body))
    }
}

/// `curl ARGUMENTS`, which must reach a server.
#[track_caller]
pub fn curl(arguments: &[&str]) -> Answer {
    try_curl(arguments).unwrap_or_else(|said| panic!("{said}"))
}

/// `curl ARGUMENTS`; where no answer came, what curl said.
pub fn try_curl(arguments: &[&str]) -> Result<Answer, String> {
    let mut command = Command::new(require_tool("curl"));
    command.args(["--silent", "--show-error", "--include", "--max-time", "20"]).args(arguments);
    let output = run_command(Duration::from_secs(30), command);
    if !output.status.success() {
        return Err(output.describe());
    }
    let (head, body) = output.stdout.split_once("\r\n\r\n").ok_or_else(|| output.describe())?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(|| output.describe())?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// A free port of this host, with its address.
pub fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}
