//! A config file speaks of several things, and a machine boots with it unattended: what is wrong with one of them keeps none of the
//! others from being served, and is told.

use forebay_tests::curl::free_address;
use forebay_tests::harness::{TempDir, VOLUME_NAME, die_with_the_test, forebay, run_command, wait_within};
use forebay_tests::locks::UnseenLock;
use forebay_tests::nbd::{Address, Client, Target};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// A daemon with a config file in a folder of its own.
struct Site {
    folder: TempDir,
    child: Option<Child>,
}

impl Site {
    fn new(name: &str) -> Site {
        Site { folder: TempDir::new(name), child: None }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("a plain path").to_owned()
    }

    /// The part of a config that names a volume whose image is `NAME.img`.
    fn volume(&self, name: &str, more: &str) -> String {
        let image = self.path(&format!("{name}.img"));
        format!("[[volume]]\nname = \"{name}\"\nbacking = \"{image}\"\ntier_size = \"8M\"\n{more}\n")
    }

    fn make_image(&self, name: &str) {
        File::create(self.path(&format!("{name}.img"))).unwrap().set_len(16 * MIB).unwrap();
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Starts the daemon, and waits until it says that it is up.
    #[track_caller]
    fn start(&mut self, http: &str, config: &str) {
        self.begin(http, config);
        // The last of the lines by which it says where everything is.
        self.until("the daemon is up", |site| site.output().contains("\nqemu "));
    }

    /// Starts the daemon.
    fn begin(&mut self, http: &str, config: &str) {
        let (file, log) = (self.path("forebay.toml"), File::create(self.path("log")).unwrap());
        std::fs::write(&file, format!("[listen]\nhttp = \"{http}\"\n{config}")).unwrap();
        let mut command = Command::new(forebay());
        command.args(["serve", "--config", &file, "--state", &self.path("state"), "--api", &self.path("api.sock")]);
        command.args(["--nbd", &format!("unix:{}", self.path("nbd.sock"))]);
        command.env("XDG_RUNTIME_DIR", self.folder.path()).env("XDG_STATE_HOME", self.folder.path());
        let command = die_with_the_test(&mut command).stdin(Stdio::null());
        command.env("NOTIFY_SOCKET", self.folder.join("notify.sock"));
        self.child = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    #[track_caller]
    fn until(&mut self, what: &str, done: impl Fn(&Site) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().unwrap());
            assert!(ended.is_none(), "{what}: the daemon has ended with {ended:?}: {}", self.output());
            assert!(begun.elapsed() < MINUTE, "waited a minute in vain: {what}: {}", self.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn told(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments, &["--json"]).expect_success();
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.stdout))
    }

    fn run(&self, arguments: &[&str], more: &[&str]) -> forebay_tests::harness::Output {
        let mut command = Command::new(forebay());
        command.args(arguments).args(more).args(["--api", &self.path("api.sock")]);
        run_command(MINUTE, command)
    }

    /// Whether clients find an export of this name; without a name, the default one.
    fn serves(&self, export: &str) -> bool {
        let address = Address::Unix(self.path("nbd.sock").into());
        let Ok(mut client) = Client::connect(&Target { address, export: export.to_owned() }) else { return false };
        client.write(0, &[7; 4096], 0).unwrap().unwrap();
        client.flush().unwrap().unwrap();
        true
    }

    #[track_caller]
    fn stop(&mut self) {
        assert!(self.end(), "{}", self.output());
    }

