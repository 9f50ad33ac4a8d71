//! What is fixed while a volume is open, and what it takes of the memory.

use forebay_api::config::{self, TierName};

/// Bound on a volume's memory: its frames, what core keeps for each block of its tier and frame (index entry, descriptor,
/// lists), what it measures, and the last looks at that.
pub fn volume_memory(facts: &VolumeFacts) -> u64 {
    let arena = match facts.tier_kind {
        TierName::Memory => facts.tier_bytes,
        TierName::Flash => facts.memory_bytes,
    };
    let index = config::index_memory(facts.tier_bytes, arena);
    arena + index + forebay_core::MEASURED_BYTES_MAX + crate::telemetry::VOLUME_BYTES_MAX
}

/// What is fixed while a volume is open.
#[derive(Clone, Debug)]
pub struct VolumeFacts {
    /// The volume's name, by which clients choose it.
    pub name: String,
    /// The volume's identity, as text.
    pub volume: String,
    /// The backing's spec, as the user gave it.
    pub backing: String,
    /// How the backing is accessed, in words.
    pub access: String,
    /// The medium that the tier is on.
    pub tier_kind: TierName,
    /// Path of the tier's file or device.
    pub tier_path: String,
    /// Size of the tier in bytes.
    pub tier_bytes: u64,
    /// May lose acknowledged writes with the host.
    pub volatile: bool,
    /// RAM for frames besides a memory tier.
    pub memory_bytes: u64,
    /// Where its journal lies, or why it has no place for one.
    pub journal: Result<String, String>,
}
