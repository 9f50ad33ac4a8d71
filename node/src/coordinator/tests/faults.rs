//! etcd under faults: its leader killed or stopped, its majority lost, answers lost on the way, time turned back by a restored
//! backup, strangers kept out.

use super::history::{Writers, change_of, first};
use super::*;
use crate::coordinator::etcd::TlsFiles;
use forebay_core::ownership::Committed;
use forebay_tests::certificates::{Authority, Validity};
use forebay_tests::hosts::Network;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

fn real(stand: &mut Stand) -> &mut forebay_tests::etcd::Etcd {
    match &mut stand.kind {
        Kind::Etcd(etcd) => etcd,
        Kind::InMemory(_) => panic!("it is etcd"),
    }
}

/// What the proxy does with what comes through it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Mode {
    Pass,
    /// The member answers, and nobody hears it.
    DropAnswer,
    /// The member answers, and nobody hears it; the connection stays.
    HoldAnswer,
    /// The member never hears the question.
    DropQuestion,
}

/// A proxy before one member, in a thread of its own.
struct Proxy {
    address: String,
    mode: Arc<AtomicU8>,
}

impl Proxy {
    fn before(member: &str) -> Proxy {
        let member = member.strip_prefix("http://").unwrap().to_owned();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let mode = Arc::new(AtomicU8::new(Mode::Pass as u8));
        let here = mode.clone();
        std::thread::spawn(move || {
            block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(pass(client, member.clone(), here.load(Ordering::Relaxed)));
                }
            });
        });
        Proxy { address, mode }
    }

    fn set(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }
}

async fn pass(client: TcpStream, member: String, mode: u8) -> std::io::Result<()> {
    let member = TcpStream::connect(member).await?;
    let (mut client_reads, mut client_writes) = client.into_split();
    let (mut member_reads, mut member_writes) = member.into_split();
    let to_member = async {
        if mode == Mode::DropQuestion as u8 {
            tokio::io::copy(&mut client_reads, &mut tokio::io::sink()).await
        } else {
            let copied = tokio::io::copy(&mut client_reads, &mut member_writes).await;
            member_writes.shutdown().await?;
            copied
        }
    };
    let to_client = async {
        if mode == Mode::HoldAnswer as u8 {
            std::future::pending::<()>().await;
        }
        if mode == Mode::DropAnswer as u8 {
            // Its first byte says that the member has carried it out.
            member_reads.readable().await?;
            return Ok(0);
        }
        tokio::io::copy(&mut member_reads, &mut client_writes).await
    };
    tokio::select! {
        copied = to_member => copied.map(|_| ()),
        copied = to_client => copied.map(|_| ()),
    }
}

#[test]
fn a_change_that_was_decided_long_ago_never_leaves() {
    let stand = Stand::etcd("decided-long-ago", 1);
    let node = stand.joined("a");
    let old = clock::now();
    block_on(async {
        node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1_600)).await;
        let told = node.execute_commit(VM1, &record(1, 1), &record(2, 2), None, old).await;
        assert!(told.answer == Committed::Unknown && told.why.is_some(), "{told:?}");
        assert_eq!(node.record(VM1).await.unwrap(), kept(1, 1));
        let told = node.execute_commit(VM1, &record(1, 1), &record(2, 2), None, clock::now()).await;
        assert_eq!(told.answer, Committed::Won);
    });
}

