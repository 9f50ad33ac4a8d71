//! The dashboard in a real browser, against a real daemon under real load; `tests/browser/dashboard.mjs` says what is looked at.
//!
//! The browser is Debian's Chromium, driven by what `npm ci` in `web/` brings. Where one of them is missing the tests skip: the
//! binary needs neither.

use forebay_tests::cluster::{Cluster, HTTP};
use forebay_tests::curl::free_address;
use forebay_tests::harness::{
    Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume, find_tool, require_tool, run_command, skip, workspace,
};
use forebay_tests::hosts::Process;
use forebay_tests::nbd::{Client, Target};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// As web/package.json says.
const NODE_MIN: u32 = 20;
/// Volumes while the cost of the page is measured.
const VOLUMES: u32 = 50;
/// On a machine with two busy cores a browser takes its time.
const PATIENCE: Duration = Duration::from_secs(900);

/// What is not there, if anything is not.
fn missing() -> Option<String> {
    let packages = workspace().join("web/node_modules/esbuild");
    let Some(node) = find_tool("node") else {
        return Some("node is not installed: run scripts/setup.sh --gate".to_owned());
    };
    let mut version = Command::new(node);
    version.arg("--version");
    let version = run_command(PATIENCE, version).stdout;
    let major: u32 = version.trim().trim_start_matches('v').split('.').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    if major < NODE_MIN {
        Some(format!("node is {}, and web/ is built by {NODE_MIN} or later", version.trim()))
    } else if !packages.is_dir() {
        Some(format!("{} is not there: run scripts/setup.sh --gate, or npm ci in web/", packages.display()))
    } else {
        None
    }
}

fn missing_for_a_browser() -> Option<String> {
    let browser =
        || find_tool("chromium").is_none().then(|| "chromium is not installed: run scripts/setup.sh --gate".to_owned());
    missing().or_else(browser)
}

fn node(script: &str) -> Command {
    let mut command = Command::new(require_tool("node"));
    command.arg(workspace().join(script)).current_dir(workspace().join("web"));
    command
}

#[test]
fn what_the_binary_serves_is_what_the_sources_build_to() {
    if let Some(reason) = missing() {
        return skip(&reason);
    }
    let mut check = node("web/build.mjs");
    check.arg("--check");
    run_command(PATIENCE, check).expect_success();
    let types = workspace().join("web/node_modules/.bin/tsc");
    let mut command = Command::new(types);
    command.args(["--noEmit", "--project"]).arg(workspace().join("web"));
    run_command(PATIENCE, command).expect_success();
}

/// A volume on slow storage, with its dashboard on TCP.
struct Site {
    folder: TempDir,
    volume: Volume,
    daemon: Daemon,
}

impl Site {
    fn new(name: &str) -> Site {
        let folder = TempDir::new(name);
        let mut volume = Volume::new(&folder, 64 * MIB, Tier::Flash, IoMode::Uring);
        volume.backing = format!("slow:iops=200,latency=4ms:{}", volume.backing);
        volume.http = free_address();
        let daemon = volume.start();
        Site { folder, volume, daemon }
    }

    /// Another volume, whose backing takes no write.
    fn add_failing(&self) {
        let backing = format!("faulty:write_error=1:{}", self.folder.join("failing.img").display());
        self.daemon
            .volume_command([
                "create",
                "failing",
                "--backing",
                &backing,
                "--size",
                "16M",
                "--create",
                "--tier-size",
                "64M",
            ])
            .expect_success();
        let uri = format!("nbd+unix:///failing?socket={}", self.volume.socket().display());
        let mut client = Client::connect(&Target::parse(&uri).expect("a plain address")).expect("it is served");
        client.write(0, &[1; 4096], 0).expect("the connection lives").expect("the tier takes it");
        client.flush().expect("the connection lives").expect("the tier takes it");
    }

