//! Volumes that are not served when the daemon is stopped: nobody may take their images for complete because of that.
//!
//! Invariants:
//! - Which volumes are served is settled in the same moment as that no further one is: one that comes to serve before that is stopped in
//!   order, and one that would after it is told as what it was then.
//! - An image counts as complete only where the volume has never served, or its own tier says that it was left empty.

use super::{Absence, Entry, Node, Running, on_own_thread};
use crate::log;
use forebay_api::record::Record;
use forebay_io::folder::Held;
use forebay_rescue::tier_reader::TierReader;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a stop looks at the tier of a volume that could not be opened.
const TIER_LOOK_MAX: Duration = Duration::from_secs(2);

/// A volume that is not served.
pub(super) enum Unserved {
    /// Its image is not complete, as far as anybody knows: what is told of it.
    Incomplete(String),
    /// It has served, and could not be opened.
    Failed(Box<Record>),
}

impl Entry {
    /// What a stop has to tell of it; nothing of one that is served, or has never been.
    fn unserved(&self) -> Option<Unserved> {
        let name = &self.facts.name;
        match &self.absence {
            None => None,
            Some(Absence::Waiting(why, cancelled)) => {
                cancelled.store(true, Ordering::Relaxed);
                Some(Unserved::Incomplete(format!("{name}: it was still {why}")))
            }
            Some(Absence::Failed(_)) if self.opening.is_some() => {
                Some(Unserved::Incomplete(format!("{name}: it was still being opened")))
            }
            Some(Absence::Failed(_)) => self.record.tier.made.then(|| Unserved::Failed(Box::new(self.record.clone()))),
        }
    }
}

impl Node {
    /// From now on no volume comes to serve. Those that do, and those that do not.
    pub(super) fn begin_stop(&self) -> (Vec<(Record, Running)>, Vec<Unserved>) {
        let entries = self.entries();
        self.stops.store(true, Ordering::Relaxed);
        let running = entries.iter().filter_map(|e| Some((e.record.clone(), e.running.clone()?))).collect();
        let unserved = entries.iter().filter(|e| e.running.is_none()).filter_map(Entry::unserved).collect();
        (running, unserved)
    }
}

/// Those of them whose images are not complete by themselves, with why.
pub(super) async fn incomplete_of(unserved: Vec<Unserved>) -> Vec<String> {
    let (mut incomplete, mut failed) = (Vec::new(), Vec::new());
    for volume in unserved {
        match volume {
            Unserved::Incomplete(what) => incomplete.push(what),
            Unserved::Failed(record) => failed.push(record),
        }
    }
    // All at once: a tier that does not answer costs one wait, and not one for each.
    let looks: Vec<_> = failed.into_iter().map(|record| tokio::spawn(look_at_failed(record))).collect();
    for look in looks {
        match look.await {
            Ok(what) => incomplete.extend(what),
            Err(panic) => incomplete.push(format!("a look at a tier broke off ({panic}); this is a bug")),
        }
    }
    incomplete
}

async fn look_at_failed(record: Box<Record>) -> Option<String> {
    let name = record.name.clone();
    let look = on_own_thread(move || was_left_empty(&record));
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

/// Whether all that was ever in the tier of a volume is in its image, as the tier says.
fn was_left_empty(record: &Record) -> anyhow::Result<bool> {
    let Some(held) = Held::found(&record.tier.path)? else { return Ok(false) };
    let reader = TierReader::of(&held)?;
    let Ok(superblock) = reader.superblock() else { return Ok(false) };
    let newest = reader.checkpoints(&superblock, &mut Vec::new()).into_iter().next();
    Ok(superblock.volume == record.volume.0 && newest.is_some_and(|newest| newest.clean))
}
