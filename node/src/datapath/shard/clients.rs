//! The clients of a shard: connections to its volumes. Until they have chosen one they are the [`acceptor`](crate::datapath::acceptor)'s.
//!
//! Invariants:
//! - Clients of a volume that gives way to another in its place ([`Parking`]) are parked, those too that come meanwhile:
//!   each is with the one volume, or parked, or with the other.
//!
//! What connections do from then on is in [`crate::datapath::connections`].

use super::Slot;
use crate::datapath::connections::{Connections, Home};
use crate::datapath::directory::Directory;
use crate::datapath::seats::Seat;
use forebay_core::Volume;
use forebay_core::api::{Effect, Event, Pieces, Request, RequestError};
use forebay_core::format::payload_checksum;
use forebay_core::types::{BlockIndex, ClientId, FrameId, Frames, Instant, RequestId, SectorMask};
use forebay_core::volume::Extent;
use forebay_front::Backend;
use forebay_front::nbd::channel::Channel;
use forebay_front::nbd::connection::{Connection, Packed};
use forebay_front::nbd::handshake::Negotiated;
use forebay_io::{Reactor, VolumeIo};
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Watch tokens: what it is in the upper half, which one in the lower.
const CONNECTION: u64 = 3 << 32;

type Volumes = [Option<Box<Slot>>];

/// A volume on its way to be closed while its clients stay.
#[derive(Default)]
pub enum Parking {
    /// It serves its clients as usual.
    #[default]
    No,
    /// Nothing more is taken from its clients; somebody waits until all that was taken is answered.
    Pausing(oneshot::Sender<u32>),
    /// It has no clients any more: they are parked.
    Parked,
}

/// See the module's text.
pub struct Clients {
    directory: Arc<Directory>,
    connections: Connections,
    /// Clients whose volume was taken away, until another is in its place.
    parked: HashMap<u32, Vec<(Packed, Seat)>>,
    /// Which volume is in the place of a former one: clients may still come that were told of that.
    in_place_of: HashMap<u32, u32>,
}

impl Clients {
    pub fn new(directory: Arc<Directory>) -> Clients {
        Clients {
            directory,
            connections: Connections::new(CONNECTION),
            parked: HashMap::new(),
            in_place_of: HashMap::new(),
        }
    }

    /// Which volumes can be connected to.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// True when a connection can go on without waiting for anything.
    pub fn has_work(&self) -> bool {
        self.connections.has_work()
    }

