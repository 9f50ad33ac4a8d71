//! Which of our packages may use which, a reason for each dependency on others' packages, and lints switched on.

use crate::graph::{Graph, knots, shortest_cycle};
use crate::tree::{Tree, normal};
use std::collections::BTreeMap;

/// A package, and those that it may use.
type Edges<'a> = &'a [(&'a str, &'a [&'a str])];

/// `core <- io <- front <- node` and `core <- sim`; `api <- cli` and `host <- doctor` lie between, below `node`; `model` stands alone. Some may
/// not exist yet. A new edge is a design change; begin in ARCHITECTURE.md.
const EDGES: Edges = &[
    ("core", &[]),
    ("io", &["core"]),
    ("front", &["core", "io"]),
    // Settings and status, as they are sent and kept.
    ("api", &["core", "io"]),
    // What reads the host that it runs on.
    ("host", &["core", "io", "api"]),
    ("doctor", &["core", "io", "api", "host"]),
    // Reads tiers and journals without a daemon; a start reads them by it, too.
    ("rescue", &["core", "io", "api"]),
    // The command line: a client of the API's types, and of nothing else in the daemon. `bench` loads a server by front's NBD client.
    ("cli", &["core", "io", "front", "api", "host", "doctor", "rescue"]),
    ("node", &["core", "io", "front", "api", "host", "doctor", "rescue", "cli"]),
    ("sim", &["core"]),
    // The protocol between nodes, stated before it is coded: it uses nothing of the code that follows it.
    ("model", &[]),
    // Black box: it knows the binary's behaviour, and the format for damaging tiers on purpose.
    ("tests", &["core"]),
    ("fuzz", &["core", "io", "front", "api", "rescue"]),
    ("xtask", &[]),
];
/// What a package's tests alone may use besides: the stand of the black-box tests, which starts a real etcd and has places to put files.
const TEST_EDGES: Edges =
    &[("api", &["tests"]), ("cli", &["tests"]), ("doctor", &["tests"]), ("host", &["tests"]), ("node", &["tests"])];

fn allowed<'a>(edges: Edges<'a>, package: &str) -> Option<&'a [&'a str]> {
    edges.iter().find(|(name, _)| *name == package).map(|(_, allowed)| *allowed)
}

/// What is wrong in the manifests, and in the table itself.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    cycle_of(EDGES, wrong);
    let workspace = tree.text("Cargo.toml");
    let aliases: BTreeMap<String, String> = dependencies("", &workspace)
        .into_iter()
        .filter_map(|dependency| Some((dependency.name.to_string(), dependency.ours?)))
        .collect();
    for file in tree.ending("Cargo.toml") {
        let text = tree.text(file);
        let package = file.strip_suffix("/Cargo.toml").unwrap_or("");
        let of_table = allowed(EDGES, package);
        if !package.is_empty() && of_table.is_none() {
            wrong.push(format!("{file}: package {package} is not in the list of edges in xtask/src/edges.rs"));
        }
        for mut dependency in dependencies(package, &text) {
            if dependency.inherited {
                dependency.ours = dependency.ours.or_else(|| aliases.get(dependency.name).cloned());
            }
            let Dependency { line, name, ours, reason, for_tests, .. } = &dependency;
            match ours.as_deref() {
                Some(ours) => {
                    let may = of_table.is_some_and(|allowed| allowed.contains(&ours));
                    let tests_may =
                        *for_tests && allowed(TEST_EDGES, package).is_some_and(|allowed| allowed.contains(&ours));
                    if !package.is_empty() && !may && !tests_may {
                        let who = if *for_tests { format!("{package}'s tests") } else { package.to_string() };
                        wrong.push(format!("{file}:{line}: {who} may not depend on {ours}"));
                    }
                }
                None if *reason => {}
                None => wrong.push(format!("{file}:{line}: no comment above says why {name} is needed")),
            }
        }
        if !package.is_empty() && package != "fuzz" && !text.contains("[lints]\nworkspace = true") {
            wrong.push(format!("{file}: [lints] workspace = true is missing"));
        }
    }
}

/// A table that leads back to where it began, or to what it does not have, says no direction.
fn cycle_of(edges: Edges, wrong: &mut Vec<String>) {
    let graph: Graph = edges.iter().map(|(name, to)| (*name, to.iter().copied().collect())).collect();
    for knot in knots(&graph) {
        let way = shortest_cycle(&graph, &knot).unwrap_or_default().join(" -> ");
        wrong.push(format!("xtask/src/edges.rs: the table goes round: {way}"));
    }
    for (name, to) in edges {
        for missing in to.iter().filter(|to| !graph.contains_key(*to)) {
            wrong.push(format!("xtask/src/edges.rs: {name} may use {missing}, which has no line of its own"));
        }
    }
}

#[derive(Debug, PartialEq)]
struct Dependency<'a> {
    line: usize,
    name: &'a str,
    /// The folder of our own package that it names, by that package's name or by a path.
    ours: Option<String>,
    /// A comment stands above it or above the run of lines that it is in, or above the workspace's line that it inherits.
    reason: bool,
    /// It is in a table of `dev-dependencies`.
    for_tests: bool,
    /// It is what the workspace calls by this name.
    inherited: bool,
}

