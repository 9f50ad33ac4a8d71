//! The open backing of a volume that serves, and how it is opened anew when its opening is of no use any more.
//!
//! A file server that was started anew without giving locks back, or that has expired this host, leaves an opening whose I/O fails
//! for good, while the path leads to a file that works ([`reopening`]). The volume goes on from its log meanwhile. What is done
//! then follows the rules of a restart, and keeps the clients.
//!
//! Invariants:
//! - Nothing is written by the new opening before nothing is under way by the former one, its lock is ours, and the file was found to
//!   be the same under that lock: by its numbers, and by the marker. What no sync has covered is written again.
//! - Once the lock of the former opening was given up nothing is asked of that any more, however the attempt ends.
//! - An attempt and a change of the tier, which opens a volume in this one's place over the same backing, do not meet: whoever comes
//!   second sees that the volume was closed, or the new opening.
//!
//! In a cluster the loss of a lock is the ownership's business (`forebay_core::ownership`, T9).

use super::{Answer, Node, Running, blocking, failure};
use crate::datapath::mailbox::{OpeningStep, ShardHandle, ToShard, VolumeKey};
use crate::failure::FailureKind;
use crate::judgement::Sighting;
use crate::log;
use crate::open::Image;
use anyhow::{Context, bail};
use forebay_api::record::Record;
use forebay_api::status::BackingReport;
use forebay_api::words::BackingState;
use forebay_io::backing::reopening::{self, Opening as Found};
use forebay_io::file::{Whereabouts, whereabouts};
use forebay_io::folder::FileKind;
use forebay_io::{Backing, BackingOptions, DeviceFile, Journal, LockAttempt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;
use tokio::sync::{Semaphore, oneshot};

/// How long is awaited what is under way to a backing that is to be opened anew. Reads fail meanwhile, which clients notice after 20 s.
const REST_MAX: std::time::Duration = std::time::Duration::from_secs(8);
/// And how long it is left alone then.
const REST_PAUSE: std::time::Duration = std::time::Duration::from_secs(30);
/// How long the lock of the journal is awaited, which nobody else takes.
const JOURNAL_LOCK_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// A backing that has not answered for so long is not there for who asks it now.
const REACH_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// Places for looks, which may hang with a server of images: threads are left for what is asked of volumes elsewhere.
static LOOKS: Semaphore = Semaphore::const_new(64);

/// The open backing of a volume, as the control plane has it.
pub(super) struct Opening {
    /// None where its one connection cannot be shared (NBD).
    backing: Option<Mutex<Backing>>,
    image: Mutex<Image>,
    /// One look at a time.
    looking: AtomicBool,
    /// It could be read at the last look, which was made because the backing failed.
    reads: AtomicBool,
    /// The lock of the opening was given up for another one, which is not there yet: why.
    given_up: Mutex<Option<String>>,
    /// Why it could not be opened anew, as of the last attempt.
    trouble: Mutex<Option<String>>,
    /// It is left alone until then.
    pause: Mutex<Option<Instant>>,
}

impl Opening {
    pub(super) fn new(backing: Option<Backing>, image: Image) -> Opening {
        Opening {
            backing: backing.map(Mutex::new),
            image: Mutex::new(image),
            looking: AtomicBool::new(false),
            reads: AtomicBool::new(false),
            given_up: Mutex::new(None),
            trouble: Mutex::new(None),
            pause: Mutex::new(None),
        }
    }

    /// What the control plane needs of it, as it is open now.
    pub(super) fn image(&self) -> Image {
        self.image.lock().expect("nobody panics while holding it").clone()
    }

    /// The open backing, for whoever opens a volume over it or enlarges it. Waits for an attempt to open it anew, and so for its server;
    /// none where it cannot be shared.
    pub(super) fn backing(&self) -> Option<MutexGuard<'_, Backing>> {
        Some(self.backing.as_ref()?.lock().expect("nobody panics while holding it"))
    }

    /// The backing for a volume in the place of one that was closed, of which nothing is under way any more, if its server answers: the
    /// same opening, or another one where that is dead. Whoever opens the volume takes its lock, if it is not ours. Takes as long as the
    /// server does.
    pub(super) fn for_next(&self, record: &Record) -> anyhow::Result<Backing> {
        let options =
            BackingOptions { create: None, format_raw: record.format_raw, volume_bytes: Some(record.size_bytes) };
        let Some(mut former) = self.backing() else { return Ok(Backing::open(&record.backing, options)?) };
        let file = former.file().context("it is no file")?.clone();
        if !self.is_given_up() {
            match reopening::look_at(&file) {
                Found::Works => return former.share().context("a file is shared"),
                Found::AllFail { own, anew } => bail!("{}", all_fail_words(&own, &anew)),
                Found::Dead(_) => {}
            }
        }
        let anew = open_same_file(record, &former)?;
        former.give_up_lock();
        Ok(anew)
    }

    fn given_up(&self) -> MutexGuard<'_, Option<String>> {
        self.given_up.lock().expect("nobody panics while holding it")
    }

    /// Why it could not be opened anew, if that was tried last.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().expect("nobody panics while holding it").clone()
    }

    /// It works: what was the matter with it is over.
    pub(super) fn works(&self) {
        *self.trouble.lock().expect("nobody panics while holding it") = None;
        self.reads.store(false, Ordering::Release);
    }

    /// Its lock is not ours, until it is opened anew: nothing is to be said or done in the name of the image.
    pub(super) fn is_given_up(&self) -> bool {
        self.given_up().is_some()
    }

    /// Whether the opening of a backing that fails could be read when it was looked at last: then nobody has taken its lock.
    pub(super) fn reads(&self) -> bool {
        self.reads.load(Ordering::Acquire) && self.trouble().is_none()
    }

    /// Refuses what needs the lock of the image, while it is not ours.
    pub(super) fn require_lock(&self) -> anyhow::Result<()> {
        if self.is_given_up() {
            bail!(
                "the lock of its image was lost, and is not this node's again yet; `forebay volume show` has the reason"
            );
        }
        Ok(())
    }

    fn pauses(&self) -> bool {
        self.pause.lock().expect("nobody panics while holding it").is_some_and(|until| Instant::now() < until)
    }

    /// Says in a report what is the matter with it.
    pub(super) fn show_in(&self, report: &mut BackingReport) {
        let Some(trouble) = self.trouble() else { return };
        if self.is_given_up() {
            report.state = BackingState::Failing;
        }
        if report.state == BackingState::Failing {
            let before = report.error.take().map_or(String::new(), |error| format!("{error}; "));
            report.error = Some(format!("{before}{trouble}"));
        }
    }

    /// Makes the backing at least so large. Waits for its server.
    pub(super) fn grow(&self, size_bytes: u64) -> anyhow::Result<()> {
        let Some(backing) = self.backing() else { return Ok(()) };
        self.require_lock()?;
        backing.grow(size_bytes).with_context(|| format!("cannot grow the backing {}", backing.name()))
    }

    fn return_unless_given_up(&self, key: VolumeKey, shard: &ShardHandle) {
        if !self.is_given_up() {
            shard.send(ToShard::Opening { key, step: OpeningStep::Return { anew: None } });
        }
    }

    fn note(&self, name: &str, trouble: Option<String>) {
        let mut noted = self.trouble.lock().expect("nobody panics while holding it");
        if let Some(text) = trouble.as_ref().filter(|_| *noted != trouble) {
            log::say!(Error, volume(name), "{text}");
        }
        *noted = trouble;
    }
}

