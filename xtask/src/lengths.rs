//! Files and pages that are read in one sitting.

use crate::ratchet::{Numbers, Ratchet, add};
use crate::tree::Tree;

/// A Rust file longer than this stands in the list of lengths.
const RUST_LINES_MAX: usize = 1000;
/// Pages that must stay readable in one sitting.
const PAGE_LINES_MAX: [(&str, usize); 2] = [("README.md", 150), ("ARCHITECTURE.md", 500)];

/// Rust files that are longer today.
pub const RATCHET: Ratchet = Ratchet {
    list: "xtask/lengths.txt",
    unit: "lines",
    instead: "1000 are the limit: split it, or raise its line in the list and say why",
};

/// The Rust files over the limit, with their lines.
pub fn look(tree: &Tree) -> Numbers {
    let mut found = Numbers::new();
    for file in tree.ending(".rs") {
        let lines = tree.text(file).lines().count();
        if lines > RUST_LINES_MAX {
            add(&mut found, file, lines);
        }
    }
    found
}

/// Files and pages that are too long, and lines of the list that allow more than there is.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    RATCHET.check(tree, &look(tree), wrong);
    for (file, most) in PAGE_LINES_MAX {
        let lines = tree.text(file).lines().count();
        if lines >= most {
            wrong.push(format!("{file}: {lines} lines, must stay below {most}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    #[test]
    fn a_stale_allowance_fails_like_a_file_that_is_too_long() {
        let (long, longer) = ("line\n".repeat(RUST_LINES_MAX + 1), "line\n".repeat(RUST_LINES_MAX + 9));
        let short = "line\n".repeat(RUST_LINES_MAX);
        let files = [
            ("io/src/new.rs", long.as_str()),
            ("io/src/listed.rs", &longer),
            ("io/src/shrunk.rs", &long),
            ("io/src/grown.rs", &longer),
            ("io/src/short.rs", &short),
            ("README.md", &"line\n".repeat(150)),
            (
                "xtask/lengths.txt",
                "# why\nio/src/listed.rs 1009\nio/src/shrunk.rs 1009\nio/src/grown.rs 1008\nio/src/short.rs 1050\n",
            ),
        ];
        let made = Made::of("lengths", &files);
        let wrong = made.wrong(check);
        let expected = [
            "io/src/grown.rs: 1009 lines, 1008 in xtask/lengths.txt: ",
            "io/src/new.rs: 1001 lines: ",
            "xtask/lengths.txt: io/src/short.rs 1050 allows what is no more: ",
            "xtask/lengths.txt: io/src/shrunk.rs has 1001 lines and not 1009: ",
            "README.md: 150 lines, must stay below 150",
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
        assert!(wrong.iter().zip(expected).all(|(is, begin)| is.starts_with(begin)), "{wrong:#?}");
    }
}