    /// When [`Clients::timers`] must run at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.connections.deadline()
    }

    /// A client that has chosen a volume of this shard, or one that another is in the place of. Where there is none any more,
    /// the end of its channel is its answer.
    #[allow(clippy::too_many_arguments)] // what makes a connection; a struct would be made for this one call
    pub fn take_in(
        &mut self,
        volumes: &mut Volumes,
        reactor: &mut Reactor,
        key: u32,
        channel: Channel,
        seat: Seat,
        negotiated: Negotiated,
        now: Instant,
    ) {
        let mut key = key;
        while let Some(next) = self.in_place_of.get(&key) {
            key = *next;
        }
        if let Some(parked) = self.parked.get_mut(&key) {
            // Clients that gave up waiting and come again must not take all places.
            parked.retain(|(client, _)| !has_hung_up(client.channel.socket()));
            return parked.push((Packed { channel, negotiated, unsent: Vec::new() }, seat));
        }
        if let Some(slot) = volumes.get_mut(key as usize).and_then(Option::as_mut) {
            // It was still choosing when another tier came, which takes less: it chooses again, and is told.
            if negotiated.export.request_bytes_max <= slot.volume.request_bytes_max() {
                self.connect(slot, key, reactor, channel, seat, negotiated, now);
            }
        }
    }

    /// Takes the clients away from a volume that is pausing, as soon as all that they had asked is answered.
    pub fn park_if_still(&mut self, slot: &mut Slot, key: u32, reactor: &mut Reactor, now: Instant) {
        if !matches!(slot.parking, Parking::Pausing(_)) || self.connections.await_answers(slot) {
            return;
        }
        let Parking::Pausing(still) = std::mem::replace(&mut slot.parking, Parking::Parked) else { return };
        let packed = self.connections.pack_all_of(slot, reactor, now);
        let told = packed.iter().map(|(client, _)| client.negotiated.export.request_bytes_max).max();
        self.parked.insert(key, packed);
        // Whoever asked unparks them, or has gone, and this shard with it.
        let _ = still.send(told.unwrap_or(0));
    }

    /// Gives the clients that were parked, or are to be, to the volume that is there now: the same, or another in its place.
    pub fn unpark(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, key: u32, to: u32, now: Instant) {
        let parked = self.parked.remove(&key);
        if key != to {
            self.in_place_of.insert(key, to);
        }
        let Some(slot) = volumes.get_mut(to as usize).and_then(Option::as_mut) else { return };
        slot.parking = Parking::No;
        self.connections.go_on(&mut **slot);
        for (client, seat) in parked.into_iter().flatten() {
            self.resume(slot, to, reactor, client, seat, now);
        }
    }

    // --- connections ---

    #[allow(clippy::too_many_arguments)] // what makes a connection; a struct would be made for this one call
    pub fn connect(
        &mut self,
        slot: &mut Slot,
        volume: u32,
        reactor: &mut Reactor,
        channel: Channel,
        seat: Seat,
        negotiated: Negotiated,
        now: Instant,
    ) -> Option<u32> {
        // Who may use the volume can have changed since it was chosen.
        if !self.directory.admits(&negotiated.client, &negotiated.export.name) {
            return None;
        }
        let make = |number| Connection::new(channel, number, negotiated, now);
        self.connections.add(slot, volume as usize, reactor, seat, make)
    }

    /// A client that was served elsewhere.
    pub fn resume(
        &mut self,
        slot: &mut Slot,
        volume: u32,
        reactor: &mut Reactor,
        client: Packed,
        seat: Seat,
        now: Instant,
    ) {
        if !self.directory.admits(&client.negotiated.client, &client.negotiated.export.name) {
            return;
        }
        self.connections.add(slot, volume as usize, reactor, seat, |number| Connection::resume(client, number, now));
    }

    /// A watched socket is ready. Returns the volume that has got something to do by it.
    pub fn ready(
        &mut self,
        volumes: &mut Volumes,
        token: u64,
        readable: bool,
        hangup: bool,
        now: Instant,
    ) -> Option<usize> {
        // That it is writable need not be said: `flush` sends to every touched connection.
        self.connections.ready(volumes, (token & 0xffff_ffff) as usize, readable, hangup, now)
    }

    /// Lets the connections go on that need not wait. Returns the volumes that have got something to do by it.
    pub fn poll(&mut self, volumes: &mut Volumes, now: Instant) -> Vec<usize> {
        self.connections.poll(volumes, now)
    }

    /// Does what a volume's effect asks of its clients.
    pub fn execute(&mut self, slot: &mut Slot, effect: Effect, now: Instant) {
        match effect {
            Effect::Reply { id, result } => self.connections.reply(slot, id, result, now),
            Effect::FramesFree => self.connections.frames_are_free(slot),
            Effect::Answer { id, result } => slot.answer(id, result),
            Effect::Send(_) | Effect::Report(_) => {
                unreachable!("the cluster's part carries out what nodes tell each other")
            }
            Effect::Describe { .. }
            | Effect::TierWrite { .. }
            | Effect::TierSync { .. }
            | Effect::TierRead { .. }
            | Effect::TierScan { .. }
            | Effect::BackingRead { .. }
            | Effect::BackingWrite { .. }
            | Effect::BackingZero { .. }
            | Effect::BackingSync { .. }
            | Effect::JournalWrite { .. }
            | Effect::JournalSync { .. }
            | Effect::Merge { .. }
            | Effect::Copy { .. } => unreachable!("io carries out effects on devices and memory"),
        }
    }

    /// At the end of a round: answers leave, interests follow, ended connections go. Returns the volumes that got
    /// something back (frames, room) and must be looked at again.
    pub fn flush(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, now: Instant) -> Vec<usize> {
        self.connections.flush(volumes, reactor, now)
    }

    /// Closes one connection, if it is still there.
    pub fn close(&mut self, slot: &mut Slot, reactor: &mut Reactor, number: u32, now: Instant) {
        self.connections.close(slot, reactor, number, now);
    }

    /// Closes every connection of a volume that is about to go.
    pub fn close_all_of(&mut self, slot: &mut Slot, reactor: &mut Reactor, now: Instant) {
        self.connections.close_all_of(slot, reactor, now);
    }

    /// Closes those whose clients may not use their volume any more.
    pub fn close_barred(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, now: Instant) {
        for slot in volumes.iter_mut().flatten() {
            self.connections.close_barred(&mut **slot, reactor, &self.directory, now);
        }
    }

    /// Closes those of a volume whose client has called this address.
    pub fn close_all_at(&mut self, slot: &mut Slot, reactor: &mut Reactor, ip: IpAddr, now: Instant) {
        self.connections.close_all_at(slot, reactor, ip, now);
    }

    /// Takes every connection of a volume away, to be served elsewhere.
    pub fn pack_all_of(&mut self, slot: &mut Slot, reactor: &mut Reactor, now: Instant) -> Vec<(Packed, Seat)> {
        self.connections.pack_all_of(slot, reactor, now)
    }

    /// Ends the connections that are over time.
    pub fn timers(&mut self, volumes: &mut Volumes, now: Instant) {
        self.connections.timers(volumes, now);
    }
}

