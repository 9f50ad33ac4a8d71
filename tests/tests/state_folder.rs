//! The state folder is full, read-only or failing, at each call of whatever writes to it: nothing that was acknowledged is lost, the
//! daemon lives and says what is wrong, and when the folder is well again everything is as before or as asked for.
//!
//! Each walk fails the first call below the folder, then the second, and so on until the daemon does not make so many; once that
//! call alone, and once with all that come after it.

use forebay_tests::failing::{FailingFolder, Fault};
use forebay_tests::harness::{Daemon, IoMode, Output, TempDir, Tier, VOLUME_NAME, Volume, skip};
use forebay_tests::kernel::{Loop, Mounted, no_fuse_or_loop};
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::time::Duration;

const SIZE: u64 = 16 << 20;
/// For a daemon to stop.
const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const BLOCKS: usize = 8;
/// No operation makes more calls than this.
const CALLS_MAX: u32 = 200;
/// What the kernel says of a folder that is full, read-only or failing, with its words.
const ERRORS: [(i32, &str); 3] =
    [(libc::ENOSPC, "No space left"), (libc::EROFS, "Read-only file system"), (libc::EIO, "Input/output error")];

/// One volume, what its client was told, and the daemon that serves it.
struct Scene {
    folder: TempDir,
    volume: Volume,
    failing: FailingFolder,
    daemon: Option<Daemon>,
    /// What each block may hold; the last one was written last.
    blocks: [Vec<u8>; BLOCKS],
    written: u8,
    /// The backing, where it is a device.
    _device: Option<Loop>,
}

/// How a command ended.
enum Told {
    Done,
    Failed(String),
}

impl Told {
    fn of(output: &Output) -> Told {
        if output.status.success() { Told::Done } else { Told::Failed(output.text()) }
    }
}

impl Scene {
    fn new(name: &str, tier: Tier) -> Scene {
        let folder = TempDir::new(name);
        let mut volume = Volume::new(&folder, SIZE, tier, IoMode::Threads);
        volume.tier_size = 8 << 20;
        let failing = FailingFolder::of(&mut volume, &folder);
        Scene { folder, volume, failing, daemon: None, blocks: Default::default(), written: 0, _device: None }
    }

