//! Clients: what they ask for, how it arrives, and what they make of the answers. The auditor is one of them: it reads
//! everything after a restart and at the end.
//!
//! Checked: each request is answered once, fails only for a reason, and reads return what the oracle allows.

use super::*;

#[derive(Clone, Copy)]
pub(super) enum Asked {
    Read { offset: u64, length: u32, audit: bool },
    Write(WriteId),
    Flush(FlushId),
    Prefetch,
}

pub(super) struct Open {
    pub(super) client: usize,
    pub(super) session: u32,
    pub(super) asked: Asked,
    pub(super) began: Moment,
    pub(super) asked_at: Instant,
    /// Effective policy was write-through, as requested, when it was asked for.
    pub(super) through: bool,
    pub(super) hung_up: bool,
    /// In a cluster: when it was seen that the owner's log has it.
    pub(super) in_log_since: Option<Instant>,
}

/// A request on its way to the volume.
pub(super) struct Coming {
    pub(super) client: usize,
    pub(super) session: u32,
    pub(super) step: Step,
    pub(super) write: Option<(WriteId, Frames)>,
}

#[derive(Default)]
pub(super) struct Client {
    /// Where it is connected, and for which time.
    pub(super) node: usize,
    pub(super) session: u32,
    /// Requests under way, also those that are still arriving.
    pub(super) open: usize,
    pub(super) waiting: Option<Step>,
    /// Since when it was refused frames.
    pub(super) refused_at: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Audit {
    /// Where it reads.
    pub(super) node: usize,
    pub(super) next: u64,
    /// Content that survived a loss of power.
    pub(super) durable: bool,
    pub(super) failures: u32,
    /// First read after a crash.
    pub(super) settle: bool,
}

impl Client {
    /// It has a new connection, and nothing open there.
    pub(super) fn reconnect(&mut self, node: usize) {
        *self = Client { node, session: self.session + 1, ..Client::default() };
    }
}

impl World {
    pub(super) fn script_is_over(&self) -> bool {
        self.requests_left == 0 && self.node.coming.is_empty() && self.clients.iter().all(|c| c.waiting.is_none())
    }

    fn place(&mut self, max: u64) -> (u64, u64) {
        let volume = self.node.volume.as_ref().expect("it serves");
        let size = volume.size_bytes();
        let max = max.min(u64::from(volume.request_bytes_max()));
        let blocks = size.div_ceil(BLOCK_BYTES);
        let block = if self.random.chance(self.setup.cold) {
            self.random.below(blocks)
        } else {
            self.random.below(self.setup.hot_blocks.min(blocks))
        };
        let unaligned = self.random.chance(self.setup.unaligned);
        let unit = if unaligned { 1 } else { 512 };
        let length = match self.random.below(4) {
            0 => self.random.range(1, 4096 / unit) * unit,
            1 => 4096,
            2 => 4096 * self.random.range(1, (max / 4096).max(1)),
            _ => self.random.range(1, max / unit) * unit,
        };
        let within = if self.random.below(2) == 0 { 0 } else { self.random.below(4096 / unit) * unit };
        let offset = (block * BLOCK_BYTES + within).min(size - unit);
        (offset, length.min(size - offset).max(1))
    }

    fn next_step(&mut self, client: usize) -> Step {
        if let Some(step) = self.script.pop_front() {
            return step;
        }
        let weights = self.setup.weights;
        let mut draw = self.random.below(u64::from(weights.iter().sum::<u32>())) as u32;
        let mut kind = 0;
        while draw >= weights[kind] {
            draw -= weights[kind];
            kind += 1;
        }
        if client < self.setup.readers {
            kind = 0;
        }
        let max = u64::from(self.setup.request_bytes_max);
        let fua = self.random.chance(self.setup.fua);
        match kind {
            0 => {
                let (offset, length) = self.place(max);
                Step::Read { offset, length: length as u32 }
            }
            1 => {
                let (offset, length) = self.place(max);
                Step::Write { offset, length: length as u32, fua }
            }
            2 => {
                let (offset, mut length) = self.place(max);
                if self.random.below(8) == 0 {
                    length = self.node.volume.as_ref().expect("it serves").size_bytes() - offset;
                }
                Step::Zero { offset, length, hole: self.random.below(2) == 0, fua }
            }
            3 => Step::Flush,
            _ => {
                let (offset, length) = self.place(max);
                Step::Prefetch { offset, length: length as u32 }
            }
        }
    }

