//! Who says who is who: the records of all volumes, their definitions, the nodes, and the audit log, in a coordinator.
//!
//! `docs/protocol.md` has the rules (C1 to C4) and the keys. Decisions are core's; here a record is read, and changed by
//! comparison.
//!
//! Invariants:
//! - Each transaction compares the cluster's identity as well: a wrong etcd, or an empty one, is refused and not written to.
//! - A read is linearizable. What it finds is judged against what this node has seen before (C3, [`memory`]) and remembered
//!   durably before it is told.
//! - A commit compares the whole record and writes one whose number has grown (C1). One whose answer is lost or slow is decided by what the
//!   record is by then, if it is another one than was compared with; else it is [`Outcome::Unknown`] and is not repeated here (C2).
//! - A watch is a hint. Nobody may rely on it.
//! - **Who writes there is a stranger** until what was written has been checked ([`forebay_api::checked`], `limits`). A value that cannot be one is
//!   passed over where others of its kind are usable, shown with its key ([`Coordinator::refused`]), and never a reason to end.

pub mod answers;
pub mod clients;
pub mod commands;
pub mod ended_terms;
pub mod etcd;
mod limits;
pub mod link_asks;
pub mod memory;
mod refused;
pub mod requests;
pub mod revocations;
mod rewinds;
pub mod schema;
pub mod store;
#[cfg(test)]
mod tests;

use crate::log;
use crate::names;
use clients::ClientsWord;
use etcd::health::Trouble;
use forebay_api::checked::{NodeName, shown};
use forebay_api::record::VolumeId;
use forebay_core::cluster::{KnownRewinds, RewindId};
use forebay_core::types::Instant;
use forebay_host::seals::Seal;
use forebay_io::clock;
use forebay_io::machine::random_bytes;
use memory::{Memory, Refusal};
use refused::Refused;
use schema::{AuditLine, ClusterIdentity, Definition, Document, Load, NodeEntry, RewindMark, Settings, StoredRecord};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use store::{Answer, Changed, Changes, Compare, Entry, Failure, Operation, Read, Store, Transaction};

/// Bytes of a list: what Forebay writes below one prefix has a few.
const LISTED_BYTES_MAX: usize = 32 << 20;
/// Entries of one page of a list.
const PAGE_ENTRIES: usize = 128;
/// Most entries of one list. A cluster has hundreds; more was put there by somebody else, and is not taken.
const LISTED_MAX: usize = 16_384;
/// Comparisons that are tried again, each time because another node was quicker.
const ATTEMPTS_MAX: usize = 16;
/// Whoever watches is told to look at everything so often: a hint that got lost costs this time, not more.
pub const WATCH_REFRESH: Duration = Duration::from_secs(10);

/// A change of a record that has no answer for so long is looked for in the record.
const ANSWER_AWAITED: Duration = Duration::from_millis(300);
/// One such look has so long: it is longer than a connection over a slow way takes.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// Between two of them, and twice as long after each that had no answer.
const LOOK_PAUSE: Duration = Duration::from_millis(300);

/// The coordinator of one cluster, as this node sees it.
pub struct Coordinator {
    store: Store,
    identity: ClusterIdentity,
    memory: Memory,
    prefix: String,
    refused: Refused,
    mark: Mutex<Mark>,
}

/// What the coordinator itself says of that it went back (C6).
#[derive(Clone, Debug, Default)]
struct Mark {
    /// The value of the key as it was found last; none: there is no such key.
    text: Option<String>,
    /// Of what [`Store::rewinds_seen`] has counted, so many are noticed.
    store_rewinds: u32,
    /// What this process has written there: what others have put in its place by then is not written over again.
    written: Vec<RewindId>,
}

