//! Faults planted on purpose, to prove that the proofs can fail. Compiled only with the feature `planted`, which no
//! product build has; which one is active is read from the environment variable `FOREBAY_PLANT`.
//!
//! ```text
//! sync-dropped          a sync of tier or backing is answered and not done
//! backing-sync-dropped  a sync of the backing is answered and not done
//! sync-early            a sync of tier or backing is answered while it is still being done
//! groups-reordered      destage ignores the order of barrier groups
//! ack-early             a write is acknowledged before the tier has it
//! journal-dropped       nothing is written to the journal
//! journal-sync-dropped  a sync of the journal is answered and not done
//! marker-ahead          a marker tells what is shown of its image, and not what is durable
//! asks-on-thread        the thread that serves volumes asks the file system for the image's size before each sync of a backing
//! ```
//!
//! Of volumes that several nodes keep (the rules are those of docs/protocol.md):
//!
//! ```text
//! acked-before-replica  a write is acknowledged before the other members hold it (A1)
//! read-before-held      a read shows what the other members do not hold (A8)
//! no-seal               a node goes on telling former owners that it holds their writes, and grants them leases (S1, T2); and an
//!                       owner hears nobody who speaks in a higher term (T9)
//! dropped-early         a member is left out before the record says so (A3)
//! late-destage          what a former owner may still write to the backing is not pinned (T5)
//! unasked               nobody is asked what he has seen before the record is changed (C5)
//! ```

use forebay_core::Volume;
use forebay_core::api::{Effect, Event, Outcome};
use forebay_core::cluster::{Host, MarkNumber};
use forebay_core::message::{Envelope, Held, LogMessage, Message, OwnershipMessage, Room};
use forebay_core::ownership::{Ownership, State};
use forebay_core::types::{Lsn, OpId};
use std::collections::HashSet;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    SyncDropped,
    BackingSyncDropped,
    SyncEarly,
    GroupsReordered,
    AckEarly,
    JournalDropped,
    JournalSyncDropped,
    AckedBeforeReplica,
    ReadBeforeHeld,
    NoSeal,
    DroppedEarly,
    LateDestage,
    MarkerAhead,
    Unasked,
    AsksOnThread,
}

impl Fault {
    /// As the environment says.
    ///
    /// # Panics
    /// When it names a fault that does not exist: a proof that plants nothing would pass for the wrong reason.
    fn chosen() -> Option<Fault> {
        match std::env::var("FOREBAY_PLANT").ok().as_deref() {
            None | Some("") => None,
            Some("sync-dropped") => Some(Fault::SyncDropped),
            Some("backing-sync-dropped") => Some(Fault::BackingSyncDropped),
            Some("sync-early") => Some(Fault::SyncEarly),
            Some("groups-reordered") => Some(Fault::GroupsReordered),
            Some("ack-early") => Some(Fault::AckEarly),
            Some("journal-dropped") => Some(Fault::JournalDropped),
            Some("journal-sync-dropped") => Some(Fault::JournalSyncDropped),
            Some("acked-before-replica") => Some(Fault::AckedBeforeReplica),
            Some("read-before-held") => Some(Fault::ReadBeforeHeld),
            Some("no-seal") => Some(Fault::NoSeal),
            Some("dropped-early") => Some(Fault::DroppedEarly),
            Some("late-destage") => Some(Fault::LateDestage),
            Some("marker-ahead") => Some(Fault::MarkerAhead),
            Some("unasked") => Some(Fault::Unasked),
            Some("asks-on-thread") => Some(Fault::AsksOnThread),
            Some(other) => panic!("FOREBAY_PLANT={other}: there is no such fault"),
        }
    }
}

/// Plants the fault in the ownership of a volume, as far as it lies there.
pub fn plant_in(ownership: &mut Ownership) {
    match Fault::chosen() {
        Some(Fault::DroppedEarly) => ownership.rules.drops_uncommitted = true,
        Some(Fault::Unasked) => ownership.rules.goes_on_unasked = true,
        Some(
            Fault::SyncDropped
            | Fault::BackingSyncDropped
            | Fault::SyncEarly
            | Fault::GroupsReordered
            | Fault::AckEarly
            | Fault::JournalDropped
            | Fault::JournalSyncDropped
            | Fault::AckedBeforeReplica
            | Fault::ReadBeforeHeld
            | Fault::NoSeal
            | Fault::LateDestage
            | Fault::MarkerAhead
            | Fault::AsksOnThread,
        )
        | None => {}
    }
}

/// Whether markers are written of what was not synced.
pub fn marks_ahead() -> bool {
    Fault::chosen() == Some(Fault::MarkerAhead)
}

/// Whether this node does not hear a message; within, what is said instead, if anything is.
pub fn does_not_hear(
    ownership: &Ownership,
    envelope: &Envelope,
    message: &Message,
) -> Option<Option<(Envelope, Message)>> {
    if Fault::chosen() != Some(Fault::NoSeal) {
        return None;
    }
    let seen = ownership.seen().0;
    if envelope.term < seen {
        return answer_unsealed(envelope, message).map(Some);
    }
    // Else it would know of the higher term from whoever speaks to it first, and take those answers for late ones.
    (envelope.term > seen && ownership.status().state == State::Owner).then_some(None)
}

