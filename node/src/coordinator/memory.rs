//! What this node has seen of each volume's record, so that a coordinator that went back in time is noticed (C3).
//!
//! Where: `cluster/seen/VOLUME.json` in the state folder, one file for each volume, holding the record itself: two records of the
//! same number with different content are two histories as well. A tier keeps the number too (`docs/format.md`), and
//! core compares that; this memory is also for nodes that have no tier of the volume, and for a volume whose record is gone.
//! `cluster/joined.json` says that the cluster was found once: an etcd without it is the wrong one, or an old one.
//! `cluster/rewinds.json` says when the coordinator is known to have gone back, and of which volumes not all nodes were heard
//! since (C6, [`rewinds`](super::rewinds)).
//!
//! Invariants:
//! - What was seen is durable before it is told: who acts on a record will know it after a restart. What could not be written is known
//!   all the same, and is written before anything else is taken from the coordinator.
//! - The memory never goes back. Files of deleted volumes stay, a hundred bytes each, as their keys in the coordinator do.

use super::rewinds::Rewinds;
use super::schema::{ClusterIdentity, Document, StoredRecord};
use anyhow::{Context, Result, anyhow};
use forebay_api::record::VolumeId;
use forebay_core::cluster::{KnownRewinds, RewindId};
use forebay_core::types::Instant;
use forebay_io::durable::write_atomically;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Why what was found may not be used.
#[derive(Debug)]
pub enum Refusal {
    /// This had been seen before.
    WentBack(Option<StoredRecord>),
    /// It could not be made durable.
    NotRemembered(anyhow::Error),
}

/// What a node remembers of the coordinator.
pub struct Memory {
    folder: PathBuf,
    seen: Mutex<HashMap<[u8; 16], StoredRecord>>,
    rewinds: Rewinds,
}

impl Memory {
    /// Opens the memory below this state folder, or begins one.
    pub fn open(state: &Path) -> Result<Memory> {
        let folder = state.join("cluster");
        let volumes = folder.join("seen");
        std::fs::create_dir_all(&volumes).with_context(|| format!("cannot make {}", volumes.display()))?;
        let mut seen = HashMap::new();
        for entry in std::fs::read_dir(&volumes).with_context(|| format!("cannot list {}", volumes.display()))? {
            let path = entry.with_context(|| format!("cannot list {}", volumes.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let (volume, kept) = load_seen(&path)?;
                seen.insert(volume.0, kept);
            }
        }
        let known = folder.join("rewinds.json");
        let text = match std::fs::read_to_string(&known) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", known.display())),
        };
        let rewinds = Rewinds::open(&known, text.as_deref())?;
        Ok(Memory { folder, seen: Mutex::new(seen), rewinds })
    }

    /// What is known of coordinators that went back, as far as this volume is concerned.
    pub fn rewinds(&self, volume: VolumeId) -> KnownRewinds {
        self.rewinds.of(volume)
    }

    /// Those about which not all nodes were heard, of some volume.
    pub fn open_rewinds(&self) -> Vec<RewindId> {
        self.rewinds.all_open()
    }

    /// Volumes that are not known to be deleted, and of which this node has seen anything.
    fn seen_volumes(&self) -> Vec<VolumeId> {
        let seen = self.seen.lock().expect("nothing panics while it is held");
        let lasting = seen.iter().filter(|(_, kept)| matches!(kept, StoredRecord::Record(_)));
        lasting.map(|(id, _)| VolumeId(*id)).collect()
    }

    /// The coordinator went back, as somebody has said.
    pub fn notice_rewind(&self, id: RewindId) -> Result<()> {
        self.rewinds.notice(id, &self.seen_volumes())
    }

    /// This node itself has seen that it went back, as the answer to a question of then.
    pub fn name_rewind(&self, sent: Instant) -> (RewindId, Result<()>) {
        let (id, noticed) = self.rewinds.name(sent, &self.seen_volumes());
        let to_be_told = self.rewinds.is_to_be_told(id);
        (id, noticed.and(to_be_told))
    }

    /// Those that this node has named, and that it has not found in the coordinator yet. One that has seen nothing but deletions tells
    /// of them as well: others have seen more.
    pub fn untold_rewinds(&self) -> Vec<RewindId> {
        self.rewinds.untold()
    }