fn dependencies<'a>(package: &str, manifest: &'a str) -> Vec<Dependency<'a>> {
    let mut found: Vec<Dependency<'a>> = Vec::new();
    let (mut inside, mut alone, mut for_tests) = (false, false, false);
    let mut run_has_comment = false;
    for (at, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.is_empty()
            || (line.starts_with('[') && !manifest.lines().nth(at.wrapping_sub(1)).is_some_and(is_comment))
        {
            run_has_comment = false;
        }
        run_has_comment |= is_comment(line);
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            // One dependency may be a table of its own: `[dependencies.name]`.
            let (table, name) = match section.rsplit_once('.') {
                Some((table, name)) if table.ends_with("dependencies") => (table, Some(name.trim_matches('"'))),
                _ => (section, None),
            };
            (inside, alone) = (table.ends_with("dependencies"), name.is_some());
            for_tests = table.ends_with("dev-dependencies");
            if let Some(name) = name {
                let ours = name.strip_prefix("forebay-").map(str::to_string);
                found.push(Dependency {
                    line: at + 1,
                    name,
                    ours,
                    reason: run_has_comment,
                    for_tests,
                    inherited: false,
                });
            } else {
                run_has_comment = false;
            }
        } else if inside
            && !is_comment(line)
            && let Some((key, value)) = line.split_once('=')
        {
            let ours = package_of(package, line);
            let inherited = key.trim().ends_with("workspace") || value.contains("workspace = true");
            if let Some(whole) = found.last_mut().filter(|_| alone) {
                whole.ours = whole.ours.take().or(ours);
                whole.inherited |= inherited;
                whole.reason |= inherited;
            } else {
                let name = key.trim().split('.').next().unwrap_or("").trim_matches('"');
                let reason = run_has_comment || inherited;
                found.push(Dependency { line: at + 1, name, ours, reason, for_tests, inherited });
            }
        }
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The folder of our own package that a line names, from the folder of the package that says so.
fn package_of(package: &str, line: &str) -> Option<String> {
    if let Some((_, rest)) = line.split_once("forebay-") {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        return Some(rest[..end].to_string());
    }
    let (_, path) = line.split_once("path")?;
    let path = path.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?.split('"').next()?;
    Some(normal(&format!("{package}/{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    #[test]
    fn dependencies_are_read_with_their_reasons() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\nforebay-core.workspace = true\n# why\nlibc = \"0.2\"\n\
                        serde = \"1\"\n\nrustix = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\nslab.workspace = true\n\
                        other = { package = \"forebay-io\", path = \"../io\" }\nthird = { path = \"../front\" }\n[lints]\nworkspace = true\n\
                        [dependencies.forebay-node]\nworkspace = true\n\n# why\n[dev-dependencies.tempfile]\nversion = \"3\"\n[dependencies.x]\n\
                        path = \"../host\"\n[features]\na = []\n";
        let found: Vec<_> = dependencies("sim", manifest)
            .into_iter()
            .map(|d| (d.line, d.name, d.ours, d.reason, d.for_tests, d.inherited))
            .collect();
        let ours = |name: &str| Some(name.to_string());
        let expected = [
            (4, "forebay-core", ours("core"), true, false, true),
            (6, "libc", None, true, false, false),
            (7, "serde", None, true, false, false),
            (9, "rustix", None, false, false, false),
            (11, "slab", None, true, true, true),
            (12, "other", ours("io"), false, true, false),
            (13, "third", ours("front"), false, true, false),
            (16, "forebay-node", ours("node"), true, false, true),
            (20, "tempfile", None, true, true, false),
            (22, "x", ours("host"), false, false, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_edge_past_the_table_is_refused() {
        let lints = "[lints]\nworkspace = true\n";
        let manifest = |text: &str| format!("{text}{lints}");
        let made = Made::of(
            "edges",
            &[
                ("Cargo.toml", "[workspace.dependencies]\nbase = { path = \"core\" }\nwater = { path = \"node\" }\n"),
                ("core/Cargo.toml", &manifest("[dependencies]\n")),
                (
                    "host/Cargo.toml",
                    &manifest("[dependencies]\nbase.workspace = true\nforebay-api = { path = \"../api\" }\n"),
                ),
                (
                    "cli/Cargo.toml",
                    &manifest("[dependencies]\nwater.workspace = true\n[dependencies.forebay-sim]\npath = \"x\"\n"),
                ),
                ("api/Cargo.toml", &manifest("[dev-dependencies]\nforebay-host = {}\nforebay-tests = {}\n")),
                ("sim/Cargo.toml", &manifest("[dev-dependencies]\nforebay-tests = {}\nx = { path = \"../core\" }\n")),
                ("front/Cargo.toml", "[build-dependencies]\nforebay-node = {}\nlibc = \"1\"\n"),
                ("rogue/Cargo.toml", lints),
            ],
        );
        let expected = [
            "api/Cargo.toml:2: api's tests may not depend on host",
            "cli/Cargo.toml:2: cli may not depend on node",
            "cli/Cargo.toml:3: cli may not depend on sim",
            "front/Cargo.toml:2: front may not depend on node",
            "front/Cargo.toml:3: no comment above says why libc is needed",
            "front/Cargo.toml: [lints] workspace = true is missing",
            "rogue/Cargo.toml: package rogue is not in the list of edges in xtask/src/edges.rs",
            "sim/Cargo.toml:2: sim's tests may not depend on tests",
        ];
        assert_eq!(made.wrong(check), expected);
    }

    #[test]
    fn a_table_that_goes_round_is_refused() {
        let wrong = |edges| {
            let mut wrong = Vec::new();
            cycle_of(edges, &mut wrong);
            wrong
        };
        assert!(wrong(EDGES).is_empty());
        let round = wrong(&[("a", &["b", "gone"]), ("b", &["c"]), ("c", &["a"])]);
        let expected = [
            "xtask/src/edges.rs: the table goes round: a -> b -> c -> a",
            "xtask/src/edges.rs: a may use gone, which has no line of its own",
        ];
        assert_eq!(round, expected);
        let known = |name: &str| allowed(EDGES, name).is_some();
        assert!(TEST_EDGES.iter().all(|(name, to)| known(name) && to.iter().all(|to| known(to))));
    }
}
