//! Which pairs of addresses a link keeps, gives up and begins where others are asked for than before. Pure.
//!
//! Invariants:
//! - What works is not ended: it *leaves*, and goes when it ends.
//! - Only where all places are taken by what works does one of those that leave make room, one at a time: of
//!   [`CHANNELS_MAX`] the others are left.
//! - Whatever is asked for, there are at most [`CHANNELS_MAX`] places, and what has a place in vain keeps none that is
//!   asked for from it.

use super::{AddressPair, CHANNELS_MAX};
use std::net::IpAddr;

/// A place for a channel, as it is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// The pair that has it; none: nobody has.
    pub(super) pair: Option<AddressPair>,
    /// A channel is in use there, or was a moment ago.
    pub(super) works: bool,
}

/// What becomes of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// Its pair is asked for.
    Stays,
    /// Its pair is asked for no more, and works.
    Leaves,
    /// Nobody has it, or its pair is asked for no more and does not work.
    Ends,
    /// It is this pair's from now on.
    Begins(AddressPair),
}

/// What becomes of each place, and of those behind the last that are taken now. What finds no place waits for one.
pub(super) fn arrange(seats: &[Seat], asked: &[AddressPair]) -> Vec<Fate> {
    let mut missing = asked.to_vec();
    let mut fate_of = |seat: &Seat| match seat.pair.map(|pair| missing.iter().position(|other| *other == pair)) {
        Some(Some(at)) => {
            missing.remove(at);
            Fate::Stays
        }
        Some(None) if seat.works => Fate::Leaves,
        Some(None) | None => Fate::Ends,
    };
    let mut fates: Vec<Fate> = seats.iter().map(&mut fate_of).collect();
    let mut missing = missing.into_iter();
    for fate in fates.iter_mut().filter(|fate| **fate == Fate::Ends) {
        let Some(pair) = missing.next() else { return fates };
        *fate = Fate::Begins(pair);
    }
    let room = CHANNELS_MAX.saturating_sub(fates.len());
    fates.extend(missing.by_ref().take(room).map(Fate::Begins));
    let is_under_way = |(at, fate): (usize, &Fate)| match fate {
        Fate::Begins(_) => true,
        Fate::Stays => !seats[at].works,
        Fate::Leaves | Fate::Ends => false,
    };
    if !fates.iter().enumerate().any(is_under_way)
        && let Some(pair) = missing.next()
        && let Some(fate) = fates.iter_mut().find(|fate| **fate == Fate::Leaves)
    {
        *fate = Fate::Begins(pair);
    }
    fates
}

