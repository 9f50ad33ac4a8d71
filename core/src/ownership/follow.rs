//! A node that is not the owner: outside, learner, member, and candidate (L2, S7, T1, T2, T10).

use super::coordinator::Stage;
use super::{Effect, Override, Ownership, Role};
use crate::api::Order;
use crate::cluster::*;
use crate::message::*;
use crate::types::*;
use alloc::vec::Vec;

/// No member, as far as is known.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    pub(super) why: Why,
    /// The tier is being opened; nothing else is done meanwhile.
    pub(super) opening_tier: bool,
    /// Since when: a node of an earlier life waits as long as any member before it asks.
    pub(super) since: Instant,
    /// When the others are asked again what they are (T10).
    pub(super) ask_at: Instant,
}

/// Why a node is outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Why {
    /// The record has not been read yet.
    Unread,
    /// There is no record of the volume.
    NoRecord,
    /// Nobody serves the volume.
    Released,
    /// The record does not name this node.
    NotNamed,
    /// The record names an earlier life of its tier (T10).
    EarlierLife,
}

/// A member or a learner: which of both, only the record knows.
#[derive(Clone, Debug)]
pub(super) struct Following {
    /// Whose term it is, once heard.
    pub(super) owner: Option<Incarnation>,
    pub(super) term: Term,
    /// The last beacon, or the beginning of the term or of this process (L2).
    pub(super) heard: Instant,
    /// The new owner that waits for `Sealed`.
    pub(super) sealed_for: Option<Incarnation>,
    /// The record names it.
    pub(super) member: bool,
}

/// A member that asks for ownership.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    /// Whom it followed.
    pub(super) owner: Option<Incarnation>,
    /// The term that it knew.
    pub(super) term: Term,
    /// Nothing of that term is taken any more (T2).
    pub(super) sealed: bool,
    /// The former owner was heard since.
    pub(super) owner_heard: Option<Instant>,
    /// Whose logs are sealed when it has won (T3), as what they are now.
    pub(super) former: Vec<Incarnation>,
    /// Who has handed over to this node (K1).
    pub(super) handed_by: Option<Incarnation>,
}

impl Asking {
    /// Nothing is sealed yet.
    fn to_take_over(owner: Option<Incarnation>, term: Term) -> Asking {
        Asking { owner, term, sealed: false, owner_heard: None, former: Vec::new(), handed_by: None }
    }
}

/// An owner has sent `Learn`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedBy {
    pub(super) owner: Incarnation,
    pub(super) term: Term,
    pub(super) sent: Instant,
}

impl Outside {
    pub(super) fn at_start(now: Instant) -> Outside {
        Outside { why: Why::Unread, opening_tier: false, since: now, ask_at: now }
    }
}

impl Asking {
    pub(super) fn owner_is_back(&self, now: Instant, lately: Duration) -> bool {
        self.sealed && self.owner_heard.is_some_and(|heard| now < heard + lately)
    }
}

impl Ownership {
    pub(super) fn outside_timeout(&self, outside: &Outside) -> Option<Instant> {
        let asks = match outside.why {
            Why::EarlierLife | Why::NotNamed => Some(outside.ask_at),
            Why::Unread | Why::NoRecord | Why::Released => None,
        };
        [asks, Some(self.next_look())].into_iter().flatten().filter(|at| *at > self.now).min()
    }

    pub(super) fn following_timeout(&self, following: &Following) -> Instant {
        following.heard + self.setup.timing.grace
    }

    pub(super) fn settle_outside(&mut self) {
        self.look();
        let (now, timing) = (self.now, self.setup.timing);
        let Role::Outside(outside) = &mut self.role else { return };
        // An earlier life may end the volume's rest by what it hears (T10); others only show whether all logs are lost.
        let pause = match outside.why {
            Why::EarlierLife => timing.beacon,
            Why::NotNamed => timing.look,
            Why::Unread | Why::NoRecord | Why::Released => return,
        };
        if now >= outside.ask_at {
            outside.ask_at = now + pause;
            self.ask_who_members_are();
            // One that was alone has nobody to ask.
            self.consider_earlier_lives();
            self.consider_opening_alone();
        }
    }

    /// What each member is now, one has to be told by itself.
    pub(super) fn ask_who_members_are(&mut self) {
        let members = self.record.as_ref().map(|record| record.members.clone()).unwrap_or_default();
        let own = self.own.node;
        for member in members.into_iter().filter(|member| member.node != own) {
            self.send(member, OwnershipMessage::Who { sent: self.now });
        }
    }

