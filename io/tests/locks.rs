//! Locks against another program: QEMU and we stop each other. Needs `qemu-io` (package qemu-utils).

use forebay_io::{Backing, BackingOptions, HolderDescription, LockAttempt};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const MISSING: &str = "these tests need qemu-io: install qemu-utils";

fn image(folder: &tempfile::TempDir) -> String {
    let path = folder.path().join("disk.img");
    std::fs::write(&path, vec![0u8; 1 << 20]).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn qemu_is_refused_while_we_hold_the_backing() {
    let folder = tempfile::tempdir().unwrap();
    let spec = image(&folder);
    let mut backing = Backing::open(&spec, BackingOptions::default()).unwrap();
    let write = || Command::new("qemu-io").args(["-f", "raw", "-c", "write -P 7 0 4k", &spec]).output().expect(MISSING);
    let before = write();
    assert!(before.status.success(), "without our lock QEMU may write: {before:?}");
    assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
    let refused = write();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("lock"), "{refused:?}");
    drop(backing);
    assert!(write().status.success());
}

#[test]
fn we_are_refused_while_qemu_holds_the_backing_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let spec = image(&folder);
    let mut qemu = Command::new("qemu-io")
        .args(["-f", "raw", &spec])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect(MISSING);
    let mut input = qemu.stdin.take().unwrap();
    let mut output = BufReader::new(qemu.stdout.take().unwrap());
    // The answer to a command proves that the image is open.
    writeln!(input, "length").unwrap();
    let mut line = String::new();
    while !line.contains("MiB") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "qemu-io ended without an answer");
    }
    let mut backing = Backing::open(&spec, BackingOptions::default()).unwrap();
    match backing.try_lock().unwrap() {
        LockAttempt::HeldBy(HolderDescription::Process { pid, command }) => {
            assert_eq!(pid, qemu.id());
            assert!(command.starts_with("qemu-io"), "{command}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!backing.locked());
    drop(input);
    assert!(qemu.wait().unwrap().success());
    assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
}
