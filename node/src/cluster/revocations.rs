//! Whose identities count no more, because the node was forgotten: what other nodes have said of that, checked and kept.
//!
//! Invariants:
//! - A word counts by the seal of another node, whose certificate is good and was not revoked. What etcd has besides is nothing.
//! - What was taken once is kept in the state folder (`cluster/revoked.json`) and holds whatever the coordinator shows later. It is about
//!   certificates that were made up to a time, so that an identity which is made afterwards is good again.
//! - Whoever was revoked revokes nobody: neither by words that come later, nor by those that come with the one about itself. Where words are
//!   against each other's nodes, nobody can tell which was first, and none of them is taken: whoever writes to the coordinator could have kept
//!   them from being read just as well, and no node is to be kept from starting by a word of one that was forgotten.
//! - A word of a time to come is nothing. One that was kept while this node's own clock was ahead is not passed on, and gives way.
//! - Links and seals refuse by [`Revoked`], which is set before the file is written, and before anybody is told.

use super::control::Cluster;
use crate::coordinator::revocations::{FoundWord, READ_TOGETHER, RevokedWord};
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
use forebay_io::certificate::{BEGINS_BEFORE, Revoked, validity};
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
/// So many are kept that one other node has said: whoever has its key does not keep operators from having nodes forgotten.
const OF_ONE_MAX: usize = 256;
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
    /// It was of a time to come when it was looked at: this node's clock was wrong when it was kept, or is. It is not passed on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    doubtful: bool,
}

impl Kept {
    fn of(word: &RevokedWord) -> Kept {
        Kept { name: word.name.clone(), until_s: word.until_s, by: word.by.clone(), doubtful: false }
    }

    fn is_to_come(&self, now: Time) -> bool {
        is_to_come(Time::from_secs(self.until_s), now)
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
#[derive(Clone)]
struct Said {
    word: RevokedWord,
    signer: CertificateDer<'static>,
}

/// A word as it was found.
pub(super) struct Looked {
    found: FoundWord,
    /// What it says, where it is one that everybody would take.
    good: Option<RevokedWord>,
    /// Nobody may take it, now or later.
    is_spoiled: bool,
}

/// Whether no node takes a word of this time yet.
fn is_to_come(until: Time, now: Time) -> bool {
    until > now.saturating_add(BEGINS_BEFORE)
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
    /// Counts changes of these.
    changes: u64,
    /// The changes that the file has.
    written: u64,
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
    /// Held while the file is written, which the state is not.
    writing: Mutex<()>,
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
        let known = kept.get(&said.word.name).filter(|known| !known.is_to_come(now));
        if is_to_come(said.word.until(), now) {
            refuse(&said, "it is of a time to come: see the clock of the node that has said it");
        } else if Kept::of(&said.word).is_over(now) {
            continue;
        } else if known.is_none_or(|known| (said.word.until_s, true) > (known.until_s, !known.doubtful)) {
            open.push(said);
        }
    }
    while !open.is_empty() {
        against.set(refusing(until.iter().map(|(name, until_s)| (name, *until_s))));
        open.retain(|said| {
            let counts = !against.refuses(&said.signer);
            if !counts {
                refuse(said, "it was sealed by an identity that was revoked");
            }
            counts
        });
        against.set(refusing(open.iter().map(|said| (&said.word.name, said.word.until_s))));
        // Those whose signer no other word is against.
        let (sure, rest): (Vec<Said>, Vec<Said>) = open.into_iter().partition(|said| !against.refuses(&said.signer));
        open = rest;
        if sure.is_empty() {
            let why = "another word is against the node that has said it, and nobody can tell which was first: have the right one forgotten at a third node";
            open.drain(..).for_each(|said| refuse(&said, why));
        }
        for said in sure {
            until.insert(said.word.name.clone(), said.word.until_s);
            judged.taken.push(Kept::of(&said.word));
        }
    }
    judged
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
            writing: Mutex::default(),
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
        let mut told = Vec::new();
        for new in taken {
            match self.keep(&mut state, new.clone(), now) {
                Ok(()) => told.push(new),
                Err(why) => refused.push((new.name, format!("{why:#}"))),
            }
        }
        for kept in state.kept.values_mut().filter(|kept| !kept.doubtful && kept.is_to_come(now)) {
            kept.doubtful = true;
            told.push(kept.clone());
        }
        if !told.is_empty() {
            self.enforce(&state);
            state.changes += 1;
        }
        drop(state);
        self.write();
        told.iter().for_each(report);
        // What is about former identities of its own is no news to a node.
        if let Some(why) = told.iter().any(|new| new.name == self.name).then(|| self.own()).flatten() {
            log::say!(Error, "{why}");
        }
        (!told.is_empty(), refused)
    }

