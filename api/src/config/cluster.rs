//! `[cluster]` and `[[link]]`: how a node reaches the coordinator and the other nodes.
//!
//! [`ClusterConfig::check`] judges what is written. What it leads to on this machine (files, interfaces, addresses) is the daemon's. What must be the same on all nodes (lease, grace) is not here but in the coordinator.

use crate::checked::FaultDomain;
use crate::config::endpoint::Endpoint;
use anyhow::{Result, bail};
use forebay_io::link::Compression;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Where links listen, unless another port is given.
pub const PORT_DEFAULT: u16 = 7071;
/// Most links of a node: `forebay-io` has as many channels between two nodes.
pub const LINKS_MAX: usize = 16;
/// Longest name of an interface, as the kernel has it.
const INTERFACE_BYTES_MAX: usize = 15;

/// The section `[cluster]`: what makes this node one of a cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// The node's identity, from `forebay node enrol`: it says which cluster, and which node of it.
    pub identity: PathBuf,
    /// Where the members of etcd listen for clients.
    pub etcd: Vec<EtcdUrl>,
    /// Files for TLS with etcd; none: its members are asked without.
    pub etcd_tls: Option<EtcdTlsFiles>,
    /// Name of the user of etcd; none: it is asked without one.
    pub etcd_user: Option<String>,
    /// File with that user's password.
    pub etcd_password_file: Option<PathBuf>,
    /// What fails together with this node: a rack, a power feed.
    #[serde(default)]
    pub fault_domain: String,
    /// How links to other nodes are protected.
    #[serde(default)]
    pub security: SecurityName,
    /// TCP port at which links listen.
    #[serde(default = "port_default")]
    pub port: u16,
    /// Whether what goes to other nodes is compressed.
    #[serde(default)]
    pub compression: CompressionName,
    /// Of the CPU that would else be idle, what compression may take.
    #[serde(default = "compression_cpu_default")]
    pub compression_cpu_percent: u8,
    /// Links are Multipath TCP (RFC 8684), where the other end is, too.
    #[serde(default)]
    pub mptcp: bool,
}

fn compression_cpu_default() -> u8 {
    50
}

/// `[cluster] compression`: whether what goes to other nodes is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompressionName {
    /// When the wire is the bound, the CPU has time, and the data gets shorter.
    #[default]
    Auto,
    /// Nothing is compressed, whatever the wire carries.
    Off,
}

fn port_default() -> u16 {
    PORT_DEFAULT
}

/// An endpoint of etcd.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct EtcdUrl(pub Endpoint);

impl TryFrom<String> for EtcdUrl {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<EtcdUrl> {
        Endpoint::parse(&text).map(EtcdUrl)
    }
}

/// `[cluster] etcd_tls`: PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdTlsFiles {
    /// Authority of the certificates of etcd's members.
    pub ca: PathBuf,
    /// Certificate of this node as a client of etcd; none: it shows none.
    pub cert: Option<PathBuf>,
    /// Private key of that certificate.
    pub key: Option<PathBuf>,
}

/// How links between nodes are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecurityName {
    /// TLS 1.3, certificates on both sides.
    #[default]
    Tls,
    /// Nothing: whoever reaches the address may read and change everything.
    Plain,
}

/// `[[link]]`: a way to the other nodes.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkConfig {
    /// Our end of it: an address of this node, or one of its interfaces.
    pub own: LinkEnd,
    /// The other end, where it is only one and is not to be the one that the other node has registered.
    pub peer: Option<SocketAddr>,
}

/// Our end of a link: an address, or the interface that has it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum LinkEnd {
    /// The end that has this address.
    Address(IpAddr),
    /// The first IPv4 address of this interface, else its first IPv6 address that is not of the link alone.
    Interface(String),
}

impl TryFrom<String> for LinkEnd {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<LinkEnd> {
        if let Ok(address) = text.parse() {
            return Ok(LinkEnd::Address(address));
        }
        if check_interface(&text).is_err() {
            bail!("link end {text:?}: write an IP address (without a port), or the name of an interface");
        }
        Ok(LinkEnd::Interface(text))
    }
}

