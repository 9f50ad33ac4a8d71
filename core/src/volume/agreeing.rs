//! A term begins by agreement on its tail (S9): until every member has answered `Begin` and holds all of the tail, requests
//! are taken and nothing is answered (T4).
//!
//! - What the longest log has more is fetched first (T3); then the tail is fixed, and does not move for the rest of the term.
//! - Nothing of a term is accepted before the checkpoint has it, and nothing answered that a power cut could still take back.
//! - Requests that come too early wait here in the order of their coming: also while the volume is about to change hands.
//!
//! Left to others: whom to ask and to fetch from (ownership), the sending ([`super::stream`]).

use super::*;
use crate::message::{Envelope, LogMessage};

/// What an owner fetches before the tail is fixed (T3).
#[derive(Clone, Copy, Debug)]
struct Fetching {
    from: Incarnation,
    through: Lsn,
    /// The backing has everything up to here (T3).
    watermark: Lsn,
    ask_again_at: Instant,
    /// The last progress, or the beginning.
    moved_at: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Agreement {
    fetching: Option<Fetching>,
    /// Where the log ended when the own term began, once that is fixed.
    tail: Option<Lsn>,
    /// Requests that came before anything may be answered.
    early_requests: VecDeque<(RequestId, Request)>,
}

impl Agreement {
    /// Where the log ended when the own term began, once that is fixed.
    pub(super) fn tail(&self) -> Option<Lsn> {
        self.tail
    }

    /// A request waits until something may be answered.
    pub(super) fn keep_request(&mut self, id: RequestId, request: Request) {
        self.early_requests.push_back((id, request));
    }

    /// What waits until something may be answered.
    pub(super) fn kept_requests(&mut self) -> &mut VecDeque<(RequestId, Request)> {
        &mut self.early_requests
    }
}

impl Volume {
    /// Before the tail is fixed, the log comes as far as that of another member, if it is longer (T3).
    pub(super) fn begin_agreeing(&mut self, fetch: Option<(Incarnation, Lsn)>, watermark: Lsn) {
        let longer = fetch.filter(|(_, through)| *through > self.positions.accepted());
        self.replication.agreement.fetching = longer.map(|(from, through)| Fetching {
            from,
            through,
            watermark,
            ask_again_at: self.now,
            moved_at: self.now,
        });
    }

    /// Requests that waited are carried out.
    pub(super) fn resume_early_requests(&mut self) {
        for (id, request) in core::mem::take(&mut self.replication.agreement.early_requests) {
            self.on_request(id, request);
        }
    }

    /// Fetches what the longest log has more, fixes the tail, and serves when all hold it.
    pub(super) fn go_on_agreeing(&mut self) {
        if self.phase != Phase::Agreeing {
            return;
        }
        let stall_max = self.cluster().stall_max;
        match self.replication.agreement.fetching {
            Some(Fetching { through, .. }) if self.positions.accepted() >= through => {
                self.replication.agreement.fetching = None
            }
            // It may break off anywhere: nothing acknowledged is in what is left, and who had it is learnt anew (T3).
            Some(Fetching { moved_at, .. }) if self.now >= moved_at + stall_max => {
                self.replication.agreement.fetching = None
            }
            Some(fetching) if self.now >= fetching.ask_again_at => {
                let ask_again_at = self.now + self.cluster().resend_after;
                self.replication.agreement.fetching = Some(Fetching { ask_again_at, ..fetching });
                return self.send(fetching.from, LogMessage::Fetch { from: self.positions.accepted() });
            }
            Some(_) => return,
            None => {}
        }
        if self.replication.agreement.tail.is_none() {
            self.fix_tail();
        }
        let Some(tail) = self.replication.agreement.tail else { return };
        // W3: nothing of a term is accepted before the checkpoint has it.
        let recorded = self.recorded().is_some_and(|recorded| recorded.agreed);
        let held = self.positions.held() >= tail
            && self.replication.members.asked().all(|peer| peer.agreed && peer.held >= tail);
        // What a read shows no later power cut may take back; the tail may have come from a member that its own had left it.
        let synced = self.positions.synced() >= tail || planted!(self, answer_before_synced);
        if !synced {
            self.sync_log_if_wanted();
        }
        if recorded && synced && (held || planted!(self, answer_before_agreed)) {
            self.serve();
        }
    }

    fn fix_tail(&mut self) {
        self.replication.agreement.tail = Some(self.positions.fix_tail());
        // Nobody knows which of these were flushed: they are a group of their own, and so is what comes now.
        self.groups.begin_another();
        self.hold_accepted();
        self.log_was_recovered();
    }

    fn serve(&mut self) {
        self.phase = Phase::Serving;
        self.end_replayed();
        self.report(Report::Agreed { term: self.identity.term() });
        self.look_at_copies();
        self.resume_early_requests();
    }

    pub(super) fn take_fetched(&mut self, envelope: &Envelope, append: member::Append) {
        let from_there =
            self.replication.agreement.fetching.as_ref().is_some_and(|fetching| fetching.from == envelope.from);
        let in_backing = self.replication.agreement.fetching.as_ref().map_or(Lsn(0), |fetching| fetching.watermark);
        if from_there && append.committed > self.positions.held().max(in_backing) {
            // All members held that, this one as well: what is between here and there may be incomplete (S5, S10).
            self.release_payloads(append.payload);
            return self.goes_back();
        }
        if !from_there || append.from > self.positions.accepted() {
            return self.release_payloads(append.payload);
        }
        let append = member::Append { committed: Lsn(0), ..append };
        let before = self.positions.accepted();
        self.take_append(append);
        if self.positions.accepted() > before
            && let Some(fetching) = &mut self.replication.agreement.fetching
        {
            (fetching.ask_again_at, fetching.moved_at) = (self.now, self.now);
        }
    }

    pub(super) fn agreeing_timeout(&self) -> Option<Instant> {
        let stall_max = self.config.cluster.as_ref()?.stall_max;
        self.replication
            .agreement
            .fetching
            .as_ref()
            .map(|fetching| fetching.ask_again_at.min(fetching.moved_at + stall_max))
    }
}
