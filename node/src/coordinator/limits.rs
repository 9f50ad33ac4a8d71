//! What numbers and texts of the coordinator can be. Each bound is that of whoever would have written the value (command line,
//! config, protocol), so nothing that Forebay writes is refused; and none of what passes makes a sum overflow, asks for memory
//! without end, or names a place that nobody can mean.

use super::schema::{Definition, NodeEntry, OwnerCommand};
use forebay_api::checked::{is_obeyed, shown};
use forebay_api::config;
use forebay_api::config::{FlushName, TierName};
use forebay_core::cluster::{EPOCH_MAX, Epoch, Record, TERM_MAX};
use forebay_core::record::MEMBERS_MAX;
use forebay_core::types::{BLOCK_BYTES, SECTOR_BYTES, Term, VOLUME_BYTES_MAX};
use forebay_io::backing::nbd::uri::Server;
use forebay_io::backing::{BackingSpec, Target};
use std::net::SocketAddr;

/// Longest value. What Forebay writes has kilobytes; etcd itself takes a megabyte and a half.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest spec of a backing: a path, or a URI with an export's name, behind some wrappers.
const BACKING_BYTES_MAX: usize = 8192;
/// Most terms that a node says have ended: of the volumes that it can have, as many as end without another proof.
pub(super) const ENDED_MAX: usize = 8192;
/// Longest hold of a backing, in seconds: a week.
const HOLD_S_MAX: u64 = 7 * 24 * 3600;
/// A machine is not reset sooner by a watchdog: its least timeout, twice, and the patience, which is no shorter.
const RESETS_WITHIN_MS_MIN: u64 = 15_000;
/// The config's largest numbers do not make more.
const RESETS_WITHIN_MS_MAX: u64 = 1 << 43;

pub(super) fn text(text: &str) -> Result<(), String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("it has {} bytes; no value of Forebay's has more than {TEXT_BYTES_MAX}", text.len()));
    }
    Ok(())
}

pub(super) fn number(term: Term, config: Epoch) -> Result<(), String> {
    if term > TERM_MAX || config > EPOCH_MAX {
        return Err(format!("term {} and epoch {} are more than a volume can reach", term.0, config.0));
    }
    Ok(())
}

pub(super) fn record(record: &Record) -> Result<(), String> {
    number(record.term, record.epoch)?;
    match record.size_bytes {
        0 => Err("it contradicts itself: a size that no volume can have".to_owned()),
        _ => Ok(()),
    }
}

pub(super) fn definition(definition: &Definition) -> Result<(), String> {
    let Definition { peers, min_peers, tier, flush, memory_bytes, journal_bytes, drain_max_s, .. } = definition;
    if min_peers > peers {
        return Err("it contradicts itself: min_peers is more than peers".into());
    }
    if usize::from(*peers) >= MEMBERS_MAX {
        return Err(format!("it asks for {peers} peers; at most {} are possible", MEMBERS_MAX - 1));
    }
    if (*flush, tier.kind) == (FlushName::Media, TierName::Memory) {
        return Err("it contradicts itself: a flush to media, and tiers in memory".into());
    }
    let within = |what: &str, bytes: u64, least: u64, most: u64| match bytes {
        0 => Ok(()),
        bytes if (least..=most).contains(&bytes) => Ok(()),
        bytes => Err(format!("{what} of {bytes} bytes; from {least} to {most} are possible")),
    };
    within("a tier", tier.size_bytes, config::TIER_BYTES_MIN, config::TIER_BYTES_MAX)?;
    within("memory", *memory_bytes, config::MEMORY_BYTES_MIN, config::MEMORY_BYTES_MAX)?;
    within("a journal", *journal_bytes, BLOCK_BYTES, config::JOURNAL_BYTES_MAX)?;
    config::check_drain_max(&definition.name, *drain_max_s).map_err(|error| error.to_string())?;
    backing(&definition.backing)
}

/// A backing that some node could open, whether this one may or not.
fn backing(spec: &str) -> Result<(), String> {
    if spec.len() > BACKING_BYTES_MAX || spec.chars().any(is_obeyed) {
        return Err(format!("the backing {} is no path and no NBD URI", shown(spec)));
    }
    let parsed = BackingSpec::parse(spec).map_err(|error| error.to_string())?;
    let path = match parsed.target() {
        Target::Path(path) => path,
        Target::Nbd(uri) => match &uri.server {
            Server::Unix(path) => path,
            Server::Tcp { .. } => return Ok(()),
        },
    };
    match path.is_absolute() {
        true => Ok(()),
        false => Err(format!("the backing {} is not absolute", shown(spec))),
    }
}

pub(super) fn ended(terms: usize) -> Result<(), String> {
    match terms > ENDED_MAX {
        true => Err(format!("it names {terms} terms; no node keeps more than {ENDED_MAX}")),
        false => Ok(()),
    }
}

pub(super) fn node(entry: &NodeEntry) -> Result<(), String> {
    if entry.addresses.len() > config::cluster::LINKS_MAX {
        return Err(format!(
            "it has {} addresses; at most {} are possible",
            entry.addresses.len(),
            config::cluster::LINKS_MAX
        ));
    }
    for address in &entry.addresses {
        let parsed: Option<SocketAddr> = address.parse().ok();
        let usable = |at: &SocketAddr| !at.ip().is_unspecified() && !at.ip().is_multicast() && at.port() != 0;
        if !parsed.is_some_and(|at| usable(&at)) {
            return Err(format!("{} is no address of a node", shown(address)));
        }
    }
    let resets_within = entry.watchdog.as_ref().map(|watchdog| watchdog.resets_within_ms);
    if resets_within.is_some_and(|ms| !(RESETS_WITHIN_MS_MIN..=RESETS_WITHIN_MS_MAX).contains(&ms)) {
        return Err("its watchdog resets the machine sooner than one can, or never".to_owned());
    }
    Ok(())
}

pub(super) fn command(wish: &OwnerCommand) -> Result<(), String> {
    match wish {
        OwnerCommand::Hold { seconds } if !(1..=HOLD_S_MAX).contains(seconds) => {
            Err(format!("a hold lasts from 1 second to 7 days, not {seconds} s"))
        }
        OwnerCommand::Resize { size_bytes }
            if !size_bytes.is_multiple_of(SECTOR_BYTES) || *size_bytes > VOLUME_BYTES_MAX =>
        {
            Err(format!("{size_bytes} bytes are no size of a volume"))
        }
        OwnerCommand::Hold { .. }
        | OwnerCommand::Resize { .. }
        | OwnerCommand::HandOver { .. }
        | OwnerCommand::Drain { .. }
        | OwnerCommand::Release
        | OwnerCommand::Delete { .. } => Ok(()),
    }
}