/// Why the coordinator gave no answer that can be used. A change that fails with one has had no effect, and will have none;
/// [`Error::WentBack`] says that what is there must not be trusted.
#[derive(Debug)]
pub enum Error {
    /// It cannot be reached, or has no majority.
    Unreachable(String),
    /// It does not let us in.
    Denied(String),
    /// It was not asked: this node is none of the cluster any more.
    Revoked(String),
    /// What answers is the coordinator of another cluster.
    OtherCluster(String),
    /// What answers does not know our cluster.
    NoCluster {
        /// It was found before: this is another coordinator, or one that went back in time.
        joined: bool,
    },
    /// A value that this code would not have written.
    Damaged {
        /// The key that has the value.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no volume of this identity.
    NoVolume(VolumeId),
    /// The record is older than one that was seen, or contradicts it (C3): no change of this volume until the operator has
    /// had it written anew.
    WentBack {
        /// The volume whose record it is.
        volume: VolumeId,
        /// What this node has seen.
        seen: Box<Option<StoredRecord>>,
        /// What the coordinator shows now.
        found: Box<Option<StoredRecord>>,
    },
    /// What was found could not be remembered, so it is not used.
    NotRemembered(anyhow::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |kept: &Option<StoredRecord>| match kept {
            None => "no record".to_owned(),
            Some(kept) => format!("term {}, epoch {}", kept.number().0.0, kept.number().1.0),
        };
        match self {
            Error::Unreachable(why) => write!(f, "the coordinator gives no answer: {why}"),
            Error::Denied(why) => write!(f, "the coordinator does not let this node in: {why}; check [cluster] user and certificates"),
            Error::Revoked(why) => f.write_str(why),
            Error::OtherCluster(found) => write!(
                f,
                "the coordinator is that of another cluster ({found}); check [cluster] etcd, and that this node's identity is of this cluster"
            ),
            Error::NoCluster { joined: false } => f.write_str("the coordinator does not know this cluster; no node has joined it yet"),
            Error::NoCluster { joined: true } => f.write_str(
                "the coordinator does not know this cluster, which this node has joined before: [cluster] etcd leads to another one, \
                 or it was emptied or restored from a backup; point it to the right one, or restore a newer backup",
            ),
            Error::Damaged { key, why } => write!(
                f,
                "{} in the coordinator cannot be used: {why}; see who can write there besides Forebay, and remove the key or restore it",
                shown(key)
            ),
            Error::NoVolume(volume) => write!(f, "the coordinator has no volume {}", names::shown(*volume)),
            Error::WentBack { volume, seen, found } => write!(
                f,
                "the coordinator went back in time: this node has seen {} of volume {}, and now there is {}. It was restored from a \
                 backup, or is another one. Nothing is changed until an operator has had the record written anew",
                number(seen),
                names::shown(*volume),
                number(found)
            ),
            Error::NotRemembered(error) => write!(f, "what the coordinator says cannot be remembered in the state folder: {error:#}"),
        }
    }
}

impl std::error::Error for Error {}

/// How a change at the coordinator ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome<T> {
    /// It is done, and durable there.
    Won,
    /// It is not done, and never will be: this is there. It may be what was to be written: an earlier attempt, whose fate was
    /// unknown, has written it then.
    Lost(T),
    /// It may be done, or be done later (C2); the text says what happened.
    Unknown(String),
}

/// What a transaction came to, once it is our cluster's.
enum Asked {
    /// Its comparisons held, and it has changed something.
    Changed,
    /// What a read has found, or what is there instead of what a change has compared with.
    Found(Answer),
    /// It may have changed something (C2).
    Unknown(String),
}

/// What the name of a new volume led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Occupied {
    /// A volume of this name exists.
    Name(String),
    /// A volume with this identity exists, or has existed.
    Identity,
}

/// How a node's registration ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Registered {
    /// It is known, as given.
    Done,
    /// Another node has this name: another number, or the same identity on another machine.
    NameTaken(NodeEntry),
    /// Another node has this number.
    NumberTaken(NodeName),
    /// It may be known (C2).
    Unknown(String),
}

/// What may have changed at the coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// The record of this volume.
    Record(VolumeId),
    /// The definition of this volume.
    Definition(VolumeId),
    /// Nodes have come, gone or said something, or are to be evacuated.
    Nodes,
    /// Identities of nodes were revoked.
    Revoked,
    /// An owner has told how its volumes are.
    Told,
    /// A node is asked for something.
    Call,
    /// A node has been answered.
    Answer,
    /// A node is asked what it sees.
    Ask,
    /// Nothing that anybody waits for.
    Nothing,
    /// Anything may have changed: what was missed is not known.
    Everything,
}

/// Hints, until it is dropped.
pub struct Watch {
    changes: Changes,
    prefix: String,
}

impl Watch {
    /// The next hint, after [`WATCH_REFRESH`] at the latest. Nothing is lost when it is not waited for to the end.
    pub async fn next(&mut self) -> Hint {
        match tokio::time::timeout(WATCH_REFRESH, self.changes.recv()).await {
            Ok(Some(Changed::Key(key))) => hint(key.strip_prefix(&self.prefix).unwrap_or_default()),
            Ok(Some(Changed::Anything)) | Err(_) => Hint::Everything,
            Ok(None) => {
                // Its store has gone; who still waits is not to spin.
                tokio::time::sleep(WATCH_REFRESH).await;
                Hint::Everything
            }
        }
    }
}

fn hint(key: &str) -> Hint {
    let volume = |text: &str| VolumeId::try_from(text.to_owned()).ok();
    match key.split_once('/') {
        // What it belongs to has changed with it.
        Some(("seal", key)) => hint(key),
        Some(("nonce", _)) => Hint::Nothing,
        Some(("record", id)) => volume(id).map_or(Hint::Everything, Hint::Record),
        Some(("definition", id)) => volume(id).map_or(Hint::Everything, Hint::Definition),
        Some(("node" | "load" | "leaving", _)) => Hint::Nodes,
        Some((revocations::KIND, _)) => Hint::Revoked,
        Some(("told", _)) => Hint::Told,
        Some(("call", _)) => Hint::Call,
        Some(("answer" | "seen", _)) => Hint::Answer,
        Some(("ask", _)) => Hint::Ask,
        _ => Hint::Everything,
    }
}

/// A line for the audit log under a key of its own, so that writing it twice leaves one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Audit {
    key: String,
    line: AuditLine,
}