    pub(super) fn client_acts(&mut self, client: usize) {
        if !self.node.serving || self.node.stopping || self.audit_is_under_way() || self.clients[client].node != self.at
        {
            return;
        }
        if self.stage == Stage::Work && self.fault(self.setup.hang_up) {
            self.hang_up(client);
        }
        if self.clients[client].open >= self.setup.depth_max {
            return;
        }
        let step = match self.clients[client].waiting.take() {
            Some(step) => step,
            None if self.requests_left == 0 => return,
            None => {
                self.requests_left -= 1;
                self.next_step(client)
            }
        };
        let mut write = None;
        if let Step::Write { offset, length, .. } = step {
            let blocks = (offset + u64::from(length)).div_ceil(BLOCK_BYTES) - offset / BLOCK_BYTES;
            let mut frames = Frames::new();
            let volume = self.node.volume.as_mut().expect("it serves");
            if !volume.take_frames(ClientId(client as u32), blocks as u32, &mut frames) {
                assert!(frames.is_empty(), "frames were refused and given");
                self.coverage.see("client had to wait for frames");
                self.clients[client].waiting = Some(step);
                self.clients[client].refused_at.get_or_insert(self.now);
                return;
            }
            if let Some(since) = self.clients[client].refused_at.take() {
                self.check_wait(since, true);
                self.note_wait(since);
            }
            assert_eq!(frames.len() as u64, blocks, "as many frames as asked for");
            for &frame in &frames {
                self.assert_writable(frame, "a client's payload");
                assert!(
                    !std::mem::replace(&mut self.node.taken[frame.0 as usize], true),
                    "{frame:?} is given out twice"
                );
            }
            let id = self.oracle.reserve();
            write = Some((id, frames));
        }
        self.clients[client].open += 1;
        let id = self.request_next;
        self.request_next += 1;
        let session = self.clients[client].session;
        self.node.coming.insert(id, Coming { client, session, step, write });
        let slow = self.micros(self.setup.think_micros_max);
        self.schedule(slow, Due::Arrive(id));
        let think = self.micros(self.setup.think_micros_max);
        self.schedule(think, Due::Wake(client));
    }

    fn hang_up(&mut self, client: usize) {
        let coming: Vec<u64> = self.node.coming.iter().filter(|(_, c)| c.client == client).map(|(&id, _)| id).collect();
        for id in coming {
            let coming = self.node.coming.remove(&id).expect("just seen");
            if let Some((_, frames)) = coming.write {
                for &frame in &frames {
                    self.node.taken[frame.0 as usize] = false;
                }
                self.node.volume.as_mut().expect("it serves").return_frames(&frames);
            }
        }
        self.node.volume.as_mut().expect("it serves").withdraw(ClientId(client as u32));
        let mut ids = Vec::new();
        for (&id, open) in self.node.open.iter_mut().filter(|(_, o)| o.client == client && !o.hung_up) {
            open.hung_up = true;
            ids.push(RequestId(id));
            if matches!(open.asked, Asked::Write(_)) {
                self.coverage.see("client hung up with a write open");
            }
        }
        self.clients[client].reconnect(self.at);
        let think = self.micros(self.setup.think_micros_max);
        self.schedule(think, Due::Wake(client));
        self.hand(Event::Hangup(ids));
    }

    /// The payload lies in its frames: the request enters the volume.
    pub(super) fn arrive(&mut self, id: u64) {
        let Some(coming) = self.node.coming.remove(&id) else { return };
        let now = self.moment;
        let (asked, request) = match coming.step {
            Step::Read { offset, length } => {
                (Asked::Read { offset, length, audit: false }, Request::Read { offset, length })
            }
            Step::Write { offset, length, fua } => {
                let (write, frames) = coming.write.expect("a write has frames");
                let payload = self.fill_frames(write, offset, length, &frames);
                if self.over_destage(offset, u64::from(length)) {
                    self.coverage.see("write over a destage in flight");
                }
                self.oracle.write_asked(write, offset, u64::from(length), false, fua, now);
                (Asked::Write(write), Request::Write { offset, length, payload, fua })
            }
            Step::Zero { offset, length, hole, fua } => {
                let write = self.oracle.reserve();
                self.oracle.write_asked(write, offset, length, true, fua, now);
                (Asked::Write(write), Request::Zero { offset, length, hole, fua })
            }
            Step::Flush => (Asked::Flush(self.oracle.flush_asked(now)), Request::Flush),
            Step::Prefetch { offset, length } => (Asked::Prefetch, Request::Prefetch { offset, length }),
        };
        let volume = self.node.volume.as_ref().expect("it serves");
        if !self.node.stopping {
            assert_eq!(volume.admissible(&request), Ok(()), "{request:?} lies within the volume");
        }
        self.ask(id, (coming.client, coming.session), asked, request);
    }

