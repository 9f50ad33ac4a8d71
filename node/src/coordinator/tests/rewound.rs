//! That the coordinator went back (C6): told by whoever notices it, whatever he has seen himself, and on the medium before anything else is
//! taken from the coordinator.

use super::*;
use forebay_core::cluster::KnownRewinds;

/// As where the state folder takes nothing: `rewinds.json` cannot be written aside.
struct Full(PathBuf);

impl Full {
    fn of(stand: &Stand, node: &str) -> Full {
        let aside = stand.state(node).join("cluster/rewinds.json.new");
        std::fs::create_dir(&aside).unwrap();
        Full(aside)
    }

    fn has_room(self) {
        std::fs::remove_dir(&self.0).unwrap();
    }
}

#[test]
fn who_has_seen_nothing_but_deletions_tells_of_a_rewind_as_well() {
    let stand = Stand::in_memory("deletions-only");
    let (node, other) = (stand.joined("a"), stand.joined("b"));
    let lasting = VolumeId([2; 16]);
    block_on(async {
        node.create(&definition("vm1", VM1), &StoredRecord::Record(released(1))).await.unwrap();
        node.delete(&definition("vm1", VM1), &released(1), None).await.unwrap();
        other.create(&definition("vm2", lasting), &kept(1, 1)).await.unwrap();
        let (id, written) = node.memory.name_rewind(forebay_io::clock::now());
        written.unwrap();
        drop(node);
        // A restart in between forgets nothing.
        let node = stand.node("a");
        node.record(VM1).await.unwrap();
        assert_eq!(node.memory.untold_rewinds(), [], "it is written down there");
        other.record(lasting).await.unwrap();
        assert_eq!(other.rewinds(lasting).open, [id]);
    });
}

#[test]
fn a_rewind_that_could_not_be_written_down_keeps_everything_else_from_being_taken() {
    let stand = Stand::in_memory("rewind-unwritten");
    let (node, other) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        other.record(VM1).await.unwrap();
        let full = Full::of(&stand, "a");
        let (id, written) = node.name_rewind(VM1, forebay_io::clock::now());
        assert!(written.is_err());
        for _ in 0..2 {
            assert!(matches!(node.record(VM1).await, Err(Error::NotRemembered(_))), "a restart would forget it");
            let change = node.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await;
            assert!(matches!(change, Err(Error::NotRemembered(_))), "{change:?}");
        }
        other.record(VM1).await.unwrap();
        assert_eq!(other.rewinds(VM1), KnownRewinds::default(), "nobody is told of it before");
        full.has_room();
        assert_eq!(node.record(VM1).await.unwrap(), kept(1, 1), "and nothing was changed");
        drop(node);
        assert_eq!(stand.node("a").rewinds(VM1).open, [id]);
    });
}

#[test]
fn what_a_deletion_forgets_is_forgotten_also_where_that_could_not_be_written_at_first() {
    use forebay_core::cluster::RewindId;
    let stand = Stand::in_memory("forget-again");
    let (node, other) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        node.create(&definition("vm1", VM1), &StoredRecord::Record(released(1))).await.unwrap();
        node.record(VM1).await.unwrap();
        node.remember_rewind(VM1, RewindId(7)).unwrap();
        other.record(VM1).await.unwrap();
        other.delete(&definition("vm1", VM1), &released(1), None).await.unwrap();
        let full = Full::of(&stand, "a");
        assert!(matches!(node.record(VM1).await, Err(Error::NotRemembered(_))));
        full.has_room();
        assert!(matches!(node.record(VM1).await, Ok(StoredRecord::Deleted { .. })));
        drop(node);
        assert_eq!(stand.node("a").rewinds(VM1), KnownRewinds::default());
    });
}

/// Proves N-M-9, N-F-9, N-X-9.
#[test]
fn a_change_that_is_done_is_not_told_as_failed_because_a_rewind_could_not_be_written_down() {
    let mut stand = Stand::etcd("done-and-unwritten", 1);
    let node = stand.joined("a");
    let backup = stand.folder.join("backup");
    let etcd = |stand: &mut Stand, act: &dyn Fn(&mut forebay_tests::etcd::Etcd)| match &mut stand.kind {
        Kind::Etcd(etcd) => act(etcd),
        Kind::InMemory(_) => panic!("it is etcd"),
    };
    etcd(&mut stand, &|etcd| etcd.backup(&backup));
    block_on(async {
        for at_ms in 1..9 {
            let line = audit(at_ms, None);
            assert_eq!(sure(|| node.note(&line)).await, Outcome::Won);
        }
    });
    etcd(&mut stand, &|etcd| etcd.restore(&backup));
    let full = Full::of(&stand, "a");
    block_on(async {
        let line = audit(10, None);
        let why = loop {
            match sure(|| node.note(&line)).await {
                Outcome::Unknown(why) if why.contains("state folder") => break why,
                Outcome::Unknown(_) => {}
                other => panic!("the rewind was not noticed: {other:?}"),
            }
        };
        assert!(why.contains("rewinds.json"), "{why}");
        full.has_room();
        assert!(!sure(|| node.audit_log()).await.is_empty(), "it was done");
    });
}
