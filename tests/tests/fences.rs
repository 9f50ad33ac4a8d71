//! Fences that `forebay node fence-test` tries: a host's power by the installed fence agent and a simulated BMC, which
//! really ends a process that stands for the host; and devices without reservations. Those with are in `guests.rs`.

use forebay_tests::harness::{Output, TempDir, forebay, require_tool, run_command, skip};
use forebay_tests::kernel::{Loop, no_fuse_or_loop};
use serde_json::Value;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const PASSWORD: &str = "open-sesame";

fn fence_test(folder: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(forebay());
    command.args(["node", "fence-test", "--state"]).arg(folder.join("state")).args(arguments);
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

/// OpenIPMI's simulated BMC, with a process for the host whose power it has. The host writes as long as it lives.
struct Bmc {
    child: Child,
    port: u16,
    host: PathBuf,
    written: PathBuf,
    password: PathBuf,
}

/// What the BMC runs to look at, and change, its host's power. `$1` is its own address.
const CHASSIS: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
operation=$2
shift 2
# A killed one that nobody has buried yet is no host any more.
alive() { [ -e host ] && grep -qs ') [^ZX] ' "/proc/$(cat host)/stat"; }
case $operation in
get) for name in "$@"; do
        case $name in power) if alive; then echo power:1; else echo power:0; fi ;; *) echo "$name:0" ;; esac
    done ;;
set) while [ $# -ge 2 ]; do
        case $1:$2 in
        power:0) [ -e stuck ] || ! alive || kill -9 "$(cat host)" ;;
        power:1) alive || ./start ;;
        esac
        shift 2
    done ;;
esac
exit 0
"#;

/// The host: writes a line now and then, and ends by itself when nobody has ended it for long.
const START: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 1
setsid sh -c 'echo $$ >host; i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); echo $i >>written; sleep 0.01; done' \
    </dev/null >/dev/null 2>&1 &
until [ -s host ] && kill -0 "$(cat host)" 2>/dev/null; do sleep 0.01; done
"#;

impl Bmc {
    fn start(folder: &TempDir) -> Bmc {
        let script = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        script("chassis", CHASSIS);
        script("start", START);
        // A port that was free a moment ago: the kernel does not give it out again at once.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let auths = "none md2 md5 straight";
        let config = format!(
            "name \"forebay-test\"\nstartlan 1\naddr 127.0.0.1 {port}\npriv_limit admin\nallowed_auths_callback {auths}\n\
             allowed_auths_user {auths}\nallowed_auths_operator {auths}\nallowed_auths_admin {auths}\n\
             guid a123456789abcdefa123456789abcdef\nendlan\nuser 1 true \"\" \"\" user 10 {auths}\n\
             user 2 true \"forebay\" \"{PASSWORD}\" admin 10 {auths}\nchassis_control \"{} 0x20\"\n",
            folder.join("chassis").display()
        );
        std::fs::write(folder.join("lan.conf"), config).unwrap();
        let emulated =
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\nmc_enable 0x20\n";
        std::fs::write(folder.join("sim.emu"), emulated).unwrap();
        std::fs::create_dir(folder.join("bmc-state")).unwrap();
        let password = folder.join("password");
        std::fs::write(&password, format!("{PASSWORD}\n")).unwrap();
        std::fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
        run_command(LIMIT, Command::new(folder.join("start"))).expect_success();
        let mut command = Command::new(require_tool("ipmi_sim"));
        command.arg("-c").arg(folder.join("lan.conf")).arg("-f").arg(folder.join("sim.emu"));
        command.arg("-s").arg(folder.join("bmc-state")).arg("-n").stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let bmc = Bmc { child, port, host: folder.join("host"), written: folder.join("written"), password };
        wait_until("the BMC", || is_bound(port));
        bmc
    }

    /// Options of the agent that lead to this BMC.
    fn options(&self) -> Vec<String> {
        let port = format!("ipport={}", self.port);
        let mut options = Vec::new();
        for option in ["ip=127.0.0.1", &port, "lanplus=1", "cipher=3", "username=forebay"] {
            options.extend(["--option".to_owned(), option.to_owned()]);
        }
        options.extend(["--option-file".to_owned(), format!("password={}", self.password.display())]);
        options
    }

    fn try_it(&self, folder: &TempDir, more: &[&str]) -> Output {
        require_tool("ipmitool");
        let options = self.options();
        let mut arguments = vec!["--agent", "fence_ipmilan", "--node", "beta"];
        arguments.extend(options.iter().map(String::as_str));
        arguments.extend(more);
        fence_test(folder, &arguments)
    }

    fn host(&self) -> u32 {
        std::fs::read_to_string(&self.host).unwrap().trim().parse().expect("the number of a process")
    }

    fn written(&self) -> u64 {
        std::fs::metadata(&self.written).map_or(0, |metadata| metadata.len())
    }
}

impl Drop for Bmc {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if lives(self.host()) {
            // SAFETY: no memory is involved; the process is the one that this BMC's host wrote down, and lives.
            unsafe { libc::kill(self.host() as i32, libc::SIGKILL) };
        }
    }
}

fn lives(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}

