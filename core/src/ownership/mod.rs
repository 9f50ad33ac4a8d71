//! Who may serve a volume: one node's part in deciding it. `docs/protocol.md` states the rules; their names (C1, T4, ...)
//! stand where they act.
//!
//! ```text
//!            +----------------------------- dropped, released ----------------------------+
//!            v                                                                            |
//!        outside --Learn--> following --grace, T1--> asking (sealed, T2) --won--> owning (agreeing, T3, T4)
//!            ^                  ^  ^                    |  lost: seal lifted              |   owner | custodian
//!            |                  |  +--------------------+                                 |
//!            +---- reopened ----+------------------- leaving (T9) <--- superseded, handed over, tier failed
//! ```
//!
//! [`Ownership`] takes events and gives effects, like [`crate::Volume`], and touches nothing. The volume beside it does the
//! stream, the acknowledgements and destage; it is told who it is by [`Order`]s and says how far it is by
//! [`Report`]s. No acknowledged write depends on what time this module is told (L4).
//!
//! Invariants, checked by [`Ownership::validate`]:
//! - It owns only a term that a linearizable answer of the coordinator has named it the owner of, with this incarnation.
//! - While a change of the record is undecided, the volume and the lease ask both sets of members (C4), and no other change is
//!   proposed by this node.
//! - A lease is told to the volume only while it serves, and none that is longer than the earliest grant (L1).
//!
//! What each file owns: [`seam`] events and effects; `coordinator` reads and transactions (C1 to C3); `inquiry` who is asked before (C5, C6);
//! `follow` a member's, learner's and outsider's life (L2, T1, T2, T10); `take` from winning to serving (T3, T4); `own` an owner's life (L1, A3, S6, T6, T9);
//! `former_state` a node that was put back to an earlier state (S10); `commands` the operator's words and the way out of ownership; `peers` whom to recruit; `status` what is shown.
//!
//! Left to others: bytes of messages and record, clocks, the coordinator itself, who is reachable, proofs' making.

/// True when the named rule is broken on purpose; constant false in a product build.
macro_rules! planted {
    ($ownership:expr, $rule:ident) => {{
        #[cfg(feature = "mutants")]
        let planted = $ownership.rules.$rule;
        #[cfg(not(feature = "mutants"))]
        let planted = false;
        planted
    }};
}

mod commands;
mod coordinator;
mod follow;
mod former_state;
mod inquiry;
mod own;
mod peers;
mod seam;
mod status;
mod take;

pub use peers::{Wanted, choose_peers};
pub use seam::*;
pub use status::{Counters, Reason, State, Status};

use crate::api::{Figures, Order, Report};
use crate::cluster::*;
use crate::message::*;
use crate::types::*;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use commands::{GaveWay, Opening};
use coordinator::Coordinator;
use follow::{Asking, Following, Outside, WantedBy};
use inquiry::{Inquiry, Restoring};
use own::Owning;
use peers::KeptOut;

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Planted bugs that the simulator of ownership must find; every one is off in a product build, where this type
        /// has no fields. Each is one rule left out.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Rules {
            $($(#[doc = $doc])+ #[cfg(feature = "mutants")] pub $name: bool,)+
        }

        #[cfg(feature = "mutants")]
        impl Rules {
            /// Every one by name, alone.
            pub fn list() -> Vec<(&'static str, Rules)> {
                alloc::vec![$((stringify!($name), Rules { $name: true, ..Rules::default() }),)+]
            }
        }
    };
}

