//! How far the log is: the positions up to which it was accepted, held, synced, committed, made durable and destaged.
//!
//! Only this file changes one of them, and each change is named by what has happened. Apart from the three that set the log
//! up anew ([`Positions::begin_start`], [`Positions::begin_log`], [`Positions::begin_at`]) none takes a position back.
//!
//! # The chain
//!
//! Of a node that serves, alone or as the owner of a term:
//!
//! ```text
//! destaged <= durable <= committed <= held <= accepted
//! destaged <= synced  <= held
//! ```
//!
//! - What goes to the backing is committed (D1), and what is committed is held by the own tier as well.
//! - A record ends by a checkpoint, and a checkpoint counts when a sync of the tier has ended that began after it was written:
//!   that sync covers all that the tier held by then. So what has ended in the log was durable in its medium.
//! - Between `synced` and `durable` there is no order, nor between `synced` and `committed`: on flash, records reach the backing,
//!   and the members, before the tier is synced.
//!
//! A member that follows, and an owner before it serves, know by another's word what is committed and what the backing has.
//! On flash both may be ahead of what the own tier has completed, and the checkpoint may say so. What is left is
//!
//! ```text
//! destaged <= durable <= committed <= accepted
//! synced   <= held    <= accepted
//! ```
//!
//! While a tier is being read there is no chain: `destaged` and `durable` are known first.
//!
//! [`Positions::validate`] asserts this: after each step of the simulation, and wherever debug assertions are on.
//!
//! Left to others: what follows from a position that has moved (the acknowledgement rule, [`super::acks`]; destage).

use super::*;

/// See the module.
pub(super) struct Positions {
    accepted: Lsn,
    held: Lsn,
    /// The newest record that was accepted, and the newest that is held: positions behind it have none.
    last_record: Lsn,
    record_held: Lsn,
    committed: Lsn,
    synced: Lsn,
    durable: Lsn,
    destaged: Lsn,
    recovered: Lsn,
    /// What is durable may have been superseded instead of destaged: until the log holds everything up to here, the
    /// checkpoint must not let go of it.
    checkpoint_after: Lsn,
}

impl Positions {
    /// Of a log that nothing has come to yet.
    pub(super) fn new() -> Positions {
        let none = Lsn(0);
        Positions {
            accepted: none,
            held: none,
            last_record: none,
            record_held: none,
            committed: none,
            synced: none,
            durable: none,
            destaged: none,
            recovered: none,
            checkpoint_after: none,
        }
    }

    /// Everything up to here has its place in the log.
    pub(super) fn accepted(&self) -> Lsn {
        self.accepted
    }

    /// The tier has completed everything up to here.
    pub(super) fn held(&self) -> Lsn {
        self.held
    }

    /// The newest record among what is held: behind it there are only positions without one.
    pub(super) fn record_held(&self) -> Lsn {
        self.record_held
    }

    /// Every member of the log holds everything up to here; where one node has the volume to itself, it does.
    pub(super) fn committed(&self) -> Lsn {
        self.committed
    }

    /// The tier's medium has everything up to here. A memory tier has no medium below it: what it holds is as safe as it gets.
    pub(super) fn synced(&self) -> Lsn {
        self.synced
    }

    /// The backing has synced everything up to here.
    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    /// The tier, and every member, knows by a durable checkpoint that the backing has everything up to here: those records end.
    pub(super) fn destaged(&self) -> Lsn {
        self.destaged
    }

    /// Where the log of the earlier life ended, or of the earlier term.
    pub(super) fn recovered(&self) -> Lsn {
        self.recovered
    }

    /// Asserts the chain. `serves`: requests are answered, or were until a stop began.
    pub(super) fn validate(&self, serves: bool) {
        assert!(self.destaged <= self.durable, "a record has ended that the backing does not have");
        assert!(self.durable <= self.committed, "D1: the backing has what some member may not hold");
        assert!(self.committed <= self.accepted, "something is committed that is not in the log");
        assert!(self.synced <= self.held, "the tier's medium has more than the tier");
        assert!(self.held <= self.accepted, "the tier holds more than the log");
        if serves {
            assert!(self.committed <= self.held, "the own tier does not hold what all are said to hold");
            assert!(self.destaged <= self.synced, "a record has ended by a checkpoint that was not synced after it");
        }
    }

    // --- the log is set up ---

    /// A tier's checkpoint says that everything up to here is history.
    pub(super) fn begin_start(&mut self, destaged: Lsn) {
        (self.destaged, self.durable) = (destaged, destaged);
    }

    /// What an earlier life left is known, made durable in the tier, and goes on behind `last`; of it, all members are known to
    /// hold what lies up to `committed`.
    pub(super) fn begin_log(&mut self, last: Lsn, committed: Lsn) {
        (self.accepted, self.held, self.synced) = (last, last, last);
        (self.last_record, self.record_held) = (last, last);
        self.recovered = last;
        self.committed = committed;
    }

    /// The earlier life has left nothing that the backing does not have.
    pub(super) fn begin_empty(&mut self) {
        (self.destaged, self.durable) = (self.accepted, self.accepted);
    }

    /// The log of a learner begins behind this position: what is up to it, the backing has.
    pub(super) fn begin_at(&mut self, first: Lsn) {
        (self.accepted, self.held, self.synced) = (first, first, first);
        (self.durable, self.destaged, self.committed) = (first, first, first);
    }

    /// The tail of a term is fixed: what there is now is of earlier ones.
    pub(super) fn fix_tail(&mut self) -> Lsn {
        self.recovered = self.accepted;
        self.accepted
    }

    // --- it moves on ---

    /// A record was put into the log, at the next position; at a member it may be further on, and nothing lies between.
    pub(super) fn accept_record(&mut self, lsn: Lsn) {
        (self.accepted, self.last_record) = (lsn, lsn);
    }

    /// Up to here there is nothing but what was accepted: positions behind it have no record any more.
    pub(super) fn accept_through(&mut self, lsn: Lsn) {
        self.accepted = self.accepted.max(lsn);
    }

    /// The tier has completed everything up to here: it is that of a record, or all that is accepted.
    pub(super) fn hold(&mut self, lsn: Lsn) {
        self.held = self.held.max(lsn);
        self.record_held = self.record_held.max(lsn.min(self.last_record));
    }

    /// The tier's medium has everything up to here.
    pub(super) fn sync(&mut self, lsn: Lsn) {
        self.synced = self.synced.max(lsn);
    }

    /// All members are known to hold everything up to here. True: that is news.
    pub(super) fn commit(&mut self, lsn: Lsn) -> bool {
        let more = lsn > self.committed;
        self.committed = self.committed.max(lsn);
        more
    }

    /// The backing has synced everything up to here. True: that is news.
    pub(super) fn make_durable(&mut self, lsn: Lsn) -> bool {
        let more = lsn > self.durable;
        self.durable = self.durable.max(lsn);
        more
    }

    /// Everybody who must know has it in a durable checkpoint that the backing has everything up to here.
    pub(super) fn retire(&mut self, lsn: Lsn) {
        self.destaged = self.destaged.max(lsn);
    }

    /// No checkpoint is written before the tier holds all that is accepted by now: some of what is durable may have been
    /// superseded by it instead of destaged.
    pub(super) fn checkpoint_after_accepted(&mut self) {
        self.checkpoint_after = self.accepted;
    }

    /// The log holds what a checkpoint must not be ahead of.
    pub(super) fn checkpoint_may_be_written(&self) -> bool {
        self.held >= self.checkpoint_after
    }
}