/// Whether a channel between these addresses, as who is called sees them, can be one of the pairs: each end is named by one. (Which
/// goes with which is the business of who calls.) An end that is not known is no objection.
pub(super) fn has_ends(pairs: &[AddressPair], (own, peer): (Option<IpAddr>, IpAddr)) -> bool {
    let has_own = own.is_none_or(|own| pairs.iter().any(|pair| pair.own == own));
    has_own && pairs.iter().any(|pair| pair.peer.ip() == peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(own: u8, peer: u8) -> AddressPair {
        AddressPair { own: [10, 0, 0, own].into(), peer: ([10, 0, 1, peer], 7071).into() }
    }

    fn seat(own: u8, peer: u8, works: bool) -> Seat {
        Seat { pair: Some(pair(own, peer)), works }
    }

    const FREE: Seat = Seat { pair: None, works: false };

    #[test]
    fn what_is_asked_for_stays_whether_it_works_or_not() {
        let seats = [seat(1, 1, true), seat(2, 2, false)];
        assert_eq!(arrange(&seats, &[pair(2, 2), pair(1, 1)]), [Fate::Stays, Fate::Stays]);
        assert_eq!(arrange(&seats, &[pair(1, 1)]), [Fate::Stays, Fate::Ends]);
        assert_eq!(arrange(&[], &[]), []);
    }

    #[test]
    fn a_dead_pair_makes_room_at_once_and_a_working_one_stays_beside_its_successor() {
        let new = Fate::Begins(pair(1, 9));
        assert_eq!(arrange(&[seat(1, 1, false)], &[pair(1, 9)]), [new]);
        assert_eq!(arrange(&[seat(1, 1, true)], &[pair(1, 9)]), [Fate::Leaves, new]);
        assert_eq!(arrange(&[FREE, seat(1, 1, true)], &[pair(1, 9)]), [new, Fate::Leaves]);
        // One of two addresses has changed.
        let seats = [seat(1, 1, true), seat(2, 2, false)];
        assert_eq!(arrange(&seats, &[pair(1, 1), pair(2, 9)]), [Fate::Stays, Fate::Begins(pair(2, 9))]);
        // It is one address less, and works: nothing is lost by a word alone.
        let seats = [seat(1, 1, true), seat(2, 2, true)];
        assert_eq!(arrange(&seats, &[pair(1, 1)]), [Fate::Stays, Fate::Leaves]);
        assert_eq!(arrange(&seats, &[pair(1, 1), pair(2, 2)]), [Fate::Stays, Fate::Stays], "it was asked for again");
    }

    #[test]
    fn a_pair_that_is_named_twice_has_two_places() {
        assert_eq!(arrange(&[seat(1, 1, true)], &[pair(1, 1); 2]), [Fate::Stays, Fate::Begins(pair(1, 1))]);
        assert_eq!(arrange(&[seat(1, 1, true); 2], &[pair(1, 1)]), [Fate::Stays, Fate::Leaves]);
    }

    #[test]
    fn of_a_full_link_one_at_a_time_makes_room() {
        let most = CHANNELS_MAX as u8;
        let asked: Vec<AddressPair> = (0..most).map(|at| pair(at, 100 + at)).collect();
        let mut seats: Vec<Seat> = (0..most).map(|at| seat(at, at, true)).collect();
        let begun = |fates: &[Fate]| fates.iter().filter(|fate| matches!(fate, Fate::Begins(_))).count();
        let first = arrange(&seats, &asked);
        assert_eq!((first.len(), begun(&first), first[0]), (CHANNELS_MAX, 1, Fate::Begins(asked[0])));
        seats[0] = Seat { pair: Some(asked[0]), works: false };
        assert_eq!(begun(&arrange(&seats, &asked)), 0, "nothing more goes before that one works");
        seats[0].works = true;
        let second = arrange(&seats, &asked);
        assert_eq!((begun(&second), second[0], second[1]), (1, Fate::Stays, Fate::Begins(asked[1])));
        seats[5] = FREE;
        let third = arrange(&seats, &asked);
        assert_eq!((begun(&third), third[5]), (1, Fate::Begins(asked[1])), "a free place is taken first");
    }

    /// Step by step, with pairs that come up at random or never: what works is never less than at the last step, but for the
    /// one that makes room in a full link.
    #[test]
    fn whatever_is_asked_for_what_works_goes_on() {
        let mut state = 7_u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut seats: Vec<Seat> = Vec::new();
        for step in 0..5000 {
            let count = draw(CHANNELS_MAX as u64 + 1);
            let asked: Vec<AddressPair> = (0..count).map(|at| pair(at as u8, draw(40) as u8)).collect();
            let working = |seats: &[Seat]| seats.iter().filter(|seat| seat.works).count();
            let before = working(&seats);
            let was_full = seats.len() == CHANNELS_MAX && seats.iter().all(|seat| seat.works);
            let fates = arrange(&seats, &asked);
            assert!(fates.len() <= CHANNELS_MAX && fates.len() >= seats.len(), "step {step}");
            seats.resize(fates.len(), FREE);
            for (seat, fate) in seats.iter_mut().zip(&fates) {
                match fate {
                    Fate::Stays | Fate::Leaves => {}
                    Fate::Ends => *seat = FREE,
                    Fate::Begins(pair) => *seat = Seat { pair: Some(*pair), works: false },
                }
            }
            assert!(working(&seats) + usize::from(was_full) >= before, "step {step}");
            let placed = asked.iter().filter(|pair| seats.iter().any(|seat| seat.pair == Some(**pair))).count();
            let full = seats.iter().all(|seat| seat.pair.is_some()) && seats.len() == CHANNELS_MAX;
            assert!(placed == asked.len() || full, "step {step}: what is asked for has a place where there is one");
            for seat in seats.iter_mut().filter(|seat| seat.pair.is_some()) {
                seat.works = draw(3) > 0;
            }
        }
    }

    #[test]
    fn a_channel_is_of_pairs_that_name_both_of_its_ends() {
        let pairs = [pair(1, 1), pair(2, 2)];
        let ends = |own: u8, peer: u8| (Some(IpAddr::from([10, 0, 0, own])), IpAddr::from([10, 0, 1, peer]));
        assert!(has_ends(&pairs, ends(1, 1)) && has_ends(&pairs, ends(1, 2)));
        assert!(!has_ends(&pairs, ends(9, 1)) && !has_ends(&pairs, ends(1, 9)) && !has_ends(&[], ends(1, 1)));
        assert!(has_ends(&pairs, (None, IpAddr::from([10, 0, 1, 2]))));
    }
}
