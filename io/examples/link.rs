//! One end of a link by itself, for measuring: `scripts/bench/links.py` runs two of them in network namespaces.
//!
//! ```text
//! link alpha beta DOOR OWN=PEER,OWN=PEER... [send] [SECONDS] [FILE]
//! ```
//!
//! The node whose name sorts first calls the other one's door at the given pairs. With `send` it sends appends of 1 MiB for
//! so long, as many as there is room for, of FILE's bytes (or of noise); the other side checks every block, counts, and
//! answers each by a Held. With LINK_DEPTH=N it sends 4 KiB at a time, N before an answer: the time of a small write.
//! With LINK_TLS=FOLDER it uses cert.pem, key.pem and ca.pem there, with LINK_COMPRESSION=off it never packs.
//! Each prints a line of JSON every 200 ms, with the longest time in which nothing got on: the stream is in order, so it
//! waits for the oldest message that is missing.

use forebay_core::cluster::{Epoch, Host, Incarnation, MarkNumber, NodeId};
use forebay_core::format::{Descriptor, Kind, payload_checksum};
use forebay_core::message::{Envelope, Held, LogMessage, Message, Room};
use forebay_core::types::*;
use forebay_core::wire::NodeName;
use forebay_io::buffers::Buffers;
use forebay_io::link::*;
use forebay_io::{Arena, Completion, ModeChoice, Reactor, clock};
use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;

const VOLUME: [u8; 16] = [7; 16];
const TERM: Term = Term(1);
const BLOCKS: u64 = 256;
const DOOR: u64 = 1000;
/// Of the sender: content that goes round. Of the receiver: where it goes.
const FRAMES: u32 = 16_384;
const REPORT_EVERY: Duration = Duration::from_millis(200);

struct Sink {
    arena: Arena,
    free: Vec<FrameId>,
    bytes: u64,
    damaged: u64,
    /// Everything up to here has come, and what came beyond it.
    whole: Lsn,
    ahead: BTreeMap<Lsn, Lsn>,
    advanced_at: Instant,
    longest_gap: Duration,
    /// Appends that came and were not answered; answers that came.
    owed: u64,
    answers: u64,
}

impl Sink {
    fn new(start: Instant) -> std::io::Result<Sink> {
        Ok(Sink {
            arena: Arena::anonymous(FRAMES, true)?,
            free: (0..FRAMES).map(FrameId).collect(),
            bytes: 0,
            damaged: 0,
            whole: Lsn(0),
            ahead: BTreeMap::new(),
            advanced_at: start,
            longest_gap: Duration(0),
            owed: 0,
            answers: 0,
        })
    }
}

impl Receiver for Sink {
    fn place(&mut self, _: &Envelope, _: &Message, blocks: usize) -> Option<Place> {
        let left = self.free.len().checked_sub(blocks)?;
        Some(Place::new(&self.arena, self.free.split_off(left)))
    }

    fn deliver(&mut self, _: Envelope, message: Message, payload: Vec<Payload>) {
        let Message::Log(LogMessage::Append { from, through, records, .. }) = message else {
            self.answers += 1;
            return;
        };
        self.owed += 1;
        assert!(from >= self.whole && self.ahead.insert(from, through).is_none(), "{from} was delivered twice");
        let now = clock::now();
        while let Some(through) = self.ahead.remove(&self.whole) {
            if self.whole > Lsn(0) {
                self.longest_gap = self.longest_gap.max(now - self.advanced_at);
            }
            (self.whole, self.advanced_at) = (through, now);
        }
        for (record, payload) in records.iter().zip(payload) {
            let Kind::Data { checksum, .. } = record.kind else { continue };
            self.damaged += u64::from(checksum != payload.checksum);
            self.bytes += BLOCK_BYTES;
            self.free.push(payload.frame);
        }
    }

    fn give_back(&mut self, _: [u8; 16], frames: Vec<FrameId>) {
        self.free.extend(frames);
    }
}

struct Source {
    arena: Arena,
    checksums: Vec<u32>,
    next: u64,
    sent: u64,
    /// Blocks of a message, and messages before an answer.
    blocks: u64,
    depth: u64,
    envelope: Envelope,
}

