//! An export of an NBD server as a backing: a client on one non-blocking socket, driven by the shard's reactor.
//!
//! ```text
//! submit -> reads, changes (queues) -> requests on the wire, REQUESTS_MAX at most -> replies -> finished
//!                 ^ changes wait for the gate             lost connection: keeper thread connects anew
//! ```
//!
//! Invariants:
//! - An operation owns its memory until every request of it was answered or its connection is closed.
//! - Whatever a lost connection may have taken with it is written again: changes under way end with `Gone`, and where
//!   none was, the next sync does. Both make core rewrite everything since the last good sync. No sync ever succeeds
//!   for a change that was completed by an earlier connection and not synced there.
//! - No lock proves that a server is done with a connection's requests. So nothing is changed by a new connection
//!   before a flush on it was answered, nor, where the one before was lost with changes unanswered, before it has been
//!   there for `nbd_quiet`: only from then on the server's host is known to work. A TCP connection that is closed sends
//!   nothing more ([`handshake`]). What that cannot rule out is written down in docs/losses.md.
//! - An opening has had a flush answered ([`handshake::flush`]): what an earlier process was told is written, and nobody has in a log
//!   any more, is durable before a client's flush is promised here.
//! - Reads change nothing and are asked again by the next connection; they fail when none comes in [`PATIENCE`].
//! - A connection whose other host says nothing any more is lost before a read by it has waited too long; one whose server is slow is
//!   not ([`silence`]).
//! - The shard's thread never blocks: connecting is done by a thread that lives while there is no connection.
//!
//! TRIM is never sent: what it leaves to be read is undefined, and a trimmed range of a volume reads as zeros.
//! WRITE_ZEROES without NO_HOLE frees the same space and says what it leaves. Replies are simple ones, because
//! structured replies have to be asked for; FUA is not needed, because core syncs by flush.

pub mod handshake;
mod silence;
pub mod uri;
mod wire;

use crate::buffers::Buffers;
use crate::operation::OperationKind;
use crate::reactor::{Interest, Reactor};
use handshake::{Connected, Export, SIMPLE_REPLY_MAGIC};
use slab::Slab;
use socket2::Socket;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use uri::NbdUri;
use wire::*;

/// Requests on the wire at one time: more than servers work on at once, few enough to answer in one receive.
const REQUESTS_MAX: usize = 64;
/// Pieces of memory in one system call; more are taken by the next.
const IOVECS_MAX: usize = 128;
/// Room for replies that carry no data; a read's data goes straight to its memory but for what came with a header.
const RECEIVE_BYTES: usize = 1024;
/// Receives in one turn, so that a fast server does not starve the shard's other work.
const RECEIVES_PER_TURN: usize = 32;
/// Sends in one turn, likewise; writability calls for the next one.
const SENDS_PER_TURN: usize = 32;
/// How long reads wait for a new connection before they fail.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two attempts to connect, doubled up to the maximum.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// A connection that was made anew and is lost sooner is followed by the next one only after as long.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Whether an operation changes the export.
fn changes(kind: OperationKind) -> bool {
    match kind {
        OperationKind::Write { .. } | OperationKind::Zero { .. } => true,
        OperationKind::Read { .. } | OperationKind::Sync => false,
    }
}

#[derive(Debug)]
struct Op {
    /// As given to `submit`.
    key: usize,
    kind: OperationKind,
    buffers: Buffers,
    /// Bytes to ask for; of a read what lies within the export.
    length: u64,
    /// Bytes asked for.
    issued: u64,
    /// Everything was asked for. By itself, because a sync has no bytes.
    all_issued: bool,
    /// Requests on the wire.
    outstanding: usize,
    failed: Option<i32>,
    /// Of a sync: changes that its success makes durable.
    covers: u64,
}

/// One request on the wire.
#[derive(Debug)]
struct Request {
    /// None: the flush that opens the gate.
    op: Option<usize>,
    header: [u8; REQUEST_BYTES],
    /// Bytes of the operation's memory, from where and how many; none for what carries no data.
    from: u64,
    length: u64,
    writes: bool,
    reads: bool,
    /// Bytes of header and data sent.
    sent: u64,
}

