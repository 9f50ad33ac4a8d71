//! Clients while ownership moves: who serves them, where they go when it changes, and which nodes forward for theirs.
//!
//! Invariants (the rules named F are those of `docs/protocol.md`):
//! - A node that forwards has one connection to a volume. The one before is closed before the new one is let in: what it had
//!   handed in keeps its place in the log, and nothing of it comes later (F1).
//! - All connections of nodes that forward end with the term (F2). Clients of this node are moved, not ended.

use super::*;
use crate::datapath::seats::Seat;
use crate::log;
use forebay_core::roles::Client;
use forebay_core::wire::{Entered, Rejection};
use forebay_front::nbd::handshake::{ExportInfo, Negotiated};
use forebay_front::nbd::proto::{ContextSet, Framing};
use forebay_io::link::Arrival;
use rustls::pki_types::CertificateDer;

/// The connection of a node that forwards to this one.
pub(super) struct Forwarding {
    /// Its number among the volume's clients.
    number: u32,
    /// The identity that the node has shown; none: the connection is plain.
    certificate: Option<CertificateDer<'static>>,
}

impl Driver {
    /// As which volume it is served here.
    pub fn serves(&self, volume: &[u8; 16]) -> Option<u32> {
        let replica = self.replicas.get(volume).filter(|replica| replica.serves.is_some())?;
        replica.key.map(|key| key as u32)
    }

    /// It is a volume of the cluster, and not, or not any more, served here as this one.
    pub fn is_elsewhere(&self, volume: &[u8; 16], key: u32) -> bool {
        self.replicas.get(volume).is_some() && self.serves(volume) != Some(key)
    }

