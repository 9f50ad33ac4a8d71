//! A volume of one node gets a tier on another medium while it serves.
//!
//! The new tier is made beside the old one; the old one is emptied into the backing, at the backing's speed from when little is
//! left; then the volume gives way to one on the new tier, over the same backing and with the same clients, who see a pause.
//!
//! Invariants:
//! - The record says which tier counts, and is replaced whole. It names the new one only when the old one is empty, the backing
//!   is synced with all that was in it, and the marker says so: from then on none of the two holds what the backing has not.
//! - Nothing is acknowledged on the new tier before it is laid out, recorded, and named by the marker.
//! - The tier that does not count is named by the record as well, so that a start removes it, wherever the change broke off.
//! - The lock of the backing is held throughout; of an NBD export, which has none, the connection is made anew.
//! - What fails before the switch leaves the volume as it was; a new tier that cannot be
//!   served is given up for the old one.

use super::markers::{Moment, save_marker};
use super::{Absence, Answer, FailureKind, Node, Running, blocking, failure, no_such_volume};
use crate::config::TierName;
use crate::mailbox::{ToShard, VolumeKey};
use crate::memory_place;
use crate::open::{self, FoundTier, Inherited, make_tier, remove_spare};
use crate::report::TierChangeReport;
use crate::units::show_size;
use crate::volume_store::{Record, TierRecord, VolumeId, remove_durably};
use forebay_core::api::Control;
use forebay_core::format::Superblock;
use forebay_core::status::Phase;
use forebay_core::types::BLOCK_BYTES;
use forebay_io::place::Place;
use forebay_io::{Backing, BackingOptions};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// How long clients' requests are awaited that were taken before the pause. The backing had all the others by then.
const PARK_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// How long a backing is tried to be opened again.
const REOPEN_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Between two attempts at that.
const REOPEN_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) kind: TierName,
    /// None: as large as the present one.
    pub(super) size_bytes: Option<u64>,
    pub(super) volatile: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    to: TierName,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Preparing,
    Draining,
    Switching,
}

impl Progress {
    pub(super) fn shown(self, dirty_bytes: u64) -> TierChangeReport {
        let stage = match self.stage {
            Stage::Preparing => "preparing",
            Stage::Draining => "draining",
            Stage::Switching => "switching",
        };
        TierChangeReport {
            to: self.to,
            stage: stage.to_owned(),
            left_bytes: Some(dirty_bytes),
            nodes: Vec::new(),
            waits: None,
        }
    }
}

