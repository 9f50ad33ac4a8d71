//! Whose identities count no more, because the node was forgotten: what other nodes have said of that, checked and kept.
//!
//! Invariants:
//! - A word counts by the seal of another node, whose certificate is good and was not revoked. What etcd has besides is nothing.
//! - What was taken once is kept in the state folder (`cluster/revoked.json`) and holds whatever the coordinator shows later. It is about
//!   certificates that were made up to a time, so that an identity which is made afterwards is good again.
//! - Whoever was revoked revokes nobody: neither by words that come later, nor by those that come with the one about itself. Where two words
//!   are against each other's nodes, nobody can tell which was first, and both count here; but only what nobody doubts is said to others again.
//! - Links and seals refuse by [`Revoked`], which is set before the file is written, and before anybody is told.

use super::control::Cluster;
use crate::coordinator::revocations::{FoundWord, RevokedWord};
use crate::coordinator::schema::{self, Document};
use crate::coordinator::{Coordinator, Error, Outcome};
use crate::datapath::driver::ToDriver;
use crate::log;
use anyhow::{Context, Result, bail};
use forebay_api::calendar;
use forebay_api::checked::NodeName;
use forebay_host::identity::ends::Due;
use forebay_host::identity::{self, Identity, NODE_VALID};
use forebay_host::seals::{Seal, Seals};
use forebay_io::certificate::{BEGINS_BEFORE, Revoked};
use forebay_io::durable::write_atomically;
use forebay_io::folder::{self, Folder};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration as Time, Instant};

/// Version of the file.
const VERSION: u32 = 1;
/// So many are kept; what one was needed for has ended two years later, and gives way.
const KEPT_MAX: usize = 1024;
/// Longest file of them.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// So many words are said again at one look.
const SAID_AGAIN_MAX: usize = 16;
/// Between two looks at which words are said again: whoever takes them away does not have this node write all the time.
const SAID_AGAIN: Time = Time::from_secs(5);

/// Certificates of one name that count no more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    name: NodeName,
    /// What was made up to then, in seconds since 1970.
    until_s: u64,
    /// The node that has said it first, as far as this one knows.
    by: NodeName,
    /// A word that came with it was against the node that has said it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    doubtful: bool,
}

impl Kept {
    fn of(word: &RevokedWord, doubtful: bool) -> Kept {
        Kept { name: word.name.clone(), until_s: word.until_s, by: word.by.clone(), doubtful }
    }

    /// All that it is about has ended.
    fn is_over(&self, now: Time) -> bool {
        Time::from_secs(self.until_s).saturating_add(NODE_VALID + BEGINS_BEFORE) < now
    }
}

/// The file of all of them, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptFile {
    version: u32,
    revoked: Vec<Kept>,
}

/// A word with a seal that a certificate of its node has made.
struct Said {
    word: RevokedWord,
    signer: CertificateDer<'static>,
}

/// What a look at words came to.
#[derive(Default)]
struct Judged {
    taken: Vec<Kept>,
    refused: Vec<(NodeName, String)>,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<NodeName, Kept>,
    /// The file has less than that.
    unwritten: bool,
    said_again: Option<Instant>,
}

/// See the module's text.
pub(super) struct Revocations {
    path: PathBuf,
    revoked: Arc<Revoked>,
    name: NodeName,
    /// That of this very node.
    certificate: CertificateDer<'static>,
    state: Mutex<State>,
}

/// Certificates that do not count, by these.
fn refusing<'a>(kept: impl Iterator<Item = (&'a NodeName, u64)>) -> BTreeMap<String, Time> {
    kept.map(|(name, until_s)| (name.to_string(), Time::from_secs(until_s))).collect()
}

