//! A writer of etcd is a stranger: whatever it puts under a key is a value that can be used without harm, or it is refused by its
//! key, and the values beside it are read as before.

use super::*;
use crate::coordinator::link_asks::{Ask, LinkEndSeen};
use crate::coordinator::requests::Nonce;
use crate::coordinator::store::{Operation, Transaction};
use forebay_api::checked::Hex64;
use forebay_host::seals::Seal;

/// Texts that somebody would try in the place of a string.
fn hostile_strings() -> Vec<String> {
    let long = |bytes: usize| "a".repeat(bytes);
    let plain = [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/shadow",
        "a/b",
        "-rf",
        "a b",
        "\u{1b}[2J",
        "a\nb",
        "\u{202e}",
        "\0",
        "ä",
        "vm1",
        "alpha",
        "/mnt/nas/a\u{7}b",
        "/mnt/nas/\u{202e}gmi.1mv",
        "nbd://",
        "faulty:",
        "relative/path",
        "0.0.0.0:0",
        "224.0.0.1:1",
        "10.0.0.1:7071",
        "ffffffffffffffff",
        "07070707-0707-0707-0707-070707070707",
        "memory",
        "needed",
    ];
    let long = [64, 80, 300, 5000, (1 << 20) + 1].map(long);
    plain.into_iter().map(str::to_owned).chain(long).collect()
}

const NUMBERS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "255",
    "4294967295",
    "1073741825",
    "9007199254740993",
    "18446744073709551615",
    "1e308",
    "null",
    "true",
    "[]",
];

/// Where values begin and end in a text that Forebay wrote: strings and numbers, keys left out.
fn values_in(text: &str) -> Vec<(usize, usize)> {
    let (bytes, mut at, mut found) = (text.as_bytes(), 0, Vec::new());
    while at < bytes.len() {
        let begin = at;
        match bytes[at] {
            b'"' => {
                at += 1 + text[at + 1..].find('"').expect("no escapes in these") + 1;
                if bytes.get(at) != Some(&b':') {
                    found.push((begin, at));
                }
            }
            b'0'..=b'9' => {
                while bytes[at].is_ascii_digit() {
                    at += 1;
                }
                found.push((begin, at));
            }
            _ => at += 1,
        }
    }
    found
}

/// The text with each of its values replaced by each hostile one, one at a time.
pub(super) fn hostile_texts(text: &str) -> Vec<String> {
    let strings = hostile_strings().into_iter().map(|hostile| serde_json::to_string(&hostile).unwrap());
    let hostile: Vec<String> = strings.chain(NUMBERS.map(str::to_owned)).collect();
    let each = |(begin, end): (usize, usize)| {
        let with = move |value: &String| format!("{}{value}{}", &text[..begin], &text[end..]);
        hostile.iter().map(with).collect::<Vec<_>>()
    };
    values_in(text).into_iter().flat_map(each).collect()
}

fn is_plain(name: &str, most: usize) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=most).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with(['.', '-'])
}

fn is_a_line(text: &str) -> bool {
    text.len() <= 4096 && !text.chars().any(char::is_control)
}

/// What code elsewhere does with a definition that was taken: none of it may leave a folder, overflow or ask for all memory.
fn is_harmless(definition: &Definition) -> bool {
    let seconds = definition.drain_max_s.checked_mul(1_000_000_000).is_some();
    let sizes = [definition.tier.size_bytes, definition.memory_bytes, definition.journal_bytes];
    let interface = definition.address.as_ref().and_then(|address| address.interface.as_ref());
    is_plain(&definition.name, 63)
        && seconds
        && sizes.iter().all(|bytes| bytes.div_ceil(4096) <= u64::from(u32::MAX))
        && is_a_line(&definition.backing)
        && forebay_io::backing::BackingSpec::parse(&definition.backing).is_ok()
        && interface.is_none_or(|name| name.len() < 16 && !name.contains('/'))
}

pub(super) fn whole_definition() -> Definition {
    use forebay_api::config::address::VirtualAddress;
    let address = VirtualAddress::new("10.0.0.50/24".parse().unwrap(), Some("eth0".into())).unwrap();
    Definition { address: Some(address), drain_max_s: 10, reserves: true, ..definition("vm1", VM1) }
}

#[test]
fn no_hostile_value_of_a_definition_reaches_a_path_or_a_sum() {
    let texts = hostile_texts(&whole_definition().encode());
    assert!(texts.len() > 400, "{}", texts.len());
    let taken: Vec<Definition> = texts.iter().filter_map(|text| Definition::decode(text).ok()).collect();
    assert!(taken.len() > 10 && taken.len() < texts.len() / 3, "{} of {}", taken.len(), texts.len());
    for definition in taken {
        assert!(is_harmless(&definition), "{definition:?}");
    }
    // Planted: without the limits the same texts bring one through.
    let unchecked = |text: &String| serde_json::from_str::<Definition>(text).is_ok_and(|taken| !is_harmless(&taken));
    assert!(texts.iter().any(unchecked), "these texts would show that the limits are gone");
}

