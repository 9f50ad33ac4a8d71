//! What the doctor says to a person, and to a program.

use super::Host;
use super::checks::{Check, management};
use super::findings::{Evidence, Finding, Remedy, Sentence, Verdict};
use super::words::{Language, say};
use forebay_api::paths;
use forebay_api::status::Reading;
use serde::{Deserialize, Serialize};

/// Files that are written for one remedy, of which the text names so many; a host of 64 cores has 64. JSON has all.
const WRITES_SHOWN: usize = 4;

/// Who reads the host's files, and so what would show more of them.
#[derive(Clone, Copy)]
enum Reader {
    OfRecord,
    Root,
    User,
}

impl Reader {
    /// Checks advise what this host's user does; to root, and to whoever has only a record, some of that is no advice.
    fn can_do(self, how: Sentence) -> Sentence {
        let key = match (self, how.key.as_str()) {
            (Reader::Root, "doctor.as-root" | "dma.no-right") => "doctor.even-as-root",
            (Reader::OfRecord, "doctor.as-root" | "dma.no-right") => "doctor.record-lacks",
            (Reader::OfRecord, "links.measure") => "links.measure-recorded",
            (Reader::User | Reader::Root | Reader::OfRecord, _) => return how,
        };
        Sentence::new(key)
    }
}

/// What all checks said, sorted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What was found, the worst first.
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
    /// The newest of them, as `ipmitool sel list` prints them, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_newest: Vec<String>,
}

/// A finding, and its sentences in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Said {
    /// The finding as its check has made it.
    #[serde(flatten)]
    pub finding: Finding,
    /// What the finding says, in the language that was asked for.
    pub says: String,
    /// What each of its remedies says.
    pub help: Vec<String>,
}

/// A check that found nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FineSaid {
    /// Number of the check.
    pub check: u8,
    /// The word that names the check.
    pub word: String,
    /// Why that is not the bound.
    pub text: Sentence,
    /// The same in the language that was asked for.
    pub says: String,
}

/// A check that could not look.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hidden {
    /// Number of the check.
    pub check: u8,
    /// The word that names the check.
    pub word: String,
    /// What could not be read, and why.
    pub what: String,
    /// What would show it.
    pub text: Sentence,
    /// The same in the language that was asked for.
    pub how: String,
}

impl Report {
    /// The report of a host, with its sentences in this language.
    pub fn of(host: &Host, language: Language) -> Report {
        let reader = match (host.system.is_live(), paths::is_root()) {
            (false, _) => Reader::OfRecord,
            (true, true) => Reader::Root,
            (true, false) => Reader::User,
        };
        let mut report = Report::sorted(host.examine(), reader, language);
        if let Some(told) = management::told(host) {
            report.sensors = told.sensors;
            (report.log_entries, report.log_newest) = (Some(told.log_entries), told.log_newest);
        }
        report
    }

