//! What the data path needs from the control plane: the coordinator, and files that may make whoever opens them wait.

use crate::coordinator::answers::Word;
use crate::datapath::mailbox::VolumeKey;
use forebay_api::record::VolumeId;
use forebay_core::cluster::{Record, RewindId};
use forebay_core::types::{Instant, OpId, Term};

/// What the data path needs from here.
#[derive(Debug)]
pub enum Asked {
    /// Read the record.
    Read {
        /// Of this volume.
        volume: VolumeId,
        /// Names it in the answer.
        op: OpId,
    },
    /// Change the record.
    Commit {
        /// Of this volume.
        volume: VolumeId,
        /// Names it in the answer.
        op: OpId,
        /// As it was read.
        compare: Box<Record>,
        /// What it becomes.
        new: Box<Record>,
        /// The operator's word that allows it, where it needs one.
        word: Option<Box<Word>>,
        /// When core has decided so: later its grounds may be gone.
        decided: std::time::Instant,
    },
    /// The coordinator was seen to have gone back (C6).
    RewindNoticed {
        /// By the ownership of this volume.
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
        /// About this volume.
        volume: VolumeId,
        /// Which rewind it is.
        id: RewindId,
    },
    /// Open the tier anew; the volume on it has been closed.
    OpenTier {
        /// Of this volume.
        volume: VolumeId,
        /// As a new tier.
        format: bool,
    },
    /// Open the backing for a term that this node owns.
    OpenBacking {
        /// Of this volume.
        volume: VolumeId,
        /// The volume as it is attached to the shard.
        key: VolumeKey,
        /// The term that the backing is locked for.
        term: Term,
    },
    /// A node has called that is not known.
    UnknownNode,
}
