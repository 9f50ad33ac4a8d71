//! Real NBD clients against a server built from this package, whose volume checks every payload it is handed.
//!
//! A missing client fails its test and names the package that brings it. With `FOREBAY_SKIP_MISSING=1` the test is
//! left out instead, and says so on standard error.

use forebay_front::nbd::client::{Address, Client, Load};
use forebay_front::nbd::limit;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[allow(dead_code)] // its command line
#[path = "../examples/nbd-memory.rs"]
mod server;

const SIZE: u64 = 128 << 20;

struct Served {
    folder: PathBuf,
    socket: PathBuf,
    uri: String,
}

/// A server of its own for each test; it ends with the process.
fn served(test: &str) -> Served {
    let folder = std::env::temp_dir().join(format!("forebay-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("nbd.sock");
    let listener = server::Listener::bind(&format!("unix:{}", socket.display())).unwrap();
    std::thread::spawn(move || server::serve(listener, SIZE, false, true).unwrap());
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    Served { folder, socket, uri }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// False when the program is missing and tests may be skipped.
fn has(program: &str, package: &str) -> bool {
    let folders = std::env::var("PATH").unwrap_or_default();
    if folders.split(':').any(|folder| Path::new(folder).join(program).exists()) {
        return true;
    }
    assert!(
        std::env::var_os("FOREBAY_SKIP_MISSING").is_some(),
        "{program} is missing: install {package}, or set FOREBAY_SKIP_MISSING=1 to leave this test out"
    );
    // Not by eprintln, which the test harness swallows for tests that pass.
    writeln!(std::io::stderr(), "SKIPPED: {program} is missing (package {package})").unwrap();
    false
}

/// Runs a command that must succeed; its standard output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out.into_owned()
}

/// A file of bytes that do not repeat, with a hole in the middle.
fn image(path: &Path) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut bytes: Vec<u8> = (0..SIZE / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect();
    bytes[20 << 20..60 << 20].fill(0);
    std::fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !has("nbdinfo", "libnbd-bin") {
        return;
    }
    let served = served("nbdinfo");
    let info = run(Command::new("nbdinfo").args(["--json", &served.uri]));
    for expected in [
        "\"export-size\": 134217728",
        "\"is_read_only\": false",
        "\"can_cache\": true",
        "\"can_df\": true",
        "\"can_fast_zero\": true",
        "\"can_flush\": true",
        "\"can_fua\": true",
        "\"can_multi_conn\": true",
        "\"can_trim\": true",
        "\"can_zero\": true",
        "\"block_size_minimum\": 1",
        "\"block_size_preferred\": 4096",
        "\"block_size_maximum\": 33554432",
        "\"structured\": true",
        "base:allocation",
        "forebay:dirty",
        "forebay:tier",
    ] {
        assert!(info.contains(expected), "{expected} in {info}");
    }
    assert!(run(Command::new("nbdinfo").args(["--list", &served.uri])).contains("export=\"memory\""));
    let map = run(Command::new("nbdinfo").args(["--map", &served.uri]));
    assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "134217728", "3", "hole,zero"]);
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    if !has("qemu-io", "qemu-utils") {
        return;
    }
    let served = served("qemu-io");
    let target = format!("nbd:unix:{}", served.socket.display());
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for step in [
        "write -P 0xaa 0 1M",
        "write -z 256k 256k",
        "read -P 0 256k 256k",
        "read -P 0xaa 0 256k",
        "read -P 0xaa 512k 512k",
        "write -P 0x55 777 513",
        "read -P 0xaa 0 777",
        "read -P 0x55 777 513",
        "read -P 0xaa 1290 1000",
        "write -z -u 4k 8k",
        "read -P 0 4k 8k",
        "discard 0 128k",
        "read -P 0 0 128k",
        "write -f -P 3 8192 4096",
        "read -P 3 8192 4096",
        "aio_write -P 7 2M 3M",
        "aio_flush",
        "read -P 7 2M 3M",
        "flush",
    ] {
        command.args(["-c", step]);
    }
    let out = run(command.arg(&target));
    assert!(!out.contains("verification failed"), "{out}");
    assert!(!out.contains("failed"), "{out}");
}

#[test]
fn qemu_img_converts_and_compares() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let served = served("qemu-img");
    let file = served.folder.join("image");
    image(&file);
    let target = format!("nbd:unix:{}", served.socket.display());
    let raw = ["-f", "raw"];
    run(Command::new("qemu-img").args(["convert", "-n", "-O", "raw"]).args(raw).arg(&file).arg(&target));
    let same = run(Command::new("qemu-img").args(["compare", "-F", "raw"]).args(raw).arg(&file).arg(&target));
    assert!(same.contains("identical"), "{same}");
    let map = run(Command::new("qemu-img").args(["map", "--output=json"]).args(raw).arg(&target));
    assert!(map.contains("\"zero\": true"), "the hole is seen: {map}");
    run(Command::new("qemu-img").args(["bench", "-c", "20000", "-d", "64", "-w"]).args(raw).arg(&target));
}