    fn sorted(verdicts: Vec<(&'static Check, Verdict)>, reader: Reader, language: Language) -> Report {
        let mut report = Report::default();
        for (&Check { number: check, word, .. }, verdict) in verdicts {
            match verdict {
                Verdict::Found(found) => report.findings.extend(found.into_iter().map(|finding| Said {
                    says: String::new(),
                    help: Vec::new(),
                    finding,
                })),
                Verdict::Fine(text) => {
                    report.fine.push(FineSaid { check, word: word.to_owned(), text, says: String::new() });
                }
                Verdict::NotHere => {}
                Verdict::NotSeen { what, how } => {
                    let text = reader.can_do(how);
                    report.hidden.push(Hidden { check, word: word.to_owned(), what, text, how: String::new() });
                }
            }
        }
        report.findings.sort_by_key(|said| (std::cmp::Reverse(said.finding.severity), said.finding.check));
        report.spoken(language)
    }

    /// The same report with all its sentences in this language.
    #[must_use]
    pub fn spoken(mut self, language: Language) -> Report {
        for said in &mut self.findings {
            said.says = say(language, &said.finding.text);
            said.help = said.finding.remedies.iter().map(|remedy| say(language, remedy.what())).collect();
        }
        self.fine.iter_mut().for_each(|fine| fine.says = say(language, &fine.text));
        self.hidden.iter_mut().for_each(|hidden| hidden.how = say(language, &hidden.text));
        self
    }

    /// The report as text for people.
    pub fn text(&self, language: Language) -> String {
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let mut text = String::new();
        let mut line = |indent: usize, words: &str| {
            text.extend([&" ".repeat(indent), words, "\n"]);
        };
        if self.findings.is_empty() {
            line(0, &word("doctor.none"));
        }
        for Said { finding, says, help } in &self.findings {
            let severity =
                say(language, &Sentence { key: format!("severity.{}", lower(&finding.severity)), with: vec![] });
            let confidence =
                say(language, &Sentence { key: format!("confidence.{}", lower(&finding.confidence)), with: vec![] });
            line(0, &format!("{severity}  {says}  [{}, {confidence}]", finding.id));
            for Evidence { source, value } in &finding.evidence {
                line(4, &format!("{}: {source}: {value}", word("doctor.evidence")));
            }
            for (remedy, says) in finding.remedies.iter().zip(help) {
                line(4, &format!("{}: {says}", word("doctor.remedy")));
                match remedy {
                    Remedy::Apply { writes, .. } => {
                        for write in writes.iter().take(WRITES_SHOWN) {
                            line(8, &format!("echo {} > {}", write.value, write.path));
                        }
                        if writes.len() > WRITES_SHOWN {
                            line(8, &format!("... (+{})", writes.len() - WRITES_SHOWN));
                        }
                    }
                    Remedy::Explain { command, .. } => {
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

#[cfg(test)]
mod tests {
    use super::super::checks;
    use super::super::findings::{Confidence, Severity};
    use super::super::fixture::Tree;
    use super::*;

    fn report(verdict: Verdict, reader: Reader) -> Report {
        Report::sorted(vec![(checks::all()[0], verdict)], reader, Language::En)
    }

    #[test]
    fn root_is_advised_to_nobody_who_is_root_or_has_only_a_record() {
        let how = |reader, key| {
            let verdict = Verdict::NotSeen { what: "/sys/x".to_owned(), how: Sentence::new(key) };
            report(verdict, reader).hidden.remove(0).how
        };
        assert_eq!(how(Reader::User, "doctor.as-root"), "run it as root");
        assert!(how(Reader::Root, "doctor.as-root").starts_with("even root"));
        assert!(how(Reader::OfRecord, "doctor.as-root").starts_with("the record lacks it"));
        assert!(how(Reader::User, "dma.no-right").contains("CAP_PERFMON"));
        assert!(how(Reader::Root, "dma.no-right").starts_with("even root"));
        for reader in [Reader::User, Reader::Root, Reader::OfRecord] {
            assert_eq!(how(reader, "doctor.remedy"), "what helps", "other advice stays");
        }
    }

    #[test]
    fn a_record_is_said_to_lack_what_it_has_not() {
        let tree = Tree::new().node(0, "0", 8).hidden("/proc/sys/vm/zone_reclaim_mode");
        let text = Report::of(&Host::look(tree.system()), Language::En).text(Language::En);
        assert!(text.contains("the record lacks it") && !text.contains("run it as root"), "{text}");
    }

    #[test]
    fn what_was_said_in_one_language_is_said_in_each() {
        let finding = Finding {
            id: "a/1".to_owned(),
            check: 1,
            severity: Severity::Note,
            confidence: Confidence::Likely,
            text: Sentence::new("nics.half-duplex").with("nic", "eth0"),
            evidence: vec![Evidence::new("/sys/x", 1)],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("doctor.as-root"), command: None }],
        };
        let english = report(Verdict::Found(vec![finding]), Reader::User);
        assert_eq!(english.findings[0].help, ["run it as root"]);
        let korean = english.clone().spoken(Language::Ko);
        assert!(korean.findings[0].says.contains("eth0") && korean.findings[0].says != english.findings[0].says);
        assert_eq!(korean.findings[0].help, ["root 권한으로 실행하십시오"]);
        let fine = report(Verdict::Fine(Sentence::new("doctor.none")), Reader::User).spoken(Language::Ja);
        assert_eq!(fine.fine[0].says, "このホストを制限しているものは見つかりませんでした。");
        let hidden = Verdict::NotSeen { what: "x".to_owned(), how: Sentence::new("doctor.as-root") };
        assert_eq!(report(hidden, Reader::User).spoken(Language::Ja).hidden[0].how, "root で実行してください");
    }
}
