//! The medium of a tier is changed while the volume serves: clients see a pause, whoever breaks it off finds one of the two tiers
//! in force and nothing lost, and what stands in its way is said.

use forebay_tests::cluster::Cluster;
use forebay_tests::harness::{
    IoMode, Output, TempDir, Tier, VOLUME_NAME, Volume, forebay, rounds, run_command, skip, soak,
};
use forebay_tests::in_both_io_modes;
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::nbd::Client;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use forebay_tests::rng::Rng;
use forebay_tests::scene::tier_path;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SIZE: u64 = 48 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// `volume set` for the other medium, told of to the daemon of this volume.
fn set_tier(volume: &Volume, to: Tier) -> Output {
    let mut command = Command::new(forebay());
    command.args(["volume", "set", VOLUME_NAME, "--tier", word(to)]);
    if to == Tier::Memory {
        command.arg("--volatile");
    }
    command.arg("--api").arg(volume.api());
    run_command(MINUTE, command)
}

fn word(tier: Tier) -> &'static str {
    match tier {
        Tier::Memory => "memory",
        Tier::Flash => "flash",
    }
}

fn other(tier: Tier) -> Tier {
    match tier {
        Tier::Memory => Tier::Flash,
        Tier::Flash => Tier::Memory,
    }
}

fn volume(folder: &TempDir, tier: Tier, io: IoMode) -> Volume {
    let mut volume = Volume::new(folder, SIZE, tier, io);
    volume.tier_size = 16 << 20;
    // Slow enough that there is always something to drain.
    volume.backing = format!("slow:iops=1500,latency=2ms,depth=16:{}", volume.backing);
    volume
}

fn begin_load(volume: &Volume, folder: &TempDir, time: Duration) -> (LoadOptions, JoinHandle<Result<Ended, String>>) {
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
    (options.time, options.connections, options.pause) = (Some(time), 2, Duration::from_millis(1));
    let before = load::journal_bytes(&options.journal);
    let loaded = options.clone();
    let loading = std::thread::spawn(move || load::run(&loaded));
    load::wait_until_under_way(&options.journal, before);
    (options, loading)
}

/// The tiers that are there: where the record says, and where one may be left over.
fn tiers(volume: &Volume) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(volume.state().join("tiers")).expect("there is a folder for tiers");
    let mut found: Vec<PathBuf> = folder.map(|entry| entry.expect("it can be listed").path()).collect();
    let recorded = tier_path(volume);
    if recorded.exists() && !found.contains(&recorded) {
        found.push(recorded);
    }
    found
}

/// The medium that a daemon would open now.
fn recorded(volume: &Volume) -> Tier {
    let record = volume.state().join("volumes").join(format!("{VOLUME_NAME}.toml"));
    let text = std::fs::read_to_string(&record).expect("there is a record");
    if text.contains("kind = \"memory\"") { Tier::Memory } else { Tier::Flash }
}

in_both_io_modes! {
    /// Proves O-14: clients wait a moment and see no error; whatever they were told is there, on whichever medium.
    fn the_medium_changes_both_ways_under_load(io: IoMode) {
        let folder = TempDir::new("tier-change");
        let mut volume = volume(&folder, Tier::Memory, io);
        let daemon = volume.start();
        let (options, loading) = begin_load(&volume, &folder, Duration::from_secs(8));
        let mut under_load = 0;
        for to in [Tier::Flash, Tier::Memory] {
            let former = tier_path(&volume);
            let begun = Instant::now();
            set_tier(&volume, to).expect_success();
            println!("to {} in {:.2} s", word(to), begun.elapsed().as_secs_f64());
            let shown = daemon.show();
            assert_eq!((&shown["tier"]["kind"], &shown["phase"]), (&word(to).into(), &"serving".into()), "{shown:#}");
            assert!(shown["tier"]["changing"].is_null() && shown["policy"]["effective"] == "back", "{shown:#}");
            under_load += u32::from(!loading.is_finished());
            assert!(!former.exists() && tiers(&volume) == [tier_path(&volume)], "{:?}", tiers(&volume));
            std::thread::sleep(Duration::from_millis(300));
        }
        assert!(under_load > 0, "the load had ended before: nothing was proved");
        match loading.join().expect("the load does not panic") {
            Ok(Ended::Finished(totals)) => assert_eq!((totals.failed, totals.issued), (0, totals.acknowledged), "{totals:?}"),
            seen => panic!("a client has seen it: {seen:?}\n{}", daemon.output()),
        }
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        set_tier(&volume, Tier::Flash).expect_success();
        daemon.kill9();
        // What is asked for at the start must be what there is.
        assert!(volume.expect_refusal().text.contains("volume set vm1 --tier"));
        volume.tier = Tier::Flash;
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }
}

