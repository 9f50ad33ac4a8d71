//! What the doctor says to a person, and to a program.

use super::Host;
use super::checks::Check;
use super::checks::management::{self, Reading};
use super::findings::{Evidence, Finding, Remedy, Sentence, Verdict};
use super::words::{Language, say};
use serde::{Deserialize, Serialize};

/// Files that are written for one remedy, of which the text names so many; a host of 64 cores has 64. JSON has all.
const WRITES_SHOWN: usize = 4;

/// What all checks said, sorted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Worst first.
    pub findings: Vec<Said>,
    /// What is not the bound, and why.
    pub fine: Vec<FineSaid>,
    /// What could not be looked at, and what would show it.
    pub hidden: Vec<Hidden>,
    /// Sensors of the board that read a number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sensors: Vec<Reading>,
    /// Entries of the board's event log; none where there is no controller, or it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_entries: Option<usize>,
}

/// A finding, and its sentence in words.
#[derive(Debug, Serialize, Deserialize)]
pub struct Said {
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Its sentence.
    pub says: String,
}

/// A check that found nothing.
#[derive(Debug, Serialize, Deserialize)]
pub struct FineSaid {
    /// Its number.
    pub check: u8,
    /// Its word.
    pub word: String,
    /// Why that is not the bound.
    pub says: String,
}

/// A check that could not look.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hidden {
    /// Its number.
    pub check: u8,
    /// Its word.
    pub word: String,
    /// What could not be read, and why.
    pub what: String,
    /// What would show it.
    pub how: String,
}

impl Report {
    /// Of a host.
    pub fn of(host: &Host, language: Language) -> Report {
        let mut report = Report::sorted(host.examine(), language);
        if let Some((sensors, entries)) = management::readings(host) {
            (report.sensors, report.log_entries) = (sensors, Some(entries));
        }
        report
    }

    fn sorted(verdicts: Vec<(&'static Check, Verdict)>, language: Language) -> Report {
        let mut report = Report::default();
        for (&Check { number: check, word, .. }, verdict) in verdicts {
            match verdict {
                Verdict::Found(found) => report
                    .findings
                    .extend(found.into_iter().map(|finding| Said { says: say(language, &finding.text), finding })),
                Verdict::Fine(why) => {
                    report.fine.push(FineSaid { check, word: word.to_owned(), says: say(language, &why) })
                }
                Verdict::NotHere => {}
                Verdict::NotSeen { what, how } => {
                    report.hidden.push(Hidden { check, word: word.to_owned(), what, how: say(language, &how) });
                }
            }
        }
        report.findings.sort_by_key(|said| (std::cmp::Reverse(said.finding.severity), said.finding.check));
        report
    }

    /// For a person.
    pub fn text(&self, language: Language) -> String {
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let mut text = String::new();
        let mut line = |indent: usize, words: &str| {
            text.extend([&" ".repeat(indent), words, "\n"]);
        };
        if self.findings.is_empty() {
            line(0, &word("doctor.none"));
        }
        for Said { finding, says } in &self.findings {
            let severity =
                say(language, &Sentence { key: format!("severity.{}", lower(&finding.severity)), with: vec![] });
            let confidence =
                say(language, &Sentence { key: format!("confidence.{}", lower(&finding.confidence)), with: vec![] });
            line(0, &format!("{severity}  {says}  [{}, {confidence}]", finding.id));
            for Evidence { source, value } in &finding.evidence {
                line(4, &format!("{}: {source}: {value}", word("doctor.evidence")));
            }
            for remedy in &finding.remedies {
                match remedy {
                    Remedy::Apply { what, writes } => {
                        line(4, &format!("{}: {}", word("doctor.remedy"), say(language, what)));
                        for write in writes.iter().take(WRITES_SHOWN) {
                            line(8, &format!("echo {} > {}", write.value, write.path));
                        }
                        if writes.len() > WRITES_SHOWN {
                            line(8, &format!("... (+{})", writes.len() - WRITES_SHOWN));
                        }
                    }
                    Remedy::Explain { what, command } => {
                        line(4, &format!("{}: {}", word("doctor.remedy"), say(language, what)));
                        if let Some(command) = command {
                            line(8, command);
                        }
                    }
                }
            }
        }
        if !self.fine.is_empty() {
            line(0, "");
            line(0, &format!("{}:", word("doctor.fine")));
            self.fine.iter().for_each(|fine| line(4, &fine.says));
        }
        if !self.hidden.is_empty() {
            line(0, "");
            line(0, &format!("{}:", word("doctor.hidden")));
            // Several checks may miss the same.
            let mut told = std::collections::BTreeSet::new();
            for Hidden { what, how, .. } in &self.hidden {
                if told.insert((what, how)) {
                    line(4, &format!("{what} ({how})"));
                }
            }
        }
        text
    }
}

fn lower(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