rules! {
    /// C1: a change that lost is proposed again upon the record that it lost to.
    compares_with_the_winner,
    /// C2: a read that shows the old record decides that the transaction is lost.
    read_decides,
    /// C2: a transaction whose answer is lost counts as done.
    unknown_is_won,
    /// C3: a record that is older than what was seen is believed.
    believes_older_record,
    /// C3: the operator is obeyed at a node although another one is known to know more.
    restores_the_older,
    /// C5: nobody is asked.
    goes_on_unasked,
    /// C5: what another node has seen counts for nothing.
    veto_ignored,
    /// C5: the coordinator itself is not asked before a change is sent to it.
    sends_unlooked,
    /// C5: others are silent for long as soon as the coordinator answers again.
    silence_counts_at_once,
    /// C6: nobody is told that the coordinator went back.
    rewind_not_told,
    /// C6: of a rewind whose name found no room nothing is remembered.
    rewind_without_room_is_lost,
    /// C6: after the coordinator went back, too, silence does not veto.
    rewind_waits_for_nobody,
    /// C6: rewinds are counted instead of named, so that one has the name of another that its node has missed. (The world does that.)
    rewinds_are_counted,
    /// C4: only the old set is asked.
    asks_old_set_only,
    /// C4: the lease is that of the new set.
    lease_of_new_set,
    /// S1: messages of older terms are heard.
    hears_older_terms,
    /// S2: a message for another incarnation is heard.
    hears_for_others,
    /// S6: a member is added before it holds all that was acknowledged.
    adds_uncovered,
    /// S10: an owner believes of anybody that it had sent beacons there.
    grant_from_anybody,
    /// S10: only who owns the volume finds out by its beacons that it was put back, not who was its owner and asks for it again.
    owners_alone_go_back,
    /// S10: a node goes on although others have heard more from it than it knows.
    goes_on_in_former_state,
    /// S7: a tier is formatted without a look at the record.
    formats_unread,
    /// A3: a member is left out before that is committed.
    drops_uncommitted,
    /// A5: the log is called through before the backing has all.
    through_uncovered,
    /// A5: a volume is released before it is quiet.
    releases_unquiet,
    /// A2: the record says that flushes are durable before all members have synced what was flushed.
    durable_uncovered,
    /// L1: a grant counts from its arrival.
    lease_from_arrival,
    /// L1: the latest grant counts, not the earliest.
    lease_of_latest,
    /// L2: a member asks without waiting.
    impatient,
    /// L2: a member asks without waiting when anybody says that the owner has stopped.
    takes_over_for_anybody,
    /// T4: an owner serves as soon as its backing is open, whatever has become of its lease meanwhile.
    serves_without_lease,
    /// L3: the volume is given a lease that does not end.
    endless_lease,
    /// T1: who is no member asks, too.
    outsiders_ask,
    /// T2: a candidate that has sent nothing stays sealed although the owner is heard.
    stays_sealed,
    /// C2: a volume is made quiet for a hand-over while nothing can be decided.
    quiesces_undecided,
    /// C2: a hand-over that was never sent is not taken back.
    keeps_unsent_goal,
    /// C2: an owner whose hand-over stays undecided keeps its clients waiting, and the next owner by its beacons.
    keeps_undecided_goal,
    /// A4: a change that was never sent stays although the node that it would make a member is lost.
    keeps_unsent_change,
    /// C4: that one proposal is covered is taken for the one that has taken its place.
    covers_the_next,
    /// C3: what an owner proposed to give away it writes anew as its own, although the next owner is heard.
    restores_what_it_gave_away,
    /// S10: an owner goes on beside a record of its own term that it does not know.
    goes_on_beside_unknown_record,
    /// T3: the own watermark is taken for the greatest.
    own_watermark,
    /// T4: a new owner does not wait for the end of the lease that it granted itself.
    serves_under_old_lease,
    /// T5: a former owner is not named in `unfenced`.
    forgets_former_owner,
    /// T6: pins end without proof.
    ends_pins_unproven,
    /// T6: what a machine was before the record named it as the owner's counts as its being started anew since.
    believes_earlier_boot,
    /// T6: the operator's word counts for former owners, too, that he has not seen.
    word_for_all_terms,
    /// T6: `unfenced` is emptied before the pinned ranges are written again.
    fenced_before_rewritten,
    /// T8: one proof ends the pins of all.
    one_proof_for_all,
    /// T8: the pinned ranges are written again by an owner for whom the list has no room.
    rewrites_unlisted,
    /// T9: an owner that finds another in the record goes on.
    goes_on_when_superseded,
    /// T9: an owner that is told of a higher term goes on, as long as the record shows its own.
    goes_on_when_told,
    /// T9: an owner whose lock on the backing is lost goes on.
    goes_on_without_lock,
    /// T9: an owner takes a higher term for one only in what is meant for its present incarnation, and no question.
    hears_terms_in_its_own_only,
    /// T9: an owner that is alone and does not reach the coordinator asks nobody what they have seen.
    alone_asks_nobody,
    /// T9: the tier is opened anew while writes to the backing are under way.
    leaves_while_writing,
    /// T9: an owner whose tier fails looks only once for a member that may take over.
    looks_for_well_member_once,
    /// C4: an owner that answers nothing more sends what it had announced before.
    drops_in_silence,
    /// S10: a tier that had failed is opened anew, and nobody looks whether it has forgotten something.
    trusts_reopened_tier,
    /// T10: a member of an earlier life asks by itself.
    earlier_life_asks,
    /// T10: logs count for what the definition asks of flushes, whatever the record says.
    believes_definition,
    /// T10: the logs are given up while one of them answers.
    gives_up_answering_logs,
    /// T10: members are asked only once whether they have what is to be given up.
    asks_members_once,
    /// T10: what is given up is not looked for any more once the change is proposed.
    gives_up_what_answers_late,
    /// Hand-over before the volume is quiet.
    hands_over_unquiet,
    /// An owner serves on while its hand-over is undecided.
    serves_while_handing_over,
    /// A custodian lets clients in.
    custodian_serves,
    /// T4: what was opened for an older term is taken for that of the present one.
    believes_older_backing,
    /// T4: an owner waits for a backing that does not answer, however long.
    awaits_backing_for_ever,
    /// T4: a backing that could not be opened is not asked for again.
    asks_backing_once,
    /// A restarted owner goes on in its former term.
    restart_goes_on,
    /// A volume whose logs are lost is opened without the operator's word.
    accepts_loss,
    /// The operator's word for the loss of some logs opens the volume when others are lost.
    keeps_old_word,
    /// The operator's word for an opening goes with whatever change is sent while the opening waits.
    word_for_any_change,
    /// A volume that has no log is opened without proof for its owner.
    opens_unproven,
    /// T11: a lone owner whose log is gone opens by itself, whatever the record says of the log.
    opens_alone_with_loss,
}

