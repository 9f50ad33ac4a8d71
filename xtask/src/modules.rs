//! Which file is which module: files that no crate reaches, files that more than one has, and `#[path]` that leads
//! out of a package.

use crate::rust::Source;
use crate::tree::{Tree, normal};
use std::collections::{BTreeMap, BTreeSet};

/// A file of a crate.
#[derive(Debug, PartialEq, Eq)]
pub struct Place {
    /// Its path from the workspace's folder.
    pub file: String,
    /// The modules that lead to it from the crate's root; none for the root itself.
    pub path: Vec<String>,
    /// It is compiled for tests alone.
    pub for_tests: bool,
}

/// The files that crates begin with.
pub fn roots(tree: &Tree) -> Vec<&str> {
    let is_root = |file: &&str| {
        let parts: Vec<&str> = file.split('/').collect();
        is_source_root(file)
            || matches!(
                parts.as_slice(),
                [_, "build.rs"]
                    | [_, "tests" | "benches" | "examples" | "fuzz_targets", _]
                    | [_, "tests" | "benches" | "examples", _, "main.rs"]
            )
    };
    tree.ending(".rs").filter(is_root).collect()
}

/// Whether a crate that others use, or a program, begins with this file.
pub fn is_source_root(file: &str) -> bool {
    let parts: Vec<&str> = file.split('/').collect();
    matches!(
        parts.as_slice(),
        [_, "src", "lib.rs" | "main.rs"] | [_, "src", "bin", _] | [_, "src", "bin", _, "main.rs"]
    )
}

/// The files of the crate that begins with this one.
pub fn files_of(tree: &Tree, root: &str) -> Vec<Place> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut open = vec![Place { file: root.to_string(), path: Vec::new(), for_tests: false }];
    while let Some(place) = open.pop() {
        if !seen.insert(place.file.clone()) {
            continue;
        }
        for declared in declared(&place.file, &tree.text(&place.file)) {
            if let Some(file) = declared.files.into_iter().find(|file| tree.has(file)) {
                let path = [&place.path[..], &declared.path].concat();
                open.push(Place { file, path, for_tests: place.for_tests || declared.for_tests });
            }
        }
        found.push(place);
    }
    found
}

/// The Rust files that tests alone compile.
pub fn files_of_tests(tree: &Tree) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = tree.ending(".rs").map(str::to_string).collect();
    let is_of_tests = |root: &str| matches!(root.split('/').nth(1), Some("tests" | "benches"));
    for root in roots(tree).into_iter().filter(|root| !is_of_tests(root)) {
        for place in files_of(tree, root).into_iter().filter(|place| !place.for_tests) {
            found.remove(&place.file);
        }
    }
    found
}

/// A module that a file declares and that has a file of its own.
#[derive(Debug, PartialEq, Eq)]
struct Declared {
    path: Vec<String>,
    /// Where it may lie.
    files: Vec<String>,
    for_tests: bool,
}

fn declared(file: &str, text: &str) -> Vec<Declared> {
    let (folder, children) = folders(file);
    let mut found = Vec::new();
    for module in Source::of(text).modules().into_iter().filter(|module| !module.is_here) {
        let files = match module.file {
            Some(path) => vec![normal(&format!("{folder}/{path}"))],
            None => {
                let path = module.path.join("/");
                vec![format!("{children}/{path}.rs"), format!("{children}/{path}/mod.rs")]
            }
        };
        let path = module.path.into_iter().map(str::to_string).collect();
        found.push(Declared { path, files, for_tests: module.for_tests });
    }
    found
}

/// The folder of a file, and that of the modules that it declares.
fn folders(file: &str) -> (&str, String) {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let stem = name.trim_end_matches(".rs");
    let parts: Vec<&str> = file.split('/').collect();
    // A crate root and a `mod.rs` have their children beside them, any other file in a folder of its own name.
    let beside = ["lib", "main", "mod", "build"].contains(&stem)
        || matches!(parts.as_slice(), [_, "src", "bin", _] | [_, "tests" | "benches" | "examples" | "fuzz_targets", _]);
    (folder, if beside { folder.to_string() } else { format!("{folder}/{stem}") })
}

/// Rust files that no crate root reaches by `mod`.
pub fn dead_files(tree: &Tree, wrong: &mut Vec<String>) {
    let reached: BTreeSet<String> =
        roots(tree).into_iter().flat_map(|root| files_of(tree, root)).map(|place| place.file).collect();
    for file in tree.ending(".rs").filter(|file| !reached.contains(*file)) {
        wrong.push(format!("{file}: no `mod` leads to it"));
    }
}

/// A file belongs to one crate: neither does a second declare it as a module of its own, nor has another package a copy.
pub fn shared_files(tree: &Tree, wrong: &mut Vec<String>) {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for root in roots(tree).into_iter().filter(|root| is_source_root(root)) {
        for Place { file, path, .. } in files_of(tree, root) {
            if path.is_empty() {
                continue;
            }
            if let Some(owner) = owners.insert(file.clone(), root) {
                wrong.push(format!(
                    "{file}: a module of {owner} and of {root}: one declares it, the other uses that one"
                ));
                continue;
            }
            let text = tree.text(&file);
            if !text.trim().is_empty()
                && let Some(other) = texts.insert(text, file.clone())
            {
                wrong.push(format!("{file}: the same text as {other}: keep one"));
            }
        }
    }
}

