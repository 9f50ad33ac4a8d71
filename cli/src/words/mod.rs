//! Every sentence of `forebay top` and `forebay report` in English, Japanese and Korean, and text by columns of a terminal.

mod report;
mod states;
mod top;

pub use forebay_api::sentence::{Language, Sentence};
use forebay_api::sentence::{Row, columns};

const TABLES: [&[Row]; 3] = [states::ROWS, top::ROWS, report::ROWS];

/// The sentence in a language.
pub fn say(language: Language, sentence: &Sentence) -> String {
    sentence.said(&TABLES, language).unwrap_or_else(|| sentence.key.clone())
}

/// A sentence that nothing is put into.
pub fn text(language: Language, key: &'static str) -> String {
    say(language, &Sentence::new(key))
}

/// A word of the API, of this list of its words; as it is where the tables do not know it, which a newer daemon may send.
pub fn word(language: Language, list: &str, word: &str) -> String {
    let sentence = Sentence { key: format!("{list}.{word}"), with: Vec::new() };
    sentence.said(&TABLES, language).unwrap_or_else(|| word.to_owned())
}

/// Columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// As much of a text as there are columns for.
pub fn cut(text: &str, room: usize) -> &str {
    let mut used = 0;
    let end = text.char_indices().find(|(_, letter)| {
        used += columns(*letter);
        used > room
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// A text with spaces behind it, up to so many columns.
pub fn left(text: &str, wide: usize) -> String {
    format!("{text}{}", " ".repeat(wide.saturating_sub(width(text))))
}

/// A text with spaces before it, up to so many columns.
pub fn right(text: &str, wide: usize) -> String {
    format!("{}{text}", " ".repeat(wide.saturating_sub(width(text))))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every language that there is.
    pub const LANGUAGES: [Language; 3] = [Language::En, Language::Ja, Language::Ko];

    /// Fails where a key without words, or a place without its value, is left in what is said.
    pub fn all_is_said(said: &str) {
        for left in ["top.", "report.", "{", "}"] {
            assert!(!said.contains(left), "{left} in {said}");
        }
    }

    #[test]
    fn every_sentence_is_there_once_and_in_each_language_with_the_same_values() {
        forebay_api::sentence::check::tables(&TABLES);
    }

    #[test]
    fn words_of_the_api_are_those_of_the_dashboard() {
        for (language, strings) in [
            (Language::Ja, include_str!("../../../web/strings/ja.json")),
            (Language::Ko, include_str!("../../../web/strings/ko.json")),
        ] {
            let strings: BTreeMap<String, String> = serde_json::from_str(strings).unwrap();
            let both = states::ROWS.iter().filter_map(|(key, texts)| Some((key, texts, strings.get(*key)?)));
            let differ: Vec<_> = both.filter(|(_, texts, word)| texts[language as usize] != word.as_str()).collect();
            assert!(differ.is_empty(), "{differ:?}");
            for list in ["phase", "backing", "degraded", "kind"] {
                let known = |key: &str| states::ROWS.iter().any(|(row, _)| *row == key);
                let ours = strings.keys().filter(|key| key.starts_with(&format!("{list}.")));
                let missing: Vec<_> = ours.filter(|key| !known(key) && *key != "backing.displaced").collect();
                assert!(missing.is_empty(), "{missing:?}");
            }
        }
    }

    #[test]
    fn every_state_and_kind_has_its_word() {
        use forebay_api::words::{BackingState, VolumePhase};
        let kinds: Vec<String> = forebay_api::events::EventKind::all().iter().map(|kind| kind.word()).collect();
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        for (list, words) in [("phase", VolumePhase::WORDS), ("backing", BackingState::WORDS), ("kind", &kinds)] {
            for one in words {
                assert_eq!(word(Language::En, list, one), *one);
                assert!(word(Language::Ja, list, one) != *one && word(Language::Ko, list, one) != *one, "{list} {one}");
            }
        }
        assert_eq!(word(Language::Ja, "phase", "of-a-newer-one"), "of-a-newer-one");
    }

    #[test]
    fn wide_letters_take_two_columns() {
        assert_eq!((width("名前 7"), width("이름"), width("name")), (6, 4, 4));
        assert_eq!((cut("名前x", 3), cut("名前x", 4), cut("名前x", 9), cut("", 1)), ("名", "名前", "名前x", ""));
        assert_eq!((left("名", 4), right("名", 4), right("名前", 3)), ("名  ".into(), "  名".into(), "名前".into()));
    }
}