/// One node's ownership of one volume. See the module. A copy of it is what a memory snapshot of the node has (S10).
#[derive(Clone, Debug)]
pub struct Ownership {
    /// Broken on purpose, for the simulator.
    #[cfg(feature = "mutants")]
    pub rules: Rules,
    setup: Setup,
    /// This node with its tier.
    own: Incarnation,
    /// Nothing has ever been in the tier.
    fresh: bool,
    /// The last moment in which the tier was taught something, or this process began.
    taught_at: Instant,
    tier_failed: bool,
    /// The incarnation whose log was put back to an earlier state of itself: it is whole no more (S10).
    went_back: Option<Incarnation>,
    /// Which incarnation had failed, and what all members held then, as far as was known.
    held_before: Option<(Incarnation, Lsn)>,
    /// It is opened anew, and nothing is known of what it shows.
    reopened_below: Option<Lsn>,
    /// Not before then this node tries again to open by itself (T11).
    alone_again: Instant,
    /// The newest beacon of an owner, by its clock (S10).
    newest_beacon: Option<(Incarnation, Term, Instant)>,
    now: Instant,
    /// The time that was asked for, to notice that this process did not run.
    wake: Option<Instant>,

    /// Highest that was seen of the volume (S1, C3).
    seen: (Term, Epoch),
    /// The highest term that is known to outlive this process.
    remembered: Term,
    /// The newest term that this tier has begun to own.
    begun: Term,
    /// The newest that was read or decided by this process.
    record: Option<Record>,
    /// When that was first one of its term.
    term_since: Instant,
    /// The newest that this node knows in whole, also from processes before this one.
    known: Option<Record>,
    inquiry: Inquiry,
    restoring: Option<Restoring>,
    coordinator: Coordinator,
    role: Role,

    /// What each node has answered to the newest question. Whatever else it says may be long ago.
    answers: BTreeMap<NodeId, Answer>,
    links_down: BTreeSet<NodeId>,
    candidates: Vec<Candidate>,
    kept_out: KeptOut,
    /// Terms whose owners can write no more.
    proven: BTreeSet<Term>,
    requested: Requested,
    figures: Option<Figures>,
    /// When this node last granted a lease, and to whom, where that is known.
    last_grant: Option<(Instant, Option<NodeId>)>,
    /// Who was asked to take over, and is asked again until it is heard.
    gave_way: Option<GaveWay>,
    /// An owner wants this node as a learner.
    wanted_by: Option<WantedBy>,
    opening: Option<Opening>,

