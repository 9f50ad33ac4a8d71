//! Commands: policy, drain, hold, resize, stop.

use super::*;
use crate::status::HoldEnd;

/// Fill at which a hold is given up, of blocks and of records without any, so that clients never stop for a backup.
const HOLD_FILL_MAX: f64 = 0.9;
/// So long a write may wait for room under a hold: compaction makes some, perhaps.
const HOLD_WAIT_MAX: Duration = Duration::from_millis(500);
/// While changing to write-through the log counts as small enough to switch below this many live blocks.
const SWITCH_BLOCKS_MAX: u32 = 256;
/// How long a stop waits for requests that only the backing can finish.
pub const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A drain under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// Everything up to here must be durable in the backing.
    pub(super) through: Lsn,
    id: ControlId,
    then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    GoOn,
    KeepThrough,
    Hold(Duration),
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    No,
    Until(Instant),
    Ended(HoldEnd),
}

/// See the module.
pub(super) struct ControlState {
    pub(super) requested: Policy,
    /// How writes are acknowledged from now on; what is shown is [`Volume::policy_kept`].
    pub(super) effective: Policy,
    /// Records up to here may have been acknowledged because the tier has them.
    back_until: Lsn,
    pub(super) reason: Reason,
    pub(super) reason_since: Instant,
    pub(super) goal: Option<Goal>,
    hold: Hold,
    /// The backing is kept complete, or on the way to it: writes go through until a release.
    keep_through: bool,
    stopping: Option<ControlId>,
    /// A stop was to empty the log first, and the tier has failed.
    drain_failed: bool,
    /// When a stop gives up on requests that wait for the backing.
    abandon_at: Instant,
    /// How long the log may take to drain ([`VolumeConfig::drain_max`]).
    pub(super) drain_max: Duration,
    resize: Option<(ControlId, u64)>,
    final_checkpoint: bool,
}

impl ControlState {
    pub(super) fn new(policy: Policy, drain_max: Duration, now: Instant) -> ControlState {
        ControlState {
            requested: policy,
            effective: policy,
            back_until: Lsn(0),
            reason: Reason::AsRequested,
            reason_since: now,
            goal: None,
            hold: Hold::No,
            keep_through: false,
            stopping: None,
            drain_failed: false,
            abandon_at: now,
            drain_max,
            resize: None,
            final_checkpoint: false,
        }
    }

    /// The backing is to be left unchanged.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.hold, Hold::Until(_))
    }

    /// Time until a hold ends by itself.
    pub(super) fn hold_left(&self, now: Instant) -> Option<Duration> {
        match self.hold {
            Hold::Until(end) => Some(Duration(end.0.saturating_sub(now.0))),
            Hold::No | Hold::Ended(_) => None,
        }
    }

    /// Destage goes no further than this.
    pub(super) fn destage_stops_after(&self) -> Option<Lsn> {
        match (&self.goal, self.hold) {
            (_, Hold::Until(_)) => Some(Lsn(0)),
            (Some(Goal { through, then: Then::Hold(_), .. }), _) => Some(*through),
            _ => None,
        }
    }

    /// The size that a checkpoint is to make the volume's.
    pub(super) fn size_wanted(&self) -> Option<u64> {
        self.resize.map(|(_, bytes)| bytes)
    }

    /// A drain has emptied the log, and what stops now leaves nothing to the next start.
    pub(super) fn is_ending_clean(&self) -> bool {
        self.final_checkpoint
    }

    pub(super) fn timeout(&self, now: Instant) -> Option<Instant> {
        let hold = match self.hold {
            Hold::Until(end) => Some(end),
            Hold::No | Hold::Ended(_) => None,
        };
        let abandon = self.stopping.map(|_| self.abandon_at).filter(|at| *at > now);
        [hold, abandon].into_iter().flatten().min()
    }
}