/// Proves O-14: killed at any moment of it, one of the two tiers is in force, nothing is lost, and nothing is left over.
#[test]
fn a_change_that_is_killed_leaves_one_tier_in_force_and_loses_nothing() {
    let folder = TempDir::new("tier-change-killed");
    let mut volume = volume(&folder, Tier::Flash, IoMode::Threads);
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    // How long one takes here, under load.
    let daemon = volume.start();
    let (_, loading) = begin_load(&volume, &folder, MINUTE);
    let begun = Instant::now();
    set_tier(&volume, Tier::Memory).expect_success();
    let whole = begun.elapsed();
    volume.tier = Tier::Memory;
    daemon.kill9();
    loading.join().expect("the load does not panic").unwrap();
    let mut former_place: Option<PathBuf> = None;
    for round in 0..rounds(4, 120) {
        wait_for_late_writes(&volume.image());
        let daemon = volume.start();
        if let Some(place) = former_place.filter(|place| *place != tier_path(&volume)) {
            assert!(!place.exists(), "seed {seed}, round {round}: {} is left over", place.display());
        }
        let journal = folder.join("journal");
        check::settle_after_kill(&journal, &volume.target())
            .unwrap_or_else(|why| panic!("seed {seed}, round {round}: {why}\n{}", daemon.output()));
        assert_eq!(tiers(&volume), [tier_path(&volume)], "seed {seed}, round {round}");
        let place = tier_path(&volume);
        let (_, loading) = begin_load(&volume, &folder, MINUTE);
        let changing = {
            let (volume, to) = (volume.clone(), other(volume.tier));
            std::thread::spawn(move || set_tier(&volume, to))
        };
        std::thread::sleep(whole.mul_f64(rng.below(1500) as f64 / 1000.0));
        daemon.kill9();
        let ended = loading.join().expect("the load does not panic").unwrap();
        assert!(matches!(ended, Ended::ConnectionLost(_)), "seed {seed}, round {round}: {ended:?}");
        let told = changing.join().expect("it is answered, or breaks off").status.success();
        let former = volume.tier;
        volume.tier = recorded(&volume);
        println!("round {round}: from {}, now {}, told that it is done: {told}", word(former), word(volume.tier));
        assert!(!told || volume.tier == other(former), "seed {seed}, round {round}");
        former_place = Some(place);
    }
}