#[test]
fn a_lost_answer_is_unknown_and_a_read_decides() {
    let mut stand = Stand::etcd("lost-answers", 1);
    let proxy = Proxy::before(&real(&mut stand).endpoints()[0]);
    let through = |stand: &Stand| {
        let config =
            EtcdConfig { answer_timeout: Duration::from_millis(700), ..etcd(std::slice::from_ref(&proxy.address)) };
        coordinator(Store::Etcd(Etcd::new(&config).unwrap()), &stand.state("a"))
    };
    let direct = stand.joined("b");
    let node = through(&stand);
    block_on(async {
        node.join().await.unwrap();
        proxy.set(Mode::DropAnswer);
        assert!(matches!(node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap(), Outcome::Unknown(_)));
        proxy.set(Mode::Pass);
        assert_eq!(node.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap(), Outcome::Won, "it had been done");

        proxy.set(Mode::DropAnswer);
        let lost = node.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await.unwrap();
        assert!(matches!(lost, Outcome::Unknown(_)), "{lost:?}");
        assert_eq!(direct.record(VM1).await.unwrap(), kept(2, 2), "it had taken effect");
        assert!(matches!(node.record(VM1).await, Err(Error::Unreachable(_))), "a read that is lost is no answer");
        proxy.set(Mode::Pass);
        assert_eq!(node.record(VM1).await.unwrap(), kept(2, 2));

        // The same words from outside, and the other fate: only the record tells.
        proxy.set(Mode::DropQuestion);
        let lost = node.commit(VM1, &kept(2, 2), &kept(3, 3), None, None).await.unwrap();
        assert!(matches!(lost, Outcome::Unknown(_)), "{lost:?}");
        proxy.set(Mode::Pass);
        assert_eq!(node.record(VM1).await.unwrap(), kept(2, 2));
        assert_eq!(node.commit(VM1, &kept(2, 2), &kept(3, 3), None, None).await.unwrap(), Outcome::Won);
    });
}

/// The member that was asked has carried it out and says nothing, as one does to which nothing of its leader arrives: another one tells.
#[test]
fn a_change_whose_answer_does_not_come_is_found_at_another_member() {
    let mut stand = Stand::etcd("held-answers", 3);
    let members = real(&mut stand).endpoints();
    let proxy = Proxy::before(&members[0]);
    let endpoints = [proxy.address.clone(), members[1].clone(), members[2].clone()];
    let config = EtcdConfig { answer_timeout: Duration::from_secs(3_600), ..etcd(&endpoints) };
    // Each asks the member behind the proxy first: nobody was slow to it yet.
    let fresh = || coordinator(Store::Etcd(Etcd::new(&config).unwrap()), &stand.state("a"));
    let first = stand.joined("a");
    block_on(async {
        make(&first, &definition("vm1", VM1), &kept(1, 1)).await;
        proxy.set(Mode::HoldAnswer);
        let patience = Duration::from_secs(120);
        let (changes, reads) = (fresh(), fresh());
        let changed = tokio::time::timeout(patience, changes.commit(VM1, &kept(1, 1), &kept(2, 2), None, None)).await;
        assert_eq!(changed.expect("it is found at another one").unwrap(), Outcome::Won);
        let read = tokio::time::timeout(patience, reads.record(VM1)).await;
        assert_eq!(read.expect("another one is asked as well").unwrap(), kept(2, 2));
        // Who was slow is not asked first again: what has left for it alone would have no answer, and is decided by nobody.
        let changed = tokio::time::timeout(patience, changes.note(&audit(1, None))).await;
        assert_eq!(changed.expect("another one is asked first").unwrap(), Outcome::Won);
    });
}

