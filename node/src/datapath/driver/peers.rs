//! To which nodes there are links, and where others are let in.
//!
//! Who is registered is what the coordinator says, which whoever can write there may change as often as he likes. So a link is there for who is
//! registered now, is named by a record of a volume that is known here, or has shown who it is and is linked; it goes with the last of these
//! reasons, and there are at most [`PEERS_MAX`]. Two entries with one number, or one name, are two peers until one of them has shown who it is.
//!
//! Addresses are followed by the link itself, which keeps what works ([`Link::set_pairs`]). An entry without an address says nothing of them.

use super::{Desk, Desks, Driver, LINK, LINK_BYTES_MAX, Peer, PeerNode};
use crate::log;
use forebay_core::api::{Event, Outcome};
use forebay_core::cluster::NodeId;
use forebay_core::ownership;
use forebay_core::wire::NodeName;
use forebay_io::link::{AddressPair, Arrival, CHANNELS_MAX, Identity, Link, LinkConfig, LinkEvent};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most links of a node.
pub(super) const PEERS_MAX: usize = 256;
/// Places among the tokens of the reactor, which are given in turn: what is on its way to a link that is gone comes to no other one.
const PLACES: u32 = 1 << 28;

/// A peer that there is, for the choice of those that there shall be.
#[derive(Clone, Copy)]
struct Had<'a> {
    node: NodeId,
    name: &'a NodeName,
    up: bool,
}

/// Which peers stay, and which of those that are registered are new. `recorded`: nodes that a record names.
fn choose(had: &[Had<'_>], listed: &[PeerNode], recorded: &BTreeSet<NodeId>) -> (Vec<bool>, Vec<usize>) {
    let is_listed = |peer: &Had<'_>| listed.iter().any(|entry| entry.node == peer.node && entry.name == *peer.name);
    let mut stays: Vec<bool> = had.iter().map(|peer| peer.up || is_listed(peer)).collect();
    let mut reached: BTreeSet<NodeId> = listed.iter().map(|entry| entry.node).collect();
    reached.extend(had.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(peer, _)| peer.node));
    // A member whose entry somebody has taken away is called where it was.
    for (peer, stays) in had.iter().zip(&mut stays) {
        *stays |= recorded.contains(&peer.node) && reached.insert(peer.node);
    }
    let mut new = Vec::new();
    for (at, entry) in listed.iter().enumerate() {
        let is_it = |node: NodeId, name: &NodeName| entry.node == node && entry.name == *name;
        let there = had.iter().zip(&stays).any(|(peer, stays)| *stays && is_it(peer.node, peer.name));
        let twice = new.iter().any(|&before: &usize| is_it(listed[before].node, &listed[before].name));
        if !there && !twice {
            new.push(at);
        }
    }
    // Of too many, those stay that were seen to be nodes, then those that a volume needs, then those that came first.
    let mut all: Vec<(u8, bool, usize)> = Vec::new();
    for (at, peer) in had.iter().enumerate().filter(|(at, _)| stays[*at]) {
        let rank = if peer.up { 0 } else { 2 - u8::from(recorded.contains(&peer.node)) };
        all.push((rank, false, at));
    }
    all.extend(new.iter().map(|&at| (3 - 2 * u8::from(recorded.contains(&listed[at].node)), true, at)));
    all.sort();
    for (_, is_new, at) in all.split_off(all.len().min(PEERS_MAX)) {
        match is_new {
            true => new.retain(|other| *other != at),
            false => stays[at] = false,
        }
    }
    (stays, new)
}

/// Pairs that are not among `new` and by whose addresses the link works now: who forwards may need them until the new ones do.
fn still_reached(peer: &Peer, new: &[AddressPair]) -> Vec<AddressPair> {
    let before = peer.pairs.iter().chain(&peer.former);
    let kept = before.filter(|pair| !new.contains(pair) && peer.link.reaches(pair.peer.ip()));
    kept.take(CHANNELS_MAX).copied().collect()
}

