//! What tests of checks expect, and what holds for whatever a check says.

use super::super::act::setting;
use super::super::findings::{Finding, Remedy, Sentence, Verdict, Write};
use super::super::fixture::{Examined, Tree};
use super::super::words::{Language, say};

/// Said in full in every language: nothing is left to be put in.
fn said(sentence: &Sentence) -> String {
    let texts = [Language::Ja, Language::Ko, Language::En].map(|language| say(language, sentence));
    for text in &texts {
        assert!(!text.starts_with(&sentence.key), "{} is in the table of words", sentence.key);
        assert!(!text.contains(['{', '}']), "{text}");
    }
    let [.., english] = texts;
    english
}

/// The findings of a check, of which there is one at least.
pub fn found(tree: &Tree, check: u8) -> Vec<Finding> {
    let found = match tree.says(check) {
        Verdict::Found(found) | Verdict::FoundPart { found, .. } => found,
        other => panic!("check {check} says {other:?}"),
    };
    assert!(!found.is_empty());
    for finding in &found {
        assert_eq!(finding.check, check);
        assert!(!finding.evidence.is_empty(), "{} is shown by something", finding.id);
        said(&finding.text);
        for remedy in &finding.remedies {
            match remedy {
                Remedy::Apply { what, writes } => {
                    said(what);
                    assert!(!writes.is_empty(), "{} writes something", finding.id);
                    // What a check writes and the closed list does not have could never be applied.
                    for write in writes {
                        assert!(setting::may_hold(&write.path, &write.value), "{} writes {write:?}", finding.id);
                    }
                }
                Remedy::Explain { what, .. } => {
                    said(what);
                }
            }
        }
    }
    found
}

/// What a verdict has found; it has found something.
pub fn of_verdict(verdict: Verdict) -> Vec<Finding> {
    match verdict {
        Verdict::Found(found) | Verdict::FoundPart { found, .. } => found,
        other => panic!("nothing found: {other:?}"),
    }
}

/// The key of what a verdict says first.
pub fn key(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Fine(sentence) => &sentence.key,
        Verdict::NotSeen { how, .. } => &how.key,
        Verdict::NotHere => "not here",
        Verdict::Found(found) | Verdict::FoundPart { found, .. } => &found[0].text.key,
    }
}

/// The only finding of a check.
pub fn one(tree: &Tree, check: u8) -> Finding {
    let mut found = found(tree, check);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// What a finding says in English.
pub fn text(finding: &Finding) -> String {
    said(&finding.text)
}

/// Why a check finds nothing, in English.
pub fn fine(tree: &Tree, check: u8) -> String {
    match tree.says(check) {
        Verdict::Fine(why) => said(&why),
        other => panic!("check {check} says {other:?}"),
    }
}

/// What a check could not look at.
pub fn not_seen(tree: &Tree, check: u8) -> String {
    match tree.says(check) {
        Verdict::NotSeen { what, how } => {
            said(&how);
            what
        }
        other => panic!("check {check} says {other:?}"),
    }
}

/// The host has none of what a check looks at.
pub fn not_here(tree: &Tree, check: u8) {
    let says = tree.says(check);
    assert_eq!(says, Verdict::NotHere, "check {check}");
}

/// What the first remedy writes, as `file=value`.
pub fn writes(finding: &Finding) -> Vec<String> {
    match &finding.remedies[..] {
        [Remedy::Apply { writes, .. }, ..] => {
            writes.iter().map(|Write { path, value }| format!("{path}={value}")).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The command of the first remedy.
pub fn command(finding: &Finding) -> &str {
    match &finding.remedies[..] {
        [Remedy::Explain { command: Some(command), .. }, ..] => command,
        other => panic!("{other:?}"),
    }
}
