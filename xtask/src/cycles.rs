//! Arrows between the top-level modules of a crate, and the cycles that they make.
//!
//! A top-level module is what the crate's root declares, with all below it. An arrow is a path that leaves it: `crate::other::...`, or as many
//! `super` as lead out, also in a `use`, a macro's text, and the text of an attribute (serde takes paths so). What the root re-exports counts as
//! what it re-exports it from. What only tests compile has no arrows, and the root is no module. `pub(in crate::other)` is none.

use crate::graph::{Graph, knots, shortest_cycle};
use crate::modules::{files_of, is_source_root, roots};
use crate::rust::{Kind, Source};
use crate::steps::Outcome;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const HIDES: &str = "name what is brought in: `*` hides arrows between modules";

/// The top-level modules of a crate and its arrows.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<String>,
    /// Where each arrow stands: `file:line`, the first of each file.
    arrows: BTreeMap<(String, String), Vec<String>>,
    /// Where a glob hides arrows.
    hidden: Vec<String>,
}

impl Crate {
    fn graph(&self) -> Graph<'_> {
        let mut graph = Graph::new();
        for (from, to) in self.arrows.keys() {
            graph.entry(from).or_default().insert(to);
        }
        graph
    }
}

/// Crates in which one can go round.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    for root in roots(tree).into_iter().filter(|root| is_source_root(root)) {
        let found = look(tree, root);
        wrong.extend(found.hidden.iter().map(|place| format!("{place}: {HIDES}")));
        let graph = found.graph();
        for knot in knots(&graph) {
            let way = shortest_cycle(&graph, &knot).unwrap_or_default();
            let mut says = format!("{root}: {} modules go round, the shortest way {}:", knot.len(), way.join(" -> "));
            for arrow in way.windows(2) {
                let places = &found.arrows[&(arrow[0].to_string(), arrow[1].to_string())];
                says.push_str(&format!("\n    {} -> {}  {}", arrow[0], arrow[1], places[0]));
            }
            wrong.push(says);
        }
    }
}

/// Prints for each crate how many modules and arrows it has, and the arrows of each group that goes round, with the files that they stand in.
pub fn print(root: &Path) -> Outcome {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(reason) => return Outcome::Failed(vec![reason]),
    };
    for root in roots(&tree).into_iter().filter(|root| is_source_root(root)) {
        let found = look(&tree, root);
        if found.modules.is_empty() {
            continue;
        }
        let graph = found.graph();
        let knots = knots(&graph);
        let largest = knots.first().map_or(0, BTreeSet::len);
        let (modules, arrows) = (found.modules.len(), found.arrows.len());
        println!("{root}: {modules} modules, {arrows} arrows, {largest} in the largest cycle");
        found.hidden.iter().for_each(|place| println!("  {place}: {HIDES}"));
        for knot in &knots {
            let names: Vec<&str> = knot.iter().copied().collect();
            println!("  {} go round: {}", knot.len(), names.join(" "));
            let inside = |(from, to): &&(String, String)| knot.contains(from.as_str()) && knot.contains(to.as_str());
            for arrow in found.arrows.keys().filter(inside) {
                println!("    {} -> {}  {}", arrow.0, arrow.1, found.arrows[arrow].join(" "));
            }
        }
    }
    Outcome::Passed
}

fn look(tree: &Tree, root: &str) -> Crate {
    let text = tree.text(root);
    let source = Source::of(&text);
    let is_module = |module: &&crate::rust::Module<'_>| module.path.len() == 1 && !module.for_tests;
    let mut found = Crate::default();
    found.modules.extend(source.modules().iter().filter(is_module).map(|module| module.path[0].to_string()));
    let exported = exported(&source, root, &mut found);
    for place in files_of(tree, root).into_iter().filter(|place| !place.for_tests) {
        let text = tree.text(&place.file);
        let source = Source::of(&text);
        let mut seen = BTreeSet::new();
        for Leaf { line, path, module, .. } in leaves_of(&source, &place.path) {
            let (Some(from), Some(first)) = (module.first(), path.first()) else { continue };
            if *first == "*" {
                found.hidden.push(format!("{}:{line}", place.file));
                continue;
            }
            let to =
                if found.modules.contains(*first) { Some(*first) } else { exported.get(*first).map(String::as_str) };
            let Some(to) = to.filter(|to| to != from) else { continue };
            if seen.insert((from.to_string(), to.to_string())) {
                let arrow = (from.to_string(), to.to_string());
                found.arrows.entry(arrow).or_default().push(format!("{}:{line}", place.file));
            }
        }
    }
    found
}

/// For each name that the root brings in from a module of its own, that module.
fn exported(source: &Source<'_>, root: &str, found: &mut Crate) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    let is_use =
        |at: &usize| source.is(*at, "use") && !source.is_for_tests(*at) && source.modules_around(*at).is_empty();
    for at in (0..source.code.len()).filter(is_use) {
        let mut leaves = Vec::new();
        let begin = if source.is(at + 1, "::") { continue } else { at + 1 };
        follow(source, begin, &[], &[], &mut leaves);
        for Leaf { line, path, name, .. } in leaves.into_iter().filter(|leaf| leaf.path.len() > 1) {
            if !found.modules.contains(path[0]) {
                continue;
            }
            if name == "*" {
                found.hidden.push(format!("{root}:{line}"));
            }
            exported.insert(name.to_string(), path[0].to_string());
        }
    }
    exported
}

