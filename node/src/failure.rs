//! Why a command failed: its kind, as far as callers tell kinds apart, and the words for it.

use crate::datapath::mailbox::CommandError;
use forebay_core::status::{ControlError, HoldEnd};

/// Why a volume is not changed while it is held.
pub const HELD_IMAGE: &str = "its image is held, and must not change; `forebay volume release` it first";

/// Why a command failed, as far as callers tell kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no such volume.
    NotFound,
    /// The request cannot be meant.
    Invalid,
    /// The state of the volume forbids it.
    Conflict,
    /// It was tried and did not work.
    Failed,
}

/// Why a command failed, for whoever has asked.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which kind of failure it is, for callers that are programs.
    pub kind: FailureKind,
    /// What, on what, why, what to do.
    pub message: String,
}
/// Why the volume did not do it.
pub fn command_failure(name: &str, error: &CommandError) -> Failure {
    let kind = match error {
        CommandError::Refused(ControlError::BadSize) => FailureKind::Invalid,
        CommandError::Refused(ControlError::Busy | ControlError::NotHeld) => FailureKind::Conflict,
        CommandError::Refused(ControlError::HoldEnded(_) | ControlError::HoldRefused(_)) => FailureKind::Conflict,
        CommandError::Refused(ControlError::BackingFailed | ControlError::TierFailed) | CommandError::Backing(_) => {
            FailureKind::Failed
        }
    };
    Failure { kind, message: format!("volume {name}: {}", command_error_words(error)) }
}

fn hold_end_words(end: HoldEnd) -> &'static str {
    match end {
        HoldEnd::Time => "because its time was over",
        HoldEnd::TierFull => "because the tier was full and writes would have waited",
        HoldEnd::DrainTime => {
            "because what was dirty took as long to drain as it may (drain-max, or 10 s where one lost copy would make writes wait)"
        }
        HoldEnd::RangesFull => "because the tier had no place for more trims and zeroes, which would have waited",
        HoldEnd::BackingNeeded => {
            "because writes or flushes had to wait for the backing (policy through, or copies were lost)"
        }
        HoldEnd::Released => "by a release, before the backing was complete",
    }
}

fn command_error_words(error: &CommandError) -> String {
    match error {
        CommandError::Backing(why) => format!("its backing cannot be grown: {why}"),
        CommandError::Refused(refused) => match refused {
            ControlError::Busy => {
                "it is held, `drain --through` is in effect, or it is not serving; end the first two by `forebay volume release`"
            }
            ControlError::NotHeld => "it is not held, or the hold had ended before: what was copied under it is void",
            ControlError::HoldRefused(end) => return format!("no hold has begun, {}; try again", hold_end_words(*end)),
            ControlError::HoldEnded(end) => {
                return format!("the hold had ended before, {}: what was copied under it is void", hold_end_words(*end));
            }
            ControlError::BadSize => "a volume can only grow, by multiples of 512 bytes, up to 64T",
            ControlError::BackingFailed => {
                "its backing keeps failing; repair it and try again. Nothing is lost: the tier keeps all of it"
            }
            ControlError::TierFailed => "its tier failed; see `forebay volume show`",
        }
        .to_owned(),
    }
}
