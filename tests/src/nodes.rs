//! A machine with several NUMA nodes, emulated: real sysfs, real interrupts, real placement of memory. See `scripts/guest/nodes.sh`
//! for what it has.

use crate::harness::{TempDir, forebay, require_tool, run_command, workspace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The script ends itself much earlier; on a host that has other work, an emulated machine gets what that leaves.
const LIMIT: Duration = Duration::from_secs(1200);

/// One that is not yet switched on: two nodes of 512 MiB.
#[derive(Debug, Default)]
pub struct Machine {
    options: Vec<String>,
}

impl Machine {
    /// Adds an option of `scripts/guest/nodes.sh`, written `NAME=VALUE`.
    pub fn option(mut self, assignment: &str) -> Machine {
        self.options.push(assignment.to_owned());
        self
    }

    /// Has this program, with its libraries, in its `/bin`.
    pub fn with(self, program: &Path) -> Machine {
        let path = program.to_str().expect("a path in UTF-8");
        self.option(&format!("with={path}"))
    }

    /// Boots, runs a script of busybox's shell, and ends. Fails the test when the script gives up. See `scripts/guest/nodes-init`
    /// for what a script has.
    #[track_caller]
    pub fn run(&self, name: &str, script: &str) -> Ran {
        let folder = TempDir::new(name);
        let commands = folder.join("script");
        std::fs::write(&commands, script).unwrap_or_else(|e| panic!("write {}: {e}", commands.display()));
        let mut command = Command::new(require_tool("bash"));
        command.arg(workspace().join("scripts/guest/nodes.sh")).arg(folder.path()).arg(forebay()).arg(&commands);
        command.args(&self.options);
        run_command(LIMIT, command).expect_success();
        let console = std::fs::read(folder.join("console.log")).expect("the guest has one");
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder.join("back")).expect("the guest has sent it") {
            let path = entry.expect("a name").path();
            let name = path.file_name().expect("below the folder").to_string_lossy().into_owned();
            files.insert(name, std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())));
        }
        Ran { files, console: String::from_utf8_lossy(&console).into_owned() }
    }
}

/// A machine that has run and ended.
#[derive(Debug)]
pub struct Ran {
    /// What its script has put into `/out`.
    files: BTreeMap<String, Vec<u8>>,
    /// What it has written to its console.
    pub console: String,
}

impl Ran {
    /// What a file in `/out` held.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        let bytes = self.files.get(name).unwrap_or_else(|| panic!("the guest has left no {name}: {}", self.console));
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// The content of a file in `/out`, read as JSON.
    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        let text = self.text(name);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: not JSON ({e}): {text}; {}", self.console))
    }
}
