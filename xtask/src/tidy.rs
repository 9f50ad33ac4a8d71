//! What no compiler checks: direction of dependencies, files that nothing includes, lengths, leftovers, links.
//!
//! Only files that git would keep are looked at (tracked, or new and not ignored). Each check of its own
//! is a module of its own; here are the list of them and those of a few lines. Limits are ratchets (`ratchet`): what is over one today stands in
//! a list and may shrink, not grow.

use crate::steps::Outcome;
use crate::tree::{Tree, normal};
use crate::{cycles, docs, edges, files, functions, lengths, losses, modules};
use std::path::Path;

/// What must not be left behind. Written in two halves, so that this file does not find itself.
const LEFTOVERS: [&str; 5] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
];

/// Runs all checks, and passes when none finds anything.
pub fn check(root: &Path) -> Outcome {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(reason) => return Outcome::Failed(vec![reason]),
    };
    let mut wrong = Vec::new();
    edges::check(&tree, &mut wrong);
    core_attributes(&tree, &mut wrong);
    modules::dead_files(&tree, &mut wrong);
    modules::shared_files(&tree, &mut wrong);
    modules::foreign_files(&tree, &mut wrong);
    cycles::check(&tree, &mut wrong);
    lengths::check(&tree, &mut wrong);
    functions::check(&tree, &mut wrong);
    docs::check(&tree, &mut wrong);
    leftovers(&tree, &mut wrong);
    verifiers(&tree, &mut wrong);
    prints(&tree, &mut wrong);
    links(&tree, &mut wrong);
    losses::check(&tree, &mut wrong);
    files::check(&tree, &mut wrong);
    println!("{} files", tree.files().count());
    if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong) }
}

/// What writes to standard output or error, waits for whoever reads that, and panics where it fails.
const PRINTS: [&str; 2] = [concat!("print", "ln!("), concat!("print", "!(")];
/// Packages whose code runs in the daemon.
const OF_THE_DAEMON: [&str; 6] = ["api/src/", "core/src/", "front/src/", "host/src/", "io/src/", "node/src/"];

/// What the daemon says goes by `node/src/log.rs`, which waits for nobody.
fn prints(tree: &Tree, wrong: &mut Vec<String>) {
    let is_daemon =
        |file: &str| OF_THE_DAEMON.iter().any(|package| file.starts_with(package)) && !file.contains("tests");
    for file in tree.files().filter(|file| file.ends_with(".rs") && is_daemon(file)) {
        for (at, line) in tree.text(file).lines().enumerate() {
            if PRINTS.iter().any(|print| line.contains(print)) {
                wrong.push(format!("{file}:{}: said past log::say!, which waits for nobody", at + 1));
            }
        }
    }
}

/// What lets in whoever has a certificate of an authority, whatever it was issued for. Written in halves as above.
const VERIFIERS: [&str; 2] = [concat!("WebPkiClient", "Verifier"), concat!("impl ClientCert", "Verifier")];
/// The one file that makes verifiers of callers: there a listener must say which place it is, and the table of roles knows it.
const OF_CERTIFICATES: &str = "io/src/certificate.rs";

/// No listener looks at certificates past the table of roles.
fn verifiers(tree: &Tree, wrong: &mut Vec<String>) {
    for file in tree.ending(".rs").filter(|file| *file != OF_CERTIFICATES) {
        let text = tree.text(file);
        for (at, line) in text.lines().enumerate() {
            if let Some(name) = VERIFIERS.iter().find(|name| line.contains(**name)) {
                wrong.push(format!("{file}:{}: {name} knows no roles; take a verifier from {OF_CERTIFICATES}", at + 1));
            }
        }
    }
}

/// Core is what can be simulated: it names no clock, file, thread or pointer.
fn core_attributes(tree: &Tree, wrong: &mut Vec<String>) {
    let text = tree.text("core/src/lib.rs");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        if !text.lines().any(|line| line == attribute) {
            wrong.push(format!("core/src/lib.rs: {attribute} is missing"));
        }
    }
    let extern_std: Vec<&str> = text.lines().collect();
    for (at, line) in extern_std.iter().enumerate() {
        if line.trim() == "extern crate std;" && (at == 0 || extern_std[at - 1].trim() != "#[cfg(test)]") {
            wrong.push(format!("core/src/lib.rs:{}: std is for core's tests only", at + 1));
        }
    }
}

/// What was meant to go, and white space at the ends of lines.
fn leftovers(tree: &Tree, wrong: &mut Vec<String>) {
    for file in tree.files() {
        let source = [".rs", ".sh", ".py", ".toml", ".md", ".html", ".js", ".mjs", ".ts", ".css", ".service"]
            .iter()
            .any(|end| file.ends_with(end));
        if !source && file != "Makefile" && !file.starts_with(".ci/") {
            continue;
        }
        for (at, line) in tree.text(file).lines().enumerate() {
            for leftover in LEFTOVERS.iter().filter(|leftover| line.contains(**leftover)) {
                wrong.push(format!("{file}:{}: {leftover} is left over", at + 1));
            }
            if line.ends_with([' ', '\t']) {
                wrong.push(format!("{file}:{}: white space at the end", at + 1));
            }
        }
    }
}

