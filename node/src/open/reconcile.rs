//! The record that a start means: what is recorded, and what the spec of the start asks for.

use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::config::volume::{Common, VolumeSpec};
use forebay_api::config::{self, TierName};
use forebay_api::record::{Record, STORE_VERSION, TierRecord, VolumeId};
use forebay_api::units::show_size;
use forebay_core::types::BLOCK_BYTES;
use forebay_io::backing::BackingSpec;

/// The record that a spec means: a new one (true), or the recorded one with what may be changed at a start.
pub(super) fn reconcile(store: &Store, recorded: Option<Record>, spec: Option<&VolumeSpec>) -> Result<(Record, bool)> {
    let Some(spec) = spec else {
        return Ok((recorded.expect("a volume is opened by its record or by a spec"), false));
    };
    let backing = config::absolute_spec(&spec.backing);
    match recorded {
        Some(record) if record.tier.made => Ok((changed(record, spec, backing)?, false)),
        // A volume that has never served is still to be made: what is asked for now counts, not what failed before.
        unmade => Ok((new(store, unmade, spec, backing)?, true)),
    }
}

/// A recorded volume with what a start may change; refused where the spec means another backing or another tier.
fn changed(mut record: Record, spec: &VolumeSpec, backing: String) -> Result<Record> {
    let name = &record.name;
    let asked = BackingSpec::parse(&backing)?;
    let same = |recorded: BackingSpec| recorded.target().same_place(asked.target());
    if !BackingSpec::parse(&record.backing).is_ok_and(same) {
        bail!(
            "volume {name} has the backing {}, and {backing} was asked for; give another --name, or delete the volume \
             first with `forebay volume delete {name}`",
            record.backing
        );
    }
    if spec.tier.is_some_and(|kind| kind != record.tier.kind)
        || spec.tier_size.is_some_and(|size| size / BLOCK_BYTES != record.tier.size_bytes / BLOCK_BYTES)
        || spec
            .tier_path
            .as_ref()
            .is_some_and(|path| std::path::absolute(path).ok().as_ref() != Some(&record.tier.path))
    {
        bail!(
            "volume {name} has a {} tier of {} at {}, and another one is asked for at the start: ask for this one, or for none. \
             `forebay volume set {name} --tier` changes the medium while it serves",
            record.tier.kind.word(),
            show_size(record.tier.size_bytes),
            record.tier.path.display()
        );
    }
    // Wrappers model how a backing behaves, not which one it is.
    record.backing = backing;
    record.policy = spec.policy.unwrap_or(record.policy);
    record.drain_max_s = spec.drain_max_s.unwrap_or(record.drain_max_s);
    record.memory_bytes = spec.memory.unwrap_or(record.memory_bytes);
    record.common = record.common.with(&spec.into());
    record.destage = spec.destage.unwrap_or(record.destage);
    record.journal_bytes = spec.journal_size.unwrap_or(record.journal_bytes);
    record.format_raw |= spec.format.is_some();
    Ok(record)
}

/// The record that a volume of this spec begins with.
pub fn record_of(store: &Store, spec: &VolumeSpec) -> Result<Record> {
    new(store, None, spec, config::absolute_spec(&spec.backing))
}

/// What stands in the list for a record that cannot be read: of a volume that may have served, so nobody goes on with it.
pub fn stand_in(name: &str) -> Result<Record> {
    Ok(Record {
        version: STORE_VERSION,
        name: name.to_owned(),
        volume: VolumeId::random()?,
        backing: "unknown".to_owned(),
        size_bytes: 0,
        policy: Default::default(),
        drain_max_s: 0,
        volatile: false,
        format_raw: false,
        memory_bytes: 0,
        destage: Default::default(),
        journal_bytes: 0,
        spare: None,
        common: Common::default(),
        tier: TierRecord { kind: TierName::default(), path: "unknown".into(), size_bytes: 0, made: true },
    })
}

/// The record of a volume that is made now; `unmade` is what an earlier start has left that did not come to serve.
fn new(store: &Store, unmade: Option<Record>, spec: &VolumeSpec, backing: String) -> Result<Record> {
    let kind = spec.tier.unwrap_or_default();
    // Its arena, which a start that was killed may have left, is found again by its name.
    let arena = unmade.as_ref().filter(|unmade| unmade.tier.kind == kind).map(|unmade| unmade.tier.path.clone());
    // Made in the place of another one, which must go first: it may lie where the new one is to be.
    let spare = unmade.as_ref().and_then(|unmade| unmade.spare.clone());
    let volume = unmade.map_or_else(VolumeId::random, |unmade| Ok(unmade.volume))?;
    Ok(Record {
        version: STORE_VERSION,
        name: spec.name.clone(),
        volume,
        backing,
        size_bytes: 0,
        policy: spec.policy.unwrap_or_default(),
        drain_max_s: spec.drain_max_s.unwrap_or(0),
        volatile: spec.volatile,
        format_raw: spec.format.is_some(),
        memory_bytes: spec.memory.unwrap_or(0),
        destage: spec.destage.unwrap_or_default(),
        journal_bytes: spec.journal_size.unwrap_or(0),
        spare,
        common: Common::default().with(&spec.into()),
        tier: TierRecord {
            kind,
            path: match &spec.tier_path {
                Some(path) => {
                    std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?
                }
                None => match kind {
                    TierName::Flash => store.tier_path(&spec.name),
                    TierName::Memory => arena.unwrap_or_default(),
                },
            },
            size_bytes: spec.tier_size.unwrap_or(0) / BLOCK_BYTES * BLOCK_BYTES,
            made: false,
        },
    })
}