/// What is said to the owner of an older term, who ought not to be heard.
fn answer_unsealed(envelope: &Envelope, message: &Message) -> Option<(Envelope, Message)> {
    let held = |through: Lsn, mark: MarkNumber| {
        let room = Room { blocks: 1 << 12, ranges: 1 << 12 };
        let (accepted, held, synced, host) = (through, through, None, Host::default());
        Message::Log(LogMessage::Held(Held { accepted, held, synced, mark, room, host }))
    };
    let answer = match message {
        Message::Log(LogMessage::Append { through, mark, .. }) => {
            held(*through, mark.as_ref().map_or(MarkNumber(0), |mark| mark.number))
        }
        Message::Log(LogMessage::Mark(mark)) => held(Lsn(0), mark.number),
        Message::Ownership(OwnershipMessage::Beacon { sent }) => OwnershipMessage::Granted { sent: *sent }.into(),
        Message::Log(_) | Message::Ownership(_) | Message::Refused { .. } => return None,
    };
    Some((Envelope { from: envelope.to, to: envelope.from, ..*envelope }, answer))
}

/// The planted fault of one volume.
pub struct Plant {
    fault: Option<Fault>,
    /// Answered already: their real end is not told.
    answered: HashSet<OpId>,
}

/// What a fault makes of an effect.
pub struct Twisted {
    /// Told to core at once.
    pub event: Option<Event>,
    /// What is still carried out; none: nothing is.
    pub effect: Option<Effect>,
}

impl Plant {
    /// The fault that the environment names, if it names one.
    pub fn new(volume: &mut Volume) -> Plant {
        let fault = Fault::chosen();
        match fault {
            Some(Fault::GroupsReordered) => volume.rules.ignore_groups = true,
            Some(Fault::AckEarly) => volume.rules.acknowledge_before_held = true,
            Some(Fault::AckedBeforeReplica) => volume.rules.acknowledge_before_members = true,
            Some(Fault::ReadBeforeHeld) => volume.rules.show_uncommitted = true,
            Some(Fault::LateDestage) => volume.rules.forget_pins = true,
            Some(
                Fault::SyncDropped
                | Fault::BackingSyncDropped
                | Fault::SyncEarly
                | Fault::JournalDropped
                | Fault::JournalSyncDropped
                | Fault::NoSeal
                | Fault::DroppedEarly
                | Fault::MarkerAhead
                | Fault::Unasked
                | Fault::AsksOnThread,
            )
            | None => {}
        }
        Plant { fault, answered: HashSet::new() }
    }

    /// Whether the thread that is to carry out this effect waits for the file system first.
    pub fn asks_on_thread(&self, effect: &Effect) -> bool {
        self.fault == Some(Fault::AsksOnThread) && matches!(effect, Effect::BackingSync { .. })
    }

    /// What becomes of an effect.
    pub fn twist(&mut self, effect: Effect) -> Twisted {
        let of_journal = matches!(effect, Effect::JournalSync { .. });
        let of_backing = matches!(effect, Effect::BackingSync { .. });
        let op = match effect {
            Effect::TierSync { op } | Effect::BackingSync { op } | Effect::JournalSync { op } => op,
            Effect::JournalWrite { op, .. } if self.fault == Some(Fault::JournalDropped) => {
                return Twisted { event: Some(Event::Done { op, outcome: Outcome::Ok }), effect: None };
            }
            _ => return Twisted { event: None, effect: Some(effect) },
        };
        let done = Event::Done { op, outcome: Outcome::Ok };
        match self.fault {
            Some(Fault::SyncDropped) => Twisted { event: Some(done), effect: None },
            Some(Fault::BackingSyncDropped) if of_backing => Twisted { event: Some(done), effect: None },
            Some(Fault::JournalSyncDropped) if of_journal => Twisted { event: Some(done), effect: None },
            Some(Fault::SyncEarly) => {
                self.answered.insert(op);
                Twisted { event: Some(done), effect: Some(effect) }
            }
            Some(
                Fault::BackingSyncDropped
                | Fault::GroupsReordered
                | Fault::AckEarly
                | Fault::JournalDropped
                | Fault::JournalSyncDropped
                | Fault::AckedBeforeReplica
                | Fault::ReadBeforeHeld
                | Fault::NoSeal
                | Fault::DroppedEarly
                | Fault::LateDestage
                | Fault::MarkerAhead
                | Fault::Unasked
                | Fault::AsksOnThread,
            )
            | None => Twisted { event: None, effect: Some(effect) },
        }
    }

    /// Whether core is to hear of it.
    pub fn hears(&mut self, event: &Event) -> bool {
        match event {
            Event::Done { op, .. } => !self.answered.remove(op),
            _ => true,
        }
    }
}