/// Relative links of the pages lead to files that exist.
fn links(tree: &Tree, wrong: &mut Vec<String>) {
    for file in tree.ending(".md") {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (at, line) in tree.text(file).lines().enumerate() {
            for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = target.split('#').next().unwrap_or("");
                if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                if !tree.root().join(normal(&format!("{folder}/{path}"))).exists() {
                    wrong.push(format!("{file}:{}: link to {target}: no such file", at + 1));
                }
            }
            for named in line.split('`').skip(1).step_by(2).filter(|named| is_source(named)) {
                if !tree.root().join(named).exists() {
                    wrong.push(format!("{file}:{}: {named}: no such file", at + 1));
                }
            }
        }
    }
}

/// Whether a page names a source file by it, as `PACKAGE/src/.../FILE.rs`.
fn is_source(named: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_.-".contains(c);
    named.ends_with(".rs") && named.contains("/src/") && named.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_with_faults_is_refused() {
        let root = std::env::temp_dir().join(format!("forebay-tidy-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "core/Cargo.toml",
            "[dependencies]\nforebay-io.workspace = true\nlibc = \"1\"\n[lints]\nworkspace = true\n",
        );
        write("core/src/lib.rs", "#![no_std]\nextern crate std;\nmod used;\n");
        write("core/src/used.rs", "// see L-BF-99\n");
        write("core/src/unused.rs", concat!("fn f() { todo", "!() } \n"));
        write("rogue/Cargo.toml", "[package]\n");
        write(
            "docs/losses.md",
            "| # | fault | TM | TF | BM | BF |\n| 1 | fault | none |\n[gone](nowhere.md)\n`core/src/gone.rs`, `core/src/used.rs`\n",
        );
        write("docs/used.rs", concat!("use rustls::server::WebPkiClient", "Verifier;\n"));
        write("front/src/lib.rs", concat!("#![forbid(unsafe_code)]\nfn f() { eprint", "ln!(\"x\") }\n"));
        write("README.md", &"line\n".repeat(150));
        write("io/src/lib.rs", &"line\n".repeat(1001));
        let files = [
            "core/Cargo.toml",
            "core/src/lib.rs",
            "core/src/used.rs",
            "core/src/unused.rs",
            "rogue/Cargo.toml",
            "docs/losses.md",
            "docs/used.rs",
            "front/src/lib.rs",
            "README.md",
            "io/src/lib.rs",
        ];
        let tree = Tree::of(&root, &files);
        let mut wrong = Vec::new();
        edges::check(&tree, &mut wrong);
        core_attributes(&tree, &mut wrong);
        modules::dead_files(&tree, &mut wrong);
        lengths::check(&tree, &mut wrong);
        leftovers(&tree, &mut wrong);
        verifiers(&tree, &mut wrong);
        prints(&tree, &mut wrong);
        links(&tree, &mut wrong);
        losses::check(&tree, &mut wrong);
        std::fs::remove_dir_all(&root).unwrap();
        for expected in [
            "core/Cargo.toml:2: core may not depend on io",
            "front/src/lib.rs:2: said past log::say!",
            "core/Cargo.toml:3: no comment above says why libc is needed",
            "rogue/Cargo.toml: package rogue is not in the list of edges",
            "rogue/Cargo.toml: [lints] workspace = true is missing",
            "core/src/lib.rs: #![forbid(unsafe_code)] is missing",
            "core/src/lib.rs:2: std is for core's tests only",
            "core/src/unused.rs: no `mod` leads to it",
            "docs/used.rs: no `mod` leads to it",
            "README.md: 150 lines, must stay below 150",
            "io/src/lib.rs: 1001 lines: 1000 are the limit",
            concat!("core/src/unused.rs:1: todo", "!( is left over"),
            "core/src/unused.rs:1: white space at the end",
            "docs/losses.md:3: link to nowhere.md: no such file",
            "docs/losses.md:4: core/src/gone.rs: no such file",
            "core/src/used.rs:1: L-BF-99 is no promise of docs/losses.md",
            "docs/losses.md: no test proves L-TM-1",
            concat!("docs/used.rs:1: WebPkiClient", "Verifier knows no roles"),
        ] {
            assert!(wrong.iter().any(|line| line.starts_with(expected)), "{expected}\nfound: {wrong:#?}");
        }
        assert_eq!(wrong.len(), 18, "and nothing else: {wrong:#?}");
    }
}
