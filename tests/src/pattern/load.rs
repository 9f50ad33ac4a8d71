//! The load: several connections with many requests in flight, writes, zeros and trims of 512 bytes to 64 KiB (zeros
//! and trims to 256 KiB), flushes and FUA, everything recorded in the journal.

use super::journal::{Journal, Op, Record};
use super::{SECTOR_BYTES, fill};
use crate::nbd::{Client, Command, FLAG_FUA, FLAG_NO_HOLE, Stream, Target, receive, send};
use crate::rng::Rng;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a load sends, and how long.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where the volume under test is served.
    pub target: Target,
    /// Journal file; continued when it exists.
    pub journal: PathBuf,
    /// Bytes of the volume that are used; sector-aligned.
    pub area: Range<u64>,
    /// Seed of all choices: the same one makes the same requests.
    pub seed: u64,
    /// Connections at one time.
    pub connections: u32,
    /// Requests in flight on each connection.
    pub in_flight: u32,
    /// The load ends after this time; none: it has no such end.
    pub time: Option<Duration>,
    /// Ends after so many requests.
    pub requests: Option<u64>,
    /// One flush in so many requests, on average; 0: none.
    pub flush_every: u32,
    /// Percent of the writes that carry FUA.
    pub fua_percent: u32,
    /// Percent of the requests that write zeros or trim.
    pub zero_percent: u32,
    /// Half of those are trims, which our volumes promise to read as zeros; other servers may ignore a trim.
    pub trims: bool,
    /// Nothing is in flight while a barrier is: needed for `check::image`.
    pub exact_groups: bool,
    /// The server may answer with errors (a faulty backing): they are recorded and the load goes on.
    pub errors_allowed: bool,
    /// Pause after each request on each connection, to stretch a load over time.
    pub pause: Duration,
}

impl LoadOptions {
    /// A lively mix on one area.
    pub fn new(target: Target, journal: impl Into<PathBuf>, area: Range<u64>) -> LoadOptions {
        LoadOptions {
            target,
            journal: journal.into(),
            area,
            seed: Rng::fresh_seed(),
            connections: 1,
            in_flight: 16,
            time: None,
            requests: None,
            flush_every: 20,
            fua_percent: 3,
            zero_percent: 8,
            trims: true,
            exact_groups: true,
            errors_allowed: false,
            pause: Duration::ZERO,
        }
    }
}

/// How a load ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All requests were answered.
    Finished(Totals),
    /// The server hung up or was killed; the journal says what was open then.
    ConnectionLost(Totals),
}

impl Ended {
    /// The counts, whichever way it ended.
    pub fn totals(&self) -> Totals {
        match self {
            Ended::Finished(totals) | Ended::ConnectionLost(totals) => *totals,
        }
    }
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that were sent.
    pub issued: u64,
    /// Replies that have no error.
    pub acknowledged: u64,
    /// Replies that have an error.
    pub failed: u64,
    /// Flushes and FUA requests acknowledged.
    pub barriers: u64,
}

#[derive(Debug)]
struct Open {
    op: Op,
    fua: bool,
    range: Range<u64>,
}

#[derive(Debug)]
struct State {
    journal: Journal,
    open: HashMap<u64, Open>,
    open_per_connection: Vec<u32>,
    barrier: bool,
    totals: Totals,
    /// Why the load cannot go on; `Err` is the server's fault.
    ended: Option<Result<(), String>>,
    closing: bool,
}

struct Shared<'a> {
    state: Mutex<State>,
    changed: Condvar,
    options: &'a LoadOptions,
    after_barrier: &'a (dyn Fn(u64) + Sync),
    begun: Instant,
}

/// Runs a load to its end. `Err`: the server broke the protocol, hung, or answered with an error that is not allowed.
pub fn run(options: &LoadOptions) -> Result<Ended, String> {
    run_with_marks(options, &|_| {})
}

