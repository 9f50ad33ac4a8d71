//! What is told of a coordinator that went back (C5, C6): who goes on, who is asked first, and who hears of it.

use super::*;

/// C5: a member pauses, is dropped, and another one is learnt; the owner dies, and the coordinator is restored from a backup that names
/// the first. It goes on, and has a log of then.
pub fn member_that_missed_its_own_drop_comes_back_after_a_restore(rules: Rules) {
    let mut world = whole_with(3, 1, rules);
    let backup = world.coordinator.record.clone();
    let stale = backup.members.iter().find(|member| member.node != NodeId(1)).expect("a copy").node.0 as usize - 1;
    let other = 3 - stale;
    world.pause(stale, 20_000 * MS);
    let learnt = world.run_until(15_000 * MS, |world| members(world) == [1, other as u64 + 1]);
    assert!(learnt, "{}", world.stand());
    world.run_for(1_000 * MS);
    world.kill(0);
    restore_backup(&mut world, &backup);
    world.run_for(40_000 * MS);
    assert_eq!(world.owner(), None, "nobody may go on by himself: {}", world.stand());
    // The other copy has everything: the operator sees it there, and that the owner cannot answer.
    let known = world.status(other).and_then(|status| status.known).expect("it knows the record").version();
    let seen_at_stale = world.status(stale).and_then(|status| status.known).expect("it knows one").version();
    let wrong = world.command(stale, Command::RestoreRecord { saw: seen_at_stale });
    world.run_for(2_000 * MS);
    assert_eq!(world.answers.get(&wrong), Some(&Err(CommandError::KnownElsewhere)));
    let right = world.command(other, Command::RestoreRecord { saw: known });
    world.command(stale, Command::CannotAnswer { node: NodeId(1) });
    world.run_for(2_000 * MS);
    assert_eq!(world.answers.get(&right), Some(&Ok(())));
    let serves = world.run_until(20_000 * MS, |world| world.owner().is_some_and(|(node, _)| node == other));
    assert!(serves, "{}", world.stand());
}

/// C6: an owner pauses, its member takes over; the coordinator is restored from a backup of before, which the new owner notices. Then
/// the former owner goes on, and hears nobody but the coordinator.
pub fn deposed_owner_comes_back_after_a_restore_and_hears_nobody(rules: Rules) {
    let mut world = whole(2, rules);
    let backup = world.coordinator.record.clone();
    world.pause(0, 25_000 * MS);
    world.cut(0, 1);
    world.cut(1, 0);
    until_node_2_serves(&mut world);
    restore_backup(&mut world, &backup);
    let noticed = world.run_until(12_000 * MS, |world| {
        world.status(1).is_some_and(|status| status.reason == Reason::RecordWentBack)
            && !world.coordinator.mark.is_empty()
    });
    assert!(noticed || cfg!(feature = "mutants"), "{}", world.stand());
    world.run_for(40_000 * MS);
    assert!(is_owner(&world, 1), "{}", world.stand());
    assert_eq!(world.status(0).map(|status| status.reason), Some(Reason::AwaitingAnswers), "{}", world.stand());
    assert!(world.status(0).is_some_and(|status| status.unheard == [NodeId(2)]), "{}", world.stand());
}

/// An owner is cut off from everybody, and its member takes over; then the coordinator is restored from a backup of before, at once, and
/// shows the former owner what it saw last. It reaches it before anybody has noticed.
fn owner_is_back_from_where_nobody_was(rules: Rules) -> (World, Record) {
    let mut world = whole(2, rules);
    let backup = world.coordinator.record.clone();
    world.coordinator.sent_after = Some(2_900 * MS);
    world.cut(0, 1);
    world.cut(1, 0);
    world.coordinator.cut_off.insert(0);
    let recorded = |world: &mut World| world.coordinator.record.owner == NodeId(2);
    assert!(world.run_until(12_000 * MS, recorded), "{}", world.stand());
    world.run_for(100 * MS);
    restore_backup(&mut world, &backup);
    world.coordinator.away_until = world.now() + 400 * MS;
    world.coordinator.cut_off = [1].into();
    (world, backup)
}

/// C5: a deposed owner has tried all the time to leave its silent member out. It tries no more before the coordinator has answered it, and
/// hears from it that it is another one.
pub fn deposed_owner_comes_back_to_another_coordinator(rules: Rules) {
    let (mut world, backup) = owner_is_back_from_where_nobody_was(rules);
    world.coordinator.identity += 1;
    world.run_for(20_000 * MS);
    assert_eq!(world.coordinator.record, backup, "{}", world.stand());
    assert!(world.status(0).is_some_and(|status| status.unheard == [NodeId(2)]), "{}", world.stand());
}