#[test]
fn nbdcopy_copies_there_and_back() {
    if !has("nbdcopy", "libnbd-bin") {
        return;
    }
    let served = served("nbdcopy");
    let (there, back) = (served.folder.join("there"), served.folder.join("back"));
    let bytes = image(&there);
    run(Command::new("nbdcopy").arg(&there).arg(&served.uri));
    run(Command::new("nbdcopy").arg(&served.uri).arg(&back));
    assert!(std::fs::read(&back).unwrap() == bytes);
}

#[test]
fn fio_verifies() {
    if !has("fio", "fio") {
        return;
    }
    let served = served("fio");
    let uri = format!("--uri={}", served.uri);
    for (name, extra) in [("mixed", "--bsrange=512-64k"), ("blocks", "--bs=4k"), ("unaligned", "--bs_unaligned=1")] {
        let sizes = if name == "unaligned" { "--bsrange=100-9000" } else { "--size=64m" };
        run(Command::new("fio").args([
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--size=64m",
            "--rw=randwrite",
            sizes,
            extra,
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_backlog=256",
            "--verify_state_save=0",
        ]));
    }
}

fn has_python_libnbd() -> bool {
    // The distribution's python, which is the one that has the distribution's modules.
    let found = Command::new("/usr/bin/python3").args(["-c", "import nbd"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("FOREBAY_SKIP_MISSING").is_some(),
        "python's nbd module is missing: install python3-libnbd, or set FOREBAY_SKIP_MISSING=1"
    );
    writeln!(std::io::stderr(), "SKIPPED: python's nbd module is missing (package python3-libnbd)").unwrap();
    false
}

#[test]
fn hostile_clients_are_answered_and_disturb_nobody() {
    if !has_python_libnbd() {
        return;
    }
    let served = served("hostile");
    let out = run(Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile.py"))
        .args([&served.uri, &SIZE.to_string()])
        .arg(&served.socket));
    assert_eq!(out.trim(), "12 cases");
}

#[test]
fn eight_connections_agree_with_a_shadow_copy() {
    if !has_python_libnbd() {
        return;
    }
    let served = served("parallel");
    let out = run(Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parallel.py"))
        .args([&served.uri, "8388608"]));
    assert!(out.contains("reads checked"), "{out}");
}

fn load(depth: usize, size_bytes: u64) -> Load {
    Load {
        depth,
        operations: 20_000,
        duration: Duration::from_secs(60),
        request_bytes: 512..=65_536,
        read_percent: 40,
        sequential: false,
        region: 0..size_bytes,
        seed: 7,
        verify: true,
    }
}

#[test]
fn our_own_client_verifies() {
    let served = served("own");
    let mut client = Client::connect(&Address::Unix(served.socket.clone()), "memory").unwrap();
    assert_eq!(client.size_bytes(), SIZE);
    let report = client.run(&load(32, 8 << 20)).unwrap();
    assert_eq!((report.errors, report.mismatches), (0, 0));
    assert_eq!(report.reads + report.writes, 20_000);
    assert!(report.verified > 100_000, "{}", report.verified);
    // It would notice: another client overwrites a part behind its back.
    client.flush().unwrap();
    let mut other = Client::connect(&Address::Unix(served.socket.clone()), "").unwrap();
    let behind =
        Load { operations: 200_000, read_percent: 0, verify: false, request_bytes: 4096..=4096, ..load(8, 8 << 20) };
    let other = std::thread::spawn(move || other.run(&behind).unwrap());
    let report = client.run(&load(8, 8 << 20)).unwrap();
    assert!(report.mismatches > 0, "a difference is seen");
    other.join().unwrap();
    client.disconnect().unwrap();
    let refused = Client::connect(&Address::Unix(served.socket.clone()), "nobody");
    assert!(refused.is_err_and(|error| error.to_string().contains("refused the export")));
}

#[test]
fn our_own_client_agrees_with_a_foreign_server() {
    if !has("nbdkit", "nbdkit") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("forebay-{}-nbdkit", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("nbd.sock");
    let mut nbdkit = Command::new("nbdkit").args(["-f", "-U"]).arg(&socket).args(["memory", "16M"]).spawn().unwrap();
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut client = Client::connect(&Address::Unix(socket), "").unwrap();
    let report = client.run(&load(16, 16 << 20)).unwrap();
    nbdkit.kill().unwrap();
    nbdkit.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((report.errors, report.mismatches), (0, 0));
    assert!(report.verified > 100_000);
}

#[test]
fn the_limit_server_answers_every_request_and_checksums_every_payload() {
    let folder = std::env::temp_dir().join(format!("forebay-{}-limit", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("nbd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        client.set_nonblocking(true).unwrap();
        limit::serve(client.into(), SIZE, 16 << 20).unwrap()
    });
    let mut client = Client::connect(&Address::Unix(socket), "limit").unwrap();
    let mut bytes = 0;
    let mut operations = 0;
    for (request_bytes, read_percent) in [(4096..=4096, 0), (512..=200_192, 50), (4096..=4096, 100), (4096..=8192, 20)]
    {
        let load = Load { request_bytes, read_percent, verify: false, ..load(32, SIZE) };
        let report = client.run(&load).unwrap();
        assert_eq!(report.errors, 0);
        operations += report.reads + report.writes;
        bytes += report.bytes;
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    let report = server.join().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((report.operations, report.bytes), (operations + 1, bytes));
    assert_ne!(report.checksum, 0);
    assert!(report.cpu_seconds > 0.0);
}