    /// These are written down in the coordinator.
    pub fn are_told(&self, ids: &[RewindId]) -> Result<()> {
        self.rewinds.are_told(ids)
    }

    /// Writes what is known of rewinds and could not be written before: until that is done nothing is taken from the coordinator.
    pub fn write_the_rest(&self) -> Result<()> {
        self.rewinds.write_the_rest()
    }

    /// As the ownership of this volume has heard or noticed.
    pub fn remember_rewind(&self, volume: VolumeId, id: RewindId) -> Result<()> {
        // What stands for those that had no room concerns one volume, and names none.
        let noticed = if id.is_name() { self.notice_rewind(id) } else { Ok(()) };
        noticed.and(self.rewinds.concerns(volume, id))
    }

    /// As the ownership of this volume has heard from all nodes.
    pub fn remember_settled(&self, volume: VolumeId, id: RewindId) -> Result<()> {
        self.rewinds.settled(volume, id)
    }

    /// The newest that was seen of this volume.
    pub fn seen(&self, volume: VolumeId) -> Option<StoredRecord> {
        self.seen.lock().expect("nothing panics while it is held").get(&volume.0).cloned()
    }

    /// Judges what a linearizable read has found, and remembers it. `before` is what had been seen when the read began: a
    /// younger memory is no evidence against an older question.
    pub fn take(
        &self,
        volume: VolumeId,
        before: Option<&StoredRecord>,
        found: Option<&StoredRecord>,
    ) -> Result<(), Refusal> {
        let mut seen = self.seen.lock().expect("nothing panics while it is held");
        let now = seen.get(&volume.0);
        let another_history =
            |seen: &StoredRecord, found: &StoredRecord| found.number() == seen.number() && found != seen;
        let went_back = match (before, found) {
            (Some(_), None) => true,
            (Some(before), Some(found)) if found.number() < before.number() => true,
            (_, Some(found)) => now.is_some_and(|now| another_history(now, found)),
            (None, None) => false,
        };
        if went_back {
            return Err(Refusal::WentBack(now.cloned()));
        }
        let Some(found) = found else { return Ok(()) };
        if now.is_none_or(|now| now.number() < found.number()) {
            write_atomically(&self.seen_path(volume), found.encode().as_bytes())
                .map_err(|error| Refusal::NotRemembered(error.into()))?;
            seen.insert(volume.0, found.clone());
        }
        // Also of a deletion that is known: what was open may have been kept by a folder that took nothing then.
        if matches!(found, StoredRecord::Deleted { .. }) {
            self.rewinds.forget(volume).map_err(Refusal::NotRemembered)?;
        }
        Ok(())
    }

    fn seen_path(&self, volume: VolumeId) -> PathBuf {
        self.folder.join("seen").join(format!("{volume}.json"))
    }

    fn joined_path(&self) -> PathBuf {
        self.folder.join("joined.json")
    }

    /// The cluster that this state folder belongs to, if it was ever found.
    pub fn joined(&self) -> Result<Option<ClusterIdentity>> {
        let path = self.joined_path();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        ClusterIdentity::decode(&text).map(Some).map_err(|why| anyhow!("cannot use {}: {why}", path.display()))
    }

    /// The cluster was found.
    pub fn join(&self, identity: &ClusterIdentity) -> Result<()> {
        if self.joined()?.as_ref() == Some(identity) {
            return Ok(());
        }
        Ok(write_atomically(&self.joined_path(), identity.encode().as_bytes())?)
    }
}

fn load_seen(path: &Path) -> Result<(VolumeId, StoredRecord)> {
    const WAY_OUT: &str =
        "restore it from a backup; remove it only if you know that the coordinator was never restored";
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let volume = VolumeId::try_from(name.to_owned())
        .with_context(|| format!("{} has no volume's name; remove it", path.display()))?;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let kept = StoredRecord::decode(&text).map_err(|why| {
        anyhow!("cannot use {}, what this node has seen of a volume: {why}; {WAY_OUT}", path.display())
    })?;
    Ok((volume, kept))
}
