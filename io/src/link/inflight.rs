//! Numbers of messages: what was sent and not acknowledged, and what has arrived.
//!
//! Invariants:
//! - A message's memory is given back ([`Outbox::take_released`]) when nothing reads it any more: it is acknowledged, or
//!   given up, and no channel is in the middle of it.
//! - Whatever a dead channel took with it waits again, oldest first.
//! - Both sides keep a bounded number of messages: the sender stops at [`OPEN_MAX`], and a number beyond that is no
//!   frame of an honest peer.

use super::compress::Packed;
use crate::buffers::Buffers;
use forebay_core::types::{Duration, Instant};
use forebay_core::wire::{FrameHead, HEAD_BYTES, Packing};
use std::collections::{BTreeSet, VecDeque};

/// Most messages between the oldest that is not acknowledged and the newest.
pub(super) const OPEN_MAX: usize = 16_384;

/// Of the messages that are not acknowledged, so many are looked at for one that is overdue: they are what the others wait for.
const OVERDUE_LOOK: usize = 64;

/// How a message is to travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// In its turn.
    Bulk,
    /// Before everything that waits, by the channel where it arrives first.
    Urgent,
    /// Before everything that waits, by every living channel: whoever waits for it must not wait for a channel's death.
    Everywhere,
}

/// A message until nobody needs it any more.
pub(super) struct Outgoing {
    /// Head and body. The head is made when it is known how the payload travels.
    pub(super) front: Vec<u8>,
    pub(super) payload: Buffers,
    pub(super) packed: Option<Packed>,
    pub(super) volume: [u8; 16],
    pub(super) way: Way,
    token: Option<u64>,
    /// When it was last given to a channel in its turn.
    given_at: Instant,
    /// Channels that have it and have not passed its last byte to the kernel, by bit.
    sending: u32,
    /// Channels that have.
    carried: u32,
    acknowledged: bool,
}

impl Outgoing {
    /// Bytes on the wire.
    pub(super) fn bytes(&self) -> u64 {
        self.front.len() as u64 + self.packed.as_ref().map_or(self.payload.len(), |packed| packed.bytes.len() as u64)
    }

    /// Vectors over it from the byte `at` on.
    pub(super) fn vectors(&self, at: usize, out: &mut Vec<libc::iovec>) {
        let mut skip = at;
        let mut push = |start: *mut u8, length: usize| {
            if skip < length {
                let start = start.wrapping_add(skip);
                out.push(libc::iovec { iov_base: start.cast(), iov_len: length - skip });
            }
            skip = skip.saturating_sub(length);
        };
        push(self.front.as_ptr().cast_mut(), self.front.len());
        match &self.packed {
            Some(packed) => push(packed.bytes.as_ptr().cast_mut(), packed.bytes.len()),
            None => self.payload.iovecs.iter().for_each(|piece| push(piece.iov_base.cast(), piece.iov_len)),
        }
    }
}

