//! Switching a host off by one of the installed fence agents (`fence_ipmilan` and its like, of ClusterLabs): a program
//! that reads options from its standard input, one a line, and knows the actions status, off and on.
//!
//! Invariants:
//! - Off means that the agent, asked anew, says both by its exit code and in words that the host is off. The code alone
//!   is no proof: 2 stands for "off" and for wrong arguments alike.
//! - Secrets go by standard input only, and out of every message.
//! - An agent that does not end within the limit is ended with all that it has started.

use crate::program;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Most that is kept of what an agent says.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;
/// What the options may take together; less than a pipe holds, so that writing them never waits.
const OPTION_BYTES_MAX: usize = 32 << 10;
/// How long the output of an agent that has ended is waited for; something that it has left running may hold it.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(2);

/// Whether a host is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The host is on.
    On,
    /// The host is off.
    Off,
}

/// An action of an agent that is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Status,
    Off,
    On,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Status => "status",
            Action::Off => "off",
            Action::On => "on",
        }
    }
}

/// Why a host's power is not known, or not as wanted.
#[derive(Debug)]
pub enum AgentError {
    /// Name or options cannot be used.
    Unusable {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// There is no such agent.
    Missing {
        /// Name of the agent.
        agent: String,
    },
    /// It could not be started or spoken to.
    NotRun {
        /// Name of the agent.
        agent: String,
        /// What the system call said.
        error: io::Error,
    },
    /// It has ended with a failure.
    Failed {
        /// Name of the agent.
        agent: String,
        /// What it was asked for.
        action: &'static str,
        /// How its process ended.
        status: ExitStatus,
        /// The last of what it said, without secrets.
        words: String,
    },
    /// It did not end within the limit.
    TimedOut {
        /// Name of the agent.
        agent: String,
        /// What it was asked for.
        action: &'static str,
        /// How long it may take.
        limit: Duration,
    },
    /// It says that it has done so, and the host is as before.
    NotSo {
        /// Name of the agent.
        agent: String,
        /// What the host is all the same.
        is: Power,
    },
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentError::Unusable { reason } => write!(f, "cannot use the fence agent: {reason}"),
            AgentError::Missing { agent } => write!(
                f,
                "cannot find the fence agent {agent} in PATH, /usr/sbin or /sbin; install it (Debian, Ubuntu: package \
                 fence-agents; `ls /usr/sbin/fence_*` shows what is there)"
            ),
            AgentError::NotRun { agent, error } => write!(f, "cannot run the fence agent {agent}: {error}"),
            AgentError::Failed { agent, action, status, words } => write!(
                f,
                "the fence agent {agent} failed at action={action} ({status}): {words}; check address, user, password \
                 and what else it needs (`{agent} -o metadata` lists its options), and that its device answers from here"
            ),
            AgentError::TimedOut { agent, action, limit } => write!(
                f,
                "the fence agent {agent} did not end action={action} within {:.1} s and was ended: check that its device \
                 answers from here, or give it more time",
                limit.as_secs_f64()
            ),
            AgentError::NotSo { agent, is } => {
                let (asked, is) = match is {
                    Power::On => ("off", "on"),
                    Power::Off => ("on", "off"),
                };
                write!(
                    f,
                    "the fence agent {agent} says that it has switched the host {asked}, and that the host is {is}: look \
                     whether it is the right device, and whether something switches the host {is} again"
                )
            }
        }
    }
}

// What a system call said is part of the text: given as a source as well, it would be printed twice.
impl std::error::Error for AgentError {}

/// A fence agent with what it needs to reach one host's power.
#[derive(Clone)]
pub struct Agent {
    name: String,
    program: PathBuf,
    options: Vec<(String, String)>,
    limit: Duration,
}

impl fmt::Debug for Agent {
    // Values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.options.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Agent").field("name", &self.name).field("options", &names).field("limit", &self.limit).finish()
    }
}

impl Agent {
    /// Finds an installed agent by its name. `limit`: most that one action may take.
    pub fn find(name: &str, options: Vec<(String, String)>, limit: Duration) -> Result<Agent, AgentError> {
        Agent::find_by(program::find, name, options, limit)
    }