    /// So many more volumes, small ones in memory. Nobody uses them, but each second has its figures of each.
    fn add(&self, volumes: u32) {
        for number in 0..volumes {
            let (name, image) = (format!("more-{number:02}"), self.folder.join(&format!("more-{number}.img")));
            let tier = ["--tier", "memory", "--volatile", "--tier-size", "8M", "--size", "4M", "--create"];
            let words = ["create", &name, "--backing", image.to_str().expect("a plain path")];
            self.daemon.volume_command(words.into_iter().chain(tier)).expect_success();
        }
    }

    /// Reads and writes until it is dropped.
    fn load(&self) -> Process {
        let mut command = Command::new(require_tool("fio"));
        command.args([
            "--name=load",
            "--ioengine=nbd",
            "--rw=randrw",
            "--rwmixread=40",
            "--bsrange=4k-32k",
            "--iodepth=4",
        ]);
        command.args(["--thread=1", "--time_based=1", "--rate_iops=300", "--size=32M", "--output=/dev/null"]);
        command.arg(format!("--uri={}", self.volume.uri())).arg(format!("--runtime={}", PATIENCE.as_secs()));
        command.current_dir(self.folder.path());
        Process::spawn(command)
    }

    fn browse(&self, script: &str) {
        let mut command = browser(script, &self.folder, &self.volume.http, &self.volume.state(), VOLUME_NAME);
        command.env("FOREBAY_PID", self.daemon.pid().to_string()).env("FOREBAY_VOLUMES", VOLUMES.to_string());
        every_look_is_had(command);
    }
}

/// A script of the browser, at a daemon with this address and state. Screenshots go where `FOREBAY_SCREENSHOTS` says.
fn browser(script: &str, folder: &TempDir, address: &str, state: &Path, volume: &str) -> Command {
    let token = std::fs::read_to_string(state.join("token")).expect("the daemon has made it");
    let mut command = node(script);
    command.env("FOREBAY_URL", format!("http://{address}")).env("FOREBAY_TOKEN", token.trim());
    command.env("FOREBAY_VOLUME", volume);
    command.env("FOREBAY_CHROMIUM", require_tool("chromium")).env("FOREBAY_PROFILE", folder.join("profile"));
    command
}

fn every_look_is_had(command: Command) {
    let output = run_command(PATIENCE, command).expect_success().stdout;
    println!("{output}");
    assert!(output.contains("every look was had"), "the script ended early: {output}");
}

/// A promise of `tests/browser/dashboard.mjs` each; all in one life of one browser, which is what takes the time.
#[test]
fn people_see_and_change_their_volumes_in_a_browser() {
    if let Some(reason) = missing_for_a_browser() {
        return skip(&reason);
    }
    let mut site = Site::new("dashboard");
    site.add_failing();
    let load = site.load();
    site.browse("tests/browser/dashboard.mjs");
    drop(load);
    site.daemon.assert_healthy();
}

/// A promise of `tests/browser/doctor.mjs` each.
#[test]
fn people_see_what_bounds_the_host_in_a_browser() {
    if let Some(reason) = missing_for_a_browser() {
        return skip(&reason);
    }
    let mut site = Site::new("dashboard-doctor");
    site.browse("tests/browser/doctor.mjs");
    site.daemon.assert_healthy();
}

#[test]
fn the_page_takes_little_of_a_core_with_fifty_volumes_live() {
    if let Some(reason) = missing_for_a_browser() {
        return skip(&reason);
    }
    let mut site = Site::new("dashboard-cost");
    site.add(VOLUMES - 1);
    let load = site.load();
    site.browse("tests/browser/cost.mjs");
    drop(load);
    site.daemon.assert_healthy();
}

#[test]
fn a_killed_peer_is_shown_with_its_reason() {
    if let Some(reason) = missing_for_a_browser() {
        return skip(&reason);
    }
    let Some(cluster) = Cluster::new("dashboard-peer", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let mut command = browser("tests/browser/peer.mjs", &cluster.folder, HTTP, &cluster.place(0, "state"), "vm1");
    command.env("FOREBAY_PEER_PID", cluster.pid(1).to_string());
    cluster.host(0).namespace().place(&mut command);
    every_look_is_had(command);
}