impl Audit {
    /// A line with a key of its own, which is drawn at random.
    pub fn new(line: AuditLine) -> anyhow::Result<Audit> {
        let mut random = [0; 8];
        random_bytes(&mut random)?;
        Ok(Audit { key: format!("audit/{:016x}-{:016x}", line.at_ms, u64::from_be_bytes(random)), line })
    }
}

fn equals(key: String, value: String) -> Compare {
    Compare { key, value: Some(value) }
}

fn absent(key: String) -> Compare {
    Compare { key, value: None }
}

fn value_of(found: &[Entry]) -> Option<&str> {
    found.first().map(|(_, value)| value.as_str())
}

impl Coordinator {
    /// Names the coordinator; asks it nothing yet.
    pub fn new(store: Store, identity: ClusterIdentity, memory: Memory) -> Coordinator {
        let prefix = format!("/forebay/{}/", identity.name);
        Coordinator { store, identity, memory, prefix, refused: Refused::default(), mark: Mutex::default() }
    }

    fn key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    fn record_key(&self, volume: VolumeId) -> String {
        self.key(&format!("record/{volume}"))
    }

    fn definition_key(&self, volume: VolumeId) -> String {
        self.key(&format!("definition/{volume}"))
    }

    fn name_key(&self, name: &str) -> String {
        self.key(&format!("name/{name}"))
    }

    fn node_key(&self, name: &str) -> String {
        self.key(&format!("node/{name}"))
    }

    fn number_key(&self, entry: &NodeEntry) -> String {
        self.key(&format!("number/{:016x}", entry.node().0))
    }

    fn put_audit(&self, audit: &Audit) -> Operation {
        Operation::Put { key: self.key(&audit.key), value: audit.line.encode() }
    }

    // --- the cluster ---

    /// Makes sure that this is our cluster's coordinator; the first node makes its mark there. A node that has found it once never
    /// makes the mark again.
    pub async fn join(&self) -> Result<(), Error> {
        let joined = self.memory.joined().map_err(Error::NotRemembered)?;
        if let Some(other) = joined.as_ref().filter(|known| **known != self.identity) {
            return Err(Error::OtherCluster(format!("this state folder belongs to {} ({})", other.name, other.id)));
        }
        if joined.is_none() {
            let first = Transaction {
                compare: vec![absent(self.key("identity"))],
                then: vec![
                    Operation::Put { key: self.key("identity"), value: self.identity.encode() },
                    Operation::Put { key: self.key("settings"), value: Settings::default().encode() },
                ],
                otherwise: vec![],
            };
            // Whether it was made now, before, or by another node: the question below tells.
            match self.store.transact(&first, None).await {
                Ok(_) | Err(Failure::Unknown(_)) => {}
                Err(Failure::Nothing(why)) => return Err(Error::Unreachable(why)),
                Err(Failure::Denied(why)) => return Err(Error::Denied(why)),
            }
        }
        self.look(vec![]).await?;
        self.memory.join(&self.identity).map_err(Error::NotRemembered)
    }

    /// What all nodes must agree on.
    pub async fn settings(&self) -> Result<Settings, Error> {
        let key = self.key("settings");
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        let text = value_of(&found[0]);
        text.map_or_else(
            || Err(Error::Damaged { key: key.clone(), why: "it is gone".into() }),
            |text| self.decode(&key, text),
        )
    }

    /// Carries out a transaction if this is our cluster.
    async fn ask(&self, transaction: Transaction) -> Result<Asked, Error> {
        self.ask_by(transaction, None).await
    }

    /// The same of one that is not sent after an instant, if one is given.
    async fn ask_by(&self, mut transaction: Transaction, leaves_by: Option<Instant>) -> Result<Asked, Error> {
        let identity = self.key("identity");
        transaction.compare.insert(0, equals(identity.clone(), self.identity.encode()));
        transaction.otherwise.insert(0, Read::Key(identity));
        self.memory.write_the_rest().map_err(Error::NotRemembered)?;
        let sent = clock::now();
        let transacted = self.store.transact(&transaction, leaves_by).await;
        let counted = self.count_rewinds(sent);
        let mut answer = match transacted {
            // It is done, or may be: no error says that it is not.
            Ok(Answer { held: true, .. })
                if transaction.changes()
                    && let Err(error) = &counted =>
            {
                return Ok(Asked::Unknown(error.to_string()));
            }
            Err(Failure::Unknown(why)) => return Ok(Asked::Unknown(why)),
            _ if counted.is_err() => return Err(counted.expect_err("it was not remembered")),
            Ok(answer) if answer.held && transaction.changes() => return Ok(Asked::Changed),
            Ok(answer) if answer.held => return Ok(Asked::Found(answer)),
            Ok(answer) => answer,
            Err(Failure::Nothing(why)) => return Err(Error::Unreachable(why)),
            Err(Failure::Denied(why)) => return Err(Error::Denied(why)),
        };
        match value_of(&answer.found.remove(0)) {
            // Nothing else was compared, so this cannot be why; what such an answer says besides is worth nothing.
            Some(found) if found == self.identity.encode() && transaction.compare.len() == 1 => {
                Err(Error::Damaged { key: self.key("identity"), why: "the answer contradicts itself".into() })
            }
            Some(found) if found == self.identity.encode() => Ok(Asked::Found(answer)),
            Some(found) => Err(Error::OtherCluster(match ClusterIdentity::decode(found) {
                Ok(other) => format!("{} with the identity {}", shown(&other.name), other.id),
                Err(why) => why,
            })),
            None => Err(Error::NoCluster { joined: self.memory.joined().ok().flatten().is_some() }),
        }
    }

