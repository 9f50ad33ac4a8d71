use super::super::{Looked, Pair};
use super::*;

fn pair(subnet: u8) -> Pair {
    let at = |host: u8| format!("10.0.{subnet}.{host}").parse().expect("an address");
    Pair { own: at(1), peer: at(2), port: 7071, calls: true }
}

fn mac(node: u8, subnet: u8) -> String {
    format!("02:00:00:00:{node:02x}:{subnet:02x}")
}

fn end(pair: Pair, there: u8, subnet: u8) -> End {
    let nic = format!("eth{subnet}");
    End {
        pair,
        interface: Some(nic.clone()),
        prefix: Some(24),
        leaves_by: Some(nic),
        via: None,
        neighbour: Some(mac(there, subnet)),
        probe: Probe::Carried { bytes: 9000 },
        tcp: Some(Tcp { connections: 1, round_trip_us: Some(80), segments: 1 << 20, resent: 3, path_mtu: 9000 }),
    }
}

fn interface(node: u8, subnet: u8) -> Interface {
    Interface {
        name: format!("eth{subnet}"),
        mtu: 9000,
        hardware: Some(mac(node, subnet)),
        speed_mbit: Some(25_000),
        full_duplex: Some(true),
        is_line: true,
        rdma: Vec::new(),
    }
}

fn side(node: &str) -> LinkEnd {
    let calls = node == "alpha";
    let (own, other) = if calls { (1, 2) } else { (2, 1) };
    let pair = |subnet| if calls { pair(subnet) } else { pair(subnet).seen_from_there() };
    let channel = |subnet: u8| Channel {
        own: calls.then_some(pair(subnet).own),
        peer: Some(pair(subnet).peer),
        up: true,
        multipath: false,
        why: None,
    };
    LinkEnd {
        node: node.to_owned(),
        program: "0.1.0".to_owned(),
        at_ms: 10_500,
        wants_multipath: false,
        channels: [0, 1].map(channel).into(),
        looked: Looked {
            interfaces: [0, 1].map(|subnet| interface(own, subnet)).into(),
            ends: [0, 1].map(|subnet| end(pair(subnet), other, subnet)).into(),
            hidden: Vec::new(),
        },
    }
}

/// Two channels of two subnets between two hosts that have nothing to complain of.
fn healthy() -> BothEnds {
    BothEnds {
        peer: "beta".to_owned(),
        here: side("alpha"),
        there: Some(side("beta")),
        silence: None,
        asked_ms: (10_000, 11_000),
    }
}

fn there(sides: &mut BothEnds) -> &mut LinkEnd {
    sides.there.as_mut().expect("it answered")
}

/// Ids of what is found, worst first.
fn found(sides: &BothEnds) -> Vec<String> {
    compare(sides, Language::En).report.findings.into_iter().map(|said| said.finding.id).collect()
}

