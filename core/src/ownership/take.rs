//! From a won transaction to serving: the others are sealed, the tail is fixed, the members agree on it (T3, T4).

use super::own::{OwnBacking, Owning, Phase};
use super::{BackingAnswer, Effect, Ownership, Role};
use crate::api::{Order, Own};
use crate::cluster::*;
use crate::message::*;
use crate::types::*;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// T3: who is sealed.
#[derive(Clone, Debug)]
pub(super) struct Sealing {
    others: BTreeMap<NodeId, Seal>,
    /// Who has not answered by then is left out.
    until: Instant,
    /// When those who have not are asked again.
    again: Instant,
    /// Who has handed over to this node (K1).
    handed_by: Option<Incarnation>,
}

#[derive(Clone, Debug)]
struct Seal {
    to: Incarnation,
    answer: Option<Sealed>,
}

#[derive(Clone, Copy, Debug)]
struct Sealed {
    held: Lsn,
    watermark: Lsn,
}

impl Sealing {
    fn answered(&self) -> bool {
        self.others.values().all(|seal| seal.answer.is_some())
    }
}

impl Ownership {
    pub(super) fn on_won(&mut self, new: Record) {
        self.opened();
        let Role::Asking(asking) = &mut self.role else { return };
        let former = core::mem::take(&mut asking.former);
        let handed_by = asking.handed_by;
        let from_another = asking.owner.is_some_and(|owner| owner.node != self.own.node);
        self.counters.take_overs += u64::from(from_another);
        self.adopt(new, former, handed_by);
    }

    /// The record names this node as the owner of a term that it does not serve yet. Whoever had its log in the former
    /// record is sealed.
    pub(super) fn adopt(&mut self, record: Record, former: Vec<Incarnation>, handed_by: Option<Incarnation>) {
        let sealed = matches!(&self.role, Role::Asking(asking) if asking.sealed);
        if !sealed {
            self.order(Order::Seal);
        }
        let now = self.now;
        let others = former.into_iter().filter(|member| member.node != self.own.node);
        let others = others.map(|to| (to.node, Seal { to, answer: None })).collect();
        let sealing = Sealing { others, until: now + self.setup.timing.member_drop, again: now, handed_by };
        self.seen = self.seen.max(record.version());
        self.counters.terms_begun += 1;
        self.figures = None;
        self.fresh = false;
        self.wanted_by = None;
        self.gave_way = None;
        self.role = Role::Owning(Box::new(Owning::new(record, sealing, self.own, now)));
        self.remember();
    }

    pub(super) fn on_sealed(&mut self, from: Incarnation, held: Lsn, watermark: Lsn) {
        let Role::Owning(owning) = &mut self.role else { return };
        let Phase::Sealing(sealing) = &mut owning.phase else { return };
        if let Some(seal) = sealing.others.get_mut(&from.node).filter(|seal| seal.to == from) {
            seal.answer = Some(Sealed { held, watermark });
        }
    }

    pub(super) fn settle_sealing(&mut self) {
        let now = self.now;
        let again_after = self.setup.timing.channel_dead;
        let Role::Owning(owning) = &mut self.role else { return };
        let Phase::Sealing(sealing) = &mut owning.phase else { return };
        if now >= sealing.again && !sealing.answered() {
            sealing.again = now + again_after;
            let open = sealing.others.values().filter(|seal| seal.answer.is_none());
            let open: Vec<Incarnation> = open.map(|seal| seal.to).collect();
            for to in open {
                self.send_committed(to);
                self.send(to, OwnershipMessage::Seal);
            }
        }
        let Role::Owning(owning) = &self.role else { return };
        let (Phase::Sealing(sealing), record) = (&owning.phase, &owning.record) else { return };
        let remembered = self.remembered >= record.term && self.figures.is_some();
        if remembered && (sealing.answered() || now >= sealing.until) && now >= self.old_lease_ends() {
            self.fix_tail();
        }
    }

    /// T4: the lease that this node has granted to another owner is over by then. Usually it is long before; not where a
    /// transaction that had been given up has taken effect after all (C2).
    pub(super) fn old_lease_ends(&self) -> Instant {
        let granted = self.last_grant.filter(|_| !planted!(self, serves_under_old_lease));
        granted.map_or(Instant(0), |(at, _)| at + self.setup.timing.lease_elsewhere())
    }

    pub(super) fn sealing_timeout(&self, sealing: &Sealing) -> Option<Instant> {
        let of_others = if sealing.answered() { None } else { Some(sealing.again.min(sealing.until)) };
        let of_lease = self.old_lease_ends();
        [of_others, Some(of_lease)].into_iter().flatten().filter(|at| *at > self.now).min()
    }

