//! What the daemon says may be written nowhere: it serves, stops in order, and leaves a complete image all the same.

use forebay_tests::harness::{IoMode, TempDir, Tier, Volume, die_with_the_test, wait_within};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::Client;
use forebay_tests::scene::SIZE;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const CONTENT: [u8; 4096] = [0x5a; 4096];

/// Reading and writing end.
fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors, which nobody else owns.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0, "{}", std::io::Error::last_os_error());
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

/// A pipe that takes nothing more: whoever writes waits until somebody reads.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe();
    let set = |flags: i32| {
        // SAFETY: it takes integers.
        let result = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, flags) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    };
    set(libc::O_NONBLOCK);
    let mut file = File::from(writer.try_clone().expect("a second handle"));
    while file.write(b"x").is_ok() {}
    set(0);
    (reader, writer)
}

/// A daemon that says what it says to `stderr` serves a write, and has it in its image after SIGTERM.
#[track_caller]
fn serves_and_stops(volume: &Volume, stderr: impl Into<Stdio>) {
    let mut command = volume.command();
    let mut daemon = die_with_the_test(&mut command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap_or_else(|e| panic!("start {command:?}: {e}"));
    drop(command);
    let begun = Instant::now();
    let mut client = loop {
        match Client::connect(&volume.target()) {
            Ok(client) => break client,
            Err(error) => assert!(begun.elapsed() < MINUTE, "it serves nothing: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    client.write(8192, &CONTENT, 0).unwrap().unwrap();
    drop(client);
    // SAFETY: it takes two integers, and the child has not been waited for.
    assert_eq!(unsafe { libc::kill(daemon.id() as i32, libc::SIGTERM) }, 0);
    let Some(status) = wait_within(&mut daemon, MINUTE) else {
        let _ = daemon.kill();
        panic!("it does not stop");
    };
    assert!(status.success(), "it ended with {status}");
    let image = std::fs::read(&volume.backing).expect("the image");
    assert!(image[8192..8192 + CONTENT.len()] == CONTENT, "the image lacks what was acknowledged");
}

in_both_io_modes! {
    fn a_full_standard_error_stops_nothing(io: IoMode) {
        let folder = TempDir::new("full-stderr");
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        serves_and_stops(&Volume::new(&folder, SIZE, Tier::Memory, io), full);
    }

    fn a_standard_error_that_nobody_holds_any_more_stops_nothing(io: IoMode) {
        let folder = TempDir::new("closed-stderr");
        let (reader, writer) = pipe();
        drop(reader);
        serves_and_stops(&Volume::new(&folder, SIZE, Tier::Memory, io), writer);
    }

    fn a_daemon_that_cannot_serve_ends_although_nobody_reads_why(io: IoMode) {
        let folder = TempDir::new("unread-why");
        let volume = Volume::new(&folder, SIZE, Tier::Memory, io);
        std::fs::write(volume.state(), "no folder").expect("the folder is writable");
        let (_unread, writer) = full_pipe();
        let mut command = volume.command();
        let mut daemon = die_with_the_test(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn();
        let daemon = daemon.as_mut().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let status = wait_within(daemon, MINUTE);
        let _ = daemon.kill();
        assert!(status.is_some_and(|status| !status.success()), "it ended as {status:?}");
    }

    fn a_standard_error_that_nobody_reads_stops_nothing(io: IoMode) {
        let folder = TempDir::new("unread-stderr");
        let (_unread, writer) = full_pipe();
        serves_and_stops(&Volume::new(&folder, SIZE, Tier::Memory, io), writer);
    }
}

/// What a daemon writes from its start to its end, in this format.
fn said(name: &str, format: &str) -> String {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, Tier::Memory, IoMode::Threads);
    volume.arguments = vec!["--log-format".into(), format.into()];
    let said = folder.join("said");
    serves_and_stops(&volume, File::create(&said).expect("the folder is writable"));
    std::fs::read_to_string(&said).expect("UTF-8")
}

#[test]
fn each_line_of_a_log_in_json_is_one_object() {
    let said = said("log-json", "json");
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect();
    assert!(!lines.is_empty(), "a stop is said");
    for line in &lines {
        let is_text = |key: &str| line[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(["time", "level", "area", "message"].into_iter().all(is_text), "{line}");
    }
}

#[test]
fn each_line_of_a_log_for_the_journal_has_its_priority() {
    let said = said("log-journal", "journal");
    assert!(!said.is_empty(), "a stop is said");
    for line in said.lines() {
        let priority = line.strip_prefix('<').and_then(|rest| rest.split_once(">forebay: "));
        assert!(priority.is_some_and(|(level, _)| ["2", "3", "4", "5"].contains(&level)), "{line}");
    }
}