impl Node {
    /// Changes the medium of a volume's tier. It must not be broken off: whoever calls it sees to that.
    pub(super) async fn change_tier(self: &Arc<Node>, name: &str, wanted: Wanted) -> Answer<()> {
        let running = self.running(name)?;
        let Ok(_turn) = running.draining.clone().try_lock_owned() else {
            let message =
                "it is drained, held, or changes its tier already; `forebay volume show` tells when that is over";
            return failure(FailureKind::Conflict, format!("volume {name}: {message}"));
        };
        let from = self.record_of(name)?;
        if self.snapshot(&running).await.is_some_and(|snapshot| snapshot.status.hold_left.is_some()) {
            let message = "its image is held, and must not change; `forebay volume release` it first";
            return failure(FailureKind::Conflict, format!("volume {name}: {message}"));
        }
        if from.tier.kind == wanted.kind {
            return match wanted.size_bytes {
                Some(size) if size / BLOCK_BYTES * BLOCK_BYTES != from.tier.size_bytes => failure(
                    FailureKind::Conflict,
                    format!(
                        "volume {name} has a {} tier of {} already; its size changes only with its medium",
                        wanted.kind.word(),
                        show_size(from.tier.size_bytes)
                    ),
                ),
                Some(_) | None => Ok(()),
            };
        }
        if wanted.kind == TierName::Memory && !(from.volatile || wanted.volatile) {
            let message = format!(
                "volume {name}: on a memory tier a crash of the host loses what is not destaged, flushed writes too; accept that \
                 with --volatile"
            );
            return failure(FailureKind::Invalid, message);
        }
        self.require_image_in_place(name, &running).await?;
        self.when_prepared(name, &running).await?;

        self.show_stage(name, wanted.kind, Stage::Preparing);
        let prepared = self.prepare_tier(&from, wanted).await;
        let changed = match prepared {
            Ok((tier, new)) => self.drain_and_switch(name, &running, tier, new).await,
            Err(message) => failure(FailureKind::Failed, message),
        };
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            entry.changing = None;
        }
        self.forget_spare(name).await;
        changed
    }

    fn record_of(&self, name: &str) -> Answer<Record> {
        match self.entries().iter().find(|entry| entry.facts.name == name) {
            Some(entry) => Ok(entry.record.clone()),
            None => no_such_volume(name),
        }
    }

    fn show_stage(&self, name: &str, to: TierName, stage: Stage) {
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            entry.changing = Some(Progress { to, stage });
        }
    }

    /// Makes the new tier. It is recorded as one that holds nothing before it is there.
    async fn prepare_tier(&self, from: &Record, wanted: Wanted) -> Result<(FoundTier, NewTier), String> {
        let (store, shm_size, from) = (self.store.clone(), self.shm_size, from.clone());
        let name = from.name.clone();
        let prepare = move || -> anyhow::Result<(Record, NewTier)> {
            // Another identity: the old tier must never pass for the one that counts, nor its marker for the new one's.
            let volume = VolumeId::random()?;
            let size_bytes = wanted.size_bytes.map_or(from.tier.size_bytes, |size| size / BLOCK_BYTES * BLOCK_BYTES);
            let path = match wanted.kind {
                TierName::Flash => store.tier_path(&from.name),
                TierName::Memory => {
                    let folder = memory_place::find(shm_size)?.dir;
                    check_memory(&folder, size_bytes)?;
                    folder.join(format!("{}-{volume}.tier", from.name))
                }
            };
            let new = NewTier { volume, tier: TierRecord { kind: wanted.kind, path, size_bytes, made: false } };
            Ok((new.record(&from), new))
        };
        let words = |why: String| format!("volume {name} keeps its tier: {why}");
        let (record, new) = blocking(prepare).await.map_err(words)?;
        let spare = new.tier.path.clone();
        self.change_record(&name, |record| record.spare = Some(spare)).await.map_err(|failed| failed.message)?;
        let store = self.store.clone();
        let tier = blocking(move || make_tier(&store, &record, &mut |_, _| {})).await.map_err(words)?;
        Ok((tier, new))
    }

    async fn drain_and_switch(
        self: &Arc<Node>,
        name: &str,
        running: &Running,
        tier: FoundTier,
        new: NewTier,
    ) -> Answer<()> {
        let to = new.tier.kind;
        self.show_stage(name, to, Stage::Draining);
        self.control(name, running, Control::DrainThrough).await?;
        let _admin = self.admin.lock().await;
        let switched = match self.begin_switch(name, running, to).await {
            Ok(()) => self.switch(name, running, tier, new).await,
            Err(refused) => {
                self.shards[running.shard].send(ToShard::Unpark { key: running.key, to: running.key });
                Err(refused)
            }
        };
        if switched.is_err() {
            // Of a volume that serves on as before. It may have been released meanwhile, or be another one by now.
            let _ = self.control(name, running, Control::Release).await;
        }
        switched
    }

    /// From here on clients wait.
    async fn begin_switch(&self, name: &str, running: &Running, to: TierName) -> Answer<()> {
        if self.running(name)?.key != running.key {
            return failure(FailureKind::Conflict, format!("volume {name} was closed and opened again meanwhile"));
        }
        self.require_image_in_place(name, running).await?;
        self.when_prepared(name, running).await?;
        self.show_stage(name, to, Stage::Switching);
        let (still, is_still) = oneshot::channel();
        self.shards[running.shard].send(ToShard::Park { key: running.key, still });
        match tokio::time::timeout(PARK_MAX, is_still).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => failure(FailureKind::Failed, format!("the data-path thread of volume {name} has ended")),
            Err(_) => failure(
                FailureKind::Failed,
                format!(
                    "volume {name} keeps its tier: its backing did not end what clients had asked within {} s; try again when it \
                     is less busy",
                    PARK_MAX.as_secs()
                ),
            ),
        }
    }

    /// The clients wait. Whatever becomes of the change, they are served again at the end, unless no tier can be.
    async fn switch(self: &Arc<Node>, name: &str, running: &Running, tier: FoundTier, new: NewTier) -> Answer<()> {
        let stopped = self.control(name, running, Control::Stop { drain: true }).await;
        let snapshot = self.snapshot(running).await;
        let complete = snapshot.as_ref().is_some_and(|s| s.status.dirty_bytes == 0 && s.status.phase == Phase::Stopped);
        let (from, mut emptied) = (self.record_of(name)?, stopped);
        if let (Ok(()), Some(snapshot)) = (&emptied, snapshot) {
            let (record, marker) = (from.clone(), running.clone());
            let save = move || save_marker(&record, &marker, &snapshot, Moment::Stopped { clean: complete });
            emptied = match blocking(save).await {
                Ok(()) if complete => Ok(()),
                Ok(()) => {
                    failure(FailureKind::Failed, format!("volume {name} keeps its tier: it could not be emptied"))
                }
                Err(message) => failure(FailureKind::Failed, format!("volume {name} keeps its tier: {message}")),
            };
        }
        self.take_down(name, running, from.clone()).await;
        if emptied.is_ok()
            && let Ok(path) = running.journal_place.clone()
            && let Err(message) = blocking(move || Ok(forebay_io::journal::remove(&path)?)).await
        {
            emptied = failure(FailureKind::Failed, format!("volume {name} keeps its tier: {message}"));
        }
        let changed = match emptied {
            Ok(()) => self.put_in_place(running, new.record(&from), Some(tier)).await,
            Err(failed) => Err(failed),
        };
        let opened = match &changed {
            Ok(key) => Some(*key),
            // The marker speaks of the new one: that is the one to be served, by the next start.
            Err(_) if running.marker.is_of_another(from.volume) => None,
            Err(why) => {
                eprintln!("forebay: volume {name} goes on with its former tier: {}", why.message);
                // Nobody was ever served from it.
                let _ = blocking(move || remove_durably(&new.tier.path)).await;
                self.put_in_place(running, from, None).await.ok()
            }
        };
        let to = opened.unwrap_or(running.key);
        self.shards[running.shard].send(ToShard::Unpark { key: running.key, to });
        changed.map(|_| ())
    }

    /// Closes the volume, whose name stays among the exports: who chooses it now waits with the others.
    async fn take_down(&self, name: &str, running: &Running, record: Record) {
        self.detach(running).await;
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            let why = format!("changing from its {} tier to another one", record.tier.kind.word());
            (entry.running, entry.absence) = (None, Some(Absence::Waiting(why, Arc::new(AtomicBool::new(false)))));
        }
    }

    /// Opens what a record says, in the place of a volume that was taken down.
    async fn put_in_place(
        self: &Arc<Node>,
        former: &Running,
        record: Record,
        tier: Option<FoundTier>,
    ) -> Answer<VolumeKey> {
        let (store, shm_size, name) = (self.store.clone(), self.shm_size, record.name.clone());
        let share = former.backing.clone();
        let (placement, memory_node) = (self.placement.clone(), self.placement.memory_node(former.shard));
        let open = move || {
            // First: from here on a start opens this one.
            store.save(&record)?;
            let backing = backing_again(&record, share.as_deref())?;
            let tier = tier.map(|(tier, made)| (tier, Superblock { size_bytes: record.size_bytes, ..made }));
            let inherited = Inherited { backing: Some(backing), tier };
            placement.open(memory_node, || open::open(&store, Some(record), None, shm_size, inherited, &mut |_, _| {}))
        };
        let opened = match blocking(open).await {
            Ok(opened) => opened,
            Err(message) => {
                let message = format!("cannot open volume {name}: {message}");
                self.note_failed(&name, &message);
                return failure(FailureKind::Failed, message);
            }
        };
        self.attach(opened, false, Some(former.shard)).await?;
        Ok(self.running(&name)?.key)
    }

    /// The tier that does not count goes, and the record's word about it.
    async fn forget_spare(&self, name: &str) {
        let Ok(record) = self.record_of(name) else { return };
        let Some(path) = record.spare else { return };
        let of = name.to_owned();
        let removed = blocking(move || Ok(remove_spare(&of, &path))).await;
        match removed {
            Ok(None) => {}
            Ok(Some(remark)) | Err(remark) => eprintln!("forebay: volume {name}: {remark}"),
        }
        if let Err(failed) = self.change_record(name, |record| record.spare = None).await {
            eprintln!("forebay: {}", failed.message);
        }
    }
}

