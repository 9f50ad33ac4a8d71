//! The coordinator's answers in the words of core's ownership ([`forebay_core::ownership`]), which decides by them.
//!
//! Invariants:
//! - Core is never told more than is certain: whatever is in doubt is a read that failed, or an unknown change.
//! - A record that went back is told to core where its number shows it, so that core can have it written anew; core must begin with
//!   [`Coordinator::remembered`], else it would believe it. One that differs under the same number is told to nobody as a record.

use super::words::Kept;
use super::{Audit, Coordinator, Error, Outcome};
use crate::volume_store::VolumeId;
use forebay_core::cluster::{Config, Record};
use forebay_core::ownership::{Committed, Read};
use forebay_core::types::Term;

/// What core is told, and what people are shown besides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told<T> {
    /// For core, and why it is less than was asked for.
    Core(T, Option<String>),
    /// The volume was deleted: nobody serves it any more.
    Deleted,
}

impl Coordinator {
    /// The highest number that this node has seen of a volume; core begins with it, or with that of its tier if that is higher.
    pub fn remembered(&self, volume: VolumeId) -> (Term, Config) {
        self.memory.seen(volume).map_or((Term(0), Config(0)), |seen| seen.number())
    }

    /// Carries out [`Effect::Read`](forebay_core::ownership::Effect::Read).
    pub async fn carry_out_read(&self, volume: VolumeId) -> Told<Read> {
        match self.record(volume).await {
            Ok(Kept::Record(record)) => Told::Core(Read::Is(record), None),
            Ok(Kept::Deleted { .. }) => Told::Deleted,
            Err(error) => {
                let read = match &error {
                    Error::NoVolume(_) => Read::Absent,
                    Error::WentBack { found, .. } if found.is_none() => Read::Absent,
                    error => shown_by_its_number(error).map_or(Read::Failed, Read::Is),
                };
                Told::Core(read, Some(error.to_string()))
            }
        }
    }

    /// Carries out [`Effect::Commit`](forebay_core::ownership::Effect::Commit). `word` is the operator's, where the change is by it: it goes
    /// into the audit log with the change, and only it may write anew what went back (C3).
    pub async fn carry_out_commit(
        &self,
        volume: VolumeId,
        compare: &Record,
        new: &Record,
        word: Option<&Audit>,
    ) -> Told<Committed> {
        let (from, to) = (Kept::Record(compare.clone()), Kept::Record(new.clone()));
        let seen = self.remembered(volume);
        let ended = match word {
            Some(word) if seen > from.number() && to.number() > seen => {
                self.write_anew(volume, Some(&from), &to, word).await
            }
            word => self.commit(volume, &from, &to, word).await,
        };
        match ended {
            Ok(Outcome::Won) => Told::Core(Committed::Won, None),
            Ok(Outcome::Lost(Kept::Record(record))) => Told::Core(Committed::Lost(record), None),
            Ok(Outcome::Lost(Kept::Deleted { .. })) => Told::Deleted,
            Ok(Outcome::Unknown(why)) => Told::Core(Committed::Unknown, Some(why)),
            Err(error) => {
                let committed = shown_by_its_number(&error).map_or(Committed::Unknown, Committed::Lost);
                Told::Core(committed, Some(error.to_string()))
            }
        }
    }
}

/// A record that went back, where core can see that by itself.
fn shown_by_its_number(error: &Error) -> Option<Record> {
    let Error::WentBack { seen, found, .. } = error else { return None };
    match (seen.as_ref(), found.as_ref()) {
        (Some(seen), Some(Kept::Record(found))) if (found.term, found.config) < seen.number() => Some(found.clone()),
        _ => None,
    }
}
