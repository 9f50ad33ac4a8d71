//! Documentation that says something: a comment of one or two words repeats the name below it. Which promise a test proves is said in two.

use crate::ratchet::{Numbers, Ratchet, add};
use crate::rust::{Kind, Source, Token};
use crate::steps::Outcome;
use crate::tree::Tree;
use std::path::Path;

/// A comment needs more words than these.
const WORDS_MIN: usize = 3;
/// What stands before the name of a promise (`losses`).
const PROOF: &str = "Proves";

/// How many of each file say nothing today.
pub const RATCHET: Ratchet = Ratchet {
    list: "xtask/docs.txt",
    unit: "doc comments of two words or fewer",
    instead: "say what, unit and why in a sentence, or nothing (`cargo xtask docs` shows them)",
};

/// How many of each file say nothing.
pub fn look(tree: &Tree) -> Numbers {
    let mut found = Numbers::new();
    for file in tree.ending(".rs") {
        let count = empty(&Source::of(&tree.text(file)).comments).len();
        if count > 0 {
            add(&mut found, file, count);
        }
    }
    found
}

/// Files with more of them than they may have, and lines of the list that allow more than there are.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    RATCHET.check(tree, &look(tree), wrong);
}

/// Prints each of them with its file and line.
pub fn print(root: &Path) -> Outcome {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(reason) => return Outcome::Failed(vec![reason]),
    };
    let mut count = 0;
    for file in tree.ending(".rs") {
        for (line, says) in empty(&Source::of(&tree.text(file)).comments) {
            println!("{file}:{line}: {says}");
            count += 1;
        }
    }
    println!("{count} doc comments of two words or fewer");
    Outcome::Passed
}

/// The line and the words of each doc comment that has too few. One comment is what stands in lines that follow each other.
fn empty(comments: &[Token<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let docs: Vec<&Token<'_>> = comments.iter().filter(|comment| comment.kind == Kind::Doc).collect();
    for whole in docs.chunk_by(|one, next| one.last_line() + 1 == next.line && one.text[..3] == next.text[..3]) {
        let mut words: Vec<&str> = Vec::new();
        for line in whole {
            words.extend(line.text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)));
        }
        if words.len() < WORDS_MIN && !words.contains(&PROOF) {
            found.push((whole[0].line, words.join(" ").trim_start_matches(['/', '!', '*']).to_string()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    #[test]
    fn one_or_two_words_say_nothing() {
        let text = "//! Header.\n\n/// What.\nstruct A {\n    /// Of it.\n    a: u8,\n    /// Its bytes, at most.\n    b: u8,\n    /// What\n    /// it is.\n\
                    c: u8, /** Bytes. */ d: u8, /** Proves O-1. */ f: u8,\n    /// - That.\n    ///\n    e: u8,\n}\n// No.\n//// No.\nconst S: &str = \"\n/// What.\n\";\n\
                    /// One\n/** Two. */\nfn f() {}\n";
        let found = empty(&Source::of(text).comments);
        let shown: Vec<(usize, &str)> = found.iter().map(|(line, says)| (*line, says.as_str())).collect();
        assert_eq!(
            shown,
            [(1, "Header."), (3, "What."), (5, "Of it."), (11, "Bytes."), (12, "That."), (21, "One"), (22, "Two.")]
        );
    }

    #[test]
    fn their_number_may_shrink_and_not_grow() {
        let made = Made::of(
            "docs",
            &[
                ("io/src/a.rs", "/// What.\nfn a() {}\n/// That.\nfn b() {}\n"),
                ("io/src/b.rs", "/// What.\nfn a() {}\n"),
                ("io/src/c.rs", "/// What.\nfn a() {}\n"),
                ("io/src/d.rs", "/// What it is for.\nfn a() {}\n"),
                ("xtask/docs.txt", "# why\nio/src/a.rs 1\nio/src/b.rs 1\n"),
            ],
        );
        let wrong = made.wrong(check);
        assert_eq!(wrong.len(), 2, "{wrong:#?}");
        let unit = "doc comments of two words or fewer";
        assert!(wrong[0].starts_with(&format!("io/src/a.rs: 2 {unit}, 1 in xtask/docs.txt: ")), "{wrong:#?}");
        assert!(wrong[1].starts_with(&format!("io/src/c.rs: 1 {unit}: ")), "{wrong:#?}");
    }
}
