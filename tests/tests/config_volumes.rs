//! A config file speaks of several things, and a machine boots with it unattended: what is wrong with one of them keeps none of the
//! others from being served, and is told.

use forebay_tests::curl::free_address;
use forebay_tests::harness::{TempDir, VOLUME_NAME, die_with_the_test, forebay, run_command, skip, wait_within};
use forebay_tests::kernel::{Loop, no_fuse_or_loop};
use forebay_tests::nbd::{Address, Client, Target};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
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
        let (file, log) = (self.path("forebay.toml"), File::create(self.path("log")).unwrap());
        std::fs::write(&file, format!("[listen]\nhttp = \"{http}\"\n{config}")).unwrap();
        let mut command = Command::new(forebay());
        command.args(["serve", "--config", &file, "--state", &self.path("state"), "--api", &self.path("api.sock")]);
        command.args(["--nbd", &format!("unix:{}", self.path("nbd.sock"))]);
        command.env("XDG_RUNTIME_DIR", self.folder.path()).env("XDG_STATE_HOME", self.folder.path());
        let command = die_with_the_test(&mut command).stdin(Stdio::null());
        self.child = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        // The last of the lines by which it says where everything is.
        self.until("the daemon is up", |site| site.output().contains("\nqemu "));
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
        wait_within(&mut child, MINUTE).expect("it ends, whatever does not answer").success()
    }

    fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
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

    // Made with what was wrong put right, it is the default export.
    let (image, create) = (site.path("first.img"), ["volume", "create", "first", "--tier-size", "8M", "--backing"]);
    site.make_image("first");
    assert_eq!(
        site.told(&[&create[..], &[&image]].concat())["volume"],
        list[0]["volume"],
        "it is the one that was shown"
    );
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
    let state = site.told(&["status"]);
    let why = format!("cannot listen for HTTP on {address}: Address already in use");
    assert!(state["page"].is_null() && state["no_page"].as_str().unwrap().contains(&why), "{state:#}");
    let shown = site.run(&["status"], &[]).expect_success().stdout;
    assert!(shown.contains(&format!("page     none: {why}")) && shown.contains("tried again"), "{shown}");
    drop(taken);
    let page = format!("http://{address}/");
    site.until("HTTP is served", |site| site.told(&["status"])["page"] == page.as_str());
    let state = site.told(&["status"]);
    assert!(state["no_page"].is_null(), "the reason has outlasted its cause: {state:#}");
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET /v1/volumes HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    site.stop();
}

