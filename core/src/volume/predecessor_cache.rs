//! Reads from the cache of the former owner, after a hand-over (K1 to K6): it keeps what was clean in its read cache, and the
//! new owner, whose own cache is cold, asks it before a slow backing.
//!
//! - What is kept is evictable cache of the follower's own frames: whoever needs one has it, and nothing is added to the
//!   volume's memory.
//! - It stays the newest content because the follower takes the owner's log: each record that it accepts drops what it covers.
//!   The owner asks only for blocks of which its log has no record, and only a member that it asks for every write: what was
//!   ever written there is in the backing, so it was committed, so the former owner has dropped it (K2, K3).
//! - An answer is used like that of a slow backing, also where a write overtakes it ([`super::read`]). Whatever is not
//!   there, comes late or does not match its checksum is read from the backing (K4).
//! - It ends by itself: after some time, when little is found, and when answers stay away (K5).
//!
//! Left to others: who the former owner is (ownership), the checksums of what is sent (the executor).

use super::*;
use crate::format::{Descriptor, Kind};
use crate::message::{ASK_BLOCKS_MAX, Envelope, LogMessage};

/// The former owner's working set has come over by then, or is not wanted any more.
const ASK_TIME: Duration = Duration::from_secs(600);
/// An answer takes far less on any link that is of use. Shorter than the time after which a link is given up.
const ANSWER_WAIT: Duration = Duration::from_millis(100);
/// So many answers in a row that did not come end the asking: the next would only cost their time.
const LATE_MAX: u32 = 8;
/// After so many blocks it is looked at what asking brings ...
const LOOK_BLOCKS: u64 = 1024;
/// ... and it ends where fewer than one in so many was there: each that was not cost a round trip.
const HITS_ONE_IN: u64 = 8;

/// The clean read cache of an owner that has handed over: numbers of frames whose bytes stay as they are until a follower
/// takes them over, on the same frames ([`Volume::keep_cache`]).
#[derive(Debug)]
pub struct KeptCache {
    volume: [u8; 16],
    tier: u64,
    frames: u32,
    /// The next owner's, by the hand-over.
    term: Term,
    blocks: Vec<(BlockIndex, FrameId)>,
}

/// The former owner, as the one that asks it sees it.
#[derive(Debug)]
pub(super) struct Predecessor {
    who: Incarnation,
    until: Instant,
    /// Whole blocks of the volume when the term began: what has grown since was never in that cache.
    blocks: u64,
    late_in_a_row: u32,
    /// Of the present look.
    looked: u64,
    found: u64,
    hits: u64,
    misses: u64,
}

/// What a [`LogMessage::Cached`] says.
pub(super) struct Answer {
    pub number: u64,
    pub kept: u32,
    pub records: Vec<Descriptor>,
    pub payload: Vec<Payload>,
}

/// Blocks that the former owner is asked for.
#[derive(Debug)]
pub(super) struct Asked {
    number: u64,
    until: Instant,
    fill: read::Fill,
}

/// See the module.
#[derive(Default)]
pub(super) struct PredecessorCache {
    /// Of an owner that has handed over: the next owner's term.
    handed_over: Option<Term>,
    /// Of a follower: the cache is that of the owner before this term.
    kept_for: Option<Term>,
    former: Option<Predecessor>,
    /// In the order of their asking.
    asked: VecDeque<Asked>,
    numbers: u64,
}

impl PredecessorCache {
    /// Blocks are being changed: what is being asked for of them will not be cached.
    pub(super) fn mark_stale(&mut self, first: BlockIndex, blocks: u64) {
        self.asked.iter_mut().for_each(|asked| asked.fill.mark_stale(first, blocks));
    }
}

impl Volume {
    // --- the former owner ---

    pub(super) fn note_handed_over(&mut self, term: Term) {
        self.replication.predecessor_cache.handed_over = Some(term).filter(|_| self.is_leaving_to_member());
    }

    /// What a volume that has handed over leaves to the follower that is opened on the same frames. None where it has not, or
    /// has not stopped. Nothing may write to the frames until then.
    pub fn kept_cache(&self) -> Option<KeptCache> {
        let term = self
            .replication
            .predecessor_cache
            .handed_over
            .filter(|_| self.phase == Phase::Stopped && !self.tier.has_failed())?;
        let clean = |block: &BlockIndex| self.index.is_clean(*block);
        let frame = |block| Some((block, self.pool.evictable_frame(block)?));
        let blocks = self.pool.cached_blocks().into_iter().filter(clean).filter_map(frame).collect();
        let Superblock { volume, tier, .. } = self.config.superblock;
        Some(KeptCache { volume, tier, frames: self.config.frames, term, blocks })
    }

