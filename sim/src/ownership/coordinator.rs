//! The coordinator: one record, changed by comparison; requests and answers are late or lost, and it may be away. Every
//! change of the record is judged here.

use super::oracle::{violated, withdrawn};
use super::{Item, Loss, MS, Node, World};
use forebay_core::cluster::*;
use forebay_core::ownership::*;
use forebay_core::types::*;
use std::collections::BTreeSet;

/// A node tries for so many milliseconds to send a change that it has decided: each member of the coordinator, and then it asks again.
const SENT_WITHIN: u64 = 3_500;

/// What was asked before a change is good for twice 650 ms, by clocks that differ.
const ASKED_WITHIN: u64 = 1_400 * MS;

/// A transaction on its way.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// What the record must be.
    pub compare: Record,
    /// The record that it becomes.
    pub new: Record,
    /// Which node, from 0, has sent it.
    pub by: usize,
    /// What that one knows of rewinds from the coordinator itself.
    pub mark: Vec<RewindId>,
    /// The highest that it had seen, or was told of, when it sent it.
    pub known: (Term, Epoch),
    /// What the coordinator was that its process had heard last, if any, and when it sent it.
    pub heard: Option<(u64, u64)>,
}

/// What comes with each answer.
#[derive(Clone, Debug)]
pub struct Header {
    /// That it went back, as nodes have written it down there.
    mark: Vec<RewindId>,
    /// What it calls itself.
    identity: u64,
    /// When the question was sent, by the clock of its node.
    sent: Instant,
}

/// The record and what it was.
#[derive(Debug)]
pub struct Coordinator {
    /// The record that it shows to who reads.
    pub record: Record,
    /// Every record that there was, oldest first.
    pub history: Vec<Record>,
    /// No request is answered before.
    pub away_until: u64,
    /// Transactions are answered by nothing, and take effect so many nanoseconds later.
    pub late_by: Option<u64>,
    /// Transactions of nodes that do not reach it are sent when there is a connection, so many nanoseconds later.
    pub sent_after: Option<u64>,
    /// Nodes, from 0, that do not reach it.
    pub cut_off: BTreeSet<usize>,
    /// How often it went back.
    pub age: u64,
    /// When it did so last, in true time.
    went_back_at: u64,
    /// What its answers call it: after a restore often another one, and an older count of changes tells as much.
    pub identity: u64,
    /// Highest version that it ever had: below that it went back.
    pub highest: (Term, Epoch),
    /// That it went back, as nodes have written it down there (C6).
    pub mark: Vec<RewindId>,
    /// What it would be if all nodes wrote it down that could.
    noticed: Vec<RewindId>,
    /// What was written down with each record of the history.
    marks: Vec<Vec<RewindId>>,
    /// Records that nobody had seen when it went back, and that were begun anew.
    forgotten: Vec<Record>,
}

impl Coordinator {
    /// A coordinator that has only this record.
    pub fn new(record: Record) -> Coordinator {
        let (history, highest) = (vec![record.clone()], record.version());
        Coordinator {
            record,
            history,
            away_until: 0,
            late_by: None,
            sent_after: None,
            cut_off: BTreeSet::new(),
            age: 0,
            went_back_at: 0,
            identity: 0,
            highest,
            mark: Vec::new(),
            noticed: Vec::new(),
            marks: vec![Vec::new()],
            forgotten: Vec::new(),
        }
    }

    /// It shows what it showed when this record of its history was new.
    pub fn go_back_to(&mut self, at: usize, now: u64) {
        self.went_back_at = now;
        self.record = self.history[at].clone();
        self.mark = self.marks[at].clone();
        self.noticed = self.mark.clone();
        self.age += 1;
    }

    /// Records of a higher number have never been.
    fn forget_above(&mut self, newest: (Term, Epoch)) {
        self.forgotten.extend(self.history.iter().filter(|record| record.version() > newest).cloned());
        let known: Vec<bool> = self.history.iter().map(|record| record.version() <= newest).collect();
        let mut keep = known.iter();
        self.history.retain(|_| *keep.next().expect("one for each"));
        let mut keep = known.iter();
        self.marks.retain(|_| *keep.next().expect("one for each"));
        self.highest = self.highest.min(newest);
    }