/// Refuses what the kernel would not take as the name of an interface.
pub fn check_interface(name: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_graphic() && !matches!(b, b'/' | b':');
    if name.is_empty() || name.len() > INTERFACE_BYTES_MAX || !name.bytes().all(plain) {
        bail!("{name:?} is not the name of an interface, such as eth0");
    }
    Ok(())
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkEnd::Address(address) => address.fmt(f),
            LinkEnd::Interface(name) => name.fmt(f),
        }
    }
}

impl ClusterConfig {
    /// Refuses what cannot be meant.
    pub fn check(&self, links: &[LinkConfig]) -> Result<()> {
        if self.etcd.is_empty() {
            bail!("[cluster] etcd is empty: give its members, such as etcd = [\"https://10.0.0.1:2379\"]");
        }
        if let Some(at) = (1..self.etcd.len()).find(|at| self.etcd[..*at].contains(&self.etcd[*at])) {
            bail!("[cluster] etcd has {} twice", self.etcd[at].0);
        }
        if self.etcd_tls.as_ref().is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
            bail!("[cluster] etcd_tls: cert and key belong together; give both, or none");
        }
        if self.etcd_tls.is_none() && self.etcd.iter().any(|url| url.0.is_tls()) {
            bail!("[cluster] etcd has an https address; say by etcd_tls = {{ ca = \"FILE\" }} whom to trust");
        }
        if self.etcd_user.is_some() != self.etcd_password_file.is_some() {
            bail!("[cluster] etcd_user and etcd_password_file belong together; give both, or none");
        }
        FaultDomain::new(&self.fault_domain).map_err(|why| anyhow::anyhow!("[cluster] {why}"))?;
        if self.port == 0 {
            bail!("[cluster] port = 0: other nodes could not know it; the usual one is {PORT_DEFAULT}");
        }
        if !(1..=100).contains(&self.compression_cpu_percent) {
            bail!(
                "[cluster] compression_cpu_percent = {}: give 1 to 100, or compression = \"off\"",
                self.compression_cpu_percent
            );
        }
        check_links(links)
    }

    /// What a link does with payload.
    pub fn compression(&self) -> Compression {
        match self.compression {
            CompressionName::Auto => Compression::Auto { cpu_share: f64::from(self.compression_cpu_percent) / 100.0 },
            CompressionName::Off => Compression::Off,
        }
    }
}

