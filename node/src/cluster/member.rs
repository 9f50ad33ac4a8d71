//! The tier of a volume of the cluster on this node: where it lies, how it is opened, and how it is made anew. Everything
//! here may block, and runs on a thread of its own; what comes out goes to a shard.
//!
//! Invariants:
//! - A tier is made anew only when ownership asks for it: a node that starts keeps what it has, on whichever medium it is. Only a
//!   new one is on the medium that the definition asks for, and before it is made the former one is gone from either.
//! - A memory tier that a killed process has left is used only when no request of that process to the backing is under way
//!   any more: they read into the arena that is the tier. The lock of the term that it owned says so, or the record (see
//!   [`super::control`]).
//! - Of that term the node knows durably before it opens the backing for it.

use super::pins::Pins;
use crate::allowed::Allowed;
use crate::coordinator::schema::Definition;
use crate::facts::VolumeFacts;
use crate::judgement::TierFound;
use crate::log;
use crate::memory_place;
use crate::open::{
    BACKING_DEPTH_MAX, BACKING_WRITE_BYTES_MAX, DESTAGE_DELAY, DESTAGE_ROUND_BYTES_MAX, OpenVolume, is_there,
    look_for_tier, make_tier, put_aside,
};
use crate::placement::Placement;
use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::cluster::ClusterReport;
use forebay_api::config::{DestageName, TierName, tier_size_default};
use forebay_api::record::{Record, STORE_VERSION, TierRecord, VolumeId};
use forebay_api::status::VolumeReport;
use forebay_api::units::show_size;
use forebay_api::words::{OwnershipReason, VolumePhase};
use forebay_core::VolumeConfig;
use forebay_core::cluster::{Host, Incarnation, NodeId};
use forebay_core::format::{Superblock, TierKind};
use forebay_core::ownership::Timing;
use forebay_core::types::{BLOCK_BYTES, Duration, Term};
use forebay_core::volume::ClusterConfig;
use forebay_io::durable::{remove_durably, write_atomically};
use forebay_io::{Tier, VolumeIo};
use std::path::PathBuf;
use std::sync::Arc;

/// Sent to one peer and not held by it at most (S8).
const PEER_WINDOW_BYTES_MAX: u64 = 64 << 20;
/// Under way to the backing at most (D2).
const WINDOW_BYTES_MAX: u64 = 256 << 20;
/// A volume without a spare peer keeps no more dirty data than drains in this time (A6).
const DEGRADE_STALL_MAX: Duration = Duration::from_secs(10);
/// All links, and with them all volumes of a cluster, are the first shard's.
const LINKS_SHARD: usize = 0;
/// A volume's identity in the name of a file, with hyphens.
const UUID_LETTERS: usize = 36;
/// RAM before a flash tier, where the definition names none.
const FRAMES_DEFAULT_BYTES: u64 = 64 << 20;

/// Where a node keeps what.
#[derive(Clone)]
pub struct Place {
    /// Volume records and tiers, in the state folder.
    pub store: Store,
    /// Size of the tmpfs for memory tiers, in bytes, where it is mounted here.
    pub shm_size: Option<u64>,
    /// Where the shard with the links is, and so the memory of all volumes.
    pub placement: Arc<Placement>,
    /// This node's number in the cluster.
    pub node: NodeId,
    /// The machine and the boot that it runs in.
    pub host: Host,
    /// What all nodes have agreed on.
    pub timing: Timing,
    /// Which backings this node opens.
    pub allowed: Arc<Allowed>,
    /// What each volume is for its life.
    pub(super) pins: Arc<Pins>,
}

/// A tier, opened as a follower of the log.
pub struct Opened {
    /// What the shard needs to follow the log.
    pub volume: OpenVolume,
    /// What reports say of the volume while it is open.
    pub facts: VolumeFacts,
    /// Nothing has ever been in it.
    pub fresh: bool,
}

impl Place {
    /// Where the tier of a volume lies on this node, or would, and on which medium: that of the definition, or a former one.
    pub fn tier_place(&self, definition: &Definition) -> Result<(TierName, PathBuf)> {
        let asked = definition.tier.kind;
        let other = match asked {
            TierName::Flash => TierName::Memory,
            TierName::Memory => TierName::Flash,
        };
        let name = tier_name(definition, self.node);
        for kind in [asked, other] {
            for path in self.folders(kind).into_iter().map(|folder| folder.join(&name)) {
                if is_there(&path)? {
                    return Ok((kind, path));
                }
            }
        }
        Ok((asked, self.new_tier_path(definition)?))
    }

    fn new_tier_path(&self, definition: &Definition) -> Result<PathBuf> {
        let name = tier_name(definition, self.node);
        Ok(match definition.tier.kind {
            TierName::Flash => self.flash_folder().join(name),
            TierName::Memory => memory_place::find(self.shm_size)?.dir.join(name),
        })
    }

    /// Folder where flash tiers lie.
    pub fn flash_folder(&self) -> PathBuf {
        self.store.dir().join("tiers")
    }

