//! Why a file or a device cannot be used: what tiers, journals, backings and watchdogs have in common.

use crate::lock::HolderDescription;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file or a device, and why it cannot be used.
#[derive(Debug)]
pub struct FileError {
    /// What it is, as it stands before its path: `the tier`.
    pub what: &'static str,
    /// Where it lies.
    pub path: PathBuf,
    /// Why it cannot be used.
    pub problem: FileProblem,
}

/// Why a file or a device cannot be used.
#[derive(Debug)]
pub enum FileProblem {
    /// It is none of its kind, or not one that helps: why, and what to do.
    Unusable(String),
    /// Another process, or requests of a killed one, hold it.
    HeldBy {
        /// Who holds it, as far as /proc tells.
        holder: HolderDescription,
        /// How long its lock was waited for.
        waited: Duration,
    },
    /// A system call failed.
    Failed {
        /// What was attempted, in words that stand before what it is.
        attempted: &'static str,
        /// What the system call said.
        error: io::Error,
    },
}

impl FileError {
    /// It is none of its kind, or not one that helps.
    pub fn unusable(what: &'static str, path: &Path, reason: impl Into<String>) -> FileError {
        FileError { what, path: path.to_owned(), problem: FileProblem::Unusable(reason.into()) }
    }

    /// A system call failed.
    pub fn failed(what: &'static str, path: &Path, attempted: &'static str, error: io::Error) -> FileError {
        FileError { what, path: path.to_owned(), problem: FileProblem::Failed { attempted, error } }
    }

    /// Another process, or requests of a killed one, hold it.
    pub fn held_by(what: &'static str, path: &Path, holder: HolderDescription, waited: Duration) -> FileError {
        FileError { what, path: path.to_owned(), problem: FileProblem::HeldBy { holder, waited } }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileError { what, path, problem } = self;
        let path = path.display();
        match problem {
            FileProblem::Unusable(reason) => write!(f, "cannot use {what} {path}: {reason}"),
            FileProblem::HeldBy { holder, waited } => write!(
                f,
                "cannot use {what} {path}: it is still locked by {holder} after {:.1} s; stop that process, or wait for \
                 its last requests to end",
                waited.as_secs_f64()
            ),
            FileProblem::Failed { attempted, error } => {
                write!(f, "cannot {attempted} {what} {path}: {error}{}", what_helps(error))
            }
        }
    }
}

/// What lets this user do what was refused, where the refusal tells.
fn what_helps(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES) => {
            "; give the daemon's user the right to it (owner, group or ACL, and of each folder above it)"
        }
        Some(libc::EPERM) => {
            "; its rights alone do not decide that: look at what the container, or the service's DeviceAllow=, lets this process \
             open, and whether the file is immutable (lsattr)"
        }
        Some(libc::EROFS) => "; its file system is mounted read-only",
        _ => "",
    }
}

// What a system call said is part of the text: given as a source as well, it would be printed twice.
impl std::error::Error for FileError {}