#[test]
fn concurrent_writers_lose_and_double_nothing_while_members_die_and_stand_still() {
    let mut stand = Stand::etcd("writers-faults", 3);
    let node = stand.joined("first");
    block_on(make(&node, &definition("vm1", VM1), &first()));
    let endpoints = real(&mut stand).endpoints();
    let proxies: Vec<Proxy> = endpoints.iter().map(|member| Proxy::before(member)).collect();
    // Each begins with another member, and half of them by way of the proxies.
    let view = |n: usize| {
        let mut way: Vec<String> =
            if n.is_multiple_of(2) { proxies.iter().map(|p| p.address.clone()).collect() } else { endpoints.clone() };
        way.rotate_left(n % 3);
        let config = EtcdConfig { answer_timeout: Duration::from_secs(1), ..etcd(&way) };
        coordinator(Store::Etcd(Etcd::new(&config).unwrap()), &stand.state(&format!("writer{n}")))
    };
    let writers = Writers::start((0..6).map(view).collect());
    writers.wait_for(30);
    for proxy in proxies.iter().take(2) {
        let leader = real(&mut stand).leader();
        real(&mut stand).kill(leader);
        writers.wait_for(30);
        real(&mut stand).restart(leader);
        proxy.set(Mode::DropAnswer);
        writers.wait_for(30);
        let leader = real(&mut stand).leader();
        real(&mut stand).stop(leader);
        writers.wait_for(30);
        proxy.set(Mode::DropQuestion);
        real(&mut stand).resume(leader);
        writers.wait_for(30);
        proxy.set(Mode::Pass);
    }
    real(&mut stand).wait_ready();
    writers.wait_for(30);
    let history = writers.stop();
    assert_eq!(history.invalid(change_of(&block_on(sure(|| node.record(VM1))))), None);
    assert!(history.unknown() > 0, "the faults were felt");
    println!("{} questions answered, {} changes won, {} unknown", history.answered(), history.won(), history.unknown());
}

#[test]
fn without_a_majority_nothing_is_answered_and_afterwards_all_goes_on() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let mut stand = Stand::etcd("majority", 3);
    stand.joined("a");
    let config = EtcdConfig { answer_timeout: TIMEOUT, ..etcd(&real(&mut stand).endpoints()) };
    let node = coordinator(Store::Etcd(Etcd::new(&config).unwrap()), &stand.state("a"));
    block_on(async {
        make(&node, &definition("vm1", VM1), &kept(1, 1)).await;
        assert_eq!(decide(&node, &kept(1, 1), &kept(2, 2)).await, Outcome::Won);
    });
    // Two of three stand still: the third must not answer by itself.
    real(&mut stand).stop(0);
    real(&mut stand).stop(1);
    block_on(async {
        assert!(matches!(node.record(VM1).await, Err(Error::Unreachable(_))));
        let begun = Instant::now();
        let outcome = node.commit(VM1, &kept(2, 2), &kept(3, 3), None, None).await.unwrap();
        assert!(matches!(&outcome, Outcome::Unknown(_)), "{outcome:?}");
        assert!(begun.elapsed() < 4 * TIMEOUT, "it says so in time: {:?}", begun.elapsed());
    });
    real(&mut stand).resume(0);
    real(&mut stand).resume(1);
    real(&mut stand).wait_ready();
    block_on(async {
        // C2: who needs a decision commits the same, with the same comparison.
        assert_eq!(decide(&node, &kept(2, 2), &kept(3, 3)).await, Outcome::Won, "one of the two has written it");
        assert_eq!(sure(|| node.record(VM1)).await, kept(3, 3));
    });
    // Dead members refuse connections: that is certain at once, and says which.
    for at in 0..3 {
        real(&mut stand).kill(at);
    }
    let error = block_on(node.commit(VM1, &kept(3, 3), &kept(4, 4), None, None)).unwrap_err();
    assert!(matches!(&error, Error::Unreachable(why) if why.contains("refused")), "{error}");
}

