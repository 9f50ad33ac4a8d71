//! What is asked to be changed of a volume that serves.

use crate::config::address::AddressChange;
use crate::config::certificates::Clients;
use crate::config::{DestageName, FlushName, PolicyName, TierName};
use serde::Deserialize;

/// What is to be changed of a volume that serves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// When writes are acknowledged from now on; none: as before.
    pub policy: Option<PolicyName>,
    /// Seconds that the log may take to drain; 0 = no such limit.
    pub drain_max_s: Option<u64>,
    /// How groups reach the backing.
    pub destage: Option<DestageName>,
    /// The medium that the tier is to move to; none: it stays where it is.
    pub tier: Option<TierName>,
    /// Size of the tier on the other medium.
    pub tier_size: Option<u64>,
    /// A host crash may lose what is not destaged: needed for a tier in memory.
    #[serde(default)]
    pub volatile: bool,
    /// Copies of the log on other nodes of the cluster.
    pub peers: Option<u8>,
    /// With fewer copies the backing must have each write as well.
    pub min_peers: Option<u8>,
    /// What a flush promises of a volume of the cluster.
    pub flush: Option<FlushName>,
    /// Where clients reach it, whichever node of the cluster serves it.
    pub address: Option<AddressChange>,
    /// Which clients with certificates may use it: `any`, or a list of names.
    pub clients: Option<Clients>,
    /// The interface that gets the address; none = the one that has an address of the same network.
    pub interface: Option<String>,
}

impl Change {
    /// Whether it asks for something that only a volume of a cluster has.
    pub fn is_of_cluster(&self) -> bool {
        let of_copies = self.peers.is_some() || self.min_peers.is_some() || self.flush.is_some();
        of_copies || self.address.is_some() || self.interface.is_some()
    }
}