/// Messages that are not acknowledged.
#[derive(Default)]
pub(super) struct Outbox {
    /// Given to a channel at least once: by number, from `base` on.
    messages: VecDeque<Option<Outgoing>>,
    base: u64,
    /// Not given to any yet. Numbers are given with channels, so that what is forgotten before leaves no gap.
    bulk: VecDeque<Outgoing>,
    urgent: VecDeque<Outgoing>,
    /// Lost with a channel.
    bulk_again: BTreeSet<u64>,
    urgent_again: BTreeSet<u64>,
    /// Bytes of all, and of those that wait in their turn.
    bytes: u64,
    backlog: u64,
    acknowledged_through: u64,
    released: Vec<u64>,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox { base: 1, ..Outbox::default() }
    }

    /// Lowest number that may still come.
    pub(super) fn first(&self) -> u64 {
        self.base
    }

    /// Highest number that was given.
    pub(super) fn newest(&self) -> u64 {
        self.base + self.messages.len() as u64 - 1
    }

    /// Bytes of messages that are not acknowledged.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that wait for a channel in their turn.
    pub(super) fn backlog(&self) -> u64 {
        self.backlog
    }

    /// Messages that no channel has had.
    pub(super) fn waiting(&self) -> usize {
        self.bulk.len() + self.urgent.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.waiting() == 0
    }

    /// Tokens of messages whose memory nothing reads any more.
    pub(super) fn take_released(&mut self) -> Option<u64> {
        self.released.pop()
    }

    /// Takes a message whose body lies behind room for its head.
    pub(super) fn put(&mut self, front: Vec<u8>, payload: Buffers, volume: [u8; 16], way: Way, token: Option<u64>) {
        let (sending, carried, acknowledged) = (0, 0, false);
        let (packed, given_at) = (None, Instant(0));
        let message = Outgoing { front, payload, packed, volume, way, token, given_at, sending, carried, acknowledged };
        self.bytes += message.bytes();
        match way {
            Way::Bulk => {
                self.backlog += message.bytes();
                self.bulk.push_back(message);
            }
            Way::Urgent | Way::Everywhere => self.urgent.push_back(message),
        }
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Outgoing> {
        self.messages.get(sequence.checked_sub(self.base)? as usize)?.as_ref()
    }

    fn get_mut(&mut self, sequence: u64) -> Option<&mut Outgoing> {
        self.messages.get_mut(sequence.checked_sub(self.base)? as usize)?.as_mut()
    }

    /// The next message for a channel, urgent or in its turn, and whether a channel has had it before.
    pub(super) fn next(&self, urgent: bool) -> Option<(&Outgoing, bool)> {
        let (again, new) = if urgent { (&self.urgent_again, &self.urgent) } else { (&self.bulk_again, &self.bulk) };
        match again.first() {
            Some(sequence) => self.get(*sequence).map(|message| (message, true)),
            None if self.messages.len() >= OPEN_MAX => None,
            None => new.front().map(|message| (message, false)),
        }
    }

    /// Gives what [`Outbox::next`] has shown to channels, by bit; returns its number. `packed` may replace the payload of
    /// one that no channel has had: its memory is free then.
    pub(super) fn assign(&mut self, urgent: bool, channels: u32, packed: Option<Packed>, now: Instant) -> u64 {
        let again = if urgent { &mut self.urgent_again } else { &mut self.bulk_again };
        if let Some(sequence) = again.pop_first() {
            let message = self.get_mut(sequence).expect("what waits again is here");
            message.sending |= channels;
            message.given_at = now;
            let (way, bytes) = (message.way, message.bytes());
            self.backlog -= if way == Way::Bulk { bytes } else { 0 };
            return sequence;
        }
        let new = if urgent { &mut self.urgent } else { &mut self.bulk };
        let mut message = new.pop_front().expect("the caller has seen it");
        let sequence = self.base + self.messages.len() as u64;
        let before = message.bytes();
        self.backlog -= if message.way == Way::Bulk { before } else { 0 };
        message.sending = channels;
        message.given_at = now;
        let unpacked = message.payload.len() as u32;
        if packed.is_some() {
            message.packed = packed;
            message.payload = Buffers::none();
            self.released.extend(message.token.take());
        }
        let packing = message.packed.as_ref().map_or(Packing::Plain, |packed| packed.packing);
        let payload = message.bytes() - message.front.len() as u64;
        let head = FrameHead::of_message(sequence, &message.front[HEAD_BYTES..], packing, payload as u32, unpacked);
        message.front[..HEAD_BYTES].copy_from_slice(&head.encode());
        self.bytes -= before - message.bytes();
        self.messages.push_back(Some(message));
        sequence
    }

    /// One of the oldest messages, given to its channels `late` ago or more, that none of the `prompt` ones has.
    pub(super) fn overdue(&self, late: Duration, prompt: u32, now: Instant) -> Option<u64> {
        let is_overdue = |message: &Outgoing| {
            let channels = message.sending | message.carried;
            !message.acknowledged && channels != 0 && channels & prompt == 0 && now - message.given_at >= late
        };
        let oldest = self.messages.iter().take(OVERDUE_LOOK).enumerate();
        let mut overdue = oldest.filter(|(_, message)| message.as_ref().is_some_and(is_overdue));
        overdue.next().map(|(index, _)| self.base + index as u64)
    }

    /// Gives a message to one more channel.
    pub(super) fn also(&mut self, sequence: u64, channel: usize) {
        if let Some(message) = self.get_mut(sequence) {
            message.sending |= 1 << channel;
        }
    }

    /// A channel has passed its last byte to the kernel.
    pub(super) fn sent(&mut self, sequence: u64, channel: usize) {
        let Some(message) = self.get_mut(sequence) else { return };
        message.sending &= !(1 << channel);
        message.carried |= 1 << channel;
        if message.acknowledged && message.sending == 0 {
            self.release(sequence);
        }
    }

    /// It has arrived.
    pub(super) fn acknowledge(&mut self, sequence: u64) {
        let Some(message) = self.get_mut(sequence) else { return };
        message.acknowledged = true;
        let (bytes, sending) = (message.bytes(), message.sending);
        self.backlog -= if self.bulk_again.remove(&sequence) { bytes } else { 0 };
        self.urgent_again.remove(&sequence);
        if sending == 0 {
            self.release(sequence);
        }
    }

    /// Everything up to here has arrived.
    pub(super) fn acknowledge_through(&mut self, received: u64) {
        let through = received.min(self.newest());
        for sequence in self.acknowledged_through.max(self.base - 1) + 1..=through {
            self.acknowledge(sequence);
        }
        self.acknowledged_through = self.acknowledged_through.max(through);
    }

    fn release(&mut self, sequence: u64) {
        let index = (sequence - self.base) as usize;
        let Some(message) = self.messages[index].take() else { return };
        self.bytes -= message.bytes();
        self.released.extend(message.token);
        while let Some(None) = self.messages.front() {
            self.messages.pop_front();
            self.base += 1;
        }
    }

    /// A channel is gone: what nobody else carries waits again. Returns how many messages.
    pub(super) fn channel_lost(&mut self, channel: usize) -> u64 {
        let bit = 1 << channel;
        let mut again = 0;
        for sequence in self.base..self.base + self.messages.len() as u64 {
            let Some(message) = self.get_mut(sequence) else { continue };
            if (message.sending | message.carried) & bit == 0 {
                continue;
            }
            message.sending &= !bit;
            message.carried &= !bit;
            let alone = message.sending | message.carried == 0;
            let (way, bytes, sending, acknowledged) =
                (message.way, message.bytes(), message.sending, message.acknowledged);
            match (acknowledged, way) {
                (true, _) if sending == 0 => self.release(sequence),
                (true, _) => {}
                (false, _) if !alone => {}
                (false, Way::Bulk) => {
                    self.bulk_again.insert(sequence);
                    self.backlog += bytes;
                    again += 1;
                }
                (false, Way::Urgent | Way::Everywhere) => {
                    self.urgent_again.insert(sequence);
                    again += 1;
                }
            }
        }
        again
    }

    /// Gives up everything. Only when no channel is left. Returns how many messages.
    pub(super) fn give_up(&mut self) -> u64 {
        let lost = self.messages.iter().flatten().filter(|message| !message.acknowledged).count() + self.waiting();
        self.base += self.messages.len() as u64;
        let all = self.messages.drain(..).flatten().chain(self.bulk.drain(..)).chain(self.urgent.drain(..));
        self.released.extend(all.filter_map(|message| message.token));
        self.bulk_again.clear();
        self.urgent_again.clear();
        (self.bytes, self.backlog) = (0, 0);
        lost as u64
    }

    /// Drops what waits of a volume and was given to no channel.
    pub(super) fn forget(&mut self, volume: &[u8; 16]) {
        for queue in [&mut self.bulk, &mut self.urgent] {
            queue.retain(|message| {
                let stays = message.volume != *volume;
                if !stays {
                    self.bytes -= message.bytes();
                    self.backlog -= if message.way == Way::Bulk { message.bytes() } else { 0 };
                    self.released.extend(message.token);
                }
                stays
            });
        }
    }
}