#[track_caller]
fn only(sides: &BothEnds) -> Said {
    let mut findings = compare(sides, Language::En).report.findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

/// The same, asked at the other node.
fn turned(sides: &BothEnds) -> BothEnds {
    let there = sides.there.clone().expect("it answered");
    BothEnds { peer: sides.here.node.clone(), here: there, there: Some(sides.here.clone()), ..sides.clone() }
}

#[test]
fn a_healthy_link_is_not_complained_of_from_either_end() {
    for sides in [healthy(), turned(&healthy())] {
        let compared = compare(&sides, Language::En);
        assert!(compared.report.findings.is_empty(), "{:#?}", compared.report.findings);
        assert!(compared.report.hidden.is_empty());
        let fine: Vec<&str> = compared.report.fine.iter().map(|fine| fine.says.as_str()).collect();
        assert_eq!(fine.len(), 2, "{fine:?}");
        assert!(fine[0].starts_with("packets of 9000 bytes arrive both ways"), "{fine:?}");
        assert!(
            compared.pairs.iter().all(|pair| pair.verdict == "good" && pair.path == "up, 0.080 ms"),
            "{compared:?}"
        );
        assert_eq!(compared.pairs[0].here.split(' ').nth(1), Some("eth0"));
        assert!(compared.pairs[0].there.ends_with("eth0 25 Gb/s MTU 9000"), "{compared:?}");
    }
}

fn shrunk() -> BothEnds {
    let mut sides = healthy();
    let beta = there(&mut sides);
    beta.looked.interfaces[1].mtu = 1400;
    beta.looked.ends[1].probe = Probe::Carried { bytes: 1400 };
    sides.here.looked.ends[1].probe = Probe::Lost { bytes: 9000, limit: None };
    sides
}

#[test]
fn an_end_that_takes_less_is_found_once_with_both_figures_and_the_probe() {
    for sides in [shrunk(), turned(&shrunk())] {
        let said = only(&sides);
        let (id, own) = (said.finding.id.clone(), sides.here.looked.ends[1].pair);
        assert_eq!(id, format!("peer-mtu/{}-{}", own.own, own.peer));
        assert_eq!((said.finding.check, said.finding.severity), (29, Severity::Error));
        assert!(said.says.contains("9000") && said.says.contains("1400"), "{}", said.says);
        let shown: Vec<String> =
            said.finding.evidence.iter().map(|shown| format!("{} {}", shown.source, shown.value)).collect();
        assert_eq!(shown[0], "alpha: ip link show dev eth1 mtu 9000");
        assert_eq!(shown[1], "beta: ip link show dev eth1 mtu 1400");
        assert!(shown[2].starts_with("alpha: UDP 10.0.1.1 > 10.0.1.2") && shown[2].contains("no answer"), "{shown:?}");
        let verdicts: Vec<String> = compare(&sides, Language::En).pairs.into_iter().map(|pair| pair.verdict).collect();
        assert_eq!(verdicts, ["good", "ERROR"]);
    }
}

#[test]
fn a_smaller_end_that_nevertheless_took_it_all_is_a_warning() {
    let mut sides = shrunk();
    sides.here.looked.ends[1].probe = Probe::Carried { bytes: 9000 };
    assert_eq!(only(&sides).finding.severity, Severity::Warning);
    sides.here.looked.ends[1].probe = Probe::Silent;
    assert_eq!(only(&sides).finding.severity, Severity::Warning);
    assert_eq!(compare(&sides, Language::En).report.hidden.len(), 1, "that nobody answered is said");
}

#[test]
fn ends_behind_routers_may_differ() {
    let mut sides = shrunk();
    sides.here.looked.ends[1].probe = Probe::Lost { bytes: 9000, limit: Some(1400) };
    let router = Some("10.0.1.254".parse().expect("an address"));
    sides.here.looked.ends[1].via = router;
    there(&mut sides).looked.ends[1].via = router;
    let said = only(&sides);
    assert_eq!((said.finding.id.as_str(), said.finding.severity), ("peer-path/10.0.1.1-10.0.1.2", Severity::Note));
    assert!(said.says.contains("1400"), "{}", said.says);
}

#[test]
fn a_switch_that_takes_less_than_both_ends_is_found_in_each_direction() {
    let mut sides = healthy();
    sides.here.looked.ends[0].probe = Probe::Lost { bytes: 9000, limit: None };
    there(&mut sides).looked.ends[0].probe = Probe::Lost { bytes: 9000, limit: None };
    assert_eq!(found(&sides), ["peer-path/10.0.0.1-10.0.0.2", "peer-path/10.0.0.2-10.0.0.1"]);
    let said = compare(&sides, Language::En).report.findings.remove(0);
    assert_eq!(said.finding.severity, Severity::Error);
    assert!(said.finding.evidence.iter().any(|shown| shown.value == "pmtu:9000"), "{:?}", said.finding.evidence);
}

#[test]
fn the_slower_of_two_lines_bounds_the_pair_and_numbers_of_virtual_interfaces_do_not() {
    let mut sides = healthy();
    there(&mut sides).looked.interfaces[0].speed_mbit = Some(10_000);
    for sides in [sides.clone(), turned(&sides)] {
        let said = only(&sides);
        assert!(said.says.starts_with("eth0 of beta (10.0.0.2) is a line of 10 Gb/s"), "{}", said.says);
        let number = said.finding.number.expect("it has one");
        assert_eq!((number.is, number.could_be), (1.25e9, 3.125e9));
        assert_eq!(said.finding.evidence[0].value, "Speed: 10000Mb/s");
    }
    there(&mut sides).looked.interfaces[0].is_line = false;
    assert!(found(&sides).is_empty());
    there(&mut sides).looked.interfaces[0] = Interface { speed_mbit: None, ..interface(2, 0) };
    assert!(found(&sides).is_empty(), "a driver that does not tell");
}

#[test]
fn half_duplex_is_found_at_either_end_of_a_line() {
    let mut sides = healthy();
    there(&mut sides).looked.interfaces[1].full_duplex = Some(false);
    let said = only(&sides);
    assert_eq!((said.finding.id.as_str(), said.finding.severity), ("peer-duplex/10.0.1.2-10.0.1.1", Severity::Error));
    there(&mut sides).looked.interfaces[1].is_line = false;
    assert!(found(&sides).is_empty());
}

#[test]
fn ends_that_disagree_who_is_near_are_found_and_addresses_by_themselves_are_not() {
    let with = |here: u8, there_prefix: u8, address: &str| {
        let mut sides = healthy();
        let peer = address.parse().expect("an address");
        sides.here.looked.ends[0].pair.peer = peer;
        sides.here.looked.ends[0].prefix = Some(here);
        let beta = there(&mut sides);
        beta.looked.ends[0].pair.own = peer;
        beta.looked.ends[0].prefix = Some(there_prefix);
        sides
    };
    let one_way = only(&with(24, 16, "10.0.5.2"));
    assert_eq!(one_way.finding.severity, Severity::Warning);
    assert!(one_way.says.contains("10.0.0.1/24") && one_way.says.contains("10.0.5.2/16"), "{}", one_way.says);
    assert_eq!(only(&with(24, 16, "10.0.0.2")).finding.severity, Severity::Note);
    assert!(found(&with(24, 32, "10.0.0.2")).is_empty(), "clouds give such");
    assert!(found(&with(24, 25, "10.9.0.2")).is_empty(), "both by a router");
}

#[test]
fn two_channels_that_leave_by_one_interface_are_found() {
    let mut sides = healthy();
    sides.here.looked.ends[1].leaves_by = Some("eth0".to_owned());
    let said = only(&sides);
    assert_eq!(said.finding.id, "peer-way/alpha/10.0.1.1");
    assert_eq!(said.finding.evidence[1].source, "alpha: ip route get 10.0.1.2 from 10.0.1.1");
    assert_eq!(said.finding.evidence[1].value, "dev eth0");
    sides.here.looked.ends[1].via = Some("10.0.0.254".parse().expect("an address"));
    assert!(!found(&sides).contains(&"peer-way/alpha/10.0.1.1".to_owned()), "routers may share the load");
    sides.here.looked.ends[1].via = None;
    sides.here.looked.ends[1].interface = Some("lo".to_owned());
    assert!(found(&sides).is_empty(), "an address of the host itself leaves by what leads out");
    sides.here.looked.ends[1].interface = Some("eth1".to_owned());
    sides.here.looked.ends[1].leaves_by = Some("bond0".to_owned());
    assert!(found(&sides).is_empty(), "no other channel goes there");
}

#[test]
fn packets_that_arrive_at_another_interface_are_found_by_the_hardware_that_answered() {
    let mut sides = healthy();
    sides.here.looked.ends[1].neighbour = Some(mac(2, 0));
    let said = only(&sides);
    assert_eq!((said.finding.id.as_str(), said.finding.check), ("peer-arrives/10.0.1.1-10.0.1.2", 34));
    assert!(said.says.contains("arrives at eth0 of beta, although eth1"), "{}", said.says);
    sides.here.looked.ends[1].neighbour = Some(mac(9, 9));
    assert!(found(&sides).is_empty(), "hardware that is nobody's says nothing");
    sides.here.looked.ends[1].neighbour = None;
    assert!(found(&sides).is_empty());
}

#[test]
fn a_channel_that_is_down_is_found_with_its_reason_also_from_the_end_that_does_not_call() {
    let mut sides = healthy();
    sides.here.channels[1] =
        Channel { up: false, why: Some("nobody listens there".to_owned()), ..sides.here.channels[1].clone() };
    // Who is called knows of none that is down.
    there(&mut sides).channels.truncate(1);
    for sides in [sides.clone(), turned(&sides)] {
        let said = only(&sides);
        assert_eq!(said.finding.severity, Severity::Warning);
        assert!(said.says.contains("nobody listens there") && said.says.contains("1 of 2"), "{}", said.says);
        assert!(said.finding.evidence[0].source.starts_with("alpha: forebay node list"), "{said:?}");
    }
    sides.here.channels[0].up = false;
    assert!(compare(&sides, Language::En).report.findings.iter().all(|said| said.finding.severity == Severity::Error));
}

#[test]
fn multipath_that_only_one_end_wants_is_told_and_what_both_have_is_not() {
    let mut sides = healthy();
    sides.here.wants_multipath = true;
    let said = compare(&sides, Language::En).report.findings.remove(0);
    assert!(said.says.starts_with("alpha wants Multipath TCP and beta does not"), "{}", said.says);
    let said = compare(&turned(&sides), Language::En).report.findings.remove(0);
    assert!(said.says.starts_with("alpha wants Multipath TCP and beta does not"), "{}", said.says);
    there(&mut sides).wants_multipath = true;
    assert!(compare(&sides, Language::En).report.findings[0].says.contains("both want"));
    for channel in &mut sides.here.channels {
        channel.multipath = true;
    }
    assert!(found(&sides).is_empty());
}

#[test]
fn segments_that_are_sent_again_count_from_a_thousandth_of_many() {
    let mut sides = healthy();
    let tcp = |segments, resent| Some(Tcp { connections: 1, round_trip_us: None, segments, resent, path_mtu: 9000 });
    there(&mut sides).looked.ends[0].tcp = tcp(20_000, 20);
    let said = only(&sides);
    assert!(said.says.starts_with("0.10 % of what beta sends from 10.0.0.2"), "{}", said.says);
    there(&mut sides).looked.ends[0].tcp = tcp(20_000, 19);
    assert!(found(&sides).is_empty());
    there(&mut sides).looked.ends[0].tcp = tcp(9_999, 5_000);
    assert!(found(&sides).is_empty(), "too few to say anything");
}

#[test]
fn clocks_differ_only_beyond_what_the_answer_took() {
    let with = |at_ms| {
        let mut sides = healthy();
        there(&mut sides).at_ms = at_ms;
        sides
    };
    for fine in [10_000, 11_000, 12_000, 9_000] {
        assert!(found(&with(fine)).is_empty(), "{fine}");
    }
    let said = only(&with(14_000));
    assert_eq!((said.finding.id.as_str(), said.finding.severity), ("peer-clock/beta", Severity::Note));
    assert!(said.says.contains("at least 3.0 s ahead"), "{}", said.says);
    assert!(only(&with(7_500)).says.contains("at least 2.5 s behind"));
}

#[test]
fn rdma_at_both_ends_is_told_and_is_no_fault_where_it_is_not() {
    let mut sides = healthy();
    let rdma = |state: &str| vec![("mlx5_0/1".to_owned(), state.to_owned())];
    sides.here.looked.interfaces[0].rdma = rdma("ACTIVE");
    let says = |sides: &BothEnds| {
        let compared = compare(sides, Language::En);
        assert!(compared.report.findings.is_empty());
        compared.report.fine.into_iter().map(|fine| fine.says).collect::<Vec<_>>().join("\n")
    };
    assert!(says(&sides).contains("only alpha has an RDMA port in use"));
    there(&mut sides).looked.interfaces[0].rdma = rdma("DOWN");
    assert!(says(&sides).contains("only alpha"));
    there(&mut sides).looked.interfaces[0].rdma = rdma("ACTIVE");
    assert!(says(&sides).contains("both ends of 10.0.0.1 - 10.0.0.2"));
    assert!(compare(&sides, Language::En).pairs[0].path.ends_with("RDMA"));
}

fn alone(silence: Silence) -> BothEnds {
    let mut sides = BothEnds { there: None, silence: Some(silence), ..healthy() };
    for end in &mut sides.here.looked.ends {
        end.probe = Probe::Silent;
    }
    sides
}

#[test]
fn a_node_that_is_gone_is_one_finding_with_its_time_and_this_side_is_shown() {
    let down_since = Some("2026-11-22T13:00:00.000Z".to_owned());
    let mut sides = alone(Silence::NoAnswer { waited_s: 12, linked: false, down_since });
    for channel in &mut sides.here.channels {
        (channel.up, channel.why) = (false, Some("no route".to_owned()));
    }
    let said = only(&sides);
    assert_eq!((said.finding.id.as_str(), said.finding.severity), ("peer-silent/beta", Severity::Error));
    assert!(said.says.contains("down since 2026-11-22T13:00:00.000Z"), "{}", said.says);
    assert_eq!(said.finding.evidence.len(), 3);
    let compared = compare(&sides, Language::En);
    assert!(compared.report.hidden.is_empty(), "that nobody answers is said: {:?}", compared.report.hidden);
    assert_eq!(compared.pairs[0].verdict, "seen from here alone");
    assert_eq!((compared.pairs[0].there.as_str(), compared.pairs[0].path.as_str()), ("10.0.0.2", "down, 0.080 ms"));
    let text = compared.text(&sides, Language::Ko);
    assert!(text.contains("10.0.1.1 eth1 25 Gb/s MTU 9000"), "{text}");
}

#[test]
fn a_node_whose_machine_answers_is_not_said_to_be_off() {
    for down_since in [None, Some("2026-11-22T13:00:00.000Z".to_owned())] {
        let mut sides = alone(Silence::NoAnswer { waited_s: 12, linked: false, down_since });
        assert!(only(&sides).says.contains("it is off"));
        sides.here.looked.ends[1].probe = Probe::Carried { bytes: 9000 };
        let says = only(&sides).says;
        assert!(says.contains("its machine answers packets") && !says.contains("it is off"), "{says}");
    }
}

#[test]
fn a_node_that_is_linked_and_does_not_answer_hangs_or_has_no_coordinator() {
    let said = only(&alone(Silence::NoAnswer { waited_s: 25, linked: true, down_since: None }));
    assert!(said.says.contains("although channels to it work"), "{}", said.says);
}

#[test]
fn an_older_node_and_one_that_could_not_look_are_not_seen_and_no_finding() {
    let hidden = |silence| {
        let compared = compare(&alone(silence), Language::En);
        assert!(compared.report.findings.is_empty());
        compared.report.hidden.into_iter().map(|hidden| format!("{} {}", hidden.what, hidden.how)).next()
    };
    assert!(hidden(Silence::Older).is_some_and(|words| words.contains("older") && words.contains("upgrade beta")));
    let failed = hidden(Silence::Failed { why: "it could not look: no".to_owned() });
    assert!(failed.is_some_and(|words| words.contains("could not look: no")));
}

#[test]
fn what_a_side_could_not_ask_is_said() {
    let mut sides = healthy();
    there(&mut sides).looked.hidden.push("ask the kernel for neighbours: no".to_owned());
    let compared = compare(&sides, Language::En);
    assert_eq!(compared.report.hidden[0].what, "beta: ask the kernel for neighbours: no");
    assert!(compared.report.findings.is_empty());
}