    pub(super) fn settle_following(&mut self) {
        let Role::Following(following) = &self.role else { return };
        let waited = self.now >= self.following_timeout(following);
        let impatient = planted!(self, impatient) && following.owner.is_some();
        if (waited || impatient) && !self.tier_failed {
            let (owner, term) = (following.owner, following.term);
            self.role = Role::Asking(Asking::to_take_over(owner, term));
            self.want_read();
        }
    }

    /// An owner's message was taken: its sender owns the term.
    pub(super) fn follow_sender(&mut self, envelope: &Envelope) {
        let owner = Some(envelope.from);
        // Whoever is heard is not gone, whatever was said of it.
        self.proven.remove(&envelope.term);
        let anew = Following { owner, term: envelope.term, heard: self.now, sealed_for: None, member: false };
        match &mut self.role {
            Role::Following(following) => {
                following.owner = owner;
                following.term = envelope.term;
            }
            Role::Outside(outside) if !outside.opening_tier && self.opening.is_none() => {
                self.role = Role::Following(anew)
            }
            Role::Asking(asking) if !asking.sealed => self.role = Role::Following(Following { member: true, ..anew }),
            Role::Asking(asking) => asking.owner_heard = Some(self.now),
            Role::Outside(_) | Role::Owning(_) | Role::Leaving => {}
        }
        self.give_up_asking_unsent(envelope);
        if self.gave_way.as_ref().is_some_and(|gave_way| gave_way.is_heard(envelope)) {
            self.gave_way = None;
        }
    }

    /// T2: the owner is heard again, and the change was never sent: nothing can take effect of it, so nothing is waited for. Its
    /// seal would keep owner and members from going on, for as long as nodes are silent that are waited for (C6). Where the
    /// owner has given way all the same, and this was late, it asks once more.
    fn give_up_asking_unsent(&mut self, envelope: &Envelope) {
        let Role::Asking(asking) = &self.role else { return };
        let is_owner = asking.sealed && asking.term == envelope.term && asking.owner == Some(envelope.from);
        if is_owner && self.coordinator.has_unsent_change() && self.opening.is_none() && !planted!(self, stays_sealed) {
            self.give_up_asking();
        }
    }

    /// L1: whoever answers a beacon does not ask for ownership for the time of the grace.
    pub(super) fn on_beacon(&mut self, envelope: &Envelope, sent: Instant) {
        self.follow_sender(envelope);
        if self.tier_failed {
            return self.refuse(envelope, Refusal::TierFailed);
        }
        let remembered = self.remembered >= envelope.term;
        let grants = match &mut self.role {
            Role::Following(following) => {
                following.heard = self.now;
                true
            }
            Role::Outside(_) | Role::Asking(_) | Role::Owning(_) | Role::Leaving => false,
        };
        if grants && remembered {
            self.last_grant = Some((self.now, Some(envelope.from.node)));
            let newest = self.newest_beacon_of(envelope, sent);
            self.send(envelope.from, OwnershipMessage::Granted { sent: newest });
        }
    }

    /// T3, the member's part. The answer waits until the volume has made the term durable (S1): after that nothing of an
    /// older term moves its figures.
    pub(super) fn on_seal(&mut self, envelope: &Envelope) {
        self.follow_sender(envelope);
        if self.went_back.is_some_and(|gone| gone == self.own) {
            return self.refuse(envelope, Refusal::TierFailed);
        }
        if let Role::Following(following) = &mut self.role {
            following.sealed_for = Some(envelope.from);
            self.remember();
        }
    }

    pub(super) fn answer_seal(&mut self) {
        let remembered = self.remembered >= self.seen.0;
        let Role::Following(following) = &mut self.role else { return };
        let Some(figures) = self.figures.as_ref().filter(|_| remembered) else { return };
        let Some(owner) = following.sealed_for.take() else { return };
        self.counters.seals_answered += 1;
        let sealed = OwnershipMessage::Sealed { held: figures.held, mark: figures.mark.clone(), host: self.setup.host };
        self.send_committed(owner);
        self.send(owner, sealed);
    }

