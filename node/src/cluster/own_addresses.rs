//! This node's own addresses for links, as its interfaces have them now: one that is named by its interface is followed.
//!
//! look -> the same twice -> doors at the new addresses -> registered with them -> links from there
//!
//! Invariants:
//! - An address that its interface still has stays the one, whatever others come. One that is written in the config is never another.
//! - Where an interface has no address for now, nothing changes: what was there may come back.
//! - An address that moves with a volume is never taken for one of this node.

use super::control::Cluster;
use super::resolve::address_of;
use crate::coordinator::Registered;
use crate::datapath::acceptor::ToAcceptor;
use crate::log;
use anyhow::{Context, Result, bail};
use forebay_api::config::cluster::{ClusterConfig, LinkConfig, LinkEnd};
use forebay_host::interfaces::{Addresses, addresses_here};
use forebay_io::link::listen;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// Between two looks at the interfaces.
const LOOK: Time = Time::from_secs(1);

/// Our ends of the links in the order of the config, each with the other end where that is given.
pub(super) type Links = Vec<(IpAddr, Option<SocketAddr>)>;

/// This node's ends of its links: as they are configured, and what that leads to now.
pub(super) struct OwnLinks {
    configured: Vec<LinkConfig>,
    port: u16,
    multipath: bool,
    now: Mutex<Links>,
}

impl OwnLinks {
    pub(super) fn new(configured: &[LinkConfig], config: &ClusterConfig, now: Links) -> OwnLinks {
        let (port, multipath) = (config.port, config.mptcp);
        OwnLinks { configured: configured.to_vec(), port, multipath, now: Mutex::new(now) }
    }

    pub(super) fn now(&self) -> Links {
        self.now.lock().expect("nobody panics while holding it").clone()
    }

    /// Where other nodes are told to call.
    pub(super) fn announced(&self) -> Vec<String> {
        own_of(&self.now()).into_iter().map(|ip| SocketAddr::new(ip, self.port).to_string()).collect()
    }

    /// Listens at all of them.
    pub(super) fn doors(&self) -> Result<Vec<TcpListener>> {
        own_of(&self.now()).into_iter().map(|ip| self.door(ip)).collect()
    }

    fn door(&self, address: IpAddr) -> Result<TcpListener> {
        let port = self.port;
        listen(SocketAddr::new(address, port), self.multipath).map_err(|error| match error.raw_os_error() {
            Some(libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EINVAL) if self.multipath => anyhow::anyhow!(
                "this kernel makes no Multipath TCP socket: {error}; leave out [cluster] mptcp, or see `sysctl net.mptcp.enabled`"
            ),
            Some(_) | None => anyhow::Error::from(error).context(format!(
                "cannot listen for other nodes on {address}, port {port}; choose another one by [cluster] port"
            )),
        })
    }
}

/// Each address once.
fn own_of(links: &[(IpAddr, Option<SocketAddr>)]) -> Vec<IpAddr> {
    let mut own: Vec<IpAddr> = Vec::new();
    for (address, _) in links {
        if !own.contains(address) {
            own.push(*address);
        }
    }
    own
}

/// What the links are to be by what the interfaces have. One for which that cannot be stays as it is.
///
/// `moves`: an address that a volume takes along is nobody's successor; it may be the own one all the same. Nor is one of the other
/// family, which comes first where the lease of the own one ends for a moment, or one that a host gives itself meanwhile: the other
/// nodes could not call it from the addresses they have.
fn followed(
    configured: &[LinkConfig],
    now: &[(IpAddr, Option<SocketAddr>)],
    here: &Addresses,
    moves: impl Fn(IpAddr) -> bool,
) -> Links {
    let candidates: Addresses = here.iter().filter(|(_, ip)| !moves(*ip)).cloned().collect();
    let end = |(link, &(own, peer)): (&LinkConfig, &(IpAddr, Option<SocketAddr>))| {
        let LinkEnd::Interface(name) = &link.own else { return (own, peer) };
        let is_still_there = here.iter().any(|(interface, address)| interface == name && *address == own);
        let of_family: Addresses =
            candidates.iter().filter(|(_, ip)| ip.is_ipv4() == own.is_ipv4() && !is_self_given(ip)).cloned().collect();
        let other = if is_still_there { None } else { address_of(name, &of_family).ok() };
        let fits = |ip: &IpAddr| peer.is_none_or(|peer: SocketAddr| peer.ip() != *ip);
        (other.filter(fits).unwrap_or(own), peer)
    };
    let mut found: Links = configured.iter().zip(now).map(end).collect();
    // Of links that would be one, those stay as they are that would be another; each that stays may be in the way of the next.
    let twice = |found: &Links| {
        (0..found.len())
            .find(|&at| found[at] != now[at] && (0..found.len()).any(|other| other != at && found[other] == found[at]))
    };
    while let Some(at) = twice(&found) {
        found[at] = now[at];
    }
    found
}

/// 169.254.0.0/16, which a host takes while nobody gives it an address.
fn is_self_given(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_link_local())
}

impl Cluster {
    /// Looks at this machine's interfaces again and again, for ever.
    pub(super) async fn follow_own_addresses(self: Arc<Cluster>) {
        let is_named = |link: &LinkConfig| matches!(link.own, LinkEnd::Interface(_));
        if !self.links.configured.iter().any(is_named) {
            return;
        }
        let (mut seen, mut told) = (self.links.now(), None);
        loop {
            tokio::time::sleep(LOOK).await;
            let links = self.look_at_own_addresses().await;
            // While an interface is given another address it may have none, or both, for a moment.
            let is_settled = std::mem::replace(&mut seen, links.clone()) == links;
            if !is_settled || (links == self.links.now() && self.registration.own().addresses == self.links.announced())
            {
                continue;
            }
            let why = self.move_to(links).await.err().map(|error| format!("{error:#}"));
            if let Some(why) = why.as_ref().filter(|why| told.as_ref() != Some(*why)) {
                log::say!(Error, "this node cannot be called at its new addresses yet: {why}");
            }
            told = why;
        }
    }

