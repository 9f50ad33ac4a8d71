//! States and reasons: one word each, the same in the API, on the command line, in events and in the dashboard. They are enums here, and
//! strings only where they are sent and kept.

use forebay_core::cluster::{Flushed as RecordFlushed, LogState as RecordLog};
use forebay_core::ownership;
use forebay_core::status as core;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of_word:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of_word])* $variant,)+
            /// A word that this version does not know, as another node has told it.
            Other(String),
        }

        impl $name {
            /// Every word that this version knows.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// The word, as it is sent.
            pub fn as_str(&self) -> &str {
                match self {
                    $($name::$variant => $word,)+
                    $name::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> $name {
                match word {
                    $($word => $name::$variant,)+
                    other => $name::Other(other.to_owned()),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                String::deserialize(deserializer).map(|word| $name::from(word.as_str()))
            }
        }
    )+};
}

words! {
    /// How far a volume is with being served by a node.
    VolumePhase {
        /// Something must be there first: its image, its tier or the cluster.
        Waiting = "waiting",
        /// The tier is being read.
        Recovering = "recovering",
        /// Its log is kept for another node, which owns the volume.
        Following = "following",
        /// It is the owner of a new term, and its members do not agree on the log yet.
        Agreeing = "agreeing",
        /// Another node has it, and this one keeps nothing of its log.
        Elsewhere = "elsewhere",
        /// Clients are served.
        Serving = "serving",
        /// Nothing new is taken, and what is open is finished.
        Stopping = "stopping",
        /// It has come to its end.
        Stopped = "stopped",
        /// It is not served, and the problem says why.
        Failed = "failed",
    }

    /// Why a policy is followed.
    PolicyReason {
        /// It is the one that was asked for.
        AsRequested = "as-requested",
        /// Write-through was asked for, and the log is being written to the backing first.
        Draining = "draining",
        /// A drain keeps the volume at write-through.
        DrainedThrough = "drained-through",
        /// Fewer copies of the log than are asked for: the backing must have each write as well.
        TooFewPeers = "too-few-peers",
        /// The tier has failed.
        TierError = "tier-error",
        /// The volume is being stopped.
        Stopping = "stopping",
        /// Another node owns the volume, and has not told why.
        OwnedElsewhere = "owned-elsewhere",
    }

    /// Why groups reach the backing as they do.
    DestageReason {
        /// That way was asked for.
        AsRequested = "as-requested",
        /// There is no place for a journal.
        NoJournal = "no-journal",
        /// Each write goes to the backing by itself.
        PolicyThrough = "policy-through",
        /// The tier has failed.
        TierError = "tier-error",
        /// Nothing in the log is written over before it is in the backing.
        NothingToMerge = "nothing-to-merge",
        /// Groups are so small that a journal pays.
        SmallGroups = "small-groups",
        /// Groups are so large that each can go by itself.
        LargeGroups = "large-groups",
        /// The log fills faster than it is written to the backing.
        BacklogGrows = "backlog-grows",
    }

    /// How the slow store under a volume fares.
    BackingState {
        /// I/O of an earlier process is awaited.
        AwaitingLock = "awaiting-lock",
        /// What a journal holds is being brought into it.
        ReplayingJournal = "replaying-journal",
        /// Former owners may still write to it, as many as can be named: nothing more is written before they are fenced.
        AwaitingFence = "awaiting-fence",
        /// It is read and written.
        Ready = "ready",
        /// It is complete and stays unchanged, for whoever copies it.
        Held = "held",
        /// It reports errors; what was acknowledged stays in the tier.
        Failing = "failing",
        /// Nothing has it open here.
        Closed = "closed",
    }

    /// Where a node stands with a volume of its cluster.
    MemberState {
        /// It keeps nothing of the log.
        NoMember = "no-member",
        /// It is being brought up to date.
        Learner = "learner",
        /// It keeps the log for the owner.
        Following = "following",
        /// It takes nothing of the former owner any more.
        Sealed = "sealed",
        /// It is the owner of a new term, and its members do not agree on the log yet.
        Agreeing = "agreeing",
        /// It owns the volume and serves it.
        Owner = "owner",
        /// It owns the volume and cannot reach the backing.
        Custodian = "custodian",
        /// It was the owner, and its last writes are under way.
        SteppingDown = "stepping-down",
    }

    /// Why a node stands where it does, or what it waits for.
    OwnershipReason {
        /// All is as it should be.
        AsItShouldBe = "as-it-should-be",
        /// The record has not been read yet.
        ReadingRecord = "reading-record",
        /// There is no record of the volume.
        NoRecord = "no-record",
        /// The coordinator does not answer.
        CoordinatorAway = "coordinator-away",
        /// The record is older than what was seen of it.
        RecordWentBack = "record-went-back",
        /// The coordinator went back, and nodes have not said what they know of before.
        AwaitingAnswers = "awaiting-answers",
        /// Nobody serves the volume.
        Released = "released",
        /// The record does not name this node.
        NotNamed = "not-named",
        /// Power was lost, and with it perhaps what was held.
        EarlierLife = "earlier-life",
        /// Every member has lost what its medium had not synced.
        UnsyncedLost = "unsynced-lost",
        /// No member has its log any more.
        LossSuspected = "loss-suspected",
        /// No member has its log any more, and nothing acknowledged depended on it.
        LogNotNeeded = "log-not-needed",
        /// The tier has failed.
        TierFailed = "tier-failed",
        /// The log is shorter than what this node has told others.
        LogWentBack = "log-went-back",
        /// No owner is heard.
        OwnerSilent = "owner-silent",
        /// Members are sealed.
        SealingMembers = "sealing-members",
        /// Members must hold the end of the log.
        AwaitingMembers = "awaiting-members",
        /// The backing is being opened.
        AwaitingBacking = "awaiting-backing",
        /// A lease that this node has granted is not over yet.
        AwaitingLease = "awaiting-lease",
        /// A change of the record is undecided.
        ChangeUndecided = "change-undecided",
        /// A member does not answer: nothing is read without its lease.
        NoLease = "no-lease",
        /// Former owners may still write to the backing.
        Unfenced = "unfenced",
        /// Fewer copies than are asked for.
        TooFewMembers = "too-few-members",
        /// The backing cannot be reached from here.
        BackingOutOfReach = "backing-out-of-reach",
        /// It is being handed over.
        HandingOver = "handing-over",
        /// It is being released.
        Releasing = "releasing",
    }

    /// Who may become owner of a volume of a cluster, by its record.
    LogNeed {
        /// Who has its log.
        Needed = "needed",
        /// The backing has all that was acknowledged: any node, with proof for the last owner.
        Through = "through",
        /// Nobody serves it, and the backing has everything: any node.
        Released = "released",
        /// The record has not been read.
        Unknown = "unknown",
    }

    /// What logs are worth of all that a flush was answered for, when every member loses its power.
    FlushedBy {
        /// They have it on a durable medium.
        Durable = "durable",
        /// They hold it, some in RAM.
        Held = "held",
        /// The record does not say.
        Unrecorded = "unrecorded",
    }

    /// How far a channel between two nodes is.
    ChannelPhase {
        /// It carries messages.
        Up = "up",
        /// It is being made.
        Beginning = "beginning",
        /// There is none.
        Down = "down",
    }

    /// How far a node is with being evacuated.
    EvacuationState {
        /// It still owns volumes, or has copies of them.
        Evacuating = "evacuating",
        /// Nothing is left on it.
        Evacuated = "evacuated",
    }
}

