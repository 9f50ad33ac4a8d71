//! Volumes that are not served when the daemon is stopped: nobody may take their images for complete because of that.
//!
//! Invariant: an image counts as complete only where the volume has never served, or its own tier says, by all that it keeps of that, that
//! it was left empty.

use super::{Absence, Entry, Node};
use crate::log;
use forebay_api::record::Record;
use forebay_io::folder::Held;
use forebay_rescue::tier_reader::TierReader;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a stop looks at the tiers of volumes that could not be opened; those after it count as not empty.
const TIER_LOOK_MAX: Duration = Duration::from_secs(2);

/// A volume that is not served.
enum Unserved {
    /// Its image is not complete, as far as anybody knows: what is told of it.
    Incomplete(String),
    /// It has served, and could not be opened.
    Failed(Box<Record>),
}

impl Entry {
    /// What a stop has to tell of it; nothing of one that runs, or has never served. Whatever it waits for is not waited for any more.
    fn unserved(&self) -> Option<Unserved> {
        let name = &self.facts.name;
        match &self.absence {
            None => None,
            Some(Absence::Waiting(why, cancelled)) => {
                cancelled.store(true, Ordering::Relaxed);
                Some(Unserved::Incomplete(format!("{name}: it was still {why}")))
            }
            Some(Absence::Unreadable(_)) => {
                Some(Unserved::Incomplete(format!("{name}: its record cannot be read, and its tier may hold writes")))
            }
            Some(Absence::Failed(_)) => self.record.tier.made.then(|| Unserved::Failed(Box::new(self.record.clone()))),
        }
    }
}

impl Node {
    /// Volumes that are not served and whose images are not complete by themselves, as far as anybody knows; with why. No volume comes
    /// to serve any more.
    pub(super) async fn incomplete_of_unserved(&self) -> Vec<String> {
        let unserved: Vec<Unserved> = self.entries().iter().filter_map(Entry::unserved).collect();
        let (mut incomplete, mut looks) = (Vec::new(), Vec::new());
        for volume in unserved {
            match volume {
                Unserved::Incomplete(what) => incomplete.push(what),
                // All at once: tiers that do not answer cost one wait, and not one for each.
                Unserved::Failed(record) => looks.push(tokio::spawn(look_at_failed(record))),
            }
        }
        for look in looks {
            match look.await {
                Ok(what) => incomplete.extend(what),
                Err(panic) => incomplete.push(format!("a look at a tier broke off ({panic}); this is a bug")),
            }
        }
        incomplete
    }
}

async fn look_at_failed(record: Box<Record>) -> Option<String> {
    let name = record.name.clone();
    let look = super::blocking(move || was_left_empty(&record));
    match tokio::time::timeout(TIER_LOOK_MAX, look).await {
        Ok(Ok(true)) => return None,
        Ok(Ok(false)) => {}
        Ok(Err(why)) => log::say!(Notice, volume(name), "its tier cannot be looked at: {why}"),
        Err(_) => {
            log::say!(Notice, volume(name), "its tier could not be looked at within {} s", TIER_LOOK_MAX.as_secs())
        }
    }
    Some(format!("{name}: it could not be opened, and its tier may hold writes"))
}

/// Whether all that was ever in the tier of a volume is in its image, as the tier says. What is damaged may be what came last.
fn was_left_empty(record: &Record) -> anyhow::Result<bool> {
    let Some(held) = Held::found(&record.tier.path)? else { return Ok(false) };
    let reader = TierReader::of(&held)?;
    let Ok(superblock) = reader.superblock() else { return Ok(false) };
    let mut damage = Vec::new();
    let newest = reader.checkpoints(&superblock, &mut damage).into_iter().next();
    Ok(superblock.volume == record.volume.0 && damage.is_empty() && newest.is_some_and(|newest| newest.clean))
}
