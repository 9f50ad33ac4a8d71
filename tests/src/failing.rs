//! A folder in which one call fails, or all from one on: full, read-only or on a medium that fails, at whatever point of
//! whatever the daemon does there.
//!
//! A library that is preloaded into the daemon (`failing.c`) counts the calls by which files below the folder are made, changed,
//! removed and made durable, whichever code makes them. So a new one is met without anybody naming it.

use crate::harness::{TempDir, Volume};
use crate::preload;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Which of the daemon's calls fail, and with what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which call, the first being 1.
    pub at: u32,
    /// All that come after it as well, until the folder is well again.
    pub beyond: bool,
    /// The error number with which the call fails.
    pub error: i32,
}

/// The folder. What is told to the daemons that use it lies in a file that they map, laid out as `struct control` in `failing.c`.
#[derive(Debug)]
pub struct FailingFolder {
    control: File,
}

/// Bytes of `struct control`.
const CONTROL_BYTES: u64 = 6 * 4 + 1000;

impl FailingFolder {
    /// From its next start on what is below the state folder of this volume's daemon can fail.
    #[track_caller]
    pub fn of(volume: &mut Volume, folder: &TempDir) -> FailingFolder {
        let (failing, environment) = FailingFolder::below(&volume.state(), folder);
        volume.environment.extend(environment);
        failing
    }

    /// The same of any folder: what a daemon needs in its environment.
    ///
    /// # Panics
    /// When the library cannot be built.
    #[track_caller]
    pub fn below(state: &Path, folder: &TempDir) -> (FailingFolder, Vec<(String, OsString)>) {
        FailingFolder::below_with(state, folder, "failing")
    }

    /// The same under a name of its own, where there are several.
    ///
    /// # Panics
    /// When the library cannot be built.
    #[track_caller]
    pub fn below_with(state: &Path, folder: &TempDir, name: &str) -> (FailingFolder, Vec<(String, OsString)>) {
        let library = preload::build(folder, name, include_str!("failing.c"));
        let path = folder.join(&format!("{name}-control"));
        let control = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let control = control.expect("a folder of our own");
        control.set_len(CONTROL_BYTES).expect("a file of our own");
        let environment = [("LD_PRELOAD", library.as_path()), ("FAIL_BELOW", state), ("FAIL_CONTROL", path.as_path())];
        let environment = environment.map(|(name, path)| (name.to_owned(), OsString::from(path)));
        (FailingFolder { control }, environment.to_vec())
    }

    /// Counts anew from here on.
    pub fn fail(&self, fault: Fault) {
        self.write(0, 0);
        let words = [fault.at, u32::from(fault.beyond), fault.error as u32, 0, 0];
        (1..).zip(words).for_each(|(index, word)| self.write(index, word));
        self.write(0, 1);
    }

    /// The folder is well again. What failed first: the call, and the path; none: the daemon has not made so many calls.
    pub fn be_well(&self) -> Option<String> {
        self.write(0, 0);
        if self.read(5) == 0 {
            return None;
        }
        let mut bytes = [0; 1000];
        self.control.read_exact_at(&mut bytes, 6 * 4).expect("a file of our own");
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    fn write(&self, index: u64, word: u32) {
        self.control.write_all_at(&word.to_ne_bytes(), index * 4).expect("a file of our own");
    }

    fn read(&self, index: u64) -> u32 {
        let mut bytes = [0; 4];
        self.control.read_exact_at(&mut bytes, index * 4).expect("a file of our own");
        u32::from_ne_bytes(bytes)
    }
}