impl Source {
    fn new(file: Option<&String>, envelope: Envelope) -> Result<Source, Box<dyn Error>> {
        let mut arena = Arena::anonymous(FRAMES, true)?;
        let content = file.map(std::fs::read).transpose()?.unwrap_or_default();
        let (mut checksums, mut state) = (Vec::new(), 1u64);
        for frame in 0..FRAMES {
            let bytes = arena.bytes_mut(FrameId(frame));
            for (at, byte) in bytes.iter_mut().enumerate() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let from = frame as usize * 4096 + at;
                *byte = if content.is_empty() { (state >> 56) as u8 } else { content[from % content.len()] };
            }
            let block = BlockIndex(u64::from(frame));
            checksums.push(payload_checksum(&VOLUME, block, SectorMask::FULL, TERM, bytes));
        }
        let depth = std::env::var("LINK_DEPTH").ok().map(|depth| depth.parse()).transpose()?;
        let blocks = if depth.is_some() { 1 } else { BLOCKS };
        Ok(Source { arena, checksums, next: 0, sent: 0, blocks, depth: depth.unwrap_or(u64::MAX), envelope })
    }

    fn send(&mut self, link: &mut Link, answers: u64) {
        let blocks = self.blocks;
        while link.is_up() && self.sent - answers < self.depth && link.room() >= (BLOCKS + 16) * BLOCK_BYTES {
            let (mut records, mut payload) = (Vec::with_capacity(blocks as usize), Buffers::none());
            for lsn in self.next..self.next + blocks {
                let frame = lsn % u64::from(FRAMES);
                payload.push_frame(&self.arena, FrameId(frame as u32), 0, 4096);
                let kind = Kind::Data { mask: SectorMask::FULL, checksum: self.checksums[frame as usize] };
                let block = BlockIndex(frame);
                records.push(Descriptor { lsn: Lsn(lsn + 1), block, group: Group(0), term: TERM, kind });
            }
            let (from, through) = (Lsn(self.next), Lsn(self.next + blocks));
            let append =
                Message::Log(LogMessage::Append { from, through, committed: from, sync: from, records, mark: None });
            if link.send(&self.envelope, &append, payload, Some(self.next)).is_err() {
                return;
            }
            self.next += blocks;
            self.sent += 1;
        }
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call, which cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Duration::from_micros(micros(usage.ru_utime) + micros(usage.ru_stime))
}

fn identity(name: &str) -> Result<Identity, Box<dyn Error>> {
    let number = u64::from(name.as_bytes()[0]);
    let host = Host { machine: [number as u8; 16], boot: [0; 16] };
    let session = clock::now().0;
    let revoked = Default::default();
    Ok(Identity { cluster: [1; 16], node: NodeId(number), name: NodeName::new(name)?, host, session, revoked })
}

fn report(link: &Link, sink: &Sink, start: Instant, now: Instant) {
    let status = link.status();
    let packing = status.compression;
    let channels: Vec<String> = status
        .channels
        .iter()
        .map(|channel| {
            format!(
                "{{\"up\":{},\"sent\":{},\"rate\":{:.0},\"rtt_us\":{},\"resent\":{},\"in_flight\":{}}}",
                channel.phase == ChannelPhase::Up,
                channel.sent_bytes,
                channel.rate.unwrap_or(0.0),
                channel.round_trip.map_or(0, |time| time.0 / 1000),
                channel.resent,
                channel.in_flight_bytes
            )
        })
        .collect();
    println!(
        "{{\"ms\":{},\"delivered\":{},\"whole\":{},\"damaged\":{},\"longest_gap_ms\":{},\"cpu_ms\":{},\"duplicates\":{},\
         \"given_up\":{},\"answers\":{},\"compression\":\"{:?}\",\"ratio\":{:.2},\"saved\":{},\"pack_cpu_ms\":{},\"cores\":{:.2},\
         \"channels\":[{}]}}",
        (now - start).0 / 1_000_000,
        sink.bytes,
        sink.whole,
        sink.damaged,
        sink.longest_gap.0 / 1_000_000,
        cpu().0 / 1_000_000,
        status.counts.duplicates,
        status.given_up,
        sink.answers,
        packing.decision,
        packing.ratio().unwrap_or(1.0),
        packing.packed_from_bytes - packing.packed_to_bytes,
        packing.cpu.0 / 1_000_000,
        packing.cores,
        channels.join(",")
    );
}

fn pair_of(text: &str) -> Result<AddressPair, Box<dyn Error>> {
    let (own, peer) = text.split_once('=').ok_or("a pair is OWN=PEER")?;
    Ok(AddressPair { own: own.parse()?, peer: peer.parse::<SocketAddr>()? })
}