    fn find_by(
        find: impl Fn(&str) -> io::Result<PathBuf>,
        name: &str,
        options: Vec<(String, String)>,
        limit: Duration,
    ) -> Result<Agent, AgentError> {
        let unusable = |reason: String| Err(AgentError::Unusable { reason });
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !name.starts_with("fence_") || !plain(name) {
            return unusable(format!("`{name}` is no name of one; they are like fence_ipmilan"));
        }
        let mut bytes = 0;
        for (option, value) in &options {
            if option.is_empty() || !plain(option) {
                return unusable(format!("`{option}` is no name of an option; `{name} -o metadata` lists them"));
            }
            if option == "action" {
                return unusable("the option action is set as it is needed, so leave it out".into());
            }
            if value.contains(['\n', '\r', '\0']) {
                return unusable(format!("the value of the option {option} has more than one line"));
            }
            bytes += option.len() + value.len() + 2;
        }
        if bytes > OPTION_BYTES_MAX {
            return unusable(format!("its options take {bytes} bytes, and may take {OPTION_BYTES_MAX}"));
        }
        let program = match find(name) {
            Ok(program) => program,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(AgentError::Missing { agent: name.to_owned() });
            }
            Err(error) => return unusable(error.to_string()),
        };
        Ok(Agent { name: name.to_owned(), program, options, limit })
    }

    /// Name of its program, without a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the host is on.
    pub fn status(&self) -> Result<Power, AgentError> {
        let ended = self.run(Action::Status)?;
        let says = |word: &str| ended.output.lines().any(|line| line.trim().eq_ignore_ascii_case(word));
        match ended.status.code() {
            Some(0) if says("Status: ON") => Ok(Power::On),
            Some(2) if says("Status: OFF") => Ok(Power::Off),
            Some(_) | None => Err(self.failure(Action::Status, &ended)),
        }
    }

    /// Switches the host off; returns when it was seen to be off.
    pub fn off(&self) -> Result<(), AgentError> {
        self.switch(Action::Off, Power::Off)
    }

    /// Switches the host on; returns when it was seen to be on.
    pub fn on(&self) -> Result<(), AgentError> {
        self.switch(Action::On, Power::On)
    }

    fn switch(&self, action: Action, wanted: Power) -> Result<(), AgentError> {
        let ended = self.run(action)?;
        if !ended.status.success() {
            return Err(self.failure(action, &ended));
        }
        match self.status()? {
            is if is == wanted => Ok(()),
            is => Err(AgentError::NotSo { agent: self.name.clone(), is }),
        }
    }

    fn failure(&self, action: Action, ended: &Ended) -> AgentError {
        let said = if ended.errors.trim().is_empty() { &ended.output } else { &ended.errors };
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let mut words = lines[lines.len().saturating_sub(3)..].join("; ");
        if words.is_empty() {
            words = "it said nothing".into();
        }
        for (name, value) in &self.options {
            // An address or a user's name helps who reads this; whatever else there is may be a secret.
            if !value.is_empty()
                && !["ip", "ipaddr", "username", "login", "plug", "port", "ipport"].contains(&name.as_str())
            {
                words = words.replace(value.as_str(), "***");
            }
        }
        AgentError::Failed { agent: self.name.clone(), action: action.name(), status: ended.status, words }
    }

    fn run(&self, action: Action) -> Result<Ended, AgentError> {
        let not_run = |error| AgentError::NotRun { agent: self.name.clone(), error };
        let begun = Instant::now();
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that what it starts can be ended with it.
        let mut child = command.process_group(0).spawn().map_err(not_run)?;
        let mut input = format!("action={}\n", action.name());
        for (name, value) in &self.options {
            input.push_str(&format!("{name}={value}\n"));
        }
        let mut pipe = child.stdin.take().expect("it was asked for");
        // One that does not read its options ends with an error of its own, which says more than a broken pipe.
        let _ = pipe.write_all(input.as_bytes());
        drop(pipe);
        let output = collect(child.stdout.take().expect("it was asked for"));
        let errors = collect(child.stderr.take().expect("it was asked for"));
        loop {
            if let Some(status) = child.try_wait().map_err(not_run)? {
                let output = output.recv_timeout(OUTPUT_PATIENCE).unwrap_or_default();
                let errors = errors.recv_timeout(OUTPUT_PATIENCE).unwrap_or_default();
                return Ok(Ended { status, output, errors });
            }
            if begun.elapsed() >= self.limit {
                end_group(&mut child);
                return Err(AgentError::TimedOut {
                    agent: self.name.clone(),
                    action: action.name(),
                    limit: self.limit,
                });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What an agent has left.
struct Ended {
    status: ExitStatus,
    output: String,
    errors: String,
}

/// Reads to the end on a thread of its own, so that a full pipe never stops the agent.
fn collect(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        let _ = io::copy(&mut from, &mut io::sink());
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn end_group(child: &mut Child) {
    // SAFETY: no memory is involved; the child leads its group and was not waited for, so the number is still its own.
    unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agent in a shell, which finds its options in $options.
    fn agent(folder: &tempfile::TempDir, script: &str, options: &[(&str, &str)], limit: Duration) -> Agent {
        let path = folder.path().join("fence_test");
        let script = format!("#!/bin/sh\noptions=$(cat)\ncd {}\n{script}\n", folder.path().display());
        // Written by another process: a thread that forks meanwhile would keep ours open for writing, and so busy.
        let mut write = Command::new("sh");
        write.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(&path).stdin(Stdio::piped());
        let mut writer = write.spawn().unwrap();
        writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        let options = options.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let find = |name: &str| program::find_in([folder.path().to_owned()].into_iter(), name);
        Agent::find_by(find, "fence_test", options, limit).unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(20);

    /// A host whose power is a file.
    const HOST: &str = "case $options in
        action=off*) rm -f on ;;
        action=on*) touch on ;;
        action=status*) if [ -e on ]; then echo 'Status: ON'; else echo 'Status: OFF'; exit 2; fi ;;
    esac";

    #[test]
    fn a_host_is_switched_off_and_on_and_each_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let host = agent(&folder, HOST, &[("ip", "::1")], LIMIT);
        assert_eq!(host.status().unwrap(), Power::Off);
        host.on().unwrap();
        assert_eq!(host.status().unwrap(), Power::On);
        host.off().unwrap();
        assert_eq!(host.status().unwrap(), Power::Off);
    }

    #[test]
    fn an_exit_code_alone_is_no_proof_that_a_host_is_off() {
        let folder = tempfile::tempdir().unwrap();
        let host = agent(&folder, "echo 'usage: fence_test' >&2; exit 2", &[], LIMIT);
        let error = host.status().unwrap_err();
        assert!(matches!(&error, AgentError::Failed { words, .. } if words == "usage: fence_test"), "{error}");
        let host = agent(&folder, "echo 'Status: OFF'", &[], LIMIT);
        assert!(matches!(host.status(), Err(AgentError::Failed { .. })), "words alone are none either");
        assert!(host.off().is_err());
    }

    #[test]
    fn what_was_said_to_be_done_and_is_not_so_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let host = agent(&folder, "case $options in action=status*) echo 'Status: ON' ;; esac", &[], LIMIT);
        let error = host.off().unwrap_err();
        assert!(matches!(error, AgentError::NotSo { is: Power::On, .. }), "{error}");
        assert!(error.to_string().contains("switched the host off, and that the host is on"), "{error}");
    }

    #[test]
    fn an_agent_that_hangs_is_ended_with_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let host = agent(&folder, "sleep 1000 & echo $! >started; wait", &[], Duration::from_millis(400));
        let begun = Instant::now();
        assert!(matches!(host.off(), Err(AgentError::TimedOut { action: "off", .. })));
        assert!(begun.elapsed() < LIMIT);
        let started = std::fs::read_to_string(folder.path().join("started")).unwrap();
        let gone =
            || std::fs::read_to_string(format!("/proc/{}/stat", started.trim())).is_ok_and(|s| !s.contains(") Z"));
        while gone() {
            assert!(begun.elapsed() < LIMIT, "its child {started} lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn secrets_reach_the_agent_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo \"$options\" >seen; echo \"cannot log in with open-sesame at ::1\" >&2; exit 3";
        let host = agent(&folder, script, &[("ip", "::1"), ("password", "open-sesame")], LIMIT);
        let error = host.status().unwrap_err();
        assert!(error.to_string().contains("cannot log in with *** at ::1"), "{error}");
        assert!(!format!("{host:?} {error:?}").contains("open-sesame"));
        let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
        assert_eq!(seen, "action=status\nip=::1\npassword=open-sesame\n");
    }

    #[test]
    fn more_output_than_is_kept_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let script = "head -c 1000000 /dev/zero | tr '\\0' 'x'; echo; echo 'Status: ON'";
        assert!(matches!(agent(&folder, script, &[], LIMIT).status(), Err(AgentError::Failed { .. })));
        let script = "echo 'Status: ON'; head -c 1000000 /dev/zero | tr '\\0' 'x'";
        assert_eq!(agent(&folder, script, &[], LIMIT).status().unwrap(), Power::On);
    }

    #[test]
    fn names_and_options_that_could_mean_something_else_are_refused() {
        let find = |name: &str, option: (&str, &str)| {
            Agent::find_by(
                |_| Err(io::ErrorKind::NotFound.into()),
                name,
                vec![(option.0.into(), option.1.into())],
                LIMIT,
            )
        };
        for name in ["ipmilan", "/usr/sbin/fence_ipmilan", "fence_../x", "fence_a b"] {
            assert!(matches!(find(name, ("ip", "x")), Err(AgentError::Unusable { .. })), "{name}");
        }
        let long = "x".repeat(OPTION_BYTES_MAX);
        for option in [("action", "off"), ("ip", "x\naction=on"), ("", "x"), ("a=b", "x"), ("ip", &long)] {
            assert!(matches!(find("fence_x", option), Err(AgentError::Unusable { .. })), "{option:?}");
        }
        assert!(matches!(find("fence_x", ("ip", "x")), Err(AgentError::Missing { .. })));
    }
}
