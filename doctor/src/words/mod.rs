//! Every sentence of the doctor in English, Japanese and Korean, in tables: one for each group of checks.

mod act;
mod chain;
mod cpu;
mod frame;
mod matrix;
mod memory;
mod mounts;
mod nics;
mod numa;
mod paths;
mod pcie;
mod peer;
mod pressure;
mod san;
mod storage;
mod zfs;

pub use forebay_api::sentence::{Language, Row, Sentence, columns};

/// The rows of all parts of the doctor.
const TABLES: [&[Row]; 16] = [
    frame::ROWS,
    pcie::ROWS,
    numa::ROWS,
    memory::ROWS,
    cpu::ROWS,
    nics::ROWS,
    paths::ROWS,
    storage::ROWS,
    pressure::ROWS,
    mounts::ROWS,
    zfs::ROWS,
    san::ROWS,
    chain::ROWS,
    matrix::ROWS,
    act::ROWS,
    peer::ROWS,
];

/// The sentence in a language. None: the doctor has no words for it.
pub fn known(language: Language, sentence: &Sentence) -> Option<String> {
    sentence.said(&TABLES, language)
}

/// The sentence in a language.
pub fn say(language: Language, sentence: &Sentence) -> String {
    // A finding of a newer peer has words of its own.
    known(language, sentence).unwrap_or_else(|| format!("{} {:?}", sentence.key, sentence.with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_calls_itself_moves_no_cursor() {
        let name = "x\x1b]0;evil\x07\u{9b}2J\u{202e}";
        let says = say(Language::En, &Sentence::new("act.refused.place").with("path", name));
        assert!(says.starts_with("x\u{fffd}]0;evil\u{fffd}\u{fffd}2J\u{fffd} "), "{says:?}");
    }

    #[test]
    fn every_sentence_is_there_once_and_in_each_language_with_the_same_values() {
        forebay_api::sentence::check::tables(&TABLES);
    }
}
