use super::*;
use alloc::vec;

const PRINT: [u8; 32] = [0xa5; 32];

fn certified(dns: &[&str], uris: &[&str]) -> Certified {
    Certified::new(dns.iter().copied(), uris.iter().copied(), PRINT)
}

fn with_role(role: Role) -> Certified {
    certified(&["host"], &[&role.uri()])
}

fn list(names: &[&str]) -> Vec<Name> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn each_role_comes_in_at_its_own_place_and_at_no_other() {
    use Standing::*;
    // Link, Nbd, Http.
    let expected = |claim| match claim {
        Claim::Role(Role::Node) => [Admitted, Refused, Refused],
        Claim::Role(Role::NbdServer | Role::HttpServer) => [Refused, Refused, Refused],
        Claim::Role(Role::NbdClient) => [Refused, Admitted, IfListed],
        Claim::Role(Role::Admin) => [Refused, Refused, IfListed],
        Claim::Nothing => [Admitted, IfListed, IfListed],
        Claim::Unclear => [Refused, Refused, Refused],
    };
    for claim in Role::ALL.map(Claim::Role).into_iter().chain([Claim::Nothing, Claim::Unclear]) {
        assert_eq!(Place::ALL.map(|place| standing(place, claim)), expected(claim), "{claim:?}");
    }
}

#[test]
fn a_listener_shows_its_own_role_or_none() {
    for (place, own) in [(Place::Link, Role::Node), (Place::Nbd, Role::NbdServer), (Place::Http, Role::HttpServer)] {
        for role in Role::ALL {
            assert_eq!(may_serve(place, Claim::Role(role)), role == own, "{place:?} {role:?}");
        }
        assert!(may_serve(place, Claim::Nothing) && !may_serve(place, Claim::Unclear));
    }
}

#[test]
fn what_says_no_single_known_role_is_unclear() {
    for role in Role::ALL {
        assert_eq!(with_role(role).claim(), Claim::Role(role));
        assert_eq!(Role::of_word(role.word()), Some(role));
    }
    for uris in [
        &["forebay:role:admin", "forebay:role:nbd-client"][..],
        &["forebay:role:admin", "forebay:role:admin"],
        &["forebay:role:root"],
        &["forebay:role:"],
        &["forebay:role:Admin"],
        &["FOREBAY:role:admin"],
        &["forebay:role:admin", "forebay:else"],
        &["forebay:"],
        &["forebay:role:admin "],
    ] {
        assert_eq!(certified(&[], uris).claim(), Claim::Unclear, "{uris:?}");
    }
    for uris in
        [&[][..], &["spiffe://lab/vm"], &["forebay"], &["x-forebay:role:admin"], &["https://forebay:role:admin"]]
    {
        assert_eq!(certified(&["a"], uris).claim(), Claim::Nothing, "{uris:?}");
    }
}

