//! What a node knows of coordinators that went back (C6), in its state folder: `cluster/rewinds.json`.
//!
//! Each time has a random name, drawn by whoever notices it: so one that this node has settled is never taken for another one, which a
//! node has noticed that knows nothing of the first. Of each volume that anything was known of by then, it is open until all nodes were
//! heard.
//!
//! Invariants:
//! - A name counts from when it is drawn or heard of, for this node's volumes and so for whoever they talk to, also where it could not be
//!   written down: one that is withheld would let somebody go on who should ask first. Nothing is taken from the coordinator before it
//!   is written. A node that is started anew before that has forgotten it, and settled nothing by it: whoever was told of it tells it
//!   again, and it is open here until all nodes were heard.
//! - What is noticed twice by this node is one, where the later question was sent before the first was named: it was the same restore.

use anyhow::{Context, Result};
use forebay_api::record::VolumeId;
use forebay_core::cluster::{KnownRewinds, RewindId};
use forebay_core::types::Instant;
use forebay_io::clock;
use forebay_io::durable::write_atomically;
use forebay_io::machine::random_bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// So many names are kept, for what the coordinator has of them. One that is forgotten is new when it is found there again.
const NAMES_MAX: usize = 1024;

/// So many names are kept to be told, the newest: as many as the coordinator keeps.
const UNTOLD_MAX: usize = 16;

/// See the module's text.
pub(super) struct Rewinds {
    path: PathBuf,
    kept: Mutex<Remembered>,
    /// The one that this process has named last, and when.
    named: Mutex<Option<(Instant, RewindId)>>,
}

/// What is known, and whether all of it is on the medium.
struct Remembered {
    known: Kept,
    is_written: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// All that were ever heard of, in that order.
    names: Vec<u64>,
    /// What they mean to volumes.
    volumes: BTreeMap<VolumeId, OfVolume>,
    /// Those that this node has named, and that it has not found in the coordinator yet.
    #[serde(default)]
    untold: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfVolume {
    open: Vec<u64>,
    settled: Vec<u64>,
}

impl OfVolume {
    fn known(&self) -> KnownRewinds {
        let named = |names: &[u64]| names.iter().map(|name| RewindId(*name)).collect();
        KnownRewinds { open: named(&self.open), settled: named(&self.settled) }
    }

    fn change(&mut self, change: impl FnOnce(&mut KnownRewinds)) {
        let mut known = self.known();
        change(&mut known);
        let names = |ids: Vec<RewindId>| ids.into_iter().map(|id| id.0).collect();
        *self = OfVolume { open: names(known.open), settled: names(known.settled) };
    }
}

impl Kept {
    fn concerns(&mut self, volume: VolumeId, id: RewindId) {
        self.volumes.entry(volume).or_default().change(|known| {
            known.open(id);
        });
    }

    fn notice(&mut self, id: RewindId, volumes: &[VolumeId]) {
        if self.names.contains(&id.0) {
            return;
        }
        self.names.push(id.0);
        if self.names.len() > NAMES_MAX {
            self.names.remove(0);
        }
        for volume in volumes {
            self.concerns(*volume, id);
        }
    }
}

impl Rewinds {
    /// `text`: what the file holds; none: there is none yet.
    pub(super) fn open(path: &Path, text: Option<&str>) -> Result<Rewinds> {
        let kept = text.map(serde_json::from_str).transpose().with_context(|| {
            let why = "remove it only if you know that the coordinator was never restored";
            format!("cannot use {}, what this node knows of a coordinator that went back; {why}", path.display())
        })?;
        let kept = Remembered { known: kept.unwrap_or_default(), is_written: true };
        Ok(Rewinds { path: path.to_owned(), kept: Mutex::new(kept), named: Mutex::default() })
    }

    /// As far as this volume is concerned.
    pub(super) fn of(&self, volume: VolumeId) -> KnownRewinds {
        let kept = &self.kept.lock().expect("nothing panics while it is held").known;
        kept.volumes.get(&volume).map(OfVolume::known).unwrap_or_default()
    }

    /// Those that are open for some volume, in the order in which they were heard of; last what stands for those without room.
    pub(super) fn all_open(&self) -> Vec<RewindId> {
        let kept = &self.kept.lock().expect("nothing panics while it is held").known;
        let is_open = |name: &&u64| kept.volumes.values().any(|volume| volume.open.contains(*name));
        let names = kept.names.iter().filter(is_open).map(|name| RewindId(*name));
        names.chain(is_open(&&RewindId::MORE.0).then_some(RewindId::MORE)).collect()
    }

    /// Somebody has told of it; `volumes`: those of which this node had seen anything.
    pub(super) fn notice(&self, id: RewindId, volumes: &[VolumeId]) -> Result<()> {
        self.change(|kept| kept.notice(id, volumes))
    }

    /// This node has noticed it by itself, as the answer to a question of then. It has a name also where that is not remembered.
    pub(super) fn name(&self, sent: Instant, volumes: &[VolumeId]) -> (RewindId, Result<()>) {
        let mut named = self.named.lock().expect("nothing panics while it is held");
        if let Some((_, id)) = named.filter(|(at, _)| *at >= sent) {
            return (id, self.notice(id, volumes));
        }
        let mut random = [0; 8];
        let drawn = random_bytes(&mut random);
        // Without randomness the clock, which no other node has alike to the nanosecond.
        let name = if drawn.is_ok() { u64::from_le_bytes(random) } else { clock::now().0 };
        let id = RewindId::drawn(name);
        *named = Some((clock::now(), id));
        (id, self.notice(id, volumes))
    }