fn check_links(links: &[LinkConfig]) -> Result<()> {
    if links.is_empty() {
        bail!(
            "[cluster] without a [[link]]: no other node could be reached; add one, such as [[link]] own = \"10.0.0.1\""
        );
    }
    if links.len() > LINKS_MAX {
        bail!("{} times [[link]]: at most {LINKS_MAX}", links.len());
    }
    for (at, link) in links.iter().enumerate() {
        if links[..at].contains(link) {
            bail!("[[link]] own = \"{}\" is there twice; each pair of addresses is one link", link.own);
        }
        let LinkEnd::Address(own) = link.own else { continue };
        if own.is_unspecified() || own.is_multicast() {
            bail!("[[link]] own = \"{own}\" is not the address of one interface");
        }
        match link.peer {
            Some(peer) if peer.ip() == own => bail!("[[link]] own = \"{own}\": both ends are the same"),
            Some(peer) if peer.is_ipv4() != own.is_ipv4() => {
                bail!("[[link]] own = \"{own}\" and peer = \"{peer}\" are of two families of addresses")
            }
            Some(peer) if peer.ip().is_unspecified() || peer.port() == 0 => {
                bail!("[[link]] peer = \"{peer}\" is not an address to connect to")
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::cluster::*;

    const GOOD: &str = r#"
        [cluster]
        identity = "/etc/forebay/alpha.identity.toml"
        etcd = ["https://10.0.0.1:2379", "https://10.0.0.2:2379", "https://10.0.0.3:2379"]
        etcd_tls = { ca = "/etc/forebay/etcd-ca.pem", cert = "/c.pem", key = "/k.pem" }
        etcd_user = "forebay"
        etcd_password_file = "/etc/forebay/etcd-password"
        fault_domain = "room-1/rack-2"
        [[link]]
        own = "10.77.0.1"
        [[link]]
        own = "10.77.1.1"
        peer = "10.77.1.2:7071"
        [[link]]
        own = "eth2"
    "#;

    #[test]
    fn cluster_and_links_are_read() {
        let config = Config::parse(GOOD).unwrap();
        let cluster = config.cluster.unwrap();
        assert_eq!((cluster.etcd.len(), cluster.port, cluster.security), (3, PORT_DEFAULT, SecurityName::Tls));
        assert_eq!(config.link.len(), 3);
        assert_eq!(config.link[1].peer, Some("10.77.1.2:7071".parse().unwrap()));
        assert_eq!(config.link[2].own, LinkEnd::Interface("eth2".into()));
        let plain = GOOD.replace("fault_domain", "security = \"plain\"\nport = 99\nfault_domain");
        let cluster = Config::parse(&plain).unwrap().cluster.unwrap();
        assert_eq!((cluster.security, cluster.port), (SecurityName::Plain, 99));
        assert_eq!((cluster.compression(), cluster.mptcp), (Compression::default(), false));
        let set = GOOD.replace("fault_domain", "compression_cpu_percent = 20\nmptcp = true\nfault_domain");
        let cluster = Config::parse(&set).unwrap().cluster.unwrap();
        assert_eq!((cluster.compression(), cluster.mptcp), (Compression::Auto { cpu_share: 0.2 }, true));
        let off = GOOD.replace("fault_domain", "compression = \"off\"\nfault_domain");
        assert_eq!(Config::parse(&off).unwrap().cluster.unwrap().compression(), Compression::Off);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let refused = |from: &str, to: &str, why: &str| {
            assert!(GOOD.contains(from), "{from}");
            let error = format!("{:#}", Config::parse(&GOOD.replace(from, to)).unwrap_err());
            assert!(error.contains(why), "{to}: {error}");
        };
        refused("own = \"10.77.0.1\"", "own = \"eth2\"", "eth2\" is there twice");
        refused("own = \"10.77.0.1\"", "own = \"10.77.1.1\"\npeer = \"10.77.1.2:7071\"", "10.77.1.1\" is there twice");
        refused("10.77.0.1", "10.77.0.1:7071", "without a port");
        refused("10.77.0.1", "0.0.0.0", "one interface");
        refused("10.77.1.2:7071", "10.77.1.1:7071", "the same");
        refused("10.77.1.2:7071", "[fd00::1]:7071", "two families");
        refused("10.77.1.2:7071", "10.77.1.2:0", "connect to");
        refused("10.77.1.2:7071", "10.77.1.2", "peer");
        refused("\"eth2\"", "\"a-name-that-is-too-long\"", "interface");
        refused("https://10.0.0.2", "https://10.0.0.1", "twice");
        refused("https://10.0.0.2:2379", "10.0.0.2:2379", "https://HOST:PORT");
        refused(", key = \"/k.pem\"", "", "belong together");
        refused("        etcd_user = \"forebay\"\n", "", "belong together");
        refused("room-1/rack-2", "room 1", "fault_domain");
        refused("fault_domain", "port = 0\nfault_domain", "port = 0");
        refused("fault_domain", "compression_cpu_percent = 0\nfault_domain", "1 to 100");
        refused("fault_domain", "compression = \"zip\"\nfault_domain", "zip");
        refused("fault_domain", "fault_domian", "fault_domian");
        refused("fault_domain", "security = \"none\"\nfault_domain", "none");
        let start = GOOD.find("etcd_tls").unwrap();
        let line = &GOOD[start..start + GOOD[start..].find('\n').unwrap()];
        refused(line, "", "whom to trust");
        let without_links = &GOOD[..GOOD.find("[[link]]").unwrap()];
        assert!(format!("{:#}", Config::parse(without_links).unwrap_err()).contains("[[link]]"));
        let alone = &GOOD[GOOD.find("[[link]]").unwrap()..];
        assert!(format!("{:#}", Config::parse(alone).unwrap_err()).contains("[cluster]"));
    }
}