/// One name that a path leads to.
#[derive(Debug, PartialEq, Eq)]
struct Leaf<'a> {
    line: usize,
    /// From the crate's root.
    path: Vec<&'a str>,
    /// What it is called where it is brought in.
    name: &'a str,
    /// The module that says so.
    module: Vec<&'a str>,
}

/// Where the paths of a file lead that begin with `crate`, `self` or `super`, but for those of tests.
fn leaves_of<'a>(source: &Source<'a>, place: &'a [String]) -> Vec<Leaf<'a>> {
    let mut found = Vec::new();
    let module_at = |at: usize| {
        let mut module: Vec<&str> = place.iter().map(String::as_str).collect();
        module.extend(source.modules_around(at));
        module
    };
    for at in 0..source.code.len() {
        let is_begin = ["crate", "self", "super"].contains(&source.text(at))
            && source.is(at + 1, "::")
            && (at == 0 || !source.is(at - 1, "::"));
        // `pub(in crate::a)` says who may look.
        let is_limit = at > 2 && source.is(at - 1, "in") && source.is(at - 2, "(") && source.is(at - 3, "pub");
        // Inside of the braces of a `use` it is followed from where that begins.
        if is_begin && !is_limit && !source.is_for_tests(at) {
            let module = module_at(at);
            follow(source, at, &module, &module, &mut found);
        }
    }
    for range in source.attributes() {
        for at in range.filter(|at| source.code[*at].kind == Kind::Quoted && !source.is_for_tests(*at)) {
            let mut path = module_at(at);
            let module = path.clone();
            let mut names = source.text(at).trim_matches('"').split("::").map(str::trim);
            let is_path = |name: &&str| ["crate", "self", "super"].contains(name);
            if names.clone().nth(1).is_none() || !names.clone().next().as_ref().is_some_and(is_path) {
                continue;
            }
            names.by_ref().for_each(|name| step(&mut path, name));
            found.push(Leaf {
                line: source.code[at].line,
                name: path.last().copied().unwrap_or_default(),
                path,
                module,
            });
        }
    }
    found
}

/// Goes to a name from where a path has come to.
fn step<'a>(path: &mut Vec<&'a str>, name: &'a str) {
    match name {
        "crate" => path.clear(),
        "self" => {}
        "super" => {
            path.pop();
        }
        name => path.push(name),
    }
}

