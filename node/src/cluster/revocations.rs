//! Whose identities count no more, because the cluster's authority has revoked them: checked, kept, and told to the other nodes.
//!
//! Invariants:
//! - A revocation counts by the signature of the cluster's authority and by nothing else: not by who has brought it, nor by where it lies.
//! - What was taken once holds for ever, whatever the coordinator shows later: it lies in the state folder (`cluster/revoked.json`), and what the
//!   coordinator lacks is put there again. It is about certificates that were made up to a time of the authority's own clock, so that no clock
//!   of a node matters, and an identity that is made afterwards is good.
//! - Links and seals refuse by [`Revoked`], which is set before anything is written or told; what goes on ends whenever that has changed.
//! - What somebody does to the keys is looked at in a task of its own, once a second at most, and each text that nobody has signed is checked once.

use super::commands::{Answer, failure};
use super::control::Cluster;
use crate::coordinator::{Coordinator, Error, Outcome};
use crate::datapath::driver::ToDriver;
use crate::failure::FailureKind;
use crate::log;
use anyhow::{Context, Result, anyhow, bail};
use forebay_api::calendar;
use forebay_api::checked::NodeName;
use forebay_api::record::VolumeId;
use forebay_host::identity::Identity;
use forebay_host::identity::ends::Due;
use forebay_host::identity::revocation::{FILE_BYTES_MAX, Revocation};
use forebay_io::certificate::Revoked;
use forebay_io::durable::write_atomically;
use forebay_io::folder::{self, Folder};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration as Time, Instant};

/// Version of the file.
const VERSION: u32 = 1;
/// So many names are kept, which fit into the file.
const KEPT_MAX: usize = 2048;
/// So many are put back into the coordinator at one look.
const PUT_BACK_MAX: usize = 16;
/// Between two looks at which any are put back.
const PUT_BACK: Time = Time::from_secs(5);
/// Between two looks.
const LOOK_PAUSE: Time = Time::from_secs(1);
/// So many texts are remembered that nobody has signed: as many as a list can have, twice.
const FORGED_MAX: usize = 1 << 15;
/// A command waits for its state folder so long.
const WRITTEN_WITHIN: Time = Time::from_secs(10);

/// The file of all of them, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptFile {
    version: u32,
    revocations: Vec<Revocation>,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<NodeName, Revocation>,
    /// Counts changes of these.
    changes: u64,
    /// The changes that the file has.
    written: u64,
    /// The changes by which links were ended.
    enforced: u64,
    put_back: Option<Instant>,
    /// Counts looks at which any were put back, so that others come first at the next.
    turns: usize,
    /// Hashes of texts that the authority has not signed.
    forged: HashSet<u64>,
}

/// What came of revocations that were found.
#[derive(Default)]
struct Taken {
    /// The names of which identities count no more that did before.
    names: Vec<NodeName>,
    /// Those that count nothing here, and why: the authority has not signed them.
    forged: Vec<(NodeName, String)>,
}

/// See the module's text.
pub(super) struct Revocations {
    path: PathBuf,
    revoked: Arc<Revoked>,
    name: NodeName,
    cluster: VolumeId,
    authority: CertificateDer<'static>,
    /// That of this very node.
    certificate: CertificateDer<'static>,
    state: Mutex<State>,
    /// Held while the file is written, which the state is not.
    writing: Mutex<()>,
    /// A thread that nobody awaits writes it, or is about to.
    is_written_later: AtomicBool,
    hasher: RandomState,
    /// Something may have changed at the coordinator.
    pub(super) changed: tokio::sync::Notify,
}

