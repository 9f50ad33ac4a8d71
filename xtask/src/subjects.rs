//! Subjects of commits, as lists of them show them: whole.

use crate::steps::{Outcome, output, succeeds};
use std::path::Path;

const LETTERS_MAX: usize = 72;
/// What is older stays as it is.
const SINCE: &str = "6709774";

/// The subjects of a range of commits as git names it; without one, of all since the rule holds.
pub fn check(root: &Path, range: Option<&str>) -> Outcome {
    if range.is_none() && !succeeds(root, &["git", "cat-file", "-e", &format!("{SINCE}^{{commit}}")]) {
        return Outcome::Skipped(format!("the commit {SINCE} is not here: needs the history, git fetch --unshallow"));
    }
    let range = range.map_or_else(|| format!("{SINCE}..HEAD"), str::to_string);
    match output(root, &["git", "log", "--format=%h %s", "--end-of-options", &range, "--"]) {
        Ok(list) => {
            println!("{} subjects", list.lines().count());
            let wrong = too_long(&list);
            if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong) }
        }
        Err(reason) => Outcome::Failed(vec![reason]),
    }
}

/// Those of a list of commits and their subjects that are too long.
fn too_long(list: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (commit, subject) in list.lines().filter_map(|line| line.split_once(' ')) {
        let letters = subject.chars().count();
        if letters > LETTERS_MAX {
            wrong.push(format!("{commit}: {letters} letters, {LETTERS_MAX} are the limit: {subject}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_that_lists_would_cut_is_refused() {
        let (fits, long) = ("é".repeat(LETTERS_MAX), "a".repeat(LETTERS_MAX + 1));
        let wrong = too_long(&format!("abc {fits}\ndef {long}\n012 core: one\n345 \n"));
        assert_eq!(wrong, [format!("def: 73 letters, 72 are the limit: {long}")]);
    }
}
