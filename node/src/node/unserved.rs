//! Volumes that are not served when the daemon is stopped: nobody may take their images for complete because of that.
//!
//! Invariants:
//! - An image counts as complete only where no marker of it says otherwise, nor is one that cannot be read; and where the volume has never
//!   served, or its own tier says, by all that it keeps of that, that it was left empty by the last owner of whom the marker knows.
//! - That a volume has never served is not taken from its record alone: the state folder may be an empty or an older one.
//! - Of one that has served a marker must be found: without it nobody knows whether the tier is an older copy.

use super::markers::MarkerFile;
use super::{Absence, Entry, Node};
use crate::log;
use crate::volume_store::Store;
use anyhow::Context;
use forebay_api::record::{Marker, Record};
use forebay_io::backing::BackingSpec;
use forebay_io::folder::Held;
use forebay_rescue::tier_reader::TierReader;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a stop looks at the markers and tiers of volumes that could not be opened; those after it count as not empty.
const TIER_LOOK_MAX: Duration = Duration::from_secs(2);

/// A volume that is not served.
pub(super) enum Unserved {
    /// Its image is not complete, as far as anybody knows: what is told of it.
    Incomplete(String),
    /// It could not be opened, and may have served.
    Failed(Box<Record>),
}

impl Entry {
    /// What a stop has to tell of it; nothing of one that runs. Whatever it waits for is not waited for any more.
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
            Some(Absence::Failed(_)) => Some(Unserved::Failed(Box::new(self.record.clone()))),
        }
    }
}

impl Node {
    /// Volumes that are not served. Whatever they wait for is not waited for any more: no volume comes to serve.
    pub(super) fn unserved(&self) -> Vec<Unserved> {
        self.entries().iter().filter_map(Entry::unserved).collect()
    }

    /// Those of them whose images are not complete by themselves, as far as anybody knows; with why. Asked when the others have stopped, for
    /// the image may be another one's by now, which says in its marker what it has left there.
    pub(super) async fn incomplete_of(&self, unserved: Vec<Unserved>) -> Vec<String> {
        let (mut incomplete, mut looks) = (Vec::new(), Vec::new());
        for volume in unserved {
            match volume {
                Unserved::Incomplete(what) => incomplete.push(what),
                // All at once: tiers that do not answer cost one wait, and not one for each.
                Unserved::Failed(record) => looks.push(tokio::spawn(look_at_failed(self.store.clone(), record))),
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

async fn look_at_failed(store: Store, record: Box<Record>) -> Option<String> {
    let name = record.name.clone();
    let look = super::blocking(move || why_incomplete(&store, &record));
    let why = match tokio::time::timeout(TIER_LOOK_MAX, look).await {
        Ok(Ok(why)) => why?,
        Ok(Err(why)) => why,
        Err(_) => format!("its marker and tier could not be looked at within {} s", TIER_LOOK_MAX.as_secs()),
    };
    Some(format!("{name}: it could not be opened, and its tier may hold writes: {why}"))
}

/// Why nobody knows that all which was ever in the tier of a volume is in its image; none: that is so, as its markers and its tier say. What
/// is damaged may be what came last.
fn why_incomplete(store: &Store, record: &Record) -> anyhow::Result<Option<String>> {
    let said = |why: &str| Ok(Some(why.to_owned()));
    let markers = markers_of(store, record)?;
    if let Some(marker) = markers.iter().find(|marker| !marker.clean) {
        let (name, host, tier) = (&marker.name, &marker.host, marker.tier.display());
        return Ok(Some(format!(
            "the marker of its image says that writes of volume {name} lie in the tier {tier} of host {host}"
        )));
    }
    let last = markers.iter().filter(|marker| marker.volume == record.volume).map(|marker| marker.term).max();
    if !record.tier.made && last.is_none() {
        let spec = BackingSpec::parse(&record.backing)?;
        if markers.is_empty() && spec.path().is_some_and(|path| !path.exists()) {
            log::say!(Notice, volume(record.name), "nothing is known of its image, which is not there");
        }
        return Ok(None);
    }
    if markers.is_empty() {
        return said("the marker of its image, which would say so, is not there");
    }
    let Some(held) = Held::found(&record.tier.path)? else { return said("its tier is not there") };
    let reader = TierReader::of(&held)?;
    let Ok(superblock) = reader.superblock() else { return said("what lies at the place of its tier is none") };
    if superblock.volume != record.volume.0 {
        return said("the tier of another volume lies at the place of its own");
    }
    let mut damage = Vec::new();
    let newest = reader.checkpoints(&superblock, &mut damage).into_iter().next();
    match newest {
        Some(newest) if damage.is_empty() && newest.clean => match last {
            Some(last) if newest.term.0 < last => said("what lies at the place of its tier is an older copy of it"),
            Some(_) | None => Ok(None),
        },
        Some(_) | None => said("it does not say that it was left empty"),
    }
}

/// The markers that may speak of a volume's image; an error where one of them cannot be read.
fn markers_of(store: &Store, record: &Record) -> anyhow::Result<Vec<Marker>> {
    let place = MarkerFile::of(store, record).context("the spec of its backing cannot be read")?;
    // Of a device that is not there nobody sees that it is one.
    let of_device = MarkerFile::new(store.marker_path(&record.name, None));
    Ok([place.load()?, of_device.load()?].into_iter().flatten().collect())
}
