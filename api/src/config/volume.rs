//! The settings of a volume in the forms in which people give them: [`VolumeSpec`] when it is made, [`Change`] while it serves. Each is
//! at once what the config file or a body of the API says, and what options of the command line say: their texts are the help.
//!
//! [`Common`] are those that its record, its definition in a cluster and its report have alike. Whoever keeps, shows or hands on a
//! volume does that with all of them; a new one is added here, and to nothing that keeps, shows or hands on.

use super::address::{AddressChange, CidrAddress};
use super::certificates::Clients;
use super::{
    DestageName, FlushName, FormatName, JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, MEMORY_BYTES_MAX, MEMORY_BYTES_MIN,
    PolicyName, TIER_BYTES_MAX, TIER_BYTES_MIN, TierName, check_drain_max, check_name, check_size,
};
use crate::checked::Line;
use crate::units::{self, parse_seconds, parse_size};
use anyhow::{Result, bail};
use clap::{ArgGroup, Args};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::path::PathBuf;

/// A volume as it is asked for: `[[volume]]` in the config, the body of a creation in the API, options of `volume create`. What is none
/// is as recorded, or has the default that is named.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// Name, and NBD export name
    pub name: String,
    /// File, block device or NBD URI (nbd://, nbd+unix://), with slow: or faulty: before it
    #[arg(long)]
    pub backing: String,
    /// Size, such as 10G; needed where the backing is made
    #[arg(long, value_parser = parse_size)]
    #[serde(default, with = "units::size", skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Create the backing file if it is missing
    #[arg(long)]
    #[serde(default)]
    pub create: bool,
    /// When a write is acknowledged [default: back]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    /// Slow writes to the backing's speed when the tier takes so long to drain, such as 10s; 0 = when it is full [default: 0]
    #[arg(long = "drain-max", value_parser = parse_seconds, value_name = "TIME")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_max_s: Option<u64>,
    /// Medium of the tier [default: flash]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierName>,
    /// Accept that a host crash loses what is not destaged (needed for a memory tier)
    #[arg(long)]
    #[serde(default)]
    pub volatile: bool,
    /// Size of the tier
    #[arg(long, value_parser = parse_size)]
    #[serde(default, with = "units::size", skip_serializing_if = "Option::is_none")]
    pub tier_size: Option<u64>,
    /// The tier's file or block device [default: a file in the state folder]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_path: Option<PathBuf>,
    /// RAM for staging and read cache before a flash tier
    #[arg(long, value_parser = parse_size)]
    #[serde(default, with = "units::size", skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How barrier groups reach the backing: one by one, merged by a journal beside the image, or as the load suggests
    /// [default: auto]
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destage: Option<DestageName>,
    /// Size of the journal [default: an eighth of the volume, 8M to 128M]
    #[arg(long, value_parser = parse_size)]
    #[serde(default, with = "units::size", skip_serializing_if = "Option::is_none")]
    pub journal_size: Option<u64>,
    /// Take the backing as raw although it begins like another format
    #[arg(long)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<FormatName>,
    /// Copies of the log on other nodes of the cluster; the backing must have each write as well while there is none
    #[arg(long, value_name = "N")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<u8>,
    /// With fewer copies the backing must have each write as well [default: 1; 0 with --peers 0]
    #[arg(long, value_name = "N", requires = "peers")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_peers: Option<u8>,
    /// What a flush promises: media of all members, copies, or the backing [default: media while all tiers are on flash]
    #[arg(long, requires = "peers")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushName>,
    /// Where clients reach it, such as 10.0.0.50/24: an address that moves to whichever node serves the volume
    #[arg(long, value_name = "ADDRESS/BITS", requires = "peers")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<CidrAddress>,
    /// The interface that gets the address [default: the one that has an address of the same network]
    #[arg(long, value_name = "NAME", requires = "address")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Reserve the backing's device (SCSI-3, NVMe) before each owner writes to it, so that a successor can expel that one
    #[arg(long, requires = "peers")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve: bool,
    /// Clients with certificates that may use it: any (with the role nbd-client), none, or names with commas between them
    /// (dns:NAME, uri:URI, sha256:FINGERPRINT) [default: any]
    #[arg(long, value_name = "NAMES")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
    /// What it is for, in one line for people
    #[arg(long, value_name = "TEXT", value_parser = Line::new)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Line>,
    /// Take the image as it is, although a tier has newer writes for it: they are given up
    #[arg(long)]
    #[serde(default)]
    pub adopt_changed_backing: bool,
    /// The image is the one that the tier's writes belong to, in its newest state, although it cannot be told from another one. Only
    /// whoever starts a daemon can know that.
    #[arg(skip)]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_image: bool,
}