impl Volume {
    pub(super) fn on_control(&mut self, id: ControlId, command: Control) {
        if self.phase != Phase::Serving {
            return self.answer_control(id, Err(ControlError::Busy));
        }
        match command {
            Control::SetPolicy(_) | Control::Hold(_) | Control::DrainThrough if self.control.keep_through => {
                self.answer_control(id, Err(ControlError::Busy));
            }
            Control::SetPolicy(policy) => {
                self.control.requested = policy;
                self.switch_to(policy);
                self.answer_control(id, Ok(()));
            }
            Control::DrainThrough => {
                if self.begin_goal(id, Then::KeepThrough) {
                    self.control.keep_through = true;
                    self.switch_to(Policy::Through);
                }
            }
            Control::Release if self.control.keep_through => self.release_keeping(id),
            Control::SetDestage(mode) => {
                self.journal.requested = mode;
                self.choose_mode();
                self.answer_control(id, Ok(()));
            }
            Control::SetDrainMax(most) => {
                self.control.drain_max = most;
                self.answer_control(id, Ok(()));
            }
            Control::Drain => {
                self.begin_goal(id, Then::GoOn);
            }
            Control::Hold(span) => {
                self.begin_goal(id, Then::Hold(span));
            }
            Control::Release => self.release_hold(id),
            Control::Resize(bytes) => self.begin_resize(id, bytes),
            Control::Stop { drain } => self.begin_stopping(id, drain),
        }
    }

    /// The image need not be kept complete any more.
    fn release_keeping(&mut self, id: ControlId) {
        self.end_keeping();
        if let Some(goal) = self.control.goal.take_if(|goal| goal.then == Then::KeepThrough) {
            self.answer_control(goal.id, Err(ControlError::HoldEnded(HoldEnd::Released)));
        }
        self.answer_control(id, Ok(()));
    }

    /// The backing may be written to again.
    fn release_hold(&mut self, id: ControlId) {
        // A hold that has not begun never will: who asked for it may have gone away.
        if let Some(goal) = self.control.goal.take_if(|goal| matches!(goal.then, Then::Hold(_))) {
            self.answer_control(goal.id, Err(ControlError::HoldEnded(HoldEnd::Released)));
        }
        let result = match self.control.hold {
            Hold::Until(_) => Ok(()),
            Hold::Ended(end) => Err(ControlError::HoldEnded(end)),
            Hold::No => Err(ControlError::NotHeld),
        };
        self.control.hold = Hold::No;
        self.answer_control(id, result);
    }

    /// Answered when a durable checkpoint has the new size, and with other members the record (A7).
    fn begin_resize(&mut self, id: ControlId, bytes: u64) {
        let fits = bytes >= self.size_bytes && bytes <= VOLUME_BYTES_MAX && bytes.is_multiple_of(SECTOR_BYTES);
        if !fits {
            return self.answer_control(id, Err(ControlError::BadSize));
        }
        if self.tier.has_failed() {
            return self.answer_control(id, Err(ControlError::TierFailed));
        }
        if self.control.resize.is_some() {
            return self.answer_control(id, Err(ControlError::Busy));
        }
        if planted!(self, grow_before_checkpoint) {
            self.size_bytes = bytes;
            return self.answer_control(id, Ok(()));
        }
        self.control.resize = Some((id, bytes));
        match self.role() {
            Role::Owner => self.publish_size(bytes),
            Role::Alone | Role::Follower => {
                self.checkpoints.want();
                self.write_checkpoint();
            }
        }
    }

    /// Nothing new is taken from here on. With a drain the log is emptied first.
    fn begin_stopping(&mut self, id: ControlId, drain: bool) {
        if let Some(goal) = self.control.goal.take() {
            self.answer_control(goal.id, Err(ControlError::Busy));
        }
        self.control.hold = Hold::No;
        self.phase = Phase::Stopping;
        self.set_reason(Reason::Stopping);
        self.refuse_waiting(RequestError::Shutdown);
        if drain {
            self.begin_goal(id, Then::Stop);
        } else {
            self.begin_stop(id);
        }
    }

