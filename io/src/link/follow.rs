//! A link follows the addresses that the other node is said to have, without an end of what works.
//!
//! ```text
//! asked for --(others are asked for)--> leaving --(it ends, and in vain for a while)--> vacant
//!     ^                                    |                                              |
//!     +-------(it is asked for again)------+    a pair that waits for a place  <----------+
//! ```
//!
//! Who calls decides: [`pairs`]. Who is called knows of a channel only its two addresses, and neither which pair it is for nor
//! the port behind which the other one can be called: a channel of which one end is said to have the address no longer is shown
//! as long as it is there, and is forgotten when it ends.
//!
//! What works is never ended because of what somebody says, whatever works beside it: who can write to the coordinator could have
//! the link led over a host of his, and cut it there. A node that has moved ends it by itself. (Only where all places are taken by what
//! works does one make room, one at a time: see [`pairs`].)
//!
//! Bounds: addresses are what the coordinator says, which whoever can write there may change as often as he likes. However
//! often that is, new ones are called at once only [`CHANGES_APART`] after the last ones that were; they are at most
//! [`CHANNELS_MAX`], and nobody is let in who does not show who he is.

use super::pairs::{self, Fate, Seat};
use super::{AddressPair, CHANNELS_MAX, Link, LinkEvent, NoLink, Receiver, Slot, State};
use crate::reactor::Reactor;
use forebay_core::types::{Duration, Instant};
use std::net::IpAddr;

/// One that is asked for no more and has worked is called again for so long: who says so may be wrong, and soon be put right.
const TRIED_ON: Duration = Duration::from_secs(5);
/// Between two sets of new pairs that are called at once.
const CHANGES_APART: Duration = Duration::from_secs(1);

/// Whether a channel's pair is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It is, or nobody knows otherwise.
    Asked,
    /// Not any more.
    Leaving {
        /// It has worked and is called again until then; none: it works.
        until: Option<Instant>,
    },
    /// Nobody has this place.
    Vacant,
}

impl Slot {
    fn seat(&self, now: Instant) -> Seat {
        let is_tried_on = matches!(self.standing, Standing::Leaving { until: Some(until) } if until > now);
        let pair = self.pair.filter(|_| self.standing != Standing::Vacant);
        Seat { pair, works: self.connection().is_some() || is_tried_on }
    }

    fn is_leaving(&self) -> bool {
        matches!(self.standing, Standing::Leaving { .. })
    }
}

impl Link {
    /// From now on the link is to be between these pairs of addresses, which are at most [`CHANNELS_MAX`]. What works goes on
    /// until it ends; what does not is given up, and what is new is called at once.
    pub fn set_pairs(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        asked: Vec<AddressPair>,
        now: Instant,
    ) -> Result<(), NoLink> {
        if asked.len() > CHANNELS_MAX {
            return Err(NoLink::Pairs(asked.len()));
        }
        let former = std::mem::replace(&mut self.config.pairs, asked);
        if self.calls() {
            self.rearrange(reactor, receiver, now);
            return Ok(());
        }
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let Some(address) = slot.address.filter(|_| slot.standing != Standing::Vacant) else { continue };
            let ends = (slot.called_at, address.ip().to_canonical());
            if pairs::has_ends(&self.config.pairs, ends) {
                slot.standing = Standing::Asked;
            } else if pairs::has_ends(&former, ends) && slot.connection().is_some() {
                slot.standing = Standing::Leaving { until: None };
            } else if pairs::has_ends(&former, ends) {
                self.vacate(reactor, receiver, index, now);
            }
        }
        Ok(())
    }

    /// A channel with this address of the other node is in use.
    pub fn reaches(&self, ip: IpAddr) -> bool {
        let used = |slot: &Slot| slot.connection().is_some() && slot.address.is_some_and(|address| address.ip() == ip);
        self.slots.iter().any(used)
    }

    fn rearrange(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        self.is_to_rearrange = false;
        let seats: Vec<Seat> = self.slots.iter().map(|slot| slot.seat(now)).collect();
        let fates = pairs::arrange(&seats, &self.config.pairs);
        let begin_at = self.new_called_at.map_or(now, |at| now.max(at + CHANGES_APART));
        for (index, fate) in fates.into_iter().enumerate() {
            match fate {
                Fate::Stays => self.slots[index].standing = Standing::Asked,
                Fate::Leaves if self.slots[index].is_leaving() => {}
                Fate::Leaves => self.slots[index].standing = Standing::Leaving { until: None },
                Fate::Ends => self.vacate(reactor, receiver, index, now),
                Fate::Begins(pair) => {
                    if index < self.slots.len() {
                        self.vacate(reactor, receiver, index, now);
                    } else {
                        self.slots.push(Slot::new(None, now));
                    }
                    let state = State::Down { again_at: Some(begin_at) };
                    self.slots[index] = Slot { state, ..Slot::new(Some(pair), now) };
                    if begin_at == now {
                        self.new_called_at = Some(now);
                    }
                }
            }
        }
    }

    /// When [`Link::follow`] has something to do.
    pub(super) fn follow_deadline(&self) -> Option<Instant> {
        self.is_to_rearrange.then_some(Instant(0))
    }

    /// Gives places that have become free to who waits for one.
    pub(super) fn follow(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        if self.is_to_rearrange {
            self.rearrange(reactor, receiver, now);
        }
    }

    /// A channel has ended, or did not come about. Where its pair is leaving, it is given up, unless it has worked a moment ago
    /// and nothing else does.
    pub(super) fn leave_unless_needed(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        index: usize,
        was_up: bool,
        now: Instant,
    ) {
        let Standing::Leaving { until } = self.slots[index].standing else { return };
        let until = if was_up { now + TRIED_ON } else { until.unwrap_or(now) };
        if self.slots[index].pair.is_some() && until > now && !self.is_up() {
            self.slots[index].standing = Standing::Leaving { until: Some(until) };
            return;
        }
        self.vacate(reactor, receiver, index, now);
        self.is_to_rearrange = self.calls();
    }

    /// Nobody has this place from now on; what is there ends.
    fn vacate(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, now: Instant) {
        if self.slots[index].standing == Standing::Vacant {
            return;
        }
        let was_up = self.slots[index].connection().is_some();
        self.end_state(reactor, receiver, index, None);
        let former = std::mem::replace(&mut self.slots[index], Slot::new(None, now));
        self.slots[index].standing = Standing::Vacant;
        // Of what nobody has heard of nothing is told.
        let known = former.address.filter(|_| was_up || former.why.is_some());
        self.events.extend(known.map(|address| LinkEvent::Left { channel: index, address }));
        if was_up {
            self.all_down();
        }
    }
}
