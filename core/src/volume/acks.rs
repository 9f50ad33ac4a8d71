//! Who waits for what: the acknowledgement rule.
//!
//! A request is answered on one of several grounds: the members of the log hold everything up to it, their media have
//! synced everything up to it, the backing has its own blocks, or the backing has synced everything up to it. Which ground
//! holds for a request is fixed when it is accepted. It becomes a stricter one while it waits when the record has too few
//! members: the backing must have it *as well*. When there are enough again it returns to the log, a write to its own
//! position, a flush to what was accepted when copies were lost. That every member holds it is part of all grounds (A1, A2).

use super::*;
use alloc::collections::BTreeMap;

#[derive(Debug)]
struct Waiter {
    lsn: Lsn,
    id: RequestId,
    since: Instant,
    /// Since when it waits on whichever ground.
    asked: Instant,
    /// It waits for the backing for want of copies only: else for all to hold what is up to here.
    held_by: Option<Lsn>,
}

#[derive(Debug)]
struct Through {
    id: RequestId,
    first: Lsn,
    left: u32,
    since: Instant,
    asked: Instant,
}

/// Requests that wait, by ground.
#[derive(Default)]
pub(super) struct Acks {
    /// In order of their positions.
    held: VecDeque<Waiter>,
    synced: VecDeque<Waiter>,
    vouched: VecDeque<Waiter>,
    /// Write-through: by the position of their last record.
    written: BTreeMap<Lsn, Through>,
}

/// On which ground a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ground {
    /// Every member's log holds it.
    Held,
    /// Every member's medium has synced it.
    Synced,
    /// The backing has completed so many records of it.
    Written(u32),
    /// The backing has synced it, and the tier vouches for it: else a power loss that takes the log's unsynced tail would
    /// leave older records, and the next start would send those over it.
    Vouched,
}

impl Acks {
    /// A flush or FUA waits for a sync of the tier, and one begun now would cover it. `media`: who waits for the media waits
    /// for this one, too.
    pub(super) fn tier_sync_would_help(&self, held: Lsn, synced: Lsn, media: bool) -> bool {
        let waits = |waiter: &Waiter| waiter.lsn <= held && waiter.lsn > synced;
        (media && self.synced.iter().any(waits)) || self.vouched.iter().any(waits)
    }

    /// The last position for which somebody waits for the media.
    pub(super) fn last_awaiting_sync(&self) -> Lsn {
        self.synced.iter().map(|waiter| waiter.lsn).max().unwrap_or(Lsn(0))
    }

    /// A flush or FUA waits for the tier to have, and to have synced, what comes before it.
    pub(super) fn awaits_tier_sync(&self) -> bool {
        !self.synced.is_empty() || !self.vouched.is_empty()
    }

    /// A flush or FUA waits for the backing's sync.
    pub(super) fn wants_backing_sync(&self) -> bool {
        !self.vouched.is_empty()
    }

    /// Somebody waits until the backing has something.
    pub(super) fn await_backing(&self) -> bool {
        !self.vouched.is_empty() || !self.written.is_empty()
    }

    /// Somebody waits who has since then.
    pub(super) fn wait_since(&self, then: Instant) -> bool {
        let waiters = self.held.iter().chain(&self.synced).chain(&self.vouched);
        waiters
            .map(|waiter| waiter.since)
            .chain(self.written.values().map(|through| through.since))
            .any(|since| since <= then)
    }

    /// Since when the one has waited that has waited longest; none: nobody waits.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        let waiters = self.held.iter().chain(&self.synced).chain(&self.vouched).map(|waiter| waiter.asked);
        waiters.chain(self.written.values().map(|through| through.asked)).min()
    }

    /// This request waits for its answer.
    fn has(&self, id: RequestId) -> bool {
        let mut waiters = self.held.iter().chain(&self.synced).chain(&self.vouched);
        waiters.any(|waiter| waiter.id == id) || self.written.values().any(|through| through.id == id)
    }

    /// Nobody waits for anything.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.synced.is_empty() && self.vouched.is_empty() && self.written.is_empty()
    }
}

