//! The journal beside an image: it comes and goes with its volume, a killed daemon's batch is replayed before anything
//! else is written, and one that cannot be trusted is refused, with nothing touched.

use forebay_tests::harness::{IoMode, Nbdkit, Output, TempDir, Tier, Volume, forebay, run_command};
use forebay_tests::in_both_io_modes;
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use forebay_tests::scene::{all_there, tier_path};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE: u64 = 48 << 20;
const MINUTE: Duration = Duration::from_secs(60);
/// Both areas, of a volume of that size.
const JOURNAL_BYTES: u64 = 8 << 20;
/// Small groups before a slow backing: a kill finds a batch on its way.
const WRAPPER: &str = "slow:iops=500,latency=4ms,depth=8:";

fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(forebay());
    command.args(arguments);
    run_command(MINUTE, command)
}

fn inspect(journal: &Path) -> Value {
    let output = run([OsStr::new("inspect"), journal.as_os_str(), OsStr::new("--json")]).expect_success();
    serde_json::from_str(&output.stdout).expect("inspect prints JSON")
}

fn complete_batches(journal: &Path) -> usize {
    inspect(journal)["areas"].as_array().unwrap().iter().filter(|area| area["state"] == "complete").count()
}

fn load_options(volume: &Volume, folder: &TempDir) -> LoadOptions {
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
    (options.flush_every, options.exact_groups, options.time) = (6, true, Some(MINUTE));
    options
}

fn journaled(folder: &TempDir, io: IoMode) -> Volume {
    let mut volume = Volume::new(folder, SIZE, Tier::Flash, io);
    volume.backing = format!("{WRAPPER}{}", volume.backing);
    volume.destage = "journaled";
    volume
}

/// Kills the daemon when its journal holds a batch that is not yet in the image, or not all of it.
fn killed_with_a_batch(volume: &Volume, options: &LoadOptions) {
    for _ in 0..20 {
        killed_while_a_batch_is_applied(volume, options);
        let salvaged = std::fs::read(volume.image_after_salvage()).unwrap();
        if salvaged != std::fs::read(volume.image()).unwrap() {
            assert!(complete_batches(&volume.journal()) > 0, "there was nothing to be replayed");
            return;
        }
    }
    panic!("every kill came between two batches");
}

/// Kills the daemon at a moment when it seems to write a batch to the image.
fn killed_while_a_batch_is_applied(volume: &Volume, options: &LoadOptions) {
    let daemon = volume.start();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load::run(options));
        let begun = Instant::now();
        let counters = || {
            let shown = daemon.show();
            ["journal_batches", "backing_writes"].map(|name| shown["counters"][name].as_u64().expect("a counter"))
        };
        let mut last = counters();
        loop {
            assert!(begun.elapsed() < MINUTE, "no batch was applied: {}", daemon.show());
            std::thread::sleep(Duration::from_millis(20));
            let now = counters();
            if now[0] >= 2 && now[0] == last[0] && now[1] > last[1] {
                break;
            }
            last = now;
        }
        daemon.kill9();
        let ended = load.join().expect("the load ends").expect("it ends with its connection");
        assert!(matches!(ended, Ended::ConnectionLost(_)), "{ended:?}");
    });
}

