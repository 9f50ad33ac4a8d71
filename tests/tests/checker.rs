//! The checkers themselves, against a server that is known to be honest (nbdkit) and against disks that lie: a proof
//! that cannot fail proves nothing.

use forebay_tests::harness::{Nbdkit, TempDir, require_tool, run_command};
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use std::process::Command;
use std::time::Duration;

const SIZE: u64 = 16 << 20;

#[test]
fn an_honest_disk_passes_every_check() {
    let folder = TempDir::new("honest");
    let image = folder.sparse("disk", SIZE);
    let server = Nbdkit::start(&folder, ["file", image.to_str().unwrap()]);
    let mut options = LoadOptions::new(server.target(), folder.join("journal"), 0..SIZE);
    options.requests = Some(2000);
    let Ended::Finished(totals) = load::run(&options).unwrap() else { panic!("nbdkit hung up") };
    assert_eq!(totals.issued, totals.acknowledged);
    assert!(totals.barriers > 50, "{totals:?}");
    let history = History::read(&options.journal).unwrap();
    let verdict = check::volume_after_kill(&history, &server.target()).unwrap();
    assert!(verdict.written > 5000, "{verdict:?}");
    check::volume_after_power_loss(&history, &server.target(), None).unwrap();
    let groups = check::image(&history, &image).unwrap().groups.unwrap();
    assert_eq!(groups.1, groups.2, "the newest group explains it");
}

#[test]
fn a_server_killed_under_load_leaves_what_it_acknowledged() {
    let folder = TempDir::new("killed");
    let image = folder.sparse("disk", SIZE);
    for round in 0..3 {
        let server = Nbdkit::start(&folder, ["file", image.to_str().unwrap()]);
        let mut options = LoadOptions::new(server.target(), folder.join("journal"), 0..SIZE);
        options.connections = 2;
        options.time = Some(Duration::from_secs(20));
        let ended = std::thread::scope(|scope| {
            let before = load::journal_bytes(&options.journal);
            let load = scope.spawn(|| load::run(&options));
            load::wait_until_under_way(&options.journal, before);
            std::thread::sleep(Duration::from_millis(150));
            server.kill9();
            load.join().unwrap().unwrap()
        });
        assert!(matches!(ended, Ended::ConnectionLost(_)), "round {round}: {ended:?}");
        let server = Nbdkit::start(&folder, ["file", image.to_str().unwrap()]);
        check::settle_after_kill(&options.journal, &server.target()).unwrap();
        check::image(&History::read(&options.journal).unwrap(), &image).unwrap();
    }
}

#[test]
fn concurrent_barriers_are_counted_but_no_image_is_judged_by_them() {
    let folder = TempDir::new("concurrent");
    let image = folder.sparse("disk", SIZE);
    let server = Nbdkit::start(&folder, ["file", image.to_str().unwrap()]);
    let mut options = LoadOptions::new(server.target(), folder.join("journal"), 0..SIZE);
    options.connections = 4;
    options.exact_groups = false;
    options.requests = Some(2000);
    load::run(&options).unwrap();
    let history = History::read(&options.journal).unwrap();
    check::volume_after_power_loss(&history, &server.target(), None).unwrap();
    assert!(check::image(&history, &image).unwrap_err().contains("exact groups"));
}

/// A disk that forgets: an old copy of the image is put back after more was acknowledged and flushed.
#[test]
fn a_disk_that_went_back_is_caught_after_kill_and_after_power_loss() {
    let folder = TempDir::new("forgetful");
    let image = folder.sparse("disk", SIZE);
    let old = folder.join("old");
    let mut options = LoadOptions::new(Nbdkit::start(&folder, ["null"]).target(), folder.join("journal"), 0..SIZE);
    for step in 0..2 {
        let server = Nbdkit::start(&folder, ["file", image.to_str().unwrap()]);
        options.target = server.target();
        options.requests = Some(300);
        load::run(&options).unwrap();
        if step == 0 {
            std::fs::copy(&image, &old).unwrap();
        }
    }
    let server = Nbdkit::start(&folder, ["file", old.to_str().unwrap()]);
    let history = History::read(&options.journal).unwrap();
    let message = check::volume_after_kill(&history, &server.target()).unwrap_err();
    assert!(message.contains("The first: the sector at byte"), "{message}");
    check::volume_after_power_loss(&history, &server.target(), None).unwrap_err();
    // Alone, the old image is a legal crash image; with every other new sector in it, it is not.
    check::image(&history, &old).unwrap();
    let new = std::fs::read(&image).unwrap();
    let mut torn = std::fs::read(&old).unwrap();
    let differing: Vec<usize> = (0..torn.len()).step_by(512).filter(|&o| new[o..o + 512] != torn[o..o + 512]).collect();
    assert!(differing.len() > 100, "the second load changed {} sectors", differing.len());
    for &offset in differing.iter().step_by(2) {
        torn[offset..offset + 512].copy_from_slice(&new[offset..offset + 512]);
    }
    std::fs::write(&old, &torn).unwrap();
    check::image(&history, &old).expect_err("sectors of many groups mixed with an old image are no crash image");
}

/// nbdkit's `null` plugin acknowledges everything and keeps nothing.
#[test]
fn a_disk_that_keeps_nothing_is_caught() {
    let folder = TempDir::new("null");
    let server = Nbdkit::start(&folder, ["null", &format!("size={SIZE}")]);
    let mut options = LoadOptions::new(server.target(), folder.join("journal"), 0..SIZE);
    options.requests = Some(1000);
    load::run(&options).unwrap();
    let history = History::read(&options.journal).unwrap();
    check::volume_after_kill(&history, &server.target()).unwrap_err();
    check::volume_after_power_loss(&history, &server.target(), None).unwrap_err();
}

#[test]
fn the_pattern_tool_ends_with_the_codes_it_documents() {
    let folder = TempDir::new("tool");
    let image = folder.sparse("disk", SIZE);
    let server = Nbdkit::start(&folder, ["file", image.to_str().unwrap()]);
    let journal = folder.join("journal");
    let pattern = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pattern"));
        command.args(arguments);
        run_command(Duration::from_secs(30), command)
    };
    let (uri, journal) = (server.uri(), journal.to_str().unwrap());
    pattern(&["write", "--uri", &uri, "--journal", journal, "--requests", "200"]).expect_success();
    pattern(&["verify", "--uri", &uri, "--journal", journal, "--after", "kill"]).expect_success();
    pattern(&["verify", "--uri", &uri, "--journal", journal, "--after", "power"]).expect_success();
    let verify_image = ["verify-image", image.to_str().unwrap(), "--journal", journal, "--after", "all-logs-lost"];
    assert!(pattern(&verify_image).expect_success().stdout.contains("explained by barrier"));
    assert_eq!(pattern(&["write", "--uri", "wrong"]).status.code(), Some(1));
    assert_eq!(pattern(&["write"]).status.code(), Some(2));
    // One sector overwritten behind its back.
    run_command(Duration::from_secs(10), {
        let mut command = Command::new(require_tool("qemu-io"));
        command.args(["-f", "raw", "-c", "write -P 0x55 0 1M", &uri]);
        command
    })
    .expect_success();
    let caught = pattern(&["verify", "--uri", &uri, "--journal", journal, "--after", "kill"]);
    assert_eq!(caught.status.code(), Some(1), "{}", caught.describe());
    assert!(caught.stderr.contains("neither zeros nor a whole pattern sector"), "{}", caught.describe());
}