impl Volume {
    /// How a write is answered now.
    pub(super) fn write_ground(&self, fua: bool, records: u32) -> Ground {
        match (self.control.effective, fua) {
            (Policy::Back, false) => Ground::Held,
            (Policy::Through, false) => Ground::Written(records),
            (Policy::Back | Policy::Through, true) => self.flush_ground(),
        }
    }

    /// How a flush is answered now.
    pub(super) fn flush_ground(&self) -> Ground {
        let by_backing = self.config.cluster.is_some_and(|cluster| cluster.flush == Flush::Destage);
        match self.control.effective {
            Policy::Back if !by_backing => Ground::Synced,
            Policy::Back | Policy::Through => Ground::Vouched,
        }
    }

    /// Answers the request when its ground is reached.
    pub(super) fn answer_at(&mut self, id: RequestId, lsn: Lsn, ground: Ground) {
        self.answer_on(id, lsn, ground, self.now);
    }

    /// The same of one that may have waited on another ground before. `asked`: since when it waits.
    fn answer_on(&mut self, id: RequestId, lsn: Lsn, ground: Ground, asked: Instant) {
        if self.holds(ground, lsn) {
            return self.answer(id, Ok(()));
        }
        let since = self.now;
        match ground {
            Ground::Held => {
                let held = &mut self.acks.held;
                let place = match held.back() {
                    Some(last) if last.lsn > lsn => held.partition_point(|waiter| waiter.lsn <= lsn),
                    Some(_) | None => held.len(),
                };
                held.insert(place, Waiter { lsn, id, since, asked, held_by: None });
            }
            Ground::Synced => self.acks.synced.push_back(Waiter { lsn, id, since, asked, held_by: None }),
            Ground::Written(left) => {
                let first = Lsn(lsn.0 + 1 - u64::from(left));
                self.acks.written.insert(lsn, Through { id, first, left, since, asked });
            }
            Ground::Vouched => self.acks.vouched.push_back(Waiter { lsn, id, since, asked, held_by: None }),
        }
    }

    /// The log has this write, or what this flush is about; what is left is its answer, on whichever ground.
    pub fn awaits_answer(&self, id: RequestId) -> bool {
        self.acks.has(id)
    }

    /// There is this ground now, for everything up to here.
    fn holds(&self, ground: Ground, lsn: Lsn) -> bool {
        match ground {
            Ground::Held => self.positions.committed() >= lsn || planted!(self, acknowledge_before_held),
            Ground::Synced => self.flushed() >= lsn || planted!(self, flush_without_sync),
            // Each record is counted when the backing has completed it, and none has by now.
            Ground::Written(_) => false,
            Ground::Vouched => self.vouched(lsn),
        }
    }

    /// An owner that is none any more answers nothing, not even errors: its clients' sessions end, and who takes over
    /// answers (T9).
    pub(super) fn is_mute(&self) -> bool {
        self.replication.own_role.is_mute()
    }

    pub(super) fn answer(&mut self, id: RequestId, result: Result<(), RequestError>) {
        if self.is_mute() || (result.is_err() && !planted!(self, time_failures)) {
            self.recorder.forget(id);
        } else {
            self.recorder.answered(id, false, self.now);
        }
        if !self.is_mute() {
            self.effects.push_back(Effect::Reply { id, result: result.map(|()| Pieces::new()) });
        }
    }

    /// The tier has completed everything up to here.
    pub(super) fn on_held(&mut self, lsn: Lsn) {
        self.positions.hold(lsn);
        match self.role() {
            Role::Alone | Role::Owner => self.commit(),
            Role::Follower => self.replication.follower.answer(),
        }
        if self.flash.is_none() {
            // Memory has no medium below it to sync: what a flush can promise is already so.
            self.on_synced(self.positions.held());
        }
    }