    /// What this node itself has said, and the coordinator has.
    fn take_own(&self, word: &RevokedWord, now: Time) {
        let mut state = self.state();
        // There was room when it was said; if there is none by now, the next look at the coordinator shows it.
        if self.keep(&mut state, Kept::of(word), now).is_ok() {
            self.enforce(&state);
            state.changes += 1;
        }
        drop(state);
        self.write();
    }

    /// Room for one more. `Err`: there is none.
    fn keep(&self, state: &mut State, new: Kept, now: Time) -> Result<()> {
        if new.by != self.name {
            let others =
                state.kept.values().filter(|kept| kept.by == new.by && kept.name != new.name && !kept.is_over(now));
            if others.count() >= OF_ONE_MAX {
                bail!(
                    "this node keeps {OF_ONE_MAX} revoked names that {} has said, which is the most of one node",
                    new.by
                );
            }
        }
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
    fn write(&self) {
        let _writing = self.writing.lock().expect("nobody panics while holding it");
        let state = self.state();
        let changes = state.changes;
        if changes == state.written {
            return;
        }
        let file = KeptFile { version: VERSION, revoked: state.kept.values().cloned().collect() };
        drop(state);
        let text = serde_json::to_vec(&file).expect("names and numbers are JSON");
        match write_atomically(&self.path, &text) {
            Ok(()) => self.state().written = changes,
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
        let before = state.kept.get(name).filter(|kept| !kept.is_to_come(now)).map_or(0, |kept| kept.until_s);
        // Since this node's own identity was made it is certainly later.
        let issued = validity(&self.certificate).map_or(0, |(begin, _)| (begin + BEGINS_BEFORE).as_secs());
        if issued > now.as_secs() {
            log::say!(
                Warning,
                "this node's clock is behind that of the cluster's authority: set it right, and have {name} forgotten again"
            );
        }
        let until_s = before.max(now.as_secs()).max(issued);
        Ok(RevokedWord { version: schema::VERSION, name: name.clone(), until_s, by: self.name.clone() })
    }

    fn names(&self) -> Vec<NodeName> {
        self.state().kept.keys().cloned().collect()
    }

    /// What is to be put right of what was found: words that are to be said in its place, as nobody who does not know them yet would take that;
    /// and what is to be taken away.
    fn mend(&self, looked: &[Looked], now: Time) -> (Vec<(FoundWord, RevokedWord)>, Vec<FoundWord>) {
        if self.own().is_some() {
            return Default::default();
        }
        let mut state = self.state();
        let (mut lacking, mut spoiled) = (Vec::new(), Vec::new());
        for Looked { found, good, is_spoiled } in looked {
            let kept = state.kept.get(&found.name).filter(|kept| !kept.doubtful && !kept.is_to_come(now));
            let kept = kept.filter(|kept| kept.name != self.name);
            match (kept, good) {
                (Some(kept), Some(good)) if good.until_s >= kept.until_s => {}
                (Some(kept), _) => {
                    let (version, name, until_s) = (schema::VERSION, kept.name.clone(), kept.until_s);
                    lacking.push((found.clone(), RevokedWord { version, name, until_s, by: self.name.clone() }));
                }
                (None, _) if *is_spoiled => spoiled.push(found.clone()),
                (None, _) => {}
            }
        }
        lacking.truncate(SAID_AGAIN_MAX);
        spoiled.truncate(SAID_AGAIN_MAX);
        let is_time = state.said_again.is_none_or(|at| at.elapsed() >= SAID_AGAIN);
        if (lacking.is_empty() && spoiled.is_empty()) || !is_time {
            return Default::default();
        }
        state.said_again = Some(Instant::now());
        (lacking, spoiled)
    }

    /// What a word that was found is, by what is known now.
    fn weigh(&self, found: FoundWord, read: Option<Said>, now: Time) -> Looked {
        let Some(Said { word, signer }) = read else { return Looked { found, good: None, is_spoiled: false } };
        let state = self.state();
        let sure = Revoked::default();
        let known = state.kept.values().filter(|kept| !kept.doubtful && !kept.is_to_come(now));
        sure.set(refusing(known.map(|kept| (&kept.name, kept.until_s))));
        let is_to_come = is_to_come(word.until(), now);
        // Its own word was said while its clock was wrong.
        let is_spoiled = sure.refuses(&signer) || (is_to_come && word.by == self.name);
        let good = Some(word).filter(|_| !is_to_come && !self.revoked.refuses(&signer));
        Looked { found, good, is_spoiled }
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
        return log::say!(
            Error,
            "what {by} has said of {name} is of a time to come ({until}): the clock of this node was wrong when it took that, or is wrong now; it counts \
             here and is not passed on. With the clock right, have {name} forgotten again, and enrol it anew if it is to be a node"
        );
    }
    log::say!(
        Notice,
        "{by} has had {name} forgotten: the identity of {name} is revoked, and whoever has one from before {until} is no node any more"
    );
}

fn load(path: &Path) -> Result<Vec<Kept>> {
    const WAY_OUT: &str = "restore it from a backup, or remove it: this node then takes what the other nodes say";
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
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

/// What was found, if a node of this cluster has said it, whether that is revoked or not. None: there is nothing. `Err`: why it is nothing.
fn said_by(seals: &Seals, found: &FoundWord) -> Result<Option<Said>, String> {
    let Some((word, seal)) = found.read()? else { return Ok(None) };
    let text = word.encode();
    let signer = seals.signer(&seal, word.sealed(&[&text])).map_err(|why| format!("{why:#}"))?;
    Ok(Some(Said { word, signer }))
}

/// Reads what is said, and takes what counts. What was found of names that are kept, or that somebody has sealed a word about; and whether
/// there was something new.
pub(super) async fn look(
    coordinator: &Coordinator,
    seals: &Seals,
    revocations: &Revocations,
) -> Result<(Vec<Looked>, bool), Error> {
    let own_and_kept: BTreeSet<NodeName> = revocations.names().into_iter().chain([revocations.name.clone()]).collect();
    let listed = match coordinator.revoked_names().await? {
        Some(names) => names,
        None => coordinator.nodes().await.unwrap_or_default().into_iter().map(|entry| entry.name).collect(),
    };
    let names: BTreeSet<NodeName> = listed.into_iter().chain(own_and_kept.iter().cloned()).collect();
    let names: Vec<NodeName> = names.into_iter().collect();
    let (mut read, mut refused, mut sealed) = (Vec::new(), Vec::new(), BTreeMap::<NodeName, usize>::new());
    for names in names.chunks(READ_TOGETHER) {
        for found in coordinator.revoked_words(names).await? {
            let said = found.and_then(|found| match said_by(seals, &found) {
                Ok(said) => Ok((found, said)),
                // What stands there in place of a word that is kept is put right.
                Err(why) if own_and_kept.contains(&found.name) => {
                    refused.push((found.name.clone(), why));
                    Ok((found, None))
                }
                Err(why) => Err((found.name, why)),
            });
            match said {
                Ok((found, said)) => {
                    let count = said.as_ref().map(|said| sealed.entry(said.word.by.clone()).or_default());
                    let has_room = count.is_some_and(|count| {
                        *count += 1;
                        *count <= KEPT_MAX
                    });
                    if has_room || own_and_kept.contains(&found.name) {
                        read.push((found, said));
                    }
                }
                Err(why) => refused.push(why),
            }
        }
    }
    // Without a clock no certificate is judged either.
    let Ok(now) = identity::now() else { return Ok((Vec::new(), false)) };
    let (is_news, not_taken) = revocations.take(read.iter().filter_map(|(_, said)| said.clone()).collect(), now);
    refused.extend(not_taken);
    coordinator.refuse_revoked(refused);
    Ok((read.into_iter().map(|(found, said)| revocations.weigh(found, said, now)).collect(), is_news))
}

impl Cluster {
    /// Takes up what is said of nodes that were forgotten, and says again what somebody has taken away. False: it could not be read.
    pub(super) async fn refresh_revocations(&self) -> bool {
        // What is not known now is asked for again soon.
        let Ok((looked, is_news)) = look(&self.coordinator, &self.seals, &self.revocations).await else { return false };
        if is_news {
            self.mail(ToDriver::EndRevoked);
        }
        let Ok(now) = identity::now() else { return true };
        let (lacking, spoiled) = self.revocations.mend(&looked, now);
        // Another node may have been quicker, and what failed is tried again at a later look.
        for (found, word) in lacking {
            let Ok(seal) = self.seal_of_revoked(&word) else { break };
            if let Ok(Outcome::Won) = self.coordinator.replace_revoked(&found, &word, &seal).await {
                log::say!(
                    Notice,
                    "the coordinator did not have any more that the identity of {} is revoked, in words of a node that count: it was put back",
                    word.name
                );
            }
        }
        for found in spoiled {
            if let Ok(Outcome::Won) = self.coordinator.remove_revoked(&found).await {
                let name = found.name;
                log::say!(Notice, "the word that revoked {name} does not count, and was taken out of the coordinator");
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
    fn where_nodes_have_forgotten_each_other_no_word_is_taken_and_no_node_is_kept_out() {
        let lab = Lab::new("revoked-each-other");
        // Whoever knows nothing yet: also one of the two, which goes on.
        for name in ["alpha", "beta"] {
            let blank = lab.open(name);
            let words = || {
                vec![
                    lab.said("alpha", "gamma", lab.now),
                    lab.said("gamma", "alpha", lab.now),
                    lab.said("gamma", "beta", lab.now),
                ]
            };
            let (is_news, refused) = blank.take(words(), lab.now);
            assert!(!is_news && refused.len() == 3, "{refused:?}");
            assert!(refused.iter().all(|(_, why)| why.contains("a third node")), "{refused:?}");
            assert!(lab.refuses(&blank).is_empty() && blank.own().is_none());
            // What a third one says, which nobody doubts, settles it.
            let third =
                Said { word: word("delta", "gamma", lab.now), signer: lab.identity("beta").certificate.clone() };
            let settled = vec![third, lab.said("gamma", "alpha", lab.now)];
            assert!(blank.take(settled, lab.now).0);
            assert_eq!(lab.refuses(&blank), ["gamma"]);
        }
    }

    #[test]
    fn words_of_who_is_known_to_be_revoked_are_taken_away() {
        let lab = Lab::new("revoked-spoiled");
        let beta = lab.open("beta");
        beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        let looked = |by: &str, name: &str, until| {
            beta.weigh(FoundWord::nothing_of(named(name)), Some(lab.said(by, name, until)), lab.now)
        };
        let (lacking, spoiled) =
            beta.mend(&[looked("gamma", "alpha", lab.now), looked("alpha", "gamma", lab.now)], lab.now);
        assert_eq!(lacking, []);
        assert_eq!(spoiled, [FoundWord::nothing_of(named("alpha"))]);
        // One of a node that is none of those stays, and so does nothing at all.
        let gamma = lab.open("gamma");
        let word =
            gamma.weigh(FoundWord::nothing_of(named("alpha")), Some(lab.said("beta", "alpha", lab.now)), lab.now);
        let nothing = gamma.weigh(FoundWord::nothing_of(named("beta")), None, lab.now);
        assert_eq!(gamma.mend(&[word, nothing], lab.now), (vec![], vec![]));
    }

    #[test]
    fn what_is_there_in_words_that_count_is_not_said_again() {
        let lab = Lab::new("revoked-again");
        let beta = lab.open("beta");
        beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now);
        let found =
            |until| beta.weigh(FoundWord::nothing_of(named("gamma")), Some(lab.said("alpha", "gamma", until)), lab.now);
        let again = |found: Looked| {
            beta.state().said_again = None;
            beta.mend(&[found], lab.now).0.into_iter().map(|(_, word)| word).collect::<Vec<_>>()
        };
        let own = [word("beta", "gamma", lab.now)];
        assert_eq!(again(found(lab.now)), []);
        assert_eq!(again(found(lab.now - Time::from_secs(60))), own, "somebody has put an older one in its place");
        assert_eq!(again(found(lab.now + 2 * BEGINS_BEFORE)), own, "nobody takes that one yet");
        assert_eq!(again(beta.weigh(FoundWord::nothing_of(named("gamma")), None, lab.now)), own);
        let nothing = beta.weigh(FoundWord::nothing_of(named("gamma")), None, lab.now);
        assert_eq!(beta.mend(&[nothing], lab.now), (vec![], vec![]), "not all the time");
    }

    #[test]
    fn a_word_that_was_said_while_the_clock_was_ahead_is_not_passed_on_and_gives_way() {
        let lab = Lab::new("revoked-ahead");
        let year = Time::from_secs(365 * 24 * 3600);
        let alpha = lab.open("alpha");
        let ahead = alpha.word_against(&named("gamma"), lab.now + year).unwrap();
        alpha.take_own(&ahead, lab.now + year);
        // The clock is right again; and a year later the word is still none to pass on.
        let said = || Some(Said { word: ahead.clone(), signer: lab.identity("alpha").certificate.clone() });
        let nothing = |now| alpha.weigh(FoundWord::nothing_of(named("gamma")), None, now);
        for now in [lab.now, lab.now + year] {
            alpha.take(vec![], now);
            alpha.state().said_again = None;
            assert_eq!(alpha.mend(&[nothing(now)], now), (vec![], vec![]));
        }
        // The node takes its own word away that nobody takes yet; another one leaves it.
        let mended = |at: &Revocations| {
            at.state().said_again = None;
            at.mend(&[at.weigh(FoundWord::nothing_of(named("gamma")), said(), lab.now)], lab.now)
        };
        assert_eq!(mended(&alpha), (vec![], vec![FoundWord::nothing_of(named("gamma"))]));
        assert_eq!(mended(&lab.open("beta")), (vec![], vec![]));
        // What is said with a clock that is right holds in its place, here and where another node says it.
        assert_eq!(alpha.word_against(&named("gamma"), lab.now).unwrap().until(), Time::from_secs(lab.now.as_secs()));
        assert!(alpha.take(vec![lab.said("beta", "gamma", lab.now)], lab.now).0);
        assert_eq!(alpha.state().kept[&named("gamma")], Kept::of(&word("beta", "gamma", lab.now)));
        assert_eq!(lab.refuses(&alpha), ["gamma"]);
        // And one that is behind does not say less than that the node's own identity is there.
        let behind = alpha.word_against(&named("beta"), lab.now - year).unwrap();
        assert!(behind.until() + Time::from_secs(60) > lab.now, "{behind:?}");
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
        assert_eq!(beta.take(vec![lab.said("gamma", "alpha", long_ago)], lab.now + day), (false, vec![]));
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for_and_what_has_ended_gives_way() {
        let lab = Lab::new("revoked-room");
        let beta = lab.open("beta");
        let of = |by: usize, name: String| {
            let signer = lab.identity("alpha").certificate.clone();
            Said { word: word(&format!("s{by}"), &name, lab.now), signer }
        };
        // One node alone does not fill it.
        let (_, refused) = beta.take((0..KEPT_MAX).map(|n| of(0, format!("n{n}"))).collect(), lab.now);
        assert_eq!((beta.names().len(), refused.len()), (OF_ONE_MAX, KEPT_MAX - OF_ONE_MAX));
        assert!(refused[0].1.contains("s0"), "{refused:?}");
        assert!(beta.take(vec![lab.said("alpha", "gamma", lab.now)], lab.now).0, "another one says what it has to say");
        assert_eq!(lab.refuses(&beta), ["gamma"]);
        for by in 1..5 {
            beta.take((0..OF_ONE_MAX).map(|n| of(by, format!("n{by}x{n}"))).collect(), lab.now);
        }
        assert_eq!(beta.names().len(), KEPT_MAX);
        let (is_news, refused) = beta.take(vec![of(9, "late".into())], lab.now);
        assert!(!is_news && refused[0].1.contains("1024"), "{refused:?}");
        beta.word_against(&named("late"), lab.now).unwrap_err();
        beta.word_against(&named("gamma"), lab.now).unwrap();
        assert_eq!(lab.open("beta").names().len(), KEPT_MAX, "the file takes all of them");
        let later = lab.now + NODE_VALID + 2 * BEGINS_BEFORE;
        beta.word_against(&named("late"), later).unwrap();
        assert!(beta.take(vec![lab.said("alpha", "late", later)], later).0);
        assert_eq!(beta.names().len(), KEPT_MAX);
    }
}