/// Which of these words count, beside what is kept, and why others do not.
fn judge(kept: &BTreeMap<NodeName, Kept>, said: Vec<Said>, now: Time) -> Judged {
    let mut judged = Judged::default();
    let mut refuse = |said: &Said, why: &str| judged.refused.push((said.word.name.clone(), why.to_owned()));
    let mut until: BTreeMap<NodeName, u64> = kept.iter().map(|(name, kept)| (name.clone(), kept.until_s)).collect();
    let against = Revoked::default();
    let mut open: Vec<Said> = Vec::new();
    for said in said {
        if said.word.until() > now.saturating_add(BEGINS_BEFORE) {
            refuse(&said, "it is of a time to come: see the clock of the node that has said it");
        } else if !Kept::of(&said.word, false).is_over(now) {
            open.push(said);
        }
    }
    open.sort_by(|a, b| (a.word.until_s, &a.word.name).cmp(&(b.word.until_s, &b.word.name)));
    loop {
        against.set(refusing(until.iter().map(|(name, until_s)| (name, *until_s))));
        open.retain(|said| {
            let counts = !against.refuses(&said.signer);
            if !counts {
                refuse(said, "it was sealed by an identity that was revoked");
            }
            counts
        });
        // Those whose signer no other word is against.
        let words: BTreeMap<String, Time> = refusing(open.iter().map(|said| (&said.word.name, said.word.until_s)));
        against.set(words);
        let at = open.iter().position(|said| !against.refuses(&said.signer));
        let doubtful = at.is_none();
        if open.is_empty() {
            return judged;
        }
        for said in if let Some(at) = at { vec![open.remove(at)] } else { std::mem::take(&mut open) } {
            let known = kept.get(&said.word.name);
            let is_news = known.is_none_or(|known| (said.word.until_s, !doubtful) > (known.until_s, !known.doubtful));
            if is_news {
                until.insert(said.word.name.clone(), said.word.until_s);
                judged.taken.push(Kept::of(&said.word, doubtful));
            }
        }
    }
}