/// Proves O-14: the states that a kill between two writes of the record can leave, made by hand.
#[test]
fn a_tier_that_is_left_over_is_removed_and_the_recorded_one_is_served() {
    let folder = TempDir::new("tier-change-states");
    let mut volume = volume(&folder, Tier::Flash, IoMode::Threads);
    let record = volume.state().join("volumes").join(format!("{VOLUME_NAME}.toml"));
    let read = || std::fs::read_to_string(&record).expect("there is a record");
    let daemon = volume.start();
    let (options, loading) = begin_load(&volume, &folder, Duration::from_millis(500));
    loading.join().expect("the load does not panic").unwrap();
    daemon.kill9();
    wait_for_late_writes(&volume.image());

    // The new tier was being made: the old one holds everything.
    let blank = folder.sparse("blank.tier", 16 << 20);
    std::fs::write(&record, read().replace("[tier]", &format!("spare = \"{}\"\n[tier]", blank.display()))).unwrap();
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    assert!(!blank.exists() && !read().contains("spare"), "{}", read());
    // What somebody has put there since is nobody's to remove.
    daemon.stop(MINUTE);
    let foreign = folder.join("foreign.tier");
    std::fs::write(&foreign, b"somebody's").unwrap();
    std::fs::write(&record, read().replace("[tier]", &format!("spare = \"{}\"\n[tier]", foreign.display()))).unwrap();
    let daemon = volume.start();
    assert!(foreign.exists() && daemon.output().contains("foreign.tier"), "{}", daemon.output());
    daemon.stop(MINUTE);

    // The new tier is recorded, and was never served: the image is complete.
    let former = tier_path(&volume);
    let memory = folder.join("never-made.tier");
    let text = read()
        .replace("[tier]", &format!("spare = \"{}\"\n[tier]", former.display()))
        .replace(&format!("path = \"{}\"", former.display()), &format!("path = \"{}\"", memory.display()))
        .replace("made = true", "made = false");
    let id = text.lines().find(|line| line.starts_with("volume = ")).expect("it has an identity").to_owned();
    std::fs::write(&record, text.replace(&id, "volume = \"00000000-0000-4000-8000-000000000001\"")).unwrap();
    volume.arguments.extend(["--tier-path".into(), memory.clone().into()]);
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    assert!(!former.exists() && memory.exists(), "{}", daemon.output());
    daemon.stop(MINUTE);
    check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
}

#[test]
fn what_stands_in_the_way_of_a_change_is_said_and_changes_nothing() {
    let folder = TempDir::new("tier-change-refused");
    let volume = volume(&folder, Tier::Flash, IoMode::Threads);
    let daemon = volume.start();
    let refused = |arguments: &[&str], words: &str| {
        let arguments = ["set", VOLUME_NAME].iter().chain(arguments);
        let said = daemon.volume_command(arguments).expect_failure().text();
        assert!(said.contains(words), "{said}");
    };
    refused(&["--tier", "memory"], "--volatile");
    refused(&["--tier", "memory", "--volatile", "--tier-size", "4000G"], "more than this host has free");
    refused(&["--tier-size", "32M"], "--tier");
    refused(&["--tier", "flash", "--tier-size", "32M"], "already");
    daemon.volume_command(["drain", VOLUME_NAME, "--hold", "5m"]).expect_success();
    refused(&["--tier", "memory", "--volatile"], "held");
    daemon.volume_command(["release", VOLUME_NAME]).expect_success();
    let shown = daemon.show();
    assert_eq!(
        (&shown["tier"]["kind"], &shown["policy"]["reason"]),
        (&"flash".into(), &"as-requested".into()),
        "{shown:#}"
    );
    assert_eq!(tiers(&volume), [tier_path(&volume)]);
    daemon.volume_command(["set", VOLUME_NAME, "--tier", "flash"]).expect_success();
    daemon.volume_command(["set", VOLUME_NAME, "--tier", "memory", "--volatile", "--tier-size", "8M"]).expect_success();
    assert_eq!(daemon.show()["tier"]["size_bytes"], 8 << 20);
}

/// What a client was told that the volume takes, it takes until the client connects again.
#[test]
fn a_client_keeps_the_request_size_that_it_was_told() {
    let folder = TempDir::new("tier-change-told");
    let volume = volume(&folder, Tier::Flash, IoMode::Threads);
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    let told = client.request_bytes_max as usize;
    let mut largest = |value: u8| {
        let mut bytes = vec![0; told];
        client.write(0, &vec![value; told], 0).unwrap().unwrap();
        client.read(0, &mut bytes).unwrap().unwrap();
        assert!(bytes == vec![value; told]);
    };
    largest(1);
    for (value, to) in [(2, Tier::Memory), (3, Tier::Flash)] {
        set_tier(&volume, to).expect_success();
        largest(value);
    }
    let smaller = ["set", VOLUME_NAME, "--tier", "memory", "--volatile", "--tier-size", "4M"];
    let said = daemon.volume_command(smaller).expect_failure().text();
    assert!(said.contains("was told that it takes requests of"), "{said}");
    assert_eq!(daemon.show()["tier"]["kind"], "flash");
    largest(4);
    drop(client);
    let begun = Instant::now();
    while !daemon.volume_command(smaller).status.success() {
        assert!(begun.elapsed() < MINUTE, "nobody is connected: {}", daemon.output());
    }
    assert!((Client::connect(&volume.target()).unwrap().request_bytes_max as usize) < told);
}

