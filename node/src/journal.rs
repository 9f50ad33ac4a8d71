//! The journal beside a volume's image: where it lies, what an earlier life left in it, when it is made and removed.
//!
//! Invariants:
//! - Nothing but a replay is written to a backing before what an earlier life left in its journal is in it, and the
//!   tier, where there is one, has recorded that: only then is the journal erased, only then is the backing ready.
//! - A volume that is to use a journal says so in its marker before the journal is made.
//! - A journal that may hold a batch goes with its volume only after a replay.
//!
//! A journal lies beside a regular file and nowhere else. Kept apart from the image it could be lost without it, in the
//! middle of a batch, and then the image would be no crash image: block devices and NBD exports are destaged in order.
//!
//! Left to others: what a batch is and how it is replayed (`forebay-io`), when batches are made (core).

use crate::judgement::Sighting;
use anyhow::{Context, Result, bail};
use forebay_api::config::DestageName;
use forebay_api::record::{Marker, Record, VolumeId};
use forebay_core::types::{BLOCK_BYTES, Lsn};
use forebay_io::backing::BackingSpec;
use forebay_io::folder::FileKind;
use forebay_io::journal::{self, Replay, ReplayRequest, TierWord, Verdict};
use forebay_io::{Backing, BackingOptions, DeviceFile, Journal, JournalError, LockAttempt, folder};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// How long requests of an earlier process are awaited where nothing can be served meanwhile.
const LOCK_WAIT: Duration = Duration::from_secs(60);
/// Between two looks at whether the volume was closed, and two attempts of a replay whose devices fail.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the journal of a backing lies, or why it has no place for one.
pub fn place(backing: &Backing) -> Result<PathBuf, String> {
    match backing.file() {
        Some(file) if file.kind() == FileKind::Regular => Ok(journal::beside(file.own_path())),
        Some(_) => Err("a block device has no place beside it for a journal".into()),
        None => Err("an NBD export has no place beside it for a journal".into()),
    }
}

/// Refuses journaled destage where there is no place for a journal.
pub fn check_place(record: &Record, place: &Result<PathBuf, String>) -> Result<()> {
    match (record.destage, place) {
        (DestageName::Journaled, Err(why)) => {
            bail!("volume {}: journaled destage needs a journal, but {why}; use --destage auto or ordered", record.name)
        }
        (DestageName::Journaled | DestageName::Auto | DestageName::Ordered, _) => Ok(()),
    }
}

/// What is to be done about a volume's journal once it serves.
#[derive(Debug)]
pub enum Plan {
    /// Nothing: there is none, and none is wanted or possible.
    Nothing,
    /// There is none yet: make one.
    Make,
    /// An earlier life left one: replay it.
    Replay(ReplayRequest),
}

/// What the volume is told of it.
pub enum Step {
    /// The backing is locked, and the journal of an earlier life comes first.
    ReplayBegins,
    /// A batch of an earlier life, if there was one, is durable in the backing.
    Replayed {
        /// The backing has everything up to here.
        through: Option<Lsn>,
        /// Told when the tier has recorded it.
        recorded: mpsc::Sender<()>,
    },
    /// There is an erased journal beside the backing now, open and locked.
    Made(Journal),
    /// The backing is locked: nobody else can write to it any more.
    BackingReady,
}

/// A plan, and what it takes to carry it out.
pub struct Preparation {
    /// What is to be done about the journal once the volume serves.
    pub plan: Plan,
    /// The open image, for what is written to it besides the data path; none where there is no journal.
    pub backing: Option<Backing>,
    /// Path of the journal beside the image.
    pub path: PathBuf,
    /// The volume whose journal it is.
    pub volume: VolumeId,
    /// Bytes of both areas; none: no journal is wanted.
    pub areas_bytes: Option<u64>,
}

/// Bytes of both areas that a record means.
pub fn areas_bytes(record: &Record) -> u64 {
    match record.journal_bytes {
        0 => journal::areas_bytes_default(record.size_bytes),
        asked => asked,
    }
}

/// Finds out what must be done; changes nothing. `tier`: its word, where it is there.
pub fn prepare(record: &Record, backing: &Backing, tier: Option<TierWord>) -> Result<Preparation> {
    let areas_bytes = match record.destage {
        DestageName::Ordered => None,
        DestageName::Journaled | DestageName::Auto => Some(areas_bytes(record)),
    };
    let volume = record.volume;
    let nothing = Preparation { plan: Plan::Nothing, backing: None, path: PathBuf::new(), volume, areas_bytes };
    let Ok(path) = place(backing) else { return Ok(nothing) };
    let plan = match journal::check(&path, &volume.0, tier.map(|tier| tier.term))? {
        Some(_) => {
            Plan::Replay(ReplayRequest { volume: volume.0, volume_bytes: record.size_bytes, tier, lock_timeout: PAUSE })
        }
        None if areas_bytes.is_some() => Plan::Make,
        None => return Ok(nothing),
    };
    Ok(Preparation { plan, backing: backing.share(), path, volume, areas_bytes })
}

