//! Functions that fit on a screen or two.
//!
//! A function reaches from its `fn` to the brace that closes it; what is nested in it counts. One that is a table, a list of data in the form of
//! code, says so in the comment above it (`// A table: why it is one.`) and may be longer.

use crate::modules::files_of_tests;
use crate::ratchet::{Numbers, Ratchet, add};
use crate::rust::Source;
use crate::steps::Outcome;
use crate::tree::Tree;
use std::path::Path;

const LINES_MAX: usize = 80;
/// One of a test tells a story from its beginning to its end.
const TEST_LINES_MAX: usize = 150;
const TABLE: &str = "// A table:";

/// Functions that are longer today.
pub const RATCHET: Ratchet = Ratchet {
    list: "xtask/functions.txt",
    unit: "lines",
    instead: "80 are the limit, 150 for tests: divide it, or say `// A table: why.` above it if it is one",
};

/// A function over the limit that holds for what is no test.
struct Long {
    file: String,
    name: String,
    line: usize,
    lines: usize,
    for_tests: bool,
    is_table: bool,
}

impl Long {
    fn is_too_long(&self) -> bool {
        !self.is_table && self.lines > if self.for_tests { TEST_LINES_MAX } else { LINES_MAX }
    }
}

/// The functions that are too long, by `file::function`.
pub fn look(tree: &Tree) -> Numbers {
    let mut found = Numbers::new();
    for long in long(tree, &mut Vec::new()).into_iter().filter(Long::is_too_long) {
        add(&mut found, &format!("{}::{}", long.file, long.name), long.lines);
    }
    found
}

/// Functions that are too long, lines of the list that allow more than there is, and tables that are none.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    RATCHET.check(tree, &look(tree), wrong);
    long(tree, wrong);
}

/// Prints all that are over the limit, also those that may be, the longest first.
pub fn print(root: &Path) -> Outcome {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(reason) => return Outcome::Failed(vec![reason]),
    };
    let mut all = long(&tree, &mut Vec::new());
    all.sort_by_key(|long| std::cmp::Reverse(long.lines));
    for Long { file, name, line, lines, for_tests, is_table } in &all {
        let may = if *is_table {
            "  (a table)"
        } else if *for_tests {
            "  (of tests)"
        } else {
            ""
        };
        println!("{lines:5}  {file}:{line}: {name}{may}");
    }
    let too_long = all.iter().filter(|long| long.is_too_long()).count();
    println!("{} over {LINES_MAX} lines, {too_long} of them too long", all.len());
    Outcome::Passed
}

/// All over the limit; what is wrong is the comments that call a table what needs no leave.
fn long(tree: &Tree, wrong: &mut Vec<String>) -> Vec<Long> {
    let of_tests = files_of_tests(tree);
    let mut found = Vec::new();
    for file in tree.ending(".rs") {
        let text = tree.text(file);
        let source = Source::of(&text);
        let mut tables: Vec<usize> = Vec::new();
        for comment in source.comments.iter().filter(|comment| comment.text.starts_with(TABLE)) {
            tables.push(comment.line);
            if comment.text.trim_end() == TABLE {
                wrong.push(format!("{file}:{}: why is it a table?", comment.line));
            }
        }
        for function in source.functions().into_iter().filter(|function| function.lines() > LINES_MAX) {
            let above = lines_above(&text, function.line);
            let is_table = tables.iter().any(|line| above.contains(line));
            let for_tests = function.for_tests || of_tests.contains(file);
            let (line, lines) = (function.line, function.lines());
            if !for_tests || lines > TEST_LINES_MAX {
                tables.retain(|line| !above.contains(line));
            }
            found.push(Long {
                file: file.to_string(),
                name: function.name.to_string(),
                line,
                lines,
                for_tests,
                is_table,
            });
        }
        wrong.extend(
            tables
                .into_iter()
                .map(|line| format!("{file}:{line}: no function below is too long: it need not be a table")),
        );
    }
    found
}

/// The comments and attributes right above a line.
fn lines_above(text: &str, line: usize) -> std::ops::Range<usize> {
    let lines: Vec<&str> = text.lines().take(line - 1).collect();
    let belongs = |text: &&&str| text.trim_start().starts_with("//") || text.trim_start().starts_with("#[");
    line - lines.iter().rev().take_while(belongs).count()..line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Made;

    /// A function of so many lines.
    fn function(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_that_is_too_long_is_refused() {
        let table =
            format!("/// Doc.\n// A table: one line for each word.\n#[rustfmt::skip]\npub {}", function("table", 200));
        let nested = format!("fn outer() {{\n    let a = || {{\n{}    }};\n}}\n", "        b();\n".repeat(90));
        let main = [
            &function("fits", 80),
            &function("long", 81),
            &table,
            nested.as_str(),
            "mod t;\n#[cfg(test)]\nmod tests;\n",
        ];
        let of_tests = format!("#[test]\n{}#[test]\n{}", function("story", 150), function("saga", 151));
        let unit = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("told", 100));
        let made = Made::of(
            "functions",
            &[
                ("io/src/lib.rs", &main.concat()),
                ("io/src/t.rs", &unit),
                ("io/src/tests.rs", &of_tests),
                ("io/tests/a.rs", &function("helper", 120)),
            ],
        );
        let wrong = made.wrong(check);
        let expected = [
            "io/src/lib.rs::long: 81 lines: ",
            "io/src/lib.rs::outer: 94 lines: ",
            "io/src/tests.rs::saga: 151 lines: ",
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
        assert!(wrong.iter().zip(expected).all(|(is, begin)| is.starts_with(begin)), "{wrong:#?}");
    }

    #[test]
    fn functions_of_one_name_are_listed_each() {
        let two = |first, second| {
            format!("impl A {{\n{}}}\nimpl B {{\n{}}}\n", function("new", first), function("new", second))
        };
        let list = "# why\nio/src/lib.rs::new 90\nio/src/lib.rs::new 100\n";
        let made =
            Made::of("functions-of-one-name", &[("io/src/lib.rs", &two(100, 90)), ("xtask/functions.txt", list)]);
        assert!(made.wrong(check).is_empty());
        drop(made);
        let made =
            Made::of("functions-of-one-name", &[("io/src/lib.rs", &two(101, 80)), ("xtask/functions.txt", list)]);
        let wrong = made.wrong(check);
        assert_eq!(wrong.len(), 2, "{wrong:#?}");
        assert!(wrong[0].starts_with("io/src/lib.rs::new: 101 lines, 100 in xtask/functions.txt: "), "{wrong:#?}");
        assert!(
            wrong[1].starts_with("xtask/functions.txt: io/src/lib.rs::new 90 allows what is no more"),
            "{wrong:#?}"
        );
    }

    #[test]
    fn what_is_called_a_table_needs_a_reason_and_to_be_long() {
        let text = [
            "// A table: of two words.\n",
            &function("short", 20),
            "// A table:\n",
            &function("long", 100),
            "// A table: it was one.\n\nconst S: &str = \"// A table: none\";\n",
            &function("other", 90),
        ]
        .concat();
        let made = Made::of("tables", &[("io/src/lib.rs", &text)]);
        let wrong = made.wrong(check);
        let expected = [
            "io/src/lib.rs::other: 90 lines: ",
            "io/src/lib.rs:22: why is it a table?",
            "io/src/lib.rs:1: no function below is too long",
            "io/src/lib.rs:123: no function below is too long",
        ];
        assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
        assert!(wrong.iter().zip(expected).all(|(is, begin)| is.starts_with(begin)), "{wrong:#?}");
    }
}