    async fn look_at_own_addresses(&self) -> Links {
        let now = self.links.now();
        let here = tokio::task::spawn_blocking(addresses_here).await;
        let Ok(Ok(here)) = here else { return now };
        followed(&self.links.configured, &now, &here, |ip| self.addresses.moves(ip))
    }

    async fn move_to(&self, links: Links) -> Result<()> {
        let before = self.links.now();
        let (had, own) = (own_of(&before), own_of(&links));
        let new = own.iter().filter(|ip| !had.contains(ip));
        let doors = new.map(|ip| self.links.door(*ip)).collect::<Result<Vec<TcpListener>>>()?;
        let (answer, answered) = oneshot::channel();
        self.acceptor.send(ToAcceptor::Doors { new: doors, own, answer });
        answered.await.context("the accepting thread has ended")?.context("cannot listen for the other nodes")?;
        for ((link, (from, _)), (to, _)) in self.links.configured.iter().zip(&before).zip(&links) {
            if from != to {
                log::say!(Notice, "[[link]] own = \"{}\": its address is {to} now, and no more {from}", link.own);
            }
        }
        *self.links.now.lock().expect("nobody panics while holding it") = links;
        self.registration.change(|entry| entry.addresses = self.links.announced());
        // Links that this node begins come from there at once.
        let registered = self.register().await;
        self.refresh_nodes().await;
        match registered {
            // What did not come about is done by who finds its entry another one.
            Ok(Registered::Done | Registered::Unknown(_)) => Ok(()),
            Ok(Registered::NameTaken(_) | Registered::NumberTaken(_)) => {
                bail!("this node's name or number is another one's now")
            }
            Err(error) => bail!("the coordinator does not take them: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn link(own: &str, peer: Option<&str>) -> LinkConfig {
        let peer = peer.map(|peer| peer.parse().unwrap());
        LinkConfig { own: LinkEnd::try_from(own.to_owned()).unwrap(), peer }
    }

    fn here(all: &[(&str, &str)]) -> Addresses {
        all.iter().map(|(name, address)| ((*name).to_owned(), ip(address))).collect()
    }

    #[test]
    fn an_interface_with_another_address_is_followed_and_a_written_address_is_not() {
        let configured = [link("eth0", None), link("10.0.1.1", None)];
        let now = [(ip("10.0.0.1"), None), (ip("10.0.1.1"), None)];
        // What a volume takes along is nobody's successor, and an own address stays one whatever somebody says of volumes.
        let own_moving = ip("10.0.0.1");
        let after = |all: &[(&str, &str)]| {
            followed(&configured, &now, &here(all), |ip| ip == own_moving)
                .into_iter()
                .map(|(own, _)| own.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(after(&[("eth0", "10.0.0.9"), ("eth1", "10.0.1.9")]), ["10.0.0.9", "10.0.1.1"]);
        assert_eq!(after(&[("eth0", "10.0.0.9"), ("eth0", "10.0.0.1")]), ["10.0.0.1", "10.0.1.1"], "it is still there");
        assert_eq!(after(&[("eth1", "10.0.0.1")]), ["10.0.0.1", "10.0.1.1"], "there is none for now");
        assert_eq!(after(&[("eth0", "fe80::1"), ("eth0", "fd00::1")]), ["10.0.0.1", "10.0.1.1"], "of the other family");
        assert_eq!(after(&[("eth0", "169.254.7.7")]), ["10.0.0.1", "10.0.1.1"], "nobody gave it that");
        assert_eq!(after(&[("eth0", "10.0.1.1")]), ["10.0.0.1", "10.0.1.1"], "two links would be one");
    }

    #[test]
    fn links_that_would_be_one_hold_back_no_other() {
        let configured = ["eth0", "eth1", "eth2"].map(|name| link(name, None));
        let now = ["10.0.0.1", "10.0.1.1", "10.0.2.1"].map(|address| (ip(address), None));
        let after = |all: &[(&str, &str)]| {
            followed(&configured, &now, &here(all), |_| false)
                .into_iter()
                .map(|(own, _)| own.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(after(&[("eth0", "10.0.9.9"), ("eth1", "10.0.9.9"), ("eth2", "10.0.2.9")])[2], "10.0.2.9");
        // The second would be the first, and stays; so the third cannot be the second.
        let chain = after(&[("eth0", "10.0.0.1"), ("eth1", "10.0.0.1"), ("eth2", "10.0.1.1")]);
        assert_eq!(chain, ["10.0.0.1", "10.0.1.1", "10.0.2.1"]);
    }

    #[test]
    fn a_link_to_a_given_peer_stays_of_its_family() {
        let peer = Some("10.0.0.2:7071");
        let configured = [link("eth0", peer)];
        let now = [(ip("10.0.0.1"), peer.map(|peer| peer.parse().unwrap()))];
        let after = |address| followed(&configured, &now, &here(&[("eth0", address)]), |_| false)[0].0;
        assert_eq!(after("10.0.0.9"), ip("10.0.0.9"));
        assert_eq!(after("fd00::1"), ip("10.0.0.1"));
        assert_eq!(after("10.0.0.2"), ip("10.0.0.1"), "both ends would be the same");
    }
}
