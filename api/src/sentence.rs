//! Sentences for people in their language: each is kept as its key and what is put in, and said by a table of words.

use crate::checked::without_controls;
use serde::{Deserialize, Serialize};

/// A language that people are spoken to in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English.
    #[default]
    En,
    /// Japanese.
    Ja,
    /// Korean.
    Ko,
}

impl Language {
    /// Of the environment, as `LC_ALL`, `LC_MESSAGES` and `LANG` say (POSIX, in this order).
    pub fn of_environment() -> Language {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let value = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(set).unwrap_or_default();
        Language::named(&value).unwrap_or_default()
    }

    /// The one of an `Accept-Language` (RFC 9110) that is wanted most and spoken.
    pub fn accepted(header: &str) -> Option<Language> {
        let mut wanted: Vec<(f32, Language)> = header
            .split(',')
            .filter_map(|range| {
                let (tag, rest) = range.split_once(';').unwrap_or((range, "q=1"));
                let weight = rest.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok()).unwrap_or(0.0);
                Some((weight, Language::named(tag.trim())?)).filter(|&(weight, _)| weight > 0.0)
            })
            .collect();
        // Of those wanted alike the first.
        wanted.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        wanted.first().map(|&(_, language)| language)
    }

    /// By the language that a locale or a tag begins with: `ja_JP.UTF-8`, `ko-KR`.
    fn named(text: &str) -> Option<Language> {
        match text.get(..2)?.to_ascii_lowercase().as_str() {
            "en" => Some(Language::En),
            "ja" => Some(Language::Ja),
            "ko" => Some(Language::Ko),
            _ => None,
        }
    }
}

/// A sentence: its key, then in English, Japanese and Korean. `{name}` is put in.
pub type Row = (&'static str, [&'static str; 3]);

/// A sentence in the user's language: its key in a table of words, and what is put in. Numbers are formatted already.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Sentence {
    /// Key of the sentence in the tables of who says it.
    pub key: String,
    /// What takes the place of `{name}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<(String, String)>,
}

impl Sentence {
    /// Without anything to put in.
    pub fn new(key: &'static str) -> Sentence {
        Sentence { key: key.to_owned(), with: Vec::new() }
    }

    /// Puts in one more value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Sentence {
        self.with.push((name.to_owned(), value.to_string()));
        self
    }

    /// The sentence in a language. `None`: no table has its key.
    pub fn said(&self, tables: &[&[Row]], language: Language) -> Option<String> {
        let (_, texts) = tables.iter().copied().flatten().find(|(key, _)| *key == self.key)?;
        let mut text = texts[language as usize].to_owned();
        for (name, value) in &self.with {
            text = text.replace(&format!("{{{name}}}"), value);
        }
        Some(without_controls(&text))
    }
}

/// Columns that a letter takes on a terminal: two for those of East Asia (the wide ones of Unicode's UAX 11).
pub fn columns(letter: char) -> usize {
    match u32::from(letter) {
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_language_that_is_wanted_most_and_spoken_is_spoken() {
        for (header, language) in [
            ("ja", Some(Language::Ja)),
            ("ko-KR,ko;q=0.9,en;q=0.8", Some(Language::Ko)),
            ("fr, en;q=0.5, ja;q=0.7", Some(Language::Ja)),
            ("ja;q=0, en;q=0.1", Some(Language::En)),
            ("EN-us;q=0.5,JA;q=0.5", Some(Language::En)),
            ("fr,*;q=0.1", None),
            ("", None),
            ("日本語, ko;q=x", None),
        ] {
            assert_eq!(Language::accepted(header), language, "{header}");
        }
    }
}
