//! Volumes that share one data-path thread, for as long as one likes: several whose clients only use them, and know what each sector must
//! hold; beside them one whose clients are hostile, and system calls that do not return for one volume after the other, whichever
//! command of the operator makes them. Meanwhile each request of a volume whose own files answer is answered within [`BOUND`], each
//! command to it as well, nothing that was acknowledged is lost, and the shared thread makes no call that may wait for a file system.
//!
//! In the gate it is short and always the same, as far as it lies with the test; in a soak `FOREBAY_SOAK_MINUTES` says how long, from
//! a seed that is printed: `FOREBAY_SHARED_SEED=N` repeats what is drawn. The longest waits are printed, by command and by what happened.
//! How long a request waits says as much of the machine, so the bound is wide; `neighbours` measures what is promised.

#[path = "shared_thread/hostile.rs"]
mod hostile;
#[path = "shared_thread/innocent.rs"]
mod innocent;
#[path = "shared_thread/waits.rs"]
mod waits;

use forebay_tests::calls::{Call, CallGate, Hold, OF_MEMORY};
use forebay_tests::flood;
use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume, forebay, run_command, soak};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::Target;
use forebay_tests::rng::Rng;
use hostile::{Deeds, Hostile};
use innocent::{Innocent, compare};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use waits::Waits;

/// The longest that a request may wait for what concerns another volume, on a machine that is busy with something else. What hangs does
/// so until the others were served or this has passed.
const BOUND: Duration = Duration::from_secs(10);
/// What ends a test that would never end.
const PATIENCE: Duration = Duration::from_secs(60);
/// A hostile client has other things to do.
const HOSTILE_PATIENCE: Duration = Duration::from_secs(20);
/// Volumes whose clients only use them.
const INNOCENTS: [&str; 4] = ["inn-back", "inn-memory", "inn-through", "inn-slow"];
const INNOCENT_BYTES: u64 = 8 << 20;
/// The number of the hostile clients' volume, behind those.
const HOSTILE: usize = INNOCENTS.len();
/// A volume that is made and deleted again, and has no client.
const PASSING: &str = "passing";
const HOSTILE_CLIENTS: usize = 3;
/// Requests of each innocent volume that are answered while a call hangs.
const ANSWERED_MEANWHILE: u64 = 10;
/// So long a command has for the call that is to hang.
const CALL_COMES: Duration = Duration::from_secs(3);
/// After so long it is told what the daemon's threads do.
const WORTH_A_LOOK: Duration = Duration::from_secs(3);
const MACHINE_LOOK: Duration = Duration::from_millis(50);
/// How the threads are called that serve volumes.
const DATA_PATH: &str = "shard-";

/// What an operator does to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deed {
    Resize,
    /// To the other medium.
    ChangeTier,
    /// Of the passing volume, which is made again.
    Delete,
    /// Of the passing volume, which was deleted.
    Create,
    Drain,
}

/// Calls that do not return, and the command that is to make them.
struct Hang {
    name: &'static str,
    deed: Deed,
    calls: &'static [&'static str],
    of_tier: bool,
}

const fn hang(name: &'static str, deed: Deed, of_tier: bool, calls: &'static [&'static str]) -> Hang {
    Hang { name, deed, calls, of_tier }
}

/// All calls that [`CallGate`] sees.
const ALL: &[&str] = &[];

/// Each call that may wait for a file system, where a command makes it.
const HANGS: [Hang; 14] = [
    hang("ftruncate of an image", Deed::Resize, false, &["ftruncate", "fallocate"]),
    hang("fsync of an image", Deed::Resize, false, &["fsync", "fdatasync"]),
    hang("fstat of an image", Deed::Resize, false, &["fstat", "fstatat", "statx"]),
    hang("close of a tier", Deed::ChangeTier, true, &["close"]),
    hang("unmapping of a tier", Deed::ChangeTier, true, &["munmap"]),
    hang("removal of a tier", Deed::ChangeTier, true, &["unlinkat", "rename"]),
    hang("close of an image", Deed::Delete, false, &["close"]),
    hang("locks of an image", Deed::Delete, false, &["fcntl", "flock"]),
    hang("open of an image", Deed::Create, false, &["openat"]),
    hang("locks of a new image", Deed::Create, false, &["fcntl", "flock"]),
    hang("removal of a deleted tier", Deed::Delete, true, &["unlinkat", "rename"]),
    hang("everything of an image", Deed::Resize, false, ALL),
    hang("everything of a tier", Deed::ChangeTier, true, ALL),
    hang("fsync of an image, drained", Deed::Drain, false, &["fsync", "fdatasync"]),
];

fn name_of(volume: usize) -> &'static str {
    INNOCENTS.get(volume).copied().unwrap_or(VOLUME_NAME)
}

