//! A load generator: one connection, many requests in flight, parse and send in batches.
//!
//! fio's NBD engine spends more CPU than a good server does and so measures itself; this client costs little and can
//! verify what it reads. It uses fixed newstyle with simple replies, which every server knows. It is no general client:
//! an answer that does not follow the protocol ends the run with an error.

use super::proto::*;
use forebay_io::socket::{self, Moved, vector};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most bytes that wait to be sent; a request longer than this goes alone.
const OUT_BYTES_MAX: usize = 4 << 20;
/// Room for answers; grows to the longest read.
const IN_BYTES: usize = 1 << 20;
const SECTOR: usize = 512;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a unix socket of this path.
    Unix(PathBuf),
    /// Over TCP at `host:port`.
    Tcp(String),
}

impl core::str::FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Address, String> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", address)) if address.contains(':') => Ok(Address::Tcp(address.into())),
            Some(_) | None => Err(format!("{text:?} is no address: write unix:PATH or tcp:HOST:PORT")),
        }
    }
}

/// What a run asks for, and when it ends.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests in flight at one time.
    pub depth: usize,
    /// Ends after so many requests,
    pub operations: u64,
    /// or after this time, whichever comes first.
    pub duration: Duration,
    /// Sizes, chosen evenly among the multiples of the smallest one up to the largest; multiples of 512.
    pub request_bytes: core::ops::RangeInclusive<u32>,
    /// How many of 100 requests are reads.
    pub read_percent: u32,
    /// One after the other instead of at random.
    pub sequential: bool,
    /// Only this part of the volume.
    pub region: core::ops::Range<u64>,
    /// Where the random choices begin: the same seed makes the same requests.
    pub seed: u64,
    /// Write sectors that tell their address and generation, and check those that are read and were written before in
    /// this run. Costs CPU: not for measuring.
    pub verify: bool,
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Reads that were answered, by an error or not.
    pub reads: u64,
    /// Writes that were answered, by an error or not.
    pub writes: u64,
    /// Bytes of reads and writes together.
    pub bytes: u64,
    /// Requests answered by an error.
    pub errors: u64,
    /// Sectors that held something else than what was written last.
    pub mismatches: u64,
    /// Sectors that were checked.
    pub verified: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// CPU that this client took of them.
    pub cpu_seconds: f64,
    /// From queueing a request to having its whole answer, in nanoseconds.
    pub latency: Histogram,
}

/// Counts by value with an error of at most 1/32: linear within each power of two.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; 60 * 32], total: 0 }
    }
}

impl Histogram {
    /// Counts a value once.
    pub fn record(&mut self, value: u64) {
        let shift = (u64::BITS - value.leading_zeros()).saturating_sub(6);
        // Below 64 exact, above it the leading bit and five more.
        let index = (shift as usize) * 32 + (value >> shift) as usize;
        self.counts[index] += 1;
        self.total += 1;
    }
    /// Adds another one.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
    }
    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.total
    }
    /// The value below which this fraction of the counted values lies (0.99 for p99); 0 when none was counted.
    pub fn quantile(&self, fraction: f64) -> u64 {
        let wanted = ((self.total as f64 * fraction).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let shift = (index / 32).saturating_sub(1);
                return ((index - shift * 32) as u64) << shift;
            }
        }
        0
    }
}

/// A connection to a server.
pub struct Client {
    socket: OwnedFd,
    size_bytes: u64,
    flags: u16,
}

#[derive(Clone, Copy)]
struct InFlight {
    offset: u64,
    length: u32,
    read: bool,
    since: Instant,
}

impl Client {
    /// Connects and enters the export.
    pub fn connect(address: &Address, export: &str) -> io::Result<Client> {
        match address {
            Address::Unix(path) => {
                let mut stream = UnixStream::connect(path)?;
                let (size_bytes, flags) = enter(&mut stream, export)?;
                stream.set_nonblocking(true)?;
                Ok(Client { socket: stream.into(), size_bytes, flags })
            }
            Address::Tcp(address) => {
                let mut stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                let (size_bytes, flags) = enter(&mut stream, export)?;
                stream.set_nonblocking(true)?;
                Ok(Client { socket: stream.into(), size_bytes, flags })
            }
        }
    }

