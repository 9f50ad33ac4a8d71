//! A load that follows a volume from owner to owner, as a client of a cluster does, and knows at any time what each sector
//! may hold: whatever a read shows that is older than an acknowledged write is a finding, and so is an error.
//!
//! Invariants:
//! - One thread and one session at a time, and requests in flight never overlap: so what a sector may hold is the newest
//!   acknowledged write, or a later one whose session was lost. Once read, it stays (docs/protocol.md, T4).
//! - A session is left only when it has ended, or when it stands still and another node serves the volume in a higher term.
//! - A session that was left stays open as a *ghost* until its requests are answered or it ends, and nothing else is sent to
//!   what they change: a node that still takes requests may carry them out late, or have the new owner do so.
//! - A ghost is asked once more after the next owner has answered: what it acknowledges by itself is gone when it is looked
//!   for, and what it reads by itself is older than what was acknowledged.
//!
//! It keeps no journal: it lives as long as the test. What kills the load itself is left to [`load`](super::load).

use super::bystander::Recent;
use super::{SECTOR_BYTES, Seen, fill, see};
use crate::nbd::{Client, Command, FLAG_FUA, FLAG_NO_HOLE, SIMPLE_REPLY_MAGIC, Stream, Target, request_header};
use crate::rng::Rng;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes at the volume's end that nobody writes but ghosts.
const GHOST_BYTES: u64 = 64 << 10;
/// Of that, what one ghost writes.
const PROBE_BYTES: u64 = 4096;
/// Requests in flight.
const IN_FLIGHT_MAX: usize = 8;
/// Between two requests: three volumes must leave the two cores something.
const PACE: Duration = Duration::from_millis(4);
/// A session without an answer for so long has perhaps been replaced.
const DOUBT: Duration = Duration::from_secs(1);
/// Between two questions who the owner is.
const LOOK: Duration = Duration::from_millis(250);
/// What a lost session had sent may be in the sockets of a node that forwards it, or be read from one, as the next session begins:
/// so long after its first answer nothing else is sent to what that changes. What comes later still is a finding.
const SETTLING: Duration = Duration::from_secs(1);
/// What an audit reads at a time.
const AUDIT_BYTES: u64 = 128 << 10;
/// Events kept to explain a finding.
const EVENTS_MAX: usize = 60_000;

/// Who serves the volume.
#[derive(Clone, Debug)]
pub struct Place {
    /// Name of the node, for people.
    pub node: String,
    /// The term that it serves.
    pub term: u64,
    /// Where the node takes clients.
    pub target: Target,
}

/// How one learns who serves the volume; none: nobody who is heard.
pub type Find = Box<dyn Fn() -> Option<Place> + Send>;

/// What has been done so far.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Writes, zeros, trims and flushes acknowledged.
    pub acknowledged: u64,
    /// Reads compared with what was acknowledged.
    pub reads: u64,
    /// Sessions that were begun with any node.
    pub sessions: u64,
    /// Sessions left because another node served.
    pub ghosts: u64,
    /// How many of those are still open.
    pub ghosts_open: u64,
    /// Of all, those that were asked after the next owner had answered.
    pub probes: u64,
    /// The highest term in which something was answered.
    pub term: u64,
    /// The longest time in which a request waited and none was answered.
    pub pause_max: Duration,
    /// Audits that found every sector as it must be.
    pub audits: u64,
    /// Images that held every sector as it must be.
    pub images: u64,
    /// Nothing is sent, and nothing is unanswered.
    pub rests: bool,
    /// What must not be, if it was.
    pub finding: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Wish {
    Load,
    Audit,
    Rest,
    Image(PathBuf),
    End,
}

struct Shared {
    wish: Wish,
    progress: Progress,
    pause: Duration,
}

/// A load that runs in a thread of its own.
pub struct Follower {
    shared: Arc<Mutex<Shared>>,
    recent: Recent,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins. `run` names the load in each of its sectors.
    pub fn begin(run: u64, size: u64, seed: u64, find: Find) -> Follower {
        let shared =
            Arc::new(Mutex::new(Shared { wish: Wish::Load, progress: Progress::default(), pause: Duration::ZERO }));
        let mut load = Load::new(run, size, seed, find, shared.clone());
        let recent = load.recent.clone();
        let thread = std::thread::spawn(move || load.run());
        Follower { shared, recent, thread: Some(thread) }
    }

