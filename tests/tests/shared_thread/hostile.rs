//! Who does to his volume whatever NBD permits, and more: one thing after the other, at random.

use super::waits::Waits;
use super::{HOSTILE_PATIENCE, PATIENCE};
use forebay_tests::flood::{
    self, BLOCK, CACHE, FAST_ZERO, FLUSH, READ, REQ_ONE, SIZE, STATUS, TRIM, UNKNOWN, WRITE, ZEROES, many, request,
};
use forebay_tests::nbd::{Client, FLAG_FUA, FLAG_NO_HOLE, MAGIC, OPTION_MAGIC, Stream, Target, receive_extended};
use forebay_tests::rng::Rng;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest request that is answered and not refused.
const LARGEST: u64 = 32 << 20;
/// Connections of one who leaves them half-done.
const HALF_DONE: usize = 8;

/// Requests that come in a burst: name, command, flags and length.
const BURSTS: [(&str, u16, u16, u64); 25] = [
    ("READ, 512 bytes", READ, 0, 512),
    ("READ, largest", READ, 0, LARGEST),
    ("WRITE, 4 KiB", WRITE, 0, BLOCK),
    ("WRITE, 4 KiB, FUA", WRITE, FLAG_FUA, BLOCK),
    ("WRITE, parts of sectors", WRITE, 0, 700),
    ("WRITE, parts of sectors of one block", WRITE, 0, 701),
    ("WRITE, largest", WRITE, 0, LARGEST),
    ("WRITE, largest, FUA", WRITE, FLAG_FUA, LARGEST),
    ("FLUSH", FLUSH, 0, 0),
    ("TRIM, 4 KiB", TRIM, 0, BLOCK),
    ("TRIM, all", TRIM, 0, SIZE),
    ("TRIM, all, FUA", TRIM, FLAG_FUA, SIZE),
    ("WRITE_ZEROES, all", ZEROES, 0, SIZE),
    ("WRITE_ZEROES, all, FUA", ZEROES, FLAG_FUA, SIZE),
    ("WRITE_ZEROES, parts of sectors of one block", ZEROES, 0, 701),
    ("WRITE_ZEROES, all but parts of sectors", ZEROES, 0, SIZE - 700),
    ("WRITE_ZEROES, NO_HOLE", ZEROES, FLAG_NO_HOLE, flood::WRITTEN),
    ("WRITE_ZEROES, NO_HOLE, FUA", ZEROES, FLAG_NO_HOLE | FLAG_FUA, flood::WRITTEN),
    ("WRITE_ZEROES, FAST_ZERO", ZEROES, FAST_ZERO, SIZE),
    ("CACHE, all", CACHE, 0, SIZE),
    ("CACHE, 4 KiB", CACHE, 0, BLOCK),
    ("BLOCK_STATUS, all", STATUS, 0, SIZE),
    ("BLOCK_STATUS, one extent", STATUS, REQ_ONE, SIZE),
    ("no such command", UNKNOWN, 0, BLOCK),
    ("READ, longer than the volume", READ, 0, SIZE + BLOCK),
];

/// What is done, besides bursts that are answered.
const OTHERS: [&str; 6] = [
    "replies never taken",
    "half a head",
    "half a payload",
    "connects and disconnects",
    "a garbage handshake",
    "garbage as requests",
];

/// What was done, and how often.
pub type Deeds = BTreeMap<&'static str, u64>;

/// All kinds of deeds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    BURSTS.iter().map(|(name, ..)| *name).chain(OTHERS)
}

/// A hostile client at work on a thread of its own.
pub struct Hostile {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Deeds>,
}

struct Worker {
    target: Target,
    rng: Rng,
    end: Arc<AtomicBool>,
}

impl Hostile {
    /// Begins with a kind that this number says, so that several do not begin alike.
    pub fn begin(number: usize, target: Target, waits: &Waits, seed: u64) -> Hostile {
        let end: Arc<AtomicBool> = Arc::default();
        let (mut worker, waits) =
            (Worker { target, rng: Rng::new(seed ^ (number as u64 + 1) << 40), end: end.clone() }, waits.clone());
        let thread = std::thread::spawn(move || {
            let mut deeds = Deeds::new();
            while !worker.end.load(Ordering::Relaxed) {
                let deed = worker.rng.below((BURSTS.len() + 3 * OTHERS.len()) as u64) as usize;
                let other = deed.checked_sub(BURSTS.len()).map(|other| OTHERS[other % OTHERS.len()]);
                let name = other.unwrap_or_else(|| BURSTS[deed % BURSTS.len()].0);
                let number = waits.begins(name, None);
                // The daemon may refuse it, or end the connection: what it does to others counts.
                let done = match other {
                    Some(other) => worker.other(other),
                    None => worker.burst(deed),
                };
                waits.ends(number);
                match done {
                    Ok(()) => *deeds.entry(name).or_default() += 1,
                    // It may not be let in while its volume changes.
                    Err(_) => std::thread::sleep(Duration::from_millis(20)),
                }
            }
            deeds
        });
        Hostile { end, thread }
    }

    /// It stops, and says what it did.
    pub fn end(self) -> Deeds {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().expect("a refusal is no panic")
    }
}