    /// The owner has stopped for good in its term, or has handed over: nothing is waited for (L2). Said by somebody else, or late, when
    /// another one owns the volume, it is about nobody who serves.
    pub(super) fn on_take_over(&mut self, from: Incarnation) {
        let is_followed = |following: &Following| following.owner.is_none_or(|owner| owner.node == from.node);
        if let Role::Following(following) = &self.role
            && !is_followed(following)
            && !planted!(self, takes_over_for_anybody)
        {
            return;
        }
        if self.last_grant.is_some_and(|(_, to)| to == Some(from.node)) {
            self.last_grant = None;
        }
        if let Role::Following(following) = &self.role
            && !self.tier_failed
        {
            let (owner, term) = (following.owner, following.term);
            self.role = Role::Asking(Asking::to_take_over(owner, term));
            self.want_read();
        }
    }

    /// S7. The tier is formatted only when the record, read after the question, does not name it.
    pub(super) fn on_learn(&mut self, envelope: &Envelope, sent: Instant, at: Instant) {
        let wanted_by = WantedBy { owner: envelope.from, term: envelope.term, sent };
        let late = at <= self.taught_at && self.own.tier != 0;
        if late || (self.fresh && self.own.tier != 0) {
            // It was sent before what is in the tier: whoever still means it hears what this node is now.
            self.send(envelope.from, self.here(sent));
        } else if !matches!(self.role, Role::Owning(_) | Role::Leaving) {
            self.wanted_by = Some(wanted_by);
            if planted!(self, formats_unread) {
                self.begin_learning();
            } else {
                self.want_read();
            }
        }
    }

    fn begin_learning(&mut self) {
        let opening_tier = matches!(&self.role, Role::Outside(outside) if outside.opening_tier);
        if !opening_tier {
            self.role =
                Role::Outside(Outside { why: Why::NotNamed, opening_tier: true, ..Outside::at_start(self.now) });
            self.counters.tiers_formatted += 1;
            self.effects.push_back(Effect::OpenTier { format: true });
        }
    }

    pub(super) fn on_tier_opened(&mut self, own: Incarnation, fresh: bool) {
        if own != self.own {
            self.begun = Term(0);
        }
        self.own = own;
        self.fresh = fresh;
        if own.tier != 0 {
            let before = self.held_before.take().filter(|(before, _)| *before == own);
            self.reopened_below = before.map(|(_, held)| held);
        }
        self.tier_failed = self.went_back == Some(own);
        self.figures = None;
        self.remembered = Term(0);
        self.remember();
        if let Some(wanted_by) = self.wanted_by.take() {
            self.send(wanted_by.owner, self.here(wanted_by.sent));
        }
        match &mut self.role {
            Role::Leaving => self.role = Role::Outside(Outside::at_start(self.now)),
            Role::Outside(outside) => outside.opening_tier = false,
            Role::Following(_) | Role::Asking(_) | Role::Owning(_) => {}
        }
        self.want_read();
        self.on_tier_opened_to_serve();
    }

    pub(super) fn no_record(&mut self) {
        if matches!(self.role, Role::Outside(_) | Role::Asking(_)) {
            self.go_outside(Why::NoRecord);
        }
        self.fail_opening(super::CommandError::NoRecord);
    }

    fn go_outside(&mut self, why: Why) {
        if let Role::Outside(outside) = &mut self.role {
            outside.why = why;
        } else {
            self.role = Role::Outside(Outside { why, ..Outside::at_start(self.now) });
        }
    }

    /// This is the record, and this node owns nothing: where is its place?
    pub(super) fn take_place(&mut self, record: Record) {
        if matches!(&self.role, Role::Outside(outside) if outside.opening_tier) {
            return;
        }
        let opening = self.opening.is_some();
        let recorded = record.member(self.own.node);
        if record.log == LogState::Released {
            self.go_outside(Why::Released);
        } else if recorded == Some(self.own) && record.owner == self.own.node && !self.tier_failed {
            return self.find_itself_owner(record);
        } else if recorded == Some(self.own) {
            self.follow_record(&record);
        } else if recorded.is_some_and(|recorded| recorded.is_earlier_life_of(self.own)) {
            if !matches!(&self.role, Role::Outside(outside) if outside.why == Why::EarlierLife) {
                self.go_outside(Why::EarlierLife);
            }
            if planted!(self, earlier_life_asks) && !opening {
                self.ask(as_they_are_now(&record, |_| Some(self.own)), record.clone(), None);
            }
        } else if !self.is_being_taught(&record) {
            self.go_outside(Why::NotNamed);
        }
        if opening {
            self.consider_opening(&record);
        } else if self.wanted_by.is_some_and(|wanted| wanted.term == record.term) && recorded.is_none() {
            self.begin_learning();
        }
    }

