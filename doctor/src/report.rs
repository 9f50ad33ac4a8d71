//! What the doctor says to a person, and to a program.

use super::Host;
use super::checks::{Check, management};
use super::findings::{Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use super::words::{Language, say};
use forebay_api::paths;
use forebay_api::status::Reading;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

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
    /// Checks of whose things this host has none.
    #[serde(default)]
    pub nothing_here: usize,
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

/// What a check could not look at: all that it looks for, or a part beside its findings.
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
                Verdict::Found(found) => report.find(found),
                Verdict::FoundPart { found, what, how } => {
                    report.find(found);
                    report.hide(check, word, what, reader.can_do(how));
                }
                Verdict::Fine(text) => {
                    report.fine.push(FineSaid { check, word: word.to_owned(), text, says: String::new() });
                }
                Verdict::NotHere => report.nothing_here += 1,
                Verdict::NotSeen { what, how } => report.hide(check, word, what, reader.can_do(how)),
            }
        }
        report.findings.sort_by_key(|said| (std::cmp::Reverse(said.finding.severity), said.finding.check));
        report.spoken(language)
    }

    fn find(&mut self, found: Vec<Finding>) {
        self.findings.extend(found.into_iter().map(|finding| Said { says: String::new(), help: Vec::new(), finding }));
    }

    fn hide(&mut self, check: u8, word: &str, what: String, text: Sentence) {
        self.hidden.push(Hidden { check, word: word.to_owned(), what, text, how: String::new() });
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

    /// Numbers of the checks that found something.
    fn finders(&self) -> BTreeSet<u8> {
        self.findings.iter().map(|said| said.finding.check).collect()
    }

    /// How many checks have looked: those that found something, and those that cleared what they looked at.
    fn looked(&self) -> usize {
        self.finders().len() + self.fine.len()
    }

    /// How many checks could not look: one that found something beside what it could not see has looked.
    pub fn not_looked(&self) -> usize {
        let finders = self.finders();
        self.hidden.iter().filter(|hidden| !finders.contains(&hidden.check)).count()
    }

    /// The first line: how many findings of each severity there are, or that there are none and what that is worth; then how many
    /// checks looked, had nothing to look at, and could not look.
    fn headline(&self, language: Language) -> String {
        let of = |severity| self.findings.iter().filter(|said| said.finding.severity == severity).count();
        let counted = [
            (Severity::Error, "doctor.error", "doctor.errors"),
            (Severity::Warning, "doctor.warning", "doctor.warnings"),
            (Severity::Note, "doctor.note", "doctor.notes"),
        ];
        let counted = counted.map(|(severity, one, several)| (of(severity), one, several));
        let counted: Vec<String> = counted
            .into_iter()
            .filter(|&(count, ..)| count > 0)
            .map(|(count, one, several)| plural(language, count, one, several))
            .collect();
        let looked = plural(language, self.looked(), "doctor.looked-one", "doctor.looked");
        let key = match (counted.is_empty(), self.not_looked(), self.looked()) {
            (false, 0, _) => "doctor.head",
            (false, ..) => "doctor.head-hidden",
            (true, 0, 0) => "doctor.none-here",
            (true, 0, _) => "doctor.none-counted",
            (true, 1, _) => "doctor.none-seen-one",
            (true, ..) => "doctor.none-seen",
        };
        let joined = counted.join(if language == Language::Ja { "、" } else { ", " });
        let head = Sentence::new(key).with("none", say(language, &Sentence::new("doctor.none"))).with("found", joined);
        let head = head.with("looked", looked).with("nothing", self.nothing_here).with("hidden", self.not_looked());
        say(language, &head)
    }

    /// What could not be seen, a line each: of checks that one thing would let see, one line that names them.
    fn unseen(&self, verbose: bool) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for Hidden { word, what, how, .. } in &self.hidden {
            let alike: Vec<&str> =
                self.hidden.iter().filter(|other| other.how == *how).map(|other| other.word.as_str()).collect();
            let line = match verbose || alike.len() == 1 {
                true => format!("{word}: {what} ({how})"),
                false => format!("{how}: {}", alike.join(", ")),
            };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// The report as text for people: a headline, the findings, how much was ruled out, and what could not be seen. `verbose`: also
    /// why each was ruled out, and of each check what it could not see.
    pub fn text(&self, language: Language, verbose: bool) -> String {
        let between = if self.findings.is_empty() { "\n" } else { "\n\n" };
        self.headline(language) + between + &self.without_headline(language, verbose)
    }

    /// The same without its first line, for a report that begins with a table.
    pub fn without_headline(&self, language: Language, verbose: bool) -> String {
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let mut text = String::new();
        self.findings.iter().for_each(|said| said.write(&mut text, language));
        if !self.fine.is_empty() {
            let heading = match verbose {
                true => format!("{}:", word("doctor.fine")),
                false => plural(language, self.fine.len(), "doctor.fine-one", "doctor.fine-count"),
            };
            text.extend(["\n", &heading, "\n"]);
            for fine in self.fine.iter().filter(|_| verbose) {
                text.extend(["    ", &fine.says, "\n"]);
            }
        }
        if !self.hidden.is_empty() {
            text.extend(["\n", &word("doctor.hidden"), ":\n"]);
            self.unseen(verbose).iter().for_each(|line| text.extend(["    ", line, "\n"]));
        }
        text
    }
}

impl Said {
    /// The finding as lines: what it says, what shows it, and what helps.
    fn write(&self, text: &mut String, language: Language) {
        let Said { finding, says, help } = self;
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let named = |key: String| say(language, &Sentence { key, with: vec![] });
        let mut line = |indent: usize, words: &str| {
            text.extend([&" ".repeat(indent), words, "\n"]);
        };
        let severity = named(format!("severity.{}", lower(&finding.severity)));
        let confidence = named(format!("confidence.{}", lower(&finding.confidence)));
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
}

/// One of something, or several of it: two sentences with `count`.
fn plural(language: Language, count: usize, one: &'static str, several: &'static str) -> String {
    say(language, &Sentence::new(if count == 1 { one } else { several }).with("count", count))
}

fn lower(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::checks;
    use super::super::findings::Confidence;
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
        let text = Report::of(&Host::look(tree.system()), Language::En).text(Language::En, false);
        assert!(text.contains("the record lacks it") && !text.contains("run it as root"), "{text}");
    }

    fn finding(check: u8, severity: Severity) -> Finding {
        Finding {
            id: format!("a/{check}"),
            check,
            severity,
            confidence: Confidence::Likely,
            text: Sentence::new("nics.half-duplex").with("nic", "eth0"),
            evidence: vec![Evidence::new("/sys/x", 1)],
            number: None,
            remedies: vec![],
        }
    }

    fn of(verdicts: Vec<Verdict>) -> Report {
        Report::sorted(checks::all().into_iter().zip(verdicts).collect(), Reader::User, Language::En)
    }

    fn unseen(what: &str, how: &'static str) -> Verdict {
        Verdict::NotSeen { what: what.to_owned(), how: Sentence::new(how) }
    }

    #[test]
    fn the_headline_counts_what_was_found_and_who_looked() {
        let fine = || Verdict::Fine(Sentence::new("doctor.remedy"));
        let all = checks::all();
        let found = |nth: usize, severity| Verdict::Found(vec![finding(all[nth].number, severity)]);
        let two =
            Verdict::Found(vec![finding(all[1].number, Severity::Warning), finding(all[1].number, Severity::Note)]);
        let part = Verdict::FoundPart {
            found: vec![finding(all[0].number, Severity::Warning)],
            what: "/sys/x".to_owned(),
            how: Sentence::new("doctor.as-root"),
        };
        let text = of(vec![part.clone()]).text(Language::En, true);
        assert!(
            text.contains(&format!("\nCould not be seen:\n    {}: /sys/x (run it as root)\n", all[0].word)),
            "{text}"
        );
        for (verdicts, wanted) in [
            (
                vec![found(0, Severity::Error), two, fine(), Verdict::NotHere],
                "1 error, 1 warning, 1 note; 3 checks looked, 1 had nothing to look at.",
            ),
            (
                vec![found(0, Severity::Note), found(1, Severity::Note), unseen("/sys/x", "doctor.as-root")],
                "2 notes; 2 checks looked, 0 had nothing to look at, 1 could not look.",
            ),
            (
                vec![part, unseen("/sys/y", "doctor.as-root"), Verdict::NotHere],
                "1 warning; 1 check looked, 1 had nothing to look at, 1 could not look.",
            ),
            (vec![fine()], "Nothing found that bounds this host. 1 check looked, 0 had nothing to look at."),
            (
                vec![fine(), unseen("/sys/x", "doctor.as-root")],
                "Nothing found in what could be seen; 1 check could not look. 1 check looked, 0 had nothing to look at.",
            ),
            (
                vec![unseen("/sys/x", "doctor.as-root"), unseen("/sys/y", "doctor.as-root"), Verdict::NotHere],
                "Nothing found in what could be seen; 2 checks could not look. 0 checks looked, 1 had nothing to look at.",
            ),
            (vec![Verdict::NotHere], "No check has found anything to look at on this host."),
        ] {
            let report = of(verdicts);
            assert_eq!(report.text(Language::En, false).lines().next(), Some(wanted));
            for language in [Language::Ja, Language::Ko] {
                let head = report.clone().spoken(language).headline(language);
                assert!(!head.contains(['{', '}']), "{head}");
            }
        }
    }

    #[test]
    fn what_was_ruled_out_is_a_count_and_its_lines_are_asked_for() {
        let report =
            of(vec![Verdict::Fine(Sentence::new("doctor.remedy")), Verdict::Fine(Sentence::new("doctor.evidence"))]);
        let (short, long) = (report.text(Language::En, false), report.text(Language::En, true));
        assert!(
            short.contains("Ruled out: 2 checks (--verbose lists them)\n") && !short.contains("what helps"),
            "{short}"
        );
        assert!(long.contains("Ruled out:\n    what helps\n    shown by\n"), "{long}");
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["fine"].as_array().map(Vec::len), Some(2), "programs get all of it");
    }

    #[test]
    fn checks_that_one_thing_would_let_see_share_a_line() {
        let report = of(vec![
            unseen("/sys/x: denied", "doctor.as-root"),
            unseen("/sys/y: denied", "doctor.as-root"),
            unseen("/sys/z: none", "links.measure"),
        ]);
        let words: Vec<&str> = checks::all().iter().take(3).map(|check| check.word).collect();
        let (short, long) = (report.text(Language::En, false), report.text(Language::En, true));
        let shared = format!("    run it as root: {}, {}\n", words[0], words[1]);
        assert!(short.contains(&shared) && !short.contains("/sys/x"), "{short}");
        assert!(short.contains(&format!("    {}: /sys/z: none (", words[2])), "{short}");
        for (word, what) in [(words[0], "/sys/x: denied"), (words[1], "/sys/y: denied")] {
            assert!(long.contains(&format!("    {word}: {what} (run it as root)\n")), "{long}");
        }
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
