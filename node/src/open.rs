//! Opens a volume: record, backing, tier, marker. Everything here may block, and runs on a thread of its own; what
//! comes out goes to a shard.
//!
//! Invariants:
//! - Nothing is changed before everything that could be refused has been looked at.
//! - The tier's lock is awaited before the tier is read; the backing's lock is tried, and where only requests of our own
//!   former process can hold it, awaited in the background while the volume serves from its log. An NBD export has no
//!   lock: after a stop that was not clean its quiet time is awaited instead, counted from when the tier's lock is ours.
//! - A memory tier is not used before the backing's lock is ours: its payload area is the arena that the former process's
//!   requests read into and write from, and the tier's own lock ends with that process, not with those requests.
//! - A volume counts as made (`TierRecord::made`) once it has served: only then can a missing tier be a loss.

use crate::facts::VolumeFacts;
use crate::journal::{self, Preparation};
use crate::judgement::{Label, Sighting, TierFound, Word, judge, settle};
use crate::log;
use crate::memory_place;
use crate::names;
use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::config;
use forebay_api::config::volume::VolumeSpec;
use forebay_api::config::{DestageName, TierName};
use forebay_api::record::{ImageIdentity, Marker, Record, VolumeId};
use forebay_api::units::show_size;
use forebay_core::VolumeConfig;
use forebay_core::format::{Superblock, TierKind, TierLayout};
use forebay_core::types::{BLOCK_BYTES, Duration, SECTOR_BYTES};
use forebay_host::topology::NodeNumber;
use forebay_io::backing::{BackingSpec, OpenError};
use forebay_io::folder::{FileKind, Held};
use forebay_io::journal::TierWord;
use forebay_io::{
    Arena, Backing, BackingOptions, DeviceFile, FlashTier, HolderDescription, Journal, LockAttempt, MemoryTier, Tier,
    VolumeIo,
};
use forebay_rescue::tier_reader::TierReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod first_steps;
mod making;
mod reconcile;
mod strangers;
pub use first_steps::{FirstSteps, also_left};
use making::wipe_fixed_blocks;
pub use making::{is_all_zeros, is_own_place, make_tier};
use reconcile::reconcile;
pub use reconcile::{record_of, stand_in};
use strangers::refuse_backing_of_another;

/// How long the lock of a tier is awaited: requests of a killed process end when the device has answered them.
pub const TIER_LOCK_WAIT: std::time::Duration = std::time::Duration::from_secs(60);
/// How soon a wait of minutes notices that the volume was closed.
const CLOSED_LOOK: std::time::Duration = std::time::Duration::from_millis(100);
/// Backing operations in flight at one time, if the backing ends them fast. Half of it is what an array's queue takes, and
/// enough to hide a WAN's latency.
pub const BACKING_DEPTH_MAX: u32 = 64;
/// Largest single backing write: beyond it neither disks nor NFS gain.
pub const BACKING_WRITE_BYTES_MAX: u32 = 1 << 20;
/// Bytes between two syncs of the backing: bounds what a take-over must rewrite, and what waits for one sync.
pub const DESTAGE_ROUND_BYTES_MAX: u64 = 32 << 20;
/// How long a dirty write waits for more to merge with.
pub const DESTAGE_DELAY: Duration = Duration::from_millis(500);

/// What a shard needs to serve a volume.
pub struct OpenVolume {
    /// What core must know of the volume at its start.
    pub config: VolumeConfig,
    /// Memory for its frames; of a memory tier it is the payload area.
    pub arena: Arena,
    /// Its tier, open and locked.
    pub tier: Tier,
    /// Its backing; locked unless the lock is awaited. None: a volume of a cluster, of which another node may be the owner.
    pub backing: Option<Backing>,
    /// Its journal, if it has been made.
    pub journal: Option<Journal>,
    /// A replay comes before anything else that is written to the backing.
    pub replay_due: bool,
}