    effects: VecDeque<Effect>,
    shown: status::Shown,
    counters: Counters,
}

/// What a node is, and where it runs.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// When the question was sent.
    sent: Instant,
    /// When it was answered, by the other's clock.
    at: Instant,
    from: Incarnation,
    host: Host,
    fresh: bool,
}

#[derive(Clone, Debug)]
enum Role {
    /// No member, or not yet known to be one.
    Outside(Outside),
    /// A member or a learner.
    Following(Following),
    /// About to become the owner.
    Asking(Asking),
    /// The owner of a term, by the record.
    Owning(Box<Owning>),
    /// Was the owner; its last writes are under way (T9).
    Leaving,
}

/// What becomes of a message that the volume handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It goes to the volume.
    Take,
    /// It counts for nothing. Where its sender should know why, a refusal is among the effects.
    Drop,
}

impl Ownership {
    /// Begins: poll effects, feed events.
    pub fn new(setup: Setup, now: Instant) -> Ownership {
        debug_assert_eq!(setup.timing.check(), Ok(()));
        let remembered = setup.remembered;
        let known = setup.known.clone();
        let seen = known.as_ref().map_or((Term(0), Epoch(0)), Record::version);
        let mut ownership = Ownership {
            #[cfg(feature = "mutants")]
            rules: Rules::default(),
            own: setup.own,
            fresh: setup.fresh,
            taught_at: now,
            tier_failed: false,
            went_back: None,
            held_before: None,
            reopened_below: None,
            alone_again: now,
            newest_beacon: None,
            now,
            wake: None,
            seen: seen.max((remembered.term, remembered.epoch)),
            remembered: remembered.term,
            begun: if remembered.agreed { remembered.term } else { Term(0) },
            record: None,
            term_since: now,
            known,
            inquiry: Inquiry::new(now, setup.rewinds.clone()),
            restoring: None,
            coordinator: Coordinator::default(),
            role: Role::Outside(Outside::at_start(now)),
            answers: BTreeMap::new(),
            links_down: BTreeSet::new(),
            candidates: Vec::new(),
            kept_out: KeptOut::default(),
            proven: BTreeSet::new(),
            requested: setup.requested,
            figures: None,
            // The process before this one may have granted one in its last moment.
            last_grant: Some((now, None)),
            gave_way: None,
            wanted_by: None,
            opening: None,
            effects: VecDeque::new(),
            shown: status::Shown::new(now),
            counters: Counters::default(),
            setup,
        };
        ownership.want_read();
        ownership.settle();
        ownership
    }

    /// Something happened. Poll effects until none is left after each.
    pub fn handle(&mut self, now: Instant, event: Event) {
        self.advance(now);
        match event {
            Event::Timeout => {}
            Event::Read(op, read) => self.on_read(op, read),
            Event::Committed(op, committed) => self.on_committed(op, committed),
            Event::RecordChanged => self.want_read(),
            Event::Message(envelope, message) => self.on_message(envelope, message),
            Event::Refused(envelope, why) => {
                if self.accepts(&envelope, Sort::Other) {
                    self.on_refused(&envelope, why);
                }
            }
            Event::Link(node, up) => self.on_link(node, up),
            Event::NoLink(node) => self.on_no_link(node),
            Event::Volume(report, figures) => {
                self.figures = Some(figures);
                self.on_report(report);
            }
            Event::Figures(figures) => self.on_figures(figures),
            Event::TierOpened { own, fresh } => self.on_tier_opened(own, fresh),
            Event::Proof(term, _) => self.counters.proofs += u64::from(self.proven.insert(term)),
            Event::Command(id, command) => self.on_command(id, command),
            Event::Candidates(candidates) => self.candidates = candidates,
            Event::Requested(requested) => self.requested = requested,
            Event::Backing(term, answer) => self.on_backing(term, answer),
            Event::LockLost(term) => self.on_lock_lost(term),
            Event::Rewound(id) => self.on_rewound(id),
            Event::Seen(record) => self.take_as_seen(record),
            Event::SeenDeleted(term, epoch) => self.see_number((term, epoch)),
        }
        self.settle();
    }