in_both_io_modes! {
    fn a_killed_daemons_batch_is_replayed_before_anything_else(io: IoMode) {
        let folder = TempDir::new("journal-kill");
        let mut volume = journaled(&folder, io);
        let options = load_options(&volume, &folder);
        killed_with_a_batch(&volume, &options);
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        let begun = Instant::now();
        while daemon.show()["destage"]["journal_bytes"] != JOURNAL_BYTES {
            assert!(begun.elapsed() < MINUTE, "the journal is not in use again: {}", daemon.output());
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon.kill9();
        volume.backing = volume.image().to_str().unwrap().to_owned();
        let daemon = volume.start();
        daemon.stop(MINUTE);
        assert!(!volume.journal().exists(), "a clean stop removes the journal");
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }

    /// Nothing is dirty, and a batch lies in the journal that is in the image already: it must not be left beside an image
    /// that is given away as complete.
    fn a_stop_right_after_a_start_leaves_no_batch_behind(io: IoMode) {
        let folder = TempDir::new("journal-stop-early");
        let mut volume = journaled(&folder, io);
        let mut options = load_options(&volume, &folder);
        options.requests = Some(200);
        let daemon = volume.start();
        load::run(&options).unwrap();
        daemon.drain();
        daemon.kill9();
        assert!(complete_batches(&volume.journal()) > 0, "nothing was merged");
        volume.backing = format!("slow:latency=300ms:{}", volume.image().display());
        volume.start().stop(MINUTE);
        assert!(!volume.journal().exists(), "a clean stop removes the journal");
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }

    fn a_stop_while_the_journal_is_replayed_ends_drained(io: IoMode) {
        let folder = TempDir::new("journal-stop");
        let volume = journaled(&folder, io);
        let options = load_options(&volume, &folder);
        killed_with_a_batch(&volume, &options);
        volume.start().stop(MINUTE);
        assert!(!volume.journal().exists(), "a clean stop removes the journal");
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }
}

#[test]
fn a_replay_is_shown_for_what_it_is_until_it_is_done() {
    let folder = TempDir::new("journal-shown");
    let mut volume = journaled(&folder, IoMode::Uring);
    killed_with_a_batch(&volume, &load_options(&volume, &folder));
    volume.backing = format!("slow:iops=60,latency=15ms,depth=1:{}", volume.image().display());
    let daemon = volume.start();
    let (mut states, begun) = (Vec::new(), Instant::now());
    while states.last().is_none_or(|last| last != "ready") {
        assert!(begun.elapsed() < MINUTE, "{states:?}: {}", daemon.output());
        let state = daemon.show()["backing"]["state"].as_str().expect("a word").to_owned();
        if states.last() != Some(&state) {
            states.push(state);
        }
    }
    states.retain(|state| state != "awaiting-lock");
    assert_eq!(states, ["replaying-journal", "ready"]);
}

/// Proves O-3: the marker was put back with the tier, and only the journal knows of the newer one.
#[test]
fn an_older_tier_beside_a_newer_journal_is_refused_untouched() {
    let folder = TempDir::new("journal-older-tier");
    let volume = journaled(&folder, IoMode::Threads);
    let options = load_options(&volume, &folder);
    killed_with_a_batch(&volume, &options);
    let paths = [tier_path(&volume), folder.join("backing.img.forebay")];
    let read_both = || {
        wait_for_late_writes(&paths[0]);
        [0, 1].map(|i| std::fs::read(&paths[i]).unwrap())
    };
    let write_both = |bytes: &[Vec<u8>; 2]| (0..2).for_each(|i| std::fs::write(&paths[i], &bytes[i]).unwrap());
    let older = read_both();
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    daemon.kill9();
    killed_with_a_batch(&volume, &options);

    let newest = read_both();
    let others = || [volume.image(), volume.journal()].map(|path| std::fs::read(path).unwrap());
    let before = others();
    write_both(&older);
    let refusal = volume.expect_refusal();
    refusal.says(&["holds a batch of term", "the tier is of term", "older copy", "--adopt-changed-backing"]);
    let (tier, to) = (paths[0].as_os_str(), folder.join("new.img"));
    let image = volume.image();
    let said = run([OsStr::new("salvage"), tier, "--to".as_ref(), to.as_os_str(), "--base".as_ref(), image.as_ref()]);
    assert!(said.expect_failure().text().contains("older copy") && !to.exists());
    assert!(others() == before && std::fs::read(&paths[0]).unwrap() == older[0], "something was changed");
    write_both(&newest);
    all_there(&volume, &options);
}

/// Proves O-13: a batch is applied to the image that its marker speaks of and to no other one, also where that is accepted.
#[test]
fn a_batch_is_not_replayed_into_another_image() {
    let folder = TempDir::new("journal-other-image");
    let mut volume = journaled(&folder, IoMode::Uring);
    let options = load_options(&volume, &folder);
    killed_with_a_batch(&volume, &options);
    wait_for_late_writes(&volume.image());
    let (image, kept, journal) = (volume.image(), folder.join("kept"), folder.join("kept-journal"));
    std::fs::rename(&image, &kept).unwrap();
    std::fs::rename(folder.sparse("old", SIZE), &image).unwrap();
    volume.arguments.push("--adopt-changed-backing".into());
    let before = std::fs::read(volume.journal()).unwrap();
    volume.expect_refusal().says(&["holds writes", "inode", "salvage", "move it away"]);
    assert!(std::fs::read(&image).unwrap().iter().all(|&byte| byte == 0), "it was written to");
    assert!(std::fs::read(volume.journal()).unwrap() == before && tier_path(&volume).exists(), "something was changed");

    std::fs::rename(volume.journal(), &journal).unwrap();
    volume.start().stop(MINUTE);
    assert!(std::fs::read(&image).unwrap().iter().all(|&byte| byte == 0), "it was written to");
}

#[test]
fn the_way_of_destage_changes_live_and_says_why() {
    let folder = TempDir::new("journal-live");
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Uring);
    volume.destage = "ordered";
    let daemon = volume.start();
    let destage = || daemon.show()["destage"].clone();
    assert_eq!((&destage()["effective"], &destage()["journal_bytes"]), (&"ordered".into(), &0.into()));
    assert!(!volume.journal().exists(), "ordered destage needs no journal");

    daemon.volume_command(["set", "vm1", "--destage", "journaled"]).expect_success();
    assert_eq!(std::fs::metadata(volume.journal()).unwrap().len(), JOURNAL_BYTES + 4096);
    let mut options = load_options(&volume, &folder);
    options.requests = Some(300);
    load::run(&options).unwrap();
    daemon.drain();
    let shown = destage();
    assert_eq!((&shown["effective"], &shown["reason"]), (&"journaled".into(), &"as-requested".into()), "{shown}");
    assert!(daemon.show()["counters"]["journal_batches"].as_u64() > Some(0));

    daemon.volume_command(["set", "vm1", "--destage", "ordered"]).expect_success();
    load::run(&options).unwrap();
    daemon.drain();
    assert_eq!(destage()["effective"], "ordered");
    assert_eq!(complete_batches(&volume.journal()), 0, "an ordered group comes after the journal's erasure");

    daemon.volume_command(["set", "vm1", "--destage", "auto"]).expect_success();
    load::run(&options).unwrap();
    assert_eq!((&destage()["effective"], &destage()["reason"]), (&"journaled".into(), &"small-groups".into()));
    daemon.volume_command(["set", "vm1", "--policy", "through"]).expect_success();
    load::run(&options).unwrap();
    assert_eq!((&destage()["effective"], &destage()["reason"]), (&"ordered".into(), &"policy-through".into()));
    daemon.stop(MINUTE);
    assert!(!volume.journal().exists());
    check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
}

