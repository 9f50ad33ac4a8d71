//! What a flush promises, by the record and by the media of the members (A2).

use crate::story::two;
use crate::weather::FAIR;
use crate::world::*;
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::status::Flush;

#[test]
pub fn a_flush_promises_the_media_of_all_while_all_are_on_flash() {
    let mut world = two(FAIR, [FLASH, FLASH]);
    assert!(world.write(0, 8));
    world.until_answered();
    let synced = world.figures(1).synced.expect("it is on flash");
    world.nodes[1].cut_off = true;
    world.flush();
    world.run_ms(300);
    assert_eq!(world.open(), 1, "the member has not synced it, as far as the owner knows");
    world.nodes[1].cut_off = false;
    world.until_answered();
    assert!(world.figures(1).synced > Some(synced), "the member has synced it");
    assert!(world.figures(0).synced >= Some(world.status(0).accepted));
    // With a member in memory, holding is what is promised.
    let mut world = two(FAIR, [FLASH, MEMORY]);
    assert!(world.write(0, 8));
    world.flush();
    world.until_answered();
    assert!(world.figures(0).synced < Some(world.status(0).accepted), "no sync was needed");
}

/// A2: the definition asks for less than the record promises, which counts until that says so, too; and it asks for more, which
/// the record may say when all have synced what was flushed.
#[test]
pub fn a_flush_is_answered_for_no_less_than_the_record_promises() {
    let make = Make { flush: Flush::Replicated, ..FLASH };
    let mut world = two(FAIR, [make, make]);
    let members = world.members(&[0, 1]);
    let order = |flushed, epoch| {
        let (epoch, log) = (Epoch(epoch), LogState::Needed);
        let propose = Order::Propose { proposal: 9, epoch, members: members.clone(), log, flushed };
        (propose, Order::Decide { epoch, members: members.clone(), log, flushed })
    };
    assert!(world.write(0, 8));
    world.flush();
    world.until_answered();
    assert!(world.figures(1).synced < Some(world.status(0).accepted), "no sync was needed");
    assert_eq!(world.figures(0).wants_flushed, Some(Flushed::Held));
    let (propose, decide) = order(Flushed::Durable, 9);
    world.order(0, propose);
    world.run_ms(1_000);
    assert!(world.nodes[0].reports.contains(&Report::Covered { proposal: 9 }));
    for node in 0..2 {
        assert!(world.figures(node).synced >= Some(world.status(0).accepted), "what was flushed for less is synced");
    }
    world.order(0, decide);
    // Less is asked for, and not recorded yet.
    let flushed = |world: &mut World| {
        assert!(world.write(0, 8));
        world.until_answered();
        world.flush();
        world.until_answered();
        world.figures(1).synced >= Some(world.status(0).accepted)
    };
    assert!(flushed(&mut world), "the record promises media");
    let (propose, decide) = order(Flushed::Held, 10);
    world.order(0, propose);
    assert!(flushed(&mut world), "it may still do so");
    world.order(0, decide);
    assert!(!flushed(&mut world), "it does not any more");
}

#[test]
pub fn a_flush_asked_to_mean_destage_waits_for_the_backing() {
    let make = Make { flush: Flush::Destage, ..MEMORY };
    let mut world = two(FAIR, [make, make]);
    assert!(world.write(0, 8));
    world.until_answered();
    world.flush();
    world.until_answered();
    assert_eq!(world.backing[0], [1; 8]);
}