/// The word of each of core's; one that core gains does not compile until it is named here.
macro_rules! words_of_core {
    ($($test:ident: $core:ty => $name:ident { $($variant:ident),+ $(,)? })+) => {$(
        impl From<$core> for $name {
            fn from(of_core: $core) -> $name {
                match of_core {
                    $(<$core>::$variant => $name::$variant,)+
                }
            }
        }

        #[cfg(test)]
        #[test]
        fn $test() {
            for of_core in [$(<$core>::$variant),+] {
                assert_eq!($name::from(of_core).as_str(), of_core.code());
            }
        }
    )+};
}

words_of_core! {
    policy_reasons_are_those_of_core: core::Reason => PolicyReason {
        AsRequested, Draining, DrainedThrough, TooFewPeers, TierError, Stopping,
    }
    destage_reasons_are_those_of_core: core::DestageReason => DestageReason {
        AsRequested, NoJournal, PolicyThrough, TierError, NothingToMerge, SmallGroups, LargeGroups, BacklogGrows,
    }
    member_states_are_those_of_core: ownership::State => MemberState {
        NoMember, Learner, Following, Sealed, Agreeing, Owner, Custodian, SteppingDown,
    }
    ownership_reasons_are_those_of_core: ownership::Reason => OwnershipReason {
        AsItShouldBe, ReadingRecord, NoRecord, CoordinatorAway, RecordWentBack, AwaitingAnswers, Released, NotNamed,
        EarlierLife, UnsyncedLost, LossSuspected, LogNotNeeded, TierFailed, LogWentBack, OwnerSilent, SealingMembers,
        AwaitingMembers, AwaitingBacking, AwaitingLease, ChangeUndecided, NoLease, Unfenced, TooFewMembers,
        BackingOutOfReach, HandingOver, Releasing,
    }
}

impl From<Option<RecordLog>> for LogNeed {
    fn from(log: Option<RecordLog>) -> LogNeed {
        match log {
            Some(RecordLog::Needed) => LogNeed::Needed,
            Some(RecordLog::Through) => LogNeed::Through,
            Some(RecordLog::Released) => LogNeed::Released,
            None => LogNeed::Unknown,
        }
    }
}

impl Default for FlushedBy {
    /// What an older node's answer says.
    fn default() -> FlushedBy {
        FlushedBy::Unrecorded
    }
}

impl From<Option<RecordFlushed>> for FlushedBy {
    fn from(flushed: Option<RecordFlushed>) -> FlushedBy {
        match flushed {
            Some(RecordFlushed::Durable) => FlushedBy::Durable,
            Some(RecordFlushed::Held) => FlushedBy::Held,
            Some(RecordFlushed::Unrecorded) | None => FlushedBy::Unrecorded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_version_passes_through_unchanged() {
        let told: VolumePhase = serde_json::from_str("\"resting\"").unwrap();
        assert_eq!(told, VolumePhase::Other("resting".to_owned()));
        assert_eq!(serde_json::to_string(&told).unwrap(), "\"resting\"");
        for word in VolumePhase::WORDS {
            let told = VolumePhase::from(*word);
            assert!(!matches!(told, VolumePhase::Other(_)) && told.as_str() == *word);
        }
    }
}
