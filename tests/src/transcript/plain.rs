//! Placeholders for what varies from run to run in text.

use std::collections::{BTreeSet, HashMap};

/// What is known to vary, and the placeholders that were given so far: the same value has the same one all through a transcript.
#[derive(Debug, Default)]
pub struct Names {
    /// Value and placeholder, the longest value first.
    known: Vec<(String, String)>,
    /// Placeholders of identities and long numbers, by what they stand for.
    drawn: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
    /// What stands before and after a piece of a line that varies.
    between: Vec<(String, String)>,
    /// Fields of JSON whose values vary.
    fields: BTreeSet<String>,
}

impl Names {
    /// From now on this value is shown as this placeholder, where it is a word of its own.
    pub fn know(&mut self, value: &str, placeholder: &str) {
        assert!(!value.is_empty(), "{placeholder} is nothing");
        self.known.retain(|(known, _)| known != value);
        self.known.push((value.to_owned(), placeholder.to_owned()));
        self.known.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    }

    /// Whatever stands on a line between these two varies; nothing behind it: up to the end of the line.
    pub fn vary(&mut self, before: &str, after: &str) {
        self.between.push((before.to_owned(), after.to_owned()));
    }

    /// The values of these fields of JSON vary: `NAME`, `OUTER.NAME` for one in another one, or `OUTER.*`.
    pub fn vary_fields(&mut self, names: &[&str]) {
        self.fields.extend(names.iter().map(|name| (*name).to_owned()));
    }

    pub(super) fn varies(&self, field: &str) -> bool {
        let of =
            |(outer, name): (&str, &str)| self.fields.contains(name) || self.fields.contains(&format!("{outer}.*"));
        self.fields.contains(field) || field.rsplit_once('.').is_some_and(of)
    }

    /// The text with placeholders for what varies.
    pub fn settle(&mut self, text: &str) -> String {
        let lines = text.split('\n').map(|line| self.settle_line(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn settle_line(&mut self, line: &str) -> String {
        let mut line = self.settle_words(line);
        for (before, after) in &self.between {
            let mut from = 0;
            while let Some(found) = line[from..].find(before.as_str()) {
                let begin = from + found + before.len();
                let length =
                    if after.is_empty() { Some(line.len() - begin) } else { line[begin..].find(after.as_str()) };
                let Some(length) = length else { break };
                line.replace_range(begin..begin + length, "<n>");
                from = begin + "<n>".len();
            }
        }
        line
    }

    /// Known values, identities, times of day, and numbers of sixteen or more hexadecimal digits.
    fn settle_words(&mut self, line: &str) -> String {
        let mut text = String::with_capacity(line.len());
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let before = text.chars().last();
            if let Some((length, placeholder)) = self.found(rest, before) {
                text.push_str(&placeholder);
                rest = &rest[length..];
            } else {
                text.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        text
    }

    fn found(&mut self, rest: &str, before: Option<char>) -> Option<(usize, String)> {
        let in_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        for (value, placeholder) in &self.known {
            let begins = !in_word(before) || !value.starts_with(|c: char| c.is_ascii_alphanumeric());
            if begins && rest.starts_with(value.as_str()) && !in_word(rest[value.len()..].chars().next()) {
                return Some((value.len(), placeholder.clone()));
            }
        }
        if in_word(before) {
            return None;
        }
        if let Some(length) = time_of_day(rest) {
            return Some((length, "<time>".to_owned()));
        }
        let word = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
        // An identity may have more behind it, as in the name of a tier.
        let word = match rest[..word].char_indices().nth(36) {
            Some((36, '-')) if kind(&rest[..36]) == Some("id") => 36,
            _ => word,
        };
        let kind = kind(&rest[..word])?;
        Some((word, self.drawn(kind, &rest[..word])))
    }

    fn drawn(&mut self, kind: &'static str, value: &str) -> String {
        if let Some(placeholder) = self.drawn.get(value) {
            return placeholder.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let placeholder = format!("<{kind} {count}>");
        self.drawn.insert(value.to_owned(), placeholder.clone());
        placeholder
    }
}

/// What a word is, if it was drawn at random.
fn kind(word: &str) -> Option<&'static str> {
    let parts: Vec<&str> = word.split('-').collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if !parts.iter().all(is_hex) {
        return None;
    }
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    match lengths.as_slice() {
        [8, 4, 4, 4, 12] => Some("id"),
        [length] if *length >= 16 && word.bytes().any(|byte| byte.is_ascii_digit()) => Some("hex"),
        // The time and the name of a line of the audit log.
        [16, 16] => Some("line"),
        _ => None,
    }
}

/// Bytes of a time such as `2026-01-31T12:00:00.123Z`.
fn time_of_day(text: &str) -> Option<usize> {
    let pattern = "dddd-dd-ddTdd:dd:dd";
    let mut bytes = text.bytes();
    for expected in pattern.bytes() {
        let byte = bytes.next()?;
        let fits = if expected == b'd' { byte.is_ascii_digit() } else { byte == expected };
        if !fits {
            return None;
        }
    }
    let rest = &text[pattern.len()..];
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    Some(pattern.len() + end + usize::from(rest[end..].starts_with('Z')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_has_one_placeholder_all_through() {
        let mut names = Names::default();
        names.know("/tmp/a-1", "<folder>");
        names.know("4711", "<pid>");
        names.vary("oldest ", ",");
        names.vary("for ", "");
        let (one, two) = ("01234567-89ab-cdef-0123-456789abcdef", "11234567-89ab-cdef-0123-456789abcdef");
        let text = names.settle(&format!("volume vm1 {one} (of 4711, not 47110)\n{two} {one} /tmp/a-1/x /tmp/a-12"));
        assert_eq!(text, "volume vm1 <id 1> (of <pid>, not 47110)\n<id 2> <id 1> <folder>/x /tmp/a-12");
        assert_eq!(names.settle("2026-01-31T12:00:00.123Z at 2026-01-31"), "<time> at 2026-01-31");
        assert_eq!(names.settle("0123456789abcdef deadbeef x0123456789abcdef"), "<hex 1> deadbeef x0123456789abcdef");
        assert_eq!(names.settle(&format!("vm1-{one}-0123456789abcdef.tier")), "vm1-<id 1>-<hex 1>.tier");
        assert_eq!(names.settle("oldest 1.2s, oldest 3s, x for 2s"), "oldest <n>, oldest <n>, x for <n>");
    }
}
