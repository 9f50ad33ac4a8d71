//! Owners of one image in processes of their own, and QEMU as a stranger: who stops whom, and who is told about whom.

use forebay_core::types::Term;
use forebay_io::lock::{LockRange, holder_of};
use forebay_io::{Backing, BackingOptions, HolderDescription, LockAttempt, OwnerLock, TermLock};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "FOREBAY_TEST_IMAGE_OF_CHILD";
const CHILD_TERM: &str = "FOREBAY_TEST_TERM_OF_CHILD";
const LONG: Duration = Duration::from_secs(20);

fn open(path: &Path) -> Backing {
    Backing::open(path.to_str().unwrap(), BackingOptions::default()).unwrap()
}

fn image(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0u8; 1 << 20]).unwrap();
    path
}

/// An owner of this term, or (none) a single node, that lives until it is killed.
struct Process(Child);

impl Process {
    fn start(test: &str, path: &Path, term: Option<u32>) -> Process {
        let mut run = Command::new(std::env::current_exe().unwrap());
        run.args(["--exact", test, "--nocapture"]).env(CHILD, path);
        if let Some(term) = term {
            run.env(CHILD_TERM, term.to_string());
        }
        let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "locked"));
        Process(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn assert_is(&self, holder: &HolderDescription) {
        assert!(matches!(holder, HolderDescription::Process { pid, .. } if *pid == self.0.id()), "{holder}");
    }
}

/// Does not return in a process that [`Process::start`] made.
fn be_the_child_if_asked() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut backing = open(Path::new(&path));
    match std::env::var(CHILD_TERM) {
        Ok(term) => {
            assert_eq!(backing.lock_for_term(Term(term.parse().unwrap())).unwrap(), LockAttempt::Locked);
            assert_eq!(backing.lock_out_strangers(&[]).unwrap(), OwnerLock::Alone);
        }
        Err(_) => assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked),
    }
    println!("\nlocked");
    loop {
        std::thread::sleep(LONG);
    }
}

#[track_caller]
fn assert_held_by(process: &Process, attempt: LockAttempt) {
    match attempt {
        LockAttempt::HeldBy(holder) => process.assert_is(&holder),
        LockAttempt::Locked => panic!("two owners"),
    }
}

#[track_caller]
fn assert_owner_is_stopped_by(process: &Process, lock: OwnerLock) {
    match lock {
        OwnerLock::HeldBy(holder) => process.assert_is(&holder),
        OwnerLock::Alone | OwnerLock::BesideFormer(_) => panic!("{lock:?}"),
    }
}

#[test]
fn a_successor_is_told_who_the_former_owner_is_and_has_proof_when_it_has_ended() {
    be_the_child_if_asked();
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder);
    let test = "a_successor_is_told_who_the_former_owner_is_and_has_proof_when_it_has_ended";
    let former = Process::start(test, &path, Some(41));
    // A third process that merely has the image open is not taken for the one that holds the lock.
    let bystander = open(&path);
    let mut successor = open(&path);
    assert_eq!(successor.lock_for_term(Term(42)).unwrap(), LockAttempt::Locked);
    // Who is not told that the former owner may be there takes it for a stranger.
    assert_owner_is_stopped_by(&former, successor.lock_out_strangers(&[Term(40)]).unwrap());
    assert!(!successor.locked());
    let lock = successor.lock_out_strangers(&[Term(40), Term(41)]).unwrap();
    assert_eq!(lock, OwnerLock::BesideFormer(Term(41)));
    assert!(successor.locked());
    for asker in [&successor, &bystander] {
        match asker.lock_of_term(Term(41)).unwrap() {
            TermLock::HeldBy(holder) => former.assert_is(&holder),
            other => panic!("{other:?}"),
        }
        assert_eq!(asker.lock_of_term(Term(40)).unwrap(), TermLock::Gone);
    }
    former.kill();
    let limit = Instant::now() + LONG;
    while successor.lock_of_term(Term(41)).unwrap() != TermLock::Gone {
        assert!(Instant::now() < limit, "the proof never came");
    }
    assert_eq!(successor.lock_out_strangers(&[]).unwrap(), OwnerLock::Alone);
}