/// C5: nothing tells a deposed owner that the coordinator is another one. The nodes hear each other a moment after it was answered.
pub fn deposed_owner_hears_the_coordinator_before_the_nodes(rules: Rules) {
    let (mut world, backup) = owner_is_back_from_where_nobody_was(rules);
    let answered = |world: &mut World| world.status(0).is_some_and(|status| status.coordinator_away_since.is_none());
    assert!(world.run_until(20_000 * MS, answered), "{}", world.stand());
    world.run_for(300 * MS);
    world.mend();
    world.run_for(20_000 * MS);
    assert_eq!(world.coordinator.record, backup, "{}", world.stand());
    let reason = world.status(0).map(|status| status.reason);
    assert_eq!(reason, Some(Reason::RecordWentBack), "{}", world.stand());
}

/// C6: a node is off while the others notice a restore, and settle it. After a second one, to before anybody had written the first down,
/// that node alone notices; what others have heard of the first says nothing of it. A third one, which may know more, does not answer.
pub fn second_restore_is_noticed_by_who_missed_the_first(rules: Rules) {
    let mut world = whole(3, rules);
    let seen = world.coordinator.record.version();
    let before_that = world.coordinator.history.iter().rfind(|record| record.version() < seen).cloned();
    let backup = before_that.expect("it was opened alone");
    world.kill(1);
    assert!(world.run_until(10_000 * MS, |world| members(world) == [1, 3]), "{}", world.stand());
    world.run_for(1_000 * MS);
    restore_backup(&mut world, &backup);
    let went_back = |world: &World, node| world.status(node).is_some_and(|of| of.reason == Reason::RecordWentBack);
    let noticed = world.run_until(12_000 * MS, |world| went_back(world, 0) && went_back(world, 2));
    assert!(noticed, "{}", world.stand());
    let saw = world.status(0).and_then(|status| status.known).expect("it owns the volume").version();
    let restored = world.command(0, Command::RestoreRecord { saw });
    for node in [0, 2] {
        world.command(node, Command::CannotAnswer { node: NodeId(2) });
    }
    world.run_for(10_000 * MS);
    assert_eq!(world.answers.get(&restored), Some(&Ok(())), "{}", world.stand());
    for node in [0, 2] {
        let rewinds = &world.nodes[node].rewinds;
        assert!(rewinds.open.is_empty() && !rewinds.settled.is_empty(), "{rewinds:?} {}", world.stand());
    }
    let newest = world.coordinator.record.clone();

    world.coordinator.cut_off.extend([0, 2]);
    world.cut(1, 2);
    world.cut(2, 1);
    restore_backup(&mut world, &backup);
    world.start(1);
    assert!(world.run_until(12_000 * MS, |world| went_back(world, 1)), "{}", world.stand());
    // An operator has found a newer backup, too.
    world.coordinator.bring_forward(newest);
    world.run_for(20_000 * MS);
    let unheard = world.status(1).map(|status| status.unheard);
    assert_eq!(unheard, Some(vec![NodeId(3)]), "{}", world.stand());
    world.mend();
    world.coordinator.cut_off.clear();
    world.run_for(20_000 * MS);
    assert!(world.nodes.iter().all(|node| node.rewinds.open.is_empty()), "{}", world.stand());
}

/// C6: nobody reaches the coordinator, so none of many rewinds is settled, although all nodes have answered since. Then a node dies, and
/// the owner hears of one more, for whose name there is no room. That node has not answered since.
pub fn coordinator_goes_back_more_often_than_names_find_room(rules: Rules) {
    let mut world = whole_with(3, 1, rules);
    world.coordinator.cut_off.extend([0, 1, 2]);
    let many = REWINDS_OPEN_MAX as u64;
    for name in 1..=many {
        world.drive(0, Event::Rewound(RewindId(name)));
    }
    world.run_for(1_000 * MS);
    assert_eq!(world.nodes[0].rewinds.open.len(), REWINDS_OPEN_MAX, "{}", world.stand());
    let outside =
        (1..3).find(|at| world.coordinator.record.members.iter().all(|member| member.node.0 != *at as u64 + 1));
    let outside = outside.expect("one has no part");
    world.kill(outside);
    world.drive(0, Event::Rewound(RewindId(many + 1)));
    world.coordinator.cut_off.clear();
    world.run_for(10_000 * MS);
    assert_eq!(world.nodes[0].rewinds.open, [RewindId::MORE], "{}", world.stand());
    let unheard = world.status(0).map(|status| status.unheard);
    assert_eq!(unheard, Some(vec![NodeId(outside as u64 + 1)]), "{}", world.stand());
    world.start(outside);
    let settled = |world: &mut World| world.nodes[0].rewinds.open.is_empty();
    assert!(world.run_until(20_000 * MS, settled), "{}", world.stand());
}