    /// From here on writes are acknowledged by this policy; to write-through only when the log is small enough.
    fn switch_to(&mut self, policy: Policy) {
        match policy {
            // Also where it is so already for want of copies: it goes on when there are enough.
            Policy::Through => self.set_reason(Reason::Draining),
            // The backing is needed as well, whatever is asked for.
            Policy::Back if self.role() == Role::Owner && (self.has_few_copies() || !self.log_may_stand()) => {
                self.set_reason(Reason::TooFewPeers);
            }
            Policy::Back => {
                self.control.effective = Policy::Back;
                self.return_to_log();
                self.set_reason(Reason::AsRequested);
            }
        }
    }

    /// With too few copies, or a record that does not let logs alone stand for anything, the backing must have a write as
    /// well (A1, A5).
    pub(super) fn look_at_copies(&mut self) {
        if self.role() != Role::Owner {
            return;
        }
        let few = self.has_few_copies() && !planted!(self, ignore_min_peers);
        let must = few || !self.log_may_stand();
        if must {
            if self.control.effective == Policy::Back {
                self.control.effective = Policy::Through;
                self.control.back_until = self.positions.accepted();
                self.close_group();
                self.set_reason(Reason::TooFewPeers);
            } else if planted!(self, leaves_waiters_of_before) {
                return;
            }
            // Also those that wait from before another reason made writes wait for the backing.
            self.await_backing_too(self.control.back_until);
        } else if self.control.reason == Reason::TooFewPeers {
            // An image that is being completed, or is to be kept complete, stays so.
            self.switch_to(if self.control.keep_through { Policy::Through } else { self.control.requested });
        }
    }

    fn has_few_copies(&self) -> bool {
        let learners_count = planted!(self, count_learners);
        let copies =
            if learners_count { self.replication.members.peers.len() } else { self.replication.members.copies() };
        copies < self.cluster().min_peers as usize
    }

    /// One peer less, and the backing would have to have every write: what is dirty then must drain soon (A6).
    pub(super) fn has_no_spare(&self) -> bool {
        self.role() == Role::Owner
            && self.cluster().min_peers > 0
            && self.replication.members.copies() <= self.cluster().min_peers as usize
    }

    /// Nothing that is asked for keeps logs alone from standing for what is acknowledged (A5).
    pub(super) fn wants_log(&self) -> bool {
        self.control.requested == Policy::Back && !self.control.keep_through && !self.has_few_copies()
    }

    /// The requested policy is the one again.
    fn end_keeping(&mut self) {
        self.control.keep_through = false;
        self.switch_to(self.control.requested);
    }

    /// The record has this size: requests beyond the old end are taken from here on (A7).
    pub(super) fn take_size(&mut self, bytes: u64) {
        self.size_bytes = self.size_bytes.max(bytes);
        if let Some((id, _)) = self.control.resize.take_if(|(_, wanted)| *wanted <= bytes) {
            self.answer_control(id, Ok(()));
        }
    }

    /// A durable checkpoint has this size: a resize to it has taken effect.
    pub(super) fn end_resize(&mut self, written_bytes: u64) {
        // An owner's size is that of the record, which follows when all members have it (A7).
        if let Some((id, bytes)) = self.control.resize
            && bytes == written_bytes
            && self.role() != Role::Owner
        {
            self.control.resize = None;
            self.size_bytes = bytes;
            self.answer_control(id, Ok(()));
        }
    }

    /// The tier failed: the checkpoint that a resize waits for will not be written.
    pub(super) fn fail_resize(&mut self) {
        if let Some((id, _)) = self.control.resize.take() {
            self.answer_control(id, Err(ControlError::TierFailed));
        }
    }

    fn begin_stop(&mut self, id: ControlId) {
        self.control.stopping = Some(id);
        self.control.abandon_at = self.now + STOP_PATIENCE;
    }

    /// Requests that only the backing can finish are answered: nobody knows whether they took effect.
    fn abandon_requests(&mut self) {
        self.abandon_writes();
        self.abandon_reads();
        self.abandon_backing_waiters();
    }

    fn set_reason(&mut self, reason: Reason) {
        if self.control.reason != reason {
            self.control.reason = reason;
            self.control.reason_since = self.now;
        }
    }

    fn answer_control(&mut self, id: ControlId, result: Result<(), ControlError>) {
        self.effects.push_back(Effect::Answer { id, result });
    }

