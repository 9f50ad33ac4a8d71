//! What a volume has besides when several nodes keep its log (docs/protocol.md), in parts of a subject each. A volume that one node
//! has to itself has all of it, empty, and none of it ever moves.
//!
//! Each part is changed by the file that has it. Three are plain values that several of these files work on: where this node stands,
//! which every checkpoint has; what is known of each peer ([`members::Peer`]); and what was counted.

use super::*;

/// See the module.
pub(super) struct Replication {
    /// What this node is for the volume.
    pub(super) own_role: role::OwnRole,
    /// Where this member of a cluster stands; written with every checkpoint.
    pub(super) standing: Standing,
    /// On the tail of a term that begins here.
    pub(super) agreement: agreeing::Agreement,
    /// What the record says, and what of it may change.
    pub(super) open_changes: changes::RecordChanges,
    /// The other nodes, as an owner sees them.
    pub(super) members: members::Members,
    /// What they are sent.
    pub(super) streams: stream::Streams,
    /// What they are told of destage.
    pub(super) marks: marks::Marks,
    /// What a former owner may still write.
    pub(super) pins: pins::Pins,
    /// Of a member: what its owner has sent.
    pub(super) follower: member::Follower,
    /// Of an owner: the cache of the one before it.
    pub(super) predecessor_cache: predecessor_cache::PredecessorCache,
    /// What nodes have told each other.
    pub(super) counters: PeerCounters,
}

impl Replication {
    /// At the begin of a process.
    pub(super) fn new(role: Role) -> Replication {
        Replication {
            own_role: role::OwnRole::new(role),
            standing: Standing::default(),
            agreement: Default::default(),
            open_changes: Default::default(),
            members: Default::default(),
            streams: Default::default(),
            marks: Default::default(),
            pins: Default::default(),
            follower: Default::default(),
            predecessor_cache: Default::default(),
            counters: PeerCounters::default(),
        }
    }
}