    /// [`Ownership::poll_effect`] has something.
    pub fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The next thing to do. All of it is to be done before the volume hears anything more: what ownership has admitted of a message
    /// leans on the orders that it has given before.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Event::Timeout`] is due, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let of_role = match &self.role {
            Role::Outside(outside) => self.outside_timeout(outside),
            Role::Following(following) => Some(self.following_timeout(following)),
            Role::Asking(_) | Role::Leaving => None,
            Role::Owning(owning) => self.owning_timeout(owning),
        };
        let opening = self.opening.as_ref().and_then(Opening::timeout);
        let gave_way = self.gave_way.as_ref().map(GaveWay::timeout);
        let coordinator = self.coordinator.timeout(self.now, self.setup.timing.look);
        let restoring = self.restoring.map(|restoring| restoring.timeout(self.setup.timing.silence()));
        let all = [of_role, coordinator, opening, gave_way, restoring, self.inquiry_timeout()].into_iter().flatten();
        // What is due and was not done waits for something else than time.
        all.filter(|at| *at > self.now).min()
    }

    /// What people and scripts are shown.
    pub fn status(&self) -> Status {
        self.shown.status(self)
    }

    /// How often each step was taken.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// This node with its tier, as it is now.
    pub fn own(&self) -> Incarnation {
        self.own
    }

    /// Highest term and epoch seen.
    pub fn seen(&self) -> (Term, Epoch) {
        self.seen
    }

    /// Whether a message about the log goes to the volume (S1, S2). Ask for each, before the volume has it.
    pub fn admit(&mut self, now: Instant, envelope: &Envelope, message: &LogMessage) -> Admission {
        self.advance(now);
        let sort = Sort::of_log(message);
        let mut taken = self.accepts(envelope, sort);
        if taken && sort == Sort::Owners {
            self.follow_sender(envelope);
            taken = match &self.role {
                Role::Following(_) | Role::Owning(_) => true,
                Role::Asking(asking) => !asking.sealed,
                // The volume is not there.
                Role::Outside(_) | Role::Leaving => false,
            };
            if taken {
                self.fresh = false;
                self.taught_at = now;
            }
        }
        self.settle();
        if taken { Admission::Take } else { Admission::Drop }
    }

    /// Panics where an invariant of the module does not hold.
    pub fn validate(&self) {
        if let Role::Owning(owning) = &self.role {
            assert!(owning.record.names(self.own), "owner of a record that does not name it: {:?}", owning.record);
            assert_eq!(owning.record.owner, self.own.node);
            assert!(owning.record.term <= self.seen.0, "owner of a term that it has not seen");
            if let Some(lease) = owning.lease_told {
                assert!(owning.serving(), "a lease without serving: {owning:?}");
                assert!(lease <= self.lease_until(owning), "a lease beyond the grants: {owning:?}");
            }
        }
    }

    fn advance(&mut self, now: Instant) {
        debug_assert!(now >= self.now, "time goes back");
        let late = self.wake.map_or(Duration(0), |wake| now - wake);
        self.now = now;
        if late > self.setup.timing.channel_dead {
            // This process did not run: what it has not heard may lie in its sockets. Others are not to blame.
            self.forgive(late);
            self.inquiry.forgive(late, now);
        }
    }

    /// The time in which this process did not run counts for nobody's silence.
    fn forgive(&mut self, late: Duration) {
        let now = self.now;
        let later = |since: Instant| (since + late).min(now);
        match &mut self.role {
            Role::Following(following) => following.heard = later(following.heard),
            Role::Owning(owning) => owning.peers.values_mut().for_each(|peer| peer.open = peer.open.map(later)),
            Role::Outside(_) | Role::Asking(_) | Role::Leaving => {}
        }
    }

    /// What follows from the state, after every event.
    fn settle(&mut self) {
        match &self.role {
            Role::Outside(_) => self.settle_outside(),
            Role::Following(_) => self.settle_following(),
            Role::Asking(_) | Role::Leaving => {}
            Role::Owning(_) => self.settle_owning(),
        }
        self.settle_opening();
        self.settle_gave_way();
        self.settle_inquiry();
        self.stop_answered_opening();
        self.settle_restoring();
        self.settle_coordinator();
        self.wake = self.poll_timeout();
        let (state, reason) = self.state_and_reason();
        self.shown.now_is(state, reason, self.now);
    }

    fn on_message(&mut self, envelope: Envelope, message: OwnershipMessage) {
        if !self.accepts(&envelope, Sort::of_ownership(&message)) {
            return;
        }
        match message {
            OwnershipMessage::Who { sent } => self.send(envelope.from, self.here(sent)),
            OwnershipMessage::Here { sent, at, host, fresh } => {
                self.on_here(Answer { sent, at, from: envelope.from, host, fresh });
            }
            OwnershipMessage::Know { sent, rewinds } => self.on_know(&envelope, sent, rewinds),
            OwnershipMessage::Known { sent, rewinds } => self.on_known(&envelope, sent, rewinds),
            OwnershipMessage::Beacon { sent } => self.on_beacon(&envelope, sent),
            OwnershipMessage::Seal => self.on_seal(&envelope),
            OwnershipMessage::TakeOver => self.on_take_over(envelope.from),
            OwnershipMessage::Learn { sent, at } => self.on_learn(&envelope, sent, at),
            OwnershipMessage::Granted { sent } => self.on_granted(envelope.from, sent),
            OwnershipMessage::Sealed { held, mark, .. } => self.on_sealed(envelope.from, held, mark.watermark),
        }
    }

    /// S1, S2, for every message of a volume, whoever handles it.
    fn accepts(&mut self, envelope: &Envelope, sort: Sort) -> bool {
        self.on_another_owner(envelope, sort);
        if sort == Sort::Exempt {
            return true;
        }
        if envelope.to != self.own && !planted!(self, hears_for_others) {
            self.counters.other_incarnations_refused += 1;
            if sort == Sort::Owners {
                self.refuse(envelope, Refusal::OtherIncarnation);
            }
            return false;
        }
        if sort == Sort::Here {
            return true;
        }
        if envelope.term < self.seen.0 && !planted!(self, hears_older_terms) {
            self.counters.older_terms_refused += 1;
            if sort == Sort::Owners {
                self.refuse(envelope, Refusal::OldTerm);
            }
            return false;
        }
        // A take-over is asked for by who may own no term any more: it tells of none, the record does.
        if (envelope.term, envelope.epoch) > self.seen && sort != Sort::TakeOver {
            self.see(envelope, sort == Sort::Owners);
        }
        true
    }

    /// T9: whatever an owner is told of a higher term by, a question or what is meant for an incarnation that it is no more.
    fn on_another_owner(&mut self, envelope: &Envelope, sort: Sort) {
        let tells = envelope.term > self.seen.0 && sort != Sort::TakeOver;
        if tells && matches!(self.role, Role::Owning(_)) && !planted!(self, hears_terms_in_its_own_only) {
            self.see(envelope, false);
        }
    }

    /// A message names a higher term or epoch than was seen; it was sent by the owner of that term, or not.
    fn see(&mut self, envelope: &Envelope, by_owner: bool) {
        let higher_term = envelope.term > self.seen.0;
        match &mut self.role {
            // T9: a record of that term was committed, whatever the coordinator shows now. Who hands over waits for the answer:
            // it serves nobody meanwhile, and the term may be the one that it has proposed.
            Role::Owning(owning) if higher_term && !owning.is_leaving() => self.on_told_of_higher_term(),
            Role::Owning(_) => self.coordinator.want_read(),
            Role::Asking(_) if higher_term && by_owner => self.give_up_asking(),
            // L2: the grace begins anew with each term.
            Role::Following(following) if higher_term => {
                *following =
                    Following { owner: None, term: envelope.term, heard: self.now, sealed_for: None, ..*following };
            }
            // Perhaps the change that made a learner a member; it is only shown.
            Role::Following(following) if !following.member => self.coordinator.want_read(),
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) | Role::Leaving => {}
        }
        self.seen = (envelope.term, envelope.epoch);
        self.remember();
    }

    fn on_link(&mut self, node: NodeId, up: bool) {
        let changed = if up { self.links_down.remove(&node) } else { self.links_down.insert(node) };
        if changed {
            self.inquiry.link(node, up, self.now);
        }
    }

    /// Nothing is kept of a node that was registered once: whoever can write to the coordinator registers any number.
    fn on_no_link(&mut self, node: NodeId) {
        self.links_down.remove(&node);
        self.inquiry.link(node, true, self.now);
    }

    /// This node has seen this record before, in another question: what is older than it went back (C3).
    fn take_as_seen(&mut self, record: Record) {
        self.see_number(record.version());
        if self.known.as_ref().is_none_or(|known| known.version() < record.version()) {
            self.known = Some(record);
        }
    }

    fn see_number(&mut self, number: (Term, Epoch)) {
        if number > self.seen {
            self.seen = number;
            self.remember();
        }
    }

    fn remember(&mut self) {
        let (term, epoch) = self.seen;
        if self.own.tier != 0 {
            self.effects.push_back(Effect::Volume(Order::Remember { term, epoch }));
        }
    }

    fn on_report(&mut self, report: Report) {
        match report {
            Report::Remembered { term, .. } => {
                self.remembered = self.remembered.max(term);
                self.answer_seal();
            }
            Report::Agreed { term } => self.on_agreed(term),
            Report::PeerFailed { peer, .. } => self.on_peer_failed(peer),
            Report::LearnerReady { peer } => self.on_learner_ready(peer),
            Report::Covered { proposal } => self.on_covered(proposal),
            Report::Quiet => self.on_quiet(),
            Report::NotQuiet(unrest) => self.on_not_quiet(unrest),
            Report::Outdated { .. } => self.want_read(),
            Report::Grown(size_bytes) => self.on_grown(size_bytes),
            Report::PinsEnded => self.on_pins_ended(),
            Report::TierFailed { answers } => self.on_tier_failed(answers),
            Report::WentBack => self.on_former_state(),
            Report::BackingQuiet => self.on_backing_quiet(),
        }
    }

    fn here(&self, sent: Instant) -> OwnershipMessage {
        OwnershipMessage::Here { sent, at: self.now, host: self.setup.host, fresh: self.fresh && self.own.tier != 0 }
    }

    fn refuse(&mut self, envelope: &Envelope, why: Refusal) {
        self.send(envelope.from, Message::Refused { why });
    }

    fn send(&mut self, to: Incarnation, message: impl Into<Message>) {
        let (term, epoch) = match &self.role {
            Role::Owning(owning) => owning.record.version(),
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) | Role::Leaving => self.seen,
        };
        let envelope = Envelope { volume: self.setup.volume, term, epoch, from: self.own, to };
        self.effects.push_back(Effect::Send(envelope, message.into()));
    }

    fn order(&mut self, order: Order) {
        self.effects.push_back(Effect::Volume(order));
    }
}