    /// An operator who has a newer backup brings it forward.
    pub fn bring_forward(&mut self, record: Record) {
        self.record = record.clone();
        self.highest = record.version();
        self.history.push(record);
        self.marks.push(self.mark.clone());
    }

    /// It shows an older record than it had.
    pub fn went_back(&self) -> bool {
        self.record.version() < self.highest
    }

    /// Carries out a transaction; true when the comparison held.
    pub fn commit(&mut self, transaction: &Transaction) -> bool {
        let holds = self.record == transaction.compare && self.mark == transaction.mark;
        if holds {
            self.record = transaction.new.clone();
            self.history.push(self.record.clone());
            self.marks.push(self.mark.clone());
            self.highest = self.highest.max(self.record.version());
        }
        holds
    }
}

fn add_to(all: &mut Vec<RewindId>, more: &[RewindId]) {
    for id in more {
        if !all.contains(id) {
            all.push(*id);
        }
    }
}

impl World {
    /// C6: whoever knows that the coordinator went back writes it down there.
    fn mark_rewind(&mut self, node: usize) {
        let open: Vec<RewindId> = self.nodes[node].rewinds.open.iter().copied().filter(|id| id.is_name()).collect();
        let open = open.as_slice();
        add_to(&mut self.coordinator.noticed, open);
        #[cfg(feature = "mutants")]
        if self.rules.rewind_not_told {
            return;
        }
        add_to(&mut self.coordinator.mark, open);
    }

    /// C6: what its ownership notices a node gives a name, and tells it.
    pub(super) fn name_noticed(&mut self, node: usize, process: u64, sent: Instant) {
        let id = self.name_rewind(node, sent);
        self.after(MS / 10, Item::Answer { node, process, event: Event::Rewound(id) });
    }

    /// What an answer says besides what it answers: it is told first.
    pub(super) fn on_header(&mut self, node: usize, header: Header) {
        let Header { mark, identity, sent } = header;
        self.nodes[node].mark = mark;
        let Some(process) = &mut self.nodes[node].process else { return };
        let before = process.heard.replace(identity);
        if before.is_some_and(|before| before != identity) {
            self.count("another coordinator noticed");
            let id = self.name_rewind(node, sent);
            self.drive(node, Event::Rewound(id));
        }
    }

    /// C6: what a node notices by itself gets a name that no other has.
    fn name_rewind(&mut self, node: usize, sent: Instant) -> RewindId {
        let now = self.local(node);
        let fresh = RewindId::drawn(self.random.below(u64::MAX) + 1);
        #[cfg(feature = "mutants")]
        let fresh = if self.rules.rewinds_are_counted {
            let KnownRewinds { open, settled } = &self.nodes[node].rewinds;
            RewindId(1 + open.iter().chain(settled).map(|id| id.0).max().unwrap_or(0))
        } else {
            fresh
        };
        let id = self.nodes[node].named.filter(|(at, _)| *at >= sent).map_or(fresh, |(_, id)| id);
        self.nodes[node].named = Some((now, id));
        self.nodes[node].rewinds.open(id);
        id
    }

    /// What a node is told is in its state folder before it acts on it.
    pub(super) fn see(&mut self, node: usize, event: &Event) {
        let won = self.nodes[node].process.as_ref().and_then(|process| process.commits.clone());
        let record = match event {
            Event::Read(_, Read::Is(record)) | Event::Committed(_, Committed::Lost(record)) => Some(record.clone()),
            Event::Committed(op, Committed::Won) => won.filter(|(of, _)| of == op).map(|(_, new)| new),
            _ => None,
        };
        if record.as_ref().is_some_and(|record| self.coordinator.forgotten.contains(record)) {
            // Its process stood still all the time with the answer in its socket, and could tell nobody.
            withdrawn("what nobody could know was known");
        }
        let seen = &mut self.nodes[node].seen;
        if let Some(record) = record
            && seen.as_ref().is_none_or(|seen| seen.version() < record.version())
        {
            *seen = Some(record);
        }
    }

