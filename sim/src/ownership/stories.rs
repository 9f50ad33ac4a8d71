//! Stories that random seeds hardly ever tell. Each holds with all rules, and fails when the rule it is about is left out.

use super::chaos::Chaos;
use super::{MS, Setup, World};
use crate::random::Random;
use forebay_core::cluster::*;
use forebay_core::ownership::*;
use forebay_core::record::UNFENCED_MAX;
use forebay_core::types::*;

/// One of them; it panics where a promise is broken.
pub type Story = fn(Rules);

/// All of them, by the rule that each is about.
pub const ALL: [(&str, Story); 4] = [
    ("serves_under_old_lease", given_up_transaction_takes_effect),
    ("lease_of_latest", owner_is_cut_off_from_one_member_and_the_coordinator),
    ("rewrites_unlisted", fifth_owner_dies_while_it_writes_the_pinned_ranges_again),
    ("keeps_old_word", word_for_a_loss_is_read_after_another_one),
];

/// A calm world in which node 1 serves, with as many members as there are nodes.
fn whole(nodes: usize, rules: Rules) -> World {
    let requested =
        Requested { peers: nodes as u32 - 1, min_peers: 0, through: false, media: false, tier_bytes: 1 << 20 };
    let setup = Setup { nodes, flash: false, requested, drift_ppm: 0, writes_die_with_host: false };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), rules, false);
    world.command(0, Command::Open { accept_loss: false });
    let whole = world.run_until(10_000 * MS, |world| world.coordinator.record.members.len() == nodes);
    assert!(whole, "{}", world.stand());
    world.run_for(1_000 * MS);
    world
}

fn until_node_2_serves(world: &mut World) {
    let serves = world.run_until(12_000 * MS, |world| world.owner().is_some_and(|(node, _)| node == 1));
    assert!(serves, "{}", world.stand());
    world.run_for(3_000 * MS);
}

/// T2, T4: a candidate gives its transaction up, because the owner is heard again, and grants it leases; then the
/// transaction takes effect after all, and a new process of the candidate finds itself the owner while such a lease is
/// running.
pub fn given_up_transaction_takes_effect(rules: Rules) {
    let mut world = whole(2, rules);
    // The owner pauses until its member asks; the transaction takes four seconds.
    world.coordinator.late_by = Some(4_000 * MS);
    world.pause(0, 6_000 * MS);
    let is = |world: &World, state| world.status(1).is_some_and(|status| status.state == state);
    assert!(world.run_until(6_500 * MS, |world| is(world, State::Sealed)), "{}", world.stand());
    world.run_for(3_500 * MS);
    assert!(is(&world, State::Following), "the owner was heard, and the seal is lifted: {}", world.stand());
    // It takes effect; the owner hears neither of it nor of its member, and its lease is running.
    let won = world.run_until(2_000 * MS, |world| world.coordinator.record.owner == NodeId(2));
    assert!(won, "{}", world.stand());
    world.coordinator.late_by = None;
    world.coordinator.cut_off.insert(0);
    world.cut(0, 1);
    world.cut(1, 0);
    world.kill(1);
    world.start(1);
    until_node_2_serves(&mut world);
}

/// L1: an owner is heard by one member of two, and cannot drop the other, because it does not reach the coordinator. The
/// other takes over, while the first still grants.
pub fn owner_is_cut_off_from_one_member_and_the_coordinator(rules: Rules) {
    let mut world = whole(3, rules);
    world.coordinator.cut_off.insert(0);
    // The third would ask as soon; it is to grant as long as nobody seals it.
    world.cut(0, 1);
    world.cut(1, 0);
    until_node_2_serves(&mut world);
}

/// T8: four former owners have writes under way, so the list is full. They land; the fifth owner writes the pinned ranges
/// again and dies in that. Its successor must ask for proof about it, too.
pub fn fifth_owner_dies_while_it_writes_the_pinned_ranges_again(rules: Rules) {
    let mut world = whole(2, rules);
    world.writes_take = Some(20_000 * MS);
    for term in 1..=UNFENCED_MAX as u32 {
        let writes = world.run_until(3_000 * MS, |world| world.is_writing(Term(term)));
        assert!(writes, "{}", world.stand());
        restart_owner(&mut world, Term(term + 1));
    }
    let fifth = Term(UNFENCED_MAX as u32 + 1);
    assert_eq!(unfenced(&world), [1, 2, 3, 4]);
    world.run_for(5_000 * MS);
    assert!(!world.is_writing(fifth), "nobody would ask for proof about it");
    let rewrites = world.run_until(40_000 * MS, |world| world.is_writing(fifth));
    assert!(rewrites, "{}", world.stand());
    restart_owner(&mut world, Term(fifth.0 + 1));
    assert_eq!(unfenced(&world), [4, 5]);
    world.run_for(5_000 * MS);
    assert_eq!(unfenced(&world), [4, 5], "its write is under way");
    let ended = world.run_until(90_000 * MS, |world| world.coordinator.record.unfenced.is_empty());
    assert!(ended, "{}", world.stand());
}

/// The operator accepts that all logs are lost, at a node that does not reach the coordinator, and then at one that does.
/// That one serves, and loses its log as well; then the first one reads the record.
pub fn word_for_a_loss_is_read_after_another_one(rules: Rules) {
    let mut world = whole(2, rules);
    (0..2).for_each(|node| world.cut_power(node));
    (0..2).for_each(|node| world.start(node));
    world.run_for(10_000 * MS);
    world.coordinator.cut_off.insert(1);
    world.cut(0, 1);
    let late = world.command(1, Command::Open { accept_loss: true });
    world.run_for(1_000 * MS);
    world.command(0, Command::Open { accept_loss: true });
    let serves = world.run_until(5_000 * MS, |world| world.owner().is_some());
    assert!(serves, "{}", world.stand());
    world.run_for(3_000 * MS);
    world.cut_power(0);
    world.start(0);
    world.mend();
    world.run_for(5_000 * MS);
    world.coordinator.cut_off.remove(&1);
    world.run_for(20_000 * MS);
    assert_eq!(world.answers.get(&late), Some(&Err(CommandError::RecordChanged)));
    assert_eq!(world.owner(), None, "what has been acknowledged since nobody gave up: {}", world.stand());
}

fn unfenced(world: &World) -> Vec<u32> {
    world.coordinator.record.unfenced.iter().map(|former| former.term.0).collect()
}

/// The process of the owner, on the first node, is killed; another one serves there.
fn restart_owner(world: &mut World, next: Term) {
    world.kill(0);
    world.start(0);
    let serves = world.run_until(3_000 * MS, |world| world.owner() == Some((0, next)));
    assert!(serves, "{}", world.stand());
}
