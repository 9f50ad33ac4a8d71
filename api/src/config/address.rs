//! The address by which clients reach a volume of the cluster, whichever node serves it.

use super::cluster::check_interface;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An address with the bits of its network, such as 10.0.0.50/24.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CidrAddress {
    /// The address itself, with the bits that tell hosts of its network apart.
    pub ip: IpAddr,
    /// How many of its first bits are its network's.
    pub bits: u8,
}

impl CidrAddress {
    /// Whether another address is of the same network.
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.ip, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same_head(own.to_bits().into(), other.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => same_head(own.to_bits(), other.to_bits(), 128, self.bits),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// Whether two numbers of `all` bits have the first ones in common.
fn same_head(one: u128, other: u128, all: u32, bits: u8) -> bool {
    (one ^ other).checked_shr(all - u32::from(bits)).unwrap_or(0) == 0
}

impl std::str::FromStr for CidrAddress {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<CidrAddress> {
        const FORM: &str = "write an address and the bits of its network, such as 10.0.0.50/24";
        let (ip, bits) = text.split_once('/').with_context(|| format!("address {text:?}: {FORM}"))?;
        let ip: IpAddr = ip.parse().with_context(|| format!("address {text:?}: {FORM}"))?;
        let bits: u8 = bits.parse().with_context(|| format!("address {text:?}: {FORM}"))?;
        let all = if ip.is_ipv4() { 32 } else { 128 };
        if bits == 0 || bits > all {
            bail!("address {text:?}: a network of {bits} bits is none; {FORM}");
        }
        let of_one_host = match ip {
            IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
        };
        if of_one_host || ip.is_unspecified() || ip.is_multicast() {
            bail!("address {text:?} cannot move between hosts; give one of the network that clients come from");
        }
        Ok(CidrAddress { ip, bits })
    }
}

impl TryFrom<String> for CidrAddress {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<CidrAddress> {
        text.parse()
    }
}

impl From<CidrAddress> for String {
    fn from(address: CidrAddress) -> String {
        address.to_string()
    }
}

impl std::fmt::Display for CidrAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.ip, self.bits)
    }
}

/// What `volume set` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AddressChange {
    /// The volume has no address any more.
    None,
    /// The volume has this address from now on.
    To(CidrAddress),
}

impl std::str::FromStr for AddressChange {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<AddressChange> {
        if text == "none" { Ok(AddressChange::None) } else { text.parse().map(AddressChange::To) }
    }
}

impl From<AddressChange> for String {
    fn from(change: AddressChange) -> String {
        match change {
            AddressChange::None => "none".to_owned(),
            AddressChange::To(address) => address.to_string(),
        }
    }
}

impl TryFrom<String> for AddressChange {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<AddressChange> {
        text.parse()
    }
}

/// Where clients reach a volume, whichever node serves it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct VirtualAddress {
    /// The address, with the bits of its network.
    pub address: CidrAddress,
    /// The interface of each node that gets it; none: the one that has an address of the same network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// As it is written: what it names is looked at before it is an address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    address: CidrAddress,
    #[serde(default)]
    interface: Option<String>,
}

impl TryFrom<Unchecked> for VirtualAddress {
    type Error = anyhow::Error;
    fn try_from(written: Unchecked) -> Result<VirtualAddress> {
        VirtualAddress::new(written.address, written.interface)
    }
}

impl VirtualAddress {
    /// Refuses what cannot be the name of an interface.
    pub fn new(address: CidrAddress, interface: Option<String>) -> Result<VirtualAddress> {
        interface.iter().try_for_each(|name| check_interface(name))?;
        Ok(VirtualAddress { address, interface })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_network() {
        let address: CidrAddress = "10.0.0.50/24".parse().unwrap();
        assert_eq!(address.to_string(), "10.0.0.50/24");
        assert!(address.contains("10.0.0.1".parse().unwrap()) && !address.contains("10.0.1.1".parse().unwrap()));
        assert!(!address.contains("fd00::1".parse().unwrap()));
        let one: CidrAddress = "10.0.0.50/32".parse().unwrap();
        assert!(one.contains(one.ip) && !one.contains("10.0.0.51".parse().unwrap()));
        let v6: CidrAddress = "fd00::50/64".parse().unwrap();
        assert!(v6.contains("fd00::1".parse().unwrap()) && !v6.contains("fd00:0:0:1::1".parse().unwrap()));
        assert!("fd00::50/128".parse::<CidrAddress>().unwrap().contains("fd00::50".parse().unwrap()));
    }

    #[test]
    fn what_no_client_could_reach_on_another_host_is_refused() {
        let refused = |text: &str, why: &str| {
            let error = format!("{:#}", text.parse::<CidrAddress>().unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        };
        refused("10.0.0.50", "10.0.0.50/24");
        refused("10.0.0.50/33", "33 bits");
        refused("10.0.0.50/0", "0 bits");
        refused("storage/24", "10.0.0.50/24");
        for text in [
            "127.0.0.1/8",
            "0.0.0.0/24",
            "224.0.0.1/4",
            "169.254.0.1/16",
            "255.255.255.255/32",
            "fe80::1/64",
            "::1/128",
        ] {
            refused(text, "cannot move");
        }
    }

    #[test]
    fn none_is_a_change() {
        assert_eq!("none".parse::<AddressChange>().unwrap(), AddressChange::None);
        assert!("nothing".parse::<AddressChange>().is_err());
        let address = "10.0.0.50/24".parse().unwrap();
        assert!(VirtualAddress::new(address, Some("a/b".into())).is_err());
        assert!(VirtualAddress::new(address, Some("eth0".into())).is_ok());
        for (interface, good) in
            [("eth0", true), ("a/b", false), ("../eth0", false), ("a-name-that-is-too-long", false)]
        {
            let text = format!(r#"{{"address":"10.0.0.50/24","interface":"{interface}"}}"#);
            assert_eq!(serde_json::from_str::<VirtualAddress>(&text).is_ok(), good, "{interface}");
        }
    }
}