    pub(super) fn ask_coordinator(&mut self, node: usize, process: u64, op: OpId, transaction: Option<Transaction>) {
        let away = self.now < self.coordinator.away_until || self.coordinator.cut_off.contains(&node);
        if let (Some(late), Some(transaction), false) = (self.coordinator.late_by, &transaction, away) {
            self.after(late, Item::Late(transaction.clone(), Some(self.coordinator.age)));
            return self.leave_open(node, process, op, true);
        }
        let lost = away || self.chaos.loses_request(&mut self.random);
        let delay = self.random.range(1, 10) * MS;
        if !lost {
            let answered = !self.chaos.loses_answer(&mut self.random);
            let (answered, age) = (answered.then(|| self.local(node)), self.coordinator.age);
            return self.after(delay, Item::Ask { node, process, op, transaction, answered, age });
        }
        self.leave_open(node, process, op, transaction.is_some());
        let Some(transaction) = transaction else { return };
        if self.coordinator.cut_off.contains(&node) {
            // It is not even sent before there is a connection, to whatever is there by then.
            let drawn = self.random.chance(500_000).then(|| self.random.range(100, SENT_WITHIN) * MS);
            if let Some(delay) = self.coordinator.sent_after.or(drawn) {
                self.after(delay, Item::Late(transaction, None));
            }
        } else if self.random.chance(500_000) {
            // It is not lost, only late.
            let delay = self.random.range(100, 8_000) * MS;
            self.after(delay, Item::Late(transaction, Some(self.coordinator.age)));
        }
    }

    /// What was sent to a coordinator that went back since is forgotten with the rest.
    pub(super) fn arrive_late(&mut self, transaction: &Transaction, sent_to: Option<u64>) {
        let reached = self.now >= self.coordinator.away_until && !self.coordinator.cut_off.contains(&transaction.by);
        if sent_to.map_or(reached, |age| age == self.coordinator.age) {
            self.commit(transaction);
        }
    }

    /// No answer comes, and in the end it is given up.
    pub(super) fn leave_open(&mut self, node: usize, process: u64, op: OpId, changes: bool) {
        let unknown = Event::Committed(op, Committed::Unknown);
        let event = if changes { unknown } else { Event::Read(op, Read::Failed) };
        self.after(1_000 * MS, Item::Answer { node, process, event });
    }

    /// `answered`: when the question was sent whose answer arrives, by the clock of its node.
    pub(super) fn coordinate(
        &mut self,
        node: usize,
        process: u64,
        op: OpId,
        what: Option<Transaction>,
        answered: Option<Instant>,
    ) {
        self.mark_rewind(node);
        let mark = self.coordinator.mark.clone();
        let event = match what {
            None if answered.is_some() => Event::Read(op, Read::Is(self.coordinator.record.clone())),
            None => Event::Read(op, Read::Failed),
            Some(transaction) => {
                let won = self.commit(&transaction);
                let committed = match (answered.is_some(), won) {
                    (false, _) => Committed::Unknown,
                    (true, true) => Committed::Won,
                    (true, false) => Committed::Lost(self.coordinator.record.clone()),
                };
                Event::Committed(op, committed)
            }
        };
        let delay = if answered.is_some() { self.random.range(1, 10) * MS } else { 1_000 * MS };
        if let Some(sent) = answered {
            let header = Header { mark: mark.clone(), identity: self.coordinator.identity, sent };
            self.after(delay, Item::Header { node, process, header });
            for id in mark {
                self.after(delay, Item::Answer { node, process, event: Event::Rewound(id) });
            }
        }
        self.after(delay, Item::Answer { node, process, event });
    }

    pub(super) fn commit(&mut self, transaction: &Transaction) -> bool {
        if self.coordinator.went_back() {
            self.forget_unseen();
        }
        let before = self.coordinator.record.clone();
        let (newest, went_back) = (self.newest_record().clone(), self.coordinator.went_back());
        if !self.coordinator.commit(transaction) {
            return false;
        }
        let after = self.coordinator.record.clone();
        self.tell(|| format!("RECORD {after:?}"));
        self.count("changes of the record");
        if after.version() <= before.version() {
            violated(format!("the record of {:?} becomes {:?}", before.version(), after.version()));
        }
        let basis = self.basis_of(&before, &after);
        // The owner of the newest term knows what it has proposed itself, and asks both sets until that is decided (C4).
        let by_owner = newest.term == after.term && self.owns(transaction.by, newest.term);
        if went_back && !by_owner && (basis < newest.version() || after.version() <= newest.version()) {
            let anew = basis > before.version();
            self.check_nobody_could_tell(transaction, basis, anew, &newest);
        }
        self.check_fenced(&newest, &after);
        self.check_loss(&newest, &after);
        if self.loss.is_none() {
            self.under_way.iter().for_each(|write| self.may_land(write, &after));
            if let Err(broken) = self.oracle.changed(&after, &self.tiers, &self.under_way) {
                // What an owner did before it was told stays its fault, whoever writes its record.
                let owner = after.owner.0 as usize - 1;
                self.broken_at(if self.is_excused(owner) { owner } else { transaction.by }, broken);
            }
        }
        true
    }