/// How the envelope of a message is judged (S1, S2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    /// Only an owner sends it to its peers: by it a term is learned, and to it a refusal is due.
    Owners,
    /// For whatever incarnation and term it was sent.
    Exempt,
    /// For this incarnation, of whatever term.
    Here,
    /// It tells of no term.
    TakeOver,
    /// For this incarnation; one of an older term is dropped, and nobody is told.
    Other,
}

impl Sort {
    fn of_log(message: &LogMessage) -> Sort {
        match message {
            LogMessage::Begin { .. } | LogMessage::Append { .. } | LogMessage::Mark(_) | LogMessage::Fetch { .. } => {
                Sort::Owners
            }
            LogMessage::Held(_) | LogMessage::Said { .. } | LogMessage::Ask { .. } | LogMessage::Cached { .. } => {
                Sort::Other
            }
        }
    }

    fn of_ownership(message: &OwnershipMessage) -> Sort {
        match message {
            OwnershipMessage::Beacon { .. } | OwnershipMessage::Seal | OwnershipMessage::Learn { .. } => Sort::Owners,
            OwnershipMessage::Who { .. } | OwnershipMessage::Know { .. } | OwnershipMessage::Known { .. } => {
                Sort::Exempt
            }
            OwnershipMessage::Here { .. } => Sort::Here,
            OwnershipMessage::TakeOver => Sort::TakeOver,
            OwnershipMessage::Granted { .. } | OwnershipMessage::Sealed { .. } => Sort::Other,
        }
    }
}