    /// False: refused, and answered.
    fn begin_goal(&mut self, id: ControlId, then: Then) -> bool {
        if self.control.goal.is_some() || self.control.is_held() {
            self.answer_control(id, Err(ControlError::Busy));
            return false;
        }
        self.control.hold = Hold::No;
        // A barrier of our own: what comes later must not reach the backing with, or instead of, what is there now.
        self.close_group();
        self.control.goal = Some(Goal { through: self.positions.accepted(), id, then });
        true
    }

    /// A hold ends by its time, or when clients would have to wait for its end: before destage is looked at, which goes on by it.
    pub(super) fn expire_hold(&mut self) {
        let Hold::Until(until) = self.control.hold else { return };
        let end = match self.now >= until {
            true => Some(HoldEnd::Time),
            false if planted!(self, hold_however_full) => None,
            false => self.hold_is_in_the_way(),
        };
        if let Some(end) = end {
            self.control.hold = Hold::Ended(end);
        }
    }

    /// Why a hold cannot go on.
    fn hold_is_in_the_way(&self) -> Option<HoldEnd> {
        let few_segments = self.flash.as_ref().is_some_and(|flash| flash.free_segments() < 3);
        if self.backing_is_needed() {
            Some(HoldEnd::BackingNeeded)
        } else if self.fill() > HOLD_FILL_MAX || few_segments {
            Some(HoldEnd::TierFull)
        } else if self.pressure() > HOLD_FILL_MAX {
            Some(HoldEnd::DrainTime)
        } else if self.others_pressure() > HOLD_FILL_MAX && !planted!(self, hold_forgets_ranges) {
            Some(HoldEnd::RangesFull)
        } else {
            self.hold_gives_room_at().is_some_and(|at| self.now >= at).then_some(HoldEnd::TierFull)
        }
    }

    /// When a hold ends because a write has waited too long for room.
    pub(super) fn hold_gives_room_at(&self) -> Option<Instant> {
        let ends = self.control.is_held() && !planted!(self, hold_however_full);
        self.without_room_until(HOLD_WAIT_MAX).filter(|_| ends)
    }

    /// A request waits for the backing, or there are too few copies to leave anything to the log.
    fn backing_is_needed(&self) -> bool {
        self.acks.await_backing() || (self.role() == Role::Owner && self.has_few_copies())
    }

    /// How much of the places for records without payload is used.
    fn others_pressure(&self) -> f64 {
        let used = f64::from(self.index.others());
        used / (used + f64::from(self.index.others_left())).max(1.0)
    }

    /// Recovery has filled the log; nobody knows on which ground each of its records was acknowledged.
    pub(super) fn log_was_recovered(&mut self) {
        self.control.back_until = self.positions.accepted();
        // Not where it is for want of copies, which may have been seen before the log was whole: that ends when there are enough.
        if self.control.effective == Policy::Through
            && self.control.reason != Reason::TooFewPeers
            && !self.index.is_empty()
        {
            self.set_reason(Reason::Draining);
        }
    }

    fn settle_policy(&mut self) {
        if self.control.reason != Reason::Draining {
            return;
        }
        if self.control.effective == Policy::Back && self.index.payload_blocks() <= SWITCH_BLOCKS_MAX {
            // The few that are left keep their own ground; from here on writes wait for the backing.
            self.control.effective = Policy::Through;
            self.control.back_until = self.positions.accepted();
            self.close_group();
        }
        if self.policy_kept() == Policy::Through {
            let kept = self.control.keep_through && self.control.requested == Policy::Back;
            self.set_reason(if kept { Reason::DrainedThrough } else { Reason::AsRequested });
        }
    }

    /// The promise that is kept for everything acknowledged: write-through only when nothing that the tier alone holds
    /// is left of the time before.
    pub(super) fn policy_kept(&self) -> Policy {
        let left = !self.index.is_empty() && self.positions.destaged() < self.control.back_until;
        if left && !planted!(self, promise_through_early) { Policy::Back } else { self.control.effective }
    }

