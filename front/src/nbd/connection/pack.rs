//! A connection on its way to another place that serves the same export: a volume that has changed its owner.
//!
//! Everything that the client has asked and that was not answered becomes bytes again, as the client had sent them, and every
//! answer that has not left becomes bytes as well: whoever takes the connection over reads and sends those first. The client
//! sees a pause.
//!
//! Invariants:
//! - A request is either answered here or asked again there, never both: what the volume has answered is in the queue of
//!   answers by now, or goes to nobody.
//! - A write is asked again only with the bytes that the client has sent. Where the volume has taken them into its log there is
//!   nothing to ask again by, and the connection ends instead: the client connects anew and knows what was not answered.

use super::*;
use std::collections::HashMap;

/// A client, and what was said to and by it that is not done with.
pub struct Packed {
    /// Its socket, with TLS where that was agreed on.
    pub channel: Channel,
    /// As it was agreed on; what it has asked comes first.
    pub negotiated: Negotiated,
    /// Answers that have not left.
    pub unsent: Vec<u8>,
}

impl Connection {
    /// Takes the connection away from its volume. None: it cannot be moved, and has ended.
    pub fn pack<B: Backend + ?Sized>(mut self, backend: &mut B) -> Option<Packed> {
        let open: Vec<RequestId> = self.open().map(|(id, _)| id).collect();
        let mut taken: HashMap<RequestId, Request> = backend.take_back(&open).into_iter().collect();
        let leftover = self.asked_again(backend, &taken);
        for (_, request) in taken.drain() {
            if let Request::Write { payload, .. } = request {
                let frames: Vec<FrameId> = payload.iter().map(|payload| payload.frame).collect();
                backend.return_frames(&frames);
            }
        }
        let Some(leftover) = leftover else {
            self.close(backend);
            return None;
        };
        let unsent = self.unsent_bytes(backend);
        let negotiated = Negotiated {
            client: self.client.clone(),
            export: self.export.clone(),
            framing: self.replies.framing(),
            contexts: self.contexts,
            leftover,
        };
        self.give_back(backend);
        Some(Packed { channel: self.channel, negotiated, unsent })
    }

    /// Something was handed in that the volume has not answered.
    pub fn awaits_answers(&self) -> bool {
        self.open().next().is_some()
    }

    /// Requests that are handed in and not answered.
    fn open(&self) -> impl Iterator<Item = (RequestId, RequestHead)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| match slot {
            Slot::Open { head, .. } => Some((self.id_of(index as u32), *head)),
            Slot::Free | Slot::Answered => None,
        })
    }

    /// What the client has said that was not answered, as it said it. None: some of its bytes are gone, or it has ended.
    fn asked_again<B: Backend + ?Sized>(&self, backend: &B, taken: &HashMap<RequestId, Request>) -> Option<Vec<u8>> {
        if let Phase::Leaving | Phase::Closed(_) = self.phase {
            return None;
        }
        let mut bytes = Vec::new();
        for (id, head) in self.open() {
            self.put_head(&mut bytes, &head);
            if head.command == Command::Write {
                let Some(Request::Write { length, payload, .. }) = taken.get(&id) else { return None };
                let frames = payload.iter().map(|payload| payload.frame);
                put_payload(&mut bytes, backend, head.offset, *length, frames);
            }
        }
        match &self.incoming {
            Incoming::Head => {}
            Incoming::Payload(Payload { head, length, blocks, .. }) => {
                self.put_head(&mut bytes, head);
                let frames = blocks.iter().map(|payload| payload.frame);
                put_payload(&mut bytes, backend, head.offset, *length, frames);
            }
            Incoming::Status(query) => {
                self.put_head(&mut bytes, &query.head);
                bytes.extend_from_slice(&query.bytes[..query.received]);
            }
            // What it wants to write is not kept, and must not become zeros where it is not refused.
            Incoming::Skip { .. } => return None,
        }
        bytes.extend_from_slice(&self.pending[self.pending_at..]);
        if self.phase == Phase::Finishing {
            let head = RequestHead { flags: 0, command: Command::Disconnect, cookie: 0, offset: 0, length: 0 };
            self.put_head(&mut bytes, &head);
        }
        Some(bytes)
    }

    fn put_head(&self, bytes: &mut Vec<u8>, head: &RequestHead) {
        match self.replies.framing() {
            Framing::Simple | Framing::Structured => bytes.extend_from_slice(&head.encode()),
            Framing::Extended => bytes.extend_from_slice(&head.encode_extended()),
        }
    }

    fn unsent_bytes<B: Backend + ?Sized>(&mut self, backend: &B) -> Vec<u8> {
        let (mut bytes, mut vectors) = (Vec::new(), Vec::new());
        while !self.replies.is_empty() {
            self.replies.vectors(backend, usize::MAX, &mut vectors);
            let before = bytes.len();
            for vector in &vectors {
                // SAFETY: the vectors name the buffer of heads, static zeros, and frames of answers that have not been
                // handed back: valid, and not written to, while both are borrowed.
                bytes.extend_from_slice(unsafe {
                    core::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
                });
            }
            self.replies.on_sent(bytes.len() - before);
        }
        bytes
    }

    /// Everything that it holds of the volume.
    fn give_back<B: Backend + ?Sized>(&mut self, backend: &mut B) {
        if self.waits_for == WaitsFor::Frames {
            backend.withdraw(ClientId(self.number));
        }
        let open: Vec<RequestId> = self.open().map(|(id, _)| id).collect();
        if !open.is_empty() {
            backend.hangup(open);
        }
        if let Incoming::Payload(payload) = core::mem::replace(&mut self.incoming, Incoming::Head) {
            backend.return_frames(&payload.frames);
        }
        for answer in self.answers.drain(..).filter(|answer| !answer.pieces.is_empty()) {
            backend.sent(answer.pieces);
        }
        self.let_go(backend, self.held);
    }
}

/// What a write covers of these frames, its first ones.
fn put_payload<B: Backend + ?Sized>(
    bytes: &mut Vec<u8>,
    backend: &B,
    offset: u64,
    length: u32,
    frames: impl Iterator<Item = FrameId>,
) {
    let end = offset + u64::from(length);
    for (index, frame) in frames.enumerate() {
        let block = BlockIndex(offset / BLOCK_BYTES + index as u64);
        let from = offset.saturating_sub(block.byte());
        let to = (end - block.byte()).min(BLOCK_BYTES);
        // SAFETY: the connection has this frame: valid for a block, and nobody writes to it; `from` and `to` lie within it.
        let part = unsafe {
            core::slice::from_raw_parts(backend.frame(frame).as_ptr().add(from as usize), (to - from) as usize)
        };
        bytes.extend_from_slice(part);
    }
}
