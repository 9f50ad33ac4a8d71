//! What a node sees of its ends of a link.

use super::probe::probe;
use super::{End, Interface, Looked, Pair, Probe, Tcp};
use forebay_host::net::ends::{Ends, Port, Session, Way};
use forebay_host::net::{Address, ends};
use forebay_host::system::{Seen, System};
use forebay_host::topology;
use forebay_host::topology::Topology;
use std::collections::BTreeSet;

/// Looks at the living host. Takes as long as the slowest probe: some seconds where packets are lost.
pub fn look(pairs: &[Pair]) -> Looked {
    let asked = Ends::ask();
    let mut hidden = Vec::new();
    let ports: Vec<Port> =
        take(&mut hidden, asked.ports.as_ref()).into_iter().flat_map(|all| all.values().cloned()).collect();
    let addresses = take(&mut hidden, asked.addresses.as_ref()).cloned().unwrap_or_default();
    let ways: Vec<Option<Way>> = pairs.iter().map(|pair| take(&mut hidden, asked.way(pair.own, pair.peer))).collect();
    let probes = probes(pairs, &ways, &ports);
    // Now, as the probes have had them looked for.
    let neighbours = take(&mut hidden, asked.neighbours()).unwrap_or_default();
    let sessions = take(&mut hidden, ends::sessions()).unwrap_or_default();
    let end = |((pair, way), probe): ((&Pair, &Option<Way>), Probe)| {
        let address = addresses.iter().find(|address| address.address == pair.own);
        let next_to = |way: &&Way| way.via.is_none();
        let neighbour = way.as_ref().filter(next_to).and_then(|way| {
            neighbours.iter().find(|known| known.interface == way.interface && known.address == pair.peer)
        });
        End {
            pair: *pair,
            interface: address.map(|address| address.interface.clone()),
            prefix: address.map(|address| address.prefix),
            leaves_by: way.as_ref().map(|way| way.interface.clone()),
            via: way.as_ref().and_then(|way| way.via),
            neighbour: neighbour.map(|neighbour| neighbour.hardware.clone()),
            probe,
            tcp: tcp(pair, &sessions),
        }
    };
    let ends: Vec<End> = pairs.iter().zip(&ways).zip(probes).map(end).collect();
    let interfaces = interfaces(&topology::read(&System::live()), &ports, &addresses, &ends);
    hidden.dedup();
    Looked { interfaces, ends, hidden }
}

fn take<T>(hidden: &mut Vec<String>, seen: Seen<T>) -> Option<T> {
    match seen {
        Seen::Is(value) => Some(value),
        Seen::Absent => None,
        Seen::Hidden(why) => {
            hidden.push(why);
            None
        }
    }
}

/// All at one time: each waits for answers.
fn probes(pairs: &[Pair], ways: &[Option<Way>], ports: &[Port]) -> Vec<Probe> {
    let mtu = |way: &Option<Way>| {
        let way = way.as_ref()?;
        ports.iter().find(|port| port.name == way.interface).map(|port| port.mtu)
    };
    std::thread::scope(|scope| {
        let begin = |(pair, way): (&Pair, &Option<Way>)| {
            let (Pair { own, peer, .. }, mtu) = (*pair, mtu(way));
            mtu.map(|mtu| scope.spawn(move || probe(own, peer, mtu)))
        };
        let begun: Vec<_> = pairs.iter().zip(ways).map(begin).collect();
        let end = |(begun, pair): (Option<std::thread::ScopedJoinHandle<'_, Probe>>, &Pair)| match begun {
            Some(probing) => probing.join().expect("a probe does not panic"),
            None => Probe::NotSent { why: format!("no route leads from {} to {}", pair.own, pair.peer) },
        };
        begun.into_iter().zip(pairs).map(end).collect()
    })
}

/// Connections of a pair: of the one who calls to where the other one listens.
fn tcp(pair: &Pair, sessions: &[Session]) -> Option<Tcp> {
    let is_of_it = |session: &&Session| {
        let door = if pair.calls { session.peer } else { session.own };
        session.own.ip() == pair.own && session.peer.ip() == pair.peer && door.port() == pair.port
    };
    let of_it: Vec<&Session> = sessions.iter().filter(is_of_it).collect();
    Some(Tcp {
        connections: of_it.len() as u32,
        round_trip_us: of_it.iter().filter_map(|session| session.round_trip_us).min(),
        segments: of_it.iter().map(|session| session.segments).sum(),
        resent: of_it.iter().map(|session| session.resent).sum(),
        path_mtu: of_it.iter().map(|session| session.path_mtu).min()?,
    })
}