    /// An answer was of an older state than one before, whatever it was about.
    fn count_rewinds(&self, sent: Instant) -> Result<(), Error> {
        let seen = self.store.rewinds_seen();
        let mut mark = self.mark.lock().expect("nothing panics while it is held");
        if seen > mark.store_rewinds {
            mark.store_rewinds = seen;
            log::say!(
                Notice,
                "etcd shows an older state than before, or is another one: it was restored from a backup"
            );
            // Whether it is on the medium is asked below.
            let _ = self.memory.name_rewind(sent);
        }
        // Another question may have been answered meanwhile that could not be noted down.
        self.memory.write_the_rest().map_err(Error::NotRemembered)
    }

    /// Reads, linearizably and at one moment.
    async fn look(&self, reads: Vec<Read>) -> Result<Vec<Vec<Entry>>, Error> {
        let then = reads.into_iter().map(Operation::Read).collect();
        match self.ask(Transaction { compare: vec![], then, otherwise: vec![] }).await? {
            Asked::Found(answer) => Ok(answer.found),
            Asked::Changed => unreachable!("it changes nothing"),
            Asked::Unknown(why) => Err(Error::Unreachable(why)),
        }
    }

    fn decode<T: Document>(&self, key: &str, text: &str) -> Result<T, Error> {
        T::decode(text).map_err(|why| Error::Damaged { key: key.to_owned(), why })
    }

    /// All values below a prefix that are usable. What is not is shown, and keeps nobody from the others.
    async fn list<T: Document>(&self, below: &str) -> Result<Vec<T>, Error> {
        Ok(self.list_usable(below).await?.0)
    }

    /// The same, and whether all of them are.
    async fn list_usable<T: Document>(&self, below: &str) -> Result<(Vec<T>, bool), Error> {
        let prefix = self.key(below);
        let (mut all, mut refused) = (Vec::new(), Vec::new());
        for (key, text) in self.entries(&prefix).await? {
            match T::decode(&text) {
                Ok(value) if key.strip_prefix(&prefix).is_some_and(|end| value.is_at(end)) => all.push(value),
                Ok(_) => refused.push((key, "it speaks of something else than its key: remove it".to_owned())),
                Err(why) => refused.push((key, why)),
            }
        }
        let is_whole = refused.is_empty();
        self.refused.set(&prefix, refused);
        Ok((all, is_whole))
    }

    /// The same, and an error if one of them cannot be used: for who must not pass one over.
    async fn list_whole<T: Document>(&self, below: &str) -> Result<Vec<T>, Error> {
        let all = self.list(below).await?;
        match self.refused.first(&self.key(below)) {
            Some((key, why)) => Err(Error::Damaged { key, why }),
            None => Ok(all),
        }
    }

    /// What lies below a prefix. Where that is more than anybody needs, it is shown with what cannot be used.
    async fn entries(&self, prefix: &str) -> Result<Vec<Entry>, Error> {
        let read = self.read_entries(prefix).await;
        let look = format!("all of {prefix}");
        match &read {
            Err(Error::Damaged { key, why }) => self.refused.set(&look, vec![(key.clone(), why.clone())]),
            Ok(_) => self.refused.set(&look, Vec::new()),
            Err(_) => {}
        }
        read
    }

    /// Page by page: each page is of one moment, the whole is not.
    async fn read_entries(&self, prefix: &str) -> Result<Vec<Entry>, Error> {
        let (mut all, mut bytes): (Vec<Entry>, usize) = (Vec::new(), 0);
        loop {
            let after = all.last().map(|(key, _)| key.clone());
            let read = Read::Prefix { prefix: prefix.to_owned(), after: after.clone(), most: PAGE_ENTRIES };
            let page = self.look(vec![read]).await?.remove(0);
            let (whole, ends) = (page.len() >= PAGE_ENTRIES, page.last().map(|(key, _)| key.clone()));
            bytes += page.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            if bytes > LISTED_BYTES_MAX {
                let why = format!("more than {} MiB lie there", LISTED_BYTES_MAX >> 20);
                return Err(Error::Damaged { key: prefix.to_owned(), why });
            }
            all.extend(page);
            // A key that is no text is told as another one, behind which the same page would begin again.
            if whole && (ends <= after || all.len() > LISTED_MAX) {
                let why = format!("there are more than {LISTED_MAX} keys, or some that are no text");
                return Err(Error::Damaged { key: prefix.to_owned(), why });
            }
            if !whole {
                return Ok(all);
            }
        }
    }

    /// Volumes whose definitions are not used here as they are written, although each by itself could be, and why: all that one look has
    /// found.
    pub fn refuse(&self, look: &str, volumes: Vec<(VolumeId, String)>) {
        self.refused.set(look, volumes.into_iter().map(|(volume, why)| (self.definition_key(volume), why)).collect());
    }

