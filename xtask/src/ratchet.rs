//! Lists of what is over a limit today. They may shrink, and say what is: a line that allows more than there is fails.
//!
//! Each line is a name and a number; a name may stand in several, one for each thing that is called so. Lines that begin with `#` are
//! comments. `cargo xtask fix` lowers the numbers and drops lines, and never raises or adds one. A line follows a file that has moved and
//! kept its own name.

use crate::steps::Outcome;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::path::Path;

/// Numbers by names; those of one name with the largest first.
pub type Numbers = BTreeMap<String, Vec<usize>>;

/// A list of names and numbers, and how it speaks of them.
pub struct Ratchet {
    /// The file that it stands in.
    pub list: &'static str,
    /// What its numbers count.
    pub unit: &'static str,
    /// What to do about a name that is over the limit and not in the list.
    pub instead: &'static str,
}

impl Ratchet {
    /// Compares what is over the limit today with the list.
    pub fn check(&self, tree: &Tree, found: &Numbers, wrong: &mut Vec<String>) {
        let (list, unit) = (self.list, self.unit);
        let listed = read(&tree.text(list));
        let none = Vec::new();
        let names: std::collections::BTreeSet<&String> = found.keys().chain(listed.keys()).collect();
        for name in names {
            let (found, listed) = (found.get(name).unwrap_or(&none), listed.get(name).unwrap_or(&none));
            for at in 0..found.len().max(listed.len()) {
                match (found.get(at), listed.get(at)) {
                    (Some(is), Some(most)) if is > most => {
                        wrong.push(format!("{name}: {is} {unit}, {most} in {list}: {}", self.instead));
                    }
                    (Some(is), None) => wrong.push(format!("{name}: {is} {unit}: {}", self.instead)),
                    (Some(is), Some(most)) if is < most => {
                        wrong.push(format!("{list}: {name} has {is} {unit} and not {most}: `cargo xtask lower`"));
                    }
                    (None, Some(most)) => {
                        wrong.push(format!("{list}: {name} {most} allows what is no more: `cargo xtask lower`"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Writes smaller numbers into the list, never larger ones.
    pub fn lower(&self, tree: &Tree, found: &Numbers) -> Outcome {
        let text = lowered(&moved(tree, &tree.text(self.list), found), found);
        match std::fs::write(tree.root().join(self.list), text) {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(vec![format!("{}: cannot be written: {error}", self.list)]),
        }
    }
}

/// Adds a number, so that those of its name stay in their order.
pub fn add(numbers: &mut Numbers, name: &str, number: usize) {
    let of_name = numbers.entry(name.to_string()).or_default();
    of_name.push(number);
    of_name.sort_unstable_by(|one, other| other.cmp(one));
}

/// Lowers a list of the tree in this folder.
pub fn lower(root: &Path, ratchet: &Ratchet, look: fn(&Tree) -> Numbers) -> Outcome {
    match Tree::read(root) {
        Ok(tree) => ratchet.lower(&tree, &look(&tree)),
        Err(reason) => Outcome::Failed(vec![reason]),
    }
}

fn entry(line: &str) -> Option<(&str, usize)> {
    let (name, number) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    Some((name, number.parse().ok()?))
}

fn read(text: &str) -> Numbers {
    let mut numbers = Numbers::new();
    for (name, number) in text.lines().filter_map(entry) {
        add(&mut numbers, name, number);
    }
    numbers
}

/// The list with the lines of files that are gone under the names of those that have come in their place: of the same name in another folder,
/// if there is one such alone.
fn moved(tree: &Tree, text: &str, found: &Numbers) -> String {
    let listed = read(text);
    let is_gone = |name: &str| !tree.has(name.split("::").next().unwrap_or(name));
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_string();
    let gone: Vec<&str> = listed.keys().map(String::as_str).filter(|name| is_gone(name)).collect();
    let come: Vec<&str> = found.keys().map(String::as_str).filter(|name| !listed.contains_key(*name)).collect();
    let of_name = |names: &[&'_ str], name: &str| names.iter().filter(|other| last(other) == last(name)).count();
    let mut kept = String::new();
    for line in text.lines() {
        let to = entry(line)
            .filter(|(name, _)| gone.contains(name) && of_name(&gone, name) == 1 && of_name(&come, name) == 1);
        match to.and_then(|(name, number)| Some((come.iter().find(|other| last(other) == last(name))?, number))) {
            Some((name, number)) => kept.push_str(&format!("{name} {number}\n")),
            None => kept.push_str(&format!("{line}\n")),
        }
    }
    kept
}

fn lowered(text: &str, found: &Numbers) -> String {
    let mut left = found.clone();
    let mut allowed = Numbers::new();
    // The largest of what is gets the largest of what was allowed, wherever that stands.
    for (name, listed) in read(text) {
        let is = left.remove(&name).unwrap_or_default();
        allowed.insert(name, listed.into_iter().zip(is).map(|(most, is)| most.min(is)).collect());
    }
    let mut kept = String::new();
    for line in text.lines() {
        match entry(line) {
            Some((name, _)) => {
                let of_name = allowed.entry(name.to_string()).or_default();
                if !of_name.is_empty() {
                    kept.push_str(&format!("{name} {}\n", of_name.remove(0)));
                }
            }
            None => kept.push_str(&format!("{line}\n")),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    const OF_TEST: Ratchet = Ratchet { list: "list.txt", unit: "lines", instead: "make it shorter" };

    fn numbers(all: &[(&str, usize)]) -> Numbers {
        let mut numbers = Numbers::new();
        all.iter().for_each(|(name, number)| add(&mut numbers, name, *number));
        numbers
    }

    #[test]
    fn a_list_that_allows_other_than_what_is_fails() {
        let made = Made::of("ratchet", &[("list.txt", "# why\na 10\nb 10\nc 10\nd 10\ne 10\ne 20\n")]);
        let found = numbers(&[("a", 10), ("b", 11), ("c", 9), ("e", 19), ("e", 11), ("f", 5)]);
        let expected = [
            "b: 11 lines, 10 in list.txt: make it shorter",
            "list.txt: c has 9 lines and not 10: `cargo xtask lower`",
            "list.txt: d 10 allows what is no more: `cargo xtask lower`",
            "list.txt: e has 19 lines and not 20: `cargo xtask lower`",
            "e: 11 lines, 10 in list.txt: make it shorter",
            "f: 5 lines: make it shorter",
        ];
        assert_eq!(made.wrong(|tree, wrong| OF_TEST.check(tree, &found, wrong)), expected);
    }

    #[test]
    fn a_line_follows_a_file_that_has_moved() {
        let made = Made::of("ratchet-moved", &[("host/src/net.rs", ""), ("node/src/b.rs", "")]);
        let text = "# why\nnode/src/net.rs::f 90\nnode/src/b.rs::f 90\nnode/src/x/m.rs::g 90\nnode/src/y/m.rs::g 90\n";
        let found = numbers(&[("host/src/net.rs::f", 95), ("host/src/b.rs::f", 90), ("host/src/m.rs::g", 90)]);
        let expected =
            "# why\nhost/src/net.rs::f 90\nnode/src/b.rs::f 90\nnode/src/x/m.rs::g 90\nnode/src/y/m.rs::g 90\n";
        assert_eq!(moved(&made.tree, text, &found), expected);
        assert_eq!(lowered(expected, &found), "# why\nhost/src/net.rs::f 90\n");
    }

    #[test]
    fn a_list_is_lowered_and_never_raised() {
        let text = "# why\na 10\nb 10\nc 10\ne 10\ne 20\ne 5\n";
        let found = numbers(&[("a", 12), ("b", 9), ("e", 15), ("e", 11), ("f", 5)]);
        assert_eq!(lowered(text, &found), "# why\na 10\nb 9\ne 15\ne 10\n");
        assert_eq!(lowered(text, &Numbers::new()), "# why\n");
    }
}