impl Driver {
    /// The peer with this number; of two that are called so, the one that has shown who it is.
    pub(super) fn peer_of(&self, node: NodeId) -> Option<usize> {
        let is_it = |peer: &Peer| peer.node == node;
        let up = self.peers.iter().position(|peer| is_it(peer) && peer.link.is_up());
        up.or_else(|| self.peers.iter().position(is_it))
    }

    pub(super) fn is_linked(&self, node: NodeId) -> bool {
        self.peers.iter().any(|peer| peer.node == node && peer.link.is_up())
    }

    /// The peer that has called.
    pub(super) fn peer_that_calls(&self, arrival: &Arrival) -> Option<usize> {
        self.peers.iter().position(|peer| peer.node == arrival.node() && peer.link.peer() == arrival.name())
    }

    /// Nodes that a record of a volume names, as it is known here.
    fn recorded(&self) -> BTreeSet<NodeId> {
        let records = self.replicas.iter().filter_map(|(_, replica)| replica.ownership.status().record);
        let named = records.flat_map(|record| {
            let others = record.unfenced.iter().map(|former| former.node).collect::<Vec<_>>();
            let members = record.members.iter().map(|member| member.node).collect::<Vec<_>>();
            members.into_iter().chain(others).chain([record.owner])
        });
        named.collect()
    }

    pub(super) fn set_peers(&mut self, desks: &mut Desks<'_>, mut listed: Vec<PeerNode>) {
        listed.retain(|entry| entry.node != self.identity.node && entry.name != self.identity.name);
        let recorded = self.recorded();
        let had: Vec<Had<'_>> = self
            .peers
            .iter()
            .map(|peer| Had { node: peer.node, name: peer.link.peer(), up: peer.link.is_up() })
            .collect();
        let (stays, new) = choose(&had, &listed, &recorded);
        let before: BTreeSet<NodeId> = self.peers.iter().map(|peer| peer.node).collect();
        for at in (0..stays.len()).rev().filter(|at| !stays[*at]) {
            self.end_peer(desks, at);
        }
        for at in 0..self.peers.len() {
            self.follow_peer(desks, at, &listed);
        }
        for at in new {
            self.begin_peer(desks, listed[at].clone());
        }
        // Where a volume is may be said otherwise from now on.
        self.replicas.all_mut().for_each(drop);
        let gone: Vec<NodeId> = before.into_iter().filter(|node| self.peer_of(*node).is_none()).collect();
        for node in gone {
            for replica in self.replicas.all_mut() {
                replica.ownership.handle(desks.now, ownership::Event::NoLink(node));
            }
        }
        // Who is not known by now waits for its time to be over: each has had the registry read once.
        let strangers = std::mem::take(&mut self.strangers);
        for (until, arrival) in strangers {
            match self.peer_that_calls(&arrival) {
                Some(_) => self.arrivals.push(arrival),
                None => self.strangers.push((until, arrival)),
            }
        }
        self.let_in(desks);
    }

    fn begin_peer(&mut self, desks: &mut Desks<'_>, PeerNode { node, name, pairs }: PeerNode) {
        let config = LinkConfig {
            identity: self.identity_of_new_link(),
            peer: name,
            peer_node: Some(node),
            lane: 0,
            pairs: pairs.clone(),
            security: self.security.clone(),
            token: self.free_token(),
            bytes_max: LINK_BYTES_MAX,
            compression: self.compression,
            multipath: self.multipath,
        };
        let name = config.peer.clone();
        let link = match Link::new(config, desks.now) {
            Ok(link) => link,
            Err(why) => return log::say!(Warning, "there is no link to {name}: {why}"),
        };
        self.peers.push(Peer { node, pairs, former: Vec::new(), link, was_up: false });
        if !self.is_linked(node) {
            for replica in self.replicas.all_mut() {
                replica.ownership.handle(desks.now, ownership::Event::Link(node, false));
            }
        }
    }