/// Whether the other end has closed a socket, or is known to be gone.
fn has_hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one descriptor that is open as long as it is borrowed; it returns at once.
    let ready = unsafe { libc::poll(&mut polled, 1, 0) };
    ready == 1 && polled.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

impl Home for Slot {
    fn desk(&mut self, now: Instant) -> impl Backend + '_ {
        Desk::new(&mut self.volume, &self.io, &self.identity, now)
    }

    fn connections(&mut self) -> &mut Vec<usize> {
        &mut self.connections
    }

    fn is_paused(&self) -> bool {
        !matches!(self.parking, Parking::No)
    }
}

/// A volume as a connection sees it.
pub struct Desk<'a> {
    volume: &'a mut Volume,
    io: &'a VolumeIo,
    identity: &'a [u8; 16],
    now: Instant,
}

impl<'a> Desk<'a> {
    pub fn new(volume: &'a mut Volume, io: &'a VolumeIo, identity: &'a [u8; 16], now: Instant) -> Desk<'a> {
        Desk { volume, io, identity, now }
    }
}

// SAFETY: frames lie in the volume's arena, whose mapping lives as long as `io`, which outlives every connection of
// the volume (`close_all_of` runs before a slot is dropped). Core gives a frame to one taker at a time and leaves it
// alone until it is returned, submitted or sent; io makes references into frames only within its own calls, for frames
// that core has named in an effect.
unsafe impl Backend for Desk<'_> {
    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        self.volume.admissible(request)
    }

    fn take_frames(&mut self, client: ClientId, held: u32, count: u32, into: &mut Frames) -> bool {
        if !self.volume.may_hold(held, count) {
            // It waits for others to let go, and must not keep its place meanwhile.
            self.volume.withdraw(client);
            return false;
        }
        let taken = self.volume.take_frames(client, count, into);
        if taken {
            self.volume.hold(count);
        }
        taken
    }

    fn withdraw(&mut self, client: ClientId) {
        self.volume.withdraw(client);
    }

    fn hold(&mut self, held: u32, count: u32) -> bool {
        let granted = self.volume.may_hold(held, count);
        if granted {
            self.volume.hold(count);
        }
        granted
    }

    fn let_go(&mut self, count: u32) {
        self.volume.let_go(count);
    }

    fn return_frames(&mut self, frames: &[FrameId]) {
        self.volume.return_frames(frames);
    }

    fn frame(&self, frame: FrameId) -> NonNull<u8> {
        NonNull::new(self.io.arena().frame(frame)).expect("a frame lies in a mapping, never at address 0")
    }

    fn checksum(&self, block: BlockIndex, mask: SectorMask, bytes: &[u8]) -> u32 {
        payload_checksum(self.identity, block, mask, self.volume.term(), bytes)
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        self.volume.handle(self.now, Event::Request { id, request });
    }

    fn sent(&mut self, pieces: Pieces) {
        self.volume.handle(self.now, Event::Sent(pieces));
    }

    fn hangup(&mut self, ids: Vec<RequestId>) {
        self.volume.handle(self.now, Event::Hangup(ids));
    }

    fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)> {
        self.volume.take_back(ids)
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        self.volume.extents(offset, length, max)
    }
}
