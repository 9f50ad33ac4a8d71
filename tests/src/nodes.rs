//! A machine with several NUMA nodes, emulated: real sysfs, real interrupts, real placement of memory. See `scripts/guest/nodes.sh`
//! for what it has.

use crate::harness::{forebay, require_tool, run_command, workspace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What its script may take is an option; this is for a host that is so busy that the boot hangs.
const LIMIT: Duration = Duration::from_secs(900);

/// One that is not yet switched on: two nodes of 512 MiB.
#[derive(Debug, Default)]
pub struct Machine {
    options: Vec<String>,
}

impl Machine {
    /// `NAME=VALUE` of `scripts/guest/nodes.sh`.
    pub fn option(mut self, assignment: &str) -> Machine {
        self.options.push(assignment.to_owned());
        self
    }

    /// Has this program, with its libraries, in its `/bin`.
    pub fn with(self, program: &Path) -> Machine {
        let path = program.to_str().expect("a path in UTF-8");
        self.option(&format!("with={path}"))
    }

    /// Boots, runs a script of busybox's shell, and ends. Fails the test when the script gives up. `folder` becomes the test's
    /// own; see `scripts/guest/nodes-init` for what a script has.
    #[track_caller]
    pub fn run(&self, folder: &Path, script: &str) -> Ran {
        std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("make {}: {e}", folder.display()));
        let commands = folder.join("script");
        std::fs::write(&commands, script).unwrap_or_else(|e| panic!("write {}: {e}", commands.display()));
        let mut command = Command::new(require_tool("bash"));
        command.arg(workspace().join("scripts/guest/nodes.sh")).arg(folder).arg(forebay()).arg(&commands);
        command.args(&self.options);
        run_command(LIMIT, command).expect_success();
        let console = std::fs::read(folder.join("console.log")).expect("the guest has one");
        Ran { back: folder.join("back"), console: String::from_utf8_lossy(&console).into_owned() }
    }
}

/// One that has ended.
#[derive(Debug)]
pub struct Ran {
    back: PathBuf,
    /// What it said.
    pub console: String,
}

impl Ran {
    /// Where something lies now that the script has put into `/out`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.back.join(name)
    }

    /// What it holds.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        let path = self.path(name);
        let bytes =
            std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; the guest: {}", path.display(), self.console));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The same as JSON.
    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name} is not JSON ({e}): {text}"))
    }
}
