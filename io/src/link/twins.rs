//! Whether two daemons run with the identity of the node at the other end, as where its machine was copied.
//!
//! Each process draws its session at random. One that takes the place of another is as a rule the same node, started anew: the former
//! one's channels have ended by then, or are silent. So it is a sign of two when the former was heard a moment ago; and where
//! one comes back that had been replaced so, both live. Each would take the link over from the other for ever, and no message would
//! come through. From then on the one that is there keeps the link as long as it is heard, and the other one is refused.
//!
//! Not seen: the copy of a running process, which has the same session.

use super::connection::Connection;
use super::{Failure, Link, Slot, State, greeting};
use crate::reactor::Reactor;
use forebay_core::types::{Duration, Instant};
use forebay_core::wire::{Hello, Rejection};
use std::collections::VecDeque;

/// Who was heard within this lives.
const ALIVE: Duration = Duration::from_secs(2);
/// Takings that are further apart have nothing to do with each other.
const TOGETHER: Duration = Duration::from_secs(60);
/// There are two until nothing has shown it for so long: whoever is refused calls again each three seconds.
const KNOWN: Duration = Duration::from_secs(30);
/// Sessions that are remembered.
const FORMER_MAX: usize = 8;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Twins {
    /// Those that were replaced, the last one last.
    former: VecDeque<u64>,
    /// When the place of one that lived was taken the last time before.
    taken: Option<Instant>,
    /// When another machine was refused the last time before.
    refused: Option<Instant>,
    /// When it was seen last that there are two.
    seen: Option<Instant>,
}

impl Twins {
    /// A session takes the place of a former one, which `lived` until now.
    fn takes_over(&mut self, former: u64, session: u64, lived: bool, now: Instant) {
        let is_back = self.former.contains(&session);
        self.former.retain(|other| *other != former);
        if self.former.len() == FORMER_MAX {
            self.former.pop_front();
        }
        self.former.push_back(former);
        if lived {
            let again = self.taken.replace(now).is_some_and(|before| now - before < TOGETHER);
            if is_back && again {
                self.seen = Some(now);
            }
        }
    }

    /// Another one calls while the one that is there lives. A machine that was moved does so once.
    fn refuses(&mut self, now: Instant) {
        let again = self.refused.replace(now).is_some_and(|before| now - before < TOGETHER);
        if again || self.are_known(now) {
            self.seen = Some(now);
        }
    }

    fn are_known(&self, now: Instant) -> bool {
        self.seen.is_some_and(|seen| now - seen < KNOWN)
    }
}

impl Link {
    /// Two daemons run with the identity of the other node.
    pub fn has_twins(&self, now: Instant) -> bool {
        self.twins.are_known(now)
    }

    fn is_heard(&self, now: Instant) -> bool {
        self.slots.iter().filter_map(Slot::connection).any(|live| now - live.heard_at() < ALIVE)
    }

    /// Another machine uses the name of one that is alive, or another daemon of the same machine, or of a copy of it, does.
    pub(super) fn is_second(&mut self, hello: &Hello, now: Instant) -> bool {
        let Some(peer) = self.peer.as_ref().filter(|peer| peer.session != hello.session) else { return false };
        let differs = peer.machine != hello.host.machine;
        let is_second = (differs || self.twins.are_known(now)) && self.is_heard(now);
        if is_second {
            self.twins.refuses(now);
        }
        is_second
    }

    /// The channel that was called has led to the second one.
    pub(super) fn send_second_away(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn super::Receiver,
        index: usize,
        now: Instant,
    ) {
        if let State::Greeting { channel, .. } = &mut self.slots[index].state {
            greeting::send_goodbye(channel, Rejection::TwoOfOneName);
        }
        self.fail(reactor, receiver, index, Failure::Refused(Rejection::TwoOfOneName), now);
    }

    /// Before the session of a hello becomes that of the link.
    pub(super) fn note_session(&mut self, hello: &Hello, now: Instant) {
        if let Some(former) = self.peer.as_ref().map(|peer| peer.session) {
            let alive = |live: &Connection| live.has_spoken() && now - live.heard_at() < ALIVE;
            let lived = self.slots.iter().filter_map(Slot::connection).any(alive);
            self.twins.takes_over(former, hello.session, lived, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(0) + Duration::from_millis(ms)
    }

    #[test]
    fn one_that_comes_back_in_the_place_of_one_that_lives_shows_two() {
        let mut twins = Twins::default();
        twins.takes_over(1, 2, true, at(0));
        assert!(!twins.are_known(at(0)), "it may have been started anew");
        twins.takes_over(2, 1, true, at(800));
        assert!(twins.are_known(at(800)) && twins.are_known(at(30_000)));
        assert!(!twins.are_known(at(30_800)), "nothing has shown it since");
    }

    #[test]
    fn a_machine_that_was_moved_calls_once_before_the_former_one_is_silent() {
        let mut twins = Twins::default();
        twins.refuses(at(0));
        assert!(!twins.are_known(at(0)));
        twins.refuses(at(3000));
        assert!(twins.are_known(at(3000)));
    }

    #[test]
    fn a_node_that_is_started_again_and_again_is_one() {
        let mut twins = Twins::default();
        for start in 0..100 {
            twins.takes_over(start, start + 1, start % 3 == 0, at(start * 500));
            assert!(!twins.are_known(at(start * 500)));
        }
        assert_eq!(twins.former.len(), FORMER_MAX);
    }

    #[test]
    fn a_late_word_of_one_that_has_ended_is_no_second_one() {
        let mut twins = Twins::default();
        twins.takes_over(1, 2, false, at(0));
        twins.takes_over(2, 1, true, at(100));
        twins.takes_over(1, 2, false, at(200));
        assert!(!twins.are_known(at(200)));
        // Much later the same is no sign either.
        twins.takes_over(2, 1, true, at(100_000));
        assert!(!twins.are_known(at(100_000)));
    }
}