impl Request {
    fn to_send(&self) -> u64 {
        REQUEST_BYTES as u64 + if self.writes { self.length } else { 0 }
    }
}

/// Whether changes may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// A flush has to be answered first; it is sent when there is a change.
    Flush,
    Flushing,
    /// Late writes of a lost connection are waited for.
    Quiet,
}

#[derive(Debug)]
enum Link {
    Up(Socket),
    Down {
        /// No new connection came in time.
        given_up: bool,
        /// Why there is none: how the former one ended, or why the last attempt failed.
        why: String,
    },
}

/// What the thread that connects tells.
enum News {
    Connected(Connected),
    /// An attempt failed for another reason than the one before.
    Failed(String),
    PatienceOver,
    QuietOver,
}

/// The thread that connects, as seen from the shard. Dropping it ends the thread.
#[derive(Debug)]
struct Keeper {
    news: mpsc::Receiver<News>,
    /// Readable when there is news.
    bell: UnixStream,
    _stop: mpsc::Sender<()>,
}

/// See the module's text.
#[derive(Debug)]
pub struct NbdClient {
    uri: NbdUri,
    /// As of the present or last connection; size and alignment never get worse.
    export: Export,
    link: Link,
    keeper: Option<Keeper>,
    /// The socket's readiness is told to us, with this interest.
    watched: Option<Interest>,
    /// The lower token is the socket's, the next one the keeper's bell.
    token: u64,
    generation: u32,
    gate: Gate,
    /// Changes by an earlier connection may be under way still, and no later one has been there for `nbd_quiet`.
    late: bool,
    /// A change or a sync of this client has failed, or a connection was lost with changes that no sync had covered, ever: whoever stands
    /// behind the server may do them later.
    doubtful_changes: bool,
    /// Since when the present or last connection is there, where it was made anew.
    connected_at: Option<Instant>,
    /// When the other host is looked at, while requests are under way.
    look_at: Option<Instant>,

    ops: Slab<Op>,
    /// Reads and syncs not wholly asked for.
    reads: VecDeque<usize>,
    /// Writes and zeros not wholly asked for.
    changes: VecDeque<usize>,
    requests: Slab<Request>,
    /// Requests not wholly sent, in order.
    outgoing: VecDeque<usize>,
    receive: Box<[u8; RECEIVE_BYTES]>,
    received: std::ops::Range<usize>,
    /// The read whose data comes next, and how much of it has come.
    reading: Option<(usize, u64)>,

    /// Requests for changes sent by this connection, those of them answered, and those that a sync has covered.
    changes_asked: u64,
    changes_answered: u64,
    changes_synced: u64,
    /// Changes completed by an earlier connection were not synced there, and core does not know.
    unsynced_lost: bool,
    finished: VecDeque<(usize, io::Result<()>)>,
    notices: VecDeque<String>,
}

