//! The contract and its proofs: every promise of `docs/losses.md` is named by the test that proves it.
//!
//! A promise has a name on the page: a cell of the table for one node (`L-BF-3`) or for several (`N-M-3`), an operator's
//! error (`O-6`), an exception of an NBD backing (`N-1`). A test proves it by a comment right above it: `/// Proves L-BF-3, O-4: ...`. A cell that
//! says "does not arise" or "everything" promises nothing and needs no test. Names that the page does not have are
//! refused wherever they stand, so that a row that is moved takes its tests along.

use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "docs/losses.md";
/// The tables whose cells have names: what a name begins with, and the columns, in their order.
const TABLES: [(&str, &[&str]); 2] = [("L", &["TM", "TF", "BM", "BF"]), ("N", &["M", "F", "X"])];
/// What a cell says that promises nothing.
const NOTHING_TO_PROVE: [&str; 2] = ["does not arise", "everything"];

/// Every promise that the page makes is proved by a test, and no name is used that it does not have.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    let promises = promises(&tree.text(PAGE));
    if promises.is_empty() {
        return wrong.push(format!("{PAGE}: no promise found; is its table still one?"));
    }
    let mut proved: BTreeSet<String> = BTreeSet::new();
    for file in [".rs", ".sh", ".py"].into_iter().flat_map(|end| tree.ending(end)) {
        if file.starts_with("xtask/") {
            continue;
        }
        let text = tree.text(file);
        for (at, line) in text.lines().enumerate() {
            for name in names(line).into_iter().filter(|name| !promises.contains_key(name)) {
                wrong.push(format!("{file}:{}: {name} is no promise of {PAGE}", at + 1));
            }
        }
        proved.extend(proofs(&text));
    }
    let to_prove = promises.iter().filter(|(_, needs_proof)| **needs_proof).map(|(name, _)| name);
    let (done, missing): (Vec<&String>, Vec<&String>) = to_prove.partition(|name| proved.contains(*name));
    println!("{} promises of {PAGE} are proved by a test that names them", done.len());
    for name in missing {
        wrong.push(format!("{PAGE}: no test proves {name}: write one, with `/// Proves {name}` right above it"));
    }
}

/// The names of the page, and whether each needs a proof.
fn promises(page: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let mut table = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("- **N-")
            && let Some((number, _)) = rest.split_once(':')
            && number.parse::<u32>().is_ok()
        {
            found.insert(format!("N-{number}"), true);
        }
        let Some(row) = line.strip_prefix("| ") else { continue };
        let fields: Vec<&str> = row.split('|').map(str::trim).collect();
        if fields[0].starts_with("O-") {
            found.insert(fields[0].to_string(), true);
        }
        // Behind the last cell stands the line's end.
        let [first, _, cells @ .., _] = fields.as_slice() else { continue };
        if *first == "#" {
            table = TABLES.iter().find(|(_, columns)| *columns == cells);
        }
        if let (Ok(number), Some((begin, columns))) = (first.parse::<u32>(), table) {
            for (column, cell) in columns.iter().zip(cells) {
                let needs_proof = !NOTHING_TO_PROVE.iter().any(|words| cell.starts_with(words));
                found.insert(format!("{begin}-{column}-{number}"), needs_proof);
            }
        }
    }
    found
}

/// The promises named by comments that stand right above a function or a call and begin with `Proves`.
fn proofs(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("//") {
            let comment = comment.trim_start_matches('/').trim_start();
            inside |= comment.starts_with("Proves ");
            if inside {
                pending.extend(names(comment));
            }
            continue;
        }
        inside = false;
        if line.starts_with("#[") {
            continue;
        }
        let function = line.starts_with("fn ") || line.starts_with("pub fn ");
        if function {
            found.append(&mut pending);
        }
        pending.clear();
    }
    found
}

/// Names of promises in a line: `L-BF-3`, `N-M-3`, `O-6`, `N-1`.
fn names(line: &str) -> Vec<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let found = line.split(|c| !word(c)).filter(|name| {
        let parts: Vec<&str> = name.split('-').collect();
        let number = |text: &str| !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
        match parts.as_slice() {
            [table @ ("L" | "N"), column, row] => {
                let length = if *table == "L" { 2 } else { 1 };
                column.len() == length && column.bytes().all(|b| b.is_ascii_uppercase()) && number(row)
            }
            ["O" | "N", row] => number(row),
            _ => false,
        }
    });
    found.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_of_their_own() {
        assert_eq!(names("// proves L-BF-3 and L-TM-12; (O-6), `N-1`:"), ["L-BF-3", "L-TM-12", "O-6", "N-1"]);
        assert_eq!(names("XL-BF-3 SYMBOL-BF-3 L-B-3 L-BF- L-bf-3 O-x O-RDWR NO-1"), Vec::<String>::new());
        assert_eq!(names("L-ZZ-99"), ["L-ZZ-99"]);
        assert_eq!(names("N-M-3, N-Z-99; N-MF-3 L-M-3 N-m-3"), ["N-M-3", "N-Z-99"]);
    }

    #[test]
    fn promises_are_read_from_the_page() {
        let page = "| # | fault | TM | TF | BM | BF |\n|---|---|---|---|---|---|\n\
                    | 1 | killed | none | as TM | does not arise in memory | everything |\n\
                    | id | error | outcome |\n| O-2 | swapped | refused |\n- **N-1: late writes.** x\n- **3.** note\n\
                    | # | fault | M | F | X |\n| 1 | killed | none | as M | everything |\n\
                    | # | other | A |\n| 7 | no promise | x |\n";
        let expected = [
            ("L-BF-1", false),
            ("L-BM-1", false),
            ("L-TF-1", true),
            ("L-TM-1", true),
            ("N-1", true),
            ("N-F-1", true),
            ("N-M-1", true),
            ("N-X-1", false),
            ("O-2", true),
        ];
        assert_eq!(promises(page), expected.map(|(name, needs)| (name.to_string(), needs)).into());
    }

    #[test]
    fn a_proof_stands_right_above_its_test() {
        let text = "/// Proves L-BF-1,\n/// O-2: and more.\n#[test]\nfn a() {\n    // Proves L-BF-2\n    let x = 1;\n}\n\
                    // L-BF-3\nfn b() {}\n/// Proves L-BF-4\n\nfn c() {}\n";
        assert_eq!(proofs(text), ["L-BF-1", "O-2"]);
    }
}
