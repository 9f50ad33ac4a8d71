//! Sessions that read what others write, at any node: what one read has shown no later read of any of them may show gone, whoever
//! owns the volume by then (docs/protocol.md, A8).
//!
//! - A read counts against those that were *answered* before it was asked for. Of two at one time either may see more.
//! - Judged by numbers, which grow with the time of writing: of zeros nobody can tell when they were written, so they prove
//!   nothing.
//! - They read where something is under way, and again where they have read: what is to be gone is gone as soon as another
//!   owner serves, and is soon written over.

use super::{SECTOR_BYTES, Seen, see};
use crate::nbd::{Client, Command, Target};
use crate::rng::Rng;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ranges that are remembered as written of late, and as read of late.
const RECENT_MAX: usize = 16;
/// Between two reads of a session: those of three volumes at three nodes must leave two cores something.
const PACE: Duration = Duration::from_millis(40);
/// A session that is not answered for so long looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(200);
const BYTES_MAX: u64 = 16 << 10;

/// What was written of late, for who reads it.
#[derive(Clone, Debug, Default)]
pub struct Recent(Arc<Mutex<VecDeque<Range<u64>>>>);

impl Recent {
    /// This is about to be written.
    pub fn note(&self, range: &Range<u64>) {
        let mut ranges = self.0.lock().expect("nobody panics while holding it");
        ranges.truncate(RECENT_MAX - 1);
        ranges.push_front(range.clone());
    }

    fn any(&self, rng: &mut Rng) -> Option<Range<u64>> {
        let ranges = self.0.lock().expect("nobody panics while holding it");
        let chosen = rng.below(ranges.len().max(1) as u64) as usize;
        ranges.get(chosen).cloned()
    }
}

/// What the sessions of one volume share.
struct Shared {
    run: u64,
    /// For each sector the greatest number that an answered read has shown.
    shown: Mutex<Vec<u64>>,
    recent: Recent,
    reads: AtomicU64,
    finding: Mutex<Option<String>>,
    ends: AtomicBool,
}

/// The sessions of one volume.
pub struct Bystanders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Bystanders {
    /// One session for each of these places, which are told apart by their names.
    pub fn begin(run: u64, size: u64, seed: u64, recent: Recent, places: Vec<(String, Target)>) -> Bystanders {
        let shown = Mutex::new(vec![0; (size / SECTOR_BYTES) as usize]);
        let (reads, finding, ends) = (AtomicU64::new(0), Mutex::new(None), AtomicBool::new(false));
        let shared = Arc::new(Shared { run, shown, recent, reads, finding, ends });
        let session = |(number, (node, target)): (usize, (String, Target))| {
            let rng = Rng::new(seed ^ (number as u64 + 1) << 32);
            let mut reader = Reader { node, target, rng, shared: shared.clone(), again: VecDeque::new() };
            std::thread::spawn(move || reader.run())
        };
        let threads = places.into_iter().enumerate().map(session).collect();
        Bystanders { shared, threads }
    }

    /// How many reads were compared so far.
    pub fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::Relaxed)
    }

    /// What must not be, if it was.
    pub fn finding(&self) -> Option<String> {
        self.shared.finding.lock().expect("nobody panics while holding it").clone()
    }
}

impl Drop for Bystanders {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Reader {
    node: String,
    target: Target,
    rng: Rng,
    shared: Arc<Shared>,
    /// What it has read of late.
    again: VecDeque<Range<u64>>,
}

impl Reader {
    fn ends(&self) -> bool {
        let found = self.shared.finding.lock().expect("nobody panics while holding it").is_some();
        found || self.shared.ends.load(Ordering::Acquire)
    }

    fn run(&mut self) {
        while !self.ends() {
            // A session that is lost, or is answered by an error, is followed by another one.
            let _ = self.session();
            std::thread::sleep(GLANCE);
        }
    }

    fn session(&mut self) -> io::Result<()> {
        let mut client = Client::connect_with_patience(&self.target, Duration::from_secs(2))?;
        client.stream.set_read_timeout(Some(GLANCE))?;
        while !self.ends() {
            std::thread::sleep(PACE);
            let Some(range) = self.choose() else { continue };
            let floor = self.shared.shown.lock().expect("nobody panics while holding it")[sectors(&range)].to_vec();
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.read(&mut client, range.start, &mut bytes)?;
            self.compare(&range, &floor, &bytes);
        }
        Ok(())
    }

    /// Half of the time what was just written, else what it has read before, which others write no more or write again.
    fn choose(&mut self) -> Option<Range<u64>> {
        if self.rng.chance(50) && !self.again.is_empty() {
            let chosen = self.rng.below(self.again.len() as u64) as usize;
            return self.again.get(chosen).cloned();
        }
        let Range { start, end } = self.shared.recent.any(&mut self.rng)?;
        let range = start..end.min(start + BYTES_MAX);
        self.again.truncate(RECENT_MAX - 1);
        self.again.push_front(range.clone());
        Some(range)
    }

    /// Waits as long as it takes, and looks meanwhile whether it is to end.
    fn read(&self, client: &mut Client, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        client.send(Command::Read, 0, 1, offset, bytes.len() as u32, &[])?;
        let mut head = [0; 16];
        self.receive(client, &mut head)?;
        let error = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        if error != 0 {
            return Err(io::Error::other(format!("answered with {error}")));
        }
        self.receive(client, bytes)
    }

    fn receive(&self, client: &mut Client, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            match io::Read::read(&mut client.stream, &mut bytes[at..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => at += read,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if self.ends() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// `floor`: what had been shown when the read was asked for.
    fn compare(&self, range: &Range<u64>, floor: &[u64], bytes: &[u8]) {
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        let mut shown = self.shared.shown.lock().expect("nobody panics while holding it");
        for ((sector, floor), bytes) in sectors(range).zip(floor).zip(bytes.chunks_exact(SECTOR_BYTES as usize)) {
            let at = sector as u64 * SECTOR_BYTES;
            let seen = see(bytes, self.shared.run, at);
            let wrong = match seen {
                Seen::Zeros => false,
                Seen::Write(seq) => {
                    shown[sector] = shown[sector].max(seq);
                    seq < *floor
                }
                Seen::Misplaced { .. } | Seen::Damaged => true,
            };
            if wrong {
                let finding = format!(
                    "a read went back: a session at {} shows {seen} at byte {at}, where another read had shown #{floor} before",
                    self.node
                );
                self.shared.finding.lock().expect("nobody panics while holding it").get_or_insert(finding);
                return;
            }
        }
    }
}

fn sectors(range: &Range<u64>) -> Range<usize> {
    (range.start / SECTOR_BYTES) as usize..(range.end / SECTOR_BYTES) as usize
}