    /// What it has written of late, for others to compare with.
    pub fn recent(&self) -> Recent {
        self.recent.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("the load does not panic")
    }

    /// What has been done so far.
    pub fn progress(&self) -> Progress {
        self.lock().progress.clone()
    }

    /// The longest time in which a request waited and none was answered, since this was asked last.
    pub fn take_pause(&self) -> Duration {
        std::mem::take(&mut self.lock().pause)
    }

    fn wish(&self, wish: Wish) {
        self.lock().wish = wish;
    }

    /// The load goes on.
    pub fn load(&self) {
        self.wish(Wish::Load);
    }

    /// Everything is read once, and then it rests; see [`Progress::audits`].
    pub fn audit(&self) {
        self.wish(Wish::Audit);
    }

    /// The image of a volume that has nothing dirty is compared, while the load rests after an audit; see [`Progress::images`].
    pub fn compare_image(&self, image: PathBuf) {
        self.wish(Wish::Image(image));
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Ok(mut shared) = self.shared.lock() {
            shared.wish = Wish::End;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A content of a sector: who put it there, and whether it is zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    seq: u64,
    zeros: bool,
}

impl Version {
    fn looks_like(self, seen: Seen) -> bool {
        match seen {
            Seen::Zeros => self.zeros,
            Seen::Write(seq) => !self.zeros && self.seq == seq,
            Seen::Misplaced { .. } | Seen::Damaged => false,
        }
    }
}

#[derive(Clone, Debug)]
struct Request {
    command: Command,
    range: Range<u64>,
    /// Of a probe: what its sectors must hold at least.
    floor: Option<Vec<Version>>,
}

impl Request {
    /// The content that it gives to its sectors.
    fn version(&self, seq: u64) -> Option<Version> {
        match self.command {
            Command::Write => Some(Version { seq, zeros: false }),
            Command::WriteZeroes | Command::Trim => Some(Version { seq, zeros: true }),
            Command::Read | Command::Flush | Command::Disconnect => None,
        }
    }
}

/// One connection, without waiting.
struct Session {
    node: String,
    term: u64,
    stream: Stream,
    outbox: Vec<u8>,
    inbox: Vec<u8>,
    open: HashMap<u64, Request>,
    answered: Instant,
    probed: bool,
}

struct Reply {
    seq: u64,
    error: u32,
    request: Request,
    data: Vec<u8>,
}

impl Session {
    fn new(place: &Place, size: u64) -> io::Result<Session> {
        let client = Client::connect_with_patience(&place.target, Duration::from_secs(2))?;
        if client.size != size {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("its size is {}", client.size)));
        }
        client.stream.set_nonblocking()?;
        Ok(Session {
            node: place.node.clone(),
            term: place.term,
            stream: client.stream,
            outbox: Vec::new(),
            inbox: Vec::new(),
            open: HashMap::new(),
            answered: Instant::now(),
            probed: false,
        })
    }

    fn put(&mut self, seq: u64, flags: u16, request: Request, payload: &[u8]) {
        let length = (request.range.end - request.range.start) as u32;
        let head = request_header(flags, request.command as u16, seq, request.range.start, length);
        self.outbox.extend_from_slice(&head);
        self.outbox.extend_from_slice(payload);
        if self.open.is_empty() {
            self.answered = Instant::now();
        }
        self.open.insert(seq, request);
    }