    /// Where tiers on a medium may lie.
    fn folders(&self, kind: TierName) -> Vec<PathBuf> {
        match kind {
            TierName::Flash => vec![self.flash_folder()],
            TierName::Memory => memory_place::existing(),
        }
    }

    /// Ends of the names of this node's tiers: of whatever volume, under whatever name it had.
    fn tiers(&self) -> Vec<(VolumeId, PathBuf)> {
        let end = format!("-{:016x}.tier", self.node.0);
        let folders = [TierName::Memory, TierName::Flash].into_iter().flat_map(|kind| self.folders(kind));
        let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        let of_volume = |path: PathBuf| {
            let name = path.file_name()?.to_str()?.strip_suffix(&end)?;
            let id = name.get(name.len().checked_sub(UUID_LETTERS)?..)?;
            Some((VolumeId::try_from(id.to_owned()).ok()?, path))
        };
        files.filter_map(|entry| of_volume(entry.path())).collect()
    }

    /// Volumes of which there is a tier here.
    pub fn volumes_with_tiers(&self) -> Vec<VolumeId> {
        self.tiers().into_iter().map(|(volume, _)| volume).collect()
    }

    /// Removes what is here of a volume that was deleted: how many tiers.
    pub fn remove_tiers(&self, volume: VolumeId) -> Result<usize> {
        let removed = self.remove_tier_files(volume)?;
        remove_durably(&self.term_path(volume))?;
        Ok(removed)
    }

