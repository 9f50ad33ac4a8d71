//! Tests that cannot run here say so.

use std::io::Write;

/// Says why a test proves nothing here. Not by `println`, which the test runner keeps to itself where a test passes: a skip must not read
/// as a pass.
pub(crate) fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}