#[test]
fn no_hostile_value_of_a_record_makes_a_number_overflow() {
    let unfenced = vec![forebay_core::cluster::Unfenced { term: Term(1), node: NodeId(9), host: host(9) }];
    let record = Record { unfenced, ..record(3, 1) };
    let mut taken = 0;
    for text in hostile_texts(&StoredRecord::Record(record).encode()) {
        let Ok(kept) = StoredRecord::decode(&text) else { continue };
        taken += 1;
        let (term, epoch) = kept.number();
        assert!(term.0.checked_add(1 << 20).is_some() && epoch.0.checked_add(1 << 20).is_some(), "{text}");
        let StoredRecord::Record(record) = kept else { continue };
        assert!(record.size_bytes >= 512 && record.validate().is_ok(), "{text}");
    }
    assert!(taken > 10);
}

#[test]
fn no_hostile_value_of_a_node_or_a_word_reaches_a_key_or_a_terminal() {
    let mut entry = NodeEntry::new(named("alpha"), NodeId(5), host(3));
    entry.addresses = vec!["10.0.0.1:7071".into()];
    let watchdog = WatchdogDefinition { identity: Line::of("i6300"), resets_within_ms: 80_000, proven_unix_s: Some(5) };
    entry.watchdog = Some(watchdog);
    for text in hostile_texts(&entry.encode()) {
        let Ok(entry) = NodeEntry::decode(&text) else { continue };
        assert!(is_plain(&entry.name, 63) && entry.fault_domain.len() < 64, "{text}");
        assert!(
            entry.addresses.iter().all(|at| at.parse::<std::net::SocketAddr>().is_ok_and(|at| at.port() != 0)),
            "{text}"
        );
        let watchdog = entry.watchdog.as_ref().expect("it is written");
        assert!(is_a_line(&watchdog.identity) && watchdog.resets_within_ms >= 15_000, "{text}");
        assert!(watchdog.resets_within_ms.checked_mul(1_000_000).is_some(), "{text}");
    }
    let told = OwnedVolume {
        volume: VM1,
        term: 1,
        effective: PolicyName::Back,
        reason: Code::of("as-requested"),
        since_s: 1,
        owner_reason: Code::of("none"),
        owner_since_s: 1,
        backing: Code::of("ready"),
        dirty_bytes: 5,
        lag: vec![(Hex64(5), 7)],
    };
    let told = OwnedVolumes { version: VERSION, name: named("alpha"), at_ms: 5, volumes: vec![told] };
    for text in hostile_texts(&told.encode()) {
        let Ok(told) = OwnedVolumes::decode(&text) else { continue };
        let shown =
            |told: &OwnedVolume| is_a_line(&told.reason) && is_a_line(&told.owner_reason) && is_a_line(&told.backing);
        assert!(is_plain(&told.name, 63) && told.volumes.iter().all(shown), "{text}");
    }
    let audit = audit(5, Some(VM1));
    for text in hostile_texts(&audit.line.encode()) {
        let Ok(line) = AuditLine::decode(&text) else { continue };
        assert!(is_plain(&line.node, 63) && is_a_line(&line.action) && is_a_line(&line.words), "{text}");
    }
}

/// The rest is only never a panic: what it says is checked where it is used, or shown in quotes.
#[test]
fn no_hostile_text_of_any_kind_is_a_panic() {
    let call = |wish| Call { version: VERSION, id: VM1, from: named("a"), volume: VM1, command: wish };
    let seen = LinkEndSeen { version: link_asks::VERSION, id: VM1, side: None, why: "no".into() };
    let ask = Ask { version: link_asks::VERSION, id: VM1, from: named("a"), pairs: vec![] };
    let texts = [
        call(OwnerCommand::Hold { seconds: 60 }).encode(),
        call(OwnerCommand::HandOver { to: named("b") }).encode(),
        call(OwnerCommand::Resize { size_bytes: 4096 }).encode(),
        Answered { version: VERSION, not_done: Some(NotDone::Failed), why: "no".into() }.encode(),
        ask.encode(),
        seen.encode(),
        Settings::default().encode(),
        ClusterIdentity::new("lab", LAB).encode(),
        Evacuation { version: VERSION, name: named("a"), at_ms: 1 }.encode(),
        load_of("a").encode(),
    ];
    for hostile in texts.iter().flat_map(|text| hostile_texts(text)) {
        let hold = |call: &Call| matches!(call.command, OwnerCommand::Hold { seconds } if seconds.checked_mul(1_000_000_000).is_none());
        assert!(!Call::decode(&hostile).is_ok_and(|call| hold(&call)), "{hostile}");
        let _ =
            (Answered::decode(&hostile), Ask::decode(&hostile), LinkEndSeen::decode(&hostile), Load::decode(&hostile));
        let _ = (Settings::decode(&hostile), ClusterIdentity::decode(&hostile), Evacuation::decode(&hostile));
    }
}