/// Takes answers until the connection ends.
fn take_answers(stream: &mut Stream) -> u64 {
    std::iter::from_fn(|| receive_extended(stream).ok()).filter(|chunk| chunk.done).count() as u64
}

impl Worker {
    fn connect(&self) -> io::Result<Stream> {
        flood::connect(&self.target, HOSTILE_PATIENCE)
    }

    /// As long as it was drawn, and no longer than the test.
    fn linger(&mut self, most: u64) {
        let (begun, lasts) = (Instant::now(), Duration::from_millis(200 + self.rng.below(most)));
        while begun.elapsed() < lasts && !self.end.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn bytes_of(&self, burst: usize) -> Vec<u8> {
        let (_, command, flags, length) = BURSTS[burst % BURSTS.len()];
        match length {
            700 => (0..1024).flat_map(|number| request(command, flags, number * 9973 + 1, length)).collect(),
            701 => (0..1024).flat_map(|_| request(command, flags, 1, length)).collect(),
            almost if almost == SIZE - 700 => (0..1024).flat_map(|_| request(command, flags, 1, almost)).collect(),
            beyond if beyond > SIZE => (0..1024).flat_map(|_| request(command, flags, 0, beyond)).collect(),
            _ => many(command, flags, length),
        }
    }

    /// Over and over again, and the answers are taken.
    fn burst(&mut self, burst: usize) -> io::Result<()> {
        let (stream, bytes) = (self.connect()?, self.bytes_of(burst));
        let (mut sender, mut receiver) = (stream.try_clone()?, stream.try_clone()?);
        let sending = std::thread::spawn(move || while sender.write_all(&bytes).is_ok() {});
        let receiving = std::thread::spawn(move || take_answers(&mut receiver));
        self.linger(800);
        stream.shutdown();
        sending.join().expect("an end is no panic");
        receiving.join().expect("an end is no panic");
        Ok(())
    }

    fn other(&mut self, name: &str) -> io::Result<()> {
        let largest = request(WRITE, 0, 0, LARGEST);
        match name {
            "replies never taken" => self.never_taken(),
            "half a head" => self.half_done(&largest[..16]),
            "half a payload" => self.half_done(&largest[..largest.len() / 2]),
            "connects and disconnects" => self.come_and_go(),
            "a garbage handshake" => self.garbage_handshakes(),
            "garbage as requests" => self.garbage_requests(),
            other => unreachable!("{other} is none of {OTHERS:?}"),
        }
    }

    fn never_taken(&mut self) -> io::Result<()> {
        let burst = [1, 21, 0][self.rng.below(3) as usize];
        let (stream, bytes) = (self.connect()?, self.bytes_of(burst));
        let mut sender = stream.try_clone()?;
        let sending = std::thread::spawn(move || while sender.write_all(&bytes).is_ok() {});
        self.linger(2500);
        stream.shutdown();
        sending.join().expect("an end is no panic");
        Ok(())
    }

    /// Several times this, and nothing more.
    fn half_done(&mut self, bytes: &[u8]) -> io::Result<()> {
        let streams: Vec<Stream> = (0..HALF_DONE).map(|_| self.connect()).collect::<io::Result<_>>()?;
        for stream in &streams {
            let (mut sender, bytes) = (stream.try_clone()?, bytes.to_vec());
            // It may find no room for all of it, and ends with the connection.
            std::thread::spawn(move || drop(sender.write_all(&bytes)));
        }
        self.linger(2000);
        streams.iter().for_each(Stream::shutdown);
        Ok(())
    }

    fn come_and_go(&mut self) -> io::Result<()> {
        for number in 0..50 {
            let client = Client::connect_with_patience(&self.target, HOSTILE_PATIENCE)?;
            if number % 2 == 0 {
                client.disconnect()?;
            }
        }
        Ok(())
    }

    fn garbage(&mut self, most: u64) -> Vec<u8> {
        (0..1 + self.rng.below(most)).map(|_| self.rng.next() as u8).collect()
    }

    /// Nonsense at each stage of a handshake, a moment of silence, and an end.
    fn garbage_handshakes(&mut self) -> io::Result<()> {
        for stage in 0..24 {
            let mut stream = Stream::connect(&self.target.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut bytes = Vec::new();
            if stage % 6 > 0 {
                // Flags that are known, and an option with a length that is not.
                bytes.extend_from_slice(&3u32.to_be_bytes());
                bytes.extend_from_slice(&if stage % 6 == 1 { MAGIC } else { OPTION_MAGIC }.to_be_bytes());
                bytes.extend_from_slice(&(self.rng.below(16) as u32).to_be_bytes());
                let length = [0, 7, 4096, 1 << 20, u32::MAX][self.rng.below(5) as usize];
                bytes.extend_from_slice(&length.to_be_bytes());
            }
            bytes.extend(self.garbage(4096));
            // The daemon may have ended it already.
            let _ = stream.write_all(&bytes);
            std::thread::sleep(Duration::from_millis(self.rng.below(20)));
        }
        Ok(())
    }

    fn garbage_requests(&mut self) -> io::Result<()> {
        for _ in 0..8 {
            let (mut stream, bytes) = (self.connect()?, self.garbage(1 << 16));
            let _ = stream.write_all(&request(READ, 0, 0, BLOCK));
            let _ = stream.write_all(&bytes);
        }
        Ok(())
    }
}