impl Revocations {
    /// What is kept in the state folder of the node with this identity.
    pub(super) fn open(state: &Path, identity: &Identity) -> Result<Revocations> {
        let folder = state.join("cluster");
        Folder::make_all(&folder, 0o700).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("revoked.json");
        let kept = load(&path)?.into_iter().map(|kept| (kept.name.clone(), kept)).collect();
        let name = NodeName::new(&identity.name).map_err(anyhow::Error::msg)?;
        let revocations = Revocations {
            path,
            revoked: Arc::default(),
            name,
            certificate: identity.certificate.clone(),
            state: Mutex::new(State { kept, ..State::default() }),
        };
        revocations.enforce(&revocations.state());
        Ok(revocations)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Whose identities links and seals refuse.
    pub(super) fn revoked(&self) -> Arc<Revoked> {
        self.revoked.clone()
    }

    fn enforce(&self, state: &State) {
        self.revoked.set(refusing(state.kept.iter().map(|(name, kept)| (name, kept.until_s))));
    }

    /// Why this node is none any more; none: it is one.
    pub(super) fn own(&self) -> Option<String> {
        let kept = self.state().kept.get(&self.name).cloned()?;
        let (name, by, until) = (&self.name, &kept.by, shown(kept.until_s));
        self.revoked.refuses(&self.certificate).then(|| {
            format!(
                "the identity of {name} was revoked: {by} has had {name} forgotten (`forebay node forget`), and no identity of {name} from before \
                 {until} counts any more; to have {name} in the cluster again, make a new one with `forebay node enrol {name} --renew` where \
                 the cluster's authority is, carry the file here, and start the daemon again"
            )
        })
    }

    /// Takes what counts; true: there was something new.
    fn take(&self, said: Vec<Said>, now: Time) -> (bool, Vec<(NodeName, String)>) {
        let mut state = self.state();
        let Judged { taken, mut refused } = judge(&state.kept, said, now);
        let (mut is_news, mut told) = (false, Vec::new());
        for new in taken {
            match self.keep(&mut state, new.clone(), now) {
                Ok(()) => {
                    is_news = true;
                    told.push(new);
                }
                Err(why) => refused.push((new.name, format!("{why:#}"))),
            }
        }
        if is_news {
            self.enforce(&state);
            state.unwritten = true;
        }
        self.write(&mut state);
        drop(state);
        told.iter().for_each(report);
        // What is about former identities of its own is no news to a node.
        if let Some(why) = told.iter().any(|new| new.name == self.name).then(|| self.own()).flatten() {
            log::say!(Error, "{why}");
        }
        (is_news, refused)
    }

    /// What this node itself has said, and the coordinator has.
    fn take_own(&self, word: &RevokedWord, now: Time) {
        let mut state = self.state();
        // There was room when it was said; if there is none by now, the next look at the coordinator shows it.
        if self.keep(&mut state, Kept::of(word, false), now).is_ok() {
            self.enforce(&state);
            state.unwritten = true;
            self.write(&mut state);
        }
    }

    fn keep(&self, state: &mut State, new: Kept, now: Time) -> Result<()> {
        if !state.kept.contains_key(&new.name) && state.kept.len() >= KEPT_MAX {
            let over = state.kept.values().find(|kept| kept.is_over(now)).map(|kept| kept.name.clone());
            let over =
                over.with_context(|| format!("this node keeps {KEPT_MAX} revoked names already, which is the most"))?;
            state.kept.remove(&over);
        }
        state.kept.insert(new.name.clone(), new);
        Ok(())
    }

    /// What could not be written is tried again at the next look, and holds meanwhile.
    fn write(&self, state: &mut State) {
        if !state.unwritten {
            return;
        }
        let file = KeptFile { version: VERSION, revoked: state.kept.values().cloned().collect() };
        let text = serde_json::to_vec(&file).expect("names and numbers are JSON");
        match write_atomically(&self.path, &text) {
            Ok(()) => state.unwritten = false,
            Err(error) => log::say!(Error, "whose identities were revoked is not remembered: {error}; trying again"),
        }
    }

    /// What this node says to have a node revoked. `Err`: why it cannot.
    fn word_against(&self, name: &NodeName, now: Time) -> Result<RevokedWord> {
        if let Some(why) = self.own() {
            bail!("this node cannot have another one forgotten: {why}");
        }
        let state = self.state();
        if !state.kept.contains_key(name)
            && state.kept.len() >= KEPT_MAX
            && state.kept.values().all(|kept| !kept.is_over(now))
        {
            bail!("this node keeps {KEPT_MAX} revoked names already, which is the most");
        }
        let before = state.kept.get(name).map_or(0, |kept| kept.until_s);
        let until_s = before.max(now.as_secs());
        Ok(RevokedWord { version: schema::VERSION, name: name.clone(), until_s, by: self.name.clone() })
    }

    fn names(&self) -> Vec<NodeName> {
        self.state().kept.keys().cloned().collect()
    }

    /// Words that are to be said again, in place of what was found: nobody who does not know them yet would take that.
    fn lacking(&self, found: &[(FoundWord, Option<RevokedWord>)]) -> Vec<(FoundWord, RevokedWord)> {
        if self.own().is_some() {
            return Vec::new();
        }
        let mut state = self.state();
        let lacking = found.iter().filter_map(|(found, good)| {
            let kept = state.kept.get(&found.name).filter(|kept| !kept.doubtful)?;
            if good.as_ref().is_some_and(|good| good.until_s >= kept.until_s) || kept.name == self.name {
                return None;
            }
            let (version, name, until_s) = (schema::VERSION, kept.name.clone(), kept.until_s);
            Some((found.clone(), RevokedWord { version, name, until_s, by: self.name.clone() }))
        });
        let lacking: Vec<(FoundWord, RevokedWord)> = lacking.take(SAID_AGAIN_MAX).collect();
        if lacking.is_empty() || state.said_again.is_some_and(|at| at.elapsed() < SAID_AGAIN) {
            return Vec::new();
        }
        state.said_again = Some(Instant::now());
        lacking
    }
}

/// A time since 1970, for people.
fn shown(seconds: u64) -> String {
    calendar::show_ms(seconds.saturating_mul(1000))
}

fn report(new: &Kept) {
    let Kept { name, by, doubtful, .. } = new;
    let until = shown(new.until_s);
    if *doubtful {
        log::say!(
            Error,
            "nodes have been forgotten by each other: what {by} says of {name} counts here, as what is said of {by} does, and is not passed on; \
             one of the two may be in wrong hands: enrol the other one anew (`forebay node enrol NAME --renew`)"
        );
    }
    log::say!(
        Notice,
        "{by} has had {name} forgotten: the identity of {name} is revoked, and whoever has one from before {until} is no node any more"
    );
}

fn load(path: &Path) -> Result<Vec<Kept>> {
    const WAY_OUT: &str = "restore it from a backup, or remove it: this node then takes what the other nodes say";
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = folder::read_text(path, FILE_BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
    let file: KeptFile =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged: {WAY_OUT}", path.display()))?;
    if file.version != VERSION {
        bail!(
            "{} is of version {}, this Forebay knows version {VERSION}; use a newer one",
            path.display(),
            file.version
        );
    }
    if file.revoked.len() > KEPT_MAX {
        bail!("{} has more than there can be: {WAY_OUT}", path.display());
    }
    Ok(file.revoked)
}

/// Reads what is said, and takes what counts. What was found, with the word where it is one that everybody would take; and whether there was
/// something new.
pub(super) async fn look(
    coordinator: &Coordinator,
    seals: &Seals,
    revocations: &Revocations,
) -> Result<(Vec<(FoundWord, Option<RevokedWord>)>, bool), Error> {
    let names: BTreeSet<NodeName> =
        coordinator.revoked_names().await?.into_iter().take(KEPT_MAX).chain(revocations.names()).collect();
    let names: Vec<NodeName> = names.into_iter().collect();
    let (mut looked, mut said, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for found in coordinator.revoked_words(&names).await? {
        let read = found.read().and_then(|read| match read {
            None => Ok(None),
            Some((word, seal)) => {
                let text = word.encode();
                let signer = seals.signer(&seal, word.sealed(&[&text])).map_err(|why| format!("{why:#}"))?;
                Ok(Some((word, signer)))
            }
        });
        let good = match read {
            Ok(good) => good,
            Err(why) => {
                refused.push((found.name.clone(), why));
                None
            }
        };
        said.extend(good.iter().map(|(word, signer)| Said { word: word.clone(), signer: signer.clone() }));
        looked.push((found, good));
    }
    // Without a clock no certificate is judged either.
    let Ok(now) = identity::now() else { return Ok((Vec::new(), false)) };
    let (is_news, not_taken) = revocations.take(said, now);
    refused.extend(not_taken);
    coordinator.refuse_revoked(refused);
    let is_good = |signer: &CertificateDer<'_>| !revocations.revoked.refuses(signer);
    let now_good = |good: Option<(RevokedWord, CertificateDer<'static>)>| {
        good.filter(|(_, signer)| is_good(signer)).map(|(word, _)| word)
    };
    Ok((looked.into_iter().map(|(found, good)| (found, now_good(good))).collect(), is_news))
}

impl Cluster {
    /// Takes up what is said of nodes that were forgotten, and says again what somebody has taken away. False: it could not be read.
    pub(super) async fn refresh_revocations(&self) -> bool {
        // What is not known now is asked for again soon.
        let Ok((found, is_news)) = look(&self.coordinator, &self.seals, &self.revocations).await else { return false };
        if is_news {
            self.mail(ToDriver::EndRevoked);
        }
        for (found, word) in self.revocations.lacking(&found) {
            let Ok(seal) = self.seal_of_revoked(&word) else { break };
            // Another node may have been quicker, and what failed is tried again at a later look.
            if let Ok(Outcome::Won) = self.coordinator.replace_revoked(&found, &word, &seal).await {
                log::say!(
                    Notice,
                    "the coordinator did not have any more that the identity of {} is revoked, in words of a node that count: it was put back",
                    word.name
                );
            }
        }
        true
    }

    fn seal_of_revoked(&self, word: &RevokedWord) -> Result<Seal> {
        let text = word.encode();
        self.seals.seal(word.sealed(&[&text]))
    }

    /// What this node says to have another one's identities revoked. `Err`: why it cannot.
    pub(super) fn revoke(&self, name: &NodeName) -> Result<(RevokedWord, Seal)> {
        let word = self.revocations.word_against(name, identity::now()?)?;
        let seal = self.seal_of_revoked(&word)?;
        Ok((word, seal))
    }

    /// The coordinator has what this node has said.
    pub(super) fn has_revoked(&self, word: &RevokedWord) {
        if let Ok(now) = identity::now() {
            self.revocations.take_own(word, now);
        }
        self.mail(ToDriver::EndRevoked);
    }

    /// What is to be done about this node, if it was forgotten.
    pub(super) fn revocation_due(&self) -> Option<Due> {
        self.revocations.own().map(|text| Due { is_urgent: true, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::fixture::identities_of_nodes;
    use forebay_tests::harness::TempDir;

    /// Three nodes of one cluster.
    struct Lab {
        folder: TempDir,
        identities: Vec<Identity>,
        now: Time,
    }

    const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];

    fn named(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn word(by: &str, name: &str, until: Time) -> RevokedWord {
        RevokedWord { version: schema::VERSION, name: named(name), until_s: until.as_secs(), by: named(by) }
    }

    impl Lab {
        fn new(name: &str) -> Lab {
            let folder = TempDir::new(name);
            let identities = identities_of_nodes(folder.path(), "lab", &NAMES);
            Lab { folder, identities, now: identity::now().unwrap() }
        }

        fn identity(&self, name: &str) -> &Identity {
            self.identities.iter().find(|identity| identity.name == name).expect("one of the three")
        }

        fn open(&self, name: &str) -> Revocations {
            Revocations::open(&self.folder.join(&format!("{name}-state")), self.identity(name)).unwrap()
        }

        fn said(&self, by: &str, name: &str, until: Time) -> Said {
            Said { word: word(by, name, until), signer: self.identity(by).certificate.clone() }
        }

        fn refuses(&self, at: &Revocations) -> Vec<&str> {
            let certificate = |name: &str| &self.identity(name).certificate;
            NAMES.into_iter().filter(|name| at.revoked.refuses(certificate(name))).collect()
        }
    }

    #[test]
    fn a_word_has_one_form_and_counts_only_with_the_seal_of_the_node_that_it_names() {
        let lab = Lab::new("revoked-word");
        let said = word("alpha", "gamma", Time::from_secs(1_800_000_000));
        let text = r#"{"version":1,"name":"gamma","until_s":1800000000,"by":"alpha"}"#;
        assert_eq!(said.encode(), text);
        assert_eq!(RevokedWord::decode(text), Ok(said.clone()));
        for wrong in
            ["", "{}", &text.replace("alpha", "gamma"), &text.replace(":1,", ":2,"), &text.replace("gamma", "")]
        {
            RevokedWord::decode(wrong).unwrap_err();
        }
        let seals = |name: &str| Seals::new(lab.identity(name), Arc::default()).unwrap();
        let (alpha, beta) = (seals("alpha"), seals("beta"));
        let seal = alpha.seal(said.sealed(&[&said.encode()])).unwrap();
        assert_eq!(beta.signer(&seal, said.sealed(&[text])).unwrap(), lab.identity("alpha").certificate);
        for other in [
            word("alpha", "beta", said.until()),
            word("beta", "gamma", said.until()),
            word("alpha", "gamma", said.until() + Time::from_secs(1)),
        ] {
            beta.signer(&seal, other.sealed(&[&other.encode()])).unwrap_err();
        }
        // Words of another kind that the node has sealed are none of these.
        let parts = [text];
        let call = forebay_host::seals::Sealed { kind: "call", ..said.sealed(&parts) };
        beta.signer(&alpha.seal(call).unwrap(), said.sealed(&[text])).unwrap_err();
    }

    #[test]
    fn what_was_taken_holds_after_a_restart_and_an_older_word_changes_nothing() {
        let lab = Lab::new("revoked-kept");
        let beta = lab.open("beta");
        assert_eq!(beta.take(vec![], lab.now), (false, vec![]));
        assert!(lab.refuses(&beta).is_empty());
        let (is_news, refused) = beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        assert!(is_news && refused.is_empty(), "{refused:?}");
        assert_eq!(lab.refuses(&beta), ["gamma"]);
        let hour = Time::from_secs(3600);
        assert!(!beta.take(vec![lab.said("alpha", "gamma", lab.now - hour)], lab.now).0, "said before, and said again");
        assert!(!beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now).0);
        drop(beta);
        let beta = lab.open("beta");
        assert_eq!(lab.refuses(&beta), ["gamma"]);
        assert_eq!(beta.own(), None);
        // What was made before the identity that is used now says nothing of it.
        let gamma = lab.open("gamma");
        gamma.take(vec![lab.said("alpha", "gamma", lab.now - hour)], lab.now);
        assert_eq!(gamma.own(), None);
        gamma.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        let why = gamma.own().expect("it was forgotten");
        assert!(why.contains("alpha has had gamma forgotten") && why.contains("enrol gamma --renew"), "{why}");
        gamma.word_against(&named("beta"), lab.now).unwrap_err();
        std::fs::write(&gamma.path, "{").unwrap();
        let error = Revocations::open(&lab.folder.join("gamma-state"), lab.identity("gamma")).err().expect("damaged");
        assert!(format!("{error:#}").contains("restore it from a backup"), "{error:#}");
    }

    #[test]
    fn who_was_revoked_revokes_nobody_whatever_it_says_and_when() {
        let lab = Lab::new("revoked-signer");
        let hour = Time::from_secs(3600);
        // Both at one look: the earlier time that the thief gives does not help, whichever comes first.
        for backdated in [Time::ZERO, hour] {
            let beta = lab.open("beta");
            let thief = || lab.said("gamma", "alpha", lab.now - backdated);
            let (is_news, refused) = beta.take(vec![thief(), lab.said("beta", "gamma", lab.now)], lab.now);
            assert!(is_news);
            assert_eq!(refused.len(), 1);
            assert_eq!(lab.refuses(&beta), ["gamma"]);
            // And later.
            let (is_news, refused) = beta.take(vec![thief()], lab.now);
            assert!(!is_news && refused[0].1.contains("revoked"), "{refused:?}");
            assert_eq!(lab.refuses(&beta), ["gamma"]);
            std::fs::remove_file(&beta.path).unwrap();
        }
        // What it had said before stays.
        let alpha = lab.open("alpha");
        alpha.take(vec![lab.said("gamma", "beta", lab.now)], lab.now);
        alpha.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        assert_eq!(lab.refuses(&alpha), ["beta", "gamma"]);
    }

    #[test]
    fn nodes_that_have_forgotten_each_other_are_both_out_and_nobody_passes_that_on() {
        let lab = Lab::new("revoked-each-other");
        let beta = lab.open("beta");
        let both = || vec![lab.said("alpha", "gamma", lab.now), lab.said("gamma", "alpha", lab.now)];
        assert!(beta.take(both(), lab.now).0);
        assert_eq!(lab.refuses(&beta), ["alpha", "gamma"]);
        let none = |name: &str| (FoundWord::nothing_of(named(name)), None);
        assert_eq!(beta.lacking(&[none("alpha"), none("gamma")]), []);
        assert_eq!(lab.refuses(&lab.open("beta")), ["alpha", "gamma"]);
        // A word that nobody doubts is passed on.
        beta.take_own(&word("beta", "gamma", lab.now), lab.now);
        let lacking = beta.lacking(&[none("alpha"), none("gamma")]);
        let said: Vec<&RevokedWord> = lacking.iter().map(|(_, word)| word).collect();
        assert_eq!(said, [&word("beta", "gamma", lab.now)]);
        assert_eq!(beta.lacking(&[none("gamma")]), [], "not all the time");
    }

    #[test]
    fn what_is_there_in_words_that_count_is_not_said_again() {
        let lab = Lab::new("revoked-again");
        let beta = lab.open("beta");
        beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        let found = |until| (FoundWord::nothing_of(named("gamma")), Some(word("alpha", "gamma", until)));
        assert_eq!(beta.lacking(&[found(lab.now)]), []);
        let older = found(lab.now - Time::from_secs(60));
        assert_eq!(beta.lacking(&[older]).len(), 1, "somebody has put an older one in its place");
    }

    #[test]
    fn a_word_of_a_time_to_come_waits_for_it_and_one_of_long_ago_is_nothing() {
        let lab = Lab::new("revoked-time");
        let beta = lab.open("beta");
        let day = Time::from_secs(24 * 3600);
        let to_come = || vec![lab.said("alpha", "gamma", lab.now + 2 * day)];
        let (is_news, refused) = beta.take(to_come(), lab.now);
        assert!(!is_news && refused[0].1.contains("clock"), "{refused:?}");
        let never = Said { word: RevokedWord { until_s: u64::MAX, ..to_come().remove(0).word }, ..to_come().remove(0) };
        assert!(!beta.take(vec![never], lab.now).0);
        assert!(beta.take(to_come(), lab.now + day).0);
        let long_ago = lab.now - NODE_VALID - 2 * day;
        assert_eq!(beta.take(vec![lab.said("gamma", "alpha", long_ago)], lab.now), (false, vec![]));
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for_and_what_has_ended_gives_way() {
        let lab = Lab::new("revoked-room");
        let beta = lab.open("beta");
        let many = (0..KEPT_MAX).map(|n| lab.said("alpha", &format!("n{n}"), lab.now)).collect();
        assert!(beta.take(many, lab.now).0);
        let (is_news, refused) = beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        assert!(!is_news && refused[0].1.contains("1024"), "{refused:?}");
        beta.word_against(&named("gamma"), lab.now).unwrap_err();
        beta.word_against(&named("n7"), lab.now).unwrap();
        assert_eq!(lab.open("beta").names().len(), KEPT_MAX, "the file takes all of them");
        let later = lab.now + NODE_VALID + 2 * BEGINS_BEFORE;
        beta.word_against(&named("gamma"), later).unwrap();
        assert!(beta.take(vec![lab.said("alpha", "gamma", later)], later).0);
        assert_eq!(beta.names().len(), KEPT_MAX);
    }
}