#[test]
fn more_names_than_anybody_needs_are_unclear_and_kept_nowhere() {
    let names: Vec<String> = (0..CERTIFICATE_NAMES_MAX).map(|n| alloc::format!("host-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(certified(&names, &[]).claim(), Claim::Nothing);
    let many = certified(&names, &["forebay:role:nbd-client"]);
    assert_eq!(many.claim(), Claim::Unclear);
    assert!(!many.is_in(&list(&["dns:host-0"])) && !many.is_in(&[Name::Sha256(PRINT)]));
}

#[test]
fn names_are_compared_whole_and_by_kind() {
    let vm = certified(&["VM1.lab", "*.lab"], &["spiffe://lab/vm1", "forebay:role:nbd-client"]);
    let print = Name::Sha256(PRINT).to_string();
    for yes in [
        "dns:vm1.lab",
        "dns:VM1.LAB",
        "uri:spiffe://lab/vm1",
        &print,
        &print.to_uppercase().replace("SHA256", "sha256"),
    ] {
        assert!(vm.is_in(&list(&["dns:other", yes])), "{yes}");
    }
    for no in ["dns:vm2.lab", "dns:vm1", "dns:lab", "uri:vm1.lab", "uri:spiffe://lab/vm", "uri:spiffe://LAB/vm1"] {
        assert!(!vm.is_in(&list(&[no])), "{no}");
    }
    assert!(!vm.is_in(&[]));
}

#[test]
fn a_list_takes_names_of_one_form_and_no_patterns() {
    for (text, why) in [
        ("vm1", NotAName::Kind),
        ("", NotAName::Kind),
        ("cn:vm1", NotAName::Kind),
        ("DNS:vm1", NotAName::Kind),
        ("dns:", NotAName::Dns),
        ("dns:*.lab", NotAName::Dns),
        ("dns:a b", NotAName::Dns),
        ("uri:", NotAName::Uri),
        ("uri:a,b", NotAName::Uri),
        ("uri:forebay:role:nbd-client", NotAName::Role),
        ("uri:Forebay:role:nbd-client", NotAName::Role),
        ("sha256:a5", NotAName::Sha256),
        ("sha256:zz", NotAName::Sha256),
    ] {
        assert_eq!(text.parse::<Name>(), Err(why), "{text}");
    }
    assert_eq!(alloc::format!("dns:{}", "a".repeat(254)).parse::<Name>(), Err(NotAName::Dns));
    for name in ["dns:vm1.lab", "uri:spiffe://lab/vm1", &Name::Sha256(PRINT).to_string()] {
        assert_eq!(name.parse::<Name>().unwrap().to_string(), name);
    }
}

#[test]
fn a_volume_is_for_who_is_listed_or_without_a_list_for_the_role() {
    let mine = list(&["dns:host"]);
    let others = list(&["dns:other"]);
    let (none, mine, others, nobody) = (None, Some(&mine[..]), Some(&others[..]), Some(&[][..]));
    let stranger = Client::Certified(certified(&["host"], &[]));
    let two = Client::Certified(certified(&["host"], &["forebay:role:nbd-client", "forebay:role:admin"]));
    // No list, listed, not listed, an empty list.
    for (client, expected) in [
        (Client::Local, [true, true, true, true]),
        (Client::Anonymous, [true, false, false, false]),
        (Client::Certified(with_role(Role::NbdClient)), [true, true, false, false]),
        (stranger, [false, true, false, false]),
        (two, [false; 4]),
        (Client::Certified(with_role(Role::Node)), [false; 4]),
        (Client::Certified(with_role(Role::NbdServer)), [false; 4]),
        (Client::Certified(with_role(Role::HttpServer)), [false; 4]),
        (Client::Certified(with_role(Role::Admin)), [false; 4]),
    ] {
        assert_eq!([none, mine, others, nobody].map(|list| client.may_use(list)), expected, "{client:?}");
    }
}

#[test]
fn by_http_only_who_is_listed_and_changes_only_who_may_be_an_admin() {
    let host = list(&["dns:host"]);
    let two = certified(&["host"], &["forebay:role:admin", "forebay:role:nbd-client"]);
    let (look, change) = (Some(HttpRight::Look), Some(HttpRight::Change));
    // Not listed, a reader, an administrator, both.
    for (certified, expected) in [
        (certified(&["host"], &[]), [None, look, change, change]),
        (with_role(Role::Admin), [None, look, change, change]),
        (with_role(Role::NbdClient), [None, look, None, look]),
        (with_role(Role::Node), [None; 4]),
        (with_role(Role::NbdServer), [None; 4]),
        (with_role(Role::HttpServer), [None; 4]),
        (two, [None; 4]),
    ] {
        let lists = [(vec![], vec![]), (vec![], host.clone()), (host.clone(), vec![]), (host.clone(), host.clone())];
        let given = lists.map(|(admins, readers)| http_right(&certified, &admins, &readers));
        assert_eq!(given, expected, "{certified:?}");
    }
}