    fn ask(&mut self, id: u64, (client, session): (usize, u32), asked: Asked, request: Request) {
        self.note_policy();
        let through = self.node.through_since.is_some();
        let open = Open {
            client,
            session,
            asked,
            began: self.moment,
            asked_at: self.now,
            through,
            hung_up: false,
            in_log_since: None,
        };
        self.node.open.insert(id, open);
        self.hand(Event::Request { id: RequestId(id), request });
        if self.lie == Some(Lie::AcknowledgedEarly)
            && let Asked::Write(write) = asked
        {
            let now = self.tick();
            self.oracle.write_acknowledged(write, now);
        }
    }

    fn fill_frames(&mut self, write: WriteId, offset: u64, length: u32, frames: &Frames) -> Payloads {
        let end = offset + u64::from(length);
        let mut payloads = Payloads::new();
        for (i, &frame) in frames.iter().enumerate() {
            self.node.taken[frame.0 as usize] = false;
            self.assert_writable(frame, "a client's payload");
            let block = BlockIndex(offset / BLOCK_BYTES + i as u64);
            let from = offset.max(block.byte()) - block.byte();
            let to = end.min(block.byte() + BLOCK_BYTES) - block.byte();
            let bytes = self.frame_mut(frame);
            bytes.fill(0);
            pattern::fill(write, block.byte() + from, &mut bytes[from as usize..to as usize]);
            let checksum = if from.is_multiple_of(512) && to.is_multiple_of(512) {
                let mask = SectorMask::of_bytes(from, to);
                payload_checksum(&VOLUME_UUID, block, mask, self.node.term, self.frame(frame))
            } else {
                // Core must not use it.
                0xdead_beef
            };
            payloads.push(Payload { frame, checksum });
        }
        payloads
    }

    pub(super) fn reply(&mut self, id: RequestId, result: Result<Pieces, RequestError>) {
        self.note_policy();
        let Some(open) = self.node.open.remove(&id.0) else {
            panic!("request {id} is answered, which is not open: answered twice, or never asked")
        };
        let now = self.moment;
        if self.stage == Stage::Work {
            self.pause_max = self.pause_max.max(self.now - self.progress);
        }
        self.progress = self.now;
        self.check_answer(&open);
        self.note_wait(open.asked_at);
        self.note_answer(&open, result.is_ok());
        let client = open.client;
        let listens = |client: &Client| client.session == open.session && client.node == self.at;
        if !open.hung_up && self.clients.get(client).is_some_and(listens) {
            self.clients[client].open -= 1;
            let think = self.micros(self.setup.think_micros_max);
            self.schedule(think, Due::Wake(client));
        }
        match (open.asked, result) {
            (Asked::Read { offset, length, audit }, Ok(pieces)) => {
                self.read_answered(offset, length, audit, open.began, pieces, now);
            }
            (Asked::Read { offset, length, audit }, Err(error)) => {
                self.assert_may_fail("a read", error);
                if audit && let Some(audit) = self.audit.as_mut().filter(|audit| audit.node == self.at) {
                    audit.failures += 1;
                    if audit.failures > 20 && self.stage == Stage::Work {
                        if self.damaged {
                            audit.next = offset + u64::from(length);
                        } else {
                            self.begin_healing();
                        }
                    } else if self.damaged && audit.failures > 20 {
                        audit.next = offset + u64::from(length);
                    }
                    self.schedule(Duration::from_millis(100), Due::Audit);
                }
            }
            (Asked::Write(write), Ok(pieces)) => {
                assert!(pieces.is_empty(), "a write is answered with bytes");
                self.write_acknowledged(write, open.began, open.through, now);
            }
            (Asked::Write(_), Err(error)) => self.assert_may_fail("a write", error),
            (Asked::Flush(flush), Ok(pieces)) => {
                assert!(pieces.is_empty(), "a flush is answered with bytes");
                self.coverage.see("flush acknowledged");
                self.oracle.flush_acknowledged(flush);
                if open.through
                    && self.node.through_since.is_some_and(|since| since <= open.began)
                    && !self.damage_carried
                {
                    self.backing_has_all_before(open.began, "the backing after a write-through flush");
                }
            }
            (Asked::Flush(_), Err(error)) => self.assert_may_fail("a flush", error),
            (Asked::Prefetch, Ok(pieces)) => assert!(pieces.is_empty(), "a prefetch is answered with bytes"),
            (Asked::Prefetch, Err(error)) => self.assert_may_fail("a prefetch", error),
        }
    }

