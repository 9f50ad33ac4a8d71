//! What the data path needs from the control plane: the coordinator, and files that may make whoever opens them wait.

use crate::coordinator::answers::Word;
use crate::datapath::mailbox::VolumeKey;
use forebay_api::record::VolumeId;
use forebay_core::cluster::{Record, RewindId};
use forebay_core::types::{Instant, OpId, Term};

/// What the data path needs from here.
#[derive(Debug)]
pub enum Asked {
    /// Read the record of a volume at the coordinator.
    Read {
        /// The volume whose record it is.
        volume: VolumeId,
        /// Names it in the answer.
        op: OpId,
    },
    /// Change the record of a volume at the coordinator.
    Commit {
        /// The volume whose record it is.
        volume: VolumeId,
        /// Names it in the answer.
        op: OpId,
        /// The record as it was read: another one is not changed.
        compare: Box<Record>,
        /// The record that it becomes.
        new: Box<Record>,
        /// The operator's word that allows it, where it needs one.
        word: Option<Box<Word>>,
        /// When core has decided so: later its grounds may be gone.
        decided: Instant,
    },
    /// The coordinator was seen to have gone back (C6).
    RewindNoticed {
        /// The volume whose ownership has seen it.
        volume: VolumeId,
        /// As the answer to a question of then.
        sent: Instant,
    },
    /// Another node has told of one.
    Rewound {
        /// The ownership of this volume.
        volume: VolumeId,
        /// Which rewind it is.
        id: RewindId,
    },
    /// All nodes were heard since.
    RewindSettled {
        /// The volume whose ownership it is about.
        volume: VolumeId,
        /// Which rewind it is.
        id: RewindId,
    },
    /// Open the tier anew; the volume on it has been closed.
    OpenTier {
        /// The volume whose tier it is.
        volume: VolumeId,
        /// Whether it is laid out anew, as one that nothing was ever in.
        format: bool,
    },
    /// Open the backing for a term that this node owns.
    OpenBacking {
        /// The volume whose backing it is.
        volume: VolumeId,
        /// The volume as it is attached to the shard.
        key: VolumeKey,
        /// The term that the backing is locked for.
        term: Term,
    },
    /// A node has called that is not known.
    UnknownNode,
}