/// As in a cluster of three: a member of etcd beside each node, each node's own one first.
#[test]
fn a_node_that_is_cut_off_with_its_member_is_told_nothing_while_the_others_go_on() {
    let mut network = match Network::new(3, 1) {
        Ok(network) => network,
        Err(reason) => return forebay_tests::harness::skip(&reason),
    };
    let folder = TempDir::new("cut-off");
    let mut running = forebay_tests::etcd::Etcd::start_on(&folder, network.hosts());
    let mut endpoints = running.endpoints();
    let nodes: Vec<Coordinator> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let config = EtcdConfig { answer_timeout: Duration::from_secs(2), ..etcd(&endpoints) };
            endpoints.rotate_left(1);
            coordinator(Store::Etcd(Etcd::new(&config).unwrap()), &folder.join(name))
        })
        .collect();
    let hosts: Vec<_> = network.hosts().iter().map(|host| host.namespace().clone()).collect();
    let on = |at: usize| (&hosts[at], &nodes[at]);
    let (host, node) = on(0);
    host.run(|| {
        block_on(async {
            sure(|| node.join()).await;
            make(node, &definition("vm1", VM1), &kept(1, 1)).await;
            assert_eq!(sure(|| node.record(VM1)).await, kept(1, 1));
        });
    });
    network.isolate(0);
    host.run(|| {
        block_on(async {
            let begun = Instant::now();
            assert!(matches!(node.record(VM1).await, Err(Error::Unreachable(_))));
            let outcome = node.commit(VM1, &kept(1, 1), &kept(2, 1), None, None).await;
            assert!(matches!(outcome, Ok(Outcome::Unknown(_)) | Err(Error::Unreachable(_))), "{outcome:?}");
            assert!(begun.elapsed() < Duration::from_secs(30), "it says so in time");
        });
    });
    let (other_host, other) = on(1);
    other_host.run(|| {
        block_on(async {
            sure(|| other.join()).await;
            // What the first has asked of its lonely member may never take effect now.
            assert_eq!(decide(other, &kept(1, 1), &kept(2, 2)).await, Outcome::Won);
        });
    });
    network.heal();
    running.wait_ready();
    host.run(|| {
        block_on(async {
            assert_eq!(sure(|| node.record(VM1)).await, kept(2, 2));
            assert_eq!(decide(node, &kept(1, 1), &kept(2, 1)).await, Outcome::Lost(kept(2, 2)));
        });
    });
}

#[test]
fn a_watch_goes_on_when_its_member_dies() {
    let mut stand = Stand::etcd("watch-faults", 3);
    // Who watches asks nothing else: no answer tells it which member lives.
    let (node, watcher) = (stand.joined("a"), stand.joined("b"));
    block_on(async {
        make(&node, &definition("vm1", VM1), &kept(1, 1)).await;
        let mut watch = watcher.watch();
        let mut known = kept(1, 1);
        // Whichever member it is at: one after the other goes and comes back.
        for at in 0..3 {
            real(&mut stand).kill(at);
            let begun = Instant::now();
            let mut told = false;
            // Only a watch that lives tells of one record; that of a dead member says "everything" at most.
            while !told {
                assert!(begun.elapsed() < Duration::from_secs(90), "nothing is told after member {at} died");
                let Ok(found) = node.record(VM1).await else { continue };
                let to = kept(found.number().0.0 + 1, 1);
                let _ = node.commit(VM1, &found, &to, None, None).await;
                known = to;
                let pause = Duration::from_millis(500);
                while let Ok(hint) = tokio::time::timeout(pause, watch.next()).await {
                    told |= hint == Hint::Record(VM1);
                }
            }
            real(&mut stand).restart(at);
            real(&mut stand).wait_ready();
        }
        assert_ne!(known, kept(1, 1));
    });
}

