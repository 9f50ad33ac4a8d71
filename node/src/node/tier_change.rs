//! A volume of one node gets a tier on another medium while it serves.
//!
//! The new tier is made beside the old one; the old one is emptied into the backing, at the backing's speed from when little is
//! left; then the volume gives way to one on the new tier, over the same backing and with the same clients, who see a pause.
//!
//! Invariants:
//! - The record says which tier counts, and is replaced whole. It names the new one only when the old one is empty, the backing
//!   is synced with all that was in it, and the marker says so: from then on none of the two holds what the backing has not.
//! - Nothing is acknowledged on the new tier before it is laid out, recorded, and named by the marker.
//! - Settings that change with the tier are in the record that names the new one, and in no other: they come into effect with it.
//! - The tier that does not count is named by the record as well, so that a start removes it, wherever the change broke off.
//! - The lock of the backing is held throughout; of an NBD export, which has none, the connection is made anew. So the lock does not
//!   tell when the last write of the volume that gave way has ended, as it does at a start. A stop that ends well has awaited it;
//!   after one that failed it is awaited before the backing is opened again, else an older content could land over a newer one.
//! - What fails before the switch leaves the volume as it was; a new tier that cannot be
//!   served is given up for the old one. Whether the state folder takes record and marker is found out before clients wait. Back on the
//!   old tier nothing is acknowledged before the record names that one again: where it cannot be written, the volume stays closed.
//! - A new tier that was given up is removed when the record does not name it any more as the one that counts, and not before.