    /// A follower takes over what the owner before it, of the same process and on the same frames, had in its cache. Frames in
    /// which its log has a record are not touched, nor is anything kept of a block that has one. False: it takes over
    /// nothing. On flash, true asks the executor to put the memory of the former frames under the volume at once, before anything
    /// else: the start has used its own to read the log.
    pub fn keep_cache(&mut self, kept: KeptCache) -> bool {
        let Superblock { volume, tier, .. } = self.config.superblock;
        let same = (kept.volume, kept.tier, kept.frames) == (volume, tier, self.config.frames);
        // On flash the frames are brought as a whole: nothing may lie in those that they take the place of.
        let untouched = self.flash.is_none() || self.pool.available() == self.pool.total();
        if !same || self.phase != Phase::Following || !untouched {
            return false;
        }
        self.replication.predecessor_cache.kept_for = Some(kept.term);
        let clean = kept.blocks.into_iter().filter(|(block, _)| self.index.is_clean(*block)).collect();
        self.pool.adopt(clean);
        true
    }

    /// K2: sends what the cache has of what was asked for.
    pub(super) fn answer_ask(&mut self, envelope: &Envelope, number: u64, first: BlockIndex, blocks: u32) {
        // The owner of the hand-over's record takes a term of its own, the next one, before it serves (T2).
        let keeps =
            self.replication.predecessor_cache.kept_for.is_some_and(|term| term.0 + 1 == self.identity.term().0);
        let kept = if keeps { self.pool.cached() } else { 0 };
        let mut records = Vec::new();
        let mut frames = Vec::new();
        // What is being sent cannot be evicted, and the log comes first.
        let room = (self.frames_reserved() / 2).saturating_sub(self.frames_of_answers());
        for at in 0..u64::from(if keeps { blocks.min(ASK_BLOCKS_MAX).min(room) } else { 0 }) {
            let block = BlockIndex(first.0.saturating_add(at));
            // On flash the cache has records, too.
            let Some((frame, Lsn(0))) = self.pool.cached_frame(block) else { continue };
            self.pool.pin(frame);
            self.pool.touch(frame);
            frames.push(frame);
            let kind = Kind::Data { mask: SectorMask::FULL, checksum: 0 };
            let lsn = Lsn(frames.len() as u64);
            records.push(Descriptor { lsn, block, group: Group(0), term: self.identity.term(), kind });
        }
        self.replication.counters.cached_blocks_sent += frames.len() as u64;
        self.send_frames(envelope.from, LogMessage::Cached { number, kept, records }, frames);
    }

    // --- the new owner ---

    /// A term begins: whose cache may be asked.
    pub(super) fn begin_asking(&mut self, former: Option<Incarnation>) {
        let blocks = self.size_bytes / BLOCK_BYTES;
        let (until, late_in_a_row) = (self.now + ASK_TIME, 0);
        self.replication.predecessor_cache.kept_for = None;
        self.replication.predecessor_cache.former = former
            .filter(|who| who.node != self.own().node)
            .map(|who| Predecessor { who, until, blocks, late_in_a_row, looked: 0, found: 0, hits: 0, misses: 0 });
    }

    /// K3: the former owner may have the newest content of this block.
    pub(super) fn may_ask_for(&self, block: BlockIndex) -> bool {
        let Some(former) = &self.replication.predecessor_cache.former else { return false };
        // Whoever the record does not name any more may have missed a write.
        let member = self.replication.members.is_recorded(&former.who) || planted!(self, ask_who_left);
        member && self.now < former.until && block.0 < former.blocks && self.index.is_clean(block)
    }

    pub(super) fn ask_former(&mut self, fill: read::Fill) {
        let Some(former) = &self.replication.predecessor_cache.former else {
            unreachable!("asked only where there is one")
        };
        let who = former.who;
        self.replication.predecessor_cache.numbers += 1;
        let number = self.replication.predecessor_cache.numbers;
        let (first, blocks) = (fill.first, fill.frames.len() as u32);
        let until = self.now + ANSWER_WAIT;
        self.replication.predecessor_cache.asked.push_back(Asked { number, until, fill });
        self.send(who, LogMessage::Ask { number, first, blocks });
    }