#[test]
fn a_journal_goes_with_its_volume_and_leaves_a_crash_image() {
    let folder = TempDir::new("journal-delete");
    let volume = journaled(&folder, IoMode::Threads);
    let options = load_options(&volume, &folder);
    killed_with_a_batch(&volume, &options);
    let daemon = volume.start();
    let said = daemon.volume_command(["delete", "vm1"]).expect_failure().text();
    assert!(said.contains("that are not in the backing"), "{said}");
    daemon.volume_command(["delete", "vm1", "--discard-dirty"]).expect_success();
    assert!(!volume.journal().exists());
    check::image(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    drop(daemon);
}

#[test]
fn a_deletion_that_finds_its_journal_unfit_removes_nothing_and_is_done_again() {
    let folder = TempDir::new("journal-delete-again");
    let volume = journaled(&folder, IoMode::Uring);
    let mut options = load_options(&volume, &folder);
    options.requests = Some(300);
    let daemon = volume.start();
    load::run(&options).unwrap();
    daemon.drain();
    assert!(complete_batches(&volume.journal()) > 0, "nothing was merged");
    let marker = folder.join("backing.img.forebay");
    let (image, journal) = (std::fs::read(volume.image()).unwrap(), std::fs::read(volume.journal()).unwrap());
    let tier = volume.state().join("tiers/vm1.tier");

    // A journal that cannot be replayed is found out before the tier is touched.
    let mut damaged = journal.clone();
    damaged[20] ^= 1;
    std::fs::write(volume.journal(), &damaged).unwrap();
    let said = daemon.volume_command(["delete", "vm1"]).expect_failure().text();
    assert!(said.contains("first block is damaged"), "{said}");
    assert!(marker.exists() && tier.exists());
    assert_eq!(daemon.show()["phase"], "failed");

    // So is an image that is not the one that the journal belongs to: this one has lost its end.
    std::fs::write(volume.journal(), &journal).unwrap();
    std::fs::File::options().write(true).open(volume.image()).unwrap().set_len(SIZE / 2).unwrap();
    let said = daemon.volume_command(["delete", "vm1", "--discard-dirty"]).expect_failure().text();
    assert!(said.contains("is not known to belong to the image") && said.contains("its size"), "{said}");
    assert!(marker.exists() && volume.journal().exists() && tier.exists());

    std::fs::write(volume.image(), &image).unwrap();
    daemon.volume_command(["delete", "vm1", "--discard-dirty"]).expect_success();
    assert!(!marker.exists() && !volume.journal().exists());
    daemon.volume_command(["show", "vm1"]).expect_failure();
    check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
}

#[test]
fn a_tier_is_salvaged_over_an_image_in_the_middle_of_a_batch() {
    let folder = TempDir::new("journal-salvage");
    let volume = journaled(&folder, IoMode::Threads);
    let options = load_options(&volume, &folder);
    killed_with_a_batch(&volume, &options);
    let (tier, to) = (volume.state().join("tiers/vm1.tier"), folder.join("new.img"));
    let image = volume.image();
    let before = (std::fs::read(&image).unwrap(), std::fs::read(volume.journal()).unwrap());
    run([
        OsStr::new("salvage"),
        tier.as_os_str(),
        "--to".as_ref(),
        to.as_os_str(),
        "--base".as_ref(),
        image.as_os_str(),
    ])
    .expect_success();
    assert!(before == (std::fs::read(&image).unwrap(), std::fs::read(volume.journal()).unwrap()), "only read");
    // Without a loss of power everything acknowledged is in the tier.
    check::image_complete(&History::read(&options.journal).unwrap(), &to).unwrap();
}

/// Proves L-BF-15.
#[test]
fn what_cannot_be_trusted_is_refused_untouched() {
    refuses_what_cannot_be_trusted(Tier::Flash, "back");
}

/// Proves L-BM-15.
#[test]
fn what_cannot_be_trusted_is_refused_with_a_memory_tier() {
    refuses_what_cannot_be_trusted(Tier::Memory, "back");
}

/// Proves L-TM-15, L-TF-15: the batch is of the time before the policy was through.
#[test]
fn what_cannot_be_trusted_is_refused_in_write_through() {
    refuses_what_cannot_be_trusted(Tier::Memory, "through");
    refuses_what_cannot_be_trusted(Tier::Flash, "through");
}

fn refuses_what_cannot_be_trusted(tier: Tier, policy: &'static str) {
    let folder = TempDir::new("journal-refusals");
    let mut volume = journaled(&folder, IoMode::Threads);
    volume.tier = tier;
    let options = load_options(&volume, &folder);
    killed_with_a_batch(&volume, &options);
    volume.policy = policy;
    let path = volume.journal();
    let good = std::fs::read(&path).unwrap();
    let image = std::fs::read(volume.image()).unwrap();
    let refused = |bytes: &[u8], words: &[&str]| {
        std::fs::write(&path, bytes).unwrap();
        volume.expect_refusal().says(words);
        assert!(std::fs::read(&path).unwrap() == bytes && std::fs::read(volume.image()).unwrap() == image, "{words:?}");
    };
    refused(&good[..good.len() - 4096], &["journal", "was made with", "backup"]);
    refused(&[], &["journal"]);
    let changed = |at: usize, with: u8| {
        let mut bytes = good.clone();
        bytes[at] = with;
        bytes
    };
    refused(&changed(8, 2), &["newer version"]);
    refused(&changed(20, !good[20]), &["first block is damaged"]);
    // Another volume's, with a batch: made by a volume of its own.
    let elsewhere = TempDir::new("journal-other");
    let other = journaled(&elsewhere, IoMode::Threads);
    killed_with_a_batch(&other, &load_options(&other, &elsewhere));
    refused(&std::fs::read(other.journal()).unwrap(), &["belongs to volume", "serve that volume once more"]);
    // A flipped bit in each batch makes it incomplete: the tier has all of it, and nothing is lost.
    let mut flipped = good.clone();
    for area in [4096, 4096 + JOURNAL_BYTES as usize / 2] {
        flipped[area + 100] ^= 1;
    }
    std::fs::write(&path, &flipped).unwrap();
    assert_eq!(complete_batches(&path), 0);
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    daemon.stop(MINUTE);
    check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
}

/// Proves L-BM-16, L-BF-16, L-TM-16, L-TF-16: between two batches the image does not need its journal.
#[test]
fn without_tier_and_journal_the_image_is_a_crash_image_between_batches() {
    for tier in [Tier::Memory, Tier::Flash] {
        for policy in ["back", "through"] {
            let folder = TempDir::new("journal-and-tier-lost");
            let mut volume = journaled(&folder, IoMode::Threads);
            (volume.tier, volume.policy) = (tier, policy);
            let mut options = load_options(&volume, &folder);
            options.requests = Some(200);
            let daemon = volume.start();
            load::run(&options).unwrap();
            daemon.drain();
            daemon.kill9();
            let _ = std::fs::remove_file(volume.journal());
            let image = volume.image_after_accepted_loss();
            let history = History::read(&options.journal).unwrap();
            check::image(&history, &image).unwrap();
            check::image_complete(&history, &image).unwrap();
        }
    }
}

/// Proves O-11, L-BF-15: the tier alone is enough.
#[test]
fn a_journal_that_was_deleted_is_not_missed_while_the_tier_is_there() {
    let folder = TempDir::new("journal-deleted");
    let volume = journaled(&folder, IoMode::Threads);
    let options = load_options(&volume, &folder);
    killed_with_a_batch(&volume, &options);
    std::fs::remove_file(volume.journal()).unwrap();
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    daemon.stop(MINUTE);
    check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
}

#[test]
fn without_a_place_beside_it_a_backing_is_destaged_in_order() {
    let folder = TempDir::new("journal-nowhere");
    let disk = folder.sparse("disk", SIZE);
    let server = Nbdkit::start(&folder, ["file", disk.to_str().unwrap()]);
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Uring);
    (volume.backing, volume.size) = (server.uri(), None);
    volume.destage = "journaled";
    volume.expect_refusal().says(&["needs a journal", "NBD export has no place", "auto or ordered"]);
    volume.destage = "auto";
    let daemon = volume.start();
    let mut options = load_options(&volume, &folder);
    options.requests = Some(100);
    load::run(&options).unwrap();
    daemon.drain();
    let shown = daemon.show()["destage"].clone();
    assert_eq!((&shown["effective"], &shown["reason"]), (&"ordered".into(), &"no-journal".into()), "{shown}");
    let said = daemon.volume_command(["set", "vm1", "--destage", "journaled"]).expect_failure().text();
    assert!(said.contains("NBD export has no place"), "{said}");
    daemon.stop(MINUTE);
}