    /// What is registered under this name is not used here, and why; none: it is.
    pub fn refuse_node(&self, name: &NodeName, why: Option<String>) {
        self.refused.set("names", why.into_iter().map(|why| (self.node_key(name), why)).collect());
    }

    /// Keys of this cluster whose values cannot be used, and why: as of the last look at each.
    pub fn refused(&self) -> Vec<(String, String)> {
        self.refused.all()
    }

    // --- records ---

    /// Judges the record that was found, and remembers it.
    fn take(
        &self,
        volume: VolumeId,
        before: Option<&StoredRecord>,
        text: Option<&str>,
    ) -> Result<Option<StoredRecord>, Error> {
        let found = text.map(|text| self.decode::<StoredRecord>(&self.record_key(volume), text)).transpose()?;
        match self.memory.take(volume, before, found.as_ref()) {
            Ok(()) => Ok(found),
            Err(Refusal::WentBack(seen)) => {
                Err(Error::WentBack { volume, seen: Box::new(seen), found: Box::new(found) })
            }
            Err(Refusal::NotRemembered(error)) => Err(Error::NotRemembered(error)),
        }
    }

    /// The record of a volume.
    pub async fn record(&self, volume: VolumeId) -> Result<StoredRecord, Error> {
        let found = self.find_record(volume).await;
        if matches!(found, Ok(_) | Err(Error::WentBack { .. } | Error::NotRemembered(_) | Error::Damaged { .. })) {
            self.publish_rewinds().await;
        }
        found?.ok_or(Error::NoVolume(volume))
    }

    /// The same, and nothing is written there.
    async fn find_record(&self, volume: VolumeId) -> Result<Option<StoredRecord>, Error> {
        let before = self.memory.seen(volume);
        let found = self.look(vec![Read::Key(self.record_key(volume)), Read::Key(self.mark_key())]).await?;
        self.on_mark(value_of(&found[1]))?;
        self.take(volume, before.as_ref(), value_of(&found[0]))
    }

    // --- a coordinator that went back (C6) ---

    fn mark_key(&self) -> String {
        self.key("rewinds")
    }

    /// What other nodes have written down there.
    fn on_mark(&self, text: Option<&str>) -> Result<(), Error> {
        let mark = text.map(|text| self.decode::<RewindMark>(&self.mark_key(), text)).transpose()?;
        let ids: Vec<RewindId> = mark.iter().flat_map(RewindMark::rewinds).collect();
        for id in &ids {
            self.memory.notice_rewind(*id).map_err(Error::NotRemembered)?;
        }
        self.memory.are_told(&ids).map_err(Error::NotRemembered)?;
        self.mark.lock().expect("nothing panics while it is held").text = text.map(str::to_owned);
        Ok(())
    }

    /// Whoever knows that it went back, and has not heard all nodes since, writes that down there: so a node hears of it also where it
    /// hears no other one. What fails is tried again at the next look.
    async fn publish_rewinds(&self) {
        let Mark { text: shown, written, .. } = self.mark.lock().expect("nothing panics while it is held").clone();
        let mut open = self.memory.open_rewinds();
        open.retain(|id| id.is_name() && !written.contains(id));
        let found = shown.as_deref().and_then(|text| RewindMark::decode(text).ok());
        // Named here, and told of even where this node has seen nothing of any volume that lasts.
        let named: Vec<RewindId> = self.memory.untold_rewinds().into_iter().filter(|id| !open.contains(id)).collect();
        open.extend(named);
        let Some(text) = RewindMark::with(found.as_ref(), &open).map(|mark| mark.encode()) else { return };
        let transaction = Transaction {
            compare: vec![Compare { key: self.mark_key(), value: shown }],
            then: vec![Operation::Put { key: self.mark_key(), value: text.clone() }],
            otherwise: vec![],
        };
        if let Ok(Asked::Changed) = self.ask(transaction).await {
            let mut mark = self.mark.lock().expect("nothing panics while it is held");
            mark.text = Some(text);
            // What cannot be noted down is told once more.
            let _ = self.memory.are_told(&open);
            mark.written.extend(open);
        }
    }

    /// Times that it is known to have gone back, since which not all nodes were heard of some volume.
    pub fn open_rewinds(&self) -> Vec<RewindId> {
        self.memory.open_rewinds()
    }

    /// What is known of coordinators that went back, as far as this volume is concerned.
    pub fn rewinds(&self, volume: VolumeId) -> KnownRewinds {
        self.memory.rewinds(volume)
    }

    /// This volume's ownership has noticed that it went back, as the answer to a question of then.
    pub fn name_rewind(&self, volume: VolumeId, sent: Instant) -> (RewindId, anyhow::Result<()>) {
        let (id, kept) = self.memory.name_rewind(sent);
        (id, kept.and(self.memory.remember_rewind(volume, id)))
    }

    /// This volume's ownership has heard of one; durable before it is told to others.
    pub fn remember_rewind(&self, volume: VolumeId, id: RewindId) -> anyhow::Result<()> {
        self.memory.remember_rewind(volume, id)
    }