// --- several nodes ---

/// Whether the volume is on this medium wherever there is a copy of it.
fn is_on(cluster: &Cluster, owner: usize, medium: &str, copies: usize) -> bool {
    let shown = cluster.show(owner);
    let members = shown["cluster"]["members"].as_array().cloned().unwrap_or_default();
    let there = members.iter().filter(|member| member["role"] != "learner" && member["tier"] == medium).count();
    shown["cluster"]["state"] == "owner"
        && shown["tier"]["kind"] == medium
        && shown["tier"]["changing"].is_null()
        && (members.len(), there) == (copies, copies)
        && shown["policy"]["effective"] == "back"
}

fn members_change_their_medium(cluster: &mut Cluster, from: usize, medium: &str) -> usize {
    let begun = Instant::now();
    cluster.try_command(from, &["volume", "set", "vm1", "--tier", medium]).unwrap_or_else(|why| panic!("{why}"));
    let nodes = cluster.daemons.len();
    let owner = |cluster: &Cluster| (0..nodes).find(|node| is_on(cluster, *node, medium, 2));
    cluster.wait_for("all copies to be on the other medium", |cluster| owner(cluster).is_some());
    println!("all copies on {medium} after {:.1} s", begun.elapsed().as_secs_f64());
    owner(cluster).expect("it was there just now")
}

/// Proves N-X-14: copies change one after the other, with a third node to help; the client sees no error, and the death of
/// the owner after that loses nothing.
#[test]
fn copies_of_three_nodes_come_to_flash_under_load() {
    let Some(mut cluster) = Cluster::new("tier-change-three", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load_for(0, Duration::from_secs(12));
    let owner = members_change_their_medium(&mut cluster, 1, "flash");
    cluster.load_has_finished(loading);
    cluster.every_acknowledged_write_is_at(owner);
    cluster.kill(owner);
    let others: Vec<usize> = (0..3).filter(|node| *node != owner).collect();
    let next = cluster.owner_among(&others);
    cluster.wait_for_owner(next);
    cluster.every_acknowledged_write_is_at(next);
}

/// Proves N-X-14: two nodes have no third one to help, and one of them is killed at some moment of each change; it goes on when that
/// one is back.
#[test]
fn copies_of_two_nodes_change_while_one_of_them_is_killed() {
    if !soak() {
        return skip("it takes a minute, and is part of the soak: FOREBAY_SOAK=1");
    }
    let Some(mut cluster) = Cluster::new("tier-change-two", 2) else { return };
    cluster.serve_with_a_copy("flash");
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for (round, medium) in ["memory", "flash", "memory", "flash"].into_iter().enumerate() {
        let loading = cluster.begin_load(round % 2);
        let set = ["volume", "set", "vm1", "--tier", medium];
        cluster.try_command(0, &set).unwrap_or_else(|why| panic!("{why}"));
        std::thread::sleep(Duration::from_millis(rng.below(4000)));
        cluster.kill(round % 2);
        cluster.load_has_broken_off(loading);
        cluster.start(round % 2);
        let begun = Instant::now();
        let owner = |cluster: &Cluster| (0..2).find(|node| is_on(cluster, *node, medium, 2));
        cluster.wait_for("all copies to be on the other medium", |cluster| owner(cluster).is_some());
        println!("all copies on {medium} {:.1} s after the kill", begun.elapsed().as_secs_f64());
        cluster.every_acknowledged_write_is_at(owner(&cluster).expect("it was there just now"));
    }
}