/// Those with an address for other hosts, and those of the ends.
fn interfaces(topology: &Topology, ports: &[Port], addresses: &[Address], ends: &[End]) -> Vec<Interface> {
    let named = ends.iter().flat_map(|end| [&end.interface, &end.leaves_by]).flatten();
    let with_address = addresses.iter().filter(|address| address.global).map(|address| &address.interface);
    let wanted: BTreeSet<&String> = named.chain(with_address).collect();
    let of = |port: &Port| {
        let nic = topology.nics.get(&port.name);
        let same_line = nic.into_iter().flat_map(|nic| topology.rdma_of(nic));
        Interface {
            name: port.name.clone(),
            mtu: port.mtu,
            hardware: port.hardware.clone(),
            speed_mbit: port.speed_mbit,
            full_duplex: port.full_duplex,
            // What a hypervisor's card, a pair, a bridge or a tap says is a number that somebody once wrote into its driver.
            is_line: topology.hypervisor.is_none() && matches!(port.kind.as_str(), "" | "bond" | "vlan"),
            rdma: same_line.map(|(name, port)| (name.clone(), port.state.clone())).collect(),
        }
    };
    ports.iter().filter(|port| wanted.contains(&port.name)).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use std::net::IpAddr;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_pair_of_the_own_host_is_seen_with_its_interface_and_way() {
        let own = at("127.0.0.1");
        let pair = Pair { own, peer: own, port: 1, calls: true };
        let looked = look(&[pair]);
        let end = &looked.ends[0];
        assert_eq!((end.interface.as_deref(), end.leaves_by.as_deref(), end.prefix), (Some("lo"), Some("lo"), Some(8)));
        assert!(matches!(end.probe, Probe::Carried { .. }), "{looked:?}");
        assert_eq!(end.tcp, None, "nobody listens there");
        let lo = looked.interface("lo").expect("the end names it");
        assert!(lo.mtu > 1000 && lo.rdma.is_empty(), "{lo:?}");
    }

    #[test]
    fn an_address_that_is_not_there_has_no_interface_and_sends_nothing() {
        let own = at("192.0.2.77");
        let looked = look(&[Pair { own, peer: at("127.0.0.1"), port: 1, calls: true }]);
        assert_eq!(looked.ends[0].interface, None);
        assert!(matches!(looked.ends[0].probe, Probe::NotSent { .. }), "{looked:?}");
    }

    #[test]
    fn connections_count_at_the_end_that_calls_and_at_the_one_that_is_called() {
        let session = |own: &str, peer: &str, resent| Session {
            own: own.parse().expect("an address"),
            peer: peer.parse().expect("an address"),
            round_trip_us: Some(80 + resent as u32),
            segments: 1000,
            resent,
            path_mtu: 9000 - resent as u32,
        };
        let all = [
            session("10.0.0.1:40000", "10.0.0.2:7071", 1),
            session("10.0.0.1:40001", "10.0.0.2:7071", 2),
            session("10.0.0.1:40002", "10.0.0.2:22", 3),
            session("10.0.0.1:7071", "10.0.0.2:40000", 4),
            session("10.0.1.1:40000", "10.0.1.2:7071", 5),
        ];
        let pair = Pair { own: at("10.0.0.1"), peer: at("10.0.0.2"), port: 7071, calls: true };
        let both = Tcp { connections: 2, round_trip_us: Some(81), segments: 2000, resent: 3, path_mtu: 8998 };
        assert_eq!(tcp(&pair, &all), Some(both));
        let called = tcp(&Pair { calls: false, ..pair }, &all).expect("one");
        assert_eq!((called.connections, called.resent), (1, 4));
        assert_eq!(tcp(&Pair { port: 80, ..pair }, &all), None);
    }

    fn port(name: &str, kind: &str) -> Port {
        Port {
            name: name.to_owned(),
            mtu: 1500,
            hardware: None,
            kind: kind.to_owned(),
            speed_mbit: Some(10_000),
            full_duplex: Some(true),
        }
    }

    #[test]
    fn of_two_interfaces_of_one_function_each_has_its_own_rdma_port() {
        const CARD: &str = "0000:06:00.0";
        let tree =
            Tree::new().node(0, "0", 1).pci(CARD, 0x020700, 0).nic("eth0", CARD, 10_000).nic("eth1", CARD, 10_000);
        let rate = "10 Gb/sec (1X QDR)";
        let tree = tree.rdma("mlx4_0", 1, CARD, rate, "1: DOWN", "Ethernet");
        let tree = tree.rdma("mlx4_0", 2, CARD, rate, "4: ACTIVE", "Ethernet");
        let tree = tree.file("/sys/class/net/eth0/dev_port", "0").file("/sys/class/net/eth1/dev_port", "1");
        let address =
            |name: &str| Address { interface: name.to_owned(), address: at("10.0.0.1"), prefix: 24, global: true };
        let (ports, addresses) = ([port("eth0", ""), port("eth1", "")], [address("eth0"), address("eth1")]);
        let all = interfaces(&topology::read(&tree.system()), &ports, &addresses, &[]);
        let rdma: Vec<_> = all.into_iter().map(|interface| interface.rdma.into_iter().collect::<Vec<_>>()).collect();
        let of = |name: &str, state: &str| vec![(name.to_owned(), state.to_owned())];
        assert_eq!(rdma, [of("mlx4_0/1", "DOWN"), of("mlx4_0/2", "ACTIVE")]);
    }

    #[test]
    fn speeds_of_virtual_interfaces_and_of_virtual_machines_are_no_lines() {
        let addresses: Vec<Address> = ["eth0", "veth0", "br0"]
            .map(|name| Address { interface: name.to_owned(), address: at("10.0.0.1"), prefix: 24, global: true })
            .into();
        let ports = [port("eth0", ""), port("veth0", "veth"), port("br0", "bridge"), port("idle0", "")];
        let lines = |tree: &Tree| {
            let all = interfaces(&topology::read(&tree.system()), &ports, &addresses, &[]);
            all.into_iter().map(|interface| (interface.name, interface.is_line)).collect::<Vec<_>>()
        };
        let of = |eth0| [("eth0".to_owned(), eth0), ("veth0".to_owned(), false), ("br0".to_owned(), false)];
        assert_eq!(lines(&Tree::new()), of(true));
        assert_eq!(lines(&Tree::new().virtual_machine()), of(false));
    }
}
