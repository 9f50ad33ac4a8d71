//! What the first opening of a volume has made before the volume serves, and how that is taken back: a volume that could not be made
//! leaves nothing of itself, neither now nor at the next start.
//!
//! Invariants:
//! - Only what the opening itself has made goes: a record that was there before is there again, and a file that was there is not touched.
//! - What goes holds no write: no client can have chosen a volume that did not come to serve.
//! - Of a volume that is recorded as made, the record says first that it is not: without its tier it would be one that has lost it.
//! - The record goes last. Where the removal breaks off it names what is left, and the volume can be deleted or asked for again.

use super::making::clear_unused_tier;
use super::{FoundTier, make_tier};
use crate::journal::Preparation;
use crate::volume_store::Store;
use anyhow::{Context, Result};
use forebay_api::record::Record;
use forebay_io::Journal;
use std::path::PathBuf;

/// See the module's text. Of a volume that has served before there are none.
pub struct FirstSteps {
    /// What was recorded before.
    before: Option<Record>,
    /// What has been recorded since.
    recorded: Option<Record>,
    /// The tier that the record names has been made.
    tier: bool,
    /// The journal that has been made.
    journal: Option<PathBuf>,
}

impl FirstSteps {
    /// Nothing is made yet; `before` is recorded.
    pub fn new(before: Option<Record>) -> FirstSteps {
        FirstSteps { before, recorded: None, tier: false, journal: None }
    }

    /// Records the volume; `first`: it has never served.
    pub(super) fn save(&mut self, store: &Store, record: &Record, first: bool) -> Result<()> {
        // Of a writing that has failed nobody knows what it has left.
        self.recorded = first.then(|| record.clone());
        store.save(record)
    }

    /// Makes the journal, if there is one to be made.
    pub(super) fn make_journal(&mut self, preparation: &mut Preparation) -> Result<Option<Journal>> {
        let made = preparation.make_now()?;
        self.journal = made.is_some().then(|| preparation.path.clone());
        Ok(made)
    }

    /// Makes the tier.
    pub(super) fn make_tier(
        &mut self,
        store: &Store,
        record: &Record,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<FoundTier> {
        let made = make_tier(store, record, progress)?;
        self.tier = true;
        Ok(made)
    }

    /// First, of a volume that may be recorded as made: from now on no start misses its tier. Where that fails all is left as it is, which
    /// is a volume that holds nothing, and can be served. The record under which it was to be made, if it came so far.
    pub fn unmake(&self, store: &Store) -> Result<Option<&Record>> {
        let Some(record) = &self.recorded else { return Ok(None) };
        let is_made = || store.load(&record.name).map(|there| there.is_some_and(|there| there.tier.made));
        if is_made()? {
            let saved = store.save(record);
            // Nobody knows which of the two a loss of power leaves, and either can be started from.
            if is_made()? {
                saved?;
            }
        }
        Ok(Some(record))
    }

    /// Removes what was made. Whatever was open of it is closed.
    pub fn take_back(&self, store: &Store) -> Result<()> {
        let Some(record) = &self.recorded else { return Ok(()) };
        if self.tier {
            let path = record.tier.path.display();
            clear_unused_tier(&record.tier.path, record)
                .with_context(|| format!("cannot remove the tier {path} again"))?;
        }
        if let Some(path) = &self.journal {
            forebay_io::journal::remove(path, &record.volume.0)
                .with_context(|| format!("cannot remove the journal {} again", path.display()))?;
        }
        match &self.before {
            Some(before) => store.save(before),
            None => store.remove(&record.name),
        }
    }

    /// The same after a failure, with what is to be told of both.
    pub fn take_back_after(&self, store: &Store, failure: anyhow::Error) -> anyhow::Error {
        match self.take_back(store) {
            Ok(()) => failure,
            Err(error) => anyhow::anyhow!("{}", also_left(&format!("{failure:#}"), &format!("{error:#}"))),
        }
    }
}

/// The words for a failure after which not all could be taken back.
pub fn also_left(failure: &str, why: &str) -> String {
    format!(
        "{failure}; and not all that was made for it is removed again: {why}. `forebay volume delete` removes the rest"
    )
}