    /// The highest that a node has seen, in whatever it keeps.
    fn newest_seen(&self, node: usize) -> (Term, Epoch) {
        let of_process = self.nodes[node].process.as_ref().map(|process| process.ownership.seen());
        let of_tier = self.tiers[node].as_ref().map(|tier| tier.seen);
        let of_folder = self.nodes[node].seen.as_ref().map(Record::version);
        [of_process, of_tier, of_folder].into_iter().flatten().max().unwrap_or_default()
    }

    /// What was recorded, and forgotten before anybody has seen it, was never acted upon.
    fn forget_unseen(&mut self) {
        let newest_seen = (0..self.nodes.len()).map(|node| self.newest_seen(node)).max().unwrap_or_default();
        let at_least = newest_seen.max(self.coordinator.record.version());
        self.coordinator.forget_above(at_least);
    }

    fn owns(&self, node: usize, term: Term) -> bool {
        let status = self.nodes[node].process.as_ref().map(|process| process.ownership.status());
        let owner = |status: &Status| status.record.as_ref().is_some_and(|record| record.term == term);
        let state = |status: &Status| matches!(status.state, State::Agreeing | State::Owner | State::Custodian);
        status.as_ref().is_some_and(|status| owner(status) && state(status))
    }

    /// The record that a change rests on: the one that it writes anew, or the one that it changes.
    fn basis_of(&self, before: &Record, after: &Record) -> (Term, Epoch) {
        let anew = |known: &&Record| Record { epoch: after.epoch, ..(*known).clone() } == *after;
        let of_history = self.coordinator.history.iter().filter(|known| known.version() < after.version());
        let written_anew = of_history.filter(anew).map(Record::version).max();
        written_anew.unwrap_or_default().max(before.version())
    }

    /// C5, C6: what went back is changed only where nobody could tell who knew more. Then nothing is promised, and the run ends.
    fn check_nobody_could_tell(&self, sent: &Transaction, basis: (Term, Epoch), anew: bool, newest: &Record) {
        let (by, after) = (sent.by, &sent.new);
        let change = format!("{newest:?} was known; node {} makes of {basis:?} {after:?}", by + 1);
        let knows = |node: usize| {
            let of_process = self.nodes[node].process.as_ref().map(|process| process.ownership.seen());
            of_process.is_some_and(|seen| seen > basis)
        };
        if sent.known > basis {
            violated(format!("it knew better: {change}"));
        }
        // An answer of another one tells: who sends a change has asked it just before, as it has asked the nodes (C5).
        let asked_since = |at: u64| at > self.coordinator.went_back_at + ASKED_WITHIN;
        if !anew && sent.heard.is_some_and(|(it, at)| it != self.coordinator.identity && asked_since(at)) {
            violated(format!("the coordinator itself would have told that it is another one: {change}"));
        }
        let unsettled = |id: &RewindId| !self.nodes[by].rewinds.settled.contains(id);
        if !anew && self.coordinator.noticed.iter().any(unsettled) {
            violated(format!("that the coordinator went back was known, and nobody has settled it: {change}"));
        }
        let since = self.now.saturating_sub(3_000 * MS);
        let calm = self.chaos.loses_nothing() && self.paths_changed_at < since;
        let cut = |other: usize| self.cut.contains(&(by, other)) || self.cut.contains(&(other, by));
        let could_tell =
            |other: &usize| *other != by && knows(*other) && !cut(*other) && self.nodes[*other].paused_until < since;
        if calm && let Some(other) = (0..self.nodes.len()).find(could_tell) {
            violated(format!("node {} could have told it: {change}", other + 1));
        }
        withdrawn(&change)
    }

