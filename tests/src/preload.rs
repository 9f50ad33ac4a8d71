//! Libraries that are preloaded into a daemon, so that calls of its own go wrong.

use crate::harness::{TempDir, require_tool};
use std::path::PathBuf;
use std::process::Command;

/// Builds one from its source in C, in a folder of the test.
///
/// # Panics
/// When it cannot be built.
#[track_caller]
pub fn build(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let (source, library) = (folder.join(&format!("{name}.c")), folder.join(&format!("{name}.so")));
    std::fs::write(&source, text).expect("a folder of our own");
    let built =
        Command::new(require_tool("cc")).args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
    assert!(built.as_ref().is_ok_and(|status| status.success()), "cc: {built:?}");
    library
}