/// Proves N-M-9, N-F-9, N-X-9.
#[test]
fn a_restored_backup_is_noticed_and_the_operator_goes_on_from_there() {
    let mut stand = Stand::etcd("restored", 3);
    let (a, b) = (stand.joined("a"), stand.joined("b"));
    let vm2 = VolumeId([2; 16]);
    let backup = stand.folder.join("backup");
    block_on(async {
        make(&a, &definition("vm1", VM1), &kept(1, 1)).await;
        assert_eq!(decide(&a, &kept(1, 1), &kept(2, 1)).await, Outcome::Won);
    });
    real(&mut stand).backup(&backup);
    block_on(async {
        assert_eq!(decide(&a, &kept(2, 1), &kept(3, 1)).await, Outcome::Won);
        make(&a, &definition("vm2", vm2), &kept(1, 1)).await;
        sure(|| a.record(vm2)).await;
        assert_eq!(sure(|| b.record(VM1)).await, kept(3, 1));
    });
    real(&mut stand).restore(&backup);
    block_on(async {
        for node in [&a, &b] {
            let (seen, found) = went_back(node, VM1).await;
            assert_eq!((seen, found), (Some(kept(3, 1)), Some(kept(2, 1))));
        }
        assert!(matches!(a.commit(VM1, &kept(2, 1), &kept(3, 2), None, None).await, Err(Error::WentBack { .. })));
        assert_eq!(went_back(&a, vm2).await.1, None, "a volume that is lost is noticed");
        write_anew(&b, VM1, Some(&kept(2, 1)), &kept(4, 1)).await;
        assert_eq!(sure(|| a.record(VM1)).await, kept(4, 1));
        write_anew(&a, vm2, None, &kept(2, 1)).await;
        assert_eq!(sure(|| a.audit_log()).await.len(), 2);
    });
}

async fn write_anew(node: &Coordinator, volume: VolumeId, found: Option<&StoredRecord>, to: &StoredRecord) {
    let word = audit(1, Some(volume));
    loop {
        match sure(|| node.write_anew(volume, found, to, &word, None)).await {
            Outcome::Won => return,
            Outcome::Lost(there) if there == *to => return,
            Outcome::Lost(there) => panic!("nobody else writes: {there:?}"),
            Outcome::Unknown(_) => {}
        }
    }
}

/// What a node says that it has seen, and what it has found.
async fn went_back(node: &Coordinator, volume: VolumeId) -> (Option<StoredRecord>, Option<StoredRecord>) {
    loop {
        match node.record(volume).await {
            Err(Error::WentBack { seen, found, .. }) => return (*seen, *found),
            Err(Error::Unreachable(_)) => {}
            other => panic!("not noticed: {other:?}"),
        }
    }
}

/// Proves N-M-10, N-F-10, N-X-10.
#[test]
fn an_etcd_that_was_emptied_is_not_begun_anew() {
    let stand = Stand::etcd("emptied", 1);
    let node = stand.joined("a");
    block_on(node.create(&definition("vm1", VM1), &kept(1, 1))).unwrap();
    let other = Stand::etcd("emptied-other", 1);
    let misled = coordinator(other.store(), &stand.state("a"));
    block_on(async {
        assert!(matches!(misled.join().await, Err(Error::NoCluster { joined: true })));
        let error = misled.record(VM1).await.unwrap_err();
        assert!(error.to_string().contains("joined before"), "{error}");
    });
}