    pub(super) fn serve(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16], term: Term) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        let Some(key) = replica.key else { return };
        let Some(slot) = desks.volumes[key].as_ref() else { return };
        replica.serves = Some(term);
        self.directory.put(Export {
            name: replica.name.clone(),
            size_bytes: slot.volume.size_bytes(),
            request_bytes_max: slot.volume.request_bytes_max(),
            place: ExportPlace::Shard { number: 0, key: VolumeKey(key as u32) },
        });
        self.addresses.serve(VolumeId(*volume), true);
        log::say!(Notice, volume(replica.name), "served here, in term {}", term.0);
    }

    /// From here on the next owner answers (T9).
    pub(super) fn end_sessions(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16]) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        replica.serves = None;
        let forwarders = std::mem::take(&mut replica.forwarders);
        log::say!(Notice, volume(replica.name), "this node is not its owner any more");
        let Some(slot) = replica.key.and_then(|key| desks.volumes[key].as_mut()) else {
            self.directory.remove(&replica.name);
            return self.addresses.serve(VolumeId(*volume), false);
        };
        self.directory.put(Export {
            name: replica.name.clone(),
            size_bytes: slot.volume.size_bytes(),
            request_bytes_max: slot.volume.request_bytes_max(),
            place: ExportPlace::Forwarder(VolumeId(*volume)),
        });
        for Forwarding { number, .. } in forwarders.into_values() {
            desks.clients.close(slot, desks.reactor, number, desks.now);
        }
        // An address that moves leaves this host at once: sessions over it would hear nothing more.
        if let Some(ip) = self.addresses.ip_of(VolumeId(*volume)) {
            desks.clients.close_all_at(slot, desks.reactor, ip, desks.now);
        }
        // Before a client of the former term, that its owner is another one: else it would come back at once.
        self.publish_route(volume);
        let slot = self.keys.get(volume).and_then(|key| desks.volumes[*key].as_mut());
        let moved = slot.map(|slot| desks.clients.pack_all_of(slot, desks.reactor, desks.now));
        for (client, seat) in moved.into_iter().flatten() {
            let (volume, client) = (VolumeId(*volume), Box::new(client));
            self.forwarder.send(forward::ToForwarder::Client { volume, client, seat });
        }
        // After them: what tells the clients comes from that address.
        self.addresses.serve(VolumeId(*volume), false);
    }

    /// Tells those who forward when the owner is another one.
    pub(super) fn publish_route(&mut self, volume: &[u8; 16]) {
        let owner = self.replicas.get(volume).and_then(|replica| replica.ownership.owner());
        let (term, size_bytes) = owner.map_or((Term(0), 0), |(term, _, size_bytes)| (term, size_bytes));
        let peer = owner.and_then(|(_, node, _)| self.peer_of(node)).map(|at| &self.peers[at]);
        let Some(replica) = self.replicas.in_hand(volume) else { return };
        let same_peer = |who: &forward::Who| match (who, peer) {
            (forward::Who::There { node, name, pairs }, Some(peer)) => {
                *node == peer.node && name == peer.link.peer() && pairs.iter().eq(peer.ways())
            }
            (forward::Who::Nobody, None) => true,
            (forward::Who::There { .. } | forward::Who::Nobody | forward::Who::Here(_), _) => false,
        };
        let told = &replica.route;
        let route = match (replica.serves, replica.key) {
            (Some(term), Some(key)) => {
                let who = forward::Who::Here(VolumeKey(key as u32));
                forward::Route { term, who, size_bytes }
            }
            // Looked at in each round: the usual case makes nothing.
            (_, _) if (told.term, told.size_bytes) == (term, size_bytes) && same_peer(&told.who) => return,
            (_, _) => {
                let there = |peer: &Peer| {
                    let (node, name, pairs) = (peer.node, peer.link.peer().clone(), peer.ways().copied().collect());
                    forward::Who::There { node, name, pairs }
                };
                forward::Route { term, who: peer.map_or(forward::Who::Nobody, there), size_bytes }
            }
        };
        if replica.route != route {
            replica.route = route.clone();
            self.forwarder.send(forward::ToForwarder::Route { volume: VolumeId(*volume), route });
        }
    }

    /// A node has requests of its clients for a volume.
    pub(super) fn let_forwarder_in(&mut self, desks: &mut Desks<'_>, arrival: Arrival, volume: [u8; 16]) {
        let node = arrival.node();
        if self.peer_that_calls(&arrival).is_none() {
            // The registry is read, and the node calls again.
            let _ = self.control.send(Asked::UnknownNode);
            return arrival.refuse(Rejection::UnknownNode);
        }
        let served = self.replicas.get_mut(&volume).and_then(|replica| Some((replica.serves?, replica.key?, replica)));
        let Some((term, key, replica)) = served else { return arrival.refuse(Rejection::NotServed) };
        let Some(slot) = desks.volumes[key].as_mut() else { return arrival.refuse(Rejection::NotServed) };
        if let Some(former) = replica.forwarders.remove(&node) {
            desks.clients.close(slot, desks.reactor, former.number, desks.now);
        }
        let (size_bytes, request_bytes_max) = (slot.volume.size_bytes(), slot.volume.request_bytes_max());
        let (name, certificate) = (arrival.name().clone(), arrival.certificate());
        let channel = match arrival.enter(&self.identity, Entered { term, size_bytes, request_bytes_max }) {
            Ok(channel) => channel,
            Err(why) => return log::say!(Error, volume(replica.name), "{name} was not let in: {why}"),
        };
        let export = ExportInfo {
            name: replica.name.clone(),
            size_bytes,
            description: String::new(),
            read_only: false,
            request_bytes_max,
        };
        let (framing, contexts) = (Framing::Extended, ContextSet::default());
        // It has asked on whose lists its clients are.
        let client = Client::Local;
        let negotiated = Negotiated { client, export, framing, contexts, leftover: Vec::new() };
        let seat = Seat::of_node();
        let clients = &mut *desks.clients;
        let number = clients.connect(slot, key as u32, desks.reactor, channel, seat, negotiated, desks.now);
        replica.forwarders.extend(number.map(|number| (node, Forwarding { number, certificate })));
        self.touched.push(key);
    }

    /// Identities of nodes were revoked: their links end, they forward nothing any more, and nothing is forwarded to them.
    pub(super) fn end_revoked(&mut self, desks: &mut Desks<'_>) {
        for at in 0..self.peers.len() {
            let peer = &mut self.peers[at];
            let mut desk = Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
            peer.link.end_revoked(desks.reactor, &mut desk, desks.now);
        }
        self.poll_links(desks);
        let identity = self.identity.clone();
        self.strangers.retain(|(_, arrival)| !arrival.is_refused_by(&identity));
        for replica in self.replicas.all_mut() {
            let is_refused = |forwarding: &mut Forwarding| {
                forwarding.certificate.as_ref().is_some_and(|certificate| identity.revoked.refuses(certificate))
            };
            let ended: Vec<Forwarding> = replica
                .forwarders
                .extract_if(.., |_, forwarding| is_refused(forwarding))
                .map(|(_, ended)| ended)
                .collect();
            let Some(key) = replica.key.filter(|_| !ended.is_empty()) else { continue };
            let Some(slot) = desks.volumes[key].as_mut() else { continue };
            for Forwarding { number, .. } in ended {
                desks.clients.close(slot, desks.reactor, number, desks.now);
            }
            self.touched.push(key);
        }
        self.forwarder.send(forward::ToForwarder::EndRevoked);
    }
}
