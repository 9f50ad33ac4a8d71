//! Sentences for people in their language: each is kept as its key and what is put in, and said by a table of words.

#[cfg(any(test, feature = "examples"))]
pub mod check;
mod korean;

use crate::checked::without_controls;
use serde::{Deserialize, Serialize};

/// A language that people are spoken to in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English, where no other language is asked for.
    #[default]
    En,
    /// Japanese, in its polite form.
    Ja,
    /// Korean, in its formal polite form.
    Ko,
}

impl Language {
    /// Of the environment, as `LC_ALL`, `LC_MESSAGES` and `LANG` say (POSIX, in this order).
    pub fn of_environment() -> Language {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let value = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().find_map(set).unwrap_or_default();
        Language::named(&value).unwrap_or_default()
    }

    /// As it is asked for in the API: `en`, `ja`, `ko`.
    pub fn word(self) -> &'static str {
        ["en", "ja", "ko"][self as usize]
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

/// A sentence in the user's language: its key in a table of words, and what is put in. Numbers are formatted already. In a row `{name}` is
/// what is put in, and `{@name}` what the tables say of the word that is put in (row `word.` and the word).
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

    /// The sentence in a language. `None`: no table has its key, or what the table has needs a value that is not given, as of another
    /// version.
    pub fn said(&self, tables: &[&[Row]], language: Language) -> Option<String> {
        let texts = row(tables, &self.key)?;
        Some(without_controls(&self.filled(texts[language as usize], tables, language)?))
    }

    /// A text with the values in their places: each once, whatever a value looks like. Korean particles follow the values.
    fn filled(&self, text: &str, tables: &[&[Row]], language: Language) -> Option<String> {
        let mut out = String::with_capacity(text.len() + 64);
        let (mut rest, mut behind_value) = (text, false);
        let push = |out: &mut String, piece: &str, behind_value: bool| match language {
            Language::Ko => korean::push(out, piece, behind_value),
            Language::En | Language::Ja => out.push_str(piece),
        };
        while let Some((before, after)) = rest.split_once('{') {
            push(&mut out, before, behind_value);
            let (name, after) = after.split_once('}')?;
            let (name, is_word) = name.strip_prefix('@').map_or((name, false), |name| (name, true));
            let (_, value) = self.with.iter().find(|(known, _)| known == name)?;
            let word = || row(tables, &format!("word.{value}")).map(|texts| texts[language as usize]);
            out.push_str(is_word.then(word).flatten().unwrap_or(value));
            (rest, behind_value) = (after, true);
        }
        push(&mut out, rest, behind_value);
        Some(out)
    }
}

/// The texts of a key.
fn row<'t>(tables: &[&'t [Row]], key: &str) -> Option<&'t [&'static str; 3]> {
    tables.iter().copied().flatten().find(|(known, _)| *known == key).map(|(_, texts)| texts)
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

    #[test]
    fn sentences_are_filled_as_they_are_spoken() {
        let rows: &[Row] = &[
            ("nodes", ["{a} and {b}", "{a} と {b}", "노드 {a}와 노드 {b}은"]),
            ("to", ["to {s}", "{s} へ", "{s}(으)로 둡니다"]),
            ("card", ["{nic} ({speed})", "{nic}（{speed}）", "{nic}({speed})이(가)"]),
            ("plain", ["{a} {b}", "{a} {b}", "{a} {b}"]),
            ("state", ["is {@a}", "{@a}です", "{@a}입니다"]),
            ("word.x", ["an x", "エックス", "엑스"]),
        ];
        let said = |key: &'static str, language, with: &[(&'static str, &str)]| {
            let sentence = with.iter().fold(Sentence::new(key), |sentence, (name, value)| sentence.with(name, value));
            sentence.said(&[rows], language)
        };
        let korean = |key, with: &[(&'static str, &str)]| said(key, Language::Ko, with).unwrap();
        assert_eq!(korean("nodes", &[("a", "1"), ("b", "6")]), "노드 1과 노드 6은");
        assert_eq!(korean("to", &[("s", "mq-deadline")]), "mq-deadline으로 둡니다");
        assert_eq!(korean("card", &[("nic", "eth1"), ("speed", "25 Gb/s")]), "eth1(25 Gb/s)이");
        // What a stranger's record calls a thing is neither filled in again nor taken for a particle.
        assert_eq!(korean("plain", &[("a", "{b}은(는)"), ("b", "x")]), "{b}은(는) x");
        assert_eq!(said("plain", Language::En, &[("a", "{@b}\x1b"), ("b", "")]).unwrap(), "{@b}\u{fffd} ");
        assert_eq!(said("plain", Language::En, &[("a", "x")]), None, "a row of another version");
        assert_eq!(korean("state", &[("a", "x")]), "엑스입니다");
        assert_eq!(said("state", Language::Ja, &[("a", "x")]).unwrap(), "エックスです");
        assert_eq!(said("state", Language::En, &[("a", "unheard-of")]).unwrap(), "is unheard-of");
        assert_eq!(said("word.y", Language::En, &[]), None);
    }
}