impl Node {
    /// Refuses what needs the backing's server, where that does not answer within a few seconds.
    pub(super) async fn require_reachable(&self, name: &str, running: &Running) -> Answer<()> {
        let Err(why) = self.reaches(running).await else { return Ok(()) };
        failure(
            FailureKind::Conflict,
            format!(
                "volume {name}: its backing cannot be reached now, and this needs it: {why}. Nothing is changed; try again when \
                 `forebay volume show {name}` says that the backing is ready"
            ),
        )
    }

    /// Whether the first bytes of the backing can be read now, by the opening or connection that there is; the error says why not.
    async fn reaches(&self, running: &Running) -> Result<(), String> {
        let late = || format!("it has not answered for {} s", REACH_MAX.as_secs());
        match running.opening.image() {
            Image::File(file) => {
                let Ok(place) = LOOKS.try_acquire() else {
                    return Err("too many looks at other images wait for their servers".to_owned());
                };
                let look = blocking(move || {
                    let _place = place;
                    Ok(reopening::look_at(&file))
                });
                match tokio::time::timeout(REACH_MAX, look).await {
                    Ok(Ok(Found::Works)) => Ok(()),
                    Ok(Ok(Found::Dead(error))) => Err(format!("I/O by the file that is open fails ({error})")),
                    Ok(Ok(Found::AllFail { own, anew })) => Err(all_fail_words(&own, &anew)),
                    Ok(Err(panic)) => Err(panic),
                    Err(_) => Err(late()),
                }
            }
            Image::Nbd { .. } => {
                let (answer, answered) = oneshot::channel();
                self.shards[running.shard].send(ToShard::LookAtServer { key: running.key, answer });
                let looked = tokio::time::timeout(REACH_MAX, answered).await;
                let trouble = match looked {
                    Ok(Ok(Ok(()))) => return Ok(()),
                    Ok(Ok(Err(error))) => error.to_string(),
                    Ok(Err(_)) => "it was closed meanwhile".to_owned(),
                    Err(_) => late(),
                };
                let unreached = self.snapshot(running).await.and_then(|snapshot| snapshot.unreached);
                Err(unreached.unwrap_or(trouble))
            }
        }
    }

