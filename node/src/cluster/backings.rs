//! How this node opens the backing of a volume of the cluster: only where it lies in a place that this node allows, or that a command of
//! this node has named ([`crate::allowed`]). Everybody in `cluster` opens backings by this.

use super::control::Cluster;
use super::member::Place;
use crate::allowed::{NamedBy, is_refusal};
use crate::coordinator::schema::Definition;
use anyhow::{Result, bail};
use forebay_api::checked::Line;
use forebay_api::record::VolumeId;
use forebay_api::status::NotUsed;
use forebay_core::fence::LockReach;
use forebay_io::backing::BackingSpec;
use forebay_io::lock::scope::scope_at;
use forebay_io::{Backing, BackingOptions};

impl Place {
    /// Opens it. It is made when the volume is created, and never later.
    pub(super) fn open_backing(&self, definition: &Definition) -> Result<Backing> {
        self.open_backing_for(definition, None)
    }

    /// The same, for so many bytes of a volume from its start.
    pub(super) fn open_backing_for(&self, definition: &Definition, volume_bytes: Option<u64>) -> Result<Backing> {
        let options = BackingOptions { create: None, format_raw: definition.format_raw, volume_bytes };
        self.allowed.open(&definition.backing, self.pins.named_by(definition.volume), options)
    }

    /// Whether it may be opened, and could be now.
    pub(super) fn reaches_backing(&self, definition: &Definition) -> bool {
        self.allowed.is_in_reach(&definition.backing, self.pins.named_by(definition.volume))
    }

    /// About whom a lock on it proves anything, and whether this machine's writes end with its boot; nothing is claimed of one
    /// that cannot be looked at. And why this node would not open it, if it would not.
    pub(super) fn look_at_backing(&self, definition: &Definition) -> (LockReach, bool, Option<String>) {
        let by = self.pins.named_by(definition.volume);
        if let Err(why) = self.allowed.check(&definition.backing, by, true)
            && is_refusal(&why)
        {
            return (LockReach::Nobody, false, Some(format!("{why:#}")));
        }
        let looked = BackingSpec::parse(&definition.backing).ok().and_then(|spec| scope_at(spec.path()?).ok());
        let (about, local) = looked.map_or((LockReach::Nobody, false), |(reach, local)| (reach.about, local));
        (about, local, None)
    }

    /// Takes what a volume is; see [`super::pins`].
    pub(super) fn admit(&self, definition: &Definition, by: NamedBy) -> Result<()> {
        let name = &definition.name;
        if self.store.load(name)?.is_some() {
            bail!("this node has a volume {name} of its own; rename or delete one of the two");
        }
        self.pins.admit(definition, by, || self.owned_term(definition.volume).is_ok_and(|term| term.is_some()))
    }
}

impl Cluster {
    /// What in the coordinator is not used here.
    pub fn not_used(&self) -> Vec<NotUsed> {
        let plain = |(key, why): (String, String)| NotUsed { key: Line::of(&key).into(), why: Line::of(&why).into() };
        self.coordinator.refused().into_iter().map(plain).collect()
    }

    /// What this node does not use of the definitions is shown, with why.
    pub(super) fn show_refused(&self, volumes: Vec<(VolumeId, String)>) {
        self.coordinator.refuse("definitions", volumes);
        let known = self.known();
        let without = known.iter().filter_map(|(volume, known)| Some((*volume, known.not_allowed.clone()?)));
        self.coordinator.refuse("backings", without.collect());
    }
}
