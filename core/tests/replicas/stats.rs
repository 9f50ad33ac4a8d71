//! The leg between nodes: how long writes wait for the members.

use crate::story::{KINDS, left_alone};
use crate::weather::FAIR;
use crate::world::{BLOCKS, MEMORY, MS, Make, World};
use forebay_core::stats::Legs;
use forebay_core::types::Duration;

/// Each block is written and waited for, one after the other; what the owner says of the writes.
fn written(makes: &[Make], slow: Option<(usize, u64)>) -> Legs {
    let mut world = World::new(1, FAIR, makes);
    world.found(0, &(0..makes.len()).collect::<Vec<_>>());
    world.until_serving();
    world.slow = slow;
    for block in 0..BLOCKS {
        assert!(world.write(8 * block, 8));
        world.until_answered();
    }
    world.nodes[0].volume.as_ref().expect("it runs").seen().writes.clone()
}

#[test]
fn a_write_takes_as_long_among_the_members_as_the_last_of_them() {
    for makes in KINDS {
        let [make, _] = makes;
        for (nodes, late_ms) in [(2, 0), (2, 300), (3, 300)] {
            let Legs { client, local, network, backing, .. } = written(&vec![make; nodes], Some((nodes - 1, late_ms)));
            assert_eq!([&client, &local, &network, &backing].map(|leg| leg.count()), [BLOCKS, BLOCKS, BLOCKS, 0]);
            // A message to the slow one, and what disks take meanwhile.
            let (from, to) = (late_ms * MS / 1_000, late_ms * MS / 1_000 + 2_000);
            let mean = network.mean_us().unwrap();
            assert!((from as f64..to as f64).contains(&mean), "{nodes} nodes, {late_ms} ms late: {mean} us");
            assert!(client.mean_us().unwrap() >= mean && local.mean_us().unwrap() < 2_000.0);
        }
    }
}

#[test]
fn a_volume_without_other_members_has_no_such_leg() {
    let legs = written(&[MEMORY], None);
    assert_eq!((legs.client.count(), legs.network.count()), (BLOCKS, 0));
}

/// Who waits on another ground from now on has waited since it was asked for.
#[test]
fn how_long_a_write_waits_is_counted_over_the_loss_of_a_member() {
    for makes in KINDS {
        let mut world = left_alone(&makes, |world| {
            assert!(world.write(8, 8));
            world.flush();
        });
        world.run_ms(2000);
        let waited = world.status(0).oldest_unanswered;
        assert!(waited >= Duration::from_millis(2900), "{makes:?}: {waited:?}, though the member was lost after 0.9 s");
        world.backing_hangs = None;
        world.until_answered();
        assert_eq!(world.status(0).oldest_unanswered, Duration::default());
    }
}