/// `#[path]` that leads to a file of another package: what is shared is a package that both depend on.
pub fn foreign_files(tree: &Tree, wrong: &mut Vec<String>) {
    let package = |file: &str| file.split('/').next().unwrap_or_default().to_string();
    for file in tree.ending(".rs") {
        let text = tree.text(file);
        for module in Source::of(&text).modules() {
            let Some(path) = module.file else { continue };
            let target = normal(&format!("{}/{path}", folders(file).0));
            if package(&target) != package(file) {
                let line = module.line;
                wrong.push(format!(
                    "{file}:{line}: #[path] leads to {target}, of another package: depend on the package"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    #[test]
    fn modules_are_found_where_the_compiler_looks() {
        let text = "mod a;\npub mod b;\npub(crate) mod c;\n// mod d;\nmod e {\n    #[cfg(test)]\n    mod g;\n}\n#[path = \"../x/f.rs\"]\nmod f;\n";
        let all = |folder: &str, path: &str| {
            let child = |name: &str| vec![format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
            vec![child("a"), child("b"), child("c"), child("e/g"), vec![path.to_string()]]
        };
        let files = |file| declared(file, text).into_iter().map(|module| module.files).collect::<Vec<_>>();
        assert_eq!(files("io/src/lib.rs"), all("io/src", "io/x/f.rs"));
        assert_eq!(files("io/src/ring/mod.rs"), all("io/src/ring", "io/src/x/f.rs"));
        assert_eq!(files("io/src/ring.rs"), all("io/src/ring", "io/x/f.rs"));
        assert_eq!(files("tests/tests/kill.rs"), all("tests/tests", "tests/x/f.rs"));
        assert_eq!(files("tests/src/bin/pattern.rs"), all("tests/src/bin", "tests/src/x/f.rs"));
        let of_tests: Vec<bool> = declared("io/src/lib.rs", text).iter().map(|module| module.for_tests).collect();
        assert_eq!(of_tests, [false, false, false, true, false]);
    }

    #[test]
    fn a_file_that_no_module_leads_to_is_refused() {
        let made = Made::of(
            "dead-files",
            &[
                ("io/src/lib.rs", "mod a;\n// mod c;\n"),
                ("io/src/a.rs", "#[cfg(test)]\nmod tests;\n"),
                ("io/src/a/tests.rs", ""),
                ("io/src/c.rs", ""),
                ("io/tests/d.rs", ""),
            ],
        );
        assert_eq!(made.wrong(dead_files), ["io/src/c.rs: no `mod` leads to it"]);
        let places = files_of(&made.tree, "io/src/lib.rs");
        let place = |file: &str, path: &[&str], for_tests| {
            let path = path.iter().map(|name| (*name).to_string()).collect();
            Place { file: file.to_string(), path, for_tests }
        };
        let expected = [
            place("io/src/lib.rs", &[], false),
            place("io/src/a.rs", &["a"], false),
            place("io/src/a/tests.rs", &["a", "tests"], true),
        ];
        assert_eq!(places, expected);
        let of_tests: Vec<String> = files_of_tests(&made.tree).into_iter().collect();
        assert_eq!(of_tests, ["io/src/a/tests.rs", "io/src/c.rs", "io/tests/d.rs"]);
    }

    #[test]
    fn a_file_of_two_crates_is_refused_and_a_copy_too() {
        let made = Made::of(
            "shared-files",
            &[
                ("host/src/lib.rs", "mod net;\nmod own;\n"),
                ("host/src/net.rs", "pub fn look() {}\n"),
                ("host/src/own.rs", "// one\n"),
                ("node/src/lib.rs", "mod cli;\nmod net;\nmod own;\nmod empty;\n"),
                ("node/src/main.rs", "mod cli;\nmod empty_too;\n"),
                ("node/src/cli.rs", "// cli\n"),
                ("node/src/net.rs", "pub fn look() {}\n"),
                ("node/src/own.rs", "// another\n"),
                ("node/src/empty.rs", ""),
                ("node/src/empty_too.rs", ""),
                // Of tests, each of which is a crate of its own.
                ("node/tests/a.rs", "mod common;\n"),
                ("node/tests/b.rs", "mod common;\n"),
                ("node/tests/common/mod.rs", "// common\n"),
            ],
        );
        let expected = [
            "node/src/net.rs: the same text as host/src/net.rs: keep one",
            "node/src/cli.rs: a module of node/src/lib.rs and of node/src/main.rs: one declares it, the other uses that one",
        ];
        assert_eq!(made.wrong(shared_files), expected);
    }

    #[test]
    fn a_file_of_another_package_is_refused() {
        let made = Made::of(
            "foreign-files",
            &[
                ("fuzz/fuzz_targets/a.rs", "#[allow(dead_code)]\n#[path = \"../../node/src/b.rs\"]\nmod b;\n"),
                (
                    "node/src/b.rs",
                    "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n// #[path = \"../../io/c.rs\"] mod c;\n",
                ),
                (
                    "node/tests/d.rs",
                    "#[path = \"../examples/e.rs\"]\nmod e;\nconst S: &str = \"#[path = \\\"../../io/c.rs\\\"] mod c;\";\n",
                ),
            ],
        );
        let expected =
            ["fuzz/fuzz_targets/a.rs:3: #[path] leads to node/src/b.rs, of another package: depend on the package"];
        assert_eq!(made.wrong(foreign_files), expected);
    }
}