impl NbdClient {
    /// A client on a fresh connection. Its reactor tokens are `token` and the next one.
    pub fn new(uri: NbdUri, connected: Connected) -> NbdClient {
        let Connected { socket, export } = connected;
        NbdClient {
            uri,
            export,
            link: Link::Up(socket),
            keeper: None,
            watched: None,
            token: 0,
            generation: 0,
            gate: if export.flush { Gate::Flush } else { Gate::Open },
            late: false,
            doubtful_changes: false,
            connected_at: None,
            look_at: None,
            ops: Slab::new(),
            reads: VecDeque::new(),
            changes: VecDeque::new(),
            requests: Slab::with_capacity(REQUESTS_MAX),
            outgoing: VecDeque::with_capacity(REQUESTS_MAX),
            receive: Box::new([0; RECEIVE_BYTES]),
            received: 0..0,
            reading: None,
            changes_asked: 0,
            changes_answered: 0,
            changes_synced: 0,
            unsynced_lost: false,
            finished: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// Where the export is, and how it is used.
    pub fn uri(&self) -> &NbdUri {
        &self.uri
    }

    /// What is known of it.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// An earlier process may have left changes under way. Whoever calls this waits for `nbd_quiet` before the first change; where the
    /// connection is lost before, the next one waits as well.
    pub fn expect_late_changes(&mut self) {
        self.late = true;
    }

    /// Every change that this client has ever asked for is done, and none is asked for now: nothing of it can come late. A server that keeps
    /// a cache for each connection has it done by a sync.
    pub fn every_change_is_done(&self) -> bool {
        let done = if self.export.one_cache { self.changes_answered } else { self.changes_synced };
        !self.doubtful_changes && done == self.changes_asked && !self.ops.iter().any(|(_, op)| changes(op.kind))
    }

    /// Whether there is a connection.
    pub fn connected(&self) -> bool {
        matches!(self.link, Link::Up(_))
    }

    /// Why there is no connection, while there is none.
    pub fn trouble(&self) -> Option<&str> {
        match &self.link {
            Link::Up(_) => None,
            Link::Down { why, .. } => Some(why),
        }
    }

    /// Sets the reactor tokens: `token` and the next one. Before the first operation.
    pub fn set_token(&mut self, token: u64) {
        assert!(self.watched.is_none() && self.keeper.is_none(), "tokens do not change while they are used");
        self.token = token;
    }

    /// Something for the operator: a connection lost, an attempt that failed, a new connection.
    pub fn take_notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }

    /// An operation that has ended: its key and how.
    pub fn take_finished(&mut self) -> Option<(usize, io::Result<()>)> {
        self.finished.pop_front()
    }

    /// Whether `take_finished` has something.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Takes an operation; its end comes by `take_finished`, perhaps at once.
    pub fn submit(&mut self, reactor: &mut Reactor, key: usize, kind: OperationKind, buffers: Buffers) {
        let length = match kind {
            OperationKind::Read { offset } => {
                let size = self.export.size / u64::from(self.export.align) * u64::from(self.export.align);
                buffers.len().min(size.saturating_sub(offset))
            }
            OperationKind::Write { .. } => buffers.len(),
            OperationKind::Zero { length, .. } => length,
            OperationKind::Sync => 0,
        };
        let op =
            Op { key, kind, buffers, length, issued: 0, all_issued: false, outstanding: 0, failed: None, covers: 0 };
        match kind {
            OperationKind::Sync if self.unsynced_lost => return self.finish(op, Err(GONE)),
            OperationKind::Sync if !self.export.flush => {
                self.changes_synced = self.changes_asked;
                return self.finish(op, Ok(()));
            }
            OperationKind::Zero { .. } if !self.export.zero => return self.finish(op, Err(libc::EOPNOTSUPP)),
            OperationKind::Read { .. } if length == 0 => return self.finish(op, Ok(())),
            OperationKind::Read { .. }
            | OperationKind::Write { .. }
            | OperationKind::Zero { .. }
            | OperationKind::Sync => {}
        }
        if let Link::Down { given_up, .. } = self.link {
            self.keep_connecting(reactor);
            let waits = matches!(kind, OperationKind::Read { .. }) && !given_up;
            if !waits {
                return self.finish(op, Err(GONE));
            }
        }
        let id = self.ops.insert(op);
        if changes(kind) {
            self.changes.push_back(id)
        } else {
            self.reads.push_back(id)
        }
        self.go_on(reactor);
    }

    /// Hears of the end of a connection by which nothing is asked, and gives one up where nothing comes from its other host any more. To be
    /// called before the first request, when [`NbdClient::look_due`] says so, and whenever requests may have begun.
    pub fn look(&mut self, reactor: &mut Reactor) {
        if self.watched.is_none()
            && let Err(error) = self.watch(reactor)
        {
            return self.lost(reactor, &error);
        }
        let Link::Up(socket) = &self.link else { return self.look_at = None };
        if self.requests.is_empty() {
            return self.look_at = None;
        }
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at > now) {
            return;
        }
        // Not at the first request after a rest, in which little is heard.
        let looked_before = self.look_at.replace(now + silence::LOOK_EVERY).is_some();
        if looked_before && silence::silent_for(socket).is_some_and(|silent| silent >= silence::SILENCE_MAX) {
            let seconds = silence::SILENCE_MAX.as_secs();
            let text = format!("nothing has come from its host for {seconds} s");
            self.lost(reactor, &io::Error::new(io::ErrorKind::TimedOut, text));
        }
    }

    /// In what time [`NbdClient::look`] is to be called.
    pub fn look_due(&self) -> Option<Duration> {
        Some(self.look_at?.saturating_duration_since(Instant::now()))
    }