impl VolumeSpec {
    /// Refuses what cannot be meant, before anything is touched.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        if self.backing.is_empty() {
            bail!("volume {}: the backing is empty; give a file, a block device or an NBD URI", self.name);
        }
        if self.tier == Some(TierName::Memory) && !self.volatile && self.peers.unwrap_or(0) == 0 {
            bail!(
                "volume {}: a memory tier without a peer loses acknowledged writes when the host crashes or loses power; \
                 accept that with --volatile (config: volatile = true), or use --tier flash",
                self.name
            );
        }
        if self.same_image && self.adopt_changed_backing {
            bail!(
                "volume {}: same_image keeps the tier's writes, and adopt_changed_backing gives them up; say one of both",
                self.name
            );
        }
        if self.address.is_some() && self.peers.is_none() {
            bail!(
                "volume {}: an address moves between the nodes of a cluster; give peers as well, or leave it out",
                self.name
            );
        }
        if self.interface.is_some() && self.address.is_none() {
            bail!("volume {}: an interface is where an address goes; give that as well", self.name);
        }
        if let Some(size) = self.size {
            check_size(&self.name, size)?;
        }
        if let Some(journal) = self.journal_size
            && (!journal.is_multiple_of(8192) || !(JOURNAL_BYTES_MIN..=JOURNAL_BYTES_MAX).contains(&journal))
        {
            bail!(
                "volume {}: a journal of {} cannot be made; it is a multiple of 8K from {} to {}",
                self.name,
                units::show_size(journal),
                units::show_size(JOURNAL_BYTES_MIN),
                units::show_size(JOURNAL_BYTES_MAX)
            );
        }
        if let Some(tier) = self.tier_size {
            if tier < TIER_BYTES_MIN {
                bail!(
                    "volume {}: a tier of {} is too small; the least is {}",
                    self.name,
                    units::show_size(tier),
                    units::show_size(TIER_BYTES_MIN)
                );
            }
            if tier > TIER_BYTES_MAX {
                bail!(
                    "volume {}: a tier of {} is too large; the most is {}",
                    self.name,
                    units::show_size(tier),
                    units::show_size(TIER_BYTES_MAX)
                );
            }
        }
        if let Some(seconds) = self.drain_max_s {
            check_drain_max(&self.name, seconds)?;
        }
        if let Some(memory) = self.memory
            && !(MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(&memory)
        {
            bail!(
                "volume {}: memory = {} is out of bounds; from {} to {}",
                self.name,
                units::show_size(memory),
                units::show_size(MEMORY_BYTES_MIN),
                units::show_size(MEMORY_BYTES_MAX)
            );
        }
        Ok(())
    }
}

/// What is to be changed of a volume that serves: the body of a change in the API, options of `volume set`. What is none stays as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Args)]
#[serde(deny_unknown_fields)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub struct Change {
    /// When a write is acknowledged
    #[arg(long, group = "change")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
    /// Slow writes to the backing's speed when the tier takes so long to drain, such as 10s; 0 = when it is full
    #[arg(long = "drain-max", value_parser = parse_seconds, value_name = "TIME", group = "change")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_max_s: Option<u64>,
    /// How barrier groups reach the backing
    #[arg(long, group = "change")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destage: Option<DestageName>,
    /// Medium of the tier: the log is emptied into the backing, or each node of a cluster gets a new one in turn
    #[arg(long, group = "change")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierName>,
    /// Size of the tier on the other medium [default: as it is]
    #[arg(long, value_parser = parse_size, requires = "tier")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier_size: Option<u64>,
    /// Accept that a host crash loses what is not destaged (needed for a memory tier of a volume without peers)
    #[arg(long, requires = "tier")]
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub volatile: bool,
    /// Copies of the log on other nodes; the backing must have each write as well while there is none
    #[arg(long, group = "change", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<u8>,
    /// With fewer copies the backing must have each write as well [default with --peers: 1; 0 with --peers 0]
    #[arg(long, group = "change", value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_peers: Option<u8>,
    /// What a flush promises: media of all members, copies, or the backing
    #[arg(long, group = "change")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flush: Option<FlushName>,
    /// Clients with certificates that may use it: any (with the role nbd-client), none, or names with commas between them
    /// (dns:NAME, uri:URI, sha256:FINGERPRINT); sessions of others end
    #[arg(long, group = "change", value_name = "NAMES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Clients>,
    /// What it is for, in one line for people; an empty one takes it away
    #[arg(long, group = "change", value_name = "TEXT", value_parser = Line::new)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<Line>,
    /// Where clients reach it, such as 10.0.0.50/24: an address that moves to whichever node serves the volume; or none
    #[arg(long, group = "change", value_name = "ADDRESS/BITS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<AddressChange>,
    /// The interface that gets the address [default: the one that has an address of the same network]
    #[arg(long, value_name = "NAME", requires = "address")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