/// The text with some bytes changed, left out, doubled or moved, by what the seed says.
pub(super) fn changed_by_bytes(text: &str, seed: &mut u64) -> String {
    let mut below = |bound: usize| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as usize % bound
    };
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + below(4) {
        let (at, length) = (below(bytes.len()), below(8));
        let end = (at + length).min(bytes.len());
        match below(4) {
            0 => bytes[at] = b"0123456789\"{}[],:/.\\-eEnt \x00\x1b\xff"[below(29)],
            1 => drop(bytes.drain(at..end)),
            2 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
            _ => bytes[at] ^= 1 << below(8),
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Bytes changed, left out, doubled and moved, from a printed seed: what no list of hostile values has thought of.
#[test]
fn no_spoilt_text_is_a_panic_or_a_definition_that_does_harm() {
    let mut seed = 0x5eed_u64;
    let call =
        Call { version: VERSION, id: VM1, from: named("a"), volume: VM1, command: OwnerCommand::Hold { seconds: 60 } };
    let seal = r#"{"version":1,"certificate":"AAAA","signature":"AAAA"}"#.to_owned();
    let nonce = Nonce { version: VERSION, name: named("a"), nonce: VM1 }.encode();
    let texts = [whole_definition().encode(), kept(3, 1).encode(), call.encode(), load_of("a").encode(), seal, nonce];
    for round in 0..60_000 {
        let text = changed_by_bytes(&texts[round % texts.len()], &mut seed);
        assert!(!Definition::decode(&text).is_ok_and(|taken| !is_harmless(&taken)), "{text}");
        let _ = (
            StoredRecord::decode(&text),
            Call::decode(&text),
            Load::decode(&text),
            Seal::decode(&text),
            Nonce::decode(&text),
        );
        let _ =
            (NodeEntry::decode(&text), Settings::decode(&text), OwnedVolumes::decode(&text), AuditLine::decode(&text));
    }
}

pub(super) fn load_of(name: &str) -> Load {
    Load {
        version: VERSION,
        name: named(name),
        at_ms: 1,
        memory_free_bytes: 2,
        flash_free_bytes: 3,
        busy_percent: 4,
        owned: 5,
        held: 6,
        unreached: vec![VM1],
    }
}

/// Puts a value as a writer of the coordinator would who is no node.
pub(super) async fn put(stand: &Stand, key: &str, value: &str) {
    let put = Operation::Put { key: format!("/forebay/lab/{key}"), value: value.to_owned() };
    let transaction = Transaction { compare: vec![], then: vec![put], otherwise: vec![] };
    stand.store().transact(&transaction, None).await.expect("it takes any text");
}

/// One value that cannot be used takes no other with it, and is named until it is gone.
pub(super) fn one_hostile_value_hides_no_other(stand: &Stand) {
    let node = stand.joined("a");
    block_on(async {
        make(&node, &definition("vm1", VM1), &kept(1, 1)).await;
        let alpha = NodeEntry::new(named("alpha"), NodeId(1), host(1));
        assert_eq!(node.register(&alpha).await.unwrap(), Registered::Done);
        node.report(&load_of("alpha")).await.unwrap();
        let other = VolumeId([9; 16]);
        let long = definition("vm2", other).encode().replace("\"vm2\"", &format!("{:?}", "n".repeat(80)));
        put(stand, &format!("definition/{other}"), &long).await;
        put(stand, "definition/../../x", "{}").await;
        // A right one under the key of another.
        put(stand, &format!("definition/{}", VolumeId([8; 16])), &definition("vm1", VM1).encode()).await;
        put(stand, "node/beta", &alpha.encode()).await;
        put(stand, "load/beta", "\u{1b}[2J").await;
        put(stand, "leaving/alpha", "").await;
        assert_eq!(
            node.usable_definitions().await.unwrap(),
            (vec![definition("vm1", VM1)], false),
            "some are passed over"
        );
        assert_eq!(node.nodes().await.unwrap(), [alpha]);
        assert_eq!(node.loads().await.unwrap(), [load_of("alpha")]);
        assert_eq!(node.evacuations().await.unwrap(), []);
        let keys: Vec<String> = node.refused().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), 6, "{keys:?}");
        assert!(
            keys.contains(&"/forebay/lab/definition/../../x".to_owned())
                && keys.contains(&"/forebay/lab/node/beta".to_owned())
        );
        let missing = node.every_definition().await.expect_err("one of them may be anything").to_string();
        assert!(missing.contains("definition/") && missing.contains("remove the key"), "{missing}");
        for key in keys {
            let gone = Transaction { compare: vec![], then: vec![Operation::Delete(key)], otherwise: vec![] };
            stand.store().transact(&gone, None).await.unwrap();
        }
        assert_eq!(node.every_definition().await.unwrap().len(), 1);
        let _ = (node.nodes().await, node.loads().await, node.evacuations().await);
        assert_eq!(node.refused(), []);
    });
}