/// The daemon, and what is known of its volumes.
struct Scene {
    folder: TempDir,
    volume: Volume,
    daemon: Daemon,
    calls: CallGate,
    waits: Waits,
    rng: Rng,
    /// Of all volumes but the passing one.
    sizes: [u64; INNOCENTS.len() + 1],
    in_memory: [bool; INNOCENTS.len()],
    /// Calls that were held, by the name of the hang.
    held: BTreeMap<&'static str, u64>,
}

impl Scene {
    fn begin(io: IoMode, plant: Option<&'static str>, seed: u64) -> Scene {
        let folder = TempDir::new("shared-thread");
        let mut volume = Volume::new(&folder, flood::SIZE, Tier::Flash, io);
        volume.plant = plant;
        volume.arguments.extend(["--shards", "1"].map(Into::into));
        let calls = CallGate::new();
        volume.calls = Some(calls.clone());
        let daemon = volume.start();
        let (waits, rng) = (Waits::new(BOUND), Rng::new(seed));
        let in_memory = INNOCENTS.map(|name| name == "inn-memory");
        let mut sizes = [INNOCENT_BYTES; INNOCENTS.len() + 1];
        sizes[HOSTILE] = flood::SIZE;
        let scene = Scene { folder, volume, daemon, calls, waits, rng, sizes, in_memory, held: BTreeMap::new() };
        for name in INNOCENTS {
            let (tier, policy, before) = match name {
                "inn-memory" => ("memory", "back", ""),
                "inn-through" => ("flash", "through", ""),
                "inn-slow" => ("flash", "back", "slow:iops=400,latency=25ms,depth=16:"),
                _ => ("flash", "back", ""),
            };
            scene.create(name, before, &["--tier", tier, "--policy", policy]);
        }
        scene.create(PASSING, "", &["--tier", "flash"]);
        scene
    }

    fn image(&self, name: &str) -> PathBuf {
        self.folder.join(&format!("{name}.img"))
    }

    fn target(&self, name: &str) -> Target {
        Target { export: name.to_owned(), ..self.volume.target() }
    }

    #[track_caller]
    fn create(&self, name: &str, before: &str, more: &[&str]) {
        let backing = format!("{before}{}", self.image(name).display());
        let size = INNOCENT_BYTES.to_string();
        let made = ["create", name, "--backing", &backing, "--size", &size, "--create", "--tier-size", "8M"];
        let volatile: &[&str] = if more.contains(&"memory") { &["--volatile"] } else { &[] };
        self.daemon.volume_command([&made[..], more, volatile].concat()).expect_success();
    }

    /// Name of the file that is a volume's tier.
    fn tier_of(&self, name: &str) -> String {
        let shown = self.volume.get_json(&format!("/v1/volumes/{name}"));
        let path = PathBuf::from(shown["tier"]["path"].as_str().expect("a tier has a path"));
        path.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned()
    }

    /// `forebay volume ...` beside the test; it is waited for, and its words are those of a refusal.
    fn beside(&self, words: Vec<String>) -> std::thread::JoinHandle<Result<(), String>> {
        let mut command = Command::new(forebay());
        command.arg("volume").args(&words).arg("--api").arg(self.volume.api());
        std::thread::spawn(move || {
            let output = run_command(2 * PATIENCE, command);
            if output.status.success() { Ok(()) } else { Err(output.describe()) }
        })
    }