    /// T6, T8: a former owner leaves the list when it can write no more, and the last one after the pinned ranges were
    /// written again.
    pub(super) fn check_fenced(&mut self, before: &Record, after: &Record) {
        let gone = |former: &&Unfenced| !after.unfenced.contains(former);
        let emptied: Vec<Unfenced> = before.unfenced.iter().filter(gone).copied().collect();
        if emptied.is_empty() {
            return;
        }
        self.count(if after.unfenced.is_empty() { "pins ended" } else { "unfenced shortened" });
        for former in &emptied {
            let owner = &self.nodes[former.node.0 as usize - 1];
            let same = owner.host == former.host && owner.process.is_some();
            let owner_may = same && owner.process.as_ref().is_some_and(|process| process.holds(former.term));
            let forgot = self.tiers[former.node.0 as usize - 1].as_ref().is_some_and(|tier| tier.put_back.is_some());
            if owner_may && forgot {
                withdrawn("a former owner was put back to when it was one, after it was proved to be none");
            }
            if owner_may || self.is_writing(former.term) {
                violated(format!("{former:?} is called fenced and may still write"));
            }
        }
        if after.unfenced.is_empty() && self.rewritten != Some(before.term) {
            violated("unfenced is emptied before the pinned ranges were written again".into());
        }
    }

    /// Somebody holds a lock of that term: its owner, or a candidate for it.
    pub(super) fn may_write(&self, term: Term) -> bool {
        let holds = |node: &Node| node.process.as_ref().is_some_and(|process| process.holds(term));
        self.is_writing(term) || self.nodes.iter().any(holds)
    }

    /// T10 and `--accept-loss`: what is acknowledged may be lost only when nobody has it any more.
    pub(super) fn check_loss(&mut self, before: &Record, after: &Record) {
        let own = after.member(after.owner);
        let continues = own.is_some_and(|own| before.names(own));
        if after.term == before.term {
            return;
        }
        if before.log == LogState::Released {
            self.loss = Some(Loss::InBacking);
            return;
        }
        if continues {
            return;
        }
        let alive = |member: &Incarnation| self.tiers.iter().flatten().any(|tier| tier.incarnation == *member);
        let later_life = own.is_some_and(|own| before.members.iter().any(|member| member.is_earlier_life_of(own)));
        // A candidate has a lock as well, and writes nothing.
        let holds = |process: &super::Process| {
            process.locks.contains(&before.term) && process.volume.owned() == Some(before.term)
        };
        let owns = |node: &Node| node.process.as_ref().is_some_and(holds);
        let may_write = self.is_writing(before.term) || self.nodes.iter().any(owns);
        if before.log == LogState::Through && !may_write {
            self.count("opened after write-through");
            self.loss = Some(Loss::InBacking);
            return;
        }
        if let Some(member) = before.members.iter().find(|member| alive(member)) {
            violated(format!("{own:?} becomes the owner while {member:?} has the log"));
        }
        let flushed_is_there = match before.flushed {
            Flushed::Durable => true,
            Flushed::Held => false,
            // Who takes over goes by what it asked for when it began to; nobody has answered a flush since.
            Flushed::Unrecorded => self.setup.requested.media || self.flushed_for_media,
        };
        let power_was_lost = later_life && flushed_is_there;
        let answers = |member: &&Incarnation| {
            let tier = self.tiers.iter().flatten().find(|tier| member.is_earlier_life_of(tier.incarnation));
            tier.is_some() && self.nodes[member.node.0 as usize - 1].process.is_some()
        };
        if let Some(member) = before.members.iter().find(answers).filter(|_| !later_life && self.is_calm()) {
            violated(format!("{own:?} gives up the log of {member:?}, which answers in a later life"));
        }
        if !self.loss_accepted && !power_was_lost {
            violated(format!("{own:?} becomes the owner without the log, and nobody said that it may"));
        }
        self.count(if self.loss_accepted { "losses accepted" } else { "power lost everywhere" });
        // An owner that opened with everything in the backing, and lost its power before it served, has added nothing to that.
        let in_backing = self.loss == Some(Loss::InBacking);
        self.loss = Some(match self.loss_accepted {
            true => Loss::Accepted,
            false if in_backing => Loss::InBacking,
            false => Loss::Power,
        });
    }
}