    fn read_answered(&mut self, offset: u64, length: u32, audit: bool, began: Moment, pieces: Pieces, now: Moment) {
        self.assert_lease("a read is answered");
        let bytes = self.gather(&pieces);
        assert_eq!(bytes.len(), length as usize, "a read of {length} bytes is answered by {}", bytes.len());
        if self.rotten {
            // What memory holds is not what was written.
        } else if self.damage_carried {
            // Records that damage has taken may be gone; what is shown must be something once written there.
            self.oracle.read_is_of_this_place(offset, &bytes);
        } else if audit && self.audit.as_ref().is_some_and(|a| a.settle && a.node == self.at) {
            let durable = self.audit.as_ref().is_some_and(|a| a.durable);
            self.oracle.settled(offset, &bytes, durable, began, now);
        } else {
            self.oracle.read_answered(offset, &bytes, began, now);
        }
        if audit && let Some(audit) = self.audit.as_mut().filter(|audit| audit.node == self.at) {
            audit.next = offset + u64::from(length);
            self.schedule(Duration(0), Due::Audit);
        }
        if !pieces.is_empty() {
            let wait = self.micros(self.setup.think_micros_max);
            self.schedule(wait, Due::Sent(pieces));
        }
    }

    fn write_acknowledged(&mut self, write: WriteId, began: Moment, through: bool, now: Moment) {
        if self.lie != Some(Lie::AcknowledgedEarly) {
            self.oracle.write_acknowledged(write, now);
        }
        self.assert_members_hold(write);
        self.assert_backed(write);
        if through && self.node.through_since.is_some_and(|since| since <= began) && !self.damage_carried {
            self.coverage.see("write acknowledged by the backing");
            let why = "the backing after a write-through acknowledgement";
            self.oracle.image_has(&self.backing.current, write, why);
            if !self.setup.faults.backing_write_fails() {
                let (offset, length) = self.oracle.range(write);
                self.oracle.image_has_all_before(&self.backing.current, offset, length, now, why);
            }
        }
        if self.oracle.is_fua(write) {
            self.coverage.see("FUA acknowledged");
        }
    }

    /// What waited for the backing's lock does not count.
    fn note_wait(&mut self, since: Instant) {
        if self.node.backing_ready {
            self.wait_max = self.wait_max.max(self.now - since.max(self.node.ready_since));
        }
    }

    fn assert_may_fail(&self, what: &str, error: RequestError) {
        match error {
            RequestError::Shutdown => assert!(self.node.stopping, "{what} is refused by a volume that is not stopping"),
            RequestError::Io | RequestError::NoSpace => {
                assert!(self.errors_injected, "{what} fails with {error:?} in a world without errors")
            }
            RequestError::Invalid => panic!("{what} within the volume is called invalid"),
        }
    }

    fn gather(&mut self, pieces: &Pieces) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            assert!(piece.length > 0, "an empty piece in a reply");
            match piece.source {
                Source::Frame(frame, from) => {
                    self.pin_source(frame, "a reply");
                    let (from, to) = (usize::from(from), usize::from(from) + piece.length as usize);
                    assert!(to <= BLOCK, "a piece leaves its frame");
                    bytes.extend_from_slice(&self.frame(frame)[from..to]);
                }
                Source::Zero => {
                    self.coverage.see("read of zeros");
                    bytes.resize(bytes.len() + piece.length as usize, 0);
                }
            }
        }
        bytes
    }

    /// Clients of this node wait for it.
    fn audit_is_under_way(&self) -> bool {
        self.audit.as_ref().is_some_and(|audit| audit.node == self.at)
    }

    pub(super) fn audit_reads(&mut self) {
        let Some(audit) = self.audit.as_ref().filter(|audit| audit.node == self.at) else { return };
        if !self.node.serving || self.node.stopping {
            return;
        }
        let size = self.node.volume.as_ref().expect("it serves").size_bytes();
        let next = audit.next;
        if next >= size {
            trace!(self, "audit ends");
            self.audit = None;
            if self.stage == Stage::Work {
                if self.damage_carried {
                    // What damage took is not known to the oracle: nothing more can be judged.
                    self.stage = Stage::Done;
                }
                if self.cluster.is_some() {
                    self.clients_come();
                } else {
                    self.wake_clients();
                }
            }
            return;
        }
        let length = (self.random.range(1, 64) * 512).min(size - next) as u32;
        let id = self.request_next;
        self.request_next += 1;
        let asked = Asked::Read { offset: next, length, audit: true };
        self.ask(id, (usize::MAX, 0), asked, Request::Read { offset: next, length });
    }

    pub(super) fn wake_who_waits_for_frames(&mut self) {
        for client in 0..self.clients.len() {
            if self.clients[client].waiting.is_some() {
                self.schedule(Duration(0), Due::Wake(client));
            }
        }
    }
}