    pub(super) fn settle_control(&mut self) {
        self.settle_policy();
        if let Some(goal) = self.control.goal {
            if self.tier.has_failed() && goal.then == Then::Stop {
                // What waits is answered first, as with a stop without a drain.
                self.control.goal = None;
                self.control.drain_failed = true;
                self.begin_stop(goal.id);
            } else if self.tier.has_failed() {
                self.control.goal = None;
                self.finish_goal(goal, Err(ControlError::TierFailed));
            } else if self.is_destaged(&goal) && self.in_order_to(goal.then) {
                self.control.goal = None;
                self.finish_goal(goal, Ok(()));
            } else if goal.then == Then::Stop && self.backing_failing() && self.log_is_quiet() {
                // Stopping does not wait for a backing that does not answer: everything stays in the log.
                self.control.goal = None;
                self.abandon_requests();
                self.finish_goal(goal, Err(ControlError::BackingFailed));
            }
        }
        if let Some(id) = self.control.stopping {
            if !self.destage.ready || self.backing_failing() || self.now >= self.control.abandon_at {
                self.abandon_requests();
            }
            if self.quiet() {
                self.control.stopping = None;
                self.phase = Phase::Stopped;
                // What a failed tier was not synced for, a power cut still takes.
                let synced = self.flash.as_ref().is_none_or(|flash| flash.batch_held == flash.batch_synced);
                // The marker beside the image says what this answer says: clean only where the tier says so as well.
                let is_marked = !self.control.final_checkpoint || self.checkpoints.newest().clean;
                let is_well = synced && !self.control.drain_failed && is_marked;
                self.answer_control(id, if is_well { Ok(()) } else { Err(ControlError::TierFailed) });
            }
        }
    }

    /// A hold begins, and a stop ends, only when nothing is on its way any more.
    fn in_order_to(&mut self, then: Then) -> bool {
        match then {
            Then::GoOn => true,
            Then::KeepThrough => self.policy_kept() == Policy::Through,
            Then::Hold(_) => self.backing_quiet(),
            // Who uses the image without us must not find a journal that would be replayed over his writes.
            Then::Stop if self.replay_is_open() => false,
            Then::Stop => self.quiet() && self.index.is_empty() && self.backing_quiet() && self.journal_is_erased(),
        }
    }

    /// Nothing is on its way to the tier, and what it has is durable.
    fn log_is_quiet(&self) -> bool {
        let is_quiet =
            |flash: &FlashLog| !flash.has_unwritten() && !flash.is_erasing() && flash.batch_held == flash.batch_synced;
        let flash_is_quiet = self.flash.as_ref().is_none_or(is_quiet);
        flash_is_quiet && !self.checkpoints.is_busy() && !self.tier.is_syncing()
    }

    /// Requests have been answered and the tier has synced what it holds.
    fn quiet(&self) -> bool {
        let answered = self.reads.is_empty() && self.acks.is_empty() && self.writes.is_empty();
        // A failed tier has nothing on its way that anybody waits for.
        answered && (self.tier.has_failed() || self.log_is_quiet())
    }

    fn finish_goal(&mut self, goal: Goal, result: Result<(), ControlError>) {
        match (goal.then, result) {
            (Then::GoOn, result) | (Then::KeepThrough, result @ Ok(())) => self.answer_control(goal.id, result),
            (Then::KeepThrough, Err(error)) => {
                self.end_keeping();
                self.answer_control(goal.id, Err(error));
            }
            (Then::Hold(span), Ok(())) => {
                let result = self.hold_is_in_the_way().map_or(Ok(()), |end| Err(ControlError::HoldRefused(end)));
                if result.is_ok() {
                    self.control.hold = Hold::Until(self.now + span);
                }
                self.answer_control(goal.id, result);
            }
            (Then::Stop, Ok(())) => {
                self.control.final_checkpoint = true;
                self.begin_stop(goal.id);
                self.checkpoints.want();
                self.write_checkpoint();
            }
            (Then::Hold(_), Err(error)) => self.answer_control(goal.id, Err(error)),
            (Then::Stop, Err(error)) => {
                self.phase = Phase::Stopped;
                self.answer_control(goal.id, Err(error));
            }
        }
    }
}
