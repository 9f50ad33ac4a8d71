//! Reads whose content is there and may not be shown yet: until every member holds the records that it shows (A8), and
//! there is a lease (L3).
//!
//! - What a read shows is fixed when it begins, and pinned: no later write prolongs it.
//! - It waits as long as the writes that it shows, never for the backing, and ends as they do: by an error when the tier has
//!   failed, without an answer when the ownership ends (T9).
//! - A read of what all hold does not wait. Nor does what the volume reads for itself: an edge, a destage or a message is of a
//!   later position than what it was made of, or of none.
//!
//! Left to others: finding the content ([`super::read`]), and what all hold ([`super::acks`]).

use super::*;

#[derive(Debug)]
struct Ready {
    id: RequestId,
    pieces: Pieces,
    /// The newest record among them that some member did not hold when the read began.
    shows: Lsn,
    since: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct ReadyReads {
    /// By what they show.
    waiting: VecDeque<Ready>,
}

impl ReadyReads {
    /// No answer waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Volume {
    /// Up to here every member holds everything: nothing of it can be undone (A8).
    fn shown_through(&self) -> Lsn {
        if planted!(self, show_uncommitted) { self.positions.accepted() } else { self.positions.committed() }
    }

    pub(super) fn may_be_shown(&self, lsn: Lsn) -> bool {
        lsn <= self.shown_through()
    }

    /// Nor will all ever hold it: what the tier did not hold when it failed may be gone after the next start.
    pub(super) fn never_shown(&self, lsn: Lsn) -> bool {
        self.tier.has_failed() && !self.may_be_shown(lsn)
    }

    /// A client's read has its content, and shows records up to this one.
    pub(super) fn answer_read(&mut self, id: RequestId, pieces: Pieces, shows: Lsn, from_memory: bool) {
        if self.never_shown(shows) {
            self.unpin_pieces(&pieces);
            self.answer(id, Err(RequestError::Io));
        } else if self.may_be_shown(shows) && self.has_lease() {
            self.recorder.answered(id, from_memory, self.now);
            self.effects.push_back(Effect::Reply { id, result: Ok(pieces) });
        } else {
            let waiting = &mut self.reads.ready.waiting;
            let place = waiting.partition_point(|ready| ready.shows <= shows);
            waiting.insert(place, Ready { id, pieces, shows, since: self.now });
        }
    }

    /// More is held by all, or there is a lease again.
    pub(super) fn answer_ready_reads(&mut self) {
        if self.reads.ready.is_empty() || self.is_mute() || !self.has_lease() {
            return;
        }
        let through = self.shown_through();
        while let Some(ready) = self.reads.ready.waiting.pop_front_if(|ready| ready.shows <= through) {
            let Ready { id, pieces, since, .. } = ready;
            self.recorder.read_waited(self.now - since);
            self.recorder.answered(id, false, self.now);
            self.effects.push_back(Effect::Reply { id, result: Ok(pieces) });
        }
    }

    /// The tier has failed.
    pub(super) fn fail_ready_reads(&mut self) {
        let through = self.shown_through();
        self.end_ready_reads(|ready| ready.shows > through, Some(RequestError::Io));
    }

    /// A stop waits for nobody.
    pub(super) fn abandon_ready_reads(&mut self) {
        self.end_ready_reads(|_| true, Some(RequestError::Shutdown));
    }

    /// Nobody waits for these any more.
    pub(super) fn drop_ready_reads(&mut self, ids: &RequestIds) {
        self.end_ready_reads(|ready| ids.contains(ready.id), None);
    }

    fn end_ready_reads(&mut self, which: impl Fn(&Ready) -> bool, answer: Option<RequestError>) {
        if self.reads.ready.is_empty() {
            return;
        }
        let (ended, waiting) = core::mem::take(&mut self.reads.ready.waiting).into_iter().partition(which);
        self.reads.ready.waiting = waiting;
        let ended: VecDeque<Ready> = ended;
        for Ready { id, pieces, .. } in ended {
            self.unpin_pieces(&pieces);
            match answer {
                Some(error) => self.answer(id, Err(error)),
                None => self.recorder.forget(id),
            }
        }
    }
}