    /// The reactor has told that one of our tokens is ready.
    pub fn ready(&mut self, reactor: &mut Reactor, token: u64, readable: bool, hangup: bool) {
        if token == self.token + 1 {
            return self.take_news(reactor);
        }
        if (readable || hangup) && self.connected() {
            // What came before the end of the connection still counts.
            if let Err(error) = self.receive_some() {
                return self.lost(reactor, &error);
            }
        }
        self.go_on(reactor);
    }

    /// Asks for what may be asked for, sends, and keeps the reactor's interest right.
    fn go_on(&mut self, reactor: &mut Reactor) {
        if !self.connected() {
            return;
        }
        self.issue();
        if let Err(error) = self.send().and_then(|()| self.watch(reactor)) {
            self.lost(reactor, &error);
        }
    }

    fn watch(&mut self, reactor: &mut Reactor) -> io::Result<()> {
        let Link::Up(socket) = &self.link else { return Ok(()) };
        let wanted = if self.outgoing.is_empty() { Interest::READ } else { Interest::BOTH };
        if self.watched == Some(wanted) {
            return Ok(());
        }
        match self.watched {
            None => reactor.watch(socket.as_raw_fd(), self.token, wanted)?,
            Some(_) => reactor.rewatch(socket.as_raw_fd(), self.token, wanted)?,
        }
        self.watched = Some(wanted);
        Ok(())
    }

    // --- asking ---

    /// Turns operations into requests, reads and changes by turns.
    fn issue(&mut self) {
        loop {
            let before = self.requests.len();
            if before < REQUESTS_MAX && !self.reads.is_empty() {
                let id = self.reads[0];
                if self.issue_one(id) {
                    self.reads.pop_front();
                }
            }
            if self.gate == Gate::Flush && !self.changes.is_empty() && self.requests.len() < REQUESTS_MAX {
                self.gate = Gate::Flushing;
                self.late = false;
                self.ask(None, FLUSH, 0, 0, 0, 0);
            }
            if self.gate == Gate::Open && self.requests.len() < REQUESTS_MAX && !self.changes.is_empty() {
                self.late = false;
                let id = self.changes[0];
                if self.issue_one(id) {
                    self.changes.pop_front();
                }
            }
            if self.requests.len() == before {
                return;
            }
        }
    }

    /// The next request of an operation. True: it was the last one.
    fn issue_one(&mut self, id: usize) -> bool {
        let op = &self.ops[id];
        let (from, left) = (op.issued, op.length - op.issued);
        let (command, flags, offset, most) = match op.kind {
            OperationKind::Read { offset } => (READ, 0, offset, self.export.request_bytes_max),
            OperationKind::Write { offset } => (WRITE, 0, offset, self.export.request_bytes_max),
            OperationKind::Zero { offset, hole, .. } => {
                (WRITE_ZEROES, if hole { 0 } else { FLAG_NO_HOLE }, offset, self.export.zero_bytes_max)
            }
            OperationKind::Sync => (FLUSH, 0, 0, 0),
        };
        let (length, kind) = (left.min(u64::from(most)), op.kind);
        if changes(kind) {
            self.changes_asked += 1;
        }
        let answered = self.changes_asked == self.changes_answered;
        self.ask(Some(id), command, flags, offset + from, from, length);
        let op = &mut self.ops[id];
        op.issued += length;
        op.outstanding += 1;
        op.all_issued = op.issued == op.length;
        if kind == OperationKind::Sync && answered {
            op.covers = self.changes_asked;
        }
        op.all_issued
    }

    fn ask(&mut self, op: Option<usize>, command: u16, flags: u16, offset: u64, from: u64, length: u64) {
        let entry = self.requests.vacant_entry();
        let id = entry.key();
        let cookie = u64::from(self.generation) << 32 | id as u64;
        let header = request(command, flags, cookie, offset, length as u32);
        entry.insert(Request { op, header, from, length, writes: command == WRITE, reads: command == READ, sent: 0 });
        self.outgoing.push_back(id);
    }