#[test]
fn a_volume_whose_record_cannot_be_read_is_shown_and_counted_and_keeps_what_it_has() {
    let mut site = Site::new("config-record");
    for name in ["first", "second", "third"] {
        site.make_image(name);
    }
    // The last one is in the state folder alone.
    let config = ["first", "second"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    let image = site.path("third.img");
    site.run(&["volume", "create", "third", "--tier-size", "8M", "--backing", &image], &[]).expect_success();
    let before = site.told(&["volume", "list"]);
    assert!(site.serves("first") && site.serves("third"));
    site.kill();

    let place = |what: String| site.folder.join(&what);
    let torn = ["first", "third"]
        .map(|name| (place(format!("state/volumes/{name}.toml")), place(format!("state/tiers/{name}.tier"))));
    let texts = torn.each_ref().map(|(record, _)| std::fs::read(record).unwrap());
    let tiers = torn.each_ref().map(|(_, tier)| std::fs::read(tier).unwrap());
    for (record, _) in &torn {
        std::fs::write(record, "torn").unwrap();
    }
    site.start("off", &config);
    assert!(site.serves("second") && !site.serves("first") && !site.serves(""), "{}", site.output());
    let list = site.told(&["volume", "list"]);
    assert_eq!(phases(&list), [("first", "failed"), ("second", "serving"), ("third", "failed")]);
    for (at, name) in [(0, "first"), (2, "third")] {
        let problem = list[at]["problem"].as_str().unwrap();
        assert!(problem.contains(&format!("{name}.toml")), "{problem}");
        for more in [&[][..], &["--discard-dirty"]] {
            let refused = site.run(&["volume", "delete", name], more).expect_failure().text();
            assert!(refused.contains("nothing of it is removed"), "{refused}");
        }
        let create = ["volume", "create", name, "--tier-size", "8M", "--backing", &image];
        let refused = site.run(&create, &[]).expect_failure().text();
        assert!(refused.contains("has that name already"), "{refused}");
    }
    assert!(!site.end(), "writes in their tiers are counted: {}", site.output());
    for name in ["first", "third"] {
        assert!(site.output().contains(&format!("{name}: its record cannot be read")), "{}", site.output());
    }
    assert!(!site.output().contains("every image is complete"), "{}", site.output());

    for (((record, tier), text), held) in torn.iter().zip(texts).zip(tiers) {
        assert!(std::fs::read(tier).unwrap() == held, "the tier is as it was left");
        assert_eq!(std::fs::read(record).unwrap(), b"torn");
        std::fs::write(record, text).unwrap();
    }
    site.start("off", &config);
    let list = site.told(&["volume", "list"]);
    for at in 0..3 {
        assert_eq!((&list[at]["volume"], &list[at]["phase"]), (&before[at]["volume"], &"serving".into()));
    }
    site.stop();
    assert_eq!(std::fs::read(site.path("first.img")).unwrap()[..4096], [7; 4096]);
    assert_eq!(std::fs::read(site.path("third.img")).unwrap()[..4096], [7; 4096]);
}

#[test]
fn an_image_is_not_told_as_complete_whose_volume_could_not_be_opened_and_has_writes() {
    let mut site = Site::new("config-incomplete");
    for name in ["first", "second"] {
        site.make_image(name);
    }
    let config = ["first", "second"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    assert!(site.serves("first"));
    site.kill();
    let image = site.path("first.img");
    std::fs::rename(&image, site.path("aside")).unwrap();
    site.start("off", &config);
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed"), ("second", "serving")]);
    assert!(!site.end(), "{}", site.output());
    let said = site.output();
    assert!(said.contains("first: it could not be opened, and its tier may hold writes"), "{said}");
    assert!(!said.contains("every image is complete") && !said.contains("second: "), "{said}");

    // Once its tier was left empty nothing is missing in its image, wherever that is.
    std::fs::rename(site.path("aside"), &image).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"));
    site.stop();
    std::fs::rename(&image, site.path("aside")).unwrap();
    site.start("off", &config);
    site.stop();
    assert!(site.output().contains("every image is complete"), "{}", site.output());
}

/// What lies under a disk that is not mounted: an older copy of the tier, which was left empty.
#[test]
fn an_older_copy_of_a_tier_that_was_left_empty_does_not_make_an_image_complete() {
    let mut site = Site::new("config-older");
    for name in ["first", "second"] {
        site.make_image(name);
    }
    let config = ["first", "second"].map(|name| site.volume(name, "")).concat();
    site.start("off", &config);
    assert!(site.serves("first"));
    site.stop();
    let (tier, older, newest) = (site.path("state/tiers/first.tier"), site.path("older"), site.path("newest"));
    std::fs::copy(&tier, &older).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"));
    site.kill();
    std::fs::rename(&tier, &newest).unwrap();
    std::fs::copy(&older, &tier).unwrap();

    let marker = site.path("first.img.forebay");
    let text = std::fs::read_to_string(&marker).unwrap();
    let clean = text.replace("\"clean\": false", "\"clean\": true");
    assert_ne!(clean, text);
    // What the last owner has said; that it was left empty by an owner of whom this tier knows nothing; what cannot be read; and nothing.
    let markers = [Some(text.as_str()), Some(clean.as_str()), Some("torn"), None];
    for said in markers {
        match said {
            Some(said) => std::fs::write(&marker, said).unwrap(),
            None => {
                std::fs::remove_file(&marker).unwrap();
                std::fs::rename(site.path("first.img"), site.path("aside")).unwrap();
            }
        }
        site.start("off", &config);
        assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed"), ("second", "serving")], "{said:?}");
        assert!(!site.end(), "{said:?}: {}", site.output());
        let told = site.output();
        assert!(told.contains("first: it could not be opened, and its tier may hold writes"), "{said:?}: {told}");
        assert!(!told.contains("every image is complete"), "{said:?}: {told}");
    }

    std::fs::rename(site.path("aside"), site.path("first.img")).unwrap();
    std::fs::write(&marker, text).unwrap();
    std::fs::rename(&newest, &tier).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"), "{}", site.output());
    site.stop();
}

/// Of a state folder that is not mounted the config knows no more than the volume's name, and so of one from before it was made.
#[test]
fn a_volume_without_a_record_is_not_taken_for_one_that_has_never_served() {
    let mut site = Site::new("config-unmounted");
    for name in ["first", "second"] {
        site.make_image(name);
    }
    let config = site.volume("first", "");
    site.start("off", &config);
    assert!(site.serves("first"));
    site.kill();
    std::fs::rename(site.path("state"), site.path("unmounted")).unwrap();
    site.start("off", &[config.clone(), site.volume("second", "")].concat());
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed"), ("second", "serving")]);
    assert!(!site.end(), "{}", site.output());
    let said = site.output();
    assert!(said.contains("first: it could not be opened, and its tier may hold writes"), "{said}");
    assert!(!said.contains("every image is complete"), "{said}");

    std::fs::rename(site.path("state"), site.path("empty")).unwrap();
    std::fs::rename(site.path("unmounted"), site.path("state")).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"), "{}", site.output());
    site.stop();
}

/// The tier of a volume that is not open may be on a disk that is not there now, and nothing locks it, or it may be damaged.
#[test]
fn a_volume_is_not_made_in_the_place_of_the_tier_of_one_that_is_not_open() {
    let mut site = Site::new("config-place");
    for name in ["first", "second", "third"] {
        site.make_image(name);
    }
    let (tier, aside, image) = (site.path("a.tier"), site.path("aside"), site.path("second.img"));
    let config = [site.volume("first", &format!("tier_path = \"{tier}\"")), site.volume("third", "")].concat();
    let create = ["volume", "create", "second", "--tier-size", "8M", "--backing", &image, "--tier-path", &tier];
    site.start("off", &config);
    assert!(site.serves("first"), "{}", site.output());
    site.kill();
    std::fs::rename(&tier, &aside).unwrap();
    site.start("off", &config);
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed"), ("third", "serving")]);
    let refused = site.run(&create, &[]).expect_failure().text();
    assert!(refused.contains("volume first has it") && refused.contains("nothing was changed"), "{refused}");
    assert!(!std::path::Path::new(&tier).exists());
    assert!(!site.end(), "what it had acknowledged is nobody knows where: {}", site.output());

    let mut damaged = std::fs::read(&aside).unwrap();
    damaged[..4096].fill(0xff);
    std::fs::write(&tier, &damaged).unwrap();
    site.start("off", &config);
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed"), ("third", "serving")]);
    let refused = site.run(&create, &[]).expect_failure().text();
    assert!(refused.contains("nothing was changed") && std::fs::read(&tier).unwrap() == damaged, "{refused}");
    assert!(!site.end());

    // Back in its place, it goes on with what it holds.
    std::fs::rename(&aside, &tier).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"), "{}", site.output());
    site.stop();
}

/// Beside a device there is no marker, and nobody has one locked whose volume is not open.
#[test]
fn a_volume_is_not_made_on_the_device_of_one_that_is_not_open() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let mut site = Site::new("config-device");
    site.make_image("first");
    let device = Loop::attach(&site.folder.join("first.img"));
    let link = site.path("disk");
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    let backing = device.path().display();
    let config = format!("[[volume]]\nname = \"first\"\nbacking = \"{backing}\"\ntier_size = \"8M\"\n");
    site.start("off", &config);
    assert!(site.serves("first"), "{}", site.output());
    site.kill();
    let (tier, aside) = (site.path("state/tiers/first.tier"), site.path("aside"));
    std::fs::rename(&tier, &aside).unwrap();
    site.start("off", &config);
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed")]);
    let create = ["volume", "create", "second", "--tier-size", "8M", "--backing", &link];
    let refused = site.run(&create, &[]).expect_failure().text();
    assert!(refused.contains("volume first has that backing, as its record says"), "{refused}");
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed")]);
    assert!(!site.end(), "{}", site.output());

    // Although it was left complete: nothing would tell it of what another one has written.
    std::fs::rename(&aside, &tier).unwrap();
    site.start("off", &config);
    assert!(site.serves("first"), "{}", site.output());
    site.stop();
    std::fs::rename(&tier, &aside).unwrap();
    std::fs::write(&tier, "damaged").unwrap();
    site.start("off", &config);
    assert_eq!(phases(&site.told(&["volume", "list"])), [("first", "failed")]);
    let refused = site.run(&create, &[]).expect_failure().text();
    assert!(refused.contains("volume first has that backing, as its record says"), "{refused}");
    site.run(&["volume", "delete", "first", "--discard-dirty"], &[]).expect_success();
    site.run(&create, &[]).expect_success();
    assert!(site.serves("second"), "{}", site.output());
    site.stop();
}
