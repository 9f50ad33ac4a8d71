//! A deleted volume, as a node's ownership sees it: what it has seen of the deletion is a veto against an older record (C3, C5), and the
//! deletion by itself is no sign that the coordinator went back (C6).

use forebay_core::cluster::*;
use forebay_core::ownership::{Effect, Event, Ownership, Read, Remembered, Requested, Setup, Timing};
use forebay_core::types::*;

const BEGIN: Instant = Instant(1_000_000_000);
const DELETED: (Term, Epoch) = (Term(7), Epoch(0));

fn host() -> Host {
    Host { machine: [1; 16], boot: [1; 16] }
}

/// Of a node without a tier, which has no copy of the volume.
fn outside() -> Ownership {
    let requested =
        Requested { peers: 1, min_peers: 1, through: false, media: false, flushed_readable: true, tier_bytes: 1 << 20 };
    let setup = Setup {
        volume: [7; 16],
        own: Incarnation::none(NodeId(1)),
        host: host(),
        remembered: Remembered::default(),
        known: None,
        rewinds: Default::default(),
        fresh: false,
        timing: Timing::default(),
        requested,
        writes_die_with_host: false,
    };
    Ownership::new(setup, BEGIN)
}

/// The record of term 6, of before the deletion.
fn before() -> Record {
    let members = vec![Incarnation { node: NodeId(3), tier: 3, life: 1 }];
    let of = Record::of_new_volume(NodeId(3), 1 << 20);
    Record { term: Term(6), owner: NodeId(3), host: host(), members, log: LogState::Needed, ..of }
}

/// Answers every question after the record in this way, for a while; whether a rewind was noticed.
fn notices(ownership: &mut Ownership, now: &mut Instant, read: &Read) -> bool {
    let mut noticed = false;
    for _ in 0..20 {
        while let Some(effect) = ownership.poll_effect() {
            match effect {
                Effect::Read(op) => ownership.handle(*now, Event::Read(op, read.clone())),
                Effect::RewindNoticed { .. } => noticed = true,
                _ => {}
            }
        }
        *now = ownership.poll_timeout().map_or(*now, |at| at.max(*now));
        ownership.handle(*now, Event::RecordChanged);
    }
    noticed
}

#[test]
fn an_older_record_after_a_deletion_went_back_and_the_deletion_is_the_veto() {
    for older in [Read::Is(before()), Read::Deleted(Term(6), Epoch(0))] {
        let (mut ownership, mut now) = (outside(), BEGIN);
        ownership.handle(now, Event::SeenDeleted(DELETED.0, DELETED.1));
        assert!(notices(&mut ownership, &mut now, &older), "{older:?} is older than the deletion");
        assert_eq!(ownership.seen(), DELETED, "what it answers to who asks (C5)");
    }
}

#[test]
fn a_deletion_is_no_sign_that_the_coordinator_went_back_and_what_is_older_after_it_is() {
    let (mut ownership, mut now) = (outside(), BEGIN);
    assert!(!notices(&mut ownership, &mut now, &Read::Is(before())));
    assert!(!notices(&mut ownership, &mut now, &Read::Deleted(DELETED.0, DELETED.1)), "all is as it should be");
    assert_eq!(ownership.seen(), DELETED);
    assert!(notices(&mut ownership, &mut now, &Read::Is(before())));
}