    /// Sends as much as the socket takes, many requests by one call.
    fn send(&mut self) -> io::Result<()> {
        let Link::Up(socket) = &self.link else { return Ok(()) };
        for _ in 0..SENDS_PER_TURN {
            if self.outgoing.is_empty() {
                break;
            }
            let mut pieces = Pieces::new();
            for &id in &self.outgoing {
                let request = &self.requests[id];
                let header = request.header.get(request.sent as usize..).unwrap_or(&[]);
                if !pieces.push(header.as_ptr().cast_mut(), header.len()) {
                    break;
                }
                if let (true, Some(op)) = (request.writes, request.op) {
                    let skip = request.sent.saturating_sub(REQUEST_BYTES as u64);
                    pieces.push_window(&self.ops[op].buffers, request.from + skip, request.length - skip);
                }
            }
            let message = pieces.message();
            // SAFETY: the pieces point to headers in `requests` and to memory that the operations own; nothing of it
            // is changed or freed during the call, which only reads.
            let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
            if count < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            let mut left = count as u64;
            while let Some(&id) = self.outgoing.front() {
                let request = &mut self.requests[id];
                let step = left.min(request.to_send() - request.sent);
                request.sent += step;
                left -= step;
                if request.sent < request.to_send() {
                    break;
                }
                self.outgoing.pop_front();
            }
        }
        Ok(())
    }

    // --- answers ---