    /// Size of the export.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Its transmission flags.
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// Sends a flush and waits for its answer. Nothing else may be in flight: only between runs.
    pub fn flush(&mut self) -> io::Result<()> {
        let head = RequestHead { flags: 0, command: Command::Flush, cookie: 0, offset: 0, length: 0 };
        let mut out = head.encode().to_vec();
        let mut answer = Vec::new();
        while answer.len() < SIMPLE_REPLY_BYTES {
            self.send(&mut out)?;
            if !self.receive(&mut answer, SIMPLE_REPLY_BYTES)? {
                socket::wait(self.socket.as_fd(), !out.is_empty())?;
            }
        }
        match answer.first_chunk().and_then(decode_simple_reply) {
            Some((0, 0)) => Ok(()),
            Some((error, _)) => Err(io::Error::from_raw_os_error(error as i32)),
            None => Err(broken("the server answered a flush with something else")),
        }
    }

    /// Tells the server that nothing more is asked, and ends the connection.
    pub fn disconnect(mut self) -> io::Result<()> {
        let head = RequestHead { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
        self.send(&mut head.encode().to_vec())
    }

    /// Runs a load to its end.
    ///
    /// # Panics
    /// When the load makes no sense: a depth of 0, sizes that are not multiples of 512, a region outside the volume.
    pub fn run(&mut self, load: &Load) -> io::Result<Report> {
        let (smallest, largest) = (*load.request_bytes.start(), *load.request_bytes.end());
        assert!(load.depth > 0 && load.depth <= 65_536, "a load has 1 to 65536 requests in flight");
        assert!(smallest as usize >= SECTOR && (smallest as usize).is_multiple_of(SECTOR), "sizes are whole sectors");
        assert!(largest >= smallest && load.region.end <= self.size_bytes, "the region lies within the volume");
        assert!(load.region.end - load.region.start >= u64::from(largest), "the region takes the largest request");
        let mut running = Running::new(load);
        let mut answers = Vec::with_capacity(IN_BYTES);
        let cpu = socket::thread_cpu_seconds();
        let start = Instant::now();
        loop {
            let now = Instant::now();
            let ending = now - start >= load.duration;
            if !ending {
                running.ask(now);
            }
            if running.free.len() == load.depth && (ending || running.issued == load.operations) {
                break;
            }
            self.send(&mut running.out)?;
            let room = (IN_BYTES - answers.len().min(IN_BYTES / 2)).max(longest_answer(&running.in_flight));
            if !self.receive(&mut answers, room)? {
                socket::wait(self.socket.as_fd(), !running.out.is_empty())?;
                continue;
            }
            running.take_answers(&mut answers, Instant::now())?;
        }
        let mut report = running.report;
        report.seconds = start.elapsed().as_secs_f64();
        report.cpu_seconds = socket::thread_cpu_seconds() - cpu;
        Ok(report)
    }

    /// Sends what the socket takes and drops it from `out`.
    fn send(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        // SAFETY: the vector names `out`, which is borrowed during the call.
        match unsafe { socket::send(self.socket.as_fd(), &[vector(out.as_ptr(), out.len())]) } {
            Moved::Bytes(sent) => drop(out.drain(..sent)),
            Moved::WouldBlock => {}
            Moved::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Appends what has arrived, at most `room` bytes; false when that is nothing.
    fn receive(&mut self, into: &mut Vec<u8>, room: usize) -> io::Result<bool> {
        into.reserve(room);
        let spare = into.spare_capacity_mut();
        let vectors = &mut [libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: room }];
        // SAFETY: the vector names spare capacity of `into`, at least `room` bytes of it.
        match unsafe { socket::receive_vectors(self.socket.as_fd(), vectors) } {
            Moved::Bytes(0) => Err(broken("the server closed the connection")),
            Moved::Bytes(got) => {
                // SAFETY: the kernel has written `got` bytes behind the current end.
                unsafe { into.set_len(into.len() + got) };
                Ok(true)
            }
            Moved::WouldBlock => Ok(false),
            Moved::Failed(error) => Err(error),
        }
    }
}

/// A load that runs.
struct Running<'a> {
    load: &'a Load,
    random: u64,
    /// What is written where nothing is verified.
    filler: Vec<u8>,
    /// Generation last written to each sector of the region; 0 is none. Empty where nothing is verified.
    generations: Vec<u32>,
    in_flight: Vec<Option<InFlight>>,
    free: Vec<usize>,
    /// Where a sequential load goes on.
    cursor: u64,
    issued: u64,
    /// To be sent.
    out: Vec<u8>,
    report: Report,
}

impl Running<'_> {
    fn new(load: &Load) -> Running<'_> {
        let mut random = load.seed | 1;
        let largest = *load.request_bytes.end() as usize;
        let filler = (0..largest + 4096).map(|_| next(&mut random) as u8).collect();
        let sectors = if load.verify { (load.region.end - load.region.start) as usize / SECTOR } else { 0 };
        Running {
            load,
            random,
            filler,
            generations: vec![0; sectors],
            in_flight: vec![None; load.depth],
            free: (0..load.depth).rev().collect(),
            cursor: load.region.start,
            issued: 0,
            out: Vec::with_capacity(OUT_BYTES_MAX),
            report: Report::default(),
        }
    }

    /// Queues requests while there are to be more and there is room.
    fn ask(&mut self, now: Instant) {
        let load = self.load;
        while self.issued < load.operations && self.out.len() < OUT_BYTES_MAX {
            let Some(&slot) = self.free.last() else { break };
            let (offset, length, read) = self.choose();
            let overlaps = |other: &InFlight| {
                offset < other.offset + u64::from(other.length) && other.offset < offset + u64::from(length)
            };
            if load.verify && self.in_flight.iter().flatten().any(overlaps) {
                if self.free.len() == load.depth {
                    continue;
                }
                // The order of overlapping requests is the server's choice: nothing to verify by.
                break;
            }
            self.cursor = offset + u64::from(length);
            self.free.pop();
            self.in_flight[slot] = Some(InFlight { offset, length, read, since: now });
            self.issued += 1;
            let command = if read { Command::Read } else { Command::Write };
            let head = RequestHead { flags: 0, command, cookie: slot as u64, offset, length: length.into() };
            self.out.extend_from_slice(&head.encode());
            if !read {
                self.put_payload(offset, length);
            }
        }
    }

    /// Where the next request is, how long, and whether it is a read.
    fn choose(&mut self) -> (u64, u32, bool) {
        let load = self.load;
        let (smallest, largest) = (*load.request_bytes.start(), *load.request_bytes.end());
        let sizes = u64::from((largest - smallest) / smallest + 1);
        let length = smallest * (1 + (next(&mut self.random) % sizes) as u32);
        let places = (load.region.end - load.region.start - u64::from(length)) / u64::from(smallest) + 1;
        let offset = if load.sequential {
            if self.cursor + u64::from(length) > load.region.end {
                self.cursor = load.region.start;
            }
            self.cursor
        } else {
            load.region.start + next(&mut self.random) % places * u64::from(smallest)
        };
        let read = next(&mut self.random) % 100 < u64::from(load.read_percent);
        (offset, length, read)
    }

    fn put_payload(&mut self, offset: u64, length: u32) {
        let length = length as usize;
        if self.load.verify {
            let first = ((offset - self.load.region.start) as usize) / SECTOR;
            for (index, generation) in self.generations[first..][..length / SECTOR].iter_mut().enumerate() {
                *generation += 1;
                self.out.extend_from_slice(&sector(offset + (index * SECTOR) as u64, *generation));
            }
        } else {
            let from = (next(&mut self.random) % 4096) as usize;
            self.out.extend_from_slice(&self.filler[from..from + length]);
        }
    }

    /// Takes the answers that are whole and drops them from `answers`.
    fn take_answers(&mut self, answers: &mut Vec<u8>, now: Instant) -> io::Result<()> {
        let mut at = 0;
        while let Some(head) = answers[at..].first_chunk() {
            let (error, cookie) = decode_simple_reply(head).ok_or_else(|| broken("an answer has a wrong magic"))?;
            let slot = cookie as usize;
            let Some(request) = self.in_flight.get(slot).copied().flatten() else {
                return Err(broken("an answer names a request that is not in flight"));
            };
            let payload = if request.read && error == 0 { request.length as usize } else { 0 };
            let Some(bytes) = answers[at + SIMPLE_REPLY_BYTES..].get(..payload) else { break };
            at += SIMPLE_REPLY_BYTES + payload;
            self.in_flight[slot] = None;
            self.free.push(slot);
            self.report.latency.record((now - request.since).as_nanos() as u64);
            self.report.errors += u64::from(error != 0);
            self.report.bytes += u64::from(request.length);
            if !request.read {
                self.report.writes += 1;
                continue;
            }
            self.report.reads += 1;
            if self.load.verify && error == 0 {
                self.verify(request.offset, bytes);
            }
        }
        answers.drain(..at);
        Ok(())
    }

    /// Compares what was read with what was written last, where something was.
    fn verify(&mut self, offset: u64, bytes: &[u8]) {
        let first = ((offset - self.load.region.start) as usize) / SECTOR;
        for (index, found) in bytes.chunks_exact(SECTOR).enumerate() {
            let generation = self.generations[first + index];
            if generation > 0 {
                self.report.verified += 1;
                let expected = sector(offset + (index * SECTOR) as u64, generation);
                self.report.mismatches += u64::from(found != expected);
            }
        }
    }
}

