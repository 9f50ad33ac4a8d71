//! A device that hangs: a loop-mounted file system, frozen so that no write to it ends. Needs root and loop devices;
//! without, the tests say that they were skipped.

use forebay_core::types::{FrameId, Term};
use forebay_io::{
    Arena, Backing, BackingOptions, Buffers, Completion, DeviceFile, HolderDescription, LockAttempt, ModeChoice,
    Operation, OperationKind, OwnerLock, Reactor, TermLock,
};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHILD: &str = "FOREBAY_TEST_BACKING_OF_CHILD";
const LONG: Duration = Duration::from_secs(20);

fn command(line: &[&str]) {
    let output = Command::new(line[0]).args(&line[1..]).output().unwrap_or_else(|error| panic!("{line:?}: {error}"));
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether the tests cannot run here; said where a runner that keeps the output of tests to itself does not hide it.
fn not_possible_here() -> bool {
    // SAFETY: geteuid has no arguments, cannot fail and touches no memory of ours.
    let root = unsafe { libc::geteuid() } == 0;
    let possible = root && Path::new("/dev/loop-control").exists();
    if !possible {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(std::io::stderr(), "SKIPPED {name}: needs root and loop devices");
    }
    !possible
}

/// A small file system of its own, thawed and unmounted at the end whatever happens.
struct Freezer {
    point: PathBuf,
    _folder: tempfile::TempDir,
}

impl Freezer {
    fn new() -> Freezer {
        let folder = tempfile::tempdir().unwrap();
        let (image, point) = (folder.path().join("image"), folder.path().join("point"));
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        command(&["mkfs.ext4", "-q", image.to_str().unwrap()]);
        command(&["mount", "-o", "loop", image.to_str().unwrap(), point.to_str().unwrap()]);
        Freezer { point, _folder: folder }
    }

    fn file(&self) -> PathBuf {
        let path = self.point.join("disk.img");
        if !path.exists() {
            std::fs::write(&path, vec![0u8; 1 << 20]).unwrap();
        }
        path
    }

    fn freeze(&self) {
        command(&["fsfreeze", "--freeze", self.point.to_str().unwrap()]);
    }

    fn thaw(&self) {
        command(&["fsfreeze", "--unfreeze", self.point.to_str().unwrap()]);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let point = self.point.to_str().unwrap();
        let _ = Command::new("fsfreeze").args(["--unfreeze", point]).stderr(Stdio::null()).status();
        let limit = Instant::now() + LONG;
        while !Command::new("umount").arg(point).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            if Instant::now() > limit {
                eprintln!("{point} could not be unmounted");
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn write_of(file: &Arc<DeviceFile>, arena: &Arena, block: u64) -> Operation {
    let mut buffers = Buffers::none();
    buffers.push_frame(arena, FrameId(0), 0, 4096);
    Operation::new(file.clone(), OperationKind::Write { offset: block * 4096 }, buffers)
}

#[test]
fn a_device_that_hangs_does_not_hold_up_another() {
    if not_possible_here() {
        return;
    }
    const HUNG: u64 = 40;
    for mode in [ModeChoice::Uring, ModeChoice::Threads] {
        let freezer = Freezer::new();
        let hung = Arc::new(DeviceFile::open(&freezer.file(), false).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::write(&path, [0u8; 8192]).unwrap();
        let healthy = Arc::new(DeviceFile::open(&path, false).unwrap());
        let arena = Arena::anonymous(1, false).unwrap();
        let mut reactor = Reactor::new(mode).unwrap();
        freezer.freeze();
        for i in 0..HUNG {
            reactor.submit(1000 + i, write_of(&hung, &arena, i));
        }
        let mut out = Vec::new();
        for token in 0..100 {
            reactor.submit(token, write_of(&healthy, &arena, 1));
            reactor.wait(Some(LONG), &mut out).unwrap();
            assert!(matches!(out[..], [Completion::Done { token: ended, result: Ok(()), .. }] if ended == token));
            out.clear();
        }
        assert_eq!(reactor.in_flight() as u64, HUNG);
        freezer.thaw();
        let limit = Instant::now() + LONG;
        while reactor.in_flight() > 0 {
            assert!(Instant::now() < limit, "{mode:?}: {} never ended", reactor.in_flight());
            reactor.wait(Some(Duration::from_secs(1)), &mut out).unwrap();
        }
        assert!(out.iter().all(|c| matches!(c, Completion::Done { token: 1000.., result: Ok(()), .. })), "{out:?}");
    }
}

/// How a process of these tests holds the lock that its writes go under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// A single node: the whole file.
    Single,
    /// An owner in a cluster.
    OfTerm(Term),
}

const FORMER: Owner = Owner::OfTerm(Term(5));

impl Owner {
    #[track_caller]
    fn lock(self, backing: &mut Backing) {
        match self {
            Owner::Single => assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked),
            Owner::OfTerm(term) => {
                assert_eq!(backing.lock_for_term(term).unwrap(), LockAttempt::Locked);
                assert_eq!(backing.lock_out_strangers(&[]).unwrap(), OwnerLock::Alone);
            }
        }
    }
}

fn open(path: &Path) -> Backing {
    Backing::open(path.to_str().unwrap(), BackingOptions::default()).unwrap()
}

/// Locks the backing, and on a word from the parent writes a block of 0x99 to it, which will hang.
fn child(path: &Path) -> ! {
    let mode = if std::env::var_os("FOREBAY_TEST_THREADS").is_some() { ModeChoice::Threads } else { ModeChoice::Uring };
    let owner = if std::env::var_os("FOREBAY_TEST_TERM").is_some() { FORMER } else { Owner::Single };
    let mut backing = open(path);
    owner.lock(&mut backing);
    let mut arena = Arena::anonymous(1, false).unwrap();
    arena.bytes_mut(FrameId(0)).fill(0x99);
    let mut reactor = Reactor::new(mode).unwrap();
    println!("\nlocked");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    reactor.submit(1, write_of(backing.file().unwrap(), &arena, 3));
    let mut out = Vec::new();
    reactor.wait(Some(Duration::from_millis(200)), &mut out).unwrap();
    assert!(out.is_empty(), "the file system is frozen");
    println!("\nhanging");
    loop {
        reactor.wait(None, &mut out).unwrap();
    }
}

/// The named test in a process of its own, which is `child` there, killed with its write under way.
fn kill_with_a_write_under_way(freezer: &Freezer, name: &str, mode: ModeChoice, owner: Owner) -> std::process::Child {
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args(["--exact", name, "--nocapture"]).env(CHILD, freezer.file());
    if mode == ModeChoice::Threads {
        run.env("FOREBAY_TEST_THREADS", "1");
    }
    if owner != Owner::Single {
        run.env("FOREBAY_TEST_TERM", "1");
    }
    let mut process = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "locked"));
    freezer.freeze();
    writeln!(process.stdin.take().unwrap(), "go").unwrap();
    assert!(lines.any(|line| line.unwrap() == "hanging"));
    process.kill().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    process
}

/// Tries until it is so.
fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whatever became of the write, it has become so before: nothing lands from now on.
fn assert_nothing_lands(path: &Path, process: &mut std::process::Child) {
    let now = std::fs::read(path).unwrap();
    process.wait().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(std::fs::read(path).unwrap() == now, "a write landed after the lock was given");
}

#[test]
fn the_lock_of_a_killed_process_lasts_until_its_last_write_has_landed() {
    if let Some(path) = std::env::var_os(CHILD) {
        child(Path::new(&path));
    }
    if not_possible_here() {
        return;
    }
    let name = "the_lock_of_a_killed_process_lasts_until_its_last_write_has_landed";
    for mode in [ModeChoice::Uring, ModeChoice::Threads] {
        let freezer = Freezer::new();
        let path = freezer.file();
        let mut process = kill_with_a_write_under_way(&freezer, name, mode, Owner::Single);
        let mut backing = open(&path);
        for _ in 0..10 {
            let attempt = backing.try_lock().unwrap();
            assert!(matches!(attempt, LockAttempt::HeldBy(_)), "{mode:?}: locked with a write still under way");
            std::thread::sleep(Duration::from_millis(20));
        }
        freezer.thaw();
        within("the lock never came", || backing.try_lock().unwrap() == LockAttempt::Locked);
        assert_nothing_lands(&path, &mut process);
    }
}

/// Protocol T6: the successor has a lock of its own at once, and a proof only when the last late write has ended.
#[test]
fn the_lock_of_a_killed_owners_term_lasts_until_its_last_write_and_its_successor_need_not_wait() {
    if let Some(path) = std::env::var_os(CHILD) {
        child(Path::new(&path));
    }
    if not_possible_here() {
        return;
    }
    let name = "the_lock_of_a_killed_owners_term_lasts_until_its_last_write_and_its_successor_need_not_wait";
    for mode in [ModeChoice::Uring, ModeChoice::Threads] {
        let freezer = Freezer::new();
        let path = freezer.file();
        let mut process = kill_with_a_write_under_way(&freezer, name, mode, FORMER);
        let mut successor = open(&path);
        assert_eq!(successor.lock_for_term(Term(6)).unwrap(), LockAttempt::Locked);
        assert!(!successor.locked());
        let unseen = TermLock::HeldBy(HolderDescription::Unseen);
        for _ in 0..10 {
            let lock = successor.lock_out_strangers(&[Term(5)]).unwrap();
            assert_eq!(lock, OwnerLock::BesideFormer(Term(5)), "{mode:?}");
            assert!(successor.locked());
            assert_eq!(successor.lock_of_term(Term(5)).unwrap(), unseen, "{mode:?}: a proof with a write under way");
            std::thread::sleep(Duration::from_millis(20));
        }
        freezer.thaw();
        within("the proof never came", || successor.lock_of_term(Term(5)).unwrap() == TermLock::Gone);
        assert_nothing_lands(&path, &mut process);
        assert_eq!(successor.lock_out_strangers(&[]).unwrap(), OwnerLock::Alone);
    }
}

/// Protocol T9: an owner that was deposed lets go of its backing at once; its lock stays with the write under way.
#[test]
fn the_lock_of_a_deposed_owner_ends_with_its_last_write_and_not_with_its_backing() {
    if not_possible_here() {
        return;
    }
    for mode in [ModeChoice::Uring, ModeChoice::Threads] {
        let freezer = Freezer::new();
        let path = freezer.file();
        let mut former = open(&path);
        FORMER.lock(&mut former);
        let mut successor = open(&path);
        assert_eq!(successor.lock_for_term(Term(6)).unwrap(), LockAttempt::Locked);
        assert_eq!(successor.lock_out_strangers(&[Term(5)]).unwrap(), OwnerLock::BesideFormer(Term(5)));
        let arena = Arena::anonymous(1, false).unwrap();
        let mut reactor = Reactor::new(mode).unwrap();
        freezer.freeze();
        reactor.submit(1, write_of(former.file().unwrap(), &arena, 3));
        let mut out = Vec::new();
        reactor.wait(Some(Duration::from_millis(100)), &mut out).unwrap();
        drop(former);
        assert!(matches!(successor.lock_of_term(Term(5)).unwrap(), TermLock::HeldBy(_)), "{mode:?}: {out:?}");
        freezer.thaw();
        while reactor.in_flight() > 0 {
            reactor.wait(Some(LONG), &mut out).unwrap();
        }
        // The completion gives the operation, and with it the last reference, back.
        out.clear();
        within("the lock stayed", || successor.lock_of_term(Term(5)).unwrap() == TermLock::Gone);
    }
}