    /// T3: the greatest watermark is the own one from here on, and the volume fetches what the longest has more.
    fn fix_tail(&mut self) {
        let own_watermark = planted!(self, own_watermark);
        let Some(figures) = &self.figures else { return };
        let (held, watermark) = (figures.held, figures.mark.watermark);
        let Role::Owning(owning) = &mut self.role else { return };
        let Phase::Sealing(sealing) = &owning.phase else { return };
        let answers = || sealing.others.values().filter_map(|seal| Some((seal.to, seal.answer?)));
        let longest = answers().max_by_key(|(to, sealed)| (sealed.held, *to)).filter(|(_, sealed)| sealed.held > held);
        let greatest =
            answers().map(|(_, sealed)| sealed.watermark).filter(|_| !own_watermark).fold(watermark, Ord::max);
        let record = &owning.record;
        let own = Own {
            term: record.term,
            epoch: record.epoch,
            members: record.members.clone(),
            log: record.log,
            flushed: record.flushed,
            watermark: greatest,
            fetch: longest.map(|(to, sealed)| (to, sealed.held)),
            unfenced: record.unfenced.iter().map(|former| former.term).collect(),
            former: sealing.handed_by,
        };
        let silent: Vec<NodeId> =
            sealing.others.values().filter(|seal| seal.answer.is_none()).map(|seal| seal.to.node).collect();
        for peer in owning.peers.values_mut().filter(|peer| silent.contains(&peer.incarnation.node)) {
            peer.failed = true;
        }
        self.begun = record.term;
        owning.phase = Phase::Agreeing;
        self.order(Order::Own(own));
        self.open_backing(self.setup.timing.backing_wait);
    }

    /// T4. Requests were taken meanwhile by whoever keeps the clients waiting; from here on they reach the volume.
    pub(super) fn on_agreed(&mut self, term: Term) {
        let Role::Owning(owning) = &mut self.role else { return };
        if owning.record.term == term && matches!(owning.phase, Phase::Agreeing) {
            owning.agreed = true;
            // A former owner had grown the volume on this node, and died before the record said so (A7). All members have the
            // size by the answers to `Begin`.
            let size_bytes = self.figures.as_ref().map(|figures| figures.mark.size_bytes);
            owning.grown = size_bytes.filter(|size_bytes| *size_bytes > owning.record.size_bytes);
            self.settle_backing();
            self.settle_custodian();
        }
    }

    // --- the backing (T4) ---

    /// Asks for it; until there is an answer, it counts as out of reach from so much later on.
    fn open_backing(&mut self, wait: Duration) {
        let until = self.now + wait;
        let Role::Owning(owning) = &mut self.role else { return };
        owning.backing = OwnBacking::Awaited { until };
        let term = owning.record.term;
        self.effects.push_back(Effect::OpenBacking(term));
    }

    /// What was opened for another term is under another lock, which this node may have lost: nobody uses it, so it is closed.
    pub(super) fn on_backing(&mut self, term: Term, answer: BackingAnswer) {
        let again = self.now + self.setup.timing.backing_retry;
        let believes_any = planted!(self, believes_older_backing);
        let Role::Owning(owning) = &mut self.role else { return };
        let is_own = owning.record.term == term || believes_any;
        if !is_own || !matches!(owning.backing, OwnBacking::Awaited { .. }) {
            return;
        }
        match answer {
            BackingAnswer::Opened => {
                owning.backing = OwnBacking::Open;
                self.effects.push_back(Effect::UseBacking(term));
            }
            BackingAnswer::Failed => owning.backing = OwnBacking::Failed { again },
            BackingAnswer::NotOwner => {
                owning.backing = OwnBacking::Failed { again };
                self.want_read();
            }
        }
    }

    /// One that has failed is asked for again; and an owner does not wait for it longer than so long, to be custodian meanwhile: then a
    /// member that reaches it can have the volume.
    pub(super) fn settle_backing(&mut self) {
        let Role::Owning(owning) = &self.role else { return };
        if let OwnBacking::Failed { again } = owning.backing
            && self.now >= again
            && !planted!(self, asks_backing_once)
        {
            self.open_backing(Duration(0));
        }
        let Role::Owning(owning) = &self.role else { return };
        let known = owning.backing == OwnBacking::Open || self.backing_out_of_reach(owning);
        let Role::Owning(owning) = &mut self.role else { return };
        if known && owning.agreed && matches!(owning.phase, Phase::Agreeing) {
            owning.phase = Phase::Custodian;
        }
    }

    pub(super) fn backing_out_of_reach(&self, owning: &Owning) -> bool {
        match owning.backing {
            OwnBacking::Awaited { until } => self.now >= until && !planted!(self, awaits_backing_for_ever),
            OwnBacking::Failed { .. } => true,
            OwnBacking::Unasked | OwnBacking::Open => false,
        }
    }

    /// A custodian has all that an owner has, but the backing. One whose process stood still while that was opened may be an owner no
    /// more: it serves when members grant it a lease again.
    pub(super) fn settle_custodian(&mut self) {
        let Role::Owning(owning) = &self.role else { return };
        let has_lease = self.lease_until(owning) > self.now || planted!(self, serves_without_lease);
        let has_backing = owning.backing == OwnBacking::Open || planted!(self, custodian_serves);
        let Role::Owning(owning) = &mut self.role else { return };
        if has_lease && has_backing && matches!(owning.phase, Phase::Custodian) && owning.goal.is_none() {
            owning.phase = Phase::Serving;
            let term = owning.record.term;
            self.effects.push_back(Effect::Serve(term));
        }
    }
}

impl OwnBacking {
    /// When something becomes of it without an event.
    pub(super) fn next(self) -> Option<Instant> {
        match self {
            OwnBacking::Awaited { until: at } | OwnBacking::Failed { again: at } => Some(at),
            OwnBacking::Unasked | OwnBacking::Open => None,
        }
    }
}
