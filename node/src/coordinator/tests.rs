//! One suite for every store: what is promised of etcd is promised of the map that stands for it in quick tests, and shown of both.

mod faults;
mod history;
mod hostile;
pub mod in_memory;
mod mutated;
mod rewound;

use forebay_api::config::FlushName;
use hostile::one_hostile_value_hides_no_other;
use in_memory::InMemory;

use super::ended_terms::EndedTerms;
use super::etcd::{Etcd, EtcdConfig};
use super::link_asks::{Ask, LinkEndSeen};
use forebay_api::checked::{Code, Line, VolumeName};

use super::memory::Memory;
use super::requests::{Nonce, Request};
use super::schema::*;
use super::store::Store;
use super::*;
use forebay_api::config::endpoint::Endpoint;

use forebay_api::config::{DestageName, PolicyName, TierName};
use forebay_core::cluster::{Epoch, Host, Incarnation, LogState, NodeId, Record};
use forebay_core::types::Term;
use forebay_host::seals::Seal;
use forebay_io::clock;
use forebay_tests::harness::TempDir;
use std::path::PathBuf;
use std::sync::Arc;

const LAB: VolumeId = VolumeId([0xab; 16]);
const VM1: VolumeId = VolumeId([1; 16]);

fn etcd(endpoints: &[String]) -> EtcdConfig {
    EtcdConfig {
        endpoints: endpoints.iter().map(|text| Endpoint::parse(text).unwrap()).collect(),
        tls: None,
        user: None,
        // Other tests load the machine, too: what is slow is not lost.
        answer_timeout: Duration::from_secs(20),
    }
}

fn coordinator(store: Store, state: &std::path::Path) -> Coordinator {
    Coordinator::new(store, ClusterIdentity::new("lab", LAB), Memory::open(state).unwrap())
}