    /// The same on a block device, whose marker lies in the state folder.
    fn on_device(name: &str, tier: Tier) -> Option<Scene> {
        if let Some(reason) = no_fuse_or_loop() {
            skip(reason);
            return None;
        }
        let mut scene = Scene::new(name, tier);
        let device = Loop::attach(&scene.folder.sparse("device", SIZE));
        scene.volume.backing = device.path().to_str().expect("a plain path").to_owned();
        (scene.volume.size, scene._device) = (None, Some(device));
        Some(scene)
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    #[track_caller]
    fn start(&mut self) {
        self.daemon = Some(self.volume.start());
    }

    fn kill(&mut self) {
        self.daemon.take().expect("it runs").kill9();
        wait_for_late_writes(std::path::Path::new(&self.volume.backing));
    }

    /// What a daemon of this volume is to be asked for: what its record says.
    fn follow_the_record(&mut self) {
        let record = self.volume.state().join("volumes").join(format!("{VOLUME_NAME}.toml"));
        let Ok(text) = std::fs::read_to_string(record) else { return };
        let has = |words: &str| text.contains(words);
        self.volume.tier = if has("kind = \"memory\"") { Tier::Memory } else { Tier::Flash };
        self.volume.policy = if has("policy = \"through\"") { "through" } else { "back" };
        self.volume.destage = ["ordered", "journaled", "auto"]
            .into_iter()
            .find(|word| has(&format!("destage = \"{word}\"")))
            .expect("a record has a way of destage");
        // It may have grown since it was made.
        self.volume.size = None;
    }

    /// Writes each block anew, flushes every other time; what is refused may be there or not.
    fn write(&mut self) -> bool {
        self.written = self.written % 250 + 1;
        let Ok(mut client) = Client::connect(&self.volume.target()) else { return false };
        for (index, legal) in self.blocks.iter_mut().enumerate() {
            match client.write((index * BLOCK) as u64, &[self.written; BLOCK], 0) {
                Ok(Ok(())) => *legal = vec![self.written],
                Ok(Err(_)) | Err(_) => legal.push(self.written),
            }
        }
        self.written.is_multiple_of(2) || client.flush().is_ok_and(|answer| answer.is_ok())
    }

    #[track_caller]
    fn check(&mut self, when: &str) {
        let mut client = Client::connect(&self.volume.target()).unwrap_or_else(|why| panic!("{when}: {why}"));
        for (index, legal) in self.blocks.iter_mut().enumerate() {
            let mut bytes = [0; BLOCK];
            client.read((index * BLOCK) as u64, &mut bytes).unwrap().unwrap_or_else(|why| panic!("{when}: {why}"));
            let found = bytes[0];
            assert!(bytes == [found; BLOCK], "{when}: block {index} is torn");
            assert!(
                legal.contains(&found) || (legal.is_empty() && found == 0),
                "{when}: block {index} has {found} and not {legal:?}"
            );
            *legal = vec![found];
        }
    }

    /// Whether the volume is served, and with what; why not, where it is not.
    #[track_caller]
    fn show(&self) -> Value {
        self.daemon().show()
    }

    /// The daemon lives, and its client is served, or told why not.
    #[track_caller]
    fn is_honest(&mut self, when: &str) {
        self.daemon.as_mut().expect("it runs").assert_healthy();
        let shown = self.show();
        if shown["phase"] == "serving" {
            self.check(when);
            assert!(self.write(), "{when}: a volume that serves takes writes: {shown:#}");
        } else {
            let problem = shown["problem"].as_str().unwrap_or_default();
            assert!(problem.len() > 20, "{when}: {shown:#}");
        }
    }
}

/// It says why it failed: as the kernel does, or how much room is missing for a tier.
fn says(said: &str, words: &str) -> bool {
    said.contains(words) || said.contains("free some space")
}

/// Fails each call of what `act` does to a daemon that runs, and looks at what is left. `state`: what it changes, as it is shown;
/// `wanted`: what that is to be, by what it is. `prepare`: what comes before, with a folder that is well.
fn walk_after(
    scene: &mut Scene,
    name: &str,
    prepare: impl Fn(&Scene),
    act: impl Fn(&mut Scene, &str) -> Told,
    state: impl Fn(&Scene) -> String,
    wanted: impl Fn(&str) -> String,
) {
    let mut failed = 0;
    for beyond in [false, true] {
        for at in 1..=CALLS_MAX {
            let (error, words) = ERRORS[(at as usize + usize::from(beyond)) % ERRORS.len()];
            if scene.daemon.is_none() {
                scene.start();
            }
            assert!(scene.write(), "{}", scene.daemon().output());
            prepare(scene);
            let before = state(scene);
            let after = wanted(&before);
            scene.failing.fail(Fault { at, beyond, error });
            let told = act(scene, &after);
            let hit = scene.failing.be_well();
            let when = format!(
                "{name}, {} {at} fails with {words} ({})",
                if beyond { "from call" } else { "call" },
                hit.as_deref().unwrap_or("not met")
            );
            println!("{when}: {}", if matches!(told, Told::Done) { "done" } else { "failed" });
            if let Told::Failed(said) = &told {
                assert!(hit.is_some(), "{when}: {said}");
                assert!(says(said, words), "{when}: it does not say why: {said}");
                println!("    {}", said.trim());
            }
            if scene.daemon.is_some() {
                scene.is_honest(&when);
                let shown = scene.show();
                println!("    it is {}", shown["phase"]);
                assert!(beyond || shown["phase"] == "serving", "{when}: one call costs the service: {shown:#}");
                scene.kill();
            }
            scene.follow_the_record();
            scene.start();
            scene.check(&when);
            let is = state(scene);
            match told {
                Told::Done => assert_eq!(is, after, "{when}: it was said to be done"),
                Told::Failed(_) => assert!(is == before || is == after, "{when}: {is}, not {before} or {after}"),
            }
            if hit.is_none() {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed > 4, "{name} writes nothing to the state folder");
}

fn walk(
    scene: &mut Scene,
    name: &str,
    act: impl Fn(&mut Scene, &str) -> Told,
    state: impl Fn(&Scene) -> String,
    wanted: impl Fn(&str) -> String,
) {
    walk_after(scene, name, |_| (), act, state, wanted);
}

fn set(scene: &mut Scene, arguments: &[&str]) -> Told {
    let words = ["set", VOLUME_NAME].iter().chain(arguments);
    Told::of(&scene.daemon().volume_command(words))
}

fn other<'a>(is: &str, one: &'a str, two: &'a str) -> String {
    if is == one { two.to_owned() } else { one.to_owned() }
}

/// Proves O-16: another policy.
#[test]
fn policy() {
    let mut scene = Scene::new("state-policy", Tier::Flash);
    walk(
        &mut scene,
        "another policy",
        |scene, to| set(scene, &["--policy", to]),
        |scene| scene.show()["policy"]["requested"].as_str().expect("a policy").to_owned(),
        |is| other(is, "back", "through"),
    );
}

/// Proves O-16: another way of destage, and the journal that it needs.
#[test]
fn destage() {
    let mut scene = Scene::new("state-destage", Tier::Flash);
    walk(
        &mut scene,
        "another destage",
        |scene, to| set(scene, &["--destage", to]),
        |scene| scene.show()["destage"]["requested"].as_str().expect("a way of destage").to_owned(),
        |is| other(is, "ordered", "journaled"),
    );
}

/// Proves O-16: growth.
#[test]
fn resize() {
    let mut scene = Scene::new("state-resize", Tier::Flash);
    walk(
        &mut scene,
        "growth",
        |scene, to| Told::of(&scene.daemon().volume_command(["resize", VOLUME_NAME, to])),
        |scene| scene.show()["size_bytes"].to_string(),
        |is| (is.parse::<u64>().expect("a number") + (1 << 20)).to_string(),
    );
}

fn change_of_medium(mut scene: Scene) {
    walk(
        &mut scene,
        "another medium",
        |scene, to| {
            let volatile: &[&str] = if to == "memory" { &["--volatile"] } else { &[] };
            set(scene, &[&["--tier", to], volatile].concat())
        },
        |scene| scene.show()["tier"]["kind"].as_str().expect("a medium").to_owned(),
        |is| other(is, "memory", "flash"),
    );
}

/// Proves O-16, O-14: another medium, one way and the other.
#[test]
fn medium() {
    change_of_medium(Scene::new("state-medium", Tier::Flash));
}

/// Proves O-16, O-14: the same where the marker lies in the state folder.
#[test]
fn medium_over_a_device() {
    let Some(scene) = Scene::on_device("state-medium-device", Tier::Flash) else { return };
    change_of_medium(scene);
}

/// Another volume beside the first.
const SECOND: &str = "second";

fn second(scene: &Scene) -> String {
    let listed = scene.daemon().volume_command(["list", "--json"]).expect_success().stdout;
    let listed: Value = serde_json::from_str(&listed).expect("it is JSON");
    let mut volumes = listed.as_array().expect("a list").iter();
    let found = volumes.find(|volume| volume["name"] == SECOND);
    found.map_or("absent".to_owned(), |volume| volume["phase"].as_str().expect("a phase").to_owned())
}

fn create_second(scene: &Scene, more: &[&str]) -> Output {
    let image = scene.folder.join("second.img");
    let image = image.to_str().expect("a plain path");
    let size: &[&str] = if more.contains(&"--tier-size") { &[] } else { &["--tier-size", "8M"] };
    let words = ["create", SECOND, "--backing", image, "--size", "8M", "--create"];
    scene.daemon().volume_command([&words[..], size, more].concat())
}

fn delete_second(scene: &Scene) -> Output {
    scene.daemon().volume_command(["delete", SECOND])
}

/// Proves O-16: a volume is made.
#[test]
fn creation() {
    let mut scene = Scene::new("state-create", Tier::Flash);
    walk_after(
        &mut scene,
        "creation",
        |scene| {
            if second(scene) != "absent" {
                delete_second(scene).expect_success();
            }
        },
        |scene, _| Told::of(&create_second(scene, &[])),
        second,
        |_| "serving".to_owned(),
    );
}

/// What lies in the state folder of the second volume, and its image and what is beside that.
fn left_of_second(scene: &Scene) -> Vec<String> {
    let state = scene.volume.state();
    let folders = [state.join("volumes"), state.join("tiers"), scene.folder.path().to_owned()];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"));
    names.filter(|name| name.starts_with(SECOND)).collect()
}

/// A volume that could not be made, at whichever call that was, is nowhere: it is not in the list, it does not come back with the next
/// start, and it has left no file.
#[test]
fn a_creation_that_fails_leaves_nothing() {
    let mut scene = Scene::new("state-create-nothing", Tier::Flash);
    scene.start();
    let mut failed = 0;
    for at in 1..=CALLS_MAX {
        scene.failing.fail(Fault { at, beyond: false, error: libc::EIO });
        let told = Told::of(&create_second(&scene, &["--destage", "journaled"]));
        let hit = scene.failing.be_well();
        let when = format!("creation, call {at} fails ({hit:?})");
        match told {
            Told::Done => {
                delete_second(&scene).expect_success();
                // An image is its user's, once there was a volume.
                std::fs::remove_file(scene.folder.join("second.img")).expect("it stays");
            }
            Told::Failed(said) => {
                failed += 1;
                assert!(says(&said, "Input/output error"), "{when}: {said}");
                assert_eq!(second(&scene), "absent", "{when}: {said}");
                assert_eq!(left_of_second(&scene), Vec::<String>::new(), "{when}: {said}");
                continue;
            }
        }
        if hit.is_none() {
            break;
        }
    }
    assert!(failed > 10, "a creation writes nothing to the state folder");
    scene.kill();
    scene.start();
    assert_eq!(second(&scene), "absent");
}

/// The marker of a volume that left its image complete stands there again, as it stood, after each creation that fails.
#[test]
fn a_creation_that_fails_puts_back_the_marker_that_stood_there() {
    let mut scene = Scene::new("state-create-marker", Tier::Flash);
    scene.start();
    create_second(&scene, &[]).expect_success();
    let path = scene.folder.join("second.img.forebay");
    let marker = || -> Option<Value> { serde_json::from_str(&std::fs::read_to_string(&path).ok()?).ok() };
    let mut other = marker().expect("a volume that serves has a marker");
    other["clean"] = Value::Bool(true);
    delete_second(&scene).expect_success();
    std::fs::write(&path, other.to_string()).expect("a file of our own");
    let mut failed = 0;
    for at in 1..=CALLS_MAX {
        scene.failing.fail(Fault { at, beyond: false, error: libc::EIO });
        let told = Told::of(&create_second(&scene, &[]));
        let hit = scene.failing.be_well();
        match told {
            Told::Failed(said) => {
                failed += 1;
                assert_eq!(marker().as_ref(), Some(&other), "call {at} fails ({hit:?}): {said}");
            }
            Told::Done => {
                delete_second(&scene).expect_success();
                std::fs::write(&path, other.to_string()).expect("a file of our own");
            }
        }
        if hit.is_none() {
            break;
        }
    }
    assert!(failed > 10, "a creation writes nothing to the state folder");
}

/// The same where the tier finds no room; a tier, a journal and a record that were there before stay.
#[test]
fn a_creation_that_finds_no_room_leaves_nothing() {
    let mut scene = Scene::new("state-create-room", Tier::Flash);
    scene.start();
    let room = std::path::Path::new("/dev/shm").join(format!("forebay-room-{}.tier", std::process::id()));
    let tier = room.to_str().expect("a plain path");
    // More than any tmpfs has: it is refused before anything is taken.
    let huge = create_second(&scene, &["--destage", "journaled", "--tier-path", tier, "--tier-size", "2T"]);
    let said = huge.expect_failure().text();
    assert!(said.contains("cannot reserve 2097152 MiB") && !said.contains("room for 0 MiB"), "{said}");
    assert_eq!((second(&scene).as_str(), left_of_second(&scene)), ("absent", Vec::new()), "{said}");
    assert!(!room.exists());
    // What is somebody's own at the place of the tier is not what the creation has made.
    std::fs::write(&room, "of anybody's").expect("a tmpfs takes a file");
    let said = create_second(&scene, &["--tier-path", tier]).expect_failure().text();
    let kept = std::fs::read(&room).expect("it is still there");
    std::fs::remove_file(&room).expect("it is ours");
    assert!(kept == b"of anybody's" && said.contains("nothing was changed"), "{said}");
    assert_eq!((second(&scene).as_str(), left_of_second(&scene)), ("absent", Vec::new()), "{said}");
    // An image that was there is its user's, whatever is in it.
    let image = scene.folder.join("second.img");
    std::fs::write(&image, vec![9; 8 << 20]).expect("a file of our own");
    let huge = ["--destage", "journaled", "--tier-path", tier, "--tier-size", "2T"];
    let said = create_second(&scene, &huge).expect_failure().text();
    assert_eq!((second(&scene).as_str(), left_of_second(&scene)), ("absent", vec!["second.img".to_owned()]), "{said}");
    assert!(std::fs::read(&image).expect("it stays") == vec![9; 8 << 20], "{said}");
    scene.kill();
    scene.start();
    assert_eq!(second(&scene), "absent", "it comes back");
    create_second(&scene, &[]).expect_success();
}

/// A file system that reserves nothing for a file could be full in the middle of an acknowledged write: it is told what to choose.
#[test]
fn a_creation_on_a_file_system_that_reserves_nothing_says_what_to_choose_and_leaves_nothing() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let mut scene = Scene::new("state-create-ramfs", Tier::Flash);
    scene.start();
    let point = scene.folder.join("ramfs");
    let _mounted = Mounted::new(&["-t", "ramfs"], "none", &point);
    let tier = point.join("tier");
    for medium in ["flash", "memory"] {
        let place = ["--tier", medium, "--tier-path", tier.to_str().expect("a plain path"), "--volatile"];
        let said = create_second(&scene, &place).expect_failure().text();
        for words in ["fallocate", "Operation not supported", "ext4, XFS, Btrfs or tmpfs", "`--tier-path`"] {
            assert!(said.contains(words), "no {words}: {said}");
        }
        assert_eq!((second(&scene).as_str(), left_of_second(&scene)), ("absent", Vec::new()), "{said}");
        assert_eq!(std::fs::read_dir(&point).expect("it is mounted").count(), 0, "{said}");
    }
    create_second(&scene, &[]).expect_success();
}

/// Proves O-16: a volume is forgotten.
#[test]
fn deletion() {
    let mut scene = Scene::new("state-delete", Tier::Flash);
    walk_after(
        &mut scene,
        "deletion",
        |scene| {
            if second(scene) == "absent" {
                create_second(scene, &[]).expect_success();
            }
        },
        |scene, _| Told::of(&delete_second(scene)),
        second,
        |_| "absent".to_owned(),
    );
}

/// Proves O-16: what a start, or a stop, writes. One that is refused is refused with words, and the next one serves.
#[test]
fn start_and_stop() {
    let mut scene = Scene::new("state-start", Tier::Flash);
    walk(
        &mut scene,
        "a stop and a start",
        |scene, _| {
            let stopped = scene.daemon.take().expect("it runs").stop_either_way(MINUTE);
            let refused = match scene.volume.try_start() {
                Ok(daemon) => {
                    scene.daemon = Some(daemon);
                    None
                }
                Err(refusal) => Some(refusal.text),
            };
            match stopped.err().into_iter().chain(refused).reduce(|both, more| both + &more) {
                None => Told::Done,
                Some(said) => Told::Failed(said),
            }
        },
        |_| String::new(),
        |_| String::new(),
    );
}

/// Proves O-16: the first start on a folder that is not there, with a volume that is to be made.
#[test]
fn first_start() {
    let mut failed = 0;
    for beyond in [false, true] {
        for at in 1..=CALLS_MAX {
            let (error, words) = ERRORS[(at as usize + usize::from(beyond)) % ERRORS.len()];
            let mut scene = Scene::new("state-first", Tier::Flash);
            scene.failing.fail(Fault { at, beyond, error });
            let started = scene.volume.try_start();
            let hit = scene.failing.be_well();
            let when = format!("first start, call {at} ({beyond}) fails with {words} ({hit:?})");
            println!("{when}: {}", if started.is_ok() { "serves" } else { "refused" });
            match started {
                Ok(daemon) => {
                    scene.daemon = Some(daemon);
                    scene.is_honest(&when);
                    scene.kill();
                }
                Err(refusal) => {
                    println!("    {}", refusal.text.trim());
                    assert!(hit.is_some() && refusal.status.code() == Some(1), "{when}: {refusal}");
                    assert!(says(&refusal.text, words) && !refusal.text.contains("panicked"), "{when}: {refusal}");
                }
            }
            scene.start();
            scene.check(&when);
            scene.is_honest(&when);
            if hit.is_none() {
                break;
            }
            failed += 1;
        }
    }
    assert!(failed > 10, "a first start writes nothing to the state folder");
}
