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
//!   served is given up for the old one. Whether the state folder takes record and marker, and whether the backing answers, is found out
//!   before clients wait. Back on the
//!   old tier nothing is acknowledged before the record names that one again: until it can be written the volume stays closed ([`way_back`]).
//! - A new tier that was given up is removed when the record does not name it any more as the one that counts, and not before.
//! - Changes of a volume come one after the other, the removal of the tier that a change has left over included: the next one may make its
//!   own in the same place. So the turn at changes goes with the volume from the one that was closed to the one in its place.
//! - The node's lock on its volumes is held while clients are made to wait and the new tier is opened, and not while an end is awaited that
//!   may never come. Looks at an image, its marker and its journal are made under it, by the file that is open: a file server that hangs in
//!   just that moment, after it has answered the look before it, holds up commands that make, change or delete volumes for as long as it
//!   hangs; not clients, reports, drains or holds. Nothing can be given up there: what comes late would write over what came after it.

mod way_back;

use super::markers::{Moment, save_marker};
use super::opening::Opening;
use super::plan::{Plan, Settings, Wanted, plan};
use super::{Absence, Answer, Node, Running, blocking, failure};
use crate::datapath::mailbox::{Snapshot, ToShard, VolumeKey};
use crate::failure::{Failure, FailureKind, HELD_IMAGE};
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
use forebay_io::place::Place;
use forebay_io::{Backing, BackingOptions};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::oneshot;
use way_back::{Unended, WayBack};

/// How long clients' requests are awaited that were taken before the pause. The backing had all the others by then.
const PARK_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// How long a backing is tried to be opened again.
const REOPEN_MAX: std::time::Duration = std::time::Duration::from_secs(5);
/// Between two attempts at that.
const REOPEN_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// How long a volume that holds nothing may take to stop, and what it has under way then to end, while others wait to come, go or change.
const STOP_MAX: std::time::Duration = std::time::Duration::from_secs(15);
/// How long a tier that nobody was served from may take to say that it holds nothing.
const LEFT_EMPTY_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// How long whoever asked for a change that failed waits for the volume to be served again, before he is told that it is not yet.
const SERVED_AGAIN_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// How long a change waits for its turn: for what is still done for the one before it, not for a drain.
const TURN_MAX: std::time::Duration = std::time::Duration::from_secs(2);

const CHANGED_MEANWHILE: &str = "it was closed and opened again meanwhile; try again";

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

/// What became of a change.
enum Ended {
    /// The volume is served from its new tier, by this name.
    Changed(VolumeKey),
    /// It is served as before.
    Kept(Failure),
    /// It was closed, and is to be served again.
    Closed(Failure, Box<WayBack>),
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
        let first = self.running(name)?;
        let Ok(turn) = tokio::time::timeout(TURN_MAX, first.draining.clone().lock_owned()).await else {
            let message =
                "it is drained, held, or changes its tier already; `forebay volume show` tells when that is over";
            return failure(FailureKind::Conflict, format!("volume {name}: {message}"));
        };
        // A change that has ended in between has put another one in its place, with the same turn.
        let running = self.running(name)?;
        if !Arc::ptr_eq(&running.draining, &first.draining) {
            return failure(FailureKind::Conflict, format!("volume {name}: {CHANGED_MEANWHILE}"));
        }
        if self.snapshot(&running).await.is_some_and(|snapshot| snapshot.status.hold_left.is_some()) {
            return failure(FailureKind::Conflict, format!("volume {name}: {HELD_IMAGE}"));
        }
        // Judged again: another change may have ended since.
        let Plan { settings, tier } = plan(change, &self.record_of(name)?)?;
        let Some(wanted) = tier else { return self.change_settings(name, &settings).await };
        self.require_image_in_place(name, &running).await?;
        self.when_prepared(name, &running).await?;
        self.require_reachable(name, &running).await?;
        // Of a change before this one: it may lie where the new tier is to be, and the record has room for one.
        if let Err(kept) = self.forget_spare(name, running.key).await {
            return failure(FailureKind::Failed, format!("volume {name} keeps its tier: {kept}"));
        }
        let from = self.record_of(name)?;
        if self.running(name)?.key != running.key {
            return failure(FailureKind::Conflict, format!("volume {name}: {CHANGED_MEANWHILE}"));
        }

