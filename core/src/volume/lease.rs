//! The lease of an owner (L3): until when it answers reads and begins writes to the backing.
//!
//! - Nothing of a lease is believed that was not granted to this owner: a term begins without one.
//! - When the last lease under which a write may have been begun ends, or has ended, is never forgotten and never goes back: the
//!   machine's watchdog is set by it (H1).
//! - Where one node has the volume to itself, the lease has no end.
//!
//! Left to others: who grants it (ownership), and what waits for one ([`super::ready`], [`super::destage`]).

use super::*;

/// See the module.
pub(super) struct Lease {
    /// Reads are answered, and writes to the backing begun, before this time.
    until: Instant,
    /// There was one until then, at least.
    held_until: Instant,
}

impl Lease {
    /// Without an end.
    pub(super) fn new() -> Lease {
        Lease { until: Instant(u64::MAX), held_until: Instant(0) }
    }

    fn runs(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Until when there was a lease, at least, is remembered; from here on there is none.
    pub(super) fn end(&mut self, now: Instant) {
        self.held_until = self.held_until.max(self.until.min(now));
        self.until = Instant(0);
    }

    /// Another lease takes the place of this one, longer or shorter.
    pub(super) fn renew(&mut self, until: Instant, now: Instant) {
        self.end(now);
        self.until = until;
    }

    /// What there was is not this owner's: it counts for nothing.
    pub(super) fn forget(&mut self) {
        self.until = Instant(0);
    }

    /// When the last one ends, or has ended.
    fn last_until(&self) -> Instant {
        self.held_until.max(self.until)
    }
}

impl Volume {
    /// Reads may be answered, and writes to the backing begun (L3).
    pub(super) fn has_lease(&self) -> bool {
        (self.lease.runs(self.now) && !self.replication.own_role.is_stepping_down())
            || planted!(self, read_without_lease)
    }

    /// While a write to the backing or the journal is under way: when the last lease under which one was begun ends, or has ended. A
    /// machine whose daemon cannot say so in time is reset by its watchdog (H1).
    pub fn late_writes(&self) -> Option<Instant> {
        let rests = self.backing_rests() && !self.journal_is_writing();
        (!rests).then(|| self.lease.last_until())
    }

    /// What waited for a lease goes on.
    pub(super) fn lease_is_back(&mut self) {
        if !self.has_lease() {
            return;
        }
        self.answer_ready_reads();
        self.write_out_leaseless();
    }
}