/// The volume's tier is lost, and that was accepted: brings a batch that its journal holds into the image, so that it is
/// a crash image again. `owner`: the volume that last wrote to the image. A remark, if anything was done.
pub fn replay_without_tier(owner: VolumeId, volume_bytes: u64, backing: &mut Backing) -> Result<Option<String>> {
    let Ok(path) = place(backing) else { return Ok(None) };
    if journal::check(&path, &owner.0, None)?.is_none() {
        return Ok(None);
    }
    await_backing(backing)?;
    let request = ReplayRequest { volume: owner.0, volume_bytes, tier: None, lock_timeout: LOCK_WAIT };
    let report = journal::replay(&path, &request, backing)?;
    journal::remove(&path, &owner.0)?;
    Ok(report.in_backing_through().map(|through| {
        format!("the journal {} was replayed: the image has everything up to log position {through}", path.display())
    }))
}

/// A tier is given up, or lost, and the image is not the one that the marker speaks of, or there is no marker. Whether a
/// batch in the journal belongs to this image nobody knows but the operator: applied to another one it destroys that, and kept
/// from its own it leaves a torn one. Refuses where there is one.
pub fn refuse_for_unknown_image(backing: &Backing, marker: Option<&Marker>, image: &Sighting) -> Result<()> {
    let Ok(path) = place(backing) else { return Ok(()) };
    let unknown = match marker {
        Some(marker) => image.difference(marker),
        None => Some("there is no marker beside it".to_owned()),
    };
    let Some(what) = unknown.filter(|_| path.exists()) else { return Ok(()) };
    match journal::inspect(&path)?.verdict {
        Verdict::NothingToApply => Ok(()),
        Verdict::Apply(_) | Verdict::AlreadyInBacking(_) => bail!(
            "the journal {0} holds writes, and {1} is not known to be the image that they belong to: {what}. Put the right \
             image back. If the image was copied with its journal, make a whole one by `forebay salvage {0} --to NEW` and \
             serve that; if the journal belongs to another image, move it away; then accept the image as it is with \
             --adopt-changed-backing",
            path.display(),
            backing.name()
        ),
    }
}