    /// Where the peer is said to be now.
    fn follow_peer(&mut self, desks: &mut Desks<'_>, at: usize, listed: &[PeerNode]) {
        let peer = &mut self.peers[at];
        let is_it = |entry: &&PeerNode| entry.node == peer.node && entry.name == *peer.link.peer();
        let Some(entry) = listed.iter().find(is_it) else { return };
        if entry.pairs.is_empty() || entry.pairs == peer.pairs {
            return;
        }
        let mut desk = Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
        match peer.link.set_pairs(desks.reactor, &mut desk, entry.pairs.clone(), desks.now) {
            Ok(()) => {
                peer.former = still_reached(peer, &entry.pairs);
                peer.pairs.clone_from(&entry.pairs);
            }
            Err(why) => log::say!(Warning, "the link to {} stays as it is: {why}", peer.link.peer()),
        }
    }

    /// A link begins with nothing and has a session of its own, also where there was one to the same node before: else the other end takes
    /// its first messages for those that it has had, and drops them.
    fn identity_of_new_link(&self) -> Arc<Identity> {
        let session = self.identity.session.wrapping_add(u64::from(self.links_made));
        Arc::new(Identity { session, ..Identity::clone(&self.identity) })
    }

    /// The next one that no link has.
    fn free_token(&mut self) -> u64 {
        loop {
            let token = LINK + u64::from(self.links_made % PLACES) * CHANNELS_MAX as u64;
            self.links_made = self.links_made.wrapping_add(1);
            if !self.peers.iter().any(|peer| peer.link.has_token(token)) {
                return token;
            }
        }
    }

    fn end_peer(&mut self, desks: &mut Desks<'_>, at: usize) {
        let peer = &mut self.peers[at];
        let mut desk = Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
        peer.link.close(desks.reactor, &mut desk, desks.now);
        self.poll_link(desks, at);
        self.peers.remove(at);
    }

    pub(super) fn poll_links(&mut self, desks: &mut Desks<'_>) {
        (0..self.peers.len()).for_each(|at| self.poll_link(desks, at));
    }

