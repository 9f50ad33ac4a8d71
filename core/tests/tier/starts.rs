//! The numbers of a start, and what a tier says of the one it serves: its version, term, start, life and standing.

use super::stand::*;
use forebay_core::cluster::*;
use forebay_core::format::*;
use forebay_core::status::Phase;
use forebay_core::types::*;

fn standing() -> Standing {
    let part = Part { block: BlockIndex(8), blocks: 3 };
    let pin = Pin { term: Term(3), above: Lsn(0), through: Lsn(0), part };
    let mark = Mark { number: MarkNumber(12), part, size_bytes: 1 << 20, pins: vec![pin], ..Mark::default() };
    Standing { epoch: Epoch(4), agreed: true, committed: Lsn(2), mark }
}

#[test]
fn alone_each_start_is_a_new_owner() {
    for kind in KINDS {
        let mut tier = Life::first(kind).kill();
        for start in 2..5 {
            let mut life = Life::after(kind, tier);
            assert_eq!((life.volume.start(), life.volume.term()), (Start(start), Term(start)));
            life.write(u64::from(start), start as u8);
            tier = life.kill();
            let found = newest(&tier);
            assert_eq!((found.start, found.term, found.standing), (Start(start), Term(start), None));
        }
        let mut life = Life::after(kind, tier);
        assert_eq!([2, 3, 4].map(|block| life.read(block)), [Ok(2), Ok(3), Ok(4)]);
    }
}

/// It is served as it always was, and stays what it is: a binary that knows no other version can still open it.
#[test]
fn tier_of_version_one_is_served_and_stays_one() {
    for kind in KINDS {
        let of_one = |config: &mut forebay_core::VolumeConfig| {
            (config.superblock.version, config.superblock.tier) = (Version::One, 0);
        };
        let mut life = Life::first_with(kind, of_one);
        life.write(1, 1);
        life.flush();
        let mut tier = life.kill();
        for term in 2..4 {
            let mut life = Life::after(kind, tier);
            assert_eq!((life.volume.start(), life.volume.term()), (Start(term), Term(term)));
            assert_eq!(life.read(1), Ok(term as u8 - 1));
            life.write(1, term as u8);
            tier = life.kill();
            assert_eq!(Superblock::decode(&tier).unwrap().version, Version::One);
            let [older, newer] = checkpoints(Version::One, &tier);
            assert_eq!((newer.start, newer.term), (Start(term), Term(term)));
            for copy in [older, newer] {
                let place = copy.place().0;
                assert_eq!(tier[at(place)..at(place + 1)], copy.encode(Version::One, &ID), "nothing else is in it");
            }
        }
        let life = Life::after_with(kind, tier.clone(), |config| config.cluster = member(1));
        assert!(matches!(life.phase(), Phase::Refused(_)), "it has no place for what a member must remember");
        assert_eq!(life.kill(), tier);
    }
}

/// Records keep their term wherever they are copied, so a member must not write in one that the owner has not given.
#[test]
fn start_of_a_member_is_no_new_term() {
    for kind in KINDS {
        let mut tier = Life::first_with(kind, |config| config.cluster = member(1)).kill();
        let before = newest(&tier);
        assert_eq!((before.start, before.term), (Start(1), Term(0)));
        with_checkpoint(&mut tier, Checkpoint { term: Term(7), standing: Some(standing()), ..before });
        for start in 2..5 {
            let life = Life::after_with(kind, tier, |config| config.cluster = member(1));
            assert_eq!(life.phase(), Phase::Following);
            assert_eq!((life.volume.start(), life.volume.term()), (Start(start), Term(7)));
            tier = life.kill();
            let found = newest(&tier);
            assert_eq!((found.start, found.term), (Start(start), Term(7)));
            assert_eq!(found.standing, Some(standing()), "what was remembered stays");
        }
    }
}

/// Incarnations: what was held survives a kill, and not the loss of power, which ends a boot.
#[test]
fn another_boot_is_another_life() {
    for kind in KINDS {
        let mut tier = Life::first_with(kind, |config| config.cluster = member(1)).kill();
        for (boot, lives) in [(1, 0), (1, 0), (2, 1), (2, 1), (1, 2), (3, 3)] {
            let life = Life::after_with(kind, tier, |config| config.cluster = member(boot));
            assert_eq!(life.volume.life(), lives, "in boot {boot}");
            tier = life.kill();
            let found = newest(&tier);
            assert_eq!((found.life, found.host), (lives, Some(host(boot))));
        }
    }
}

/// Nothing of the volume says that this copy is the newest: that is for the cluster to decide.
#[test]
fn member_is_not_served_by_itself() {
    for kind in KINDS {
        let tier = Life::first_with(kind, |config| config.cluster = member(1)).kill();
        let life = Life::after(kind, tier.clone());
        assert!(matches!(life.phase(), Phase::Refused(_)));
        assert_eq!(life.kill(), tier, "untouched");
    }
}