        self.show_stage(name, wanted.kind, Stage::Preparing);
        let prepared = self.prepare_tier(&from, wanted, settings).await;
        let ended = match prepared {
            Ok((tier, new)) => self.drain_and_switch(name, &running, tier, new).await,
            Err(message) => Ended::Kept(Failure { kind: FailureKind::Failed, message }),
        };
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            entry.changing = None;
        }
        let (changed, key) = match ended {
            Ended::Changed(key) => (Ok(()), key),
            Ended::Kept(why) => (Err(why), running.key),
            Ended::Closed(why, way) => return Err(self.go_back(name, why, way, turn).await),
        };
        if let Err(kept) = self.forget_spare(name, key).await {
            log::say!(Notice, volume(name), "{kept}");
        }
        changed
    }

    /// Serves a volume again whose change has failed, in the background, and waits a while for that. The failure, as it is told then.
    async fn go_back(
        self: &Arc<Node>,
        name: &str,
        why: Failure,
        way: Box<WayBack>,
        turn: tokio::sync::OwnedMutexGuard<()>,
    ) -> Failure {
        let (node, (tell, served)) = (self.clone(), oneshot::channel());
        tokio::spawn(async move {
            node.serve_again(*way).await;
            drop(turn);
            // Whoever asked may have gone.
            let _ = tell.send(());
        });
        match tokio::time::timeout(SERVED_AGAIN_MAX, served).await {
            Ok(_) => why,
            Err(_) => {
                let message = format!(
                    "{}; it is closed until it can be served again, which is tried all the time: its clients wait or connect anew, \
                     and `forebay volume show {name}` tells what for. Nothing is lost: image and tier have it all",
                    why.message
                );
                Failure { message, ..why }
            }
        }
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
        let (name, volume) = (from.name.clone(), from.volume);
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
        let (spare, mut is_same) = (new.tier.path.clone(), false);
        // Another volume of its name may have taken its place meanwhile, with its tier where this one's was to be.
        let name_spare = |record: &mut Record| {
            is_same = record.volume == volume;
            if is_same {
                record.spare = Some(spare);
            }
        };
        self.change_record(&name, name_spare).await.map_err(|failed| failed.message)?;
        if !is_same {
            return Err(words(CHANGED_MEANWHILE.to_owned()));
        }
        let store = self.store.clone();
        let tier = blocking(move || make_tier(&store, &record, &mut |_, _| {})).await.map_err(words)?;
        Ok((tier, new))
    }

    async fn drain_and_switch(self: &Arc<Node>, name: &str, running: &Running, tier: FoundTier, new: NewTier) -> Ended {
        let to = new.tier.kind;
        self.show_stage(name, to, Stage::Draining);
        if let Err(refused) = self.control(name, running, Control::DrainThrough).await {
            return Ended::Kept(refused);
        }
        // Not while others wait.
        let reached = self.require_reachable(name, running).await;
        let _admin = self.admin.lock().await;
        // Nobody else writes the record while it is exchanged.
        let _recording = self.recordings.turn(name).await;
        let begun = match reached {
            Ok(()) => self.begin_switch(name, running, &new).await,
            Err(refused) => Err(refused),
        };
        match begun {
            Ok(()) => self.switch(name, running, tier, new).await,
            Err(refused) => {
                self.shards[running.shard].send(ToShard::Unpark { key: running.key, to: running.key });
                // It serves on as before. It may have been released meanwhile, or be another one by now.
                let _ = self.control(name, running, Control::Release).await;
                Ended::Kept(refused)
            }
        }
    }

    /// From here on clients wait.
    async fn begin_switch(&self, name: &str, running: &Running, new: &NewTier) -> Answer<()> {
        if self.running(name)?.key != running.key {
            return failure(FailureKind::Conflict, format!("volume {name}: {CHANGED_MEANWHILE}"));
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

    /// The clients wait. Whatever becomes of the change, they are served again at the end.
    async fn switch(self: &Arc<Node>, name: &str, running: &Running, tier: FoundTier, new: NewTier) -> Ended {
        let shown =
            self.entries().iter().find(|entry| entry.facts.name == name).map(|e| (e.record.clone(), e.facts.clone()));
        let (from, facts) = shown.expect("whoever takes it out of the list has the lock on the node's volumes");
        let mut way = WayBack::new(running, &from, facts, &new);
        let stopped = self.stop_empty(name, running, &mut way.unended).await;
        if way.unended.is_some() {
            let why = stopped.expect_err("what has not ended is no success");
            self.show_waiting(&way, &why.message);
            return Ended::Closed(why, Box::new(way));
        }
        let emptied = match stopped {
            Ok(()) => self.leave_clean(name, running, &from).await,
            Err(failed) => Err(failed),
        };
        self.take_down(name, running, &mut way).await;
        let changed = match emptied {
            Ok(()) => match self.remove_journal(name, running, &from).await {
                Ok(()) => self.put_new_in_place(name, running, &from, tier, &new).await,
                Err(failed) => Err(failed),
            },
            Err(failed) => Err(failed),
        };
        match changed {
            Ok(to) => {
                self.shards[running.shard].send(ToShard::Unpark { key: running.key, to });
                Ended::Changed(to)
            }
            Err(why) => {
                self.show_waiting(&way, &why.message);
                Ended::Closed(why, Box::new(way))
            }
        }
    }

    /// Stops a volume that holds nothing. `unended`: what of it goes on all the same; nothing of it where that is none.
    async fn stop_empty(self: &Arc<Node>, name: &str, running: &Running, unended: &mut Option<Unended>) -> Answer<()> {
        let (node, of, stopping) = (self.clone(), name.to_owned(), running.clone());
        let stop = async move { node.control(&of, &stopping, Control::Stop { drain: true }).await };
        let mut stop = tokio::spawn(stop);
        match tokio::time::timeout(STOP_MAX, &mut stop).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(failed))) => {
                if !self.comes_to_rest(running).await {
                    *unended = Some(Unended { stop: None });
                }
                Err(failed)
            }
            Ok(Err(panic)) => {
                *unended = Some(Unended { stop: None });
                failure(FailureKind::Failed, format!("volume {name}: its stop broke off ({panic}); this is a bug"))
            }
            Err(_) => {
                *unended = Some(Unended { stop: Some(stop) });
                failure(
                    FailureKind::Failed,
                    format!(
                        "volume {name} keeps its tier: its backing has not ended within {} s what it had under way",
                        STOP_MAX.as_secs()
                    ),
                )
            }
        }
    }

    /// Has the marker say that the image is complete, if it is.
    async fn leave_clean(&self, name: &str, running: &Running, from: &Record) -> Answer<()> {
        let Some(snapshot) = self.snapshot(running).await else {
            return failure(FailureKind::Failed, format!("the data-path thread of volume {name} has ended"));
        };
        let complete = snapshot.status.dirty_bytes == 0 && snapshot.status.phase == Phase::Stopped;
        let (record, marker) = (from.clone(), running.clone());
        let save = move || save_marker(&record, &marker, &snapshot, Moment::Stopped { clean: complete });
        match blocking(save).await {
            Ok(()) if complete => Ok(()),
            Ok(()) => failure(FailureKind::Failed, format!("volume {name} keeps its tier: it could not be emptied")),
            Err(message) => failure(FailureKind::Failed, format!("volume {name} keeps its tier: {message}")),
        }
    }

    async fn remove_journal(&self, name: &str, running: &Running, from: &Record) -> Answer<()> {
        let Ok(path) = running.journal_place.clone() else { return Ok(()) };
        let of = from.volume.0;
        match blocking(move || Ok(forebay_io::journal::remove(&path, &of)?)).await {
            Ok(_) => Ok(()),
            Err(message) => failure(FailureKind::Failed, format!("volume {name} keeps its tier: {message}")),
        }
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
        let opened = self.put_in_place(running, new.record(from), Some(tier), None).await;
        if opened.is_ok() {
            return opened;
        }
        let (store, of, marker, former) = (self.store.clone(), name.to_owned(), running.marker.clone(), from.volume);
        let recorded = move || if marker.is_of_another(former)? { store.load(&of) } else { Ok(None) };
        match blocking(recorded).await {
            Ok(Some(record)) if record.volume == new.volume => self.put_in_place(running, record, None, None).await,
            Ok(_) | Err(_) => opened,
        }
    }

    /// Whether all that a volume which could not be stopped in order had under way has ended, after a while.
    async fn comes_to_rest(&self, running: &Running) -> bool {
        let (rests, at_rest) = oneshot::channel();
        self.shards[running.shard].send(ToShard::AwaitRest { key: running.key, rests });
        matches!(tokio::time::timeout(STOP_MAX, at_rest).await, Ok(Ok(())))
    }

    /// Closes the volume, whose name stays among the exports: who chooses it now waits with the others.
    async fn take_down(&self, name: &str, running: &Running, way: &mut WayBack) {
        self.detach(running).await;
        way.attached = false;
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == name) {
            let why = format!("changing from its {} tier to another one", way.from.tier.kind.word());
            (entry.running, entry.absence) = (None, Some(Absence::Waiting(why, way.cancelled.clone())));
        }
    }

    /// Opens what a record says, in the place of a volume that was taken down. `backing`: where it is open already.
    async fn put_in_place(
        self: &Arc<Node>,
        former: &Running,
        record: Record,
        tier: Option<FoundTier>,
        backing: Option<Backing>,
    ) -> Answer<VolumeKey> {
        let (store, shm_size, name) = (self.store.clone(), self.shm_size, record.name.clone());
        let opening = former.opening.clone();
        let (placement, memory_node) = (self.placement.clone(), self.placement.memory_node(former.shard));
        let open = move || {
            // First: from here on a start opens this one.
            store.save(&record)?;
            let backing = backing.map_or_else(|| backing_again(&record, &opening), Ok)?;
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
        self.attach(opened, false, Some(former)).await?;
        Ok(self.running(&name)?.key)
    }

    /// Of a tier that nobody was served from: has it say that it holds nothing, so that whoever finds it may remove it, wherever the change
    /// breaks off from here on.
    pub(super) async fn leave_empty(&self, name: &str, running: &Running) {
        if self.snapshot(running).await.is_some_and(|snapshot| snapshot.status.dirty_bytes == 0) {
            let stop = self.control(name, running, Control::Stop { drain: true });
            // What says nothing of itself stays, and is told.
            let _ = tokio::time::timeout(LEFT_EMPTY_MAX, stop).await;
        }
    }

    /// The tier that does not count goes, and then the record's word about it, of the volume that has this key and the turn at changes.
    /// The error says what is still there.
    async fn forget_spare(&self, name: &str, key: VolumeKey) -> Result<(), String> {
        // Under this lock another volume of its name, which may have a tier in the same place, comes after it was deleted.
        let _admin = self.admin.lock().await;
        if !self.running(name).is_ok_and(|running| running.key == key) {
            return Ok(());
        }
        let Ok(record) = self.record_of(name) else { return Ok(()) };
        let Some(path) = record.spare.clone() else { return Ok(()) };
        let place = path.clone();
        match blocking(move || Ok(remove_spare(&record, &place))).await? {
            Removal::Done => {}
            Removal::NotOurs(remark) => log::say!(Notice, volume(name), "{remark}"),
            Removal::HasWrites(why) | Removal::Failed(why) => return Err(why),
        }
        let removed = path;
        let forget = |record: &mut Record| {
            if record.spare.as_ref() == Some(&removed) {
                record.spare = None;
            }
        };
        self.change_record(name, forget).await.map_err(|failed| failed.message)
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