impl Change {
    /// Whether it can be meant at all, whatever the volume is like. The error is for whoever asks.
    pub fn check(&self, name: &str) -> Result<()> {
        let of_people = self.clients.is_some() || self.description.is_some();
        let of_every = self.policy.is_some() || self.drain_max_s.is_some() || of_people;
        let of_any = of_every || self.destage.is_some() || self.tier.is_some() || self.is_of_cluster();
        if self.tier.is_none() && (self.tier_size.is_some() || self.volatile) {
            bail!("volume {name}: tier_size and volatile are of the tier that it is to change to; give that");
        }
        if !of_any {
            bail!(
                "volume {name}: give a policy, a destage, a tier, a drain_max_s, clients, a description, peers, min_peers, a flush or an \
                 address to change"
            );
        }
        if let Some(seconds) = self.drain_max_s {
            check_drain_max(name, seconds)?;
        }
        if self.interface.is_some() && self.address.is_none() {
            bail!("volume {name}: an interface is where an address goes; give that as well");
        }
        if let (Some(peers), Some(min_peers)) = (self.peers, self.min_peers)
            && min_peers > peers
        {
            bail!("volume {name}: min_peers = {min_peers} is more than peers = {peers}");
        }
        Ok(())
    }

    /// Whether it asks for something that only a volume of a cluster has.
    pub fn is_of_cluster(&self) -> bool {
        let of_copies = self.peers.is_some() || self.min_peers.is_some() || self.flush.is_some();
        of_copies || self.address.is_some() || self.interface.is_some()
    }
}

/// The version of a cluster's records in which the newest of [`Common`] came.
pub const COMMON_VERSION: u32 = 4;

/// Settings that a volume's record, its definition in a cluster and its report have alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Common {
    /// Which clients with certificates may use it.
    #[serde(default, skip_serializing_if = "Clients::is_any")]
    pub clients: Clients,
    /// What it is for, in the words of whoever has it; nothing is decided by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Line>,
}

/// Other values for some of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommonChange {
    /// Which clients with certificates may use it from now on.
    pub clients: Option<Clients>,
    /// What it is for from now on; an empty one takes it away.
    pub description: Option<Line>,
}

impl Common {
    /// With the values that a change has.
    pub fn with(&self, change: &CommonChange) -> Common {
        let description = change.description.as_ref().or(self.description.as_ref());
        Common {
            clients: change.clients.clone().unwrap_or_else(|| self.clients.clone()),
            description: description.filter(|text| !text.is_empty()).cloned(),
        }
    }

    /// Serializes what a report shows: who may use a volume is said there also where that is everybody.
    pub fn show<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Common { clients, description } = self;
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("clients", clients)?;
        if let Some(description) = description {
            fields.serialize_entry("description", description)?;
        }
        fields.end()
    }

    /// The least version of records that a node of a cluster must read to know all of them, and the words for one that it would not know.
    pub fn known_since(&self) -> Option<(u32, &'static str)> {
        match self {
            Common { description: Some(_), .. } => Some((4, "descriptions")),
            Common { clients: Clients::Listed(_), description: None } => Some((3, "lists of clients")),
            Common { clients: Clients::Any, description: None } => None,
        }
    }
}

impl CommonChange {
    /// The change of the same settings to the values that are given here: what takes this one back.
    pub fn back_to(&self, before: &Common) -> CommonChange {
        let none = || Line::new("").expect("nothing is a line");
        CommonChange {
            clients: self.clients.as_ref().map(|_| before.clients.clone()),
            description: self.description.as_ref().map(|_| before.description.clone().unwrap_or_else(none)),
        }
    }
}

impl From<&VolumeSpec> for CommonChange {
    fn from(spec: &VolumeSpec) -> CommonChange {
        CommonChange { clients: spec.clients.clone(), description: spec.description.clone() }
    }
}

impl From<&Change> for CommonChange {
    fn from(change: &Change) -> CommonChange {
        CommonChange { clients: change.clients.clone(), description: change.description.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_whatever_the_volume_is_like() {
        let refused = |text: &str| {
            let change: Change = serde_json::from_str(text).unwrap();
            change.check("vm1").unwrap_err().to_string()
        };
        for (text, word) in [
            ("{}", "give a policy"),
            (r#"{"policy":"through","volatile":true}"#, "tier_size and volatile"),
            (r#"{"policy":"through","tier_size":4096}"#, "tier_size and volatile"),
            (r#"{"policy":"through","drain_max_s":99999999}"#, "no limit"),
            (r#"{"policy":"through","interface":"eth0"}"#, "an interface is where an address goes"),
            (r#"{"policy":"through","peers":1,"min_peers":2}"#, "min_peers = 2"),
        ] {
            assert!(refused(text).contains(word), "{text}: {}", refused(text));
        }
        let whole = r#"{"policy":"through","tier":"memory","volatile":true,"drain_max_s":0}"#;
        serde_json::from_str::<Change>(whole).unwrap().check("vm1").unwrap();
    }
}