    /// Somebody holds more, or fewer are asked (A1).
    pub(super) fn commit(&mut self) {
        if self.replication.own_role.is_stepping_down() && !planted!(self, commit_alone_at_the_end) {
            return;
        }
        let all = self.held_by_all();
        if self.positions.commit(all) {
            self.keep_whole();
            self.publish_watermark();
        }
        self.note_members_hold();
        while let Some(first) = self.acks.held.front()
            && first.lsn <= self.positions.committed()
        {
            let id = first.id;
            self.acks.held.pop_front();
            self.answer(id, Ok(()));
        }
        self.answer_ready_reads();
        self.write_checkpoint();
        if self.role() == Role::Owner {
            self.answer_flushed();
        }
    }

    /// The own tier, and everybody who is asked, holds everything up to here (A1).
    fn held_by_all(&self) -> Lsn {
        let own = self.positions.held();
        if planted!(self, acknowledge_before_members) { own } else { self.replication.members.held_by_all(own) }
    }

    fn note_members_hold(&mut self) {
        if !self.recorder.awaits_any() {
            return;
        }
        if self.replication.members.is_alone() {
            self.recorder.awaits_none();
        } else {
            self.recorder.held_by_members(self.replication.members.held_by_all(Lsn(u64::MAX)), self.now);
        }
    }

    /// Who waits for the media waits for those of all (A2). False: holding is all that is promised. More than the record says
    /// may be promised, less never.
    pub(super) fn flush_is_media(&self) -> bool {
        let Some(cluster) = &self.config.cluster else { return true };
        if self.durable_is_promised() {
            return true;
        }
        let all_on_flash =
            || self.flash.is_some() && self.replication.members.synced_by_all(self.positions.synced()).is_some();
        match cluster.flush {
            Flush::Media => true,
            Flush::Best => self.replication.members.is_alone() || all_on_flash(),
            Flush::Replicated | Flush::Destage => false,
        }
    }

    /// Up to here everything is what a flush promises, with the members of now (A2).
    fn flushed(&self) -> Lsn {
        let own_only = self.replication.members.is_alone() || planted!(self, flush_by_own_sync);
        if own_only && self.flush_is_media() {
            return self.positions.synced();
        }
        match self.flush_is_media() {
            true => self
                .replication
                .members
                .synced_by_all(self.positions.synced())
                .unwrap_or(Lsn(0))
                .min(self.positions.committed()),
            false => self.positions.committed(),
        }
    }

    pub(super) fn on_synced(&mut self, lsn: Lsn) {
        self.positions.sync(lsn);
        match self.role() {
            Role::Alone | Role::Owner => self.answer_flushed(),
            Role::Follower => self.replication.follower.answer(),
        }
    }

    fn answer_flushed(&mut self) {
        let flushed = self.flushed();
        // Not sorted: a FUA write of a large position may stand before a flush of a small one.
        let mut kept = VecDeque::new();
        while let Some(waiter) = self.acks.synced.pop_front() {
            if waiter.lsn <= flushed {
                self.answer(waiter.id, Ok(()));
            } else {
                kept.push_back(waiter);
            }
        }
        self.acks.synced = kept;
        self.answer_vouched();
    }

    /// The backing has completed a record.
    pub(super) fn on_written(&mut self, lsn: Lsn) {
        let Some((&last, through)) = self.acks.written.range_mut(lsn..).next() else { return };
        // Positions of one request are neighbours and requests do not share any, so the first entry at or after the
        // record is its own, if the record was written through at all.
        if lsn < through.first {
            return;
        }
        through.left -= 1;
        if through.left == 0 {
            let (id, asked) = (through.id, through.asked);
            self.recorder.backed(id, self.now - through.since);
            self.acks.written.remove(&last);
            // Every member holds what goes to the backing (D1), or who takes over would destage older records over it (A1).
            self.answer_on(id, last, Ground::Held, asked);
        }
    }