/// What has arrived.
#[derive(Default)]
pub(super) struct Inbox {
    received: u64,
    /// Of the numbers above `received`, in order: whether they are here.
    ahead: VecDeque<bool>,
}

impl Inbox {
    /// Everything up to here has arrived.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// A message has arrived before.
    pub(super) fn has(&self, sequence: u64) -> bool {
        let ahead = |above: u64| self.ahead.get(above as usize - 1).copied().unwrap_or(false);
        sequence.checked_sub(self.received).is_none_or(|above| above == 0 || ahead(above))
    }

    /// Whether an honest peer can have sent it.
    pub(super) fn may_come(&self, sequence: u64) -> bool {
        sequence <= self.received.saturating_add(OPEN_MAX as u64)
    }

    /// Takes it in. The caller has asked `has` and `may_come`.
    pub(super) fn take(&mut self, sequence: u64) {
        let above = (sequence - self.received) as usize;
        if self.ahead.len() < above {
            self.ahead.resize(above, false);
        }
        self.ahead[above - 1] = true;
        self.advance();
    }

    /// Nothing below `first` will come.
    pub(super) fn start(&mut self, first: u64) {
        let through = first.saturating_sub(1);
        while self.received < through {
            match self.ahead.pop_front() {
                Some(_) => self.received += 1,
                None => self.received = through,
            }
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.ahead.front() == Some(&true) {
            self.ahead.pop_front();
            self.received += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(outbox: &mut Outbox, way: Way, token: u64) {
        outbox.put(vec![0; HEAD_BYTES + 72], Buffers::none(), [7; 16], way, Some(token));
    }

    fn released(outbox: &mut Outbox) -> Vec<u64> {
        let mut all: Vec<u64> = std::iter::from_fn(|| outbox.take_released()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn memory_is_kept_until_acknowledged_and_out_of_every_channel() {
        let mut outbox = Outbox::new();
        message(&mut outbox, Way::Bulk, 70);
        assert!(outbox.next(false).is_some_and(|(_, again)| !again) && outbox.next(true).is_none());
        assert_eq!(outbox.assign(false, 0b11, None, Instant(0)), 1);
        outbox.sent(1, 0);
        outbox.acknowledge(1);
        assert_eq!(released(&mut outbox), [] as [u64; 0], "channel 1 is still in the middle of it");
        outbox.sent(1, 1);
        assert_eq!(released(&mut outbox), [70]);
        assert!(outbox.is_empty() && outbox.bytes() == 0 && outbox.first() == 2);
    }

    #[test]
    fn what_a_dead_channel_took_waits_again_oldest_first_unless_another_has_it() {
        let mut outbox = Outbox::new();
        (0..4).for_each(|token| message(&mut outbox, Way::Bulk, token));
        for channels in [0b01, 0b10, 0b11] {
            outbox.assign(false, channels, None, Instant(0));
        }
        outbox.sent(1, 0);
        outbox.sent(3, 0);
        assert_eq!(outbox.channel_lost(0), 1, "3 is also on channel 1");
        assert!(outbox.next(false).unwrap().1);
        assert_eq!(outbox.assign(false, 0b10, None, Instant(0)), 1, "again");
        assert!(!outbox.next(false).unwrap().1, "then what no channel has had");
        outbox.acknowledge_through(3);
        assert_eq!(released(&mut outbox), [] as [u64; 0], "channel 1 has them half way");
        assert_eq!(outbox.channel_lost(1), 0);
        assert_eq!(released(&mut outbox), [0, 1, 2]);
    }

    #[test]
    fn an_acknowledgement_of_what_waits_again_ends_it() {
        let mut outbox = Outbox::new();
        message(&mut outbox, Way::Bulk, 5);
        outbox.assign(false, 1, None, Instant(0));
        outbox.sent(1, 0);
        assert_eq!(outbox.backlog(), 0);
        assert_eq!(outbox.channel_lost(0), 1);
        assert!(outbox.backlog() > 0);
        outbox.acknowledge_through(900);
        assert!(outbox.backlog() == 0 && outbox.next(false).is_none());
        assert_eq!(released(&mut outbox), [5]);
    }

    #[test]
    fn a_message_that_is_late_on_a_slow_channel_is_overdue_until_a_prompt_one_has_it() {
        let mut outbox = Outbox::new();
        (0..3).for_each(|token| message(&mut outbox, Way::Bulk, token));
        let (late, now) = (Duration(100), Instant(1000));
        outbox.assign(false, 0b01, None, Instant(850));
        outbox.assign(false, 0b10, None, Instant(850));
        outbox.assign(false, 0b01, None, Instant(950));
        assert_eq!(outbox.overdue(late, 0b10, now), Some(1), "2 is on the prompt channel, 3 is not late");
        assert_eq!(outbox.overdue(late, 0b00, Instant(100)), None);
        outbox.also(1, 1);
        assert_eq!(outbox.overdue(late, 0b10, now), None);
        outbox.sent(1, 1);
        outbox.acknowledge(1);
        assert_eq!(released(&mut outbox), [] as [u64; 0], "the slow channel is still at it");
        outbox.sent(1, 0);
        assert_eq!(released(&mut outbox), [0]);
        assert_eq!(outbox.overdue(late, 0b10, Instant(1100)), Some(3));
    }

    #[test]
    fn giving_up_releases_everything_and_numbers_go_on() {
        let mut outbox = Outbox::new();
        (0..3).for_each(|token| message(&mut outbox, Way::Everywhere, token));
        outbox.assign(true, 1, None, Instant(0));
        assert_eq!(outbox.channel_lost(0), 1);
        assert_eq!(outbox.give_up(), 3);
        assert_eq!(released(&mut outbox), [0, 1, 2]);
        assert_eq!(outbox.first(), 2);
        message(&mut outbox, Way::Urgent, 9);
        assert_eq!(outbox.assign(true, 1, None, Instant(0)), 2);
    }

    #[test]
    fn what_is_forgotten_leaves_no_gap_in_the_numbers() {
        let mut outbox = Outbox::new();
        (0..2).for_each(|token| message(&mut outbox, Way::Bulk, token));
        outbox.assign(false, 1, None, Instant(0));
        outbox.forget(&[8; 16]);
        assert!(outbox.next(false).is_some());
        outbox.forget(&[7; 16]);
        assert!(outbox.next(false).is_none() && outbox.backlog() == 0);
        assert_eq!(released(&mut outbox), [1], "the other is on its way");
        message(&mut outbox, Way::Bulk, 2);
        assert_eq!(outbox.assign(false, 1, None, Instant(0)), 2);
    }

    #[test]
    fn a_packed_message_gives_its_memory_back_at_once() {
        let arena = crate::arena::Arena::anonymous(1, false).unwrap();
        let mut payload = Buffers::none();
        payload.push_frame(&arena, forebay_core::types::FrameId(0), 0, 4096);
        let mut outbox = Outbox::new();
        outbox.put(vec![0; HEAD_BYTES + 72], payload, [7; 16], Way::Bulk, Some(3));
        let before = outbox.bytes();
        outbox.assign(false, 1, Some(Packed { packing: Packing::Lz4, bytes: vec![1; 100] }), Instant(0));
        assert_eq!(released(&mut outbox), [3]);
        assert_eq!(outbox.bytes(), before - 3996);
        let head = FrameHead::decode(outbox.get(1).unwrap().front.first_chunk().unwrap()).unwrap();
        assert_eq!((head.packing, head.payload_bytes, head.unpacked_bytes), (Packing::Lz4, 100, 4096));
        outbox.acknowledge(1);
        outbox.sent(1, 0);
        assert!(outbox.is_empty() && outbox.bytes() == 0 && released(&mut outbox).is_empty());
    }

    #[test]
    fn duplicates_are_known_in_any_order() {
        let mut inbox = Inbox::default();
        for sequence in [3, 1, 5] {
            assert!(!inbox.has(sequence));
            inbox.take(sequence);
            assert!(inbox.has(sequence));
        }
        assert_eq!(inbox.received(), 1);
        inbox.take(2);
        assert_eq!(inbox.received(), 3);
        assert!(inbox.has(0) && inbox.has(2) && !inbox.has(4) && inbox.has(5) && !inbox.has(6));
        assert!(inbox.may_come(3 + OPEN_MAX as u64) && !inbox.may_come(4 + OPEN_MAX as u64));
    }

    #[test]
    fn a_start_skips_what_will_never_come() {
        let mut inbox = Inbox::default();
        inbox.start(1);
        assert_eq!(inbox.received(), 0);
        inbox.take(6);
        inbox.take(8);
        inbox.start(6);
        assert_eq!(inbox.received(), 6);
        inbox.start(3);
        assert_eq!(inbox.received(), 6, "an older start says nothing new");
        inbox.start(1000);
        assert_eq!(inbox.received(), 999);
        assert!(!inbox.has(1000));
        inbox.start(u64::MAX);
        assert!(inbox.may_come(u64::MAX) && inbox.has(5));
    }
}
