//! What is read without a daemon: tiers, journals, and recorded hosts.

use super::{is_root, one_volume, run, transcript_of};
use forebay_tests::harness::TempDir;
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::nbd::Client;
use forebay_tests::transcript::Transcript;
use std::path::Path;

/// Six writes, among them one over another and a trim, with barriers between them; then the daemon is killed.
fn write_and_kill(folder: &TempDir) -> std::path::PathBuf {
    let mut volume = one_volume(folder);
    let image = volume.backing.clone();
    volume.backing = format!("slow:latency=30s:{image}");
    volume.destage = "ordered";
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).expect("it serves");
    for (number, (offset, length)) in [(0, 4096), (8192, 12288), (0, 512), (1 << 20, 65536)].into_iter().enumerate() {
        client.write(offset, &vec![number as u8 + 1; length], 0).expect("a reply").expect("it is written");
        client.flush().expect("a reply").expect("it is synced");
    }
    client.trim(8192, 4096).expect("a reply").expect("it is trimmed");
    client.flush().expect("a reply").expect("it is synced");
    let tier = daemon.show()["tier"]["path"].as_str().expect("a path").to_owned();
    daemon.kill9();
    wait_for_late_writes(Path::new(&image));
    tier.into()
}

#[test]
fn inspect_and_salvage_of_a_tier_say_what_is_recorded() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("transcripts-tier");
    let mut transcript = transcript_of("tier", &folder);
    transcript.names.vary_fields(&["created_unix_s"]);
    let tier = write_and_kill(&folder);
    let tier = tier.to_str().expect("a plain path");
    let at = |name: &str| folder.join(name).to_str().expect("a plain path").to_owned();
    transcript.part("a tier");
    run(&mut transcript, &folder, &["inspect", tier], &[]);
    run(&mut transcript, &folder, &["inspect", tier, "--json"], &[]);
    run(&mut transcript, &folder, &["salvage", tier, "--to", &at("one.img")], &[]);
    run(
        &mut transcript,
        &folder,
        &["salvage", tier, "--to", &at("two.img"), "--base", &at("backing.img"), "--json"],
        &[],
    );
    for name in ["one.img", "two.img"] {
        content(&mut transcript, name, &std::fs::read(folder.join(name)).expect("it was written"));
    }
    transcript.part("what is refused");
    run(&mut transcript, &folder, &["salvage", tier, "--to", &at("one.img")], &[]);
    run(&mut transcript, &folder, &["inspect", &at("nothing")], &[]);
    run(&mut transcript, &folder, &["inspect", &at("nothing"), "--json"], &[]);
    std::fs::write(folder.join("zeros"), vec![0; 1 << 20]).expect("room for a file");
    run(&mut transcript, &folder, &["inspect", &at("zeros")], &[]);
    run(&mut transcript, &folder, &["salvage", &at("zeros"), "--to", &at("three.img")], &[]);
    run(&mut transcript, &folder, &["salvage", &at("zeros")], &[]);
    transcript.finish();
}

#[test]
fn inspect_and_salvage_of_a_journal_say_what_is_recorded() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("transcripts-journal");
    let mut transcript = transcript_of("journal", &folder);
    let mut volume = one_volume(&folder);
    volume.destage = "journaled";
    volume.arguments.push("--no-drain-on-stop".into());
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).expect("it serves");
    client.write(0, &[1; 4096], 0).expect("a reply").expect("it is written");
    client.flush().expect("a reply").expect("it is synced");
    drop(client);
    daemon.drain();
    daemon.kill9();
    wait_for_late_writes(&volume.image());
    let journal = volume.journal();
    let journal = journal.to_str().expect("a plain path");
    let to = folder.join("one.img").to_str().expect("a plain path").to_owned();
    transcript.part("a journal");
    run(&mut transcript, &folder, &["inspect", journal], &[]);
    run(&mut transcript, &folder, &["inspect", journal, "--json"], &[]);
    run(&mut transcript, &folder, &["salvage", journal, "--to", &to], &[]);
    std::fs::remove_file(&to).expect("it was written");
    run(&mut transcript, &folder, &["salvage", journal, "--to", &to, "--json"], &[]);
    content(&mut transcript, "one.img", &std::fs::read(&to).expect("it was written"));
    transcript.finish();
}

/// Blocks of an image that are not zeros.
fn content(transcript: &mut Transcript, name: &str, bytes: &[u8]) {
    transcript.line(&format!("\n{name}: {} bytes", bytes.len()));
    let mut last: Option<(usize, usize, u8)> = None;
    let sectors = bytes.chunks(512).enumerate().map(|(at, sector)| (at, sector[0]));
    let mut runs = Vec::new();
    for (at, byte) in sectors.filter(|(_, byte)| *byte != 0) {
        match &mut last {
            Some((_, end, same)) if *end == at && *same == byte => *end += 1,
            other => runs.extend(other.replace((at, at + 1, byte))),
        }
    }
    for (begin, end, byte) in runs.into_iter().chain(last) {
        transcript.line(&format!("sectors {begin} to {}: {byte}", end - 1));
    }
}

/// A host with four processors, a slow governor and nothing else.
fn small_host(root: &Path) {
    let put = |name: &str, text: &str| {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("below it")).expect("a folder");
        std::fs::write(&path, text).expect("room for a file");
    };
    put("sys/devices/system/cpu/online", "0-3\n");
    put("sys/devices/system/node/online", "0\n");
    put("sys/devices/system/node/node0/cpulist", "0-3\n");
    put("proc/version", "Linux version 6.1.0\n");
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:        8388608 kB\n");
    for cpu in 0..4 {
        let policy = format!("sys/devices/system/cpu/cpufreq/policy{cpu}");
        put(&format!("{policy}/scaling_governor"), "powersave\n");
        put(&format!("{policy}/scaling_available_governors"), "performance powersave\n");
        put(&format!("{policy}/scaling_driver"), "acpi-cpufreq\n");
        put(&format!("{policy}/affected_cpus"), &format!("{cpu}\n"));
        put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"), &format!("{cpu}\n"));
        put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0\n");
    }
}

#[test]
fn the_doctor_says_of_a_recorded_host_what_is_recorded() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("transcripts-doctor");
    let mut transcript = transcript_of("doctor", &folder);
    let root = folder.join("host");
    small_host(&root);
    let root = root.to_str().expect("a plain path");
    for language in ["en", "ja", "ko"] {
        run(&mut transcript, &folder, &["doctor", "--sysroot", root, "--language", language], &[]);
    }
    let english = ["--sysroot", root, "--language", "en"];
    let ask = |transcript: &mut Transcript, words: &[&str]| {
        run(transcript, &folder, &[&["doctor"], words, &english].concat(), &[]);
    };
    ask(&mut transcript, &["--json"]);
    ask(&mut transcript, &["path"]);
    ask(&mut transcript, &["path", "--json"]);
    ask(&mut transcript, &["baseline", "show"]);
    ask(&mut transcript, &["--apply", "no-such-finding"]);
    ask(&mut transcript, &["--revert"]);
    ask(&mut transcript, &["--verbose"]);
    let above = folder.path().to_str().expect("a plain path");
    run(&mut transcript, &folder, &["doctor", "--sysroot", above, "--language", "en"], &[]);
    run(&mut transcript, &folder, &["doctor", "--sysroot", "/no/such/folder"], &[]);
    transcript.finish();
}
