//! Links between nodes: each message takes its own time, so that messages overtake each other; it may be lost, doubled
//! or damaged, and a direction may carry nothing for a while. What is on the way outlives who sent it and who is meant.
//!
//! Checked: frames named in a message hold what its descriptors say.

use super::*;
use forebay_core::ownership::Event as News;
use forebay_core::wire::{payload_blocks, records_of, seal_cached};

/// A message on its way.
#[derive(Clone)]
pub(super) struct Letter {
    pub(super) envelope: Envelope,
    pub(super) message: Message,
    /// The payload of its records, a block each.
    pub(super) blocks: Vec<Vec<u8>>,
}

/// What is wrong with links for a while.
#[derive(Default)]
pub(super) struct Links {
    /// Directions that carry nothing, by sender and receiver, until a moment.
    cut: BTreeMap<(usize, usize), Instant>,
    /// Nodes that records reach late, until a moment.
    crawl: BTreeMap<usize, Instant>,
}

/// How late they reach a node that crawls: hardly less than a peer may take before it counts as dead.
const CRAWL: Duration = Duration::from_millis(700);

impl Links {
    pub(super) fn cut(&mut self, from: usize, to: usize, until: Instant) {
        self.cut.insert((from, to), until);
    }

    pub(super) fn carries(&self, from: usize, to: usize, now: Instant) -> bool {
        self.cut.get(&(from, to)).is_none_or(|&until| until <= now)
    }

    pub(super) fn crawl(&mut self, to: usize, until: Instant) {
        self.crawl.insert(to, until);
    }

    fn crawls(&self, to: usize, now: Instant) -> bool {
        self.crawl.get(&to).is_some_and(|&until| now < until)
    }

    /// Something is wrong with one of them.
    pub(super) fn are_impaired(&self, now: Instant) -> bool {
        self.cut.values().chain(self.crawl.values()).any(|&until| now < until)
    }

    pub(super) fn mend(&mut self) {
        self.cut.clear();
        self.crawl.clear();
    }
}

impl World {
    /// The volume of this node sends something.
    pub(super) fn send(&mut self, op: Option<OpId>, envelope: Envelope, mut message: Message, frames: Vec<FrameId>) {
        assert_eq!(op.is_some(), !frames.is_empty(), "a completion there if and only if there are frames");
        assert_eq!(envelope.from, self.node.incarnation, "who sends is who it says");
        seal_cached(&envelope.volume, &mut message, |index| self.frame(frames[index]));
        let mut blocks = Vec::new();
        if payload_blocks(&message) > 0 {
            let with_payload = records_of(&message).iter().filter_map(|record| match record.kind {
                Kind::Data { mask, checksum } => Some(Check { block: record.block, mask, term: record.term, checksum }),
                Kind::ZeroSectors { .. } | Kind::ZeroBlocks { .. } => None,
            });
            let checks: Vec<Check> = with_payload.collect();
            assert_eq!(checks.len(), frames.len(), "a frame for each record that has a payload");
            for (&frame, check) in frames.iter().zip(&checks) {
                self.pin_source(frame, "a message");
                let bytes = self.frame(frame).to_vec();
                assert!(self.check_holds(check, &bytes), "{frame:?} is sent as the payload of {check:?}, and is not");
                blocks.push(bytes);
            }
        } else {
            assert!(frames.is_empty(), "a frame for each record that has a payload");
        }
        self.post(Letter { envelope, message, blocks });
        if let Some(op) = op {
            self.begin(op, OpKind::Send { frames }, None, 200, 0);
        }
    }

    /// Puts a message on its way.
    pub(super) fn post(&mut self, letter: Letter) {
        self.note_grant(&letter);
        let faults = self.cluster().setup.faults.clone();
        let micros = self.cluster().setup.link_micros_max;
        let to = index_of(letter.envelope.to.node);
        if !self.cluster().links.carries(self.at, to, self.now) {
            return self.coverage.see("message lost at a cut");
        }
        if self.fault(faults.message_lost) {
            self.note_fault_until(self.now, Mended::SentAgain);
            return self.coverage.see("message lost");
        }
        if self.fault(faults.message_doubled) {
            self.coverage.see("message doubled");
            // The second may come very late.
            let late = self.micros(micros * 1_000);
            self.note_fault_until(self.now + late, Mended::SentAgain);
            self.schedule_at(to, late, Due::Letter(Box::new(letter.clone())));
        }
        let mut letter = letter;
        if !letter.blocks.is_empty() && self.fault(faults.message_damaged) {
            self.coverage.see("payload damaged on its way");
            self.note_fault_until(self.now, Mended::SentAgain);
            let which = self.random.below(letter.blocks.len() as u64) as usize;
            let at = self.random.below(BLOCK_BYTES) as usize;
            letter.blocks[which][at] ^= 1 << self.random.below(8);
        }
        let mut way = self.micros(micros);
        if !letter.blocks.is_empty() && self.cluster().links.crawls(to, self.now) {
            way = CRAWL;
        }
        self.schedule_at(to, way, Due::Letter(Box::new(letter)));
    }

    /// It arrives at this node, whatever process lives there now.
    pub(super) fn letter_arrives(&mut self, letter: Letter) {
        let from = index_of(letter.envelope.from.node);
        let lives = self.node.part.ownership.is_some();
        // Also what was sent before the cut is lost by it.
        if !lives || !self.cluster().links.carries(from, self.at, self.now) {
            return;
        }
        match letter.message {
            Message::Log(message) => {
                if matches!(message, LogMessage::Cached { .. }) {
                    self.coverage.add("block came from the cache of a former owner", letter.blocks.len() as u64);
                }
                if self.admits(&letter.envelope, &message) {
                    self.letter_for_volume(letter.envelope, message, &letter.blocks);
                }
            }
            Message::Refused { why } => {
                let envelope = letter.envelope;
                self.tell(News::Refused(envelope, why));
                if self.volume_is_open() {
                    self.hand(Event::Refused { envelope, why });
                }
            }
            Message::Ownership(message) => {
                trace!(self, "letter {message:?}");
                self.tell(News::Message(letter.envelope, message));
            }
        }
    }

    fn letter_for_volume(&mut self, envelope: Envelope, message: LogMessage, blocks: &[Vec<u8>]) {
        if !self.volume_is_open() {
            return;
        }
        let mut payload = Vec::new();
        if !blocks.is_empty() {
            let mut frames = Frames::new();
            let count = blocks.len() as u32;
            if !self.node.volume.as_mut().expect("it lives").take_frames_for_peer(count, &mut frames) {
                return self.coverage.see("no frames for a peer's message");
            }
            let mut filled = frames.iter().zip(blocks);
            for record in message.records() {
                let Kind::Data { mask, .. } = record.kind else { continue };
                let (&frame, bytes) = filled.next().expect("a frame for each payload");
                self.assert_writable(frame, "a peer's payload");
                self.frame_mut(frame).copy_from_slice(bytes);
                let checksum = payload_checksum(&VOLUME_UUID, record.block, mask, record.term, bytes);
                payload.push(Payload { frame, checksum });
            }
        }
        self.hand(Event::Peer { envelope, message, payload });
    }
}

/// Name of a node of this world.
pub(super) fn name_of(index: usize) -> NodeId {
    NodeId(100 + index as u64)
}

/// The node of this name.
pub(super) fn index_of(node: NodeId) -> usize {
    (node.0 - 100) as usize
}
