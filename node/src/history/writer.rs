//! The thread that writes the history: a disk that is slow, full or broken costs points of the history, and nobody waits.
//!
//! What cannot be taken is dropped and counted; what fails is told by [`Writer::state`], and tried again.

use super::album::{self, Album};
use super::files::{self, HistoryFile};
use crate::events;
use anyhow::Context;
use forebay_api::calendar;
use forebay_api::history::format::{FILE_BYTES, Owner, Slot};
use forebay_api::history::pictures::Picture;
use forebay_api::status::HistoryState;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Things that may wait for the disk: 20 s of 50 volumes.
const WAITING_MAX: usize = 1024;
/// Most files, and so the bound on the disk: beyond it volumes go without a history, and that is told.
pub const FILES_MAX: usize = 256;
/// What failed is tried again so often.
const RETRY: Duration = Duration::from_secs(10);
/// So much may be held back until somebody wakes the thread; with more it is woken.
const HELD_MAX: usize = WAITING_MAX / 4;
/// How long a reader waits for what was held back.
const READER_WAIT: Duration = Duration::from_millis(500);
/// How long an end of the daemon waits for the last of it.
const END_WAIT: Duration = Duration::from_secs(2);
/// A file that nobody has written to for so long is of a volume that is gone: its points are all too old.
const LEFTOVER_AGE: Duration = Duration::from_secs(60 * 86400);

/// Something that the thread is to write.
pub enum Job {
    /// Slots of a file, each with the number of its ring.
    Slots(Owner, Vec<(usize, Slot)>),
    /// What a volume has measured in some minutes.
    Picture(Owner, Box<Picture>),
    /// A line of the events.
    Line(String),
    /// A volume is gone, and its history with it.
    Forget(Owner),
    /// Told when everything before it is written.
    End(SyncSender<()>),
}

/// The way to the thread.
#[derive(Clone)]
pub struct Writer {
    /// What comes at one time, so that the thread is woken once for it.
    jobs: Sender<Vec<Job>>,
    /// How much of that waits.
    waiting: Arc<AtomicUsize>,
    /// What can wait, so that the thread is not woken for each of it.
    held: Arc<Mutex<Vec<Job>>>,
    state: Arc<Mutex<HistoryState>>,
}

impl Writer {
    /// Starts the thread that writes into this folder.
    pub fn start(dir: &Path) -> std::io::Result<Writer> {
        let (jobs, received) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let state = Arc::new(Mutex::new(HistoryState::default()));
        let work = Work {
            dir: dir.to_owned(),
            state: state.clone(),
            waiting: waiting.clone(),
            files: HashMap::new(),
            albums: HashMap::new(),
            journal: None,
            failing: HashMap::new(),
        };
        std::thread::Builder::new().name("history".to_owned()).spawn(move || work.run(&received))?;
        Ok(Writer { jobs, waiting, held: Arc::default(), state })
    }

    /// Hands it over, after what was held back, or drops it.
    pub fn send(&self, job: Job) {
        let mut held = self.held_back();
        held.push(job);
        self.release(&mut held);
    }

    /// Holds it back until there is something else to be handed over, or somebody [wakes](Writer::wake) the thread.
    pub fn hold(&self, job: Job) {
        let mut held = self.held_back();
        held.push(job);
        if held.len() >= HELD_MAX {
            self.release(&mut held);
        }
    }

    /// Hands over what was held back.
    pub fn wake(&self) {
        self.release(&mut self.held_back());
    }

    /// In the order in which it came: the lock is held meanwhile, and nothing of it waits for the disk. Of what finds no room the
    /// oldest is dropped.
    fn release(&self, held: &mut Vec<Job>) {
        if held.is_empty() {
            return;
        }
        let mut jobs = std::mem::take(held);
        let room = WAITING_MAX.saturating_sub(self.waiting.load(Ordering::Acquire));
        // What came last is what somebody may wait for: an event, or the end.
        let mut dropped = jobs.drain(..jobs.len().saturating_sub(room)).count();
        let count = jobs.len();
        // Before the thread can count it off.
        self.waiting.fetch_add(count, Ordering::AcqRel);
        if count > 0 && self.jobs.send(jobs).is_err() {
            dropped += count;
        }
        if dropped > 0 {
            let mut state = self.locked();
            state.dropped += dropped as u64;
            state.problem.get_or_insert_with(|| "the disk does not keep up with the history".to_owned());
        }
    }

    /// How the writing fares.
    pub fn state(&self) -> HistoryState {
        self.locked().clone()
    }