    /// The backing fails, or has been given up: finds out whether that is its opening's fault, and opens it anew then. Where it is not,
    /// `follow` comes after. Returns at once. A block device is left alone: its name says nothing of what is behind it.
    pub(super) fn look_at_opening(
        self: &Arc<Node>,
        record: Record,
        running: Running,
        follow: impl FnOnce() + Send + 'static,
    ) {
        let is_file = matches!(running.opening.image(), Image::File(file) if file.kind() == FileKind::Regular);
        if !is_file {
            running.opening.reads.store(true, Ordering::Release);
            return follow();
        }
        if running.opening.pauses() || !running.prepared.load(Ordering::Acquire) {
            return;
        }
        let Ok(place) = LOOKS.try_acquire() else {
            let text = "it is not looked at, because too many looks at other images wait for their servers";
            return running.opening.note(&record.name, Some(text.to_owned()));
        };
        if running.opening.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let node = self.clone();
        running.opening.reads.store(false, Ordering::Release);
        tokio::spawn(async move {
            let _place = place;
            let name = record.name.clone();
            let looked = node.open_anew_if_dead(record, &running).await;
            let reads = looked.is_ok();
            running.opening.note(&name, looked.err());
            running.opening.reads.store(reads, Ordering::Release);
            running.opening.looking.store(false, Ordering::Release);
            if reads {
                follow();
            }
        });
    }

    async fn open_anew_if_dead(&self, record: Record, running: &Running) -> Result<(), String> {
        let shard = self.shards[running.shard].clone();
        let Some(why) = why_dead(running, &shard).await? else { return Ok(()) };
        let key = running.key;
        let (left, is_left) = oneshot::channel();
        shard.send(ToShard::Opening { key, step: OpeningStep::Leave { left } });
        let journal = match tokio::time::timeout(REST_MAX, is_left).await {
            Ok(Ok(journal)) => journal,
            // It was closed meanwhile.
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                running.opening.return_unless_given_up(key, &shard);
                *running.opening.pause.lock().expect("nobody panics while holding it") =
                    Some(Instant::now() + REST_PAUSE);
                return Err(format!(
                    "its opening is dead ({why}), and what is under way by it has not ended for {} s, so it is not opened anew \
                     yet; that is tried again after {} s",
                    REST_MAX.as_secs(),
                    REST_PAUSE.as_secs()
                ));
            }
        };
        // Its server may take its time with the rest. After an attempt that failed, what that has said is shown.
        if running.opening.trouble().is_none() {
            let text = format!("its opening is dead ({why}), and another one is being made");
            running.opening.note(&record.name, Some(text));
        }
        let (running, name, dead) = (running.clone(), record.name.clone(), why.clone());
        let exchanged = blocking(move || {
            let exchanged = exchange(&record, &running, journal, dead, &shard);
            if exchanged.is_err() {
                running.opening.return_unless_given_up(key, &shard);
            }
            exchanged.map(|done| done.then_some(record.backing))
        });
        let exchanged = exchanged.await.map_err(|text| {
            format!("its opening is dead ({why}), and it cannot be opened anew: {text}; that is tried again")
        })?;
        if let Some(backing) = exchanged {
            log::say!(Notice, volume(name), "opened {backing} anew: {why}. What was not synced is written to it again");
        }
        Ok(())
    }
}

/// Why a backing is to be opened anew; none: image and journal work. An error says that nothing can be read by a new opening either.
async fn why_dead(running: &Running, shard: &ShardHandle) -> Result<Option<String>, String> {
    let opening = running.opening.clone();
    if let Some(why) = opening.given_up().clone() {
        return Ok(Some(why));
    }
    let Image::File(file) = opening.image() else { return Ok(None) };
    let (answer, journal) = oneshot::channel();
    shard.send(ToShard::Opening { key: running.key, step: OpeningStep::ShareJournal { answer } });
    let journal = journal.await.ok().flatten();
    let look = move || {
        let image = reopening::look_at(&file);
        Ok(match (&image, journal) {
            (Found::Works, Some(journal)) => journal.look(),
            (_, _) => image,
        })
    };
    match blocking(look).await? {
        Found::Works => Ok(None),
        Found::Dead(error) => Ok(Some(format!(
            "I/O by the file that was open had failed ({error}), as when a file server takes back its lock, while a new opening works"
        ))),
        Found::AllFail { own, anew } => Err(all_fail_words(&own, &anew)),
    }
}

