//! `forebay report` against a daemon that was loaded: the figures are those of the load, and the page needs nothing else.

use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume};
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const WRITES: u64 = 2000;
const READS: u64 = 500;

fn report(daemon: &Daemon) -> Value {
    let output = daemon.command(["report", "--window", "1h", "--json"]).expect_success();
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.stdout))
}

#[test]
fn a_report_tells_what_was_kept_from_the_slow_storage() {
    let folder = TempDir::new("report");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let plain = volume.backing.clone();
    // So slow that little of the load gets there, also where a busy machine makes that last half a minute.
    volume.backing = format!("slow:iops=2,latency=500ms:{plain}");
    let daemon = volume.start();
    let begun = Instant::now();
    while report(&daemon)["volumes"][0]["from"].is_null() {
        assert!(begun.elapsed() < MINUTE, "the history does not begin");
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut client = Client::connect(&volume.target()).unwrap();
    let mut block = [0; 4096];
    for i in 0..WRITES {
        client.write(i % 16 * 4096, &[i as u8; 4096], 0).unwrap().unwrap();
    }
    for i in 0..READS {
        client.read(i % 20 * 4096, &mut block).unwrap().unwrap();
    }
    client.flush().unwrap().unwrap();
    daemon.drain();

    let begun = Instant::now();
    let found = loop {
        let found = report(&daemon);
        if found["totals"]["writes"] == WRITES && found["totals"]["reads"] == READS {
            break found;
        }
        assert!(begun.elapsed() < MINUTE, "the load is not in the report: {found}");
        std::thread::sleep(Duration::from_millis(500));
    };
    let totals = &found["totals"];
    assert_eq!(totals["write_bytes"], WRITES * 4096, "{totals}");
    let destaged = totals["backing_writes"].as_u64().unwrap();
    assert!((1..200).contains(&destaged), "sixteen blocks were written over and over: {totals}");
    assert_eq!(totals["writes_kept"], WRITES - destaged);
    assert!(totals["write_bytes_kept"].as_u64().unwrap() > WRITES * 4096 / 2, "{totals}");
    let one = &found["volumes"][0];
    assert_eq!(one["name"], VOLUME_NAME);
    let p50 = |side: &str, place: &str| {
        let rows = one["latency"].as_array().unwrap();
        let row = rows.iter().find(|row| row["side"] == side && row["place"] == place).unwrap();
        row["p50_us"].as_f64().unwrap_or_else(|| panic!("{row}"))
    };
    assert!(p50("write", "backing") >= 500_000.0, "{one}");
    assert!(p50("write", "client") < p50("write", "backing"), "{one}");

    let text = daemon.command(["report", "--window", "1h"]).expect_success().stdout;
    assert!(text.contains(&format!("{WRITES} ({:.1}M)", (WRITES * 4096) as f64 / MIB as f64)), "{text}");
    assert!(text.contains("write client") && text.contains("incidents"), "{text}");

    let page = folder.join("report.html");
    daemon.command(["report", "--window", "1h", "--html", page.to_str().unwrap()]).expect_success();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(VOLUME_NAME) && page.contains("<svg") && page.ends_with("</html>\n"), "{page}");
    for none in ["http:", "https:", "<script", "src=", "href="] {
        assert!(!page.contains(none), "{none} in {page}");
    }
    daemon.stop(MINUTE);
}

#[test]
fn a_report_that_cannot_be_made_says_why() {
    let folder = TempDir::new("report-bad");
    let daemon = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Threads).start();
    let refused = |arguments: &[&str]| daemon.command([&["report"], arguments].concat()).expect_failure().text();
    assert!(refused(&["--window", "10x"]).contains("such as"), "{}", refused(&["--window", "10x"]));
    assert!(refused(&["--window", "1h&limit=1"]).contains("such as"));
    let nowhere = folder.join("absent/report.html");
    let said = refused(&["--html", nowhere.to_str().unwrap()]);
    assert!(said.contains("absent/report.html") && said.contains("No such file"), "{said}");
    // Right after a start there is nothing to tell, and that is told.
    let text = daemon.command(["report"]).expect_success().stdout;
    assert!(text.contains(VOLUME_NAME) && text.contains("incidents"), "{text}");
    daemon.stop(MINUTE);
}