/// The same; `after_barrier` is called with the number of each flush or FUA request after its acknowledgement has
/// been recorded.
pub fn run_with_marks(options: &LoadOptions, after_barrier: &(dyn Fn(u64) + Sync)) -> Result<Ended, String> {
    assert!(options.area.start.is_multiple_of(SECTOR_BYTES) && options.area.end.is_multiple_of(SECTOR_BYTES));
    assert!(options.area.end - options.area.start >= 1 << 20, "an area below 1 MiB leaves no room for 64 KiB writes");
    let journal = Journal::begin(&options.journal, options.area.clone(), options.exact_groups)?;
    let run = journal.run;
    let mut sockets = Vec::new();
    for _ in 0..options.connections {
        let client = Client::connect_within(&options.target, Duration::from_secs(5))
            .map_err(|e| format!("connect to {:?}: {e}", options.target))?;
        if client.size < options.area.end {
            return Err(format!("the volume has {} bytes, the area ends at {}", client.size, options.area.end));
        }
        sockets.push(client.split().map_err(|e| format!("split a connection: {e}"))?);
    }
    let shared = Shared {
        state: Mutex::new(State {
            journal,
            open: HashMap::new(),
            open_per_connection: vec![0; options.connections as usize],
            barrier: false,
            totals: Totals::default(),
            ended: None,
            closing: false,
        }),
        changed: Condvar::new(),
        options,
        after_barrier,
        begun: Instant::now(),
    };
    std::thread::scope(|scope| {
        let mut senders = Vec::new();
        for (number, (sender, receiver)) in sockets.into_iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || shared.receive_all(number, receiver));
            senders.push(scope.spawn(move || shared.send_all(number, sender, run)));
        }
        for sender in senders {
            sender.join().expect("a sender does not panic");
        }
    });
    let state = shared.state.into_inner().expect("no thread panicked with the lock");
    match state.ended {
        None => Ok(Ended::Finished(state.totals)),
        Some(Ok(())) => Ok(Ended::ConnectionLost(state.totals)),
        Some(Err(reason)) => Err(reason),
    }
}

/// Length of a journal now; 0 when there is none.
pub fn journal_bytes(journal: &Path) -> u64 {
    std::fs::metadata(journal).map_or(0, |m| m.len())
}