    /// The words of a command to a volume.
    fn words(&mut self, deed: Deed, volume: usize) -> Vec<String> {
        let name = name_of(volume);
        let words = match deed {
            Deed::Resize => {
                self.sizes[volume] += 1 << 20;
                format!("resize {name} {}", self.sizes[volume])
            }
            Deed::ChangeTier => {
                self.in_memory[volume] = !self.in_memory[volume];
                let medium = if self.in_memory[volume] { "memory --volatile" } else { "flash" };
                format!("set {name} --tier {medium}")
            }
            Deed::Delete => format!("delete {PASSING} --discard-dirty"),
            Deed::Create => format!(
                "create {PASSING} --backing {} --size {INNOCENT_BYTES} --create --tier flash --tier-size 8M",
                self.image(PASSING).display()
            ),
            Deed::Drain => format!("drain {name}"),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// One hangs, for so long and until the others were served, or have waited too long.
    fn hang_one(&mut self, hang: &Hang, lasts: Duration, innocents: &[Innocent]) -> Result<(), String> {
        let volume = self.choose(hang);
        let (name, concerned) = match hang.deed {
            Deed::Delete | Deed::Create => (PASSING, None),
            Deed::Resize | Deed::ChangeTier | Deed::Drain => (name_of(volume), Some(volume)),
        };
        let file = match (hang.of_tier, name) {
            (true, name) => self.tier_of(name),
            (false, VOLUME_NAME) => "backing.img".to_owned(),
            (false, name) => format!("{name}.img"),
        };
        let hold = if hang.calls.is_empty() { Hold::All(file) } else { Hold::Some(hang.calls, file) };
        if hang.deed == Deed::Create {
            self.delete_passing();
        }
        let held_before: u64 = self.calls.hung().values().sum();
        let answered: Vec<u64> = innocents.iter().map(Innocent::answered).collect();
        let number = self.waits.begins(&format!("hangs: {}", hang.name), concerned);
        self.calls.begin(hold.clone());
        let words = self.words(hang.deed, volume);
        let command = self.beside(words);
        let (begun, mut looked, mut told) = (Instant::now(), 0, false);
        let found = loop {
            if let Some(finding) = self.waits.finding() {
                break Err(finding);
            }
            if !told && self.waits.waits_since(WORTH_A_LOOK) {
                told = true;
                println!("{:.1?} after {}: {}", begun.elapsed(), hang.name, self.threads());
            }
            let held = self.calls.hung().values().sum::<u64>() - held_before;
            let none_comes = held == 0 && (command.is_finished() || begun.elapsed() > CALL_COMES);
            let served = |(other, (innocent, before)): (usize, (&Innocent, &u64))| {
                Some(other) == concerned || innocent.answered() >= before + ANSWERED_MEANWHILE
            };
            let all_served = innocents.iter().zip(&answered).enumerate().all(served);
            if none_comes || (begun.elapsed() >= lasts && all_served && held > 0) {
                break Ok(());
            }
            // Whoever asks about another one, or commands it, is answered as well.
            if held > 0 && looked < 3 {
                looked += 1;
                self.look_at_another(concerned, looked);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let held = self.calls.hung().values().sum::<u64>() - held_before;
        self.calls.end(&hold);
        *self.held.entry(hang.name).or_default() += held;
        let done = command.join().expect("a refusal is no panic");
        self.waits.ends(number);
        println!("{} of {name}: {held} calls, {:.1?}", hang.name, begun.elapsed());
        found?;
        match (hang.deed, done) {
            // It may have waited too long for its own files, and says what it has not removed. Now they answer.
            (Deed::Delete, Err(why)) if why.contains("not wholly removed") || why.contains("is not deleted") => {
                println!("refused: {why}");
                self.delete_passing();
                self.create(PASSING, "", &["--tier", "flash"]);
            }
            (_, Err(why)) => return Err(why),
            (Deed::Delete, Ok(())) => {
                std::fs::remove_file(self.image(PASSING)).expect("an image that nobody has");
                self.create(PASSING, "", &["--tier", "flash"]);
            }
            (_, Ok(())) => {}
        }
        Ok(())
    }

    /// The volume that it meets. Only of a memory tier a file is mapped.
    fn choose(&mut self, hang: &Hang) -> usize {
        if hang.deed == Deed::Resize && self.rng.chance(25) {
            return HOSTILE;
        }
        let fits = |volume: &usize| hang.calls != ["munmap"] || self.in_memory[*volume];
        let fitting: Vec<usize> = (0..INNOCENTS.len()).filter(fits).collect();
        let among = if fitting.is_empty() { (0..INNOCENTS.len()).collect() } else { fitting };
        among[self.rng.below(among.len() as u64) as usize]
    }

    fn delete_passing(&self) {
        self.daemon.volume_command(["delete", PASSING, "--discard-dirty"]).expect_success();
        std::fs::remove_file(self.image(PASSING)).expect("an image that nobody has");
    }

    /// The state of a volume whose files answer; the second time, it is drained.
    fn look_at_another(&mut self, concerned: Option<usize>, number: u64) {
        let others: Vec<usize> = (0..INNOCENTS.len()).filter(|other| Some(*other) != concerned).collect();
        let other = others[self.rng.below(others.len() as u64) as usize];
        let (waits, name) = (self.waits.clone(), INNOCENTS[other]);
        let word = if number == 2 { "drain" } else { "show" };
        let command = self.beside(vec![word.to_owned(), name.to_owned()]);
        std::thread::spawn(move || {
            let label = if word == "drain" { "volume drain" } else { "volume show" };
            let done = waits.timed(other, label, || command.join().expect("a refusal is no panic"));
            done.unwrap_or_else(|why| waits.found(why));
        });
    }

    /// What each of the daemon's threads does, and where it waits in the kernel.
    fn threads(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.daemon.pid())).into_iter().flatten().flatten();
        let told = |task: std::fs::DirEntry| {
            let words = ["comm", "wchan", "syscall"].map(|name| std::fs::read_to_string(task.path().join(name)));
            words.map(Result::unwrap_or_default).map(|word| word.trim().to_owned()).join(" ")
        };
        tasks.map(told).collect::<Vec<_>>().join("\n")
    }

    /// Of what the data path calls: what may wait for a file system. The kernel's own figures (/proc/stat) wait for none, and neither does
    /// memory: a thread that lets another one go may give back the stacks of threads that have ended.
    fn may_wait(&self) -> Vec<Call> {
        let waits = |call: &Call| !call.file.starts_with("/proc/") && !call.file.ends_with(OF_MEMORY);
        self.calls.seen_of(DATA_PATH).into_iter().filter(waits).collect()
    }
}

/// What was done in a life of the daemon.
struct Lived {
    deeds: Deeds,
    answered: u64,
    held: BTreeMap<&'static str, u64>,
}

/// Sees how slow the machine is by itself, until the end.
fn watch_machine(waits: &Waits, file: PathBuf, end: &Arc<AtomicBool>) {
    let (waits, end) = (waits.clone(), end.clone());
    std::thread::spawn(move || {
        let file = File::create(&file).expect("a folder of our own");
        while !end.load(Ordering::Relaxed) {
            let begun = Instant::now();
            std::thread::sleep(MACHINE_LOOK);
            let slept = begun.elapsed().saturating_sub(MACHINE_LOOK);
            let begun = Instant::now();
            file.write_all_at(&[1; 4096], 0).and_then(|()| file.sync_data()).expect("a folder of our own");
            waits.machine([slept, begun.elapsed()]);
        }
    });
}

/// Everything at once, for so long. `Err`: something that must not be, with the longest waits.
fn live(io: IoMode, plant: Option<&'static str>, seed: u64, span: Duration, hangs: &[Hang]) -> Result<Lived, String> {
    println!("{io:?}, seed {seed}");
    let mut scene = Scene::begin(io, plant, seed);
    let waits = scene.waits.clone();
    let end = Arc::new(AtomicBool::new(false));
    watch_machine(&waits, scene.folder.join("own"), &end);
    let innocents: Vec<Innocent> = (0..INNOCENTS.len())
        .map(|number| Innocent::begin(number, scene.target(INNOCENTS[number]), &waits, seed))
        .collect();
    // What a thread does before it serves delays nobody.
    scene.calls.begin_anew();
    let hostile: Vec<Hostile> =
        (0..HOSTILE_CLIENTS).map(|number| Hostile::begin(number, scene.target(VOLUME_NAME), &waits, seed)).collect();
    let begun = Instant::now();
    let mut result = Ok(());
    for hang in hangs.iter().cycle() {
        if result.is_err() || begun.elapsed() > span {
            break;
        }
        let long = soak() && scene.rng.chance(30);
        let lasts = Duration::from_millis(300 + scene.rng.below(if long { 9_700 } else { 700 }));
        result = scene.hang_one(hang, lasts, &innocents);
    }
    end.store(true, Ordering::Relaxed);
    let failed = |why: String| {
        let why = format!("{io:?}, seed {seed}: {why}\n{}", waits.table());
        // While the daemon is still there, so that its words are printed and its files kept.
        assert!(plant.is_some(), "{why}");
        why
    };
    if let Err(why) = result {
        // The daemon ends with the scene, and with it whoever waits for it.
        return Err(failed(why));
    }
    let answered = waits.answered();
    let mut deeds = Deeds::new();
    for hostile in hostile {
        hostile.end().into_iter().for_each(|(name, times)| *deeds.entry(name).or_default() += times);
    }
    let contents: Vec<_> = innocents.into_iter().map(Innocent::end).collect();
    println!("{io:?}, seed {seed}: held {:?}; done {deeds:?}\n{}", scene.held, waits.table());
    waits.finding().map_or(Ok(()), |finding| Err(failed(finding)))?;
    let calls = scene.may_wait();
    if !calls.is_empty() {
        return Err(failed(format!("threads that serve volumes make calls that may wait: {calls:?}")));
    }
    // Everything is in the images when the daemon has ended.
    scene.daemon.assert_healthy();
    let Scene { folder, daemon, held, .. } = scene;
    daemon.stop(2 * PATIENCE);
    for (number, content) in contents {
        let image = folder.join(&format!("{}.img", INNOCENTS[number]));
        let bytes = std::fs::read(&image).map_err(|e| failed(format!("read {}: {e}", image.display())))?;
        compare(number as u64, 0, &bytes, &content)
            .map_err(|why| failed(format!("the image of {}: {why}", INNOCENTS[number])))?;
    }
    Ok(Lived { deeds, answered, held })
}

/// The seed and the span of one of the two: always the same in the gate.
fn asked() -> (u64, Duration) {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let seed = number("FOREBAY_SHARED_SEED").unwrap_or(if soak() { Rng::fresh_seed() >> 16 } else { 1 });
    let minutes: u64 = number("FOREBAY_SOAK_MINUTES").unwrap_or(60);
    // Both ways of I/O are tried at one time.
    (seed, if soak() { Duration::from_secs(minutes * 60 / 2) } else { Duration::from_secs(12) })
}

in_both_io_modes! {
    fn who_only_uses_his_volume_is_served_whatever_happens_to_others(io: IoMode) {
        let (seed, span) = asked();
        let lived = live(io, None, seed, span, &HANGS).unwrap_or_else(|why| panic!("{why}"));
        assert!(lived.answered > 500, "{} answered requests prove little", lived.answered);
        assert!(lived.held.values().filter(|held| **held > 0).count() > 2, "hardly a call was held: {:?}", lived.held);
        assert!(lived.deeds.len() > 5, "little was done to the hostile clients' volume: {:?}", lived.deeds);
        if span > Duration::from_secs(600) {
            let spared: Vec<_> = hostile::kinds().filter(|kind| !lived.deeds.contains_key(kind)).collect();
            assert!(spared.is_empty(), "never done: {spared:?}");
            // A sync by the ring is no system call.
            let spared = |hang: &&Hang| io == IoMode::Threads && lived.held.get(hang.name).is_none_or(|held| *held == 0);
            let spared: Vec<_> = HANGS.iter().filter(spared).map(|hang| hang.name).collect();
            assert!(spared.is_empty(), "never held: {spared:?}");
        }
    }
}

/// The shared thread asks the file system of each image for its size before each sync, and that does not answer for one.
#[test]
fn a_shared_thread_that_waits_for_one_volume_is_caught() {
    const OF_IMAGE: [Hang; 1] = [hang("fstat of an image", Deed::Drain, false, &["fstat", "fstatat", "statx"])];
    let span = Duration::from_secs(60);
    let why = live(IoMode::Threads, Some("asks-on-thread"), 1, span, &OF_IMAGE).err().expect("the fault is seen");
    println!("{why}");
    assert!(why.contains("has waited"), "{why}");
}