/// A volume that was opened, and does not serve yet.
pub struct Opened {
    /// What the shard needs to serve it.
    pub volume: OpenVolume,
    /// As it must be saved once the volume serves.
    pub record: Record,
    /// What reports say of the volume while it is open.
    pub facts: VolumeFacts,
    /// Path of its marker.
    pub marker_path: PathBuf,
    /// The open backing, for its identity and for awaiting its lock.
    pub image: Image,
    /// What is to be done about its journal.
    pub preparation: Preparation,
    /// Where its journal lies, or why it has no place for one.
    pub journal_place: Result<PathBuf, String>,
    /// What the operator should know.
    pub remarks: Vec<String>,
    /// Where its memory was wanted.
    pub memory_node: Option<NodeNumber>,
    /// The tier may not be used before the backing's lock is ours: why.
    pub waits: Option<String>,
}

/// What the control plane needs of an open backing.
#[derive(Clone)]
pub enum Image {
    /// A file or block device.
    File(Arc<DeviceFile>),
    /// An NBD export: its size when it was opened, which is all that can be told of its identity, and how long late
    /// writes of an earlier process are awaited, if they are.
    Nbd {
        /// Size of the export in bytes, as it was when it was opened.
        size_bytes: u64,
        /// How long is waited before the first write; none: not at all.
        quiet: Option<std::time::Duration>,
    },
}

impl Image {
    /// Whether it may be written to, as soon as that can be told: no request of an earlier process can land any more (on
    /// an NBD export: none is expected). Blocks; false when the volume was closed meanwhile.
    pub fn await_free(&self, closed: &AtomicBool) -> bool {
        let file = match self {
            Image::File(file) => file,
            Image::Nbd { quiet: None, .. } => return true,
            // The shard looks at the clock itself: a moment too early would be a moment for ever.
            Image::Nbd { quiet: Some(quiet), .. } => {
                return sleep_unless(closed, *quiet + std::time::Duration::from_millis(10));
            }
        };
        while !closed.load(Ordering::Relaxed) {
            match forebay_io::lock::await_lock(file.file(), std::time::Duration::from_secs(1)) {
                Ok(LockAttempt::Locked) => return true,
                Ok(LockAttempt::HeldBy(_)) => {}
                Err(error) => {
                    log::say!(Error, "cannot lock {}: {error}; trying again", file.path().display());
                    std::thread::sleep(std::time::Duration::from_secs(1));
                }
            }
        }
        false
    }

    /// Looks at it.
    fn sighting(&self) -> std::io::Result<Sighting> {
        match self {
            Image::File(file) => Sighting::of(file),
            Image::Nbd { size_bytes, .. } => Ok(Sighting::of_size(*size_bytes)),
        }
    }

    /// What of its identity a marker keeps, durable. May block for as long as its file system does.
    pub fn settle(&self, label: Label) -> std::io::Result<ImageIdentity> {
        match self {
            Image::File(file) => settle(file, label),
            Image::Nbd { size_bytes, .. } => Ok(Sighting::of_size(*size_bytes).identity),
        }
    }
}

/// Lets a time pass; false when it was cut short.
fn sleep_unless(closed: &AtomicBool, time: std::time::Duration) -> bool {
    let end = std::time::Instant::now() + time;
    while !closed.load(Ordering::Relaxed) {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(CLOSED_LOOK));
    }
    false
}

/// What an opening takes over from the one before it in the same process.
#[derive(Default)]
pub struct Inherited {
    /// The backing, under the lock that has never been given up since.
    pub backing: Option<Backing>,
    /// A tier that was made for the record and has held nothing yet.
    pub tier: Option<FoundTier>,
}