/// The journal of a volume that is about to be forgotten, if there is one; an error where it could not be replayed, or where nobody
/// knows whether there is one. `marker`: the volume's own, which tells the image that the journal belongs to. Changes nothing.
pub fn left_behind(record: &Record, marker: Option<&Marker>) -> Result<Option<PathBuf>> {
    let Ok(spec) = BackingSpec::parse(&record.backing) else { return Ok(None) };
    let Some(image) = spec.path() else { return Ok(None) };
    let path = match journal::path_of(image) {
        Ok(path) => path,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let image = image.display();
            return Err(error)
                .with_context(|| format!("cannot look for a journal, which may hold writes, beside {image}"));
        }
    };
    match journal::check(&path, &record.volume.0, None) {
        Ok(Some(_)) => {
            let another = match marker {
                Some(marker) => another_image(marker, image)?,
                None if journal::inspect(&path)?.verdict == Verdict::NothingToApply => None,
                None => Some("there is no marker that says which image it belongs to".to_owned()),
            };
            if let Some(what) = another {
                bail!(
                    "the journal {} is not known to belong to the image at {}: {what}; put the right image back, or move \
                     the journal away if nobody needs that image",
                    path.display(),
                    image.display()
                );
            }
            Ok(Some(path))
        }
        Ok(None) | Err(JournalError::OtherVolume { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// How the file at a path differs from the image that a marker was written for.
fn another_image(marker: &Marker, path: &Path) -> Result<Option<String>> {
    let file = folder::open_image(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let file = DeviceFile::buffered(file, path, "it is only looked at")?;
    let found = Sighting::of(&file).with_context(|| format!("cannot look at {}", path.display()))?;
    Ok(found.difference(marker))
}

/// Before a volume is forgotten: what its journal holds goes into the image, then the journal goes.
pub fn finish(record: &Record, path: &Path) -> Result<()> {
    match journal::remove(path, &record.volume.0) {
        Err(JournalError::NotReplayed { .. }) => {}
        other => return Ok(other?),
    }
    let volume_bytes = Some(record.size_bytes);
    let mut backing = Backing::open(&record.backing, BackingOptions { create: None, format_raw: true, volume_bytes })?;
    replay_without_tier(record.volume, record.size_bytes, &mut backing).map(|_| ())
}

fn await_backing(backing: &mut Backing) -> Result<()> {
    let name = backing.name();
    if let Some(file) = backing.file() {
        let awaited = forebay_io::lock::await_lock(file.file(), LOCK_WAIT);
        if let LockAttempt::HeldBy(holder) = awaited.with_context(|| format!("cannot lock the backing {name}"))? {
            bail!("the backing {name} is still in use by {holder}; its journal must be replayed before it is served");
        }
    }
    backing.try_lock().with_context(|| format!("cannot lock the backing {name}"))?;
    Ok(())
}

impl Preparation {
    /// Makes the journal at once, so that a new volume that must have one is refused where it cannot.
    pub fn make_now(&mut self) -> Result<Option<Journal>, JournalError> {
        match self.plan {
            Plan::Make => {
                let made = self.make()?;
                self.plan = Plan::Nothing;
                Ok(Some(made))
            }
            Plan::Nothing | Plan::Replay(_) => Ok(None),
        }
    }

    /// The backing must not be written to before this is done.
    pub fn holds_backing_back(&self) -> bool {
        matches!(self.plan, Plan::Replay(_))
    }

    /// Does what is to be done, once the backing's lock is ours, and tells the volume. Blocks; ends early when `closed`.
    pub fn run(mut self, tell: impl Fn(Step), closed: &AtomicBool, say: impl Fn(String)) {
        let mut journal = None;
        if let Plan::Replay(request) = self.plan {
            tell(Step::ReplayBegins);
            let Some(erased) = self.replay(request, &tell, closed, &say) else { return };
            let as_wanted = self.areas_bytes == Some(u64::from(erased.blocks()) * BLOCK_BYTES);
            journal = Some(erased).filter(|_| as_wanted);
        }
        let make = match self.plan {
            Plan::Nothing => false,
            Plan::Make => true,
            Plan::Replay(_) => journal.is_none() && self.areas_bytes.is_some(),
        };
        let remove = self.holds_backing_back() && journal.is_none();
        if let Some(journal) = journal {
            tell(Step::Made(journal));
        }
        // The making of a journal is nothing that destage waits for.
        tell(Step::BackingReady);
        if remove && let Err(error) = journal::remove(&self.path, &self.volume.0) {
            return say(error.to_string());
        }
        if make {
            match self.make() {
                Ok(journal) => tell(Step::Made(journal)),
                Err(error) => say(format!("it is destaged in order: {error}")),
            }
        }
    }

    /// A new journal, in the place of one that another volume has left empty.
    fn make(&self) -> Result<Journal, JournalError> {
        journal::remove_left_empty(&self.path)?;
        Journal::create(&self.path, &self.volume.0, self.areas_bytes.expect("one is wanted"), PAUSE)
    }

    /// Tries until it is done or the volume is closed.
    fn replay(
        &mut self,
        request: ReplayRequest,
        tell: &impl Fn(Step),
        closed: &AtomicBool,
        say: &impl Fn(String),
    ) -> Option<Journal> {
        let mut backing = self.backing.take().expect("there is an image beside the journal");
        let mut told = String::new();
        let mut again = |error: anyhow::Error| {
            let text = format!("{error:#}");
            if text != told {
                say(format!("nothing is destaged before its journal is replayed: {text}; trying again"));
                told = text;
            }
            std::thread::sleep(PAUSE);
        };
        while !closed.load(Ordering::Relaxed) {
            let applied = await_lock(&mut backing)
                .and_then(|()| Ok(Replay::begin(&self.path, request, &mut backing)?))
                .and_then(|replay| replay.apply(&mut backing).map(|()| replay).map_err(Into::into));
            let replay = match applied {
                Ok(replay) => replay,
                Err(error) => {
                    again(error);
                    continue;
                }
            };
            let (recorded, is_recorded) = mpsc::channel();
            tell(Step::Replayed { through: replay.report().in_backing_through(), recorded });
            while let Err(error) = is_recorded.recv_timeout(PAUSE) {
                // The volume is gone, or going.
                if error == mpsc::RecvTimeoutError::Disconnected || closed.load(Ordering::Relaxed) {
                    return None;
                }
            }
            while !closed.load(Ordering::Relaxed) {
                match replay.erase(&mut backing) {
                    Ok(journal) => return Some(journal),
                    Err(error) => again(error.into()),
                }
            }
        }
        None
    }
}

/// The thread before has awaited it already; this one's handle must know.
fn await_lock(backing: &mut Backing) -> Result<()> {
    match backing.try_lock()? {
        LockAttempt::Locked => Ok(()),
        LockAttempt::HeldBy(holder) => bail!("the backing {} is in use by {holder}", backing.name()),
    }
}