use super::markers::{Moment, save_marker};
use super::opening::Opening;
use super::plan::{Plan, Settings, Wanted, plan};
use super::{Absence, Answer, Node, Running, blocking, failure};
use crate::datapath::mailbox::{Snapshot, ToShard, VolumeKey};
use crate::failure::{FailureKind, HELD_IMAGE};
use crate::log;
use crate::memory_place;
use crate::open::{self, FirstSteps, FoundTier, Inherited, Removal, make_tier, remove_spare};
use forebay_api::config::TierName;
use forebay_api::config::volume::Change;
use forebay_api::record::{Record, TierRecord, VolumeId};
use forebay_api::status::TierChangeReport;
use forebay_api::units::show_size;
use forebay_core::api::Control;
use forebay_core::format::Superblock;
use forebay_core::status::Phase;
use forebay_io::durable::remove_durably;
use forebay_io::place::Place;
use forebay_io::{Backing, BackingOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::oneshot;

/// How long clients' requests are awaited that were taken before the pause. The backing had all the others by then.
const PARK_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// How long a backing is tried to be opened again.
const REOPEN_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Between two attempts at that.
const REOPEN_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// How long is awaited what a volume had under way when it could not be stopped in order, before it is opened again.
const REST_MAX: std::time::Duration = std::time::Duration::from_secs(30);

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
    /// Changes the medium of a volume's tier, and the settings that are to change with it. It must not be broken off: whoever calls it
    /// sees to that.
    pub(super) async fn change_tier(self: &Arc<Node>, name: &str, change: &Change) -> Answer<()> {
        let running = self.running(name)?;
        let Ok(_turn) = running.draining.clone().try_lock_owned() else {
            let message =
                "it is drained, held, or changes its tier already; `forebay volume show` tells when that is over";
            return failure(FailureKind::Conflict, format!("volume {name}: {message}"));
        };
        if self.snapshot(&running).await.is_some_and(|snapshot| snapshot.status.hold_left.is_some()) {
            return failure(FailureKind::Conflict, format!("volume {name}: {HELD_IMAGE}"));
        }
        // Judged again: another change may have ended since.
        let Plan { settings, tier } = plan(change, &self.record_of(name)?)?;
        let Some(wanted) = tier else { return self.change_settings(name, &settings).await };
        self.require_image_in_place(name, &running).await?;
        self.when_prepared(name, &running).await?;
        // Of a change before this one: it may lie where the new tier is to be, and the record has room for one.
        if let Err(kept) = self.forget_spare(name).await {
            return failure(FailureKind::Failed, format!("volume {name} keeps its tier: {kept}"));
        }
        let from = self.record_of(name)?;

        self.show_stage(name, wanted.kind, Stage::Preparing);
        let prepared = self.prepare_tier(&from, wanted, settings).await;
        let changed = match prepared {
            Ok((tier, new)) => self.drain_and_switch(name, &running, tier, new).await,
            Err(message) => failure(FailureKind::Failed, message),
        };
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            entry.changing = None;
        }
        if let Err(kept) = self.forget_spare(name).await {
            log::say!(Notice, volume(name), "{kept}");
        }
        changed
    }

    fn show_stage(&self, name: &str, to: TierName, stage: Stage) {
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            entry.changing = Some(Progress { to, stage });
        }
    }

    /// Makes the new tier. It is recorded as one that holds nothing before it is there.
    async fn prepare_tier(
        &self,
        from: &Record,
        wanted: Wanted,
        settings: Settings,
    ) -> Result<(FoundTier, NewTier), String> {
        let (store, shm_size, from) = (self.store.clone(), self.shm_size, from.clone());
        let name = from.name.clone();
        let prepare = move || -> anyhow::Result<(Record, NewTier)> {
            // Another identity: the old tier must never pass for the one that counts, nor its marker for the new one's.
            let volume = VolumeId::random()?;
            let size_bytes = wanted.size_bytes;
            let path = match wanted.kind {
                TierName::Flash => store.tier_path(&from.name),
                TierName::Memory => {
                    let folder = memory_place::find(shm_size)?.dir;
                    check_memory(&folder, size_bytes)?;
                    folder.join(format!("{}-{volume}.tier", from.name))
                }
            };
            let tier = TierRecord { kind: wanted.kind, path, size_bytes, made: false };
            let new = NewTier { volume, tier, settings };
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
        // Nobody else writes the record while it is exchanged.
        let _recording = self.recordings.turn(name).await;
        let switched = match self.begin_switch(name, running, &new).await {
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
    async fn begin_switch(&self, name: &str, running: &Running, new: &NewTier) -> Answer<()> {
        if self.running(name)?.key != running.key {
            return failure(FailureKind::Conflict, format!("volume {name} was closed and opened again meanwhile"));
        }
        self.require_image_in_place(name, running).await?;
        let snapshot = self.when_prepared(name, running).await?;
        self.rehearse(name, running, snapshot).await?;
        self.show_stage(name, new.tier.kind, Stage::Switching);
        let (still, is_still) = oneshot::channel();
        self.shards[running.shard].send(ToShard::Park { key: running.key, still });
        match tokio::time::timeout(PARK_MAX, is_still).await {
            Ok(Ok(told)) => {
                check_told(name, told, open::request_bytes_max(&new.record(&self.record_of(name)?), new.tier.kind))
            }
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

    /// Writes what is there already once more, record and marker: a folder that does not take them is found out while the volume serves.
    async fn rehearse(&self, name: &str, running: &Running, snapshot: Snapshot) -> Answer<()> {
        let (store, record, running) = (self.store.clone(), self.record_of(name)?, running.clone());
        let write = move || {
            store.rehearse(&record)?;
            save_marker(&record, &running, &snapshot, Moment::Serving)
        };
        match blocking(write).await {
            Ok(()) => Ok(()),
            Err(message) => failure(FailureKind::Failed, format!("volume {name} keeps its tier: {message}")),
        }
    }

    /// The clients wait. Whatever becomes of the change, they are served again at the end, unless no tier can be.
    async fn switch(self: &Arc<Node>, name: &str, running: &Running, tier: FoundTier, new: NewTier) -> Answer<()> {
        let stopped = self.control(name, running, Control::Stop { drain: true }).await;
        let snapshot = self.snapshot(running).await;
        let complete = snapshot.as_ref().is_some_and(|s| s.status.dirty_bytes == 0 && s.status.phase == Phase::Stopped);
        let rests = stopped.is_ok() || self.comes_to_rest(running).await;
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
        let from_volume = from.volume.0;
        if emptied.is_ok()
            && let Ok(path) = running.journal_place.clone()
            && let Err(message) = blocking(move || Ok(forebay_io::journal::remove(&path, &from_volume)?)).await
        {
            emptied = failure(FailureKind::Failed, format!("volume {name} keeps its tier: {message}"));
        }
        let changed = match emptied {
            Ok(()) => self.put_new_in_place(name, running, &from, tier, &new).await,
            Err(failed) => Err(failed),
        };
        let opened = match &changed {
            Ok(key) => Some(*key),
            Err(why) if !rests => {
                let seconds = REST_MAX.as_secs();
                let message = format!(
                    "{}; what it had under way to tier and backing has not ended within {seconds} s, and it must not be opened \
                     again before: restart the daemon when they answer. Nothing is lost: the former tier has all of it",
                    why.message
                );
                self.note_failed(name, &message);
                None
            }
            // The marker speaks of the new one: that is the one to be served, by the next start.
            Err(_) if running.marker.is_of_another(from.volume) => None,
            Err(why) => {
                log::say!(Notice, about(name), "volume {name} goes on with its former tier: {}", why.message);
                self.go_back(name, running, from, &new.tier.path).await
            }
        };
        let to = opened.unwrap_or(running.key);
        self.shards[running.shard].send(ToShard::Unpark { key: running.key, to });
        changed.map(|_| ())
    }

    /// Opens the new tier. Where that fails when the marker speaks of it already, it is opened once more, as a start would.
    async fn put_new_in_place(
        self: &Arc<Node>,
        name: &str,
        running: &Running,
        from: &Record,
        tier: FoundTier,
        new: &NewTier,
    ) -> Answer<VolumeKey> {
        let opened = self.put_in_place(running, new.record(from), Some(tier)).await;
        if opened.is_ok() || !running.marker.is_of_another(from.volume) {
            return opened;
        }
        let (store, of) = (self.store.clone(), name.to_owned());
        match blocking(move || store.load(&of)).await {
            Ok(Some(record)) if record.volume == new.volume => self.put_in_place(running, record, None).await,
            Ok(_) | Err(_) => opened,
        }
    }

    /// Opens the former tier again. The new one goes when the record does not name it any more as the one that counts; nobody was ever
    /// served from it.
    async fn go_back(
        self: &Arc<Node>,
        name: &str,
        running: &Running,
        from: Record,
        given_up: &Path,
    ) -> Option<VolumeKey> {
        let (store, recorded, path) = (self.store.clone(), from.clone(), given_up.to_owned());
        let recording = move || {
            store.save(&recorded)?;
            // What stays is known by the record.
            let _ = remove_durably(&path);
            Ok(())
        };
        let opened = match blocking(recording).await {
            Ok(()) => self.put_in_place(running, from, None).await.map_err(|failed| failed.message),
            Err(message) => Err(message),
        };
        match opened {
            Ok(key) => {
                let path = given_up.to_owned();
                let _ = blocking(move || Ok(remove_durably(&path)?)).await;
                Some(key)
            }
            Err(message) => {
                let message =
                    format!("{message}; then restart the daemon. Nothing is lost: image and former tier have it all");
                log::say!(Notice, volume(name), "{message}");
                self.note_failed(name, &message);
                None
            }
        }
    }

    /// Whether all that a volume which could not be stopped in order had under way has ended, after a while.
    async fn comes_to_rest(&self, running: &Running) -> bool {
        let (rests, at_rest) = oneshot::channel();
        self.shards[running.shard].send(ToShard::AwaitRest { key: running.key, rests });
        matches!(tokio::time::timeout(REST_MAX, at_rest).await, Ok(Ok(())))
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
        let opening = former.opening.clone();
        let (placement, memory_node) = (self.placement.clone(), self.placement.memory_node(former.shard));
        let open = move || {
            // First: from here on a start opens this one.
            store.save(&record)?;
            let backing = backing_again(&record, &opening)?;
            let tier = tier.map(|(tier, made)| (tier, Superblock { size_bytes: record.size_bytes, ..made }));
            let inherited = Inherited { backing: Some(backing), tier };
            // It has served, so there are no first steps.
            let steps = &mut FirstSteps::new(None);
            let open = || open::open(&store, Some(record), None, shm_size, inherited, steps, &mut |_, _| {});
            placement.open(memory_node, open)
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

    /// The tier that does not count goes, and then the record's word about it. The error says what is still there.
    async fn forget_spare(&self, name: &str) -> Result<(), String> {
        let Ok(Some(path)) = self.record_of(name).map(|record| record.spare) else { return Ok(()) };
        let of = name.to_owned();
        match blocking(move || Ok(remove_spare(&of, &path))).await? {
            Removal::Done => {}
            Removal::NotOurs(remark) => log::say!(Notice, volume(name), "{remark}"),
            Removal::HasWrites(why) | Removal::Failed(why) => return Err(why),
        }
        self.change_record(name, |record| record.spare = None).await.map_err(|failed| failed.message)
    }
}

/// What clients were told that the volume takes, it takes as long as they are connected.
fn check_told(name: &str, told: u32, takes: u32) -> Answer<()> {
    if told <= takes {
        return Ok(());
    }
    failure(
        FailureKind::Conflict,
        format!(
            "volume {name} keeps its tier: a client that is connected was told that it takes requests of {}, and with the new tier it \
             takes {} at most; disconnect it first, or give a larger --tier-size",
            show_size(told.into()),
            show_size(takes.into())
        ),
    )
}

/// The tier that a volume is to have.
struct NewTier {
    volume: VolumeId,
    tier: TierRecord,
    /// What changes with it.
    settings: Settings,
}

impl NewTier {
    /// The record that names it, and the former tier as one that holds nothing.
    fn record(&self, from: &Record) -> Record {
        let mut record = Record {
            volume: self.volume,
            volatile: self.tier.kind == TierName::Memory,
            spare: Some(from.tier.path.clone()),
            tier: self.tier.clone(),
            ..from.clone()
        };
        self.settings.put_into(&mut record);
        record
    }
}

/// The backing under the lock that is ours already. One that cannot be shared is opened anew: its server may need a moment to see
/// that the former connection has ended.
fn backing_again(record: &Record, opening: &Opening) -> anyhow::Result<Backing> {
    if let Some(backing) = opening.backing().and_then(|backing| backing.share()) {
        opening.require_lock()?;
        return Ok(backing);
    }
    let until = std::time::Instant::now() + REOPEN_MAX;
    loop {
        let volume_bytes = Some(record.size_bytes);
        match Backing::open(
            &record.backing,
            BackingOptions { create: None, format_raw: record.format_raw, volume_bytes },
        ) {
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