    /// The record has too few members: who waits for the log alone waits for the backing as well (A1). What of it was superseded
    /// will never be written itself, so all that is in the log now is waited for, and what superseded it with that. `back_until`:
    /// of what came later the backing has completed what waits for the log.
    pub(super) fn await_backing_too(&mut self, back_until: Lsn) {
        let (lsn, since) = (self.positions.accepted(), self.now);
        while let Some(waiter) = self.acks.held.pop_front_if(|waiter| waiter.lsn <= back_until) {
            self.acks.vouched.push_back(Waiter { lsn, since, held_by: Some(waiter.lsn), ..waiter });
        }
        self.await_backing_for_flushes();
        self.answer_vouched();
    }

    /// Flushes are to have the backing from now on: those that wait for media do, too, which nobody may have who is a member by
    /// then.
    pub(super) fn await_backing_for_flushes(&mut self) {
        for Waiter { id, asked, .. } in core::mem::take(&mut self.acks.synced) {
            self.answer_on(id, self.positions.accepted(), Ground::Vouched, asked);
        }
    }

    /// The policy is write-back now: who waited for the backing waits for the log, a flush for what a flush waits for now.
    /// Records may be superseded in the log after this, and are never written themselves then.
    pub(super) fn return_to_log(&mut self) {
        for (lsn, through) in core::mem::take(&mut self.acks.written) {
            self.answer_on(through.id, lsn, Ground::Held, through.asked);
        }
        if planted!(self, waits_on_for_backing) {
            return;
        }
        let flushes = self.flush_ground();
        for waiter in core::mem::take(&mut self.acks.vouched) {
            match waiter.held_by {
                Some(lsn) => self.answer_on(waiter.id, lsn, Ground::Held, waiter.asked),
                None if flushes == Ground::Vouched => self.acks.vouched.push_back(waiter),
                None => self.answer_on(waiter.id, waiter.lsn, flushes, waiter.asked),
            }
        }
    }

    /// Everything that is not durable will be written again: what was counted as written no longer counts.
    pub(super) fn recount_written(&mut self) {
        if planted!(self, count_lost_writes) {
            return;
        }
        for through in self.acks.written.values_mut() {
            through.left = 0;
        }
        let mut id = self.index.oldest();
        while let Some(at) = id {
            let lsn = self.index.get(at).descriptor.lsn;
            if let Some((_, through)) = self.acks.written.range_mut(lsn..).next()
                && lsn >= through.first
                && lsn > self.positions.durable()
            {
                through.left += 1;
            }
            id = self.index.after(at);
        }
    }

    /// The backing's sync, the tier's sync or the checkpoint has got further.
    pub(super) fn answer_vouched(&mut self) {
        for waiter in core::mem::take(&mut self.acks.vouched) {
            if self.vouched(waiter.lsn) {
                self.recorder.backed(waiter.id, self.now - waiter.since);
                self.answer(waiter.id, Ok(()));
            } else {
                self.acks.vouched.push_back(waiter);
            }
        }
    }

    /// A stop does not wait for a backing that does not answer. What is in the log stays there; nobody was promised more.
    pub(super) fn abandon_backing_waiters(&mut self) {
        let mut open: Vec<RequestId> = core::mem::take(&mut self.acks.vouched).into_iter().map(|w| w.id).collect();
        open.extend(core::mem::take(&mut self.acks.written).into_values().map(|through| through.id));
        for id in open {
            self.answer(id, Err(RequestError::Shutdown));
        }
    }

    /// The tier failed: what it does not hold can be promised on no ground, because destage waits for it too.
    pub(super) fn fail_tier_waiters(&mut self) {
        let mut failed: Vec<RequestId> = Vec::new();
        for queue in [&mut self.acks.held, &mut self.acks.synced, &mut self.acks.vouched] {
            failed.extend(core::mem::take(queue).into_iter().map(|waiter| waiter.id));
        }
        failed.extend(core::mem::take(&mut self.acks.written).into_values().map(|through| through.id));
        for id in failed {
            self.answer(id, Err(RequestError::Io));
        }
    }
}