    fn remove_tier_files(&self, volume: VolumeId) -> Result<usize> {
        let tiers = self.tiers().into_iter().filter(|(of, _)| *of == volume);
        let mut removed = 0;
        for (_, path) in tiers {
            remove_durably(&path)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Remembers durably that this node is about to open the backing as the owner of a term.
    pub fn remember_term(&self, volume: VolumeId, term: Term) -> Result<()> {
        let path = self.term_path(volume);
        Ok(write_atomically(&path, term.0.to_string().as_bytes())?)
    }

    fn term_path(&self, volume: VolumeId) -> PathBuf {
        self.store.dir().join("cluster").join(format!("owned-{volume}"))
    }

    /// The last term for which this node has opened the backing.
    pub fn owned_term(&self, volume: VolumeId) -> Result<Option<Term>> {
        let path = self.term_path(volume);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let term = text.trim().parse().with_context(|| format!("{} holds no term", path.display()))?;
                Ok(Some(Term(term)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// What the folder's records say of a single node's volume, in the words of opening a tier.
    fn record(
        &self,
        definition: &Definition,
        size_bytes: u64,
        (kind, path): (TierName, PathBuf),
        made: bool,
    ) -> Record {
        let tier_bytes = match definition.tier.size_bytes {
            0 => tier_size_default(size_bytes),
            asked => asked / BLOCK_BYTES * BLOCK_BYTES,
        };
        Record {
            version: STORE_VERSION,
            name: definition.name.to_string(),
            volume: definition.volume,
            backing: definition.backing.clone(),
            size_bytes,
            policy: definition.policy,
            drain_max_s: definition.drain_max_s,
            volatile: true,
            format_raw: definition.format_raw,
            memory_bytes: definition.memory_bytes,
            destage: DestageName::Ordered,
            journal_bytes: 0,
            spare: None,
            common: definition.common.clone(),
            tier: TierRecord { kind, path, size_bytes: tier_bytes, made },
        }
    }

    /// The tier that is there; none: there is none.
    pub fn open(&self, definition: &Definition) -> Result<Option<Opened>> {
        self.in_memory_of_links(|| self.open_here(definition))
    }

    fn open_here(&self, definition: &Definition) -> Result<Option<Opened>> {
        check_memory(definition)?;
        let mut record = self.record(definition, 0, self.tier_place(definition)?, true);
        let (found, _, tier) = look_for_tier(&mut record)?;
        let Some((tier, superblock)) = tier else {
            debug_assert_eq!(found, TierFound::Missing);
            return Ok(None);
        };
        self.opened(definition, &record, tier, superblock, false).map(Some)
    }

    /// A new tier in the place of whatever is there (S7). What could not be read is kept under another name.
    pub fn format(&self, definition: &Definition, size_bytes: u64, unreadable: bool) -> Result<Opened> {
        if unreadable {
            for (_, path) in self.tiers().into_iter().filter(|(of, _)| *of == definition.volume) {
                log::say!(Notice, volume(definition.name), "{}", put_aside(&path)?);
            }
        }
        self.in_memory_of_links(|| self.format_here(definition, size_bytes))
    }

    /// All that touches a volume's memory first.
    fn in_memory_of_links<T>(&self, work: impl FnOnce() -> T) -> T {
        self.placement.near(self.placement.memory_node(LINKS_SHARD), work)
    }

    fn format_here(&self, definition: &Definition, size_bytes: u64) -> Result<Opened> {
        check_memory(definition)?;
        let place = (definition.tier.kind, self.new_tier_path(definition)?);
        let record = self.record(definition, size_bytes, place, false);
        // What is still under way to the former one goes to a file that has no name any more. It may be on the other medium: a
        // start must not find two.
        self.remove_tier_files(definition.volume)?;
        let (tier, superblock) = make_tier(&self.store, &record, &mut |_, _| {})?;
        self.opened(definition, &record, tier, superblock, true)
    }

    fn opened(
        &self,
        definition: &Definition,
        record: &Record,
        tier: Tier,
        superblock: Superblock,
        fresh: bool,
    ) -> Result<Opened> {
        let frames = match superblock.layout.kind {
            TierKind::Memory => superblock.layout.payload_blocks,
            TierKind::Flash => (frames_bytes(definition) / BLOCK_BYTES) as u32,
        };
        let index = forebay_api::config::index_memory(record.tier.size_bytes, u64::from(frames) * BLOCK_BYTES);
        let arena = forebay_io::memory::can_be_had(index)
            .and_then(|()| VolumeIo::arena_of(&tier, &superblock, frames))
            .with_context(|| format!("volume {}: cannot set up its memory", definition.name))?;
        if let Some(remark) =
            self.placement.has_memory(&definition.name, self.placement.memory_node(LINKS_SHARD), &arena)
        {
            log::say!(Notice, volume(definition.name), "{remark}");
        }
        let facts = VolumeFacts {
            name: definition.name.to_string(),
            volume: definition.volume.to_string(),
            backing: definition.backing.clone(),
            access: "by the owner".to_owned(),
            tier_kind: record.tier.kind,
            tier_path: record.tier.path.display().to_string(),
            tier_bytes: record.tier.size_bytes,
            volatile: false,
            memory_bytes: match record.tier.kind {
                TierName::Memory => 0,
                TierName::Flash => frames_bytes(definition),
            },
            journal: Err("volumes of a cluster are destaged in order".to_owned()),
        };
        let config = VolumeConfig {
            superblock,
            fresh,
            size_bytes: record.size_bytes,
            policy: definition.policy.into(),
            frames,
            // Which node opens the backing with which access is not known before: a multiple of every possible one.
            backing_align: 4096,
            backing_depth_max: BACKING_DEPTH_MAX,
            backing_write_bytes_max: BACKING_WRITE_BYTES_MAX,
            destage_round_bytes_max: DESTAGE_ROUND_BYTES_MAX,
            journal_blocks: 0,
            destage: DestageName::Ordered.into(),
            destage_delay: DESTAGE_DELAY,
            drain_max: Duration::from_secs(definition.drain_max_s),
            cluster: Some(self.cluster_config(definition)),
        };
        let volume = OpenVolume { config, arena, tier, backing: None, journal: None, replay_due: false };
        Ok(Opened { volume, facts, fresh })
    }

    fn cluster_config(&self, definition: &Definition) -> ClusterConfig {
        let timing = self.timing;
        ClusterConfig {
            own: Incarnation::none(self.node),
            host: self.host,
            min_peers: definition.min_peers.into(),
            flush: definition.flush.into(),
            peer_window_bytes_max: PEER_WINDOW_BYTES_MAX,
            window_bytes_max: WINDOW_BYTES_MAX,
            resend_after: timing.channel_dead,
            stall_max: timing.member_drop,
            degrade_stall_max: DEGRADE_STALL_MAX,
        }
    }
}

impl Place {
    /// What is shown of a volume of which this node has no tier.
    pub fn absent(&self, definition: &Definition, size_bytes: u64, cluster: &ClusterReport) -> VolumeReport {
        let record = self.record(definition, size_bytes, (definition.tier.kind, PathBuf::new()), false);
        let facts = VolumeFacts {
            name: definition.name.to_string(),
            volume: definition.volume.to_string(),
            backing: definition.backing.clone(),
            access: "by the owner".to_owned(),
            tier_kind: definition.tier.kind,
            tier_path: String::new(),
            tier_bytes: record.tier.size_bytes,
            volatile: false,
            memory_bytes: 0,
            journal: Err("volumes of a cluster are destaged in order".to_owned()),
        };
        crate::status::volume_absent(
            &facts,
            &record,
            VolumePhase::Elsewhere,
            &match &cluster.reason {
                OwnershipReason::NotNamed => {
                    "this node holds no copy of it: its record names other nodes, and clients here are served by the owner".to_owned()
                }
                reason => format!("this node holds no copy of it: {reason}"),
            },
        )
    }
}

fn tier_name(definition: &Definition, node: NodeId) -> String {
    format!("{}-{}-{:016x}.tier", definition.name, definition.volume, node.0)
}

/// What this host does not have is not asked for: whoever asks for too much ends the daemon, and with it all other volumes.
fn check_memory(definition: &Definition) -> Result<()> {
    let (asked, has) = (frames_bytes(definition), super::control::memory_bytes("MemTotal:"));
    if has != 0 && asked > has {
        bail!(
            "volume {} asks for {} of memory before its tier, and this host has {}",
            definition.name,
            show_size(asked),
            show_size(has)
        );
    }
    Ok(())
}

fn frames_bytes(definition: &Definition) -> u64 {
    if definition.memory_bytes == 0 { FRAMES_DEFAULT_BYTES } else { definition.memory_bytes }
}