    /// Waits until everything is written, but not for ever for a disk that answers nothing.
    pub fn end(&self) {
        self.await_written(END_WAIT);
    }

    /// What was held back is there for whoever reads the files, but for a disk that does not take it so soon.
    pub fn write_for_reader(&self) {
        let holds = !self.held_back().is_empty();
        if holds {
            self.await_written(READER_WAIT);
        }
    }

    fn await_written(&self, at_most: Duration) {
        let (done, end) = sync_channel(1);
        self.send(Job::End(done));
        // Where it found no room nobody will tell.
        let _ = end.recv_timeout(at_most);
    }

    fn held_back(&self) -> std::sync::MutexGuard<'_, Vec<Job>> {
        self.held.lock().expect("nobody panics while holding it")
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HistoryState> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

/// What has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Events,
    Points(Owner),
    Pictures(Owner),
}

struct Work {
    dir: PathBuf,
    state: Arc<Mutex<HistoryState>>,
    waiting: Arc<AtomicUsize>,
    files: HashMap<Owner, HistoryFile>,
    albums: HashMap<Owner, Album>,
    journal: Option<events::Journal>,
    /// What fails, and when it is tried again.
    failing: HashMap<Place, (String, Instant)>,
}

impl Work {
    fn run(mut self, jobs: &Receiver<Vec<Job>>) {
        remove_leftovers(&self.dir);
        for job in jobs.iter().flatten() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            match job {
                Job::Slots(owner, slots) => self.attempt(Place::Points(owner), |work| work.write(owner, &slots)),
                Job::Picture(owner, picture) => {
                    self.attempt(Place::Pictures(owner), |work| work.add_picture(owner, &picture));
                }
                Job::Line(line) => self.attempt(Place::Events, |work| work.add_line(&line)),
                Job::Forget(owner) => {
                    self.files.remove(&owner);
                    self.albums.remove(&owner);
                    self.failing.remove(&Place::Points(owner));
                    self.failing.remove(&Place::Pictures(owner));
                    album::remove(&self.dir, &owner);
                    // One that is not there need not be removed; one that cannot be is a leftover.
                    let _ = std::fs::remove_file(owner.path(&self.dir));
                }
                // Whoever waited may have given up.
                Job::End(done) => drop(done.send(())),
            }
            self.publish();
        }
    }

    fn attempt(&mut self, place: Place, work: impl FnOnce(&mut Work) -> anyhow::Result<()>) {
        let now = Instant::now();
        if self.failing.get(&place).is_some_and(|(_, again)| now < *again) {
            self.state.lock().expect("nobody panics while holding it").dropped += 1;
            return;
        }
        match work(self) {
            Ok(()) => drop(self.failing.remove(&place)),
            Err(error) => {
                self.state.lock().expect("nobody panics while holding it").dropped += 1;
                self.failing.insert(place, (format!("{error:#}"), now + RETRY));
                // Opened anew: what is there then may be another disk.
                match place {
                    Place::Points(owner) => drop(self.files.remove(&owner)),
                    Place::Pictures(owner) => drop(self.albums.remove(&owner)),
                    Place::Events => self.journal = None,
                }
            }
        }
    }

    fn write(&mut self, owner: Owner, slots: &[(usize, Slot)]) -> anyhow::Result<()> {
        if !self.files.contains_key(&owner) {
            anyhow::ensure!(
                self.files.len() < FILES_MAX,
                "no history of a volume: there are {FILES_MAX} already, which is the most"
            );
            std::fs::create_dir_all(&self.dir)
                .with_context(|| format!("cannot make the folder {}", self.dir.display()))?;
            let found = HistoryFile::open(&self.dir, owner, calendar::now_ms() / 1000)?;
            if let Some((aside, why)) = &found.damaged {
                let mut state = self.state.lock().expect("nobody panics while holding it");
                state.put_aside.push(format!("{}: {why}", aside.display()));
            }
            self.files.insert(owner, found.file);
        }
        let file = self.files.get_mut(&owner).expect("it was just put there");
        slots.iter().try_for_each(|(ring, slot)| file.write(*ring, slot))
    }

    fn add_picture(&mut self, owner: Owner, picture: &Picture) -> anyhow::Result<()> {
        if !self.albums.contains_key(&owner) {
            // A volume without a file has no album, either: that bounds them.
            anyhow::ensure!(self.files.contains_key(&owner), "no pictures of a volume without a history");
            self.albums.insert(owner, Album::open(&self.dir, owner)?);
        }
        files::require_room(&self.dir, album::FILE_BYTES_MAX)?;
        self.albums.get_mut(&owner).expect("it was just put there").add(picture)
    }

    fn add_line(&mut self, line: &str) -> anyhow::Result<()> {
        let place = || format!("cannot write the events into {}", self.dir.display());
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => {
                std::fs::create_dir_all(&self.dir).with_context(place)?;
                events::Journal::open(&self.dir).with_context(place)?
            }
        };
        journal.add(line).with_context(place)?;
        self.journal = Some(journal);
        Ok(())
    }

    fn publish(&self) {
        let problem = self.failing.values().map(|(why, _)| why).min().cloned();
        let mut state = self.state.lock().expect("nobody panics while holding it");
        state.problem = problem;
        state.files = self.files.len() as u32;
        state.bytes = self.files.len() as u64 * FILE_BYTES;
    }
}