    fn poll_link(&mut self, desks: &mut Desks<'_>, at: usize) {
        let now = desks.now;
        while let Some(event) = self.peers[at].link.take_event() {
            let node = self.peers[at].node;
            match event {
                // Not of one that only claims its number.
                LinkEvent::Interrupted if self.is_linked(node) && !self.peers[at].link.is_up() => {}
                LinkEvent::Interrupted => {
                    for &key in self.keys.values() {
                        if let Some(slot) = desks.volumes[key].as_mut() {
                            slot.volume.handle(now, Event::Interrupted(node));
                            self.touched.push(key);
                        }
                    }
                }
                LinkEvent::Up { address, .. } => {
                    log::say!(Notice, "link to {}: the channel with {address} is up", self.peers[at].link.peer());
                }
                LinkEvent::Down { why, .. } => log::say!(Error, "link to {}: {why}", self.peers[at].link.peer()),
                LinkEvent::Left { address, .. } => log::say!(
                    Notice,
                    "link to {}: its channel with {address} is given up, because that is its address no more",
                    self.peers[at].link.peer()
                ),
            }
        }
        while let Some(token) = self.peers[at].link.take_released() {
            let (key, op) = self.sends.remove(token as usize);
            if let Some(slot) = desks.volumes.get_mut(key).and_then(Option::as_mut) {
                slot.volume.handle(now, Event::Done { op, outcome: Outcome::Ok });
                self.touched.push(key);
            }
        }
        let (node, up) = (self.peers[at].node, self.peers[at].link.is_up());
        if up != std::mem::replace(&mut self.peers[at].was_up, up) {
            // Also where another one of the same number is up: it is where a volume is said to be from now on.
            let is_news = up || !self.is_linked(node);
            for replica in self.replicas.all_mut() {
                if is_news {
                    replica.ownership.handle(now, ownership::Event::Link(node, up));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, node: u64) -> PeerNode {
        let pair = AddressPair { own: "10.0.0.1".parse().unwrap(), peer: "10.0.0.2:7071".parse().unwrap() };
        PeerNode { node: NodeId(node), name: NodeName::new(name).unwrap(), pairs: vec![pair] }
    }

    /// Names of the peers that there are after a look, with those that are up.
    fn after(had: &[(PeerNode, bool)], listed: &[PeerNode], recorded: &[u64]) -> Vec<String> {
        let as_had = |(peer, up): &'_ (PeerNode, bool)| (peer.clone(), *up);
        let owned: Vec<(PeerNode, bool)> = had.iter().map(as_had).collect();
        let had: Vec<Had<'_>> =
            owned.iter().map(|(peer, up)| Had { node: peer.node, name: &peer.name, up: *up }).collect();
        let recorded = recorded.iter().map(|node| NodeId(*node)).collect();
        let (stays, new) = choose(&had, listed, &recorded);
        let kept = owned.iter().zip(stays).filter(|(_, stays)| *stays).map(|((peer, _), _)| peer);
        let said = |peer: &PeerNode| format!("{}@{}", peer.name.as_str(), peer.node.0);
        kept.chain(new.into_iter().map(|at| &listed[at])).map(said).collect()
    }

    #[test]
    fn who_is_in_no_list_and_in_no_record_is_no_peer_any_more() {
        let had = [(entry("beta", 2), true), (entry("gamma", 3), false), (entry("mallory", 9), false)];
        assert_eq!(after(&had, &[entry("delta", 4)], &[]), ["beta@2", "delta@4"], "who is linked is a node");
        assert_eq!(after(&had, &[], &[3]), ["beta@2", "gamma@3"], "a member stays one whatever the registry says");
        assert_eq!(after(&had, &[entry("mallory", 9)], &[]), ["beta@2", "mallory@9"]);
    }

    #[test]
    fn a_wrong_number_is_no_peer_once_the_right_one_is_there() {
        let wrong = [(entry("beta", 0xaa), false)];
        assert_eq!(after(&wrong, &[entry("beta", 2)], &[2]), ["beta@2"]);
        // Two of one name, or one number: each may turn out to be the one.
        assert_eq!(after(&wrong, &[entry("beta", 2), entry("beta", 0xaa)], &[]), ["beta@170", "beta@2"]);
        assert_eq!(after(&[], &[entry("ada", 2), entry("beta", 2), entry("beta", 2)], &[]), ["ada@2", "beta@2"]);
        // Names that come and go with a member's number are not kept in its place.
        let claimed = [(entry("beta", 2), true), (entry("ada", 2), false), (entry("eve", 2), false)];
        assert_eq!(after(&claimed, &[], &[2]), ["beta@2"]);
        let down = [(entry("beta", 2), false), (entry("ada", 2), false)];
        assert_eq!(after(&down, &[], &[2]), ["beta@2"]);
    }

    #[test]
    fn a_peer_with_other_addresses_is_the_same_one() {
        let mut moved = entry("beta", 2);
        moved.pairs[0].peer.set_port(9);
        for up in [true, false] {
            let had = entry("beta", 2);
            let seen = Had { node: had.node, name: &had.name, up };
            let (stays, new) = choose(&[seen], std::slice::from_ref(&moved), &BTreeSet::from([NodeId(2)]));
            assert_eq!((stays[0], new.is_empty()), (true, true), "its link follows");
        }
    }

    #[test]
    fn there_are_no_more_peers_than_can_be() {
        let invented: Vec<PeerNode> = (0..600).map(|n| entry(&format!("a{n}"), 1000 + n)).collect();
        let mut had = vec![(entry("beta", 2), true), (entry("gamma", 3), false)];
        had.extend(invented.iter().take(300).map(|peer| (peer.clone(), false)));
        let mut listed = invented.clone();
        listed.push(entry("gamma", 3));
        listed.push(entry("zeta", 7));
        let chosen = after(&had, &listed, &[3, 7]);
        assert_eq!(chosen.len(), PEERS_MAX);
        for needed in ["beta@2", "gamma@3", "zeta@7"] {
            assert!(chosen.iter().any(|name| name == needed), "{needed} is needed");
        }
    }
}