/// The tier that a volume is to have.
struct NewTier {
    volume: VolumeId,
    tier: TierRecord,
}

impl NewTier {
    /// The record that names it, and the former tier as one that holds nothing.
    fn record(&self, from: &Record) -> Record {
        Record {
            volume: self.volume,
            volatile: self.tier.kind == TierName::Memory,
            spare: Some(from.tier.path.clone()),
            tier: self.tier.clone(),
            ..from.clone()
        }
    }
}

/// The backing under the lock that is ours already. One that cannot be shared is opened anew: its server may need a moment to see
/// that the former connection has ended.
fn backing_again(record: &Record, shared: Option<&Mutex<Backing>>) -> anyhow::Result<Backing> {
    let share = |shared: &Mutex<Backing>| shared.lock().expect("nobody panics while holding it").share();
    if let Some(backing) = shared.and_then(share) {
        return Ok(backing);
    }
    let until = std::time::Instant::now() + REOPEN_MAX;
    loop {
        match Backing::open(&record.backing, BackingOptions { create: None, format_raw: record.format_raw }) {
            Err(_) if std::time::Instant::now() < until => std::thread::sleep(REOPEN_PAUSE),
            opened => return Ok(opened?),
        }
    }
}

/// The kernel does not refuse memory of a tmpfs that it has not; it kills.
fn check_memory(folder: &Path, size_bytes: u64) -> anyhow::Result<()> {
    let free = crate::cluster::control::memory_free_bytes();
    if Place::of(folder) == Place::Tmpfs && free > 0 && free < size_bytes {
        anyhow::bail!(
            "a memory tier of {} needs {} more than this host has free; free some, or give a smaller --tier-size",
            show_size(size_bytes),
            show_size(size_bytes - free)
        );
    }
    Ok(())
}