/// Follows a path, and each branch of a tree of them, from where `base` is.
fn follow<'a>(source: &Source<'a>, mut at: usize, base: &[&'a str], module: &[&'a str], found: &mut Vec<Leaf<'a>>) {
    let mut path = base.to_vec();
    while !source.is(at, "{") {
        step(&mut path, source.text(at));
        let goes_on = source.is_name(at + 2) || source.is(at + 2, "{") || source.is(at + 2, "*");
        if !source.is(at + 1, "::") || !goes_on {
            let last = path.last().copied().unwrap_or_default();
            let name = if source.is(at + 1, "as") { source.text(at + 2) } else { last };
            return found.push(Leaf { line: source.code[at].line, path, name, module: module.to_vec() });
        }
        at += 2;
    }
    for element in source.elements(at) {
        follow(source, element, &path, module, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    fn arrows(made: &Made, root: &str) -> Vec<String> {
        let found = look(&made.tree, root);
        found.arrows.iter().map(|((from, to), places)| format!("{from}>{to} {}", places.join(" "))).collect()
    }

    /// The arrows of a file in a crate with the modules a to e, by where they lead.
    fn from(file: &str, text: &str) -> String {
        let lib = "pub mod a;\npub mod b;\npub mod c;\npub mod d;\nmod e;\npub use b::{Bee, sub::Sea as Other};\nuse self::c::cee;\nuse std::fmt;\n";
        let name = file.replace('/', "-");
        let made = Made::of(
            &format!("cycles-{name}-{}", text.len()),
            &[
                ("io/src/lib.rs", lib),
                ("io/src/a.rs", if file == "a.rs" { text } else { "mod x;\n" }),
                (&format!("io/src/{file}"), text),
            ],
        );
        let found = look(&made.tree, "io/src/lib.rs");
        let to: Vec<&str> = found.arrows.keys().filter(|(from, _)| from == "a").map(|(_, to)| to.as_str()).collect();
        assert_eq!(to.len(), found.arrows.len());
        format!("{}{}", to.concat(), "*".repeat(found.hidden.len()))
    }

    #[test]
    fn arrows_are_what_paths_say() {
        for (text, expected) in [
            ("use crate::{a::B, c};", "c"),
            ("use crate::{b::{self, X}, c::d, e as f};", "bce"),
            ("pub(crate) use crate::d::*;", "d"),
            ("fn f() { crate::b::g::<crate::c::X>(); }", "bc"),
            ("fn f() -> super::d::X { let x: <super::c::Y as super::b::Z>::W; }", "bcd"),
            ("use super::{b, c::X};", "bc"),
            ("use super::super::b;", "b"),
            ("use self::b::X;\nuse b::X;", ""),
            ("mod x { use super::super::b; use super::c; use crate::d; }", "bd"),
            ("macro_rules! m { () => { $crate::b::f() } }", "b"),
            ("pub(in crate::b) fn f() {}\npub(crate) fn g() {}\npub(super) fn h() {}", ""),
            ("// crate::b\n/// [`crate::b::X`]\nfn f() { \"crate::b::X\"; }", ""),
            ("#[serde(default = \"crate::b::f\", with = \"super::c\", rename = \"crate\")] x: u8", "bc"),
            (
                "#[cfg(test)]\nmod tests { use crate::b; }\n#[cfg(test)]\nuse crate::{b, c};\n#[cfg(any(test, x))] use crate::d;",
                "d",
            ),
            ("use crate::Bee;", "b"),
            ("fn f(x: crate::Other) { super::cee() }", "bc"),
            ("use crate::fmt;\nuse crate::Nothing;\nuse other::crate_b;\nuse crate::{self};", ""),
            ("macro_rules! m { ($n:ident) => { mod $n { use super::*; use super::super::b; } } }", "b"),
            ("use crate::*;", "*"),
            ("use super::{b, *};", "b*"),
            ("fn f<'a>(x: &'a str) { let c = '\"'; crate::b::f('\\''); }", "b"),
            ("r#\"crate::c::f\"#; crate::r#b::f();", "b"),
        ] {
            assert_eq!(from("a.rs", text), expected, "{text}");
        }
        for (text, expected) in [
            ("use super::super::b::X;", "b"),
            ("use super::b::X;\nuse super::*;", ""),
            ("use super::super::{b, c};\ncrate::a::f();", "bc"),
            ("mod y { super::super::super::d::f(); super::super::e::f(); }", "d"),
        ] {
            assert_eq!(from("a/x.rs", text), expected, "{text}");
        }
    }

    #[test]
    fn a_cycle_is_told_by_its_shortest_way() {
        let made = Made::of(
            "cycles",
            &[
                ("io/src/lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\n#[cfg(test)]\nmod t;\n"),
                ("io/src/a.rs", "use crate::b;\nuse crate::d;\n"),
                ("io/src/b.rs", "mod x;\n#[cfg(test)]\nmod tests;\n"),
                ("io/src/b/x.rs", "use std::fmt;\nuse super::super::c;\n"),
                ("io/src/b/tests.rs", "use crate::a;\n"),
                ("io/src/c.rs", "\nuse crate::{\n    d,\n    a,\n};\n"),
                ("io/src/d.rs", "use crate::t;\n"),
                ("io/src/t.rs", "use crate::a;\n"),
                // Each program is a crate of its own.
                ("io/src/main.rs", "mod cli;\nmod run;\n"),
                ("io/src/cli.rs", "use crate::run;\n"),
                ("io/src/run.rs", "fn f() {\n    crate::cli::g();\n}\n"),
                ("sim/src/lib.rs", "mod a;\nmod b;\n"),
                ("sim/src/a.rs", "use crate::b;\n"),
                ("sim/src/b.rs", "use forebay_io::a;\nuse crate::c;\n"),
            ],
        );
        let expected =
            ["a>b io/src/a.rs:1", "a>d io/src/a.rs:2", "b>c io/src/b/x.rs:2", "c>a io/src/c.rs:4", "c>d io/src/c.rs:3"];
        assert_eq!(arrows(&made, "io/src/lib.rs"), expected);
        let expected = [
            "io/src/lib.rs: 3 modules go round, the shortest way a -> b -> c -> a:\n    a -> b  io/src/a.rs:1\n    b -> c  io/src/b/x.rs:2\n    \
             c -> a  io/src/c.rs:4",
            "io/src/main.rs: 2 modules go round, the shortest way cli -> run -> cli:\n    cli -> run  io/src/cli.rs:1\n    run -> cli  \
             io/src/run.rs:2",
        ];
        assert_eq!(made.wrong(check), expected);
    }

    #[test]
    fn a_glob_that_hides_arrows_is_refused() {
        let made = Made::of(
            "cycles-hidden",
            &[
                ("io/src/lib.rs", "mod a;\nmod b;\npub use a::*;\nuse std::io::*;\n"),
                (
                    "io/src/a.rs",
                    "use super::*;\nuse crate::b::*;\n#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::*;\n}\n",
                ),
                ("io/src/b.rs", "mod x;\n"),
                ("io/src/b/x.rs", "use super::*;\n"),
            ],
        );
        let hides = |place: &str| format!("{place}: {HIDES}");
        assert_eq!(made.wrong(check), [hides("io/src/lib.rs:3"), hides("io/src/a.rs:1")]);
    }
}