    /// Sends and receives what can be sent and received now.
    fn pump(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let mut piece = [0; 64 << 10];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.inbox.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// The next whole reply that has arrived. `Err`: what is none.
    fn reply(&mut self) -> Result<Option<Reply>, String> {
        let Some(head) = self.inbox.first_chunk::<16>() else { return Ok(None) };
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (magic, error, seq) = (word(0), word(4), u64::from(word(8)) << 32 | u64::from(word(12)));
        let Some(request) = self.open.get(&seq).filter(|_| magic == SIMPLE_REPLY_MAGIC) else {
            return Err(format!("{} answers #{seq}, which is not open, with magic {magic:#x}", self.node));
        };
        let reads = request.command == Command::Read && error == 0;
        let length = if reads { (request.range.end - request.range.start) as usize } else { 0 };
        if self.inbox.len() < 16 + length {
            return Ok(None);
        }
        let data = self.inbox[16..16 + length].to_vec();
        self.inbox.drain(..16 + length);
        self.answered = Instant::now();
        let request = self.open.remove(&seq).expect("it was just found");
        Ok(Some(Reply { seq, error, request, data }))
    }
}

/// What explains a finding.
enum Happened {
    Session { node: String, term: u64 },
    Lost { why: String },
    Left { term: u64 },
    Issued { seq: u64, command: Command, range: Range<u64> },
    Answered { seq: u64, error: u32, late: bool },
}

struct Load {
    run: u64,
    area: u64,
    size: u64,
    rng: Rng,
    find: Find,
    shared: Arc<Mutex<Shared>>,
    session: Option<Session>,
    ghosts: Vec<Session>,
    /// What is acknowledged, or was read: each sector holds it, or one of `open`.
    firm: Vec<Version>,
    /// Later writes whose session was lost, oldest first.
    open: HashMap<usize, Vec<Version>>,
    seq: u64,
    /// What is being written, for others to read.
    recent: Recent,
    /// What was acknowledged last.
    newest: Option<Range<u64>>,
    next_request: Instant,
    next_look: Instant,
    /// What lost sessions had sent, and until when nothing else is sent there; none: until the next session is answered.
    settling: (Vec<Range<u64>>, Option<Instant>),
    /// Nothing is sent that nobody asks for.
    resting: bool,
    /// Everything below was read by the audit under way.
    audited: Option<u64>,
    progress: Progress,
    /// The longest time since it was told last.
    pause: Duration,
    begun: Instant,
    events: VecDeque<(Duration, Happened)>,
}

fn sectors(range: &Range<u64>) -> Range<usize> {
    (range.start / SECTOR_BYTES) as usize..(range.end / SECTOR_BYTES) as usize
}

impl Load {
    fn new(run: u64, size: u64, seed: u64, find: Find, shared: Arc<Mutex<Shared>>) -> Load {
        let now = Instant::now();
        Load {
            run,
            area: size - GHOST_BYTES,
            size,
            rng: Rng::new(seed),
            find,
            shared,
            session: None,
            ghosts: Vec::new(),
            firm: vec![Version { seq: 0, zeros: true }; (size / SECTOR_BYTES) as usize],
            open: HashMap::new(),
            seq: 0,
            recent: Recent::default(),
            newest: None,
            next_request: now,
            next_look: now,
            settling: (Vec::new(), None),
            resting: false,
            audited: None,
            progress: Progress::default(),
            pause: Duration::ZERO,
            begun: now,
            events: VecDeque::new(),
        }
    }

    fn run(&mut self) {
        while self.progress.finding.is_none() {
            let wish = {
                let mut shared = self.shared.lock().expect("nobody panics while holding it");
                shared.progress = self.progress.clone();
                shared.pause = shared.pause.max(std::mem::take(&mut self.pause));
                // What is done once is taken once.
                let after = if shared.wish == Wish::Load { Wish::Load } else { Wish::Rest };
                std::mem::replace(&mut shared.wish, after)
            };
            match wish {
                Wish::End => return,
                Wish::Load => self.resting = false,
                Wish::Rest => {}
                Wish::Audit => (self.resting, self.audited) = (true, Some(0)),
                Wish::Image(image) => self.compare_image(&image),
            }
            self.turn();
        }
        self.shared.lock().expect("nobody panics while holding it").progress = self.progress.clone();
    }

    fn find_wrong(&mut self, what: String) {
        self.progress.finding.get_or_insert(what);
    }

    fn happened(&mut self, what: Happened) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((self.begun.elapsed(), what));
    }

    fn turn(&mut self) {
        self.haunt();
        if self.settling.1.is_some_and(|until| Instant::now() >= until) {
            self.settling.0.clear();
        }
        let idle = self.session.as_ref().is_some_and(|session| session.open.is_empty());
        self.progress.rests = self.resting && self.audited.is_none() && idle;
        if self.session.is_none() {
            self.connect();
            return std::thread::sleep(PACE);
        }
        self.send_next();
        self.wait();
        let Some(session) = self.session.as_mut() else { return };
        let pumped = session.pump();
        let waited = session.answered.elapsed();
        if !session.open.is_empty() {
            self.progress.pause_max = self.progress.pause_max.max(waited);
            self.pause = self.pause.max(waited);
        }
        self.take_replies();
        if let Err(error) = pumped {
            self.lose(error.to_string());
        } else if self.session.as_ref().is_some_and(|s| !s.open.is_empty() && s.answered.elapsed() > DOUBT) {
            self.leave_a_deposed();
        }
    }