impl Revocations {
    /// What is kept in the state folder of the node with this identity.
    pub(super) fn open(state: &Path, identity: &Identity) -> Result<Arc<Revocations>> {
        let folder = state.join("cluster");
        Folder::make_all(&folder, 0o700).with_context(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join("revoked.json");
        let kept = load(&path)?;
        let revocations = Revocations {
            path,
            revoked: Arc::default(),
            name: NodeName::new(&identity.name).map_err(anyhow::Error::msg)?,
            cluster: identity.cluster_id,
            authority: identity.authority.clone(),
            certificate: identity.certificate.clone(),
            state: Mutex::default(),
            writing: Mutex::default(),
            is_written_later: AtomicBool::new(false),
            hasher: RandomState::new(),
            changed: tokio::sync::Notify::new(),
        };
        let known = kept.len();
        revocations.take(kept);
        let mut state = revocations.state();
        state.written = state.changes;
        let lost = known - state.kept.len();
        drop(state);
        if lost > 0 {
            let path = revocations.path.display();
            log::say!(
                Warning,
                "{lost} revocations in {path} are not by the authority of this node's identity, and are passed over"
            );
        }
        Ok(Arc::new(revocations))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Whose identities links and seals refuse.
    pub(super) fn revoked(&self) -> Arc<Revoked> {
        self.revoked.clone()
    }

    /// Why this node is none any more; none: it is one.
    pub(super) fn own(&self) -> Option<String> {
        let until_s = self.state().kept.get(&self.name)?.until_s;
        let (name, until) = (&self.name, shown(until_s));
        self.revoked.refuses(&self.certificate).then(|| {
            format!(
                "the identity of {name} was revoked by the cluster's authority (`forebay node revoke`, or `forget`): none of {name} that was made up to \
                 {until} counts any more, and the other nodes have no links to this one; to have {name} in the cluster, start the daemon again \
                 with a newer one, which is made by `forebay node enrol {name} --renew` where the authority is"
            )
        })
    }

    /// Takes what the authority has signed and goes before what is kept.
    fn take(&self, found: Vec<Revocation>) -> Taken {
        let is_news = |kept: &BTreeMap<NodeName, Revocation>, found: &Revocation| {
            kept.get(&found.name).is_none_or(|kept| found.goes_before(kept))
        };
        let (mut new, mut taken) = (found, Taken::default());
        new.retain(|found| is_news(&self.state().kept, found));
        new.retain(|found| match self.is_signed_by_now(found) {
            Ok(()) => true,
            Err(why) => {
                taken.forged.push((found.name.clone(), why));
                false
            }
        });
        let mut state = self.state();
        let before = state.changes;
        for revocation in new {
            let known = state.kept.get(&revocation.name).map(|kept| kept.until_s);
            if !is_news(&state.kept, &revocation) {
                continue;
            }
            if known.is_none() && state.kept.len() >= KEPT_MAX {
                taken.forged.push((revocation.name, format!("{KEPT_MAX} names are the most that a node keeps")));
                continue;
            }
            if known.is_none_or(|until_s| until_s < revocation.until_s) {
                taken.names.push(revocation.name.clone());
            }
            state.kept.insert(revocation.name.clone(), revocation);
            state.changes += 1;
        }
        if state.changes > before {
            let refused = state.kept.values().map(|kept| (kept.name.to_string(), kept.until()));
            self.revoked.set(refused.collect());
        }
        taken
    }

    /// Whether the cluster's authority has said it.
    fn is_signed(&self, revocation: &Revocation) -> Result<()> {
        revocation.check(&self.authority, self.cluster)
    }

    /// The same of what lies in the coordinator: of a text that nobody has signed that is found out once.
    fn is_signed_by_now(&self, revocation: &Revocation) -> Result<(), String> {
        let not_signed =
            || format!("the revocation of {} is not signed by the authority of this cluster", revocation.name);
        let hash = self.hasher.hash_one(revocation);
        if self.state().forged.contains(&hash) {
            return Err(not_signed());
        }
        self.is_signed(revocation).map_err(|_| {
            let forged = &mut self.state().forged;
            if forged.len() >= FORGED_MAX {
                forged.clear();
            }
            forged.insert(hash);
            not_signed()
        })
    }

    fn have_room(&self, more: &[Revocation]) -> bool {
        let state = self.state();
        let new = more.iter().filter(|revocation| !state.kept.contains_key(&revocation.name)).count();
        state.kept.len() + new <= KEPT_MAX
    }

    /// What is kept of these names.
    fn of(&self, names: &[NodeName]) -> Vec<Revocation> {
        let state = self.state();
        names.iter().filter_map(|name| state.kept.get(name)).cloned().collect()
    }

    /// Whether something has changed since this was asked last.
    fn is_to_be_enforced(&self) -> bool {
        let mut state = self.state();
        let changes = state.changes;
        std::mem::replace(&mut state.enforced, changes) != changes
    }

    /// Has a thread write the file where it lacks something; one at a time, however long that takes. True: it lacks nothing.
    fn write_later(self: &Arc<Self>) -> bool {
        let is_written = {
            let state = self.state();
            state.written == state.changes
        };
        if is_written || self.is_written_later.swap(true, Ordering::AcqRel) {
            return is_written;
        }
        let revocations = self.clone();
        tokio::task::spawn_blocking(move || {
            let written = revocations.write();
            revocations.is_written_later.store(false, Ordering::Release);
            if let Err(why) = written {
                log::say!(Error, "{why:#}; trying again");
            }
        });
        false
    }

    /// Says what is new of the revocations of these names.
    fn report(&self, names: &[NodeName]) {
        for name in names {
            let until = self.state().kept.get(name).map_or(0, |kept| kept.until_s);
            log::say!(
                Notice,
                "the cluster's authority has revoked identities of {name}: whoever has one from before {} is no node any more",
                shown(until)
            );
        }
        // What is about former identities of its own is no news to a node.
        if let Some(why) = names.contains(&self.name).then(|| self.own()).flatten() {
            log::say!(Error, "{why}");
        }
    }

    /// Writes the file where it lacks something. Blocks as long as the state folder's file system does.
    fn write(&self) -> Result<()> {
        let _writing = self.writing.lock().expect("nobody panics while holding it");
        let state = self.state();
        let changes = state.changes;
        if changes == state.written {
            return Ok(());
        }
        let file = KeptFile { version: VERSION, revocations: state.kept.values().cloned().collect() };
        drop(state);
        let text = serde_json::to_vec(&file).expect("names and numbers are JSON");
        write_atomically(&self.path, &text).context("whose identities were revoked cannot be remembered")?;
        self.state().written = changes;
        Ok(())
    }

    /// Those that were found lack these, or have older ones.
    fn lacking(&self, found: &[Revocation]) -> Vec<Revocation> {
        let found: BTreeMap<&NodeName, &Revocation> = found.iter().map(|found| (&found.name, found)).collect();
        let state = self.state();
        // Word for word: one that would go before what is kept here, and is not, is not the authority's.
        state.kept.values().filter(|kept| found.get(&kept.name) != Some(kept)).cloned().collect()
    }

    /// What is to be put into the coordinator now.
    fn put_back(&self, found: &[Revocation]) -> Vec<Revocation> {
        let mut lacking = self.lacking(found);
        let mut state = self.state();
        if lacking.is_empty() || state.put_back.is_some_and(|at| at.elapsed() < PUT_BACK) {
            return Vec::new();
        }
        state.put_back = Some(Instant::now());
        // Those that cannot be put there keep none of the others from it.
        let turn = state.turns.wrapping_mul(PUT_BACK_MAX) % lacking.len();
        state.turns = state.turns.wrapping_add(1);
        lacking.rotate_left(turn);
        lacking.truncate(PUT_BACK_MAX);
        lacking
    }
}

/// Takes what the coordinator has of this node and of all others, before this one registers. A list that is too long to be read keeps no node from
/// starting: what is said of its own name is.
pub(super) async fn look_first(coordinator: &Coordinator, revocations: &Arc<Revocations>) -> Result<(), Error> {
    look(coordinator, revocations).await.map(drop)
}

/// What lies in the coordinator, after what the authority has signed of it was taken.
async fn look(coordinator: &Coordinator, revocations: &Arc<Revocations>) -> Result<Vec<Revocation>, Error> {
    let found = match coordinator.revocations().await {
        Ok(found) => found,
        // Whoever can write there can make the list longer than anybody reads, or than comes in one answer.
        Err(_) => coordinator.revocation(&revocations.name).await?.into_iter().collect(),
    };
    let (taker, taken) = (revocations.clone(), found.clone());
    // Whoever can write to the coordinator decides how many signatures are to be checked.
    let taken = tokio::task::spawn_blocking(move || taker.take(taken)).await.unwrap_or_default();
    revocations.report(&taken.names);
    coordinator.refuse_revocations(taken.forged);
    Ok(found)
}

/// A time since 1970, for people.
fn shown(seconds: u64) -> String {
    calendar::show_ms(seconds.saturating_mul(1000))
}

fn load(path: &Path) -> Result<Vec<Revocation>> {
    const WAY_OUT: &str =
        "restore it from a backup, or remove it: this node then takes what the other nodes and the coordinator have";
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let text = folder::read_text(path, FILE_BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
    let file: KeptFile =
        serde_json::from_str(&text).with_context(|| format!("{} is damaged: {WAY_OUT}", path.display()))?;
    if file.version != VERSION {
        let (path, version) = (path.display(), file.version);
        bail!("{path} is of version {version}, this Forebay knows version {VERSION}; use a newer one");
    }
    Ok(file.revocations)
}

impl Cluster {
    /// Looks whenever something may have changed there, for ever, and as long as the coordinator or the state folder lacks something; once a second
    /// at most, whatever somebody does to the keys.
    pub(super) async fn watch_revocations(self: Arc<Cluster>) {
        loop {
            let is_settled = self.look_at_revocations().await;
            tokio::time::sleep(LOOK_PAUSE).await;
            let changed = self.revocations.changed.notified();
            match is_settled {
                true => changed.await,
                false => drop(tokio::time::timeout(PUT_BACK, changed).await),
            }
        }
    }

    /// True: the coordinator was read, and neither it nor the state folder lacked anything.
    async fn look_at_revocations(&self) -> bool {
        let Ok(found) = look(&self.coordinator, &self.revocations).await else { return false };
        self.end_revoked();
        let is_written = self.revocations.write_later();
        for lacking in self.revocations.put_back(&found) {
            // The coordinator does not answer, or not in time: the rest has time until a later look.
            if !matches!(self.put_revocation(&lacking).await, Ok(Outcome::Won | Outcome::Lost(()))) {
                break;
            }
        }
        is_written && self.revocations.lacking(&found).is_empty()
    }

    /// Ends what still goes on with an identity that counts no more.
    fn end_revoked(&self) {
        if self.revocations.is_to_be_enforced() {
            self.mail(ToDriver::EndRevoked);
        }
    }

    async fn put_revocation(&self, revocation: &Revocation) -> Result<Outcome<()>, Error> {
        let goes_before =
            |found: &Revocation| found.goes_before(revocation) && self.revocations.is_signed(found).is_ok();
        self.coordinator.put_revocation(revocation, goes_before).await
    }

    /// That this node's own identity was revoked, if it was.
    pub(super) fn revocation_due(&self) -> Option<Due> {
        self.revocations.own().map(|text| Due { is_urgent: true, text })
    }

    /// Who is none any more does not register. `Err`: it is none, or what is said of it cannot be read.
    pub(super) async fn must_not_be_revoked(&self) -> Result<(), Error> {
        let found = self.coordinator.revocation(&self.name).await?;
        let taken = self.revocations.take(found.into_iter().collect());
        self.revocations.report(&taken.names);
        self.end_revoked();
        self.revocations.own().map_or(Ok(()), |why| Err(Error::Revoked(why)))
    }

    /// What the authority has revoked counts no more from now on: here at once, whatever the coordinator does, and at the other nodes when they
    /// look there, which is at once where they reach it.
    pub async fn revoke(&self, revocations: Vec<Revocation>, by: &str) -> Answer<()> {
        for revocation in &revocations {
            if let Err(why) = self.revocations.is_signed(revocation) {
                return failure(FailureKind::Invalid, format!("{why:#}; nothing was revoked"));
            }
        }
        if !self.revocations.have_room(&revocations) {
            let message = format!("this cluster has revoked identities of {KEPT_MAX} names, which is the most");
            return failure(FailureKind::Conflict, message);
        }
        let names: Vec<NodeName> = revocations.iter().map(|revocation| revocation.name.clone()).collect();
        let said: Vec<String> =
            revocations.iter().map(|said| format!("{} up to {}", said.name, shown(said.until_s))).collect();
        let words = format!("{by}: identities of {} are revoked", said.join(", "));
        let taken = self.revocations.take(revocations);
        self.end_revoked();
        self.revocations.report(&taken.names);
        let (written, told) = tokio::join!(self.remember_revocations(), self.tell_revocations(&names));
        let noted = self.note("revoke-identity", None, &words).await;
        self.say_clients_for(&names).await;
        let missing: Vec<String> =
            [written, told, noted].into_iter().filter_map(Result::err).map(|why| format!("{why:#}")).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.revocations.changed.notify_one();
        let message = format!(
            "identities of {} are revoked at this node, but: {}. Say it again, or at another node",
            names.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", "),
            missing.join("; ")
        );
        failure(FailureKind::Failed, message)
    }

    async fn remember_revocations(&self) -> Result<()> {
        let revocations = self.revocations.clone();
        let written = tokio::task::spawn_blocking(move || revocations.write());
        let written = tokio::time::timeout(WRITTEN_WITHIN, written).await;
        written.map_err(|_| anyhow!("the state folder does not answer, so that it is not sure to last"))??
    }

    async fn tell_revocations(&self, names: &[NodeName]) -> Result<()> {
        for revocation in self.revocations.of(names) {
            match self.put_revocation(&revocation).await.context("the coordinator does not have it")? {
                // Somebody has put another one there, by which the next look goes.
                Outcome::Won | Outcome::Lost(()) => {}
                Outcome::Unknown(why) => bail!("whether the coordinator has it is not known: {why}"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::identity::Authority;
    use forebay_host::identity::revocation::Which;
    use forebay_tests::harness::TempDir;

    struct Lab {
        folder: TempDir,
        authority: Authority,
    }

    fn lab(name: &str) -> Lab {
        let folder = TempDir::new(name);
        Authority::init(&folder.join("authority"), "lab").unwrap();
        let authority = Authority::open(&folder.join("authority")).unwrap();
        Lab { folder, authority }
    }

    impl Lab {
        fn enrol(&mut self, name: &str) -> Identity {
            let path = self.folder.join(&format!("{name}.toml"));
            self.authority.enrol(name, &path, path.exists()).unwrap();
            Identity::load(&path).unwrap()
        }

        fn revoke(&mut self, name: &str) -> Revocation {
            self.authority.revoke(&[name.to_owned()], Which::All).unwrap().remove(0)
        }

        fn open(&self, node: &Identity) -> Arc<Revocations> {
            Revocations::open(&self.folder.join(&format!("state-{}", node.name)), node).unwrap()
        }
    }

    #[test]
    fn all_nodes_come_to_have_the_same_whatever_they_hear_first() {
        let mut lab = lab("revocations");
        let nodes = ["alpha", "beta"].map(|name| lab.enrol(name));
        let gamma = lab.enrol("gamma");
        let [alpha, beta] = nodes.each_ref().map(|node| lab.open(node));
        // Of one time, as whoever gives a command again has it signed; one of the two goes before the other.
        let (one, other) = (lab.revoke("gamma"), lab.revoke("gamma"));
        assert_ne!(one.goes_before(&other), other.goes_before(&one));
        assert_eq!(alpha.take(vec![one.clone()]).names, ["gamma"]);
        assert_eq!(beta.take(vec![other.clone()]).names, ["gamma"]);
        assert!(alpha.revoked().refuses(&gamma.certificate) && beta.revoked().refuses(&gamma.certificate));
        alpha.take(vec![other.clone()]);
        beta.take(vec![one.clone()]);
        let kept = alpha.lacking(&[]);
        assert_eq!(kept, beta.lacking(&[]));
        assert!(alpha.lacking(&kept).is_empty() && beta.lacking(&kept).is_empty(), "neither writes over the other");
        // What was made afterwards is good, until it is revoked, too.
        let renewed = lab.enrol("gamma");
        assert!(!alpha.revoked().refuses(&renewed.certificate));
        assert_eq!(alpha.take(vec![lab.revoke("gamma")]).names, ["gamma"]);
        assert!(alpha.revoked().refuses(&renewed.certificate));
        // An earlier one takes nothing back.
        assert!(alpha.take(vec![one, other]).names.is_empty());
        assert!(alpha.revoked().refuses(&renewed.certificate) && alpha.own().is_none());
        assert!(alpha.take(vec![lab.revoke("alpha")]).names == ["alpha"] && alpha.own().is_some());
    }

    #[test]
    fn what_the_authority_has_not_signed_is_shown_and_written_over() {
        let (mut lab, mut stranger) = (lab("revocations-forged"), lab("revocations-stranger"));
        let (alpha, _) = (lab.enrol("alpha"), lab.enrol("gamma"));
        stranger.enrol("gamma");
        let node = lab.open(&alpha);
        let forged = stranger.revoke("gamma");
        let taken = node.take(vec![forged.clone()]);
        assert!(taken.names.is_empty() && taken.forged[0].1.contains("not signed by the authority"));
        assert!(node.lacking(std::slice::from_ref(&forged)).is_empty(), "nothing is known of gamma");
        let good = lab.revoke("gamma");
        node.take(vec![good.clone()]);
        let later = Revocation { until_s: good.until_s + 100, ..good.clone() };
        for found in [&forged, &later] {
            node.take(vec![found.clone()]);
            assert_eq!(node.lacking(std::slice::from_ref(found)), std::slice::from_ref(&good));
        }
        assert_eq!(node.put_back(&[]), [good]);
        assert!(node.put_back(&[]).is_empty(), "not again at once");
    }

    #[test]
    fn what_was_taken_is_kept_and_what_is_damaged_says_so() {
        let mut lab = lab("revocations-kept");
        let (alpha, gamma) = (lab.enrol("alpha"), lab.enrol("gamma"));
        let node = lab.open(&alpha);
        node.take(vec![lab.revoke("gamma")]);
        node.write().unwrap();
        assert!(lab.open(&alpha).revoked().refuses(&gamma.certificate));
        // Another authority's node has none of these.
        let strange = self::lab("revocations-strange").enrol("alpha");
        let revoked = lab.open(&strange);
        assert!(!revoked.revoked().refuses(&gamma.certificate) && revoked.lacking(&[]).is_empty());
        std::fs::write(&node.path, "{").unwrap();
        let error = Revocations::open(&lab.folder.join("state-alpha"), &alpha).err().expect("it is damaged");
        assert!(format!("{error:#}").contains("or remove it"), "{error:#}");
    }
}