    /// It has heard all nodes since.
    pub fn remember_settled(&self, volume: VolumeId, id: RewindId) -> anyhow::Result<()> {
        self.memory.remember_settled(volume, id)
    }

    /// Changes the record from what was read to what shall be (C1), with a line in the audit log where an operator wants it.
    pub async fn commit(
        &self,
        volume: VolumeId,
        from: &StoredRecord,
        to: &StoredRecord,
        audit: Option<&Audit>,
        leaves_by: Option<Instant>,
    ) -> Result<Outcome<StoredRecord>, Error> {
        assert!(to.number() > from.number(), "a change of the record grows its number (C1): {from:?} to {to:?}");
        // A record newer than `from` was committed, so this comparison can hold only where time went back (C3).
        if self.memory.seen(volume).is_some_and(|seen| seen.number() > from.number()) {
            return self.record(volume).await.map(Outcome::Lost);
        }
        self.write_record(volume, Some(from), to, audit, leaves_by).await
    }

    /// Writes the record anew by the operator's word, after the coordinator went back in time (C3): `found` is what is there, and
    /// `to` is newer than all that was seen.
    pub async fn write_anew(
        &self,
        volume: VolumeId,
        found: Option<&StoredRecord>,
        to: &StoredRecord,
        audit: &Audit,
        leaves_by: Option<Instant>,
    ) -> Result<Outcome<StoredRecord>, Error> {
        let newest = self.memory.seen(volume).iter().chain(found).map(StoredRecord::number).max();
        assert!(
            newest.is_none_or(|newest| to.number() > newest),
            "a record that is written anew is the newest: {to:?}"
        );
        self.write_record(volume, found, to, Some(audit), leaves_by).await
    }

    async fn write_record(
        &self,
        volume: VolumeId,
        from: Option<&StoredRecord>,
        to: &StoredRecord,
        audit: Option<&Audit>,
        leaves_by: Option<Instant>,
    ) -> Result<Outcome<StoredRecord>, Error> {
        let key = self.record_key(volume);
        // What no node would read is not written: not even this one would, after its next start.
        if let Err(why) = StoredRecord::decode(&to.encode()) {
            return Err(Error::Damaged { key, why });
        }
        let put = Operation::Put { key: key.clone(), value: to.encode() };
        let transaction = Transaction {
            compare: vec![Compare { key: key.clone(), value: from.map(StoredRecord::encode) }, self.as_marked()],
            then: std::iter::once(put).chain(audit.map(|audit| self.put_audit(audit))).collect(),
            otherwise: vec![Read::Key(key), Read::Key(self.mark_key())],
        };
        self.change_record(volume, transaction, from, to, leaves_by).await
    }

    /// C6: a node that has not heard that the coordinator went back changes nothing.
    fn as_marked(&self) -> Compare {
        let mark = self.mark.lock().expect("nothing panics while it is held").text.clone();
        Compare { key: self.mark_key(), value: mark }
    }

    /// Carries out a change of the record; what is read otherwise is the record and the mark.
    async fn change_record(
        &self,
        volume: VolumeId,
        transaction: Transaction,
        from: Option<&StoredRecord>,
        to: &StoredRecord,
        leaves_by: Option<Instant>,
    ) -> Result<Outcome<StoredRecord>, Error> {
        let before = self.memory.seen(volume);
        let asked = tokio::select! {
            biased;
            asked = self.ask_by(transaction, leaves_by) => asked?,
            // Its answer is lost, or slow; what it was to be compared with is gone, so it is decided.
            found = self.await_decided(volume, from) => {
                return Ok(if found == *to { Outcome::Won } else { Outcome::Lost(found) });
            }
        };
        match asked {
            Asked::Changed => self.won(volume, to),
            Asked::Found(answer) => {
                self.on_mark(value_of(&answer.found[1]))?;
                let found = self.take(volume, before.as_ref(), value_of(&answer.found[0]))?;
                found.map(Outcome::Lost).ok_or(Error::NoVolume(volume))
            }
            Asked::Unknown(why) => Ok(Outcome::Unknown(why)),
        }
    }