    /// Named by this node: to be written down in the coordinator, whether or not it means anything to a volume that this node knows.
    pub(super) fn is_to_be_told(&self, id: RewindId) -> Result<()> {
        self.change(|kept| {
            if !kept.untold.contains(&id.0) {
                kept.untold.push(id.0);
                kept.untold.drain(..kept.untold.len().saturating_sub(UNTOLD_MAX));
            }
        })
    }

    /// Those that this node has named, and that it has not found in the coordinator yet.
    pub(super) fn untold(&self) -> Vec<RewindId> {
        let kept = &self.kept.lock().expect("nothing panics while it is held").known;
        kept.untold.iter().map(|name| RewindId(*name)).collect()
    }

    /// These are written down in the coordinator.
    pub(super) fn are_told(&self, ids: &[RewindId]) -> Result<()> {
        self.change(|kept| kept.untold.retain(|name| !ids.contains(&RewindId(*name))))
    }

    /// Writes what could not be written before.
    pub(super) fn write_the_rest(&self) -> Result<()> {
        self.change(|_| ())
    }

    /// It concerns this volume, which was told of it by another node.
    pub(super) fn concerns(&self, volume: VolumeId, id: RewindId) -> Result<()> {
        self.change(|kept| kept.concerns(volume, id))
    }

    /// All nodes were heard since about this volume.
    pub(super) fn settled(&self, volume: VolumeId, id: RewindId) -> Result<()> {
        self.change(|kept| kept.volumes.entry(volume).or_default().change(|known| known.settle(id)))
    }

    /// The volume was deleted.
    pub(super) fn forget(&self, volume: VolumeId) -> Result<()> {
        self.change(|kept| drop(kept.volumes.remove(&volume)))
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) -> Result<()> {
        let mut kept = self.kept.lock().expect("nothing panics while it is held");
        let mut changed = kept.known.clone();
        change(&mut changed);
        if changed == kept.known && kept.is_written {
            return Ok(());
        }
        let text = serde_json::to_string(&changed).context("a list of numbers is text")?;
        // Known from here on, also where it could not be written down.
        *kept = Remembered { known: changed, is_written: false };
        write_atomically(&self.path, text.as_bytes())?;
        kept.is_written = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C6: names that find no room are open until all others were settled, whoever has told of them and how often.
    #[test]
    fn a_rewind_that_finds_no_room_is_open_until_all_others_are_settled() {
        use forebay_core::cluster::REWINDS_OPEN_MAX;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rewinds.json");
        let volume = VolumeId([1; 16]);
        let rewinds = Rewinds::open(&path, None).unwrap();
        let told: Vec<RewindId> = (1..=REWINDS_OPEN_MAX as u64).map(RewindId).collect();
        told.iter().for_each(|id| rewinds.notice(*id, &[volume]).unwrap());
        let (own, kept) = rewinds.name(Instant(1), &[volume]);
        kept.unwrap();
        rewinds.notice(own, &[volume]).unwrap();
        let again = Rewinds::open(&path, Some(&std::fs::read_to_string(&path).unwrap())).unwrap();
        let without_room = RewindId::MORE;
        assert!(again.of(volume).open.contains(&without_room));
        assert!(again.all_open().contains(&without_room), "the coordinator is known to have gone back");
        // What its ownership has settled before it heard of these is not what stands for them.
        again.settled(volume, without_room).unwrap();
        told.iter().for_each(|id| again.settled(volume, *id).unwrap());
        assert_eq!(again.of(volume).open, [without_room]);
        again.settled(volume, without_room).unwrap();
        assert!(again.of(volume).open.is_empty());
    }

    #[test]
    fn a_rewind_that_could_not_be_written_is_known_and_written_before_anything_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rewinds.json");
        let (id, volume) = (RewindId(7), VolumeId([1; 16]));
        let rewinds = Rewinds::open(&path, None).unwrap();
        // As where the folder takes nothing: no file can be written aside.
        let aside = folder.path().join("rewinds.json.new");
        std::fs::create_dir(&aside).unwrap();
        for _ in 0..2 {
            assert!(rewinds.notice(id, &[volume]).is_err(), "a restart would forget it");
            assert_eq!(rewinds.all_open(), [id]);
            // Its volumes know it, and tell it to others.
            assert_eq!(rewinds.of(volume).open, [id]);
            assert!(rewinds.write_the_rest().is_err(), "nothing is taken from the coordinator");
        }
        // One that this node has drawn is told to the coordinator, too.
        let (own, named) = rewinds.name(Instant(1), &[volume]);
        assert!(named.is_err() && rewinds.is_to_be_told(own).is_err());
        assert_eq!((rewinds.of(volume).open, rewinds.untold()), (vec![id, own], vec![own]));
        // Started anew now, it has forgotten both; whoever was told tells it, and then it is as open as before.
        assert!(!path.exists());
        let forgetful = Rewinds::open(&path, None).unwrap();
        assert!(forgetful.notice(own, &[volume]).is_err());
        assert_eq!(forgetful.of(volume), KnownRewinds { open: vec![own], settled: vec![] });
        std::fs::remove_dir(&aside).unwrap();
        rewinds.write_the_rest().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let again = Rewinds::open(&path, Some(&text)).unwrap();
        assert_eq!((again.all_open(), again.untold()), (vec![id, own], vec![own]));
    }
}
