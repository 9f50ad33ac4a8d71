//! Recorded transcripts: what a scenario asks and what it is answered, as readable text in `tests/transcripts`. A run compares what it
//! gets with what was recorded, line by line; with `FOREBAY_TRANSCRIPTS=write` it records anew, and the change is reviewed as a diff.
//!
//! What varies from run to run has a placeholder; all else is exact. A scenario says what of its own varies, by [`Names`].

mod json;
mod plain;

use crate::harness::{Output, workspace};
pub use json::{Json, merged};
pub use plain::Names;
use std::fmt::Write as _;

/// Set to `write`, it records.
const VARIABLE: &str = "FOREBAY_TRANSCRIPTS";
/// Lines around a difference.
const CONTEXT: usize = 3;

/// One that is being made.
#[derive(Debug)]
pub struct Transcript {
    name: &'static str,
    text: String,
    /// What varies from run to run, and has a placeholder.
    pub names: Names,
}

impl Transcript {
    /// An empty one, of the file `NAME.txt`.
    pub fn new(name: &'static str) -> Transcript {
        let text = format!(
            "# Recorded by tests/tests/transcripts.rs; rewritten by {VARIABLE}=write. What varies is a placeholder in <>.\n"
        );
        Transcript { name, text, names: Names::default() }
    }

    /// Begins a new part under this title.
    pub fn part(&mut self, title: &str) {
        let _ = write!(self.text, "\n## {title}\n");
    }

    /// One line as it is, with placeholders.
    pub fn line(&mut self, line: &str) {
        let line = self.names.settle(line);
        let _ = writeln!(self.text, "{}", line.trim_end());
    }

    /// Lines with placeholders, each behind a mark that says where they are from.
    pub fn lines(&mut self, mark: &str, text: &str) {
        let text = self.names.settle(text);
        for line in text.lines() {
            let _ = writeln!(self.text, "{}", format!("{mark} {line}").trim_end());
        }
    }

    /// A table or a page, in which the width of a column is that of its longest value: any number of spaces counts as two.
    pub fn columns(&mut self, mark: &str, text: &str) {
        let text: Vec<String> = text.lines().map(squeezed).collect();
        self.lines(mark, &text.join("\n"));
    }

    /// JSON with placeholders, in the order in which it was written.
    pub fn json(&mut self, mark: &str, value: &Json) {
        let settled = value.settled(&mut self.names, "");
        for line in settled.pretty().lines() {
            let _ = writeln!(self.text, "{mark} {line}");
        }
    }

    /// A command line as it is typed, and what came of it: `|` standard output, `!` standard error, `=` the exit code.
    pub fn command(&mut self, typed: &str, output: &Output) {
        self.line(&format!("\n$ forebay {typed}"));
        match Json::parse(&output.stdout) {
            Some(value @ (Json::List(_) | Json::Fields(_))) => self.json("|", &value),
            _ => self.columns("|", &output.stdout),
        }
        self.outcome(output);
    }

    /// The same, where standard output is told in another way.
    pub fn outcome(&mut self, output: &Output) {
        self.lines("!", &output.stderr);
        let code = output.status.code().map_or_else(|| output.status.to_string(), |code| code.to_string());
        self.line(&format!("= {code}"));
    }

    /// Compares it with what is recorded, or records it.
    #[track_caller]
    pub fn finish(self) {
        let path = workspace().join("tests/transcripts").join(format!("{}.txt", self.name));
        if std::env::var(VARIABLE).is_ok_and(|word| word == "write") {
            return std::fs::write(&path, &self.text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        }
        let recorded = std::fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("read {}: {e}; {VARIABLE}=write records it", path.display()));
        assert!(
            recorded == self.text,
            "transcript {}: what happens is not what is recorded (- recorded, + now). If it is meant, run the test with \
             {VARIABLE}=write and review the change of tests/transcripts/{}.txt\n{}",
            self.name,
            self.name,
            difference(&recorded, &self.text)
        );
    }
}

/// With two spaces in place of more, but for those that a line begins with.
fn squeezed(line: &str) -> String {
    let begin = line.len() - line.trim_start().len();
    let mut text = line[..begin].to_owned();
    let mut spaces = 0;
    for c in line[begin..].trim_end().chars() {
        spaces = if c == ' ' { spaces + 1 } else { 0 };
        if spaces <= 2 {
            text.push(c);
        }
    }
    text
}

/// A hash of text whose every byte counts and whose words do not: FNV-1a.
pub fn hash(text: &str) -> String {
    let value = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // Not sixteen digits in a row, which would be taken for something drawn at random.
    format!("{:08x}.{:08x}", value >> 32, value as u32)
}

/// Lines of either that the other lacks, with some around them.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let behind = old[same..].iter().rev().zip(new[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (mid_old, mid_new) = (&old[same..old.len() - behind], &new[same..new.len() - behind]);
    // The longest common lines of what is left, from the end.
    let width = mid_new.len() + 1;
    let mut common = vec![0u32; (mid_old.len() + 1) * width];
    for i in (0..mid_old.len()).rev() {
        for j in (0..mid_new.len()).rev() {
            common[i * width + j] = match mid_old[i] == mid_new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let mut marked: Vec<(char, &str)> = old[..same].iter().map(|line| (' ', *line)).collect();
    let (mut i, mut j) = (0, 0);
    while i < mid_old.len() || j < mid_new.len() {
        if i < mid_old.len() && j < mid_new.len() && mid_old[i] == mid_new[j] {
            marked.push((' ', mid_old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == mid_new.len() || (i < mid_old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            marked.push(('-', mid_old[i]));
            i += 1;
        } else {
            marked.push(('+', mid_new[j]));
            j += 1;
        }
    }
    marked.extend(old[old.len() - behind..].iter().map(|line| (' ', *line)));
    let near = |at: usize| {
        let around = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(marked.len());
        marked[around].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut text = String::new();
    let mut last = None;
    for (at, (mark, line)) in marked.iter().enumerate().filter(|(at, _)| near(*at)) {
        if last.is_none_or(|last| last + 1 != at) {
            text.push_str("...\n");
        }
        let _ = writeln!(text, "{mark}{line}");
        last = Some(at);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_is_missing_and_what_is_new_with_its_place() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = "1\n2\n3\n4\nfive\n6\n7\n8\n8.5\n9\n";
        assert_eq!(difference(old, new), "...\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n+8.5\n 9\n");
        assert_eq!(difference("a\n", "a\n"), "");
    }

    #[test]
    fn columns_do_not_depend_on_the_width_of_what_varies() {
        assert_eq!(squeezed("NAME      SIZE  PHASE   "), "NAME  SIZE  PHASE");
        assert_eq!(squeezed("    text  a b"), "    text  a b");
    }
}
