//! What is asked to be changed of a volume that serves.

use crate::config::address::AddressChange;
use crate::config::certificates::Clients;
use crate::config::{DestageName, FlushName, PolicyName, TierName, check_drain_max};
use anyhow::{Result, bail};
use serde::Deserialize;

/// What is to be changed of a volume that serves.
#[derive(Clone, Debug, Default, Deserialize)]
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
    /// Whether it can be meant at all, whatever the volume is like. The error is for whoever asks.
    pub fn check(&self, name: &str) -> Result<()> {
        let of_every = self.policy.is_some() || self.drain_max_s.is_some() || self.clients.is_some();
        let of_any = of_every || self.destage.is_some() || self.tier.is_some() || self.is_of_cluster();
        if self.tier.is_none() && (self.tier_size.is_some() || self.volatile) {
            bail!("volume {name}: tier_size and volatile are of the tier that it is to change to; give that");
        }
        if !of_any {
            bail!(
                "volume {name}: give a policy, a destage, a tier, a drain_max_s, clients, peers, min_peers, a flush or an address to \
                 change"
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