fn is_bound(port: u16) -> bool {
    let all = std::fs::read_to_string("/proc/net/udp").expect("the kernel lists sockets");
    all.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}"))))
}

fn proofs(folder: &TempDir) -> Value {
    json(fence_test(folder, &["--list", "--json"]))
}

#[test]
fn a_host_is_switched_off_confirmed_and_on_again_and_the_proof_is_kept() {
    let folder = TempDir::new("fence-power");
    let bmc = Bmc::start(&folder);
    // Asked, nothing happens.
    let host = bmc.host();
    let asked = json(bmc.try_it(&folder, &["--json"]));
    assert_eq!((&asked["outcome"], &asked["class"]), (&"answers".into(), &"fence".into()), "{asked}");
    assert!(asked["found"].as_str().is_some_and(|found| found.contains("beta is on")), "{asked}");
    assert_eq!(asked["last_proven_unix_s"], Value::Null);
    assert!(lives(host));
    assert_eq!(proofs(&folder), Value::Array(Vec::new()));

    let proven = json(bmc.try_it(&folder, &["--power-off", "--json"]));
    assert_eq!((&proven["outcome"], &proven["target"]), (&"proven".into(), &"beta".into()), "{proven}");
    assert!(!lives(host), "the host was said to be off, and lives");
    // On again, it is another process, as a host that was started anew.
    assert!(lives(bmc.host()) && bmc.host() != host);
    let before = bmc.written();
    wait_until("the host to work again", || bmc.written() > before);
    let kept = proofs(&folder);
    assert_eq!(kept[0]["by"], "fence_ipmilan", "{kept}");
    assert_eq!(kept[0]["proven_unix_s"], proven["last_proven_unix_s"], "{kept}");
    let text = bmc.try_it(&folder, &[]).expect_success().stdout;
    assert!(text.contains("last proven  ") && text.contains(" ago") && text.contains("class        fence"), "{text}");
}

#[test]
fn a_host_that_stays_on_proves_nothing_and_neither_does_one_that_was_off() {
    let folder = TempDir::new("fence-stuck");
    let bmc = Bmc::start(&folder);
    let host = bmc.host();
    std::fs::write(folder.join("stuck"), "").unwrap();
    let failed = bmc.try_it(&folder, &["--power-off", "--option", "power_timeout=2"]).expect_failure().stderr;
    assert!(failed.contains("the fence agent fence_ipmilan failed at action=off"), "{failed}");
    assert!(lives(host));
    std::fs::remove_file(folder.join("stuck")).unwrap();
    // SAFETY: no memory is involved; the process is this test's own.
    unsafe { libc::kill(host as i32, libc::SIGKILL) };
    wait_until("the host's end", || !lives(host));
    let off = bmc.try_it(&folder, &["--power-off"]).expect_failure().stderr;
    assert!(off.contains("beta is off already"), "{off}");
    assert_eq!(proofs(&folder), Value::Array(Vec::new()));
}

#[test]
fn a_wrong_password_is_told_and_told_to_nobody() {
    let folder = TempDir::new("fence-password");
    let bmc = Bmc::start(&folder);
    std::fs::write(&bmc.password, "a wrong one\n").unwrap();
    let host = bmc.host();
    let failed = bmc.try_it(&folder, &["--power-off"]).expect_failure().stderr;
    assert!(failed.contains("failed at action=status") && failed.contains("check address, user, password"), "{failed}");
    assert!(!failed.contains("a wrong one"), "{failed}");
    assert!(lives(host));

    std::fs::set_permissions(&bmc.password, PermissionsExt::from_mode(0o644)).unwrap();
    let open = bmc.try_it(&folder, &[]).expect_failure().stderr;
    assert!(open.contains("holds a secret: chmod 600"), "{open}");
    let shown = fence_test(&folder, &["--agent", "fence_ipmilan", "--node", "beta", "--option", "password=x"]);
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
    let failed = fence_test(&folder, &[&agent[..], &more].concat()).expect_failure().stderr;
    assert!(failed.contains("did not end action=status within 2.0 s"), "{failed}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    // It has really asked, by the program that the agent runs, and that one is gone as well.
    silent.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut datagram = [0; 512];
    let (_, asker) = silent.recv_from(&mut datagram).expect("nobody has asked");
    wait_until("the asker's end", || !is_bound(asker.port()));
}

#[test]
fn what_is_missing_or_cannot_be_fenced_is_told_with_what_to_do() {
    let folder = TempDir::new("fence-missing");
    let missing = fence_test(&folder, &["--agent", "fence_nosuchthing", "--node", "beta"]).expect_failure().stderr;
    assert!(missing.contains("package fence-agents"), "{missing}");
    let usage = fence_test(&folder, &["--agent", "fence_ipmilan"]).expect_failure();
    assert_eq!(usage.status.code(), Some(2), "{}", usage.describe());
    assert_eq!(fence_test(&folder, &[]).expect_failure().status.code(), Some(2));
    let file = folder.sparse("file", 1 << 20);
    let reserve = |path: &Path, more: &[&str]| {
        let arguments = [&["--reservation", path.to_str().unwrap()], more].concat();
        fence_test(&folder, &arguments).expect_failure().stderr
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