/// Opens a volume that is recorded, asked for by a spec, or both. `steps`: what it makes of one that has never served.
pub fn open(
    store: &Store,
    recorded: Option<Record>,
    spec: Option<&VolumeSpec>,
    shm_size: Option<u64>,
    inherited: Inherited,
    steps: &mut FirstSteps,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Opened> {
    let (mut record, first) = reconcile(store, recorded, spec)?;
    let mut remarks = Vec::new();

    let mut backing = match inherited.backing {
        Some(backing) => backing,
        None => open_backing(&record, spec, first)?,
    };
    steps.note_image(&mut backing);
    try_backing_lock(&mut backing, !first && record.tier.made)?;
    if first {
        refuse_backing_of_another(store, &record, &backing)?;
    }
    let image_name = backing.name();
    let regular = backing.file().filter(|file| file.kind() == FileKind::Regular);
    let marker_path = store.marker_path(&record.name, regular.map(|file| file.path()));
    let marker = steps.load_marker(&marker_path)?;
    let mut image = match backing.file() {
        Some(file) => Image::File(file.clone()),
        None => Image::Nbd { size_bytes: backing.size()?, quiet: None },
    };
    let sighting = image.sighting().with_context(|| format!("cannot look at the backing {image_name}"))?;
    let mut sought = seek_tier(store, &mut record)?;
    let late_writes = may_have_late_writes(sought.found, marker.as_ref());
    let given_up = pass_judgement(&record, spec, &backing, marker.as_ref(), &sighting, &mut sought, &mut remarks)?;
    let Sought { found, word: tier_word, mut tier } = sought;
    // After the judgement: an image that is too small because it is another one is not to be enlarged.
    settle_sizes(&mut record, spec, &backing)?;
    let journal_place = journal::place(&backing);
    journal::check_place(&record, &journal_place)?;
    if let Some(tier) = given_up {
        drop(tier);
        remarks.push(put_aside(&record.tier.path)?);
    }
    // In the middle of a change it is the way back.
    if inherited.tier.is_none() {
        remarks.extend(forget_spare(store, &mut record));
    }

    // The tier's lock is ours, so the former process is gone, and with it everything that it had not yet sent.
    if late_writes {
        remarks.extend(keep_quiet(&mut image, &mut backing));
    }

    let fresh = tier.is_none();
    if fresh {
        make_ready_for_new_tier(&mut record, &mut backing, marker.as_ref(), found, shm_size, &mut remarks)?;
        steps.save(store, &record, first)?;
    }
    let mut preparation = journal::prepare(&record, &backing, tier_word)?;
    let at_once = first && record.destage == DestageName::Journaled && backing.locked();
    let made = if at_once { steps.make_journal(&mut preparation)? } else { None };
    if fresh {
        tier = Some(match inherited.tier {
            Some(tier) => tier,
            None => steps.make_tier(store, &record, progress)?,
        });
    }
    let waits = wait_for_former_requests(&record, &backing, fresh, &mut remarks);
    let (tier, superblock) = tier.expect("found or made above");

    let frames = frames_of(&record, &superblock);
    let arena = arena_for(&record, &tier, &superblock, frames)?;
    let facts = facts_of(&record, &backing, frames, &journal_place);
    let config = config_of(&record, superblock, fresh, frames, &backing, made.as_ref());
    let replay_due = preparation.holds_backing_back();
    let volume = OpenVolume { config, arena, tier, backing: Some(backing), journal: made, replay_due };
    // Whoever has wanted it somewhere says where.
    let memory_node = None;
    Ok(Opened { volume, record, facts, marker_path, image, preparation, journal_place, remarks, memory_node, waits })
}

/// Tries the backing's lock, unless it is ours already. It may be held by requests of our own former process, if there was one: these are
/// awaited.
fn try_backing_lock(backing: &mut Backing, has_served: bool) -> Result<()> {
    if backing.locked() {
        return Ok(());
    }
    let lock = backing.try_lock().with_context(|| format!("cannot lock the backing {}", backing.name()))?;
    match lock {
        LockAttempt::Locked => {
            backing.require_its_path().with_context(|| format!("cannot use the backing {}", backing.name()))
        }
        LockAttempt::HeldBy(HolderDescription::Unseen) if has_served => Ok(()),
        LockAttempt::HeldBy(holder) => bail!(
            "the backing {} is in use by {holder}; end that use first: two writers would destroy each other's data",
            backing.name()
        ),
    }
}

/// What was found at the place of a volume's tier.
struct Sought {
    found: TierFound,
    /// How far the backing is, as the tier says.
    word: Option<TierWord>,
    tier: Option<FoundTier>,
}

fn seek_tier(store: &Store, record: &mut Record) -> Result<Sought> {
    let (found, word, tier) = look_for_tier(record)?;
    let is_lost = found == TierFound::Missing && store.was_in_memory_of_an_earlier_boot(record)?;
    Ok(Sought { found: if is_lost { TierFound::LostWithBoot } else { found }, word, tier })
}

/// Refuses a tier, an image and a marker that do not belong together, unless the operator has said what then. The tier that
/// comes back is one whose writes are given up; it is not sought any more.
fn pass_judgement(
    record: &Record,
    spec: Option<&VolumeSpec>,
    backing: &Backing,
    marker: Option<&Marker>,
    sighting: &Sighting,
    sought: &mut Sought,
    remarks: &mut Vec<String>,
) -> Result<Option<Tier>> {
    let adopt = spec.is_some_and(|s| s.adopt_changed_backing);
    // What a memory tier lost with its host was given up when the volume was marked volatile.
    let volatile_lost = sought.found == TierFound::LostWithBoot
        && record.volatile
        && marker.is_none_or(|marker| marker.volume == record.volume);
    let word = if spec.is_some_and(|s| s.same_image) { Word::SameImage } else { Word::Nothing };
    let verdict = judge(marker, record.volume, sought.found, sighting, &backing.name(), word);
    if verdict.is_err() && (adopt || volatile_lost) {
        journal::refuse_for_unknown_image(backing, marker, sighting)?;
    }
    let mut given_up = None;
    match verdict {
        Ok(remark) => remarks.extend(remark),
        Err(error) if adopt => {
            remarks.push(format!("accepted by --adopt-changed-backing: {error:#}"));
            // The image is taken as it is: nothing that was meant for another one may reach it.
            given_up = sought.tier.take().map(|(tier, _)| tier);
            if given_up.is_some() {
                (sought.found, sought.word) = (TierFound::Missing, None);
            }
        }
        Err(error) if volatile_lost => {
            remarks.push(format!("the volume is volatile and goes on without its tier: {error:#}"));
        }
        Err(error) => return Err(error),
    }
    Ok(given_up)
}

/// Where no lock tells whether late writes of the former process are still under way, they are awaited: what the operator
/// should know of that.
fn keep_quiet(image: &mut Image, backing: &mut Backing) -> Option<String> {
    let Image::Nbd { quiet, .. } = image else { return None };
    let Duration(nanos) = backing.await_late_writes()?;
    let time = std::time::Duration::from_nanos(nanos);
    *quiet = Some(time);
    Some(format!(
        "the volume was not stopped cleanly, and no lock tells whether writes of its former process are still under \
         way to {}: nothing is written to it for {} s (nbd_quiet), the volume serves from its log meanwhile",
        backing.name(),
        time.as_secs_f64()
    ))
}

/// Brings a journal into the image that no tier has a word about any more, and gives the record what the new tier needs.
fn make_ready_for_new_tier(
    record: &mut Record,
    backing: &mut Backing,
    marker: Option<&Marker>,
    found: TierFound,
    shm_size: Option<u64>,
    remarks: &mut Vec<String>,
) -> Result<()> {
    // Whoever last wrote to the image: this volume before it lost its tier, or another that left it for good.
    let (owner, bytes) = match marker {
        Some(marker) if marker.volume != record.volume => (marker.volume, backing.size()?),
        Some(_) | None => (record.volume, record.size_bytes),
    };
    remarks.extend(journal::replay_without_tier(owner, bytes, backing)?);
    if matches!(found, TierFound::Missing | TierFound::LostWithBoot) {
        // Should the old tier come back, it must not pass for this volume's.
        record.volume = VolumeId::random()?;
    }
    record.tier.made = false;
    if record.tier.path.as_os_str().is_empty() {
        let place = memory_place::find(shm_size)?;
        remarks.extend(place.warning);
        record.tier.path = place.dir.join(format!("{}-{}.tier", record.name, record.volume));
    }
    Ok(())
}

/// Why the tier may not be used yet, if requests of a former process forbid it. Where they only keep the backing, the
/// operator is told.
fn wait_for_former_requests(
    record: &Record,
    backing: &Backing,
    fresh: bool,
    remarks: &mut Vec<String>,
) -> Option<String> {
    if backing.file().is_none() || backing.locked() {
        None
    } else if record.tier.kind == TierName::Memory && !fresh {
        Some(format!(
            "waiting for I/O of the former process to end: its requests to {} use the memory of the tier",
            backing.name()
        ))
    } else {
        remarks.push(format!(
            "requests of an earlier process to {} are still under way; the volume serves from its log meanwhile",
            backing.name()
        ));
        None
    }
}

/// The memory of a volume, if this host has it, and its index besides.
fn arena_for(record: &Record, tier: &Tier, superblock: &Superblock, frames: u32) -> Result<Arena> {
    let index = forebay_api::config::index_memory(record.tier.size_bytes, u64::from(frames) * BLOCK_BYTES);
    let arena = forebay_io::memory::can_be_had(index).and_then(|()| VolumeIo::arena_of(tier, superblock, frames));
    arena.with_context(|| {
        format!("volume {}: cannot set up its memory of {}", record.name, show_size(u64::from(frames) * BLOCK_BYTES))
    })
}

/// What reports say of a volume that has just been opened.
fn facts_of(record: &Record, backing: &Backing, frames: u32, journal_place: &Result<PathBuf, String>) -> VolumeFacts {
    VolumeFacts {
        name: record.name.clone(),
        volume: record.volume.to_string(),
        backing: record.backing.clone(),
        access: backing.access(),
        tier_kind: record.tier.kind,
        tier_path: record.tier.path.display().to_string(),
        tier_bytes: record.tier.size_bytes,
        volatile: record.volatile,
        memory_bytes: match record.tier.kind {
            TierName::Memory => 0,
            TierName::Flash => u64::from(frames) * BLOCK_BYTES,
        },
        journal: journal_place.clone().map(|path| path.display().to_string()),
    }
}

/// Frames of a volume: what its memory tier has of payload, or what it is given before a flash tier.
fn frames_of(record: &Record, superblock: &Superblock) -> u32 {
    match superblock.layout.kind {
        TierKind::Memory => superblock.layout.payload_blocks,
        TierKind::Flash => (record.memory_bytes / BLOCK_BYTES) as u32,
    }
}

/// What core is told of a volume that has just been opened.
fn config_of(
    record: &Record,
    superblock: Superblock,
    fresh: bool,
    frames: u32,
    backing: &Backing,
    journal: Option<&Journal>,
) -> VolumeConfig {
    VolumeConfig {
        superblock,
        fresh,
        size_bytes: record.size_bytes,
        policy: record.policy.into(),
        frames,
        backing_align: backing.align(),
        backing_depth_max: BACKING_DEPTH_MAX,
        backing_write_bytes_max: BACKING_WRITE_BYTES_MAX,
        destage_round_bytes_max: DESTAGE_ROUND_BYTES_MAX,
        journal_blocks: journal.map_or(0, Journal::blocks),
        destage: record.destage.into(),
        destage_delay: DESTAGE_DELAY,
        drain_max: Duration::from_secs(record.drain_max_s),
        cluster: None,
    }
}

/// The largest request that a volume takes on this medium, with the sizes of its record.
pub fn request_bytes_max(record: &Record, kind: TierName) -> u32 {
    let blocks = u32::try_from(record.tier.size_bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
    let layout = match kind {
        TierName::Memory => TierLayout::memory(blocks),
        TierName::Flash => TierLayout::flash(blocks),
    };
    // A size that is no tier's is refused where the tier is made.
    layout.map_or(0, |layout| {
        let frames = match kind {
            TierName::Memory => layout.payload_blocks,
            TierName::Flash => (record.memory_bytes / BLOCK_BYTES) as u32,
        };
        forebay_core::request_bytes_max(&layout, frames)
    })
}

/// What clients are told: what the volume takes on either medium, so that a change between them leaves it true.
pub fn request_bytes_told(record: &Record) -> u32 {
    request_bytes_max(record, TierName::Memory).min(request_bytes_max(record, TierName::Flash))
}

/// Whether a former process of this volume may have ended with writes under way to its backing.
fn may_have_late_writes(found: TierFound, marker: Option<&Marker>) -> bool {
    match found {
        TierFound::Present { clean, .. } => !clean,
        TierFound::Missing | TierFound::LostWithBoot | TierFound::FirstStart => {
            marker.is_some_and(|marker| !marker.clean)
        }
    }
}

fn open_backing(record: &Record, spec: Option<&VolumeSpec>, first: bool) -> Result<Backing> {
    let known = record.tier.made.then_some(record.size_bytes);
    let mut options = BackingOptions { create: None, format_raw: record.format_raw, volume_bytes: known };
    if let Some(spec) = spec
        && spec.create
        && first
    {
        let missing = || {
            let spec = BackingSpec::parse(&record.backing);
            spec.is_ok_and(|spec| spec.path().is_some_and(|path| !path.exists()))
        };
        match spec.size {
            Some(size) => options.create = Some(size),
            None if missing() => {
                bail!("cannot create the backing {}: say how large, such as --size 10G", record.backing)
            }
            None => {}
        }
    }
    match Backing::open(&record.backing, options) {
        // Its own advice, to let the file be made, is for new volumes.
        Err(OpenError::Missing { .. }) if !first => bail!(
            "the backing {} of volume {} is not there: mount its file system or put the image back, then start again; what the \
             tier holds can be copied out with `forebay salvage`, and a volume that is no longer wanted ends with `forebay \
             volume delete {}`",
            record.backing,
            record.name,
            record.name
        ),
        opened => Ok(opened?),
    }
}

/// Fixes the sizes of a new volume, and checks those of a known one against its backing.
fn settle_sizes(record: &mut Record, spec: Option<&VolumeSpec>, backing: &Backing) -> Result<()> {
    let has = backing.size().with_context(|| format!("cannot read the size of {}", backing.name()))?;
    if record.size_bytes == 0 {
        record.size_bytes = spec.and_then(|s| s.size).unwrap_or(has / SECTOR_BYTES * SECTOR_BYTES);
        config::check_size(&record.name, record.size_bytes)?;
    }
    // A new volume; or a known one on an export that is another one than it was, since a file or device is opened to fit.
    config::check_whole_units(record.size_bytes, backing).with_context(|| format!("volume {}", record.name))?;
    if let Some(asked) = spec.and_then(|s| s.size)
        && asked != record.size_bytes
    {
        bail!(
            "volume {} has {}, and {} was asked for; use `forebay volume resize {}`",
            record.name,
            show_size(record.size_bytes),
            show_size(asked),
            record.name
        );
    }
    if has < record.size_bytes {
        bail!(
            "the backing {} has {has} usable bytes, and volume {} has {}; enlarge it, for a file with `truncate -s {} FILE`, \
             or give a smaller --size for a new volume",
            backing.name(),
            record.name,
            record.size_bytes,
            record.size_bytes.next_multiple_of(u64::from(backing.align()))
        );
    }
    if record.tier.size_bytes == 0 {
        record.tier.size_bytes = config::tier_size_default(record.size_bytes);
    }
    if record.memory_bytes == 0 {
        record.memory_bytes = config::memory_default(record.size_bytes);
    }
    Ok(())
}

/// A tier that was opened, with what it says of itself.
pub type FoundTier = (Tier, Superblock);

/// The tier, if it is there, and what it says of its owner and of how far the backing is.
pub fn look_for_tier(record: &mut Record) -> Result<(TierFound, Option<TierWord>, Option<FoundTier>)> {
    if !record.tier.made {
        return Ok((TierFound::FirstStart, None, None));
    }
    let path = record.tier.path.as_path();
    let Some(held) = find_tier(path)? else { return Ok((TierFound::Missing, None, None)) };
    // A wiped device is what a missing file is: whoever wiped it gave up what was in it.
    if is_wiped_device(&held)? {
        return Ok((TierFound::Missing, None, None));
    }
    let tier = match record.tier.kind {
        TierName::Memory => Tier::Memory(MemoryTier::open_held(&held, TIER_LOCK_WAIT)?),
        TierName::Flash => Tier::Flash(FlashTier::open_held(&held, TIER_LOCK_WAIT)?),
    };
    let advice = || {
        format!(
            "the tier {} cannot be used; nothing was changed. `forebay inspect` shows what is left of it, `forebay salvage` \
             copies it out",
            path.display()
        )
    };
    let superblock = TierReader::of(&held)?.superblock().with_context(advice)?;
    if superblock.volume != record.volume.0 {
        return Err(anyhow::anyhow!(
            "it is the tier of volume {}, and not of {}; put the right one back",
            names::shown_in_full(VolumeId(superblock.volume)),
            names::shown_in_full(record.volume)
        ))
        .with_context(advice);
    }
    let blocks = match &tier {
        Tier::Memory(tier) => tier.blocks(),
        Tier::Flash(tier) => tier.blocks(),
    };
    if blocks < superblock.layout.tier_blocks {
        return Err(anyhow::anyhow!(
            "it was made with {} blocks of 4 KiB and has {blocks}: it was cut off; put the whole one back",
            superblock.layout.tier_blocks
        ))
        .with_context(advice);
    }
    let mut damage = Vec::new();
    // The first start writes one before it serves; core decides on everything else that may be damaged.
    let Some(newest) = TierReader::of(&held)?.checkpoints(&superblock, &mut damage).into_iter().next() else {
        let why = damage.first().map_or("there is none", |damage| &damage.reason);
        return Err(anyhow::anyhow!(
            "neither copy of its checkpoint can be read ({why}), so nobody knows where its log ends"
        ))
        .with_context(advice);
    };
    // The tier is the first to know of a resize.
    record.size_bytes = newest.size_bytes;
    let found = TierFound::Present { clean: newest.clean, term: newest.term.0 };
    let word = TierWord { term: newest.term, destaged: newest.destaged };
    Ok((found, Some(word), Some((tier, superblock))))
}

/// Whether there is a tier.
pub fn is_there(path: &Path) -> Result<bool> {
    Ok(find_tier(path)?.is_some())
}

/// The tier, if there is one. One that cannot be looked at is not one that is not there.
fn find_tier(path: &Path) -> Result<Option<Held>> {
    let found = Held::found(path);
    found.with_context(|| {
        format!(
            "cannot look at the tier {}, whose writes may be in no other place; nothing was changed. Give the daemon's user the \
             right to reach it, or repair what it lies on, and start again. If it is gone for good, take what is left of it out \
             of the way, which makes it a tier that is missing",
            path.display()
        )
    })
}

fn is_wiped_device(held: &Held) -> Result<bool> {
    if held.kind()? != FileKind::Block {
        return Ok(false);
    }
    let mut first = [0; BLOCK_BYTES as usize];
    let read = held.open(false, 0).and_then(|mut device| std::io::Read::read_exact(&mut device, &mut first));
    read.with_context(|| format!("cannot read the tier {}", held.path().display()))?;
    Ok(first.iter().all(|&byte| byte == 0))
}

/// Keeps a tier whose writes were given up under another name: nothing is destroyed, and `salvage` can still read it.
pub fn put_aside(path: &Path) -> Result<String> {
    let held = Held::of(path).with_context(|| format!("cannot look at the tier {}", path.display()))?;
    if held.kind()? != FileKind::Regular {
        bail!(
            "the tier {0} holds writes that would be given up, and a device cannot be put aside: copy them out by \
             `forebay salvage {0} --to NEW`, wipe it by `dd if=/dev/zero of={0} bs=1M count=1`, and start again with \
             --adopt-changed-backing",
            path.display()
        );
    }
    // A link may lead to it: it is found beside the file itself.
    let own = held.own_path()?;
    let named = |count: u32| {
        let mut name = own.file_name().unwrap_or_default().to_owned();
        name.push(if count == 1 { ".given-up".to_owned() } else { format!(".given-up-{count}") });
        name
    };
    let aside = (1..).map(named).find(|aside| !held.folder().has(aside)).expect("some number is free");
    let shown = own.with_file_name(&aside);
    held.rename(&aside)
        .with_context(|| format!("cannot put the tier {} aside as {}", path.display(), shown.display()))?;
    Ok(format!(
        "the writes in the tier are given up; it is kept as {0}: `forebay salvage {0} --to NEW` still copies them out, \
         remove it when nobody needs them",
        shown.display()
    ))
}

/// What became of a tier that a change of medium has left over.
pub enum Removal {
    /// The tier is gone.
    Done,
    /// Something else lies there, and stays.
    NotOurs(String),
    /// It was not left empty, as far as can be told, and stays.
    HasWrites(String),
    /// It is still there, and still to be removed.
    Failed(String),
}

/// Removes the tier of a volume that a change of medium has left over, and nothing else: never the one that was served from, whatever the
/// record says of both.
pub fn remove_spare(record: &Record, path: &Path) -> Removal {
    let name = &record.name;
    if record.tier.made && *path == record.tier.path {
        return Removal::Done;
    }
    let removed = (|| {
        let Some(held) = Held::found(path)? else { return Ok(Removal::Done) };
        match (spare_state(name, &held)?, held.kind()?) {
            (Spare::Formatted | Spare::Blank, FileKind::Regular) => held.remove()?,
            (Spare::Formatted, FileKind::Block) => wipe_fixed_blocks(&held)?,
            (Spare::Blank, FileKind::Block) => {}
            (Spare::Unclean, FileKind::Regular | FileKind::Block) => {
                return Ok(Removal::HasWrites(format!(
                    "a tier of it that was not left empty lies at {0} and does not count: `forebay inspect {0}` shows what is in it, \
                     `forebay salvage` copies that out; remove it when nobody needs it",
                    path.display()
                )));
            }
            (Spare::Other, FileKind::Regular | FileKind::Block) => {
                return Ok(Removal::NotOurs(format!(
                    "what lies at the place of its former tier, {}, stays: it is no tier of it; `forebay inspect` shows what it is",
                    path.display()
                )));
            }
        }
        anyhow::Ok(Removal::Done)
    })();
    removed.unwrap_or_else(|error| {
        Removal::Failed(format!("its tier {}, which does not count, could not be removed: {error:#}", path.display()))
    })
}

/// Removes a tier that is left over, and the record's word about it. Where one of the two cannot be done, the record goes on to name
/// it, the next start tries again, and the volume is served meanwhile.
fn forget_spare(store: &Store, record: &mut Record) -> Option<String> {
    let path = record.spare.as_ref()?;
    let remark = match remove_spare(record, path) {
        Removal::Done => None,
        Removal::NotOurs(remark) => Some(remark),
        Removal::HasWrites(why) | Removal::Failed(why) => return Some(why),
    };
    let forgotten = Record { spare: None, ..record.clone() };
    match store.change(record, &forgotten) {
        Ok(()) => {
            *record = forgotten;
            remark
        }
        Err(error) => Some(format!("its former tier is gone, and its record goes on to name it: {error:#}")),
    }
}

/// What lies at the place of a tier that is left over.
enum Spare {
    /// That tier: all that was in it is in the backing since.
    Formatted,
    /// Nothing yet: the first block is zeros.
    Blank,
    /// A tier of the volume that may hold what is in no other place, such as where the record is an old copy.
    Unclean,
    /// Something that is no tier of this volume.
    Other,
}

fn spare_state(name: &str, held: &Held) -> Result<Spare> {
    use std::os::unix::fs::FileExt;
    let reader = TierReader::of(held)?;
    let Ok(superblock) = reader.superblock() else {
        let mut first = [0; BLOCK_BYTES as usize];
        let read = held.open(false, 0)?.read_at(&mut first, 0)?;
        return Ok(if first[..read].iter().all(|&byte| byte == 0) { Spare::Blank } else { Spare::Other });
    };
    let mut damage = Vec::new();
    let newest = reader.checkpoints(&superblock, &mut damage).into_iter().next();
    let is_ours = superblock.name[..name.len()] == *name.as_bytes() && superblock.name[name.len()] == 0;
    Ok(match newest {
        Some(newest) if is_ours && newest.clean => Spare::Formatted,
        Some(_) | None if is_ours => Spare::Unclean,
        Some(_) | None => Spare::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who had made it, and takes it away again, has its lock until it has no name any more.
    #[test]
    fn an_image_that_was_taken_away_while_it_was_opened_is_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img");
        let open = || {
            std::fs::write(&path, vec![0; 8192]).unwrap();
            Backing::open(path.to_str().unwrap(), BackingOptions::default()).unwrap()
        };
        try_backing_lock(&mut open(), false).unwrap();
        for has_served in [false, true] {
            let mut opened = open();
            std::fs::remove_file(&path).unwrap();
            let refused = format!("{:#}", try_backing_lock(&mut opened, has_served).unwrap_err());
            assert!(refused.contains("removed or moved"), "{refused}");
            let mut opened = open();
            std::fs::rename(&path, folder.path().join("aside")).unwrap();
            std::fs::write(&path, vec![0; 8192]).unwrap();
            assert!(try_backing_lock(&mut opened, has_served).is_err(), "another one is at its path by now");
        }
        // Under a lock that has never been given up since, the volume's watch says where it is.
        let mut inherited = open();
        try_backing_lock(&mut inherited, true).unwrap();
        std::fs::remove_file(&path).unwrap();
        try_backing_lock(&mut inherited, true).unwrap();
    }
}