    /// The record, once it is another one than what a change compares with, which has had no answer for [`ANSWER_AWAITED`]. Never ends
    /// where it stays as it was: the change may still take effect.
    async fn await_decided(&self, volume: VolumeId, from: Option<&StoredRecord>) -> StoredRecord {
        tokio::time::sleep(ANSWER_AWAITED).await;
        let mut pause = LOOK_PAUSE;
        loop {
            // What does not answer soon may be the way there; who asks again has another connection.
            match tokio::time::timeout(LOOK_MAX, self.find_record(volume)).await {
                Ok(Ok(Some(found))) if Some(&found) != from => return found,
                Ok(_) => {}
                // All of it may be slow: it is not asked ever more.
                Err(_) => pause *= 2,
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// A change is done; but who acts on it must know it after a restart, so one that is not remembered is not told as done:
    /// the next read tries again.
    fn won<T>(&self, volume: VolumeId, to: &StoredRecord) -> Result<Outcome<T>, Error> {
        match self.memory.take(volume, None, Some(to)) {
            Ok(()) => Ok(Outcome::Won),
            Err(Refusal::NotRemembered(error)) => Ok(Outcome::Unknown(Error::NotRemembered(error).to_string())),
            Err(Refusal::WentBack(seen)) => {
                Err(Error::WentBack { volume, seen: Box::new(seen), found: Box::new(Some(to.clone())) })
            }
        }
    }

    // --- volumes ---

    /// A new volume: its name, definition and first record at once. Repeated after [`Outcome::Unknown`], it is `Won` if it was.
    pub async fn create(&self, definition: &Definition, record: &StoredRecord) -> Result<Outcome<Occupied>, Error> {
        let volume = definition.volume;
        let (name, place, key) =
            (self.name_key(&definition.name), self.definition_key(volume), self.record_key(volume));
        let transaction = Transaction {
            compare: vec![absent(name.clone()), absent(place.clone()), absent(key.clone())],
            then: vec![
                Operation::Put { key: name.clone(), value: volume.to_string() },
                Operation::Put { key: place, value: definition.encode() },
                Operation::Put { key: key.clone(), value: record.encode() },
            ],
            otherwise: vec![Read::Key(name), Read::Key(key)],
        };
        match self.ask(transaction).await? {
            Asked::Changed => self.won(volume, record),
            Asked::Unknown(why) => Ok(Outcome::Unknown(why)),
            Asked::Found(answer) => match (value_of(&answer.found[0]), value_of(&answer.found[1])) {
                (Some(id), Some(_)) if id == volume.to_string() => Ok(Outcome::Won),
                (Some(id), _) => Ok(Outcome::Lost(Occupied::Name(id.to_owned()))),
                (None, _) => Ok(Outcome::Lost(Occupied::Identity)),
            },
        }
    }

    /// Deletes a volume: name and definition go, and the record says so for ever (C3). One that somebody serves only where the
    /// operator gives up what its logs hold, which the audit log says.
    pub async fn delete(
        &self,
        definition: &Definition,
        record: &forebay_core::cluster::Record,
        given_up: Option<&Audit>,
    ) -> Result<Outcome<StoredRecord>, Error> {
        let released = record.log == forebay_core::cluster::LogState::Released;
        assert!(released || given_up.is_some(), "nobody may serve a volume that is deleted");
        let volume = definition.volume;
        // As for a commit: this could only hold where time went back.
        if self.memory.seen(volume).is_some_and(|seen| seen.number() > (record.term, record.epoch)) {
            return self.record(volume).await.map(Outcome::Lost);
        }
        let (name, place, key) =
            (self.name_key(&definition.name), self.definition_key(volume), self.record_key(volume));
        let gone = StoredRecord::Deleted { term: forebay_core::types::Term(record.term.0 + 1), epoch: record.epoch };
        let transaction = Transaction {
            compare: vec![equals(key.clone(), StoredRecord::Record(record.clone()).encode()), self.as_marked()],
            then: [
                Operation::Put { key: key.clone(), value: gone.encode() },
                Operation::Delete(name),
                Operation::Delete(place),
            ]
            .into_iter()
            .chain(self.end_clients(volume))
            .chain(given_up.map(|audit| self.put_audit(audit)))
            .collect(),
            otherwise: vec![Read::Key(key), Read::Key(self.mark_key())],
        };
        let from = StoredRecord::Record(record.clone());
        self.change_record(volume, transaction, Some(&from), &gone, None).await
    }

    /// What is asked of a volume.
    pub async fn definition(&self, volume: VolumeId) -> Result<Definition, Error> {
        let key = self.definition_key(volume);
        let found = self.look(vec![Read::Key(key.clone())]).await?;
        let text = value_of(&found[0]).ok_or(Error::NoVolume(volume))?;
        match self.decode::<Definition>(&key, text)? {
            definition if definition.volume == volume => Ok(definition),
            _ => Err(Error::Damaged { key, why: "it speaks of something else than its key".into() }),
        }
    }

    /// What is asked of all volumes, by identity.
    pub async fn definitions(&self) -> Result<Vec<Definition>, Error> {
        self.list("definition/").await
    }

    /// The same, and whether none was passed over.
    pub async fn usable_definitions(&self) -> Result<(Vec<Definition>, bool), Error> {
        self.list_usable("definition/").await
    }

    /// The same, where one that cannot be used must not pass for one that is not there.
    pub async fn every_definition(&self) -> Result<Vec<Definition>, Error> {
        self.list_whole("definition/").await
    }

    /// Asks something else of a volume; its name and identity stay. `clients`: what this node says of them.
    pub async fn redefine(
        &self,
        from: &Definition,
        to: &Definition,
        clients: Option<&(ClientsWord, Seal)>,
    ) -> Result<Outcome<Definition>, Error> {
        assert_eq!((&from.name, from.volume), (&to.name, to.volume), "a definition stays that of its volume");
        let key = self.definition_key(from.volume);
        let transaction = Transaction {
            compare: vec![equals(key.clone(), from.encode())],
            then: [Operation::Put { key: key.clone(), value: to.encode() }]
                .into_iter()
                .chain(clients.iter().flat_map(|(word, seal)| self.put_clients(word, seal)))
                .collect(),
            otherwise: vec![Read::Key(key.clone())],
        };
        match self.ask(transaction).await? {
            Asked::Changed => Ok(Outcome::Won),
            Asked::Unknown(why) => Ok(Outcome::Unknown(why)),
            Asked::Found(answer) => match value_of(&answer.found[0]) {
                Some(text) => Ok(Outcome::Lost(self.decode(&key, text)?)),
                None => Err(Error::NoVolume(from.volume)),
            },
        }
    }

    // --- nodes ---

    /// Makes a node known, or what has changed of it. A second node of its name is refused, and so is its identity on a second machine:
    /// then somebody has copied a disk, or the operator must have the former one forgotten first.
    pub async fn register(&self, entry: &NodeEntry) -> Result<Registered, Error> {
        let (name, number) = (self.node_key(&entry.name), self.number_key(entry));
        for _ in 0..ATTEMPTS_MAX {
            let found = self.look(vec![Read::Key(name.clone()), Read::Key(number.clone())]).await?;
            let known = value_of(&found[0]);
            if let Some(text) = known {
                let known: NodeEntry = self.decode(&name, text)?;
                if known.node() != entry.node() || known.host().machine != entry.host().machine {
                    return Ok(Registered::NameTaken(known));
                }
            }
            if let Some(other) = value_of(&found[1]).filter(|other| *other != entry.name.as_str()) {
                let other = NodeName::new(other).map_err(|why| Error::Damaged { key: number.clone(), why })?;
                return Ok(Registered::NumberTaken(other));
            }
            let as_read =
                |key: &String, found: &[Entry]| Compare { key: key.clone(), value: value_of(found).map(str::to_owned) };
            let transaction = Transaction {
                compare: vec![as_read(&name, &found[0]), as_read(&number, &found[1])],
                then: vec![
                    Operation::Put { key: name.clone(), value: entry.encode() },
                    Operation::Put { key: number.clone(), value: entry.name.to_string() },
                ],
                otherwise: vec![],
            };
            match self.ask(transaction).await? {
                Asked::Changed => return Ok(Registered::Done),
                Asked::Found(_) => {}
                Asked::Unknown(why) => return Ok(Registered::Unknown(why)),
            }
        }
        Err(Error::Unreachable(format!("other nodes have changed {name} {ATTEMPTS_MAX} times meanwhile")))
    }

    /// Frees a node's name and number, by the operator's word.
    pub async fn forget(&self, entry: &NodeEntry, audit: &Audit) -> Result<Outcome<()>, Error> {
        let name = self.node_key(&entry.name);
        let mut then = vec![
            Operation::Delete(name.clone()),
            Operation::Delete(self.number_key(entry)),
            Operation::Delete(self.key(&format!("load/{}", entry.name))),
            Operation::Delete(self.key(&format!("told/{}", entry.name))),
            Operation::Delete(self.key(&format!("nonce/{}", entry.name))),
            // A new machine of this name is not the one that was to be evacuated.
            Operation::Delete(self.key(&format!("leaving/{}", entry.name))),
            self.put_audit(audit),
        ];
        then.extend(self.end_ended(&entry.name));
        let transaction = Transaction { compare: vec![equals(name, entry.encode())], then, otherwise: vec![] };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }

    /// The nodes of the cluster, by name.
    pub async fn nodes(&self) -> Result<Vec<NodeEntry>, Error> {
        self.list("node/").await
    }

    /// Tells what this node has to give. Its fate is nobody's concern: the next one follows soon.
    pub async fn report(&self, load: &Load) -> Result<(), Error> {
        let put = Operation::Put { key: self.key(&format!("load/{}", load.name)), value: load.encode() };
        self.ask(Transaction { compare: vec![], then: vec![put], otherwise: vec![] }).await.map(|_| ())
    }

    /// What the nodes have to give, by name.
    pub async fn loads(&self) -> Result<Vec<Load>, Error> {
        self.list("load/").await
    }

    // --- how the store is ---

    /// What an operator should do about it, as it was found last.
    pub fn trouble(&self) -> Vec<Trouble> {
        self.store.trouble()
    }

    /// Asks it how it is.
    pub async fn look_at_health(&self) {
        self.store.look_at_health().await;
    }

    // --- audit log and hints ---

    /// Writes a line that goes with no change of a record. Repeated after [`Outcome::Unknown`], it is there once.
    pub async fn note(&self, audit: &Audit) -> Result<Outcome<()>, Error> {
        let transaction = Transaction { compare: vec![], then: vec![self.put_audit(audit)], otherwise: vec![] };
        Ok(match self.ask(transaction).await? {
            Asked::Changed => Outcome::Won,
            Asked::Found(_) => Outcome::Lost(()),
            Asked::Unknown(why) => Outcome::Unknown(why),
        })
    }

    /// The audit log, oldest line first.
    pub async fn audit_log(&self) -> Result<Vec<AuditLine>, Error> {
        self.list("audit/").await
    }

    /// Hints of what has changed; the first says: everything.
    pub fn watch(&self) -> Watch {
        Watch { changes: self.store.changes(&self.prefix), prefix: self.prefix.clone() }
    }
}
