//! The coordinator's answers in the words of core's ownership ([`forebay_core::ownership`]), which decides by them.
//!
//! Invariants:
//! - Core is never told more than is certain: whatever is in doubt is a read that failed, or an unknown change.
//! - Before it is told what the coordinator shows, core is told what this node has seen ([`Told::seen`]), a deletion too: so it notices
//!   a record that went back, or that is another one of the same number, by the same rule as everywhere (C3).
//! - What an operator has overridden comes with the change that it allows, and only such a change writes anew what went back.

use super::etcd::CHANGE_LEAVES_WITHIN;
use super::schema::StoredRecord;
use super::{Audit, Coordinator, Error, Outcome};
use forebay_api::record::VolumeId;
use forebay_core::cluster::Record;
use forebay_core::ownership::{Committed, Event, Read};
use forebay_core::types::{Duration, Instant};

/// What is written anew is read first, which an etcd that answers at all does in this time.
const READ_FIRST_MAX: Duration = Duration::from_secs(3);

/// What core is told, and what people are shown besides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told<T> {
    /// What core is told in answer to its question.
    pub answer: T,
    /// The newest of the volume that this node has seen: core is told of it first.
    pub seen: Option<Event>,
    /// Why the answer is less than was asked for.
    pub why: Option<String>,
}

/// What an operator has decided, with the line of the audit log that says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// The change would not have been made without it.
    Allows(Audit),
    /// The record is written anew: it went back (C3).
    WritesAnew(Audit),
}

impl Coordinator {
    /// The newest record that this node has seen of a volume; core begins with it.
    pub fn known(&self, volume: VolumeId) -> Option<Record> {
        match self.memory.seen(volume) {
            Some(StoredRecord::Record(record)) => Some(record),
            Some(StoredRecord::Deleted { .. }) | None => None,
        }
    }

    /// The newest that this node has seen of a volume, in core's words. A deletion is a veto against what is older, like a record.
    pub fn seen(&self, volume: VolumeId) -> Option<Event> {
        self.memory.seen(volume).map(|seen| match seen {
            StoredRecord::Record(record) => Event::Seen(record),
            StoredRecord::Deleted { term, epoch } => Event::SeenDeleted(term, epoch),
        })
    }

    fn with_seen<T>(&self, volume: VolumeId, answer: T, why: Option<String>) -> Told<T> {
        Told { answer, seen: self.seen(volume), why }
    }

    /// Carries out [`Effect::Read`](forebay_core::ownership::Effect::Read).
    pub async fn execute_read(&self, volume: VolumeId) -> Told<Read> {
        let (read, why) = match self.record(volume).await {
            Ok(StoredRecord::Record(record)) => (Read::Is(record), None),
            Ok(StoredRecord::Deleted { term, epoch }) => (Read::Deleted(term, epoch), None),
            Err(error) => {
                let read = match &error {
                    Error::NoVolume(_) => Read::Absent,
                    Error::WentBack { found, .. } => match found.as_ref() {
                        None => Read::Absent,
                        Some(StoredRecord::Record(found)) => Read::Is(found.clone()),
                        Some(StoredRecord::Deleted { .. }) => Read::Failed,
                    },
                    _ => Read::Failed,
                };
                (read, Some(error.to_string()))
            }
        };
        self.with_seen(volume, read, why)
    }

    /// Carries out [`Effect::Commit`](forebay_core::ownership::Effect::Commit). Others were asked just before core decided it, and what
    /// they have said may be old soon: it has left this host within [`CHANGE_LEAVES_WITHIN`] of then, or is not sent (C5). One
    /// that writes anew what went back has [`READ_FIRST_MAX`] more.
    pub async fn execute_commit(
        &self,
        volume: VolumeId,
        compare: &Record,
        new: &Record,
        word: Option<&Word>,
        decided: Instant,
    ) -> Told<Committed> {
        let leaves_by = Some(match word {
            // Read first, by an etcd that may be slow.
            Some(Word::WritesAnew(_)) => decided + READ_FIRST_MAX + CHANGE_LEAVES_WITHIN,
            Some(Word::Allows(_)) | None => decided + CHANGE_LEAVES_WITHIN,
        });
        let to = StoredRecord::Record(new.clone());
        let ended = match word {
            None => self.commit(volume, &StoredRecord::Record(compare.clone()), &to, None, leaves_by).await,
            Some(Word::Allows(audit)) => {
                self.commit(volume, &StoredRecord::Record(compare.clone()), &to, Some(audit), leaves_by).await
            }
            Some(Word::WritesAnew(audit)) => self.commit_anew(volume, compare, &to, audit, leaves_by).await,
        };
        let (committed, why) = match ended {
            Ok(Outcome::Won) => (Committed::Won, None),
            Ok(Outcome::Lost(StoredRecord::Record(record))) => (Committed::Lost(record), None),
            // Told by a read, which looks at it again.
            Ok(Outcome::Lost(StoredRecord::Deleted { .. })) => (Committed::Unknown, None),
            Ok(Outcome::Unknown(why)) => (Committed::Unknown, Some(why)),
            Err(error) => {
                let committed = match &error {
                    Error::WentBack { found, .. } => match found.as_ref() {
                        Some(StoredRecord::Record(found)) => Committed::Lost(found.clone()),
                        Some(StoredRecord::Deleted { .. }) | None => Committed::Unknown,
                    },
                    _ => Committed::Unknown,
                };
                (committed, Some(error.to_string()))
            }
        };
        self.with_seen(volume, committed, why)
    }

    /// The record went back, or is gone: it is written anew in place of what core has been shown.
    async fn commit_anew(
        &self,
        volume: VolumeId,
        compare: &Record,
        to: &StoredRecord,
        audit: &Audit,
        leaves_by: Option<Instant>,
    ) -> Result<Outcome<StoredRecord>, Error> {
        let from = StoredRecord::Record(compare.clone());
        let found = match self.record(volume).await {
            // Only others have seen more than this node, which core knows.
            Ok(found) if found == from => return self.commit(volume, &from, to, Some(audit), leaves_by).await,
            Ok(found) => return Ok(Outcome::Lost(found)),
            Err(Error::WentBack { found, .. }) => *found,
            Err(error) => return Err(error),
        };
        let newest = self.memory.seen(volume).iter().chain(&found).map(StoredRecord::number).max();
        match &found {
            Some(found) if *found != from => Ok(Outcome::Lost(found.clone())),
            _ if newest.is_some_and(|newest| to.number() <= newest) => {
                Ok(Outcome::Unknown("a newer record was seen than the one that was to be written".to_owned()))
            }
            _ => self.write_anew(volume, found.as_ref(), to, audit, leaves_by).await,
        }
    }
}