    /// K4: what came goes to its frames; the rest is read from the backing.
    pub(super) fn on_cached(&mut self, from: &Incarnation, answer: Answer) {
        let Answer { number, kept, records, payload } = answer;
        let known = self.replication.predecessor_cache.former.as_ref().is_some_and(|former| former.who == *from);
        let place =
            self.replication.predecessor_cache.asked.iter().position(|asked| asked.number == number).filter(|_| known);
        let Some(place) = place else { return self.release_payloads(payload) };
        let asked = self.replication.predecessor_cache.asked.remove(place).expect("found above");
        let blocks = asked.fill.frames.len();
        let mut there: Vec<bool> = alloc::vec![false; blocks];
        let member = self.replication.members.is_recorded(from) || planted!(self, ask_who_left);
        for (record, payload) in records.iter().zip(&payload) {
            let at = record.block.0.wrapping_sub(asked.fill.first.0);
            let expected = Kind::Data { mask: SectorMask::FULL, checksum: payload.checksum };
            let whole = record.kind == expected || planted!(self, trust_cached);
            self.recorder.counters.checksum_errors += u64::from(!whole);
            if whole && member && record.term == self.identity.term() && at < blocks as u64 {
                there[at as usize] = true;
                let (source, target) = (Source::Frame(payload.frame, 0), asked.fill.frames[at as usize]);
                self.effects.push_back(Effect::Copy { source, target, start: 0, length: BLOCK_BYTES as u16 });
            }
        }
        self.release_payloads(payload);
        let hits = there.iter().filter(|there| **there).count() as u64;
        self.end_asked(asked.fill, &there);
        self.look_at_former(hits, blocks as u64 - hits, kept);
    }

    /// Whether asking is worth while (K5).
    fn look_at_former(&mut self, hits: u64, misses: u64, kept: u32) {
        self.replication.counters.former_hits += hits;
        self.replication.counters.former_misses += misses;
        let Some(former) = &mut self.replication.predecessor_cache.former else { return };
        former.late_in_a_row = 0;
        (former.hits, former.misses) = (former.hits + hits, former.misses + misses);
        (former.looked, former.found) = (former.looked + hits + misses, former.found + hits);
        let little = former.looked >= LOOK_BLOCKS && former.found * HITS_ONE_IN < former.looked;
        if former.looked >= LOOK_BLOCKS {
            (former.looked, former.found) = (0, 0);
        }
        if kept == 0 || little {
            self.replication.predecessor_cache.former = None;
            self.give_up_asked();
        }
    }

    /// Answers that are late, and the end of the time.
    pub(super) fn settle_former(&mut self) {
        while let Some(asked) = self.replication.predecessor_cache.asked.front()
            && asked.until <= self.now
        {
            let asked = self.replication.predecessor_cache.asked.pop_front().expect("looked at above");
            let blocks = asked.fill.frames.len() as u64;
            self.end_asked(asked.fill, &[]);
            self.replication.counters.former_misses += blocks;
            if let Some(former) = &mut self.replication.predecessor_cache.former {
                former.misses += blocks;
                former.late_in_a_row += 1;
            }
        }
        let over = |former: &Predecessor| former.until <= self.now || former.late_in_a_row >= LATE_MAX;
        let gone =
            |former: &Predecessor| !self.replication.members.is_recorded(&former.who) && !planted!(self, ask_who_left);
        if self.replication.predecessor_cache.former.as_ref().is_some_and(|former| over(former) || gone(former)) {
            self.replication.predecessor_cache.former = None;
            self.give_up_asked();
        }
    }

    /// What was under way to the node, or from it, may be lost.
    pub(super) fn former_interrupted(&mut self, node: NodeId) {
        if self.replication.predecessor_cache.former.as_ref().is_some_and(|former| former.who.node == node) {
            self.give_up_asked();
        }
    }

    /// The backing is read instead.
    fn give_up_asked(&mut self) {
        for asked in core::mem::take(&mut self.replication.predecessor_cache.asked) {
            let blocks = asked.fill.frames.len() as u64;
            self.replication.counters.former_misses += blocks;
            self.end_asked(asked.fill, &[]);
        }
    }

    pub(super) fn former_timeout(&self) -> Option<Instant> {
        self.replication.predecessor_cache.asked.front().map(|asked| asked.until)
    }

    /// Whose cache is asked, until when, and what it brought in this term.
    pub fn former(&self) -> Option<FormerStatus> {
        let Predecessor { who, until, hits, misses, .. } = self.replication.predecessor_cache.former.as_ref()?;
        let asked = self.replication.predecessor_cache.asked.len() as u32;
        Some(FormerStatus { node: who.node, until: *until, hits: *hits, misses: *misses, asked })
    }
}