fn security() -> Result<Security, Box<dyn Error>> {
    match std::env::var_os("LINK_TLS") {
        None => Ok(Security::Plain),
        Some(folder) => {
            let path = |name: &str| Path::new(&folder).join(name);
            Ok(Security::Tls(PeerTls::load(&path("cert.pem"), &path("key.pem"), &path("ca.pem"))?))
        }
    }
}

fn compression() -> Compression {
    match std::env::var("LINK_COMPRESSION").as_deref() {
        Ok("off") => Compression::Off,
        Ok(_) | Err(_) => Compression::default(),
    }
}

/// Answers each append that came by what has come so far.
fn answer_owed(link: &mut Link, sink: &mut Sink, envelope: &Envelope, host: Host) {
    for _ in 0..std::mem::take(&mut sink.owed) {
        let held = Message::Log(LogMessage::Held(Held {
            accepted: sink.whole,
            held: sink.whole,
            synced: None,
            mark: MarkNumber(0),
            room: Room::default(),
            host,
        }));
        // Where the link is down, nobody waits for it.
        let _ = link.send(envelope, &held, Buffers::none(), None);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [own, peer, door, pairs, rest @ ..] = &arguments[..] else {
        return Err("usage: link OWN PEER DOOR OWN=PEER,... [send] [SECONDS] [FILE]".into());
    };
    let sends = rest.first().is_some_and(|word| word == "send");
    let rest = &rest[usize::from(sends)..];
    let time = Duration::from_secs(rest.first().map_or(Ok(10), |text| text.parse())?);
    let pairs = pairs.split(',').map(pair_of).collect::<Result<Vec<_>, _>>()?;
    let identity = Arc::new(identity(own)?);
    let security = security()?;
    let incarnation = |name: &str| Incarnation { node: NodeId(u64::from(name.as_bytes()[0])), tier: 1, life: 0 };
    let (from, to) = (incarnation(own), incarnation(peer));
    let envelope = Envelope { volume: VOLUME, term: TERM, epoch: Epoch(1), from, to };
    let config = LinkConfig {
        identity: identity.clone(),
        peer: NodeName::new(peer)?,
        peer_node: None,
        lane: 0,
        pairs,
        security: security.clone(),
        token: 0,
        bytes_max: 64 << 20,
        compression: compression(),
        multipath: false,
    };
    let start = clock::now();
    let mut source = sends.then(|| Source::new(rest.get(1), envelope)).transpose()?;
    let mut sink = Sink::new(start)?;
    let mut reactor = Reactor::new(ModeChoice::Auto)?;
    let listener = TcpListener::bind(door)?;
    let mut door = Door::new(&mut reactor, listener, identity.clone(), security, DOOR)?;
    let mut link = Link::new(config, clock::now()).expect("two nodes");
    let start = clock::now();
    let mut next_report = start + REPORT_EVERY;
    let (mut found, mut arrivals, mut turned_away) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let now = clock::now();
        let deadlines = [link.deadline(), door.deadline(), Some(next_report)];
        let next = deadlines.into_iter().flatten().min().expect("there is a report to come");
        let wait = if link.has_work() { std::time::Duration::ZERO } else { clock::until(next, now) };
        reactor.wait(Some(wait), &mut found)?;
        let now = clock::now();
        for completion in found.drain(..) {
            let Completion::Ready { token, writable, .. } = completion else { continue };
            if door.has_token(token) {
                door.ready(&mut reactor, token, now, &mut arrivals, &mut turned_away);
            } else {
                link.ready(&mut reactor, &mut sink, token, writable, now);
            }
        }
        door.timers(&mut reactor, now, &mut turned_away);
        for arrival in arrivals.drain(..) {
            if let Err(why) = link.adopt(&mut reactor, &mut sink, arrival, now) {
                eprintln!("not adopted: {why}");
            }
        }
        turned_away.drain(..).for_each(|away| eprintln!("turned away {}: {}", away.address, away.why));
        link.timers(&mut reactor, &mut sink, now);
        while link.take_released().is_some() {}
        if let Some(source) = &mut source {
            source.send(&mut link, sink.answers);
        }
        answer_owed(&mut link, &mut sink, &envelope, identity.host);
        link.flush(&mut reactor, &mut sink, now);
        while let Some(event) = link.take_event() {
            eprintln!("{} ms: {event:?}", (clock::now() - start).0 / 1_000_000);
        }
        if now >= next_report {
            report(&link, &sink, start, now);
            next_report = next_report + REPORT_EVERY;
        }
        if now - start >= time {
            report(&link, &sink, start, now);
            return Ok(());
        }
    }
}
