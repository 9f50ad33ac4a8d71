//! The record of a volume as text: version 1, or version 3 where it says what flushes have promised.

use super::{Document, Hex128, VERSION, VERSION_FLUSHED, Versioned, limits, read, read_of, write};
use forebay_api::checked::Hex64;
use forebay_core::cluster::{Epoch, Flushed, Host, Incarnation, LogState, NodeId, Record, Unfenced};
use forebay_core::types::Term;
use serde::{Deserialize, Serialize};

/// What is found under a volume's key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoredRecord {
    /// The record of a volume that there is.
    Record(Record),
    /// The volume was deleted. That is a change like any other, and stays: a record that is *gone* is a coordinator that
    /// went back in time (C3).
    Deleted {
        /// A term greater than that of the last record.
        term: Term,
        /// Number of a set of members; it says nothing here.
        epoch: Epoch,
    },
}

impl StoredRecord {
    /// What grows with each change.
    pub fn number(&self) -> (Term, Epoch) {
        match self {
            StoredRecord::Record(record) => (record.term, record.epoch),
            StoredRecord::Deleted { term, epoch } => (*term, *epoch),
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogText {
    Needed,
    Through,
    Released,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FlushedText {
    Held,
    Durable,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IncarnationText {
    node: Hex64,
    tier: Hex64,
    life: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostText {
    machine: Hex128,
    boot: Hex128,
}

impl From<Host> for HostText {
    fn from(host: Host) -> HostText {
        HostText { machine: Hex128(host.machine), boot: Hex128(host.boot) }
    }
}

impl From<&HostText> for Host {
    fn from(text: &HostText) -> Host {
        Host { machine: text.machine.0, boot: text.boot.0 }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnfencedText {
    term: u32,
    node: Hex64,
    host: HostText,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordText {
    version: u32,
    term: u32,
    config: u32,
    owner: Hex64,
    host: HostText,
    members: Vec<IncarnationText>,
    log: LogText,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    flushed: Option<FlushedText>,
    size_bytes: u64,
    unfenced: Vec<UnfencedText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeletedText {
    version: u32,
    term: u32,
    config: u32,
    deleted: bool,
}

impl Document for StoredRecord {
    fn encode(&self) -> String {
        match self {
            StoredRecord::Record(record) => write(&RecordText::from(record)),
            StoredRecord::Deleted { term, epoch } => {
                write(&DeletedText { version: VERSION, term: term.0, config: epoch.0, deleted: true })
            }
        }
    }

    fn decode(text: &str) -> Result<StoredRecord, String> {
        limits::text(text)?;
        if let Ok(DeletedText { term, config, deleted: true, .. }) = read(text) {
            limits::number(Term(term), Epoch(config))?;
            return Ok(StoredRecord::Deleted { term: Term(term), epoch: Epoch(config) });
        }
        let record = Record::from(read_record(text)?);
        match record.validate() {
            Ok(()) => limits::record(&record).map(|()| StoredRecord::Record(record)),
            Err(why) => Err(format!("it contradicts itself: {why}")),
        }
    }
}

/// A record that says what flushes have promised is of a version of its own, which a reader that knows nothing of that refuses.
fn read_record(text: &str) -> Result<RecordText, String> {
    let version = match serde_json::from_str::<Versioned>(text) {
        Ok(Versioned { version: VERSION_FLUSHED }) => VERSION_FLUSHED,
        Ok(_) | Err(_) => VERSION,
    };
    let record: RecordText = read_of(text, version)?;
    match record.flushed.is_some() == (version == VERSION_FLUSHED) {
        true => Ok(record),
        false => {
            Err(format!("it contradicts itself: a record of version {version} that says of flushes what another does"))
        }
    }
}

impl From<&Record> for RecordText {
    fn from(record: &Record) -> RecordText {
        let member = |m: &Incarnation| IncarnationText { node: Hex64(m.node.0), tier: Hex64(m.tier), life: m.life };
        let former = |u: &Unfenced| UnfencedText { term: u.term.0, node: Hex64(u.node.0), host: u.host.into() };
        let (version, flushed) = match record.flushed {
            Flushed::Unrecorded => (VERSION, None),
            Flushed::Held => (VERSION_FLUSHED, Some(FlushedText::Held)),
            Flushed::Durable => (VERSION_FLUSHED, Some(FlushedText::Durable)),
        };
        RecordText {
            version,
            term: record.term.0,
            config: record.epoch.0,
            owner: Hex64(record.owner.0),
            host: record.host.into(),
            members: record.members.iter().map(member).collect(),
            log: match record.log {
                LogState::Needed => LogText::Needed,
                LogState::Through => LogText::Through,
                LogState::Released => LogText::Released,
            },
            flushed,
            size_bytes: record.size_bytes,
            unfenced: record.unfenced.iter().map(former).collect(),
        }
    }
}

impl From<RecordText> for Record {
    fn from(text: RecordText) -> Record {
        let member = |m: &IncarnationText| Incarnation { node: NodeId(m.node.0), tier: m.tier.0, life: m.life };
        let former = |u: &UnfencedText| Unfenced { term: Term(u.term), node: NodeId(u.node.0), host: (&u.host).into() };
        Record {
            term: Term(text.term),
            epoch: Epoch(text.config),
            owner: NodeId(text.owner.0),
            host: (&text.host).into(),
            members: text.members.iter().map(member).collect(),
            log: match text.log {
                LogText::Needed => LogState::Needed,
                LogText::Through => LogState::Through,
                LogText::Released => LogState::Released,
            },
            flushed: match text.flushed {
                None => Flushed::Unrecorded,
                Some(FlushedText::Held) => Flushed::Held,
                Some(FlushedText::Durable) => Flushed::Durable,
            },
            size_bytes: text.size_bytes,
            unfenced: text.unfenced.iter().map(former).collect(),
        }
    }
}
