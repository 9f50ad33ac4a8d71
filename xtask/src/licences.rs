//! Licences of everything that is linked or built: each must offer a choice within [`ALLOWED`]. Read from
//! `cargo tree`, so it needs neither network nor another tool. `deny.toml` holds the same list for cargo-deny.

use crate::steps::{Outcome, output};
use std::collections::BTreeSet;
use std::path::Path;

/// Permissive licences, and MPL-2.0, whose duties end at its own files.
pub const ALLOWED: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MPL-2.0",
    "Unicode-3.0",
    "Zlib",
];

/// Every package of the lock file that this host builds.
pub fn check(root: &Path) -> Outcome {
    let tree =
        ["cargo", "tree", "--locked", "--workspace", "--all-features", "--prefix", "none", "--format", "{p}|{l}"];
    let listing = match output(root, &tree) {
        Ok(listing) => listing,
        Err(reason) => return Outcome::Failed(vec![reason]),
    };
    let packages: BTreeSet<&str> = listing.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let mut wrong = Vec::new();
    for line in packages.iter().filter(|line| !line.is_empty()) {
        let (package, licence) = line.split_once('|').unwrap_or((line, ""));
        if let Some(reason) = refused(licence) {
            wrong.push(format!("{package}: licence \"{licence}\": {reason}"));
        }
    }
    println!("{} packages", packages.len());
    if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong) }
}

/// Why a licence expression cannot be accepted.
fn refused(expression: &str) -> Option<&'static str> {
    // The slash is the old way to write OR.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    if words.is_empty() {
        return Some("none is stated");
    }
    let mut rest = words.as_slice();
    let allowed = any(&mut rest);
    match allowed {
        Some(_) if !rest.is_empty() => Some("not an SPDX expression"),
        Some(true) => None,
        Some(false) => Some("nothing of it is on the list in xtask/src/licences.rs"),
        None => Some("not an SPDX expression"),
    }
}

/// `all OR all ...`: one allowed choice suffices.
fn any(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = all(rest)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        allowed |= all(rest)?;
    }
    Some(allowed)
}

/// `one AND one ...`: every part must be allowed.
fn all(rest: &mut &[&str]) -> Option<bool> {
    let mut allowed = one(rest)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        allowed &= one(rest)?;
    }
    Some(allowed)
}

/// A name, perhaps `WITH` an exception, or an expression in parentheses.
fn one(rest: &mut &[&str]) -> Option<bool> {
    let (&first, after) = rest.split_first()?;
    *rest = after;
    if first == "(" {
        let allowed = any(rest)?;
        let (&close, after) = rest.split_first()?;
        *rest = after;
        return (close == ")").then_some(allowed);
    }
    if [")", "OR", "AND", "WITH"].contains(&first) {
        return None;
    }
    if rest.first() == Some(&"WITH") {
        let exception = *rest.get(1)?;
        *rest = &rest[2..];
        let name = format!("{first} WITH {exception}");
        return Some(ALLOWED.contains(&name.as_str()));
    }
    Some(ALLOWED.contains(&first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged() {
        for good in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-2.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Unlicense OR MIT",
        ] {
            assert_eq!(refused(good), None, "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "Apache-2.0 WITH Some-exception",
            "(MIT AND AGPL-3.0) OR LGPL-2.1",
            "Unlicense",
        ] {
            assert_eq!(refused(bad), Some("nothing of it is on the list in xtask/src/licences.rs"), "{bad}");
        }
        assert_eq!(refused(""), Some("none is stated"));
        for broken in ["MIT OR", "(MIT", "MIT MIT", "OR MIT", "MIT WITH", "()"] {
            assert_eq!(refused(broken), Some("not an SPDX expression"), "{broken}");
        }
    }

    #[test]
    fn the_list_for_cargo_deny_is_the_same() {
        let deny = include_str!("../../deny.toml");
        let list = deny.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
        let named: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
        assert_eq!(named, ALLOWED);
    }
}