/// Files of volumes that are long gone; those of volumes that are merely not served are newer, or have only too old points.
fn remove_leftovers(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.to_str().is_some_and(|name| {
            [".history", ".history.damaged", ".history.new", ".pictures", ".pictures.1"]
                .iter()
                .any(|ending| name.ends_with(ending))
        });
        let old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if ours && old().is_some_and(|age| age > LEFTOVER_AGE) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Owner = Owner { kind: 1, id: [3; 16] };

    fn state_after(dir: &Path, jobs: Vec<Job>) -> HistoryState {
        let writer = Writer::start(dir).unwrap();
        jobs.into_iter().for_each(|job| writer.send(job));
        writer.end();
        writer.state()
    }

    fn without_thread() -> (Writer, Receiver<Vec<Job>>) {
        let (jobs, taken) = channel();
        (Writer { jobs, waiting: Arc::default(), held: Arc::default(), state: Arc::default() }, taken)
    }

    fn slots() -> Job {
        Job::Slots(US, vec![(0, Slot::empty(calendar::now_ms() / 1000))])
    }

    #[test]
    fn what_fails_is_told_and_the_rest_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        // A folder where the file should be: it can be neither opened nor written.
        std::fs::create_dir(US.path(dir.path())).unwrap();
        let state = state_after(dir.path(), vec![slots(), slots(), Job::Line("x\n".into())]);
        assert!(state.problem.unwrap().contains("history"), "what fails is named");
        assert_eq!((state.dropped, state.files), (2, 0));
        assert_eq!(std::fs::read_to_string(dir.path().join("events.log")).unwrap(), "x\n");
    }

    #[test]
    fn what_is_held_back_comes_before_what_follows_and_for_readers() {
        let (writer, taken) = without_thread();
        writer.hold(slots());
        assert!(taken.try_recv().is_err(), "nobody is woken for it");
        writer.send(Job::Forget(US));
        let both = taken.try_recv().unwrap();
        assert!(matches!(both[..], [Job::Slots(..), Job::Forget(_)]), "what came first is written first");
        (0..HELD_MAX).for_each(|_| writer.hold(slots()));
        assert_eq!(taken.try_iter().flatten().count(), HELD_MAX, "no more than that is held back");

        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::start(dir.path()).unwrap();
        writer.hold(slots());
        writer.write_for_reader();
        assert!(US.path(dir.path()).exists());
    }

    #[test]
    fn a_volume_that_is_gone_takes_its_history_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let state = state_after(dir.path(), vec![slots()]);
        assert_eq!((state.files, state.bytes, state.problem), (1, FILE_BYTES, None));
        assert!(US.path(dir.path()).exists());
        let state = state_after(dir.path(), vec![slots(), Job::Forget(US), Job::Forget(US)]);
        assert_eq!((state.files, state.problem), (0, None));
        assert!(!US.path(dir.path()).exists());
    }

    #[test]
    fn nobody_waits_for_a_disk_that_does_not_answer() {
        let (writer, _nobody_takes_them) = without_thread();
        // Who waited here would wait for ever.
        for _ in 0..WAITING_MAX + 999 {
            writer.send(slots());
        }
        assert_eq!(writer.state().dropped, 999);
        assert!(writer.state().problem.unwrap().contains("keep up"));
    }

    #[test]
    fn leftovers_go_when_all_their_points_are_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new, other) = (dir.path().join("a.history"), dir.path().join("b.history"), dir.path().join("c.txt"));
        let past = std::time::SystemTime::now() - LEFTOVER_AGE - Duration::from_secs(60);
        for path in [&old, &new, &other] {
            let file = std::fs::File::create(path).unwrap();
            if path != &new {
                file.set_modified(past).unwrap();
            }
        }
        state_after(dir.path(), vec![]);
        assert!(!old.exists() && new.exists() && other.exists());
    }
}