    /// A learner is not named; it stays one as long as its owner teaches it.
    fn is_being_taught(&self, record: &Record) -> bool {
        let Role::Following(following) = &self.role else { return false };
        following.term == record.term && self.now < self.following_timeout(following)
    }

    fn follow_record(&mut self, record: &Record) {
        let heard = self.now;
        let owner = record.member(record.owner);
        let anew = Following { owner, term: record.term, heard, sealed_for: None, member: true };
        match &mut self.role {
            Role::Following(following) if following.term == record.term => following.member = true,
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) => self.role = Role::Following(anew),
            Role::Owning(_) | Role::Leaving => {}
        }
    }

    /// T2, its last sentence; and a restart, which is a take-over from oneself: the process before this one may have
    /// served in that term, and its writes may be under way. A term that it has not begun names nobody unfenced.
    ///
    /// It is never taken up as it is: a term belongs to the process that has sent its transaction, and holds its lock
    /// since before. Else a proof that nobody holds that lock could come first, and the owner after it.
    fn find_itself_owner(&mut self, record: Record) {
        self.fail_opening(super::CommandError::Served);
        if planted!(self, restart_goes_on) {
            return self.adopt(record.clone(), record.members, None);
        }
        if self.begun == record.term {
            // The process before this one began the term when no lease but its own could be left (T4).
            self.last_grant = self.last_grant.filter(|(_, to)| to.is_some());
        }
        self.ask(record.clone(), record, None);
    }

    /// T1: the record was read to ask.
    pub(super) fn on_read_to_ask(&mut self, record: Record) {
        let Role::Asking(asking) = &self.role else { return };
        let (sealed, grown) = (asking.sealed, record.term > asking.term);
        if sealed {
            self.give_up_asking();
        }
        let may = record.names(self.own) && record.owner != self.own.node;
        let outsider = planted!(self, outsiders_ask) && self.own.tier != 0 && record.log != LogState::Released;
        if !sealed && !grown && (may || outsider) && record.log != LogState::Released {
            self.ask(record.clone(), record, None);
        } else {
            self.take_place(record);
        }
    }

    /// T2. `base` is the record with its members as they are now; `compare` as it was read; `by`: what the operator has overridden for it.
    pub(super) fn ask(&mut self, base: Record, compare: Record, by: Option<Override>) {
        let down = &self.links_down;
        let mut new = base.taken_over(self.own, self.setup.host, |node| down.contains(&node));
        let never_begun = compare.owner == self.own.node && self.begun < compare.term && compare.names(self.own);
        if never_begun || planted!(self, forgets_former_owner) {
            new.unfenced = base.unfenced.clone();
        }
        let owner = compare.member(compare.owner);
        let handed_by = if compare.owner == self.own.node { self.followed(&compare) } else { None };
        self.order(Order::Seal);
        let (term, former) = (compare.term, base.members);
        self.role = Role::Asking(Asking { owner, term, sealed: true, owner_heard: None, former, handed_by });
        self.propose(compare, new, Stage::Ready, by);
    }

    /// The owner of the term before this record's, if it is a member still and not this node. Whether it has handed over, and
    /// kept its cache, it says itself (K1).
    fn followed(&self, record: &Record) -> Option<Incarnation> {
        let owner = match &self.role {
            Role::Following(following) if following.term < record.term => following.owner,
            Role::Asking(asking) if asking.term < record.term => asking.owner,
            Role::Asking(asking) => asking.handed_by,
            Role::Outside(_) | Role::Following(_) | Role::Owning(_) | Role::Leaving => None,
        };
        owner.filter(|owner| owner.node != self.own.node && record.names(*owner))
    }

    /// Another was faster, or the owner is back: what that one sends is taken again.
    pub(super) fn give_up_asking(&mut self) {
        let Role::Asking(asking) = &self.role else { return };
        let (owner, term, sealed) = (asking.owner, asking.term, asking.sealed);
        // What writes the record anew is the operator's, and goes on.
        self.coordinator.change.take_if(|change| !change.restores());
        self.role = Role::Following(Following { owner, term, heard: self.now, sealed_for: None, member: true });
        if sealed {
            self.order(Order::Unseal);
        }
        if self.opening.is_some() {
            self.fail_opening(super::CommandError::Superseded);
        }
    }

    /// T10: every member has been heard to have lost its recorded life or tier. So what is left of the log, the longest of
    /// them has; and by the record flushed writes are on all. Not where the record says `through`: the backing may have newer
    /// content than such a log, which must not be read or written over it.
    pub(super) fn consider_earlier_lives(&mut self) {
        let Role::Outside(outside) = &self.role else { return };
        let waited = self.now >= outside.since + self.setup.timing.grace;
        let busy = self.opening.is_some() || self.coordinator.change.is_some() || self.coordinator.went_back.is_some();
        if outside.why != Why::EarlierLife || !waited || busy {
            return;
        }
        let Some(record) = self.record.clone().filter(|record| record.log == LogState::Needed) else { return };
        let since = outside.since;
        let gone = |member: &Incarnation| self.present(*member, since).is_some_and(|present| present != *member);
        if self.media_have_what_was_flushed(&record) && record.members.iter().all(gone) {
            self.ask_as_it_is_now(record, since, None);
        }
    }

    /// T11: a lone owner whose machine was started anew, and whose log went with that, opens by itself where the record said before that
    /// nothing acknowledged depends on a log. The proof that any opening without a log needs, it needs as well.
    fn consider_opening_alone(&mut self) {
        let busy = self.opening.is_some() || self.coordinator.change.is_some() || self.coordinator.went_back.is_some();
        if !busy && self.now >= self.alone_again && self.opens_alone() && self.unproven_to_open().is_empty() {
            self.begin_opening_alone();
        }
    }

    /// This node may open the volume by itself, as soon as there is proof for all who have written to its backing.
    pub(super) fn opens_alone(&self) -> bool {
        let Role::Outside(outside) = &self.role else { return false };
        let Some(record) = &self.record else { return false };
        let was_alone = matches!(record.members[..], [member] if member.node == self.own.node && member != self.own);
        let started_anew = record.host.machine == self.setup.host.machine && record.host.boot != self.setup.host.boot;
        let nothing_lost = record.log == LogState::Through
            || (record.log == LogState::Needed && planted!(self, opens_alone_with_loss));
        let gone = matches!(outside.why, Why::NotNamed | Why::EarlierLife) && !outside.opening_tier;
        gone && was_alone && record.owner == self.own.node && started_anew && nothing_lost
    }

    /// Those without proof among the recorded owner and the former ones.
    pub(super) fn unproven_to_open(&self) -> Vec<Unfenced> {
        let Some(record) = &self.record else { return Vec::new() };
        let owner = Unfenced { term: record.term, node: record.owner, host: record.host };
        let formers = record.unfenced.iter().copied().chain([owner]);
        formers.filter(|former| !self.is_proven(former)).collect()
    }

    /// What flushes have promised is on the medium of every member that has one. A record that does not say is of a time in which
    /// the definition had to do.
    pub(super) fn media_have_what_was_flushed(&self, record: &Record) -> bool {
        match record.flushed {
            _ if planted!(self, believes_definition) => self.requested.media,
            Flushed::Durable => true,
            Flushed::Held => false,
            Flushed::Unrecorded => self.requested.media,
        }
    }

    /// As a member of a later life than the recorded one, with those that were heard since to be in such a life, too.
    pub(super) fn ask_as_it_is_now(&mut self, record: Record, since: Instant, by: Option<Override>) {
        let base = as_they_are_now(&record, |member| self.present(member, since));
        self.ask(base, record, by);
    }

    /// What a member has said, asked after `since`, to be now.
    pub(super) fn present(&self, member: Incarnation, since: Instant) -> Option<Incarnation> {
        if member.node == self.own.node {
            return Some(self.own);
        }
        let answer = self.answers.get(&member.node)?;
        (answer.sent >= since).then_some(answer.from)
    }
}

/// The record with the present lives of its members; who has another tier is none.
fn as_they_are_now(record: &Record, present: impl Fn(Incarnation) -> Option<Incarnation>) -> Record {
    let now = |member: &Incarnation| present(*member).filter(|present| member.is_earlier_life_of(*present));
    let members: Vec<Incarnation> = record.members.iter().filter_map(now).collect();
    Record { members, ..record.clone() }
}