    /// Until the socket has something, or a request is due.
    fn wait(&mut self) {
        let Some(session) = &self.session else { return };
        let mut poll = libc::pollfd { fd: session.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let left = match self.resting && self.audited.is_none() {
            true => 5 * PACE,
            false => self.next_request.saturating_duration_since(Instant::now()),
        };
        // SAFETY: one entry, on the stack, for as long as the call lasts.
        unsafe { libc::poll(&mut poll, 1, left.as_millis().clamp(1, 50) as i32) };
    }

    // --- sessions ---

    fn look(&mut self) -> Option<Place> {
        if Instant::now() < self.next_look {
            return None;
        }
        let place = (self.find)();
        self.next_look = Instant::now() + LOOK;
        place
    }

    fn connect(&mut self) {
        let Some(place) = self.look() else { return };
        // Of an owner that was deposed long ago, and does not know it.
        if place.term < self.progress.term {
            return;
        }
        // Asked once more: between the answer and the session the term may have changed.
        if let Ok(session) = Session::new(&place, self.size)
            && (self.find)().is_some_and(|again| (again.term, &again.node) == (place.term, &place.node))
        {
            self.happened(Happened::Session { node: place.node, term: place.term });
            self.progress.sessions += 1;
            self.session = Some(session);
        }
    }

    fn lose(&mut self, why: String) {
        let Some(session) = self.session.take() else { return };
        self.happened(Happened::Lost { why });
        self.keep_open(&session);
        let changes = session.open.iter().filter(|(seq, request)| request.version(**seq).is_some());
        self.settling.0.extend(changes.map(|(_, request)| request.range.clone()));
        self.settling.1 = None;
        self.next_look = Instant::now();
    }

    /// What was not answered may be there or not, from now on and until it is read.
    fn keep_open(&mut self, session: &Session) {
        let mut open: Vec<(&u64, &Request)> = session.open.iter().collect();
        open.sort_by_key(|(seq, _)| **seq);
        for (seq, request) in open {
            let Some(version) = request.version(*seq) else { continue };
            sectors(&request.range).for_each(|sector| self.open.entry(sector).or_default().push(version));
        }
        // What it had read already must be read again.
        if self.audited.is_some() {
            self.audited = Some(0);
        }
    }

    fn leave_a_deposed(&mut self) {
        let Some(place) = self.look() else { return };
        let Some(session) = self.session.take_if(|session| place.term > session.term) else { return };
        self.happened(Happened::Left { term: session.term });
        self.keep_open(&session);
        self.progress.ghosts += 1;
        self.ghosts.push(session);
    }

    // --- ghosts ---

    fn haunt(&mut self) {
        for mut ghost in std::mem::take(&mut self.ghosts) {
            if !ghost.probed && self.progress.term > ghost.term {
                self.probe(&mut ghost);
            }
            let pumped = ghost.pump();
            loop {
                match ghost.reply() {
                    Ok(Some(reply)) => self.take_late(&ghost, reply),
                    Ok(None) => break,
                    Err(why) => {
                        self.find_wrong(why);
                        break;
                    }
                }
            }
            if pumped.is_ok() && !(ghost.probed && ghost.open.is_empty()) {
                self.ghosts.push(ghost);
            }
        }
        self.progress.ghosts_open = self.ghosts.len() as u64;
    }

    /// The next owner has answered.
    fn probe(&mut self, ghost: &mut Session) {
        ghost.probed = true;
        let from = self.area + self.progress.probes * PROBE_BYTES % GHOST_BYTES;
        self.progress.probes += 1;
        let range = from..from + PROBE_BYTES;
        if self.is_free(&range) {
            let mut payload = vec![0; PROBE_BYTES as usize];
            self.seq += 1;
            fill(&mut payload, self.run, range.start, self.seq);
            let version = Version { seq: self.seq, zeros: false };
            sectors(&range).for_each(|sector| self.open.entry(sector).or_default().push(version));
            ghost.put(self.seq, 0, Request { command: Command::Write, range, floor: None }, &payload);
        }
        if let Some(range) = self.newest.clone() {
            self.seq += 1;
            let floor = Some(self.firm[sectors(&range)].to_vec());
            ghost.put(self.seq, 0, Request { command: Command::Read, range, floor }, &[]);
        }
    }

    fn take_late(&mut self, ghost: &Session, reply: Reply) {
        let Reply { seq, error, request, data } = reply;
        self.happened(Happened::Answered { seq, error, late: true });
        if error != 0 {
            return;
        }
        if let Some(version) = request.version(seq) {
            return self.acknowledge(&request.range, version);
        }
        let sectors = request.floor.iter().flatten().zip(data.chunks_exact(SECTOR_BYTES as usize));
        for (number, (floor, bytes)) in sectors.enumerate() {
            let at = request.range.start + number as u64 * SECTOR_BYTES;
            if let Seen::Write(shown) = see(bytes, self.run, at)
                && shown < floor.seq
            {
                let text = self.history_of(at);
                return self.find_wrong(format!(
                    "stale read: {}, of term {}, after term {} had answered, shows write #{shown} at byte {at}, where \
                     #{} was acknowledged{text}",
                    ghost.node, ghost.term, self.progress.term, floor.seq
                ));
            }
        }
    }

    fn acknowledge(&mut self, range: &Range<u64>, version: Version) {
        for sector in sectors(range) {
            self.firm[sector] = version;
            self.open.remove(&sector);
        }
    }

    // --- requests ---

    fn send_next(&mut self) {
        let Some(session) = &self.session else { return };
        let room = session.open.len() < IN_FLIGHT_MAX && session.outbox.is_empty();
        if !room || (Instant::now() < self.next_request && self.audited.is_none()) {
            return;
        }
        self.next_request = Instant::now() + PACE;
        let Some((command, flags, range)) = self.choose() else { return };
        self.seq += 1;
        let seq = self.seq;
        let mut payload = Vec::new();
        if command == Command::Write {
            payload.resize((range.end - range.start) as usize, 0);
            fill(&mut payload, self.run, range.start, seq);
            self.recent.note(&range);
        }
        self.happened(Happened::Issued { seq, command, range: range.clone() });
        if let Some(session) = &mut self.session {
            session.put(seq, flags, Request { command, range, floor: None }, &payload);
        }
    }

    fn is_free(&self, range: &Range<u64>) -> bool {
        let open = self.session.iter().chain(&self.ghosts).flat_map(|session| session.open.values());
        let mut taken = open.map(|request| &request.range).chain(&self.settling.0);
        taken.all(|other| other.end <= range.start || range.end <= other.start)
    }

    fn choose(&mut self) -> Option<(Command, u16, Range<u64>)> {
        if !self.settling.0.is_empty() && self.settling.1.is_none() {
            // Whatever is asked for first.
            return self.session.as_ref().is_some_and(|s| s.open.is_empty()).then_some((Command::Flush, 0, 0..0));
        }
        if let Some(from) = self.audited {
            let range = from..(from + AUDIT_BYTES).min(self.size);
            if range.is_empty() || !self.is_free(&range) {
                return None;
            }
            self.audited = Some(range.end);
            return Some((Command::Read, 0, range));
        }
        if self.resting {
            return None;
        }
        let (command, bytes_max) = match self.rng.below(100) {
            0..5 => return Some((Command::Flush, 0, 0..0)),
            5..35 => (Command::Read, 32 << 10),
            35..39 => (Command::WriteZeroes, 64 << 10),
            39..42 => (Command::Trim, 64 << 10),
            _ => (Command::Write, 16 << 10),
        };
        let flags = match command {
            Command::WriteZeroes => FLAG_NO_HOLE,
            Command::Write if self.rng.chance(3) => FLAG_FUA,
            Command::Write | Command::Trim | Command::Read | Command::Flush | Command::Disconnect => 0,
        };
        // Half of the requests meet in a sixteenth of the area.
        let reach = if self.rng.chance(50) { self.area / 16 } else { self.area };
        let unit: u64 = if self.rng.chance(50) { SECTOR_BYTES } else { 4096 };
        let length = (1 + self.rng.below(bytes_max / unit)) * unit;
        let from = self.rng.below((reach - length) / unit + 1) * unit;
        let range = from..from + length;
        self.is_free(&range).then_some((command, flags, range))
    }

    fn take_replies(&mut self) {
        while let Some(session) = self.session.as_mut() {
            match session.reply() {
                Ok(Some(reply)) => {
                    let (node, term) = (session.node.clone(), session.term);
                    self.take(&node, term, reply);
                }
                Ok(None) => break,
                Err(why) => {
                    self.find_wrong(why);
                    break;
                }
            }
        }
        let idle = self.session.as_ref().is_some_and(|session| session.open.is_empty());
        if self.audited == Some(self.size) && idle {
            self.audited = None;
            self.progress.audits += 1;
        }
    }

    fn take(&mut self, node: &str, term: u64, reply: Reply) {
        let Reply { seq, error, request, data } = reply;
        self.happened(Happened::Answered { seq, error, late: false });
        if error != 0 {
            return self.find_wrong(format!(
                "an error at the client: {node}, in term {term}, answers #{seq} ({:?} of bytes {:?}) with {error}",
                request.command, request.range
            ));
        }
        self.progress.term = self.progress.term.max(term);
        self.settling.1.get_or_insert_with(|| Instant::now() + SETTLING);
        if request.command == Command::Read {
            self.progress.reads += 1;
            return self.compare(node, term, &request.range, &data);
        }
        self.progress.acknowledged += 1;
        if let Some(version) = request.version(seq) {
            self.acknowledge(&request.range, version);
            self.newest = Some(request.range).filter(|_| !version.zeros).or(self.newest.take());
        }
    }

    // --- what was read ---

    fn compare_image(&mut self, image: &Path) {
        let bytes = std::fs::read(image).unwrap_or_else(|e| panic!("read {}: {e}", image.display()));
        for (sector, version) in self.firm.iter().enumerate() {
            let at = sector as u64 * SECTOR_BYTES;
            let bytes = bytes.get(at as usize..(at + SECTOR_BYTES) as usize).unwrap_or_default();
            let seen = see(bytes, self.run, at);
            if !version.looks_like(seen) || self.open.contains_key(&sector) {
                let (seq, zeros) = (version.seq, if version.zeros { " (zeros)" } else { "" });
                let text = self.history_of(at);
                return self.find_wrong(format!(
                    "the image is not the volume: nothing is dirty, and it has {seen} at byte {at}, where #{seq}{zeros} was \
                     read before{text}"
                ));
            }
        }
        self.progress.images += 1;
    }

    fn compare(&mut self, node: &str, term: u64, range: &Range<u64>, data: &[u8]) {
        for (sector, bytes) in sectors(range).zip(data.chunks_exact(SECTOR_BYTES as usize)) {
            let at = sector as u64 * SECTOR_BYTES;
            let seen = see(bytes, self.run, at);
            let open = self.open.remove(&sector).unwrap_or_default();
            let mut allowed = [self.firm[sector]].into_iter().chain(open.iter().copied());
            if let Some(version) = allowed.rfind(|version| version.looks_like(seen)) {
                self.firm[sector] = version;
                continue;
            }
            let text = self.history_of(at);
            let firm = self.firm[sector];
            return self.find_wrong(format!(
                "acknowledged and lost: {node}, in term {term}, shows {seen} at byte {at} (block {}), where #{}{} was \
                 acknowledged or read before, and {} later ones were open{text}",
                at / 4096,
                firm.seq,
                if firm.zeros { " (zeros)" } else { "" },
                open.len()
            ));
        }
    }

    /// All that is known of a sector, and of the sessions meanwhile.
    fn history_of(&self, at: u64) -> String {
        let mut text = String::new();
        let mut concerned: Vec<u64> = Vec::new();
        for (when, what) in &self.events {
            let line = match what {
                Happened::Session { node, term } => format!("session with {node}, term {term}"),
                Happened::Lost { why } => format!("session lost: {why}"),
                Happened::Left { term } => format!("session of term {term} left: another node serves"),
                Happened::Issued { seq, command, range } if range.contains(&at) => {
                    concerned.push(*seq);
                    format!("#{seq} {command:?} of bytes {range:?}")
                }
                Happened::Answered { seq, error, late } if concerned.contains(seq) => {
                    format!("#{seq} answered ({error}){}", if *late { " late" } else { "" })
                }
                Happened::Issued { .. } | Happened::Answered { .. } => continue,
            };
            text.push_str(&format!("\n  {:9.3} s {line}", when.as_secs_f64()));
        }
        let lines: Vec<&str> = text.lines().collect();
        let kept = lines[lines.len().saturating_sub(60)..].join("\n");
        format!("; at {:.3} s. Of that byte:\n{kept}", self.begun.elapsed().as_secs_f64())
    }
}