/// Bytes that the longest answer in flight takes.
fn longest_answer(in_flight: &[Option<InFlight>]) -> usize {
    let reads = in_flight.iter().flatten().filter(|request| request.read);
    SIMPLE_REPLY_BYTES + reads.map(|request| request.length as usize).max().unwrap_or(0)
}

/// Enters an export by EXPORT_NAME: its size and flags.
fn enter(stream: &mut (impl Read + Write), export: &str) -> io::Result<(u64, u16)> {
    let mut hello = [0; GREETING_BYTES];
    stream.read_exact(&mut hello)?;
    if hello[..16] != greeting()[..16] {
        return Err(broken("the server does not speak newstyle NBD"));
    }
    let offered = u32::from(u16::from_be_bytes([hello[16], hello[17]]));
    let flags = offered & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    let mut out = flags.to_be_bytes().to_vec();
    put_option(&mut out, OptionKind::ExportName.number(), export.as_bytes());
    stream.write_all(&out)?;
    let mut answer = [0; 10];
    let no_export = |_| broken("the server refused the export");
    stream.read_exact(&mut answer).map_err(no_export)?;
    if flags & FLAG_NO_ZEROES == 0 {
        stream.read_exact(&mut [0; 124])?;
    }
    let size = u64::from_be_bytes(answer[..8].try_into().expect("eight bytes"));
    Ok((size, u16::from_be_bytes([answer[8], answer[9]])))
}

/// A sector's content: 64 words that tell where and in which generation it was written.
fn sector(offset: u64, generation: u32) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    let mut word = (offset ^ u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1;
    for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
        let value = if index == 0 { offset << 24 ^ u64::from(generation) } else { next(&mut word) };
        chunk.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// xorshift64: even enough for addresses, and fast.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("NBD load client: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_thirty_second() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|value| histogram.record(value));
        for fraction in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let (found, exact) = (histogram.quantile(fraction) as f64, 100_000.0 * fraction);
            assert!(found <= exact && found >= exact * (1.0 - 1.0 / 31.0), "{fraction}: {found}");
        }
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantile(1.0), u64::MAX >> 58 << 58);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }

    #[test]
    fn addresses_name_their_kind() {
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert_eq!("tcp:[::1]:10809".parse(), Ok(Address::Tcp("[::1]:10809".into())));
        assert!("/run/x".parse::<Address>().is_err());
        assert!("tcp:host".parse::<Address>().is_err());
    }
}
