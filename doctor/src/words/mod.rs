//! Every sentence of the doctor in English, Japanese and Korean, in tables: one for each group of checks.

mod act;
mod chain;
mod cpu;
mod frame;
mod matrix;
mod memory;
mod nics;
mod numa;
mod paths;
mod pcie;
mod peer;
mod storage;

use super::findings::Sentence;
use forebay_api::checked::without_controls;

/// A language that the doctor speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum, serde::Deserialize)]
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

/// The rows of all parts of the doctor.
const TABLES: [&[Row]; 12] = [
    frame::ROWS,
    pcie::ROWS,
    numa::ROWS,
    memory::ROWS,
    cpu::ROWS,
    nics::ROWS,
    paths::ROWS,
    storage::ROWS,
    chain::ROWS,
    matrix::ROWS,
    act::ROWS,
    peer::ROWS,
];

/// The sentence in a language.
pub fn say(language: Language, sentence: &Sentence) -> String {
    let row = TABLES.into_iter().flatten().find(|(key, _)| *key == sentence.key);
    // A finding of a newer peer.
    let Some((_, texts)) = row else { return format!("{} {:?}", sentence.key, sentence.with) };
    let mut text = texts[language as usize].to_owned();
    for (name, value) in &sentence.with {
        text = text.replace(&format!("{{{name}}}"), value);
    }
    without_controls(&text)
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
    use std::collections::BTreeSet;

    #[test]
    fn what_a_process_calls_itself_moves_no_cursor() {
        let name = "x\x1b]0;evil\x07\u{9b}2J\u{202e}";
        let says = say(Language::En, &Sentence::new("act.refused.place").with("path", name));
        assert!(says.starts_with("x\u{fffd}]0;evil\u{fffd}\u{fffd}2J\u{fffd} "), "{says:?}");
    }

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

    fn put_in(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
    }

    #[test]
    fn every_sentence_is_there_in_each_language_with_the_same_values_and_once() {
        let mut keys = BTreeSet::new();
        for (key, texts) in TABLES.into_iter().flatten() {
            assert!(keys.insert(key), "{key} is there once");
            for text in texts {
                assert!(!text.is_empty(), "{key}");
                assert_eq!(put_in(text), put_in(texts[0]), "{key}");
            }
        }
    }
}
