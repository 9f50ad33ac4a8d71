//! Fences that `forebay node fence-check` tries: a host's power by the installed fence agent and a simulated BMC, which
//! really ends a process that stands for the host; and devices without reservations. Those with are in `guests.rs`.

use forebay_tests::bmc::{Bmc, lives};
use forebay_tests::harness::{Output, TempDir, forebay, is_bound, require_tool, run_command, skip};
use forebay_tests::kernel::{Loop, no_fuse_or_loop};
use serde_json::Value;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn fence_check(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(forebay());
    command.args(["node", "fence-check", "--state"]).arg(folder.join("state")).args(arguments);
    // The agents use programs of the administrator's folders, which are not in every user's PATH.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    run_command(LIMIT, command)
}

#[track_caller]
fn json(output: Output) -> Value {
    let output = output.expect_success();
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.describe()))
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn try_it(bmc: &Bmc, folder: &TempDir, more: &[&str]) -> Output {
    require_tool("ipmitool");
    let options = bmc.options();
    let mut arguments = vec!["--agent", "fence_ipmilan", "--node", "beta"];
    arguments.extend(options.iter().map(String::as_str));
    arguments.extend(more);
    fence_check(folder, &arguments)
}

fn proofs(folder: &TempDir) -> Value {
    json(fence_check(folder, &["--list", "--json"]))
}

#[test]
fn a_host_is_switched_off_confirmed_and_on_again_and_the_proof_is_kept() {
    let folder = TempDir::new("fence-power");
    let bmc = Bmc::start(folder.path(), None);
    // Asked, nothing happens.
    let host = bmc.host();
    let asked = json(try_it(&bmc, &folder, &["--json"]));
    assert_eq!((&asked["outcome"], &asked["class"]), (&"answers".into(), &"fence".into()), "{asked}");
    assert!(asked["found"].as_str().is_some_and(|found| found.contains("beta is on")), "{asked}");
    assert_eq!(asked["last_proven_unix_s"], Value::Null);
    assert!(lives(host));
    assert_eq!(proofs(&folder), Value::Array(Vec::new()));

    let proven = json(try_it(&bmc, &folder, &["--power-off", "--json"]));
    assert_eq!((&proven["outcome"], &proven["target"]), (&"proven".into(), &"beta".into()), "{proven}");
    assert!(!lives(host), "the host was said to be off, and lives");
    // On again, it is another process, as a host that was started anew.
    assert!(lives(bmc.host()) && bmc.host() != host);
    let before = bmc.written();
    wait_until("the host to work again", || bmc.written() > before);
    let kept = proofs(&folder);
    assert_eq!(kept[0]["by"], "fence_ipmilan", "{kept}");
    assert_eq!(kept[0]["proven_unix_s"], proven["last_proven_unix_s"], "{kept}");
    let text = try_it(&bmc, &folder, &[]).expect_success().stdout;
    assert!(text.contains("last proven  ") && text.contains(" ago") && text.contains("class        fence"), "{text}");
}

#[test]
fn a_host_that_stays_on_proves_nothing_and_neither_does_one_that_was_off() {
    let folder = TempDir::new("fence-stuck");
    let bmc = Bmc::start(folder.path(), None);
    let host = bmc.host();
    std::fs::write(folder.join("stuck"), "").unwrap();
    let failed = try_it(&bmc, &folder, &["--power-off", "--option", "power_timeout=2"]).expect_failure().stderr;
    assert!(failed.contains("the fence agent fence_ipmilan failed at action=off"), "{failed}");
    assert!(lives(host));
    std::fs::remove_file(folder.join("stuck")).unwrap();
    // SAFETY: no memory is involved; the process is this test's own.
    unsafe { libc::kill(host as i32, libc::SIGKILL) };
    wait_until("the host's end", || !lives(host));
    let off = try_it(&bmc, &folder, &["--power-off"]).expect_failure().stderr;
    assert!(off.contains("beta is off already"), "{off}");
    assert_eq!(proofs(&folder), Value::Array(Vec::new()));
}

#[test]
fn a_wrong_password_is_told_and_told_to_nobody() {
    let folder = TempDir::new("fence-password");
    let bmc = Bmc::start(folder.path(), None);
    std::fs::write(&bmc.password, "a wrong one\n").unwrap();
    let host = bmc.host();
    let failed = try_it(&bmc, &folder, &["--power-off"]).expect_failure().stderr;
    assert!(failed.contains("failed at action=status") && failed.contains("check address, user, password"), "{failed}");
    assert!(!failed.contains("a wrong one"), "{failed}");
    assert!(lives(host));

    std::fs::set_permissions(&bmc.password, PermissionsExt::from_mode(0o644)).unwrap();
    let open = try_it(&bmc, &folder, &[]).expect_failure().stderr;
    assert!(open.contains("holds a secret: chmod 600"), "{open}");
    let shown = fence_check(&folder, &["--agent", "fence_ipmilan", "--node", "beta", "--option", "password=x"]);
    assert!(shown.expect_failure().stderr.contains("--option-file password=FILE"));
}

#[test]
fn a_bmc_that_does_not_answer_costs_its_time_and_leaves_nothing_running() {
    let folder = TempDir::new("fence-silent");
    // Bound, and silent.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = format!("ipport={}", silent.local_addr().unwrap().port());
    let password = folder.join("password");
    std::fs::write(&password, "x").unwrap();
    std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    let password = format!("password={}", password.display());
    require_tool("fence_ipmilan");
    let begun = Instant::now();
    let agent = ["--agent", "fence_ipmilan", "--node", "beta", "--option", "ip=127.0.0.1", "--option", &port];
    let more = ["--option", "lanplus=1", "--option", "username=forebay", "--option-file", &password, "--timeout", "2s"];
    let failed = fence_check(&folder, &[&agent[..], &more].concat()).expect_failure().stderr;
    assert!(failed.contains("did not end action=status within 2.0 s"), "{failed}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // It has really asked, by the program that the agent runs, and that one is gone as well.
    silent.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut datagram = [0; 512];
    let (_, asker) = silent.recv_from(&mut datagram).expect("nobody has asked");
    wait_until("the asker's end", || !is_bound("udp", asker.port()));
}

#[test]
fn what_is_missing_or_cannot_be_fenced_is_told_with_what_to_do() {
    let folder = TempDir::new("fence-missing");
    let missing = fence_check(&folder, &["--agent", "fence_nosuchthing", "--node", "beta"]).expect_failure().stderr;
    assert!(missing.contains("package fence-agents"), "{missing}");
    let usage = fence_check(&folder, &["--agent", "fence_ipmilan"]).expect_failure();
    assert_eq!(usage.status.code(), Some(2), "{}", usage.describe());
    assert_eq!(fence_check(&folder, &[]).expect_failure().status.code(), Some(2));
    let file = folder.sparse("file", 1 << 20);
    let reserve = |path: &Path, more: &[&str]| {
        let arguments = [&["--reservation", path.to_str().unwrap()], more].concat();
        fence_check(&folder, &arguments).expect_failure().stderr
    };
    let told = reserve(&file, &[]);
    assert!(told.contains("a reservation is of a block device, and it is a file"), "{told}");
    let told = reserve(&file, &["--expel", "12"]);
    assert!(told.contains("0x and hex digits"), "{told}");
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let device = Loop::attach(&file);
    for more in [&[][..], &["--expel", "0x8000000000000001"], &["--be-expelled"]] {
        let told = reserve(device.path(), more);
        assert!(told.contains("it has no persistent reservations"), "{more:?}: {told}");
    }
}
