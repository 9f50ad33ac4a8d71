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

/// A language that the doctor speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
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
        match value.get(..2) {
            Some("ja") => Language::Ja,
            Some("ko") => Language::Ko,
            _ => Language::En,
        }
    }
}

/// A sentence: its key, then in English, Japanese and Korean. `{name}` is put in.
pub type Row = (&'static str, [&'static str; 3]);

/// All tables.
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
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

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