fn named(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Asks until the coordinator has answered: of three members, one may lose its leader on a machine that is busy.
async fn sure<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> T {
    let begun = std::time::Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(Error::Unreachable(_)) if begun.elapsed() < Duration::from_secs(60) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Commits until it is decided (C2): the same again, with the same comparison.
async fn decide(node: &Coordinator, from: &StoredRecord, to: &StoredRecord) -> Outcome<StoredRecord> {
    loop {
        match sure(|| node.commit(VM1, from, to, None, None)).await {
            Outcome::Unknown(_) => {}
            Outcome::Lost(found) if found == *to => return Outcome::Won,
            decided => return decided,
        }
    }
}

/// A new volume, however often it takes to say so.
async fn make(node: &Coordinator, definition: &Definition, record: &StoredRecord) {
    while sure(|| node.create(definition, record)).await != Outcome::Won {}
}

/// A coordinator of either kind, and as many views of it as there are nodes.
struct Stand {
    folder: TempDir,
    kind: Kind,
}

enum Kind {
    InMemory(Arc<InMemory>),
    Etcd(forebay_tests::etcd::Etcd),
}

impl Stand {
    fn in_memory(name: &str) -> Stand {
        Stand { folder: TempDir::new(name), kind: Kind::InMemory(Arc::default()) }
    }

    fn etcd(name: &str, members: usize) -> Stand {
        let folder = TempDir::new(name);
        let etcd = forebay_tests::etcd::Etcd::start(&folder, members);
        Stand { folder, kind: Kind::Etcd(etcd) }
    }

    fn state(&self, node: &str) -> PathBuf {
        self.folder.join(node)
    }

    /// As this node sees it.
    fn node(&self, node: &str) -> Coordinator {
        coordinator(self.store(), &self.state(node))
    }

    fn store(&self) -> Store {
        match &self.kind {
            Kind::InMemory(all) => Store::InMemory(all.clone()),
            Kind::Etcd(running) => Store::Etcd(Etcd::new(&etcd(&running.endpoints())).unwrap()),
        }
    }

    fn joined(&self, node: &str) -> Coordinator {
        let coordinator = self.node(node);
        block_on(sure(|| coordinator.join()));
        coordinator
    }
}

fn record(term: u32, owner: u64) -> Record {
    let owner = NodeId(owner);
    Record {
        term: Term(term),
        epoch: Epoch(0),
        owner,
        host: host(1),
        members: vec![Incarnation { node: owner, tier: 1, life: 0 }],
        log: LogState::Needed,
        flushed: Default::default(),
        size_bytes: 1 << 30,
        unfenced: vec![],
    }
}

fn kept(term: u32, owner: u64) -> StoredRecord {
    StoredRecord::Record(record(term, owner))
}

fn released(term: u32) -> Record {
    Record { log: LogState::Released, members: vec![], ..record(term, 1) }
}

fn definition(name: &str, volume: VolumeId) -> Definition {
    Definition {
        version: VERSION,
        name: VolumeName::new(name).unwrap(),
        volume,
        backing: format!("/mnt/nas/{name}.img"),
        format_raw: false,
        policy: PolicyName::Back,
        peers: 1,
        min_peers: 1,
        tier: TierChoice { kind: TierName::Memory, size_bytes: 1 << 30 },
        flush: FlushName::Auto,
        memory_bytes: 64 << 20,
        destage: DestageName::Auto,
        journal_bytes: 0,
        drain_max_s: 0,
        address: None,
        reserves: false,
        common: Default::default(),
    }
}

fn audit(at_ms: u64, volume: Option<VolumeId>) -> Audit {
    let line = AuditLine {
        version: VERSION,
        at_ms,
        node: named("a"),
        volume,
        action: Code::of("test"),
        words: Line::of("said so"),
    };
    Audit::new(line).unwrap()
}

fn host(machine: u8) -> Host {
    Host { machine: [machine; 16], boot: [9; 16] }
}

// --- the suite ---

fn records_change_only_by_comparison(stand: &Stand) {
    let node = stand.joined("a");
    block_on(async {
        assert!(matches!(node.record(VM1).await, Err(Error::NoVolume(VM1))));
        assert_eq!(node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap(), Outcome::Won);
        assert_eq!(node.record(VM1).await.unwrap(), kept(1, 1));
        assert_eq!(node.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await.unwrap(), Outcome::Won);
        // The same again, and another with the same comparison: decided, and not done.
        assert_eq!(node.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await.unwrap(), Outcome::Lost(kept(2, 2)));
        assert_eq!(node.commit(VM1, &kept(1, 1), &kept(7, 3), None, None).await.unwrap(), Outcome::Lost(kept(2, 2)));
        // One field beside term and epoch is a difference, too.
        let other = StoredRecord::Record(Record { size_bytes: 512, ..record(2, 2) });
        assert_eq!(node.commit(VM1, &other, &kept(3, 3), None, None).await.unwrap(), Outcome::Lost(kept(2, 2)));
        assert_eq!(node.record(VM1).await.unwrap(), kept(2, 2));
    });
}

fn volumes_come_and_go(stand: &Stand) {
    let node = stand.joined("a");
    let other = stand.joined("b");
    let vm2 = VolumeId([2; 16]);
    block_on(async {
        let first = definition("vm1", VM1);
        assert_eq!(node.create(&first, &StoredRecord::Record(released(1))).await.unwrap(), Outcome::Won);
        assert_eq!(
            node.create(&first, &StoredRecord::Record(released(1))).await.unwrap(),
            Outcome::Won,
            "said twice, done once"
        );
        let taken = other.create(&definition("vm1", vm2), &kept(1, 1)).await.unwrap();
        assert_eq!(taken, Outcome::Lost(Occupied::Name(VM1.to_string())));
        let twin = other.create(&definition("vm3", VM1), &kept(1, 1)).await.unwrap();
        assert_eq!(twin, Outcome::Lost(Occupied::Identity));
        assert_eq!(other.definition(VM1).await.unwrap(), first);

        let more = Definition { peers: 2, ..first.clone() };
        assert_eq!(other.redefine(&first, &more, None).await.unwrap(), Outcome::Won);
        let late = Definition { policy: PolicyName::Through, ..first.clone() };
        assert_eq!(node.redefine(&first, &late, None).await.unwrap(), Outcome::Lost(more.clone()));
        assert_eq!(node.definitions().await.unwrap(), std::slice::from_ref(&more));

        assert_eq!(node.delete(&more, &released(1), None).await.unwrap(), Outcome::Won);
        let gone = StoredRecord::Deleted { term: Term(2), epoch: Epoch(0) };
        assert_eq!(node.record(VM1).await.unwrap(), gone);
        assert_eq!(other.record(VM1).await.unwrap(), gone);
        assert_eq!(other.delete(&more, &released(1), None).await.unwrap(), Outcome::Lost(gone));
        assert!(matches!(node.definition(VM1).await, Err(Error::NoVolume(VM1))));
        // The name is free again, the identity never.
        let again = other.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        assert_eq!(again, Outcome::Lost(Occupied::Identity));
        assert_eq!(other.create(&definition("vm1", vm2), &kept(1, 1)).await.unwrap(), Outcome::Won);
    });
}

/// One protocol for both kinds: `node` asks `b`.
async fn requests_are_answered_once<R: Request<Answer: Clone + PartialEq + fmt::Debug> + PartialEq + fmt::Debug>(
    node: &Coordinator,
    other: &Coordinator,
    request: impl Fn(u8) -> R,
    answer: &R::Answer,
) {
    let (a, b) = (named("a"), named("b"));
    let seal = Seal::decode(r#"{"version":1,"certificate":"c","signature":"s"}"#).unwrap();
    for id in [1, 2, 3] {
        assert_eq!(node.request(&b, &request(id), &seal).await.unwrap(), Outcome::Won);
    }
    assert_eq!(other.requests::<R>(&b).await.unwrap(), [request(1), request(2), request(3)]);
    assert_eq!(other.seal_of(&b, &request(1)).await.unwrap(), Some(seal.clone()));
    assert_eq!(node.requests::<R>(&a).await.unwrap(), []);
    assert_eq!(node.response(&b, &request(1)).await.unwrap(), None);
    assert_eq!(other.respond(&b, &request(1), answer, &seal).await.unwrap(), Outcome::Won);
    assert_eq!(other.respond(&b, &request(1), answer, &seal).await.unwrap(), Outcome::Lost(()));
    assert_eq!(node.response(&b, &request(1)).await.unwrap(), Some((answer.clone(), seal.clone())));
    for id in [1, 2] {
        assert_eq!(node.withdraw(&b, &request(id)).await.unwrap(), Outcome::Won);
    }
    assert_eq!(other.respond(&b, &request(2), answer, &seal).await.unwrap(), Outcome::Lost(()), "it was withdrawn");
    assert_eq!(node.response(&b, &request(2)).await.unwrap(), None);
    // Either end begins anew.
    assert_eq!(other.respond(&b, &request(3), answer, &seal).await.unwrap(), Outcome::Won);
    assert_eq!(node.request(&b, &request(4), &seal).await.unwrap(), Outcome::Won);
    for name in [&a, &b] {
        node.drop_old::<R>(name).await.unwrap();
    }
    assert_eq!(other.requests::<R>(&b).await.unwrap(), []);
    assert_eq!(node.response(&b, &request(3)).await.unwrap(), None);
    assert_eq!(other.seal_of(&b, &request(4)).await.unwrap(), None);
}

/// Nodes of neighbouring versions find each other's: keys and texts of both kinds of requests, of what seals them, and of what owners
/// tell, byte for byte.
#[test]
fn requests_and_what_is_told_lie_under_the_keys_that_they_always_had() {
    let stand = Stand::in_memory("golden-keys");
    let Kind::InMemory(all) = &stand.kind else { panic!("it is in memory") };
    let node = stand.joined("a");
    let (id, text) = (VolumeId([7; 16]), "07070707-0707-0707-0707-070707070707");
    let seal_text = r#"{"version":1,"certificate":"c","signature":"s"}"#;
    let seal = Seal::decode(seal_text).unwrap();
    // Which keys there are besides those that any cluster has.
    let found = || -> Vec<(String, String)> {
        let entries = all.entries().into_iter();
        let entries = entries.map(|(key, value)| (key.strip_prefix("/forebay/lab/").unwrap().to_owned(), value));
        entries.filter(|(key, _)| !matches!(key.as_str(), "identity" | "settings")).collect()
    };
    let expect = |expected: &[(String, &str)]| {
        let expected: Vec<(String, String)> =
            expected.iter().map(|(key, value)| (key.clone(), (*value).to_owned())).collect();
        assert_eq!(found(), expected);
    };
    let call = Call { version: VERSION, id, from: named("a"), volume: VM1, command: OwnerCommand::Release };
    let answered = Answered { version: VERSION, not_done: Some(NotDone::Conflict), why: "no".into() };
    let ask = Ask { version: crate::coordinator::link_asks::VERSION, id, from: named("a"), pairs: vec![] };
    let seen = ask.refused("no".into());
    let call_text = format!(
        r#"{{"version":1,"id":"{text}","from":"a","volume":"01010101-0101-0101-0101-010101010101","wish":"release"}}"#
    );
    let ask_text = format!(r#"{{"version":2,"id":"{text}","from":"a","pairs":[]}}"#);
    let seen_text = format!(r#"{{"version":2,"id":"{text}","why":"no"}}"#);
    block_on(async {
        let b = named("b");
        assert_eq!(node.request(&b, &call, &seal).await.unwrap(), Outcome::Won);
        expect(&[(format!("call/b/{text}"), &call_text), (format!("seal/call/b/{text}"), seal_text)]);
        assert_eq!(node.respond(&b, &call, &answered, &seal).await.unwrap(), Outcome::Won);
        let not_done = r#"{"version":1,"not_done":"conflict","why":"no"}"#;
        expect(&[(format!("answer/a/{text}"), not_done), (format!("seal/answer/a/{text}"), seal_text)]);
        assert_eq!(node.withdraw(&b, &call).await.unwrap(), Outcome::Won);
        expect(&[]);
        assert_eq!(node.request(&b, &ask, &seal).await.unwrap(), Outcome::Won);
        expect(&[(format!("ask/b/{text}"), &ask_text), (format!("seal/ask/b/{text}"), seal_text)]);
        assert_eq!(node.respond(&b, &ask, &seen, &seal).await.unwrap(), Outcome::Won);
        expect(&[(format!("seal/seen/a/{text}"), seal_text), (format!("seen/a/{text}"), &seen_text)]);
        assert_eq!(node.withdraw(&b, &ask).await.unwrap(), Outcome::Won);
        let nonce = Nonce { version: VERSION, name: b, nonce: id };
        assert_eq!(node.renew_nonce(None, &nonce).await.unwrap(), Outcome::Won);
        node.publish_owner_status(&OwnedVolumes { version: VERSION, name: named("a"), at_ms: 5, volumes: vec![] })
            .await
            .unwrap();
        node.begin_evacuation(&Evacuation { version: VERSION, name: named("a"), at_ms: 5 }).await.unwrap();
        let ended = EndedTerms::none(named("a")).with(VM1, &[Term(7)], |_| true);
        assert_eq!(node.say_ended((&ended, &seal)).await.unwrap(), Outcome::Won);
        assert_eq!(node.ended_terms(&named("a")).await.unwrap(), Some((ended, seal.clone())));
        let ended_text = format!(r#"{{"version":1,"name":"a","terms":[{{"volume":"{VM1}","term":7}}]}}"#);
        let nonce_text = format!(r#"{{"version":1,"name":"b","nonce":"{text}"}}"#);
        expect(&[
            ("ended/a".into(), &ended_text),
            ("leaving/a".into(), r#"{"version":1,"name":"a","at_ms":5}"#),
            ("nonce/b".into(), &nonce_text),
            ("seal/ended/a".into(), seal_text),
            ("told/a".into(), r#"{"version":1,"name":"a","at_ms":5,"volumes":[]}"#),
        ]);
    });
}

/// A nonce is told in the place of the one before it, and another one that is there is noticed.
fn nonces_take_turns(stand: &Stand) {
    let node = stand.joined("a");
    let a = named("a");
    let nonce = |id| Nonce { version: VERSION, name: named("a"), nonce: VolumeId([id; 16]) };
    block_on(async {
        assert_eq!(node.nonce(&a).await.unwrap(), None);
        assert_eq!(node.renew_nonce(None, &nonce(1)).await.unwrap(), Outcome::Won);
        assert_eq!(node.renew_nonce(None, &nonce(2)).await.unwrap(), Outcome::Lost(Some(nonce(1))));
        assert_eq!(node.renew_nonce(Some(&nonce(1)), &nonce(2)).await.unwrap(), Outcome::Won);
        assert_eq!(node.nonce(&a).await.unwrap(), Some(nonce(2)));
        hostile::put(stand, "nonce/a", "none").await;
        assert!(matches!(node.nonce(&a).await, Err(Error::Damaged { .. })));
        assert_eq!(node.clear_nonce(&a).await.unwrap(), Outcome::Won);
        assert_eq!(node.renew_nonce(None, &nonce(3)).await.unwrap(), Outcome::Won);
    });
}

/// A request is answered once, and not after it was withdrawn; a node is leaving until that is taken back.
fn what_is_wanted_of_nodes_is_written_down(stand: &Stand) {
    let node = stand.joined("a");
    let other = stand.joined("b");
    block_on(async {
        let call = |id| Call {
            version: VERSION,
            id: VolumeId([id; 16]),
            from: named("a"),
            volume: VM1,
            command: OwnerCommand::Drain { through: false },
        };
        let answered = Answered { version: VERSION, not_done: None, why: String::new() };
        let ask = |id| Ask { version: link_asks::VERSION, id: VolumeId([id; 16]), from: named("a"), pairs: vec![] };
        let seen =
            |id| LinkEndSeen { version: link_asks::VERSION, id: VolumeId([id; 16]), side: None, why: "no".into() };
        requests_are_answered_once(&node, &other, call, &answered).await;
        requests_are_answered_once(&node, &other, ask, &seen(1)).await;

        let first = Evacuation { version: VERSION, name: named("a"), at_ms: 1 };
        let again = Evacuation { at_ms: 2, ..first.clone() };
        for leaving in [&first, &again] {
            assert_eq!(other.begin_evacuation(leaving).await.unwrap(), Outcome::Won);
        }
        assert_eq!(node.evacuations().await.unwrap(), [first]);
        assert_eq!(node.end_evacuation("a").await.unwrap(), Outcome::Won);
        assert_eq!(other.evacuations().await.unwrap(), []);
    });
}

fn names_of_nodes_are_given_once(stand: &Stand) {
    let node = stand.joined("a");
    block_on(async {
        let alpha = NodeEntry::new(named("alpha"), NodeId(1), host(1));
        assert_eq!(node.register(&alpha).await.unwrap(), Registered::Done);
        // After a reboot, and with other addresses.
        let mut rebooted = NodeEntry::new(named("alpha"), NodeId(1), Host { boot: [8; 16], ..host(1) });
        rebooted.addresses.push("10.0.0.1:7071".into());
        assert_eq!(node.register(&rebooted).await.unwrap(), Registered::Done);
        let impostor = NodeEntry::new(named("alpha"), NodeId(2), host(2));
        assert_eq!(node.register(&impostor).await.unwrap(), Registered::NameTaken(rebooted.clone()));
        let copied_disk = NodeEntry::new(named("alpha"), NodeId(1), host(2));
        assert_eq!(node.register(&copied_disk).await.unwrap(), Registered::NameTaken(rebooted.clone()));
        let renamed = NodeEntry::new(named("beta"), NodeId(1), host(1));
        assert_eq!(node.register(&renamed).await.unwrap(), Registered::NumberTaken(named("alpha")));
        assert_eq!(node.nodes().await.unwrap(), [rebooted.clone()]);

        let word = audit(5, None);
        assert_eq!(node.forget(&alpha, &word).await.unwrap(), Outcome::Lost(()), "it has changed since");
        assert_eq!(node.forget(&rebooted, &word).await.unwrap(), Outcome::Won);
        assert_eq!(node.register(&impostor).await.unwrap(), Registered::Done);
        let load = Load {
            version: VERSION,
            name: named("alpha"),
            at_ms: 1,
            memory_free_bytes: 1 << 30,
            flash_free_bytes: 0,
            busy_percent: 7,
            owned: 1,
            held: 2,
            unreached: vec![VolumeId([7; 16])],
        };
        node.report(&load).await.unwrap();
        node.report(&Load { at_ms: 2, ..load.clone() }).await.unwrap();
        assert_eq!(node.loads().await.unwrap(), [Load { at_ms: 2, ..load }]);
        assert_eq!(node.audit_log().await.unwrap().len(), 1, "only what was done is in the log");
    });
}

fn settings_are_the_same_for_all(stand: &Stand) {
    let (a, b) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        let first = a.settings().await.unwrap();
        assert_eq!(first, Settings::default());
        // No command sets them anew; who does it by etcd's own means does it for all.
        let slow = Settings { grace_ms: 20_000, lease_ms: 10_000, ..first.clone() };
        let then = vec![Operation::Put { key: a.key("settings"), value: slow.encode() }];
        let otherwise = vec![Read::Key(a.key("settings"))];
        let set = Transaction { compare: vec![equals(a.key("settings"), first.encode())], then, otherwise };
        assert!(matches!(a.ask(set).await.unwrap(), Asked::Changed));
        assert_eq!(b.settings().await.unwrap(), slow);
        // Who joins finds them, and does not begin anew.
        let c = stand.node("c");
        c.join().await.unwrap();
        assert_eq!(c.settings().await.unwrap(), slow);
    });
}

fn audit_log_is_kept_in_order_over_many_pages(stand: &Stand) {
    let node = stand.joined("a");
    block_on(async {
        node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        let lines = 2 * PAGE_ENTRIES as u64 + 1;
        for at in 1..=lines {
            assert_eq!(node.note(&audit(at, None)).await.unwrap(), Outcome::Won);
        }
        // With a change that is made, and one that is not.
        let word = audit(lines + 1, Some(VM1));
        node.commit(VM1, &kept(1, 1), &kept(2, 2), Some(&word), None).await.unwrap();
        node.commit(VM1, &kept(1, 1), &kept(2, 3), Some(&audit(lines + 2, Some(VM1))), None).await.unwrap();
        let log = node.audit_log().await.unwrap();
        assert_eq!(log.iter().map(|line| line.at_ms).collect::<Vec<_>>(), (1..=lines + 1).collect::<Vec<_>>());
        assert_eq!(log.last().map(|line| line.volume), Some(Some(VM1)));
    });
}

fn watchers_are_told(stand: &Stand) {
    let node = stand.joined("a");
    block_on(async {
        let mut watch = node.watch();
        assert_eq!(watch.next().await, Hint::Everything, "what happened before is not known");
        node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        let mut told = Vec::new();
        while !told.contains(&Hint::Record(VM1)) || !told.contains(&Hint::Definition(VM1)) {
            assert!(told.len() < 20, "{told:?}");
            told.push(watch.next().await);
        }
        node.register(&NodeEntry::new(named("alpha"), NodeId(1), host(1))).await.unwrap();
        while watch.next().await != Hint::Nodes {}
    });
}

fn a_record_that_went_back_is_refused_until_it_is_written_anew(stand: &Stand) {
    let (a, b) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        a.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        a.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await.unwrap();
        a.commit(VM1, &kept(2, 2), &kept(3, 3), None, None).await.unwrap();
        // Time goes back behind its back.
        let put = |text: String| Transaction {
            compare: vec![],
            then: vec![Operation::Put { key: a.record_key(VM1), value: text }],
            otherwise: vec![],
        };
        b.store.transact(&put(kept(2, 2).encode()), None).await.unwrap();
        for _ in 0..2 {
            let Err(Error::WentBack { seen, found, .. }) = a.record(VM1).await else { panic!("not noticed") };
            assert_eq!((*seen, *found), (Some(kept(3, 3)), Some(kept(2, 2))));
        }
        // A change that waited is not sent into the past.
        assert!(matches!(a.commit(VM1, &kept(2, 2), &kept(3, 4), None, None).await, Err(Error::WentBack { .. })));
        // Another history under the same number, and none at all.
        b.store.transact(&put(kept(3, 4).encode()), None).await.unwrap();
        assert!(matches!(a.record(VM1).await, Err(Error::WentBack { .. })));
        let delete = Operation::Delete(a.record_key(VM1));
        b.store.transact(&Transaction { compare: vec![], then: vec![delete], otherwise: vec![] }, None).await.unwrap();
        assert!(matches!(a.record(VM1).await, Err(Error::WentBack { .. })));
        // What is damaged is neither old nor new.
        b.store.transact(&put("{}".into()), None).await.unwrap();
        assert!(matches!(a.record(VM1).await, Err(Error::Damaged { .. })));
        b.store.transact(&put(kept(2, 2).encode()), None).await.unwrap();
    });
    // It is known after a restart of the node as well. (Who saw nothing newer has nothing to say.)
    drop(a);
    let a = stand.joined("a");
    block_on(async {
        assert!(matches!(a.record(VM1).await, Err(Error::WentBack { .. })));
        let word = audit(1, Some(VM1));
        assert_eq!(a.write_anew(VM1, Some(&kept(2, 2)), &kept(4, 4), &word, None).await.unwrap(), Outcome::Won);
        assert_eq!(a.record(VM1).await.unwrap(), kept(4, 4));
        assert_eq!(b.record(VM1).await.unwrap(), kept(4, 4));
        assert_eq!(a.audit_log().await.unwrap().len(), 1);
    });
}

fn another_cluster_is_refused(stand: &Stand) {
    let node = stand.joined("a");
    let other = Coordinator::new(
        stand.store(),
        ClusterIdentity::new("lab", VolumeId([0xcd; 16])),
        Memory::open(&stand.state("b")).unwrap(),
    );
    block_on(async {
        node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        assert!(matches!(other.join().await, Err(Error::OtherCluster(_))));
        assert!(matches!(other.record(VM1).await, Err(Error::OtherCluster(_))));
        assert!(matches!(other.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await, Err(Error::OtherCluster(_))));
        assert_eq!(node.record(VM1).await.unwrap(), kept(1, 1));
        // Emptied: found by who was here before, and not begun anew by him.
        let gone = Operation::Delete(node.key("identity"));
        node.store.transact(&Transaction { compare: vec![], then: vec![gone], otherwise: vec![] }, None).await.unwrap();
        assert!(matches!(node.record(VM1).await, Err(Error::NoCluster { joined: true })));
        assert!(matches!(node.join().await, Err(Error::NoCluster { joined: true })));
    });
    // A state folder belongs to one cluster.
    let moved = Coordinator::new(
        stand.store(),
        ClusterIdentity::new("lab", VolumeId([0xcd; 16])),
        Memory::open(&stand.state("a")).unwrap(),
    );
    assert!(matches!(block_on(moved.join()), Err(Error::OtherCluster(_))));
}

macro_rules! suite {
    ($($claim:ident),* $(,)?) => {
        mod store_in_memory {
            $(#[test] fn $claim() { super::$claim(&super::Stand::in_memory(stringify!($claim))); })*
        }
        mod etcd_of_one {
            $(#[test] fn $claim() { super::$claim(&super::Stand::etcd(stringify!($claim), 1)); })*
        }
    };
}

suite!(
    records_change_only_by_comparison,
    volumes_come_and_go,
    what_is_wanted_of_nodes_is_written_down,
    names_of_nodes_are_given_once,
    settings_are_the_same_for_all,
    audit_log_is_kept_in_order_over_many_pages,
    watchers_are_told,
    a_record_that_went_back_is_refused_until_it_is_written_anew,
    another_cluster_is_refused,
    one_hostile_value_hides_no_other,
    nonces_take_turns,
);

// --- in core's words ---

#[test]
fn core_is_told_what_is_certain_and_nothing_else() {
    use super::answers::{Told, Word};
    use forebay_core::ownership::{Committed, Event, Read};
    let stand = Stand::in_memory("answers");
    let (node, other) = (stand.joined("a"), stand.joined("b"));
    let put = |text: String| {
        let then = vec![Operation::Put { key: node.record_key(VM1), value: text }];
        Transaction { compare: vec![], then, otherwise: vec![] }
    };
    let told = |told: Told<Read>, expected: Read| assert_eq!(told.answer, expected);
    let certain = |told: Told<Committed>| {
        assert_eq!(told.why, None);
        told.answer
    };
    block_on(async {
        told(node.execute_read(VM1).await, Read::Absent);
        assert_eq!(node.known(VM1), None);
        let first = definition("vm1", VM1);
        node.create(&first, &kept(1, 1)).await.unwrap();
        told(node.execute_read(VM1).await, Read::Is(record(1, 1)));
        let won = node.execute_commit(VM1, &record(1, 1), &record(2, 2), None, clock::now()).await;
        assert_eq!(certain(won), Committed::Won);
        let lost = node.execute_commit(VM1, &record(1, 1), &record(2, 3), None, clock::now()).await;
        assert_eq!(certain(lost), Committed::Lost(record(2, 2)));
        assert_eq!(node.known(VM1), Some(record(2, 2)));

        // Back in time: core is told what was seen, and what there is.
        other.store.transact(&put(kept(1, 1).encode()), None).await.unwrap();
        told(node.execute_read(VM1).await, Read::Is(record(1, 1)));
        for from in [record(1, 1), record(2, 2)] {
            let back = node.execute_commit(VM1, &from, &record(3, 3), None, clock::now()).await;
            let seen = Some(Event::Seen(record(2, 2)));
            assert_eq!((back.answer, back.seen), (Committed::Lost(record(1, 1)), seen));
            let why = back.why.expect("it is said why");
            assert!(why.contains("went back"), "{why}");
        }
        // Another history of the same number; core sees that by what was seen.
        other.store.transact(&put(kept(2, 3).encode()), None).await.unwrap();
        told(node.execute_read(VM1).await, Read::Is(record(2, 3)));
        // Of what cannot be read nothing is known.
        other.store.transact(&put("{}".into()), None).await.unwrap();
        told(node.execute_read(VM1).await, Read::Failed);
        let unknown = node.execute_commit(VM1, &record(2, 2), &record(3, 3), None, clock::now()).await;
        assert!(unknown.answer == Committed::Unknown && unknown.why.is_some(), "{unknown:?}");
        // The operator's word, and only it, writes anew what went back; and what is not newer than all that was seen is not written.
        other.store.transact(&put(kept(1, 1).encode()), None).await.unwrap();
        let word = Word::WritesAnew(audit(1, Some(VM1)));
        let same = node.execute_commit(VM1, &record(1, 1), &record(2, 2), Some(&word), clock::now()).await;
        assert_eq!(same.answer, Committed::Unknown);
        let other_word = Word::Allows(audit(1, Some(VM1)));
        let back = node.execute_commit(VM1, &record(1, 1), &released(3), Some(&other_word), clock::now()).await;
        assert_eq!(back.answer, Committed::Lost(record(1, 1)));
        let anew = node.execute_commit(VM1, &record(1, 1), &released(3), Some(&word), clock::now()).await;
        assert_eq!(certain(anew), Committed::Won);
        assert_eq!(node.audit_log().await.unwrap().len(), 1);
        node.delete(&first, &released(3), None).await.unwrap();
        told(node.execute_read(VM1).await, Read::Deleted(Term(4), Epoch(0)));
        assert_eq!(node.seen(VM1), Some(Event::SeenDeleted(Term(4), Epoch(0))));
        let gone = node.execute_commit(VM1, &released(3), &record(4, 4), None, clock::now()).await;
        assert_eq!(gone.answer, Committed::Unknown);
    });
}

/// C6: a node that hears no other one hears of it from the coordinator, and changes nothing before that.
#[test]
fn that_the_coordinator_went_back_is_written_down_there_and_in_the_state_folder() {
    use super::answers::Word;
    use forebay_core::cluster::{KnownRewinds, RewindId};
    use forebay_core::ownership::Committed;
    let stand = Stand::in_memory("rewinds");
    let (first_one, second_one) = (RewindId(11), RewindId(7));
    let open = |ids: &[RewindId]| KnownRewinds { open: ids.to_vec(), settled: Vec::new() };
    let (node, other, late) = (stand.joined("a"), stand.joined("b"), stand.joined("c"));
    block_on(async {
        let first = definition("vm1", VM1);
        node.create(&first, &kept(1, 1)).await.unwrap();
        node.record(VM1).await.unwrap();
        other.record(VM1).await.unwrap();
        assert_eq!(other.rewinds(VM1), KnownRewinds::default());

        node.remember_rewind(VM1, first_one).unwrap();
        node.record(VM1).await.unwrap();
        // It has read the record before, and does not know yet.
        let early = other.execute_commit(VM1, &record(1, 1), &record(2, 2), None, clock::now()).await;
        assert_eq!(early.answer, Committed::Lost(record(1, 1)));
        assert_eq!(other.rewinds(VM1), open(&[first_one]));
        let word = Word::Allows(audit(1, Some(VM1)));
        let told = other.execute_commit(VM1, &record(1, 1), &record(2, 2), Some(&word), clock::now()).await;
        assert_eq!(told.answer, Committed::Won, "whether it may is core's to decide");
        // Nor is a volume deleted by who does not know yet, although it has read the record as it is.
        late.record(VM1).await.unwrap();
        node.remember_rewind(VM1, second_one).unwrap();
        node.record(VM1).await.unwrap();
        let deleted = late.delete(&first, &record(2, 2), Some(&audit(2, Some(VM1)))).await.unwrap();
        assert_eq!(deleted, Outcome::Lost(kept(2, 2)));
        // When it heard of the first it had seen nothing of the volume that could be newer than what is there.
        assert_eq!(late.rewinds(VM1), open(&[second_one]));
    });
    // A restart forgets nothing. What was heard since is settled, and no other one is.
    let again = stand.joined("a");
    assert_eq!(again.rewinds(VM1), open(&[first_one, second_one]));
    again.remember_settled(VM1, first_one).unwrap();
    let settled = KnownRewinds { open: vec![second_one], settled: vec![first_one] };
    assert_eq!(stand.joined("a").rewinds(VM1), settled);
}

/// C6: the coordinator is put back twice, the second time to before anybody has written down the first. Who has missed the first gives
/// the second another name, and what others have settled is not that.
#[test]
fn two_rewinds_never_have_the_same_name() {
    let stand = Stand::in_memory("rewinds-twice");
    let (settled, late) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        settled.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        settled.record(VM1).await.unwrap();
        late.record(VM1).await.unwrap();
        let (first, kept) = settled.name_rewind(VM1, forebay_io::clock::now());
        kept.unwrap();
        settled.remember_settled(VM1, first).unwrap();
        // The mark is gone with what was restored: nobody has told `late` of the first.
        let (second, kept) = late.name_rewind(VM1, forebay_io::clock::now());
        kept.unwrap();
        assert_ne!(first, second);
        late.record(VM1).await.unwrap();
        settled.record(VM1).await.unwrap();
        assert_eq!(settled.rewinds(VM1).open, [second], "it is not settled there");
        // All volumes of a node speak of one restore, which each of them sees, by one name.
        let asked = forebay_io::clock::now();
        let (third, _) = late.name_rewind(VM1, asked);
        assert_eq!((late.name_rewind(VolumeId([2; 16]), asked).0, third == second), (third, false));
    });
}

#[test]
fn what_a_node_cannot_remember_it_does_not_tell() {
    let stand = Stand::in_memory("forgetful");
    let (a, b) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        a.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        let seen = stand.state("a").join("cluster/seen");
        std::fs::rename(&seen, stand.folder.join("away")).unwrap();
        let done = a.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await.unwrap();
        assert!(matches!(&done, Outcome::Unknown(why) if why.contains("state folder")), "{done:?}");
        assert!(matches!(a.record(VM1).await, Err(Error::NotRemembered(_))));
        std::fs::rename(stand.folder.join("away"), &seen).unwrap();
        assert_eq!(a.record(VM1).await.unwrap(), kept(2, 2));
        drop(b);
    });
}