/// Waits until a load has sent something: a kill that comes before the load is connected proves nothing.
pub fn wait_until_under_way(journal: &Path, bytes_before: u64) {
    let begun = Instant::now();
    // More than the record with which a load begins.
    while journal_bytes(journal) <= bytes_before + 32 {
        assert!(begun.elapsed() < Duration::from_secs(30), "the load has sent nothing for 30 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct Choice {
    op: Op,
    fua: bool,
    range: Range<u64>,
}

impl Shared<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked with the lock")
    }

    fn wait<'g>(&self, guard: MutexGuard<'g, State>) -> MutexGuard<'g, State> {
        let (guard, timeout) =
            self.changed.wait_timeout(guard, Duration::from_secs(90)).expect("no thread panicked with the lock");
        assert!(!timeout.timed_out(), "nothing was answered for 90 s, and no connection ended: {:?}", guard.open);
        guard
    }

    fn over(&self, state: &State) -> bool {
        state.ended.is_some()
            || self.options.time.is_some_and(|limit| self.begun.elapsed() >= limit)
            || self.options.requests.is_some_and(|limit| state.totals.issued >= limit)
    }

    fn choose(&self, rng: &mut Rng) -> Choice {
        let options = self.options;
        if options.flush_every != 0 && rng.below(u64::from(options.flush_every)) == 0 {
            return Choice { op: Op::Flush, fua: false, range: 0..0 };
        }
        let zero = rng.chance(options.zero_percent);
        let op = match (zero, rng.chance(50) && options.trims) {
            (false, _) => Op::Write,
            (true, false) => Op::Zero,
            (true, true) => Op::Trim,
        };
        let area = options.area.end - options.area.start;
        // Half of the requests meet in a sixteenth of the area: overwrites inside and across groups are what is tested.
        let reach = if rng.chance(50) { (area / 16).max(1 << 18) } else { area };
        let sectors_max = if zero { 512 } else { 128u64 };
        let sectors = (1 << rng.below(u64::from(sectors_max.ilog2()) + 1)) + rng.below(4);
        let (mut length, unit) = if rng.chance(50) { (sectors * 512, 512) } else { (sectors.max(8) / 8 * 4096, 4096) };
        length = length.min(sectors_max * 512);
        let offset = options.area.start + rng.below((reach - length) / unit + 1) * unit;
        let fua = rng.chance(options.fua_percent);
        Choice { op, fua, range: offset..offset + length }
    }

    fn send_all(&self, number: usize, mut socket: Stream, run: u64) {
        let mut rng = Rng::new(self.options.seed.wrapping_add(1 + number as u64));
        let mut payload = Vec::new();
        while let Some((seq, choice)) = self.admit(number, &mut rng) {
            let length = choice.range.end - choice.range.start;
            let fua = if choice.fua { FLAG_FUA } else { 0 };
            let (command, flags, bytes) = match choice.op {
                Op::Write => {
                    payload.resize(length as usize, 0);
                    fill(&mut payload, run, choice.range.start, seq);
                    (Command::Write, fua, &payload[..])
                }
                Op::Zero => (Command::WriteZeroes, fua | FLAG_NO_HOLE, &[][..]),
                Op::Trim => (Command::Trim, fua, &[][..]),
                Op::Flush => (Command::Flush, 0, &[][..]),
            };
            let sent = send(&mut socket, command, flags, seq, choice.range.start, length as u32, bytes);
            if sent.is_err() {
                self.end(Ok(()));
                break;
            }
            if (choice.fua || choice.op == Op::Flush) && self.options.exact_groups {
                let mut state = self.lock();
                while state.ended.is_none() && state.open.contains_key(&seq) {
                    state = self.wait(state);
                }
                state.barrier = false;
                self.changed.notify_all();
            }
            if !self.options.pause.is_zero() {
                std::thread::sleep(self.options.pause);
            }
        }
        let mut state = self.lock();
        while state.ended.is_none() && state.open_per_connection[number] > 0 {
            state = self.wait(state);
        }
        if state.ended.is_none() {
            state.closing = true;
            drop(state);
            // The goodbye is a courtesy: every reply has arrived, and the receiver ends with the socket.
            let _ = send(&mut socket, Command::Disconnect, 0, 0, 0, 0, &[]);
        }
        socket.shutdown();
    }

    /// Waits for room, numbers the next request and records its issue.
    fn admit(&self, number: usize, rng: &mut Rng) -> Option<(u64, Choice)> {
        let mut choice = self.choose(rng);
        let mut state = self.lock();
        loop {
            if self.over(&state) {
                return None;
            }
            let barrier = self.options.exact_groups && (choice.fua || choice.op == Op::Flush);
            if state.barrier || state.open_per_connection[number] >= self.options.in_flight {
                state = self.wait(state);
                continue;
            }
            let overlaps = |open: &Open| open.range.start < choice.range.end && choice.range.start < open.range.end;
            if state.open.values().any(overlaps) {
                choice = self.choose(rng);
                continue;
            }
            if barrier {
                state.barrier = true;
                while state.ended.is_none() && !state.open.is_empty() {
                    state = self.wait(state);
                }
                if state.ended.is_some() {
                    return None;
                }
            }
            break;
        }
        let seq = state.journal.next_seq();
        let (offset, length) = (choice.range.start, choice.range.end - choice.range.start);
        state.journal.append(Record::Issue { seq, op: choice.op, fua: choice.fua, offset, length });
        state.open.insert(seq, Open { op: choice.op, fua: choice.fua, range: choice.range.clone() });
        state.open_per_connection[number] += 1;
        state.totals.issued += 1;
        Some((seq, choice))
    }

    fn receive_all(&self, number: usize, mut socket: Stream) {
        loop {
            let (seq, error) = match receive(&mut socket) {
                Ok(reply) => reply,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    // The socket's read limit. An idle connection is none of our business, an unanswered request is.
                    let state = self.lock();
                    if state.open_per_connection[number] == 0 && state.ended.is_none() {
                        continue;
                    }
                    drop(state);
                    self.end(Err(format!("connection {number}: a request was not answered within a minute")));
                    return;
                }
                Err(e) => {
                    let state = self.lock();
                    if state.closing && state.open_per_connection[number] == 0 {
                        return;
                    }
                    drop(state);
                    self.end(if e.kind() == std::io::ErrorKind::InvalidData { Err(e.to_string()) } else { Ok(()) });
                    return;
                }
            };
            let mut state = self.lock();
            let Some(open) = state.open.remove(&seq) else {
                drop(state);
                self.end(Err(format!("connection {number}: a reply to #{seq}, which is not open")));
                return;
            };
            state.journal.append(Record::Reply { seq, error });
            state.open_per_connection[number] -= 1;
            let barrier = error == 0 && (open.fua || open.op == Op::Flush);
            if error == 0 {
                state.totals.acknowledged += 1;
                state.totals.barriers += u64::from(barrier);
            } else {
                state.totals.failed += 1;
                if !self.options.errors_allowed && state.ended.is_none() {
                    state.ended = Some(Err(format!(
                        "request #{seq} ({:?} of bytes {}..{}) was answered with NBD error {error}",
                        open.op, open.range.start, open.range.end
                    )));
                }
            }
            self.changed.notify_all();
            drop(state);
            if barrier {
                (self.after_barrier)(seq);
            }
        }
    }

    fn end(&self, how: Result<(), String>) {
        let mut state = self.lock();
        // The first reason counts; what the other connections then see follows from it.
        if state.ended.is_none() {
            state.ended = Some(how);
        }
        self.changed.notify_all();
    }
}