#[test]
fn users_of_etcd_are_let_in_by_password_and_again_when_their_token_is_forgotten() {
    let mut stand = Stand::etcd("users", 1);
    let running = real(&mut stand);
    running.control(None, &["user", "add", "root:secret"]);
    running.control(None, &["user", "grant-role", "root", "root"]);
    running.control(None, &["user", "add", "forebay:pass word"]);
    running.control(None, &["role", "add", "forebay"]);
    running.control(None, &["role", "grant-permission", "forebay", "--prefix=true", "readwrite", "/forebay/lab/"]);
    running.control(None, &["user", "grant-role", "forebay", "forebay"]);
    running.control(None, &["auth", "enable"]);
    let endpoints = running.endpoints();
    let as_user = |user: Option<(&str, &str)>, state: &str| {
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        coordinator(Store::Etcd(Etcd::new(&EtcdConfig { user, ..etcd(&endpoints) }).unwrap()), &stand.state(state))
    };
    let good = as_user(Some(("forebay", "pass word")), "good");
    block_on(async {
        good.join().await.unwrap();
        good.create(&definition("vm1", VM1), &kept(1, 1)).await.unwrap();
        for (user, state) in [(None, "none"), (Some(("forebay", "wrong")), "wrong"), (Some(("nobody", "x")), "nobody")]
        {
            let stranger = as_user(user, state);
            assert!(matches!(stranger.join().await, Err(Error::Denied(_))), "{state}");
            assert!(matches!(stranger.record(VM1).await, Err(Error::Denied(_))), "{state}");
            let change = stranger.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await;
            assert!(matches!(change, Err(Error::Denied(_))), "{state}");
        }
        // Let in, and not to this cluster's keys.
        let neighbour = ClusterIdentity::new("other", VolumeId([3; 16]));
        let neighbour = Coordinator::new(good_store(&endpoints), neighbour, Memory::open(&stand.state("n")).unwrap());
        assert!(matches!(neighbour.join().await, Err(Error::Denied(_))));
        let mut watch = good.watch();
        assert_eq!(watch.next().await, Hint::Everything);
        assert_eq!(good.commit(VM1, &kept(1, 1), &kept(2, 2), None, None).await.unwrap(), Outcome::Won);
        while watch.next().await != Hint::Record(VM1) {}
    });
    // A member forgets its tokens when it is restarted.
    let running = real(&mut stand);
    running.kill(0);
    running.restart(0);
    block_on(async {
        let begun = Instant::now();
        loop {
            match good.record(VM1).await {
                Ok(found) => break assert_eq!(found, kept(2, 2)),
                Err(Error::Unreachable(_)) if begun.elapsed() < Duration::from_secs(30) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(good.commit(VM1, &kept(2, 2), &kept(3, 3), None, None).await.unwrap(), Outcome::Won);
    });
}

fn good_store(endpoints: &[String]) -> Store {
    let user = Some(("forebay".to_owned(), "pass word".to_owned()));
    Store::Etcd(Etcd::new(&EtcdConfig { user, ..etcd(endpoints) }).unwrap())
}

#[test]
fn certificates_let_in_who_has_one_of_the_authority_and_nobody_else() {
    let folder = TempDir::new("etcd-tls");
    let (authority, stranger) = (Authority::new("lab"), Authority::new("stranger"));
    let address = forebay_tests::etcd::own_address();
    let member = authority.member(&folder, "member", &address);
    let files = |name: &str| member.join(name);
    let tls = forebay_tests::etcd::Tls {
        cert: files("server-cert.pem"),
        key: files("server-key.pem"),
        ca: files("ca-cert.pem"),
    };
    let running = forebay_tests::etcd::Etcd::start_tls(&folder, &address, tls);
    let try_with = |client: &std::path::Path, own: bool| {
        let own = own.then(|| (client.join("client-cert.pem"), client.join("client-key.pem")));
        let tls = Some(TlsFiles { ca: client.join("ca-cert.pem"), own });
        let store = Store::Etcd(Etcd::new(&EtcdConfig { tls, ..etcd(&running.endpoints()) }).unwrap());
        block_on(coordinator(store, &client.join("state")).join())
    };
    try_with(&authority.client(&folder, "good", Some((&authority, Validity::Current))), true).unwrap();
    let refused = |client: PathBuf, own: bool, why: &str| {
        let error = try_with(&client, own).unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)) && error.to_string().contains(why), "{error}");
    };
    refused(authority.client(&folder, "none", None), false, "connection was lost");
    refused(authority.client(&folder, "forged", Some((&stranger, Validity::Current))), true, "connection was lost");
    refused(authority.client(&folder, "expired", Some((&authority, Validity::Expired))), true, "connection was lost");
    // Who is led to somebody else's etcd says so.
    refused(stranger.client(&folder, "misled", Some((&stranger, Validity::Current))), true, "UnknownIssuer");
    let without = Etcd::new(&etcd(&running.endpoints())).err().expect("no authority is given");
    assert!(without.to_string().contains("authority"), "{without}");
}