#[test]
fn two_candidates_ask_for_one_term_and_neither_is_gone_before_it_has_dropped_its_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder);
    let (mut winner, mut loser, asker) = (open(&path), open(&path), open(&path));
    for candidate in [&mut winner, &mut loser] {
        assert_eq!(candidate.lock_for_term(Term(7)).unwrap(), LockAttempt::Locked);
        assert!(!candidate.locked(), "a candidate may not write");
    }
    assert_eq!(winner.lock_out_strangers(&[]).unwrap(), OwnerLock::Alone);
    assert!(matches!(loser.lock_out_strangers(&[]).unwrap(), OwnerLock::HeldBy(_)));
    drop(winner);
    assert!(matches!(asker.lock_of_term(Term(7)).unwrap(), TermLock::HeldBy(_)));
    drop(loser);
    // A process that another test starts has what is open here until it executes its own program.
    let limit = Instant::now() + LONG;
    while asker.lock_of_term(Term(7)).unwrap() != TermLock::Gone {
        assert!(Instant::now() < limit, "its lock outlives its opening");
    }
}

#[test]
fn a_single_node_and_an_owner_in_a_cluster_stop_each_other() {
    be_the_child_if_asked();
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder);
    let test = "a_single_node_and_an_owner_in_a_cluster_stop_each_other";
    let single = Process::start(test, &path, None);
    let mut owner = open(&path);
    assert_held_by(&single, owner.lock_for_term(Term(1)).unwrap());
    assert!(!owner.locked());
    single.kill();
    let owner = Process::start(test, &path, Some(1));
    assert_held_by(&owner, open(&path).try_lock().unwrap());
    owner.kill();
    // In quarantine a successor has the byte of its term only; that stops a single node as well.
    let owner = Process::start(test, &path, Some(1));
    let mut successor = open(&path);
    assert_eq!(successor.lock_for_term(Term(2)).unwrap(), LockAttempt::Locked);
    assert_eq!(successor.lock_out_strangers(&[Term(1)]).unwrap(), OwnerLock::BesideFormer(Term(1)));
    owner.kill();
    assert!(matches!(open(&path).try_lock().unwrap(), LockAttempt::HeldBy(_)));
}

#[test]
fn qemu_is_locked_out_by_an_owner_and_locks_it_out() {
    let has_qemu = Command::new("qemu-io").arg("--version").output().is_ok();
    if !has_qemu {
        let _ = writeln!(std::io::stderr(), "SKIPPED qemu_is_locked_out_by_an_owner_and_locks_it_out: needs qemu-io");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = image(&folder);
    let write = |commands: &[&str]| {
        let mut run = Command::new("qemu-io");
        run.args(["-f", "raw"]).args(commands.iter().flat_map(|command| ["-c", command])).arg(&path);
        run
    };
    let mut owner = open(&path);
    assert_eq!(owner.lock_for_term(Term(3)).unwrap(), LockAttempt::Locked);
    assert_eq!(owner.lock_out_strangers(&[]).unwrap(), OwnerLock::Alone);
    let refused = write(&["write 0 512"]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("lock"), "{text}");
    drop(owner);
    let mut qemu = write(&["sleep 60000"]).stdout(Stdio::null()).spawn().unwrap();
    let bystander = std::fs::File::open(&path).unwrap();
    let limit = Instant::now() + LONG;
    while holder_of(&bystander, LockRange::STRANGERS).unwrap().is_none() {
        assert!(Instant::now() < limit, "QEMU has not locked the image");
        std::thread::sleep(Duration::from_millis(5));
    }
    // QEMU is no former owner: in quarantine, too, nothing is written beside it.
    let mut owner = open(&path);
    assert_eq!(owner.lock_for_term(Term(4)).unwrap(), LockAttempt::Locked);
    let lock = owner.lock_out_strangers(&[Term(3)]).unwrap();
    let locked = owner.locked();
    let pid = qemu.id();
    qemu.kill().unwrap();
    qemu.wait().unwrap();
    assert!(
        matches!(&lock, OwnerLock::HeldBy(HolderDescription::Process { pid: held_by, .. }) if *held_by == pid),
        "{lock:?}"
    );
    assert!(!locked);
    assert_eq!(owner.lock_out_strangers(&[Term(3)]).unwrap(), OwnerLock::Alone);
}