fn all_fail_words(own: &std::io::Error, anew: &std::io::Error) -> String {
    format!("I/O by the file that is open fails ({own}), and a new opening at its path fails as well ({anew})")
}

/// Puts a new opening in the place of the dead one, of which nothing is under way. False: the volume was closed meanwhile.
fn exchange(
    record: &Record,
    running: &Running,
    journal: Option<Journal>,
    why: String,
    shard: &ShardHandle,
) -> anyhow::Result<bool> {
    let opening = &running.opening;
    let mut former = opening.backing().context("a connection is made anew by its client")?;
    // From here on a volume in this one's place is opened over what this leaves.
    if running.closed.load(Ordering::Acquire) {
        return Ok(false);
    }
    require_in_place(former.file().context("it is no file")?)?;
    let mut anew = open_same_file(record, &former)?;
    require_same_image(record, running, &anew)?;
    let new_journal = journal.as_ref().map(|journal| journal.opened_anew(&record.volume.0)).transpose()?;
    let held = running.marker.hold();
    *opening.given_up() = Some(why);
    drop(held);
    former.give_up_lock();
    match anew.try_lock().with_context(|| format!("cannot lock {}", anew.name()))? {
        LockAttempt::Locked => {}
        LockAttempt::HeldBy(holder) => bail!(
            "{} is in use by {holder}; end that use: what was acknowledged stays in the tier meanwhile",
            anew.name()
        ),
    }
    // Whoever had the lock until now may have written to it, or put another file in its place.
    require_same_image(record, running, &anew)?;
    if let (Some(journal), Some(anew)) = (&journal, &new_journal) {
        journal.hand_lock_to(anew, JOURNAL_LOCK_MAX)?;
    }
    let file = anew.file().expect("it is a file").clone();
    *former = anew.share().expect("a file is shared");
    *opening.image.lock().expect("nobody panics while holding it") = Image::File(file);
    *opening.given_up() = None;
    let step = OpeningStep::Return { anew: Some(Box::new((anew, new_journal))) };
    shard.send(ToShard::Opening { key: running.key, step });
    Ok(true)
}

/// Opens the file at the backing's path, without its lock: it must be the one that is open, by its numbers. A label or a time could be
/// another file's as well, of a copy that was made while the volume served.
fn open_same_file(record: &Record, former: &Backing) -> anyhow::Result<Backing> {
    let options = BackingOptions { create: None, format_raw: record.format_raw, volume_bytes: Some(record.size_bytes) };
    let anew = Backing::open(&record.backing, options)?;
    let name = anew.name();
    let numbers = |backing: &Backing| backing.file().map(|file| file.numbers());
    if numbers(&anew) != numbers(former) {
        bail!(
            "{name} is not the image that was served, as far as can be told: another file is at its path; put the right one back. If \
             that is the right one, restart the daemon"
        );
    }
    if (anew.align(), anew.is_past_cache()) != (former.align(), former.is_past_cache()) {
        bail!("{name} is used by {} now, and was by {}: restart the daemon", anew.access(), former.access());
    }
    Ok(anew)
}

/// What a start would refuse, of an image whose tier is here and holds writes.
fn require_same_image(record: &Record, running: &Running, anew: &Backing) -> anyhow::Result<()> {
    let name = anew.name();
    let marker = running.marker.as_left()?;
    let file = anew.file().context("it is no file any more")?;
    let sighting = Sighting::of(file).with_context(|| format!("cannot look at {name}"))?;
    if let Some(what) = sighting.difference(&marker) {
        bail!("{name} is not the image that was served, as far as can be told: {what}; put the right one back");
    }
    // Where numbers do not last, an owner labels his image, before he writes his marker.
    if sighting.label.is_some_and(|label| label.volume != record.volume) {
        bail!("{name} was labelled as the image of another volume: whoever has done that has taken it");
    }
    let (has, needs) = (anew.size()?, record.size_bytes);
    if has < needs {
        bail!("{name} has {has} bytes, and the volume has {needs}: it was cut off; put the right one back");
    }
    require_in_place(file)
}

/// Refuses a file that is not at the path at which it was opened, also where its server does not know it any more: the number of a file that
/// is gone may be another one's.
fn require_in_place(file: &DeviceFile) -> anyhow::Result<()> {
    let name = file.path().display();
    match whereabouts(file).with_context(|| format!("cannot look where {name} is"))? {
        Whereabouts::InPlace => Ok(()),
        Whereabouts::Deleted { .. } | Whereabouts::Elsewhere { .. } => bail!(
            "{name} is not the image that was served, as far as can be told: that is not at its path any more; put it back. If what is \
             there is the right one, restart the daemon"
        ),
    }
}