    fn receive_some(&mut self) -> io::Result<()> {
        for _ in 0..RECEIVES_PER_TURN {
            let mut pieces = Pieces::new();
            let mut data = 0;
            if let Some((id, done)) = self.reading {
                let request = &self.requests[id];
                let op = request.op.expect("only operations read");
                data = pieces.push_window(&self.ops[op].buffers, request.from + done, request.length - done);
            }
            // Where not all of it fits this call, nothing may be taken behind it.
            let whole = self.reading.is_none_or(|(id, done)| data == self.requests[id].length - done);
            if whole {
                let tail = &mut self.receive[self.received.end..];
                pieces.push(tail.as_mut_ptr(), tail.len());
            }
            let Link::Up(socket) = &self.link else { return Ok(()) };
            let mut message = pieces.message();
            // SAFETY: the pieces point to the unused part of our buffer and to memory of an operation that waits for
            // exactly these bytes; core lets nobody else touch it until the operation is done.
            let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
            if count < 0 {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                }
            }
            if count == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            let (count, mut behind) = (count as u64, 0);
            if let Some((id, done)) = &mut self.reading {
                let step = count.min(data);
                *done += step;
                behind = count - step;
                if *done == self.requests[*id].length {
                    let id = *id;
                    self.reading = None;
                    self.answered(id, None);
                }
            } else {
                behind += count;
            }
            self.received.end += behind as usize;
            self.parse()?;
        }
        Ok(())
    }

    /// Takes every whole reply out of the buffer, and moves what is left of one to its front.
    fn parse(&mut self) -> io::Result<()> {
        loop {
            let bytes = &self.receive[self.received.clone()];
            if let Some((id, done)) = self.reading {
                let step = (bytes.len() as u64).min(self.requests[id].length - done);
                self.copy_in(id, done, step);
                self.received.start += step as usize;
                if done + step < self.requests[id].length {
                    self.reading = Some((id, done + step));
                    break;
                }
                self.reading = None;
                self.answered(id, None);
                continue;
            }
            let Some(header) = bytes.first_chunk::<REPLY_BYTES>() else { break };
            let word = |i: usize| u32::from_be_bytes(header[i..i + 4].try_into().expect("four bytes"));
            let (magic, error, generation, id) = (word(0), word(4), word(8), word(12) as usize);
            let known = self.requests.get(id).filter(|r| r.sent == r.to_send() && generation == self.generation);
            let (SIMPLE_REPLY_MAGIC, Some(request)) = (magic, known) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the server's reply is none to a request of ours; its stream cannot be trusted any more",
                ));
            };
            let reads = request.reads;
            self.received.start += REPLY_BYTES;
            match error {
                0 if reads => self.reading = Some((id, 0)),
                0 => self.answered(id, None),
                error => self.answered(id, errno_of(error).raw_os_error()),
            }
        }
        self.receive.copy_within(self.received.clone(), 0);
        self.received = 0..self.received.len();
        Ok(())
    }

    /// Data of a read that came in one piece with its header.
    fn copy_in(&mut self, id: usize, done: u64, length: u64) {
        let request = &self.requests[id];
        let op = request.op.expect("only operations read");
        let (mut at, end) = (self.received.start, self.received.start + length as usize);
        while at < end {
            let mut pieces = Pieces::new();
            let from = request.from + done + (at - self.received.start) as u64;
            pieces.push_window(&self.ops[op].buffers, from, (end - at) as u64);
            for piece in pieces.list() {
                // SAFETY: the piece is memory of an operation that waits for exactly these bytes, as long as the
                // window that was asked for; it does not overlap our buffer.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.receive[at..at + piece.iov_len].as_ptr(),
                        piece.iov_base.cast::<u8>(),
                        piece.iov_len,
                    );
                }
                at += piece.iov_len;
            }
        }
    }

    fn answered(&mut self, id: usize, failed: Option<i32>) {
        let request = self.requests.remove(id);
        let Some(op_id) = request.op else { return self.gate_answered(failed) };
        let op = &mut self.ops[op_id];
        if changes(op.kind) {
            self.changes_answered += 1;
        }
        self.doubtful_changes |= failed.is_some() && !matches!(op.kind, OperationKind::Read { .. });
        op.outstanding -= 1;
        if op.failed.is_none() && failed.is_some() {
            op.failed = failed;
            if !op.all_issued {
                // The rest is not asked for.
                op.all_issued = true;
                self.reads.retain(|waiting| *waiting != op_id);
                self.changes.retain(|waiting| *waiting != op_id);
            }
        }
        if op.outstanding == 0 && op.all_issued {
            let op = self.ops.remove(op_id);
            if op.kind == OperationKind::Sync && op.failed.is_none() {
                self.changes_synced = self.changes_synced.max(op.covers);
            }
            let result = op.failed.map_or(Ok(()), Err);
            self.finish(op, result);
        }
    }

    /// The flush before the first change was answered.
    fn gate_answered(&mut self, failed: Option<i32>) {
        let Some(errno) = failed else {
            self.gate = Gate::Open;
            return;
        };
        self.doubtful_changes = true;
        // Told to those who wait for it; the next change tries again.
        self.gate = Gate::Flush;
        for id in std::mem::take(&mut self.changes) {
            let op = self.ops.remove(id);
            self.finish(op, Err(errno));
        }
    }

    fn finish(&mut self, op: Op, result: Result<(), i32>) {
        match op.kind {
            OperationKind::Read { .. } if result.is_ok() => zero_rest(&op),
            // Core is told that a change or sync went with its connection, and rewrites what was not synced.
            OperationKind::Write { .. } | OperationKind::Zero { .. } | OperationKind::Sync if result == Err(GONE) => {
                self.unsynced_lost = false;
            }
            OperationKind::Read { .. }
            | OperationKind::Write { .. }
            | OperationKind::Zero { .. }
            | OperationKind::Sync => {}
        }
        self.finished.push_back((op.key, result.map_err(io::Error::from_raw_os_error)));
    }

    // --- losing and finding the server ---

    fn lost(&mut self, reactor: &mut Reactor, why: &io::Error) {
        let why = format!("the connection to {} is lost ({why})", self.uri);
        let down = Link::Down { given_up: false, why: why.clone() };
        let Link::Up(socket) = std::mem::replace(&mut self.link, down) else { return };
        if self.watched.take().is_some() {
            // Closing it takes it off the epoll as well.
            let _ = reactor.unwatch(socket.as_raw_fd());
        }
        drop(socket);
        // It made this connection; if it still waits out the quiet time of the one before, the next one goes on with that.
        self.dismiss_keeper(reactor);
        self.notices.push_back(format!("{why}; connecting anew"));
        if self.changes_answered < self.changes_asked {
            self.late = true;
        }
        // It may be another server that answers next, and this one writes out later what it has in its cache.
        self.doubtful_changes |= self.changes_asked > self.changes_synced;
        self.unsynced_lost |= self.changes_asked > self.changes_synced;
        (self.changes_asked, self.changes_answered, self.changes_synced) = (0, 0, 0);
        self.generation = self.generation.wrapping_add(1);
        self.requests.clear();
        self.outgoing.clear();
        self.reading = None;
        self.received = 0..0;
        self.reads.clear();
        self.changes.clear();
        let ids: Vec<usize> = self.ops.iter().map(|(id, _)| id).collect();
        for id in ids {
            let op = &mut self.ops[id];
            match op.kind {
                OperationKind::Read { .. } => {
                    (op.issued, op.outstanding, op.all_issued, op.failed) = (0, 0, false, None);
                    self.reads.push_back(id);
                }
                OperationKind::Write { .. } | OperationKind::Zero { .. } | OperationKind::Sync => {
                    let op = self.ops.remove(id);
                    self.finish(op, Err(GONE));
                }
            }
        }
        self.keep_connecting(reactor);
    }

    /// Starts the thread that connects, unless it is at it.
    fn keep_connecting(&mut self, reactor: &mut Reactor) {
        if self.keeper.is_some() {
            return;
        }
        if let Err(error) = self.start_keeper(reactor) {
            self.notices
                .push_back(format!("cannot connect anew to {}: {error}; the next request tries again", self.uri));
            self.give_up();
        }
    }

    fn start_keeper(&mut self, reactor: &mut Reactor) -> io::Result<()> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let (tell, news) = mpsc::channel();
        let (_stop, stopped) = mpsc::channel();
        let (uri, before, late) = (self.uri.clone(), self.export, self.late);
        // A server that lets us in and hangs up at once is not to be asked all the time.
        let hasty = self.connected_at.take().is_some_and(|at| at.elapsed() < SHORT_LIFE);
        std::thread::Builder::new().name("forebay-nbd".into()).spawn(move || {
            let voice = Voice { tell, ringer };
            keep(&uri, &before, late, hasty, &voice, &stopped);
        })?;
        reactor.watch(bell.as_raw_fd(), self.token + 1, Interest::READ)?;
        self.keeper = Some(Keeper { news, bell, _stop });
        Ok(())
    }

    fn dismiss_keeper(&mut self, reactor: &mut Reactor) {
        if let Some(keeper) = self.keeper.take() {
            // Closing it takes it off the epoll as well.
            let _ = reactor.unwatch(keeper.bell.as_raw_fd());
        }
    }

    fn take_news(&mut self, reactor: &mut Reactor) {
        let Some(keeper) = &mut self.keeper else { return };
        let mut bytes = [0; 64];
        // Drained before the news is taken: what is told after rings again. The thread's end is news, too.
        let ended = loop {
            match keeper.bell.read(&mut bytes) {
                Ok(0) => break true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        let all: Vec<News> = keeper.news.try_iter().collect();
        if ended {
            self.dismiss_keeper(reactor);
        }
        for news in all {
            match news {
                News::Connected(connected) => self.connected_anew(connected),
                News::Failed(why) => self.attempt_failed(&why),
                News::PatienceOver => self.give_up(),
                News::QuietOver => {
                    self.late = false;
                    if self.gate == Gate::Quiet {
                        self.gate = if self.export.flush { Gate::Flush } else { Gate::Open };
                    }
                }
            }
        }
        if ended && !self.connected() {
            self.keep_connecting(reactor);
        }
        self.go_on(reactor);
    }

    fn attempt_failed(&mut self, error: &str) {
        let text = format!("cannot reach {}: {error}", self.uri);
        if let Link::Down { why, .. } = &mut self.link {
            why.clone_from(&text);
        }
        self.notices.push_back(format!("{text}; trying on"));
    }

    fn connected_anew(&mut self, Connected { socket, export }: Connected) {
        self.export = export;
        self.link = Link::Up(socket);
        self.watched = None;
        self.connected_at = Some(Instant::now());
        self.gate = match self.late {
            true => Gate::Quiet,
            false if export.flush => Gate::Flush,
            false => Gate::Open,
        };
        self.notices.push_back(format!("connected to {} again", self.uri));
    }

    /// Reads have waited long enough.
    fn give_up(&mut self) {
        if let Link::Down { given_up, .. } = &mut self.link {
            *given_up = true;
            for id in std::mem::take(&mut self.reads) {
                let op = self.ops.remove(id);
                self.finish(op, Err(GONE));
            }
        }
    }
}

impl Drop for NbdClient {
    /// Says good-bye where nothing is under way; otherwise the end of the connection says it.
    fn drop(&mut self) {
        if let (Link::Up(socket), true) = (&self.link, self.requests.is_empty()) {
            // All that was sent was answered, so nothing can come late but this.
            let _ = socket.set_linger(None);
            let _ = socket.send_with_flags(&disconnect_request(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        }
    }
}

/// A read's memory past the end of the export.
fn zero_rest(op: &Op) {
    let mut at = op.length;
    while at < op.buffers.len() {
        let mut pieces = Pieces::new();
        at += pieces.push_window(&op.buffers, at, op.buffers.len() - at);
        for piece in pieces.list() {
            // SAFETY: the piece is memory of this operation, which nobody else touches until it is done.
            unsafe { std::ptr::write_bytes(piece.iov_base.cast::<u8>(), 0, piece.iov_len) };
        }
    }
}

/// Pieces of memory for one system call, on the stack.
struct Pieces {
    list: [libc::iovec; IOVECS_MAX],
    count: usize,
}

impl Pieces {
    fn new() -> Pieces {
        Pieces { list: [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; IOVECS_MAX], count: 0 }
    }

    fn list(&self) -> &[libc::iovec] {
        &self.list[..self.count]
    }

    /// False: there is no room.
    fn push(&mut self, start: *mut u8, length: usize) -> bool {
        if length == 0 {
            return true;
        }
        if self.count == IOVECS_MAX {
            return false;
        }
        self.list[self.count] = libc::iovec { iov_base: start.cast(), iov_len: length };
        self.count += 1;
        true
    }

    /// Appends bytes `from..from + length` of an operation's memory, as far as there is room; how many.
    fn push_window(&mut self, buffers: &Buffers, from: u64, length: u64) -> u64 {
        let (mut skip, mut left) = (from, length);
        for piece in &buffers.iovecs {
            let size = piece.iov_len as u64;
            if skip >= size {
                skip -= size;
                continue;
            }
            let step = left.min(size - skip);
            // SAFETY: `skip` is less than the piece's length, so the address lies within the piece.
            let start = unsafe { piece.iov_base.cast::<u8>().add(skip as usize) };
            if step == 0 || !self.push(start, step as usize) {
                break;
            }
            skip = 0;
            left -= step;
        }
        length - left
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all of a msghdr's fields may be zero: no address, no control data, no pieces.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = self.list.as_mut_ptr();
        message.msg_iovlen = self.count;
        message
    }
}

/// How the thread that connects is heard.
struct Voice {
    tell: mpsc::Sender<News>,
    ringer: UnixStream,
}

impl Voice {
    fn publish(&self, news: News) {
        // Where nobody listens any more the client is gone; a full bell is ringing already.
        let _ = self.tell.send(news);
        let _ = (&self.ringer).write(&[1]);
    }
}

/// Body of the thread: connects, however long it takes, and then waits out the quiet time, if changes by an earlier connection may be
/// `late`. `hasty`: not at once.
fn keep(uri: &NbdUri, before: &Export, late: bool, hasty: bool, voice: &Voice, stopped: &mpsc::Receiver<()>) {
    let lost = Instant::now();
    // Nothing is ever sent: its time passes, or the client is dropped.
    let over = |pause| stopped.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout);
    let (mut pause, mut patient, mut said) = (RECONNECT_PAUSE_MIN, true, String::new());
    if hasty && over(SHORT_LIFE) {
        return;
    }
    loop {
        match handshake::connect(uri).and_then(|connected| handshake::same(before, connected)) {
            Ok(connected) => {
                voice.publish(News::Connected(connected));
                break;
            }
            Err(error) => {
                let why = error.to_string();
                if why != said {
                    voice.publish(News::Failed(why.clone()));
                    said = why;
                }
            }
        }
        let left = PATIENCE.saturating_sub(lost.elapsed());
        if patient && left.is_zero() {
            patient = false;
            voice.publish(News::PatienceOver);
        }
        if over(if patient { pause.min(left) } else { pause }) {
            return;
        }
        pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
    }
    // From here on, and not from the loss: a host that was frozen meanwhile works on what it had received only now.
    if late && !over(Duration::from_nanos(uri.quiet.0)) {
        voice.publish(News::QuietOver);
    }
}
