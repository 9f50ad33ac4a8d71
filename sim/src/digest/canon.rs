//! Canonical bytes: tags, numbers and lists, and the values that both seams of core share.
//!
//! A number is eight bytes whatever its type, so that a wider type changes nothing. A list begins with its length, an option
//! and a closed enum with a tag, so that no two values have the same bytes. Tags are given here once and for all and are never
//! used for anything else: they belong to a meaning, not to a name or to a place in the source. Structs are taken apart in full
//! and matches have every arm: what is new does not compile before it has its bytes.

use forebay_core::api::{Order, Own, PeerFailure, Report};
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::wire::encode_message;

/// Where canonical bytes are put.
pub(super) struct Canon<'a>(pub(super) &'a mut Vec<u8>);

impl Canon<'_> {
    pub(super) fn tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    pub(super) fn number(&mut self, number: impl Into<u64>) {
        self.0.extend_from_slice(&number.into().to_le_bytes());
    }

    /// A tag and the numbers that follow it.
    pub(super) fn row(&mut self, tag: u8, numbers: &[u64]) {
        self.tag(tag);
        numbers.iter().for_each(|number| self.number(*number));
    }

    pub(super) fn truth(&mut self, truth: bool) {
        self.tag(u8::from(truth));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    pub(super) fn option<T>(&mut self, value: Option<&T>, each: impl FnOnce(&mut Self, &T)) {
        match value {
            None => self.tag(0),
            Some(value) => {
                self.tag(1);
                each(self, value);
            }
        }
    }

    /// Tag 0 where it went well, else the error's.
    pub(super) fn result<T>(&mut self, result: Result<T, u8>, each: impl FnOnce(&mut Self, T)) {
        match result {
            Ok(value) => {
                self.tag(0);
                each(self, value);
            }
            Err(error) => self.tag(error),
        }
    }

    pub(super) fn incarnation(&mut self, incarnation: &Incarnation) {
        let Incarnation { node, tier, life } = incarnation;
        self.number(node.0);
        self.number(*tier);
        self.number(*life);
    }

    fn host(&mut self, host: &Host) {
        let Host { machine, boot } = host;
        self.bytes(machine);
        self.bytes(boot);
    }

    fn log_state(&mut self, log: LogState) {
        self.tag(match log {
            LogState::Needed => 1,
            LogState::Through => 2,
            LogState::Released => 3,
        });
    }

    fn flushed(&mut self, flushed: Flushed) {
        self.tag(match flushed {
            Flushed::Unrecorded => 1,
            Flushed::Held => 2,
            Flushed::Durable => 3,
        });
    }

    pub(super) fn record(&mut self, record: &Record) {
        let Record { term, epoch, owner, host, members, log, flushed, size_bytes, unfenced } = record;
        self.number(term.0);
        self.number(epoch.0);
        self.number(owner.0);
        self.host(host);
        self.list(members, Self::incarnation);
        self.log_state(*log);
        self.flushed(*flushed);
        self.number(*size_bytes);
        self.list(unfenced, |canon, Unfenced { term, node, host }| {
            canon.number(term.0);
            canon.number(node.0);
            canon.host(host);
        });
    }

    /// As it is on the wire, where it has canonical bytes already.
    pub(super) fn message(&mut self, envelope: &Envelope, message: &Message) {
        let length_at = self.0.len();
        self.number(0u64);
        let from = self.0.len();
        encode_message(envelope, message, self.0);
        let length = (self.0.len() - from) as u64;
        self.0[length_at..from].copy_from_slice(&length.to_le_bytes());
    }

    pub(super) fn order(&mut self, order: &Order) {
        match order {
            Order::Seal => self.tag(1),
            Order::Unseal => self.tag(2),
            Order::Remember { term, epoch } => self.row(3, &[term.0.into(), epoch.0.into()]),
            Order::Own(own) => {
                self.tag(4);
                self.own(own);
            }
            Order::Propose { proposal, epoch, members, log, flushed } => {
                self.tag(5);
                self.number(*proposal);
                self.number(epoch.0);
                self.list(members, Self::incarnation);
                self.log_state(*log);
                self.flushed(*flushed);
            }
            Order::Decide { epoch, members, log, flushed } => {
                self.tag(6);
                self.number(epoch.0);
                self.list(members, Self::incarnation);
                self.log_state(*log);
                self.flushed(*flushed);
            }
            Order::Learn(incarnation) => {
                self.tag(7);
                self.incarnation(incarnation);
            }
            Order::Forget(node) => self.row(8, &[node.0]),
            Order::Quiesce { to } => {
                self.tag(9);
                self.option(to.as_ref(), |canon, node| canon.number(node.0));
            }
            Order::Resume => self.tag(10),
            Order::Lease { until } => self.row(11, &[until.0]),
            Order::Size(bytes) => self.row(12, &[*bytes]),
            Order::Proven => self.tag(13),
            Order::HandedOver(term) => self.row(14, &[term.0.into()]),
            Order::StepDown => self.tag(15),
        }
    }

    fn own(&mut self, own: &Own) {
        let Own { term, epoch, members, log, flushed, watermark, fetch, unfenced, former } = own;
        self.number(term.0);
        self.number(epoch.0);
        self.list(members, Self::incarnation);
        self.log_state(*log);
        self.flushed(*flushed);
        self.number(watermark.0);
        self.option(fetch.as_ref(), |canon, (from, through)| {
            canon.incarnation(from);
            canon.number(through.0);
        });
        self.list(unfenced, |canon, term| canon.number(term.0));
        self.option(former.as_ref(), Self::incarnation);
    }

    pub(super) fn report(&mut self, report: &Report) {
        match report {
            Report::Remembered { term, epoch } => self.row(1, &[term.0.into(), epoch.0.into()]),
            Report::Agreed { term } => self.row(2, &[term.0.into()]),
            Report::PeerFailed { peer, why } => {
                self.tag(3);
                self.incarnation(peer);
                self.peer_failure(*why);
            }
            Report::LearnerReady { peer } => {
                self.tag(4);
                self.incarnation(peer);
            }
            Report::Covered { proposal } => self.row(5, &[*proposal]),
            Report::Quiet => self.tag(6),
            Report::Outdated { term, epoch } => self.row(7, &[term.0.into(), epoch.0.into()]),
            Report::Grown(bytes) => self.row(8, &[*bytes]),
            Report::PinsEnded => self.tag(9),
            Report::TierFailed { answers } => {
                self.tag(10);
                self.truth(*answers);
            }
            Report::WentBack => self.tag(11),
            Report::BackingQuiet => self.tag(12),
            Report::NotQuiet(unrest) => self.row(13, &[*unrest as u64]),
        }
    }

    fn peer_failure(&mut self, why: PeerFailure) {
        match why {
            PeerFailure::Stalled => self.tag(1),
            PeerFailure::Slow => self.tag(2),
            PeerFailure::Refused(refusal) => {
                self.tag(3);
                self.tag(match refusal {
                    Refusal::OldTerm => 1,
                    Refusal::OtherIncarnation => 2,
                    Refusal::BeyondTail => 3,
                    Refusal::NoRoom => 4,
                    Refusal::BeyondSize => 5,
                    Refusal::TierFailed => 6,
                    Refusal::UnknownVolume => 7,
                });
            }
        }
    }
}
