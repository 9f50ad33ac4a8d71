//! Who only uses his volume: one request at a time, and he knows what each sector must hold.

use super::waits::Waits;
use super::{INNOCENT_BYTES, PATIENCE};
use forebay_tests::nbd::{Client, FLAG_FUA, FLAG_NO_HOLE, ServerError, Target};
use forebay_tests::pattern::{SECTOR_BYTES, Seen, fill, see};
use forebay_tests::rng::Rng;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two requests: there are several of his kind, and two cores.
const PACE: Duration = Duration::from_millis(2);
const SECTORS: u64 = INNOCENT_BYTES / SECTOR_BYTES;
/// Small requests have so many sectors at most, a few have as many as a large one.
const SMALL_SECTORS: u64 = 32;
const LARGE_SECTORS: u64 = (1 << 20) / SECTOR_BYTES;
/// What is read at a time when all of it is.
const AUDIT_BYTES: u64 = 1 << 20;

/// Number of the write that each sector must hold; 0 for zeros.
pub type Content = Vec<u64>;

/// A client at work on a thread of its own.
pub struct Innocent {
    volume: usize,
    end: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    thread: JoinHandle<Content>,
}

struct Worker {
    volume: usize,
    target: Target,
    client: Client,
    waits: Waits,
    rng: Rng,
    content: Content,
    writes: u64,
}

impl Innocent {
    /// Begins with a volume that holds only zeros.
    pub fn begin(volume: usize, target: Target, waits: &Waits, seed: u64) -> Innocent {
        let (end, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (asked_to_end, done, waits) = (end.clone(), answered.clone(), waits.clone());
        let client = Client::connect_within(&target, PATIENCE).expect("a client of a volume that is served");
        let (rng, content) = (Rng::new(seed ^ (volume as u64) << 32), vec![0; SECTORS as usize]);
        let mut worker = Worker { volume, target, client, waits, rng, content, writes: 0 };
        let thread = std::thread::spawn(move || {
            while !asked_to_end.load(Ordering::Relaxed) {
                if let Err(why) = worker.step() {
                    worker.waits.found(format!("{}: {why}", super::INNOCENTS[volume]));
                    break;
                }
                done.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PACE);
            }
            if let Err(why) = worker.audit() {
                worker.waits.found(format!("{}, at the end: {why}", super::INNOCENTS[volume]));
            }
            worker.content
        });
        Innocent { volume, end, answered, thread }
    }

    /// Requests that were answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// It reads everything once more, and says what the volume holds.
    pub fn end(self) -> (usize, Content) {
        self.end.store(true, Ordering::Relaxed);
        (self.volume, self.thread.join().expect("a finding is no panic"))
    }
}

fn carried_out(answer: io::Result<Result<(), ServerError>>, what: &str) -> Result<(), String> {
    answer.map_err(|e| format!("{what}: {e}"))?.map_err(|e| format!("{what}: {e}"))
}

/// Whether sectors from this one on hold what they must.
pub fn compare(run: u64, first: u64, bytes: &[u8], content: &[u64]) -> Result<(), String> {
    for (sector, (held, wanted)) in bytes.chunks_exact(SECTOR_BYTES as usize).zip(content).enumerate() {
        let offset = (first + sector as u64) * SECTOR_BYTES;
        let wanted = if *wanted == 0 { Seen::Zeros } else { Seen::Write(*wanted) };
        let seen = see(held, run, offset);
        if seen != wanted {
            return Err(format!("byte {offset} holds {seen}, and {wanted} was acknowledged"));
        }
    }
    Ok(())
}

impl Worker {
    /// Some sectors: most often a few.
    fn place(&mut self) -> (u64, u64) {
        let most = if self.rng.chance(4) { LARGE_SECTORS } else { SMALL_SECTORS };
        let count = 1 + self.rng.below(most);
        let aligned = if self.rng.chance(50) { 8 } else { 1 };
        let first = self.rng.below(SECTORS - count) / aligned * aligned;
        (first, count)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..45 => self.read(),
            45..80 => self.write(),
            80..88 => self.zero(),
            88..97 => {
                let (client, waits) = (&mut self.client, &self.waits);
                carried_out(waits.timed(self.volume, "FLUSH", || client.flush()), "FLUSH")
            }
            _ => self.come_again(),
        }
    }

    fn read(&mut self) -> Result<(), String> {
        let (first, count) = self.place();
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        let (client, name) = (&mut self.client, if count > SMALL_SECTORS { "READ, large" } else { "READ" });
        let answer = self.waits.timed(self.volume, name, || client.read(first * SECTOR_BYTES, &mut bytes));
        carried_out(answer, "READ")?;
        compare(self.volume as u64, first, &bytes, &self.content[first as usize..])
    }

    fn write(&mut self) -> Result<(), String> {
        let ((first, count), fua) = (self.place(), self.rng.chance(20));
        self.writes += 1;
        let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
        fill(&mut bytes, self.volume as u64, first * SECTOR_BYTES, self.writes);
        let (name, flags) = match (fua, count > SMALL_SECTORS) {
            (true, _) => ("WRITE, FUA", FLAG_FUA),
            (false, true) => ("WRITE, large", 0),
            (false, false) => ("WRITE", 0),
        };
        let client = &mut self.client;
        let answer = self.waits.timed(self.volume, name, || client.write(first * SECTOR_BYTES, &bytes, flags));
        carried_out(answer, name)?;
        self.content[first as usize..][..count as usize].fill(self.writes);
        Ok(())
    }

    fn zero(&mut self) -> Result<(), String> {
        let (first, count) = self.place();
        let flags = [0, FLAG_NO_HOLE, FLAG_FUA, FLAG_NO_HOLE | FLAG_FUA][self.rng.below(4) as usize];
        let (client, length) = (&mut self.client, (count * SECTOR_BYTES) as u32);
        let asked = || client.zero(first * SECTOR_BYTES, length, flags);
        carried_out(self.waits.timed(self.volume, "WRITE_ZEROES", asked), "WRITE_ZEROES")?;
        self.content[first as usize..][..count as usize].fill(0);
        Ok(())
    }

    /// Another connection takes the place of this one.
    fn come_again(&mut self) -> Result<(), String> {
        let target = &self.target;
        let connect = || Client::connect_with_patience(target, PATIENCE);
        self.client = self.waits.timed(self.volume, "connect", connect).map_err(|e| format!("connect: {e}"))?;
        Ok(())
    }

    fn audit(&mut self) -> Result<(), String> {
        let mut bytes = vec![0; AUDIT_BYTES as usize];
        for offset in (0..INNOCENT_BYTES).step_by(AUDIT_BYTES as usize) {
            let (client, first) = (&mut self.client, offset / SECTOR_BYTES);
            let answer = self.waits.timed(self.volume, "READ, large", || client.read(offset, &mut bytes));
            carried_out(answer, "READ")?;
            compare(self.volume as u64, first, &bytes, &self.content[first as usize..])?;
        }
        Ok(())
    }
}
