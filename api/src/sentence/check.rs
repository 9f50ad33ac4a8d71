//! What every table of sentences keeps to, for the tests of whoever has one.

use super::{Language, Row, Sentence};
use std::collections::BTreeSet;

/// Spellings for which there is another one in use: Japanese, and Korean.
const OTHER_SPELLINGS: [&[&str]; 2] =
    [&["メモリー", "カウンター", "プロセッサー", "バッファー", "インターフェイス"], &["쓰지 않은 데이터"]];
/// What is left of the forms of a Korean particle between which none was chosen.
const BOTH_FORMS: [&str; 13] =
    ["(를)", "(을)", "(는)", "(은)", "(가)", "(와)", "(과)", "(으)", "(이)", "(로)", "(였)", "(나)", "(라)"];

/// Names of the values that a text has places for.
fn put_in(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
}

/// Fails the test that calls it where a key is there twice, where a language lacks a text or has other values in it than English, where a
/// word is spelled in two ways, and where a Korean particle does not follow what is put in before it.
pub fn tables(tables: &[&'static [Row]]) {
    let mut keys = BTreeSet::new();
    for (key, texts) in tables.iter().copied().flatten() {
        assert!(keys.insert(key), "{key} is there once");
        for text in texts {
            assert!(!text.is_empty(), "{key}");
            assert_eq!(put_in(text), put_in(texts[0]), "{key}");
        }
        for (text, others) in texts[1..].iter().zip(OTHER_SPELLINGS) {
            for spelling in others {
                assert!(!text.contains(spelling), "{key}: {spelling} in {text}");
            }
        }
        particles(key, texts[2]);
    }
}

fn particles(key: &'static str, korean: &'static str) {
    let ends = |rest: &str| !rest.chars().next().is_some_and(|c| ('가'..='힣').contains(&c));
    for (value, wrong) in [
        ("값", ["를", "는", "와", "로", "가"]),
        ("노드", ["을", "은", "과", "으로", "이"]),
        ("물", ["를", "는", "와", "으로", "가"]),
    ] {
        let names = put_in(korean).into_iter().map(|name| (name.trim_start_matches('@').to_owned(), value.to_owned()));
        let sentence = Sentence { key: key.to_owned(), with: names.collect() };
        let said = sentence.filled(korean, &[], Language::Ko).expect("each place has a value");
        assert!(!BOTH_FORMS.iter().any(|both| said.contains(both)), "{key}: a form is left over: {said}");
        for (at, _) in said.match_indices(value) {
            let rest = &said[at + value.len()..];
            let wrong = wrong.iter().any(|wrong| rest.strip_prefix(wrong).is_some_and(ends));
            assert!(!wrong, "{key}: a particle is wrong: {said}");
        }
    }
}