    /// Stops the daemon: whether it says that every image is complete.
    #[track_caller]
    fn end(&mut self) -> bool {
        let mut child = self.child.take().expect("it runs");
        // SAFETY: kill takes two integers; the child has not been waited for, so the id is still its own.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        wait_within(&mut child, MINUTE / 2).expect("it ends, whatever does not answer").success()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn phases(list: &Value) -> Vec<(&str, &str)> {
    let volumes = list.as_array().expect("a list").iter();
    volumes.map(|v| (v["name"].as_str().expect("a name"), v["phase"].as_str().expect("a phase"))).collect()
}

#[test]
fn a_volume_of_the_config_whose_image_is_missing_leaves_the_others_served() {
    let mut site = Site::new("config-missing");
    for name in ["second", "third"] {
        site.make_image(name);
    }
    let config = ["first", "second", "third"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    assert!(site.serves("second") && site.serves("third"), "{}", site.output());
    // Who names no export means the first volume, and must not get another one.
    assert!(!site.serves("first") && !site.serves(""), "{}", site.output());
    let list = site.told(&["volume", "list"]);
    assert_eq!(phases(&list), [("first", "failed"), ("second", "serving"), ("third", "serving")]);
    let problem = list[0]["problem"].as_str().unwrap();
    assert!(problem.contains("first.img: there is no such file"), "{problem}");
    let said = site.output();
    assert_eq!(said.matches("the other volumes are served").count(), 1, "{said}");
    assert!(said.contains("first.img: there is no such file"), "{said}");

    // With what was wrong put right it is opened by itself, and is the default export.
    assert!(problem.contains("it is tried again"), "{problem}");
    let image = site.path("first.img");
    site.make_image("first");
    site.until("the first volume is served", |site| site.told(&["volume", "list"])[0]["phase"] == "serving");
    let served = site.told(&["volume", "list"]);
    assert_eq!(served[0]["volume"], list[0]["volume"], "it is the one that was shown");
    assert!(served[0]["problem"].is_null(), "the reason has outlasted its cause: {served:#}");
    assert!(site.serves("first") && site.serves(""));
    site.stop();

    // A volume that has served is shown with its record.
    std::fs::rename(&image, site.path("aside")).unwrap();
    site.start("off", &config);
    assert!(site.serves("second") && !site.serves("first") && !site.serves(""));
    let list = site.told(&["volume", "list"]);
    assert!(list[0]["problem"].as_str().unwrap().contains("mount its file system or put the image back"), "{list:#}");
    site.stop();
    std::fs::rename(site.path("aside"), &image).unwrap();
    site.start("off", &config);
    assert!(site.serves("first") && site.serves("second") && site.serves(""));
    site.stop();
}

#[test]
fn a_daemon_none_of_whose_configured_volumes_can_be_opened_answers_and_forgets_them_on_request() {
    let mut site = Site::new("config-none");
    let flash = site.volume(VOLUME_NAME, "");
    let memory = site.volume("memory", "tier = \"memory\"\nvolatile = true");
    site.start("off", &[flash, memory].concat());
    assert_eq!(phases(&site.told(&["volume", "list"])), [("memory", "failed"), (VOLUME_NAME, "failed")]);
    let refused = site.run(&["volume", "drain", VOLUME_NAME], &[]).expect_failure().text();
    assert!(refused.contains("does not run") && refused.contains("there is no such file"), "{refused}");
    // There is nothing but the list to be removed from, and the default export is anybody's then.
    for name in [VOLUME_NAME, "memory"] {
        site.run(&["volume", "delete", name], &[]).expect_success();
    }
    assert_eq!(site.told(&["volume", "list"]), Value::Array(Vec::new()));
    assert_eq!(std::fs::read_dir(site.folder.join("state/volumes")).unwrap().count(), 0);
    site.make_image("other");
    let image = site.path("other.img");
    site.run(&["volume", "create", "other", "--tier-size", "8M", "--backing", &image], &[]).expect_success();
    assert!(site.serves("other") && site.serves(""));
    site.stop();
}

#[test]
fn an_http_address_that_is_taken_leaves_the_volumes_served_and_is_had_later() {
    let mut site = Site::new("config-http");
    site.make_image(VOLUME_NAME);
    let address = free_address();
    let taken = TcpListener::bind(&address).unwrap();
    let config = site.volume(VOLUME_NAME, "");
    site.start(&address, &config);
    assert!(site.serves(VOLUME_NAME), "{}", site.output());
    let said = site.output();
    assert!(said.contains(&format!("cannot listen for HTTP on {address}: Address already in use")), "{said}");
    assert!(said.contains(&format!("page     none while {address} cannot be had")), "{said}");
    assert!(site.told(&["status"])["page"].is_null());
    drop(taken);
    let page = format!("http://{address}/");
    site.until("HTTP is served", |site| site.told(&["status"])["page"] == page.as_str());
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /v1/volumes HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    site.stop();
}

/// A tier that is locked by a process that is gone is awaited for a minute, as a backing that does not answer is.
#[test]
fn a_volume_that_is_slow_to_open_delays_no_other_one_and_is_waited_for_by_name() {
    let mut site = Site::new("config-slow");
    for name in ["first", "second"] {
        site.make_image(name);
    }
    let config = ["first", "second"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    assert!(site.serves("first") && site.serves("second"));
    site.stop();

    let heard = UnixDatagram::bind(site.folder.join("notify.sock")).unwrap();
    heard.set_read_timeout(Some(MINUTE)).unwrap();
    let hear = || {
        let mut buffer = [0; 4096];
        let length = heard.recv(&mut buffer).expect("a word to systemd");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let slow = UnseenLock::hold(&site.folder.join("state/tiers/first.tier"));
    site.begin("off", &config);
    site.until("the other volume is served", |site| site.serves("second"));
    let list = site.told(&["volume", "list"]);
    assert_eq!(phases(&list), [("first", "waiting"), ("second", "serving")]);
    assert!(list[0]["problem"].as_str().unwrap().contains("being opened"), "{list:#}");
    let told = loop {
        let told = hear();
        if told.contains("waiting for volume first to open") {
            break told;
        }
    };
    assert!(told.contains("EXTEND_TIMEOUT_USEC=") && !told.contains("READY"), "{told}");
    let deleting = site.run(&["volume", "delete", "first"], &[]).expect_failure().text();
    assert!(deleting.contains("is being opened"), "{deleting}");

    // Who asks for it, by its name or as the default one, waits, and gets no other volume.
    drop(slow);
    assert!(site.serves("first") && site.serves(""), "{}", site.output());
    let ready = loop {
        let told = hear();
        if told.contains("READY=1") {
            break told;
        }
    };
    assert!(ready.contains("STATUS=the volumes are served"), "{ready}");
    assert!(phases(&site.told(&["volume", "list"])).iter().all(|(_, phase)| *phase == "serving"));
    site.stop();
}

#[test]
fn a_daemon_that_is_stopped_while_a_volume_is_slow_to_open_ends_and_keeps_what_was_acknowledged() {
    let mut site = Site::new("config-slow-stop");
    for name in ["first", "second"] {
        site.make_image(name);
    }
    let config = ["first", "second"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    site.stop();
    let slow = UnseenLock::hold(&site.folder.join("state/tiers/first.tier"));
    site.begin("off", &config);
    site.until("the other volume is served", |site| site.serves("second"));
    let complete = site.end();
    assert!(!complete && site.output().contains("first: it was still being opened"), "{}", site.output());
    drop(slow);
    assert_eq!(std::fs::read(site.path("second.img")).unwrap()[..4096], [7; 4096]);
    site.start("off", &config);
    assert!(site.serves("first") && site.serves("second"));
    site.stop();
}

#[test]
fn a_volume_whose_record_cannot_be_read_is_shown_keeps_what_it_has_and_is_opened_when_that_is_repaired() {
    let mut site = Site::new("config-record");
    for name in ["first", "second"] {
        site.make_image(name);
    }
    let config = ["first", "second"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    let before = site.told(&["volume", "list"]);
    assert!(site.serves("first"));
    site.stop();

    let (record, tier) = (site.folder.join("state/volumes/first.toml"), site.folder.join("state/tiers/first.tier"));
    let text = std::fs::read(&record).unwrap();
    std::fs::write(&record, "torn").unwrap();
    site.start("off", &config);
    assert!(site.serves("second") && !site.serves(""), "{}", site.output());
    let list = site.told(&["volume", "list"]);
    assert_eq!(phases(&list), [("first", "failed"), ("second", "serving")]);
    assert!(list[0]["problem"].as_str().unwrap().contains("first.toml"), "{list:#}");
    for more in [&[][..], &["--discard-dirty"]] {
        let refused = site.run(&["volume", "delete", "first"], more).expect_failure().text();
        assert!(refused.contains("nothing of it is removed"), "{refused}");
    }
    assert!(tier.exists() && record.exists());

    std::fs::write(&record, text).unwrap();
    site.until("the first volume is served", |site| site.told(&["volume", "list"])[0]["phase"] == "serving");
    assert_eq!(site.told(&["volume", "list"])[0]["volume"], before[0]["volume"]);
    assert!(site.serves("first") && site.serves(""));
    site.stop();
}

#[test]
fn an_image_is_not_told_as_complete_whose_volume_could_not_be_opened_and_has_writes() {
    let mut site = Site::new("config-incomplete");
    site.make_image("first");
    let config = site.volume("first", "");
    site.start("off", &config);
    assert!(site.serves("first"));
    let mut child = site.child.take().expect("it runs");
    child.kill().unwrap();
    child.wait().unwrap();
    let image = site.path("first.img");
    std::fs::rename(&image, site.path("aside")).unwrap();
    site.start("off", &config);
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed")]);
    assert!(!site.end() && site.output().contains("first: it could not be opened"), "{}", site.output());

    std::fs::rename(site.path("aside"), &image).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"));
    site.stop();
    std::fs::rename(&image, site.path("aside")).unwrap();
    site.start("off", &config);
    site.stop();
}
