//! The lowest user of the host against whoever is root: what he puts into folders of his own, and into places that everybody may write to, leads
//! root's commands nowhere else, makes them wait for nothing, and is not believed.

use forebay_tests::harness::{IoMode, Output, TempDir, Tier, Volume, forebay, run_command, skip};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// A user who owns nothing else.
const LOWEST: u32 = 65_534;
/// Another one, who is to be led astray.
const VICTIM: u32 = 65_533;
const SECRET: &str = "root's own";

/// Root's folder with a secret, and beside it one of the lowest user.
struct Host(TempDir);

impl Host {
    /// None where this process is not root, who alone has anything to lose.
    fn new(name: &str) -> Option<Host> {
        // SAFETY: it has no arguments, cannot fail and touches no memory.
        if unsafe { libc::geteuid() } != 0 {
            skip("the lowest user attacks root: it needs root");
            return None;
        }
        let host = Host(TempDir::new(name));
        // A folder that everybody may write to, as /tmp.
        std::fs::set_permissions(host.0.path(), PermissionsExt::from_mode(0o1777)).unwrap();
        std::fs::write(host.at("secret"), SECRET).unwrap();
        host.as_lowest("mkdir theirs && chmod 755 theirs");
        Some(host)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// A script of the lowest user's in the host's folder.
    fn as_lowest(&self, script: &str) {
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]).current_dir(self.0.path()).uid(LOWEST).gid(LOWEST);
        run_command(MINUTE, shell).expect_success();
    }

    fn as_root(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(forebay());
        command.args(arguments).current_dir(self.0.path());
        run_command(MINUTE, command)
    }

    #[track_caller]
    fn secret_is_untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.at("secret")).unwrap(), SECRET);
        let mode = std::fs::metadata(self.at("secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }
}

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// A line of the doctor's journal: this was applied to stay, in an earlier boot.
fn journal_line(path: &str, value: &str) -> String {
    let entry = serde_json::json!({
        "number": 1, "change": 1, "finding": "memory-policy/zone-reclaim", "path": path, "old": "64\n", "new": value,
        "restore": [{ "path": path, "value": "64" }], "boot_id": "an-earlier-one", "time": "2026-01-01T00:00:00Z",
        "persists": true, "identity": path, "state": "kept",
    });
    let text = serde_json::to_string(&entry).unwrap();
    format!("{:08x} {text}\n", crc32c(text.as_bytes()))
}

/// What `doctor restore` does, and how a setting reads then, on a host whose `/var/lib`, mounts and network are the test's own.
fn restored(host: &Host, value: &str, prepare: &str, arguments: &str) -> (Output, String) {
    const SETTING: &str = "/proc/sys/net/ipv4/ip_default_ttl";
    std::fs::write(host.at("journal"), journal_line(SETTING, value)).unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=755 none /var/lib\n{prepare}\n\"$1\" doctor --language en {arguments} || true\n\
         echo \"reads $(cat {SETTING})\""
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "-n", "sh", "-euc", &script, "sh"]).arg(forebay()).current_dir(host.0.path());
    let output = run_command(MINUTE, command).expect_success();
    let reads = output.stdout.lines().find_map(|line| line.strip_prefix("reads ")).expect("told").to_owned();
    (output, reads)
}

#[test]
fn root_applies_nothing_at_boot_that_a_lower_user_wrote_into_a_journal() {
    let Some(host) = Host::new("lowest-journal") else { return };
    let unshare = Command::new("unshare").args(["-m", "-n", "true"]).status();
    if !unshare.is_ok_and(|status| status.success()) {
        skip("mounts and a network of the test's own cannot be made");
        return;
    }
    let own = |folder: &str| format!("mkdir -p {folder}; cp journal {folder}/journal; chown -R {LOWEST} {folder}");
    // Where an earlier version had it: below the folder of the daemon's user.
    let earlier = format!("{}; chown {LOWEST} /var/lib/forebay", own("/var/lib/forebay/doctor"));
    let (output, reads) = restored(&host, "77", &earlier, "restore");
    assert_ne!(reads, "77", "{}", output.describe());
    assert!(
        output.text().contains("/var/lib/forebay/doctor of an earlier version is not read"),
        "{}",
        output.describe()
    );
    // The folder of this version, if a lower user could make it his.
    let (output, reads) = restored(&host, "78", &own("/var/lib/forebay-doctor"), "restore");
    assert_ne!(reads, "78", "{}", output.describe());
    assert!(output.text().contains(&format!("belongs to user {LOWEST}")), "{}", output.describe());
    assert!(output.text().contains("chown"), "it says what to do: {}", output.describe());
    // A link to there, and a folder that root is told of.
    let link = format!("{}; ln -s $PWD/theirs/doctor /var/lib/forebay-doctor", own("$PWD/theirs/doctor"));
    for (prepare, arguments) in [
        (link, "restore"),
        (own("$PWD/theirs/doctor"), "--journal theirs/doctor restore"),
        (own("/var/lib/x"), "--journal /var/lib/x --revert"),
    ] {
        let (output, reads) = restored(&host, "79", &prepare, arguments);
        assert_ne!(reads, "79", "{}", output.describe());
        assert!(output.text().contains(&format!("belongs to user {LOWEST}")), "{}", output.describe());
    }
    // And where the journal is root's, but not what the doctor writes.
    let (output, reads) =
        restored(&host, "80", "mkdir -m 755 /var/lib/forebay-doctor; cp journal /var/lib/forebay-doctor", "restore");
    assert_ne!(reads, "80", "{}", output.describe());
    assert!(output.text().contains("none of the settings that the doctor writes"), "{}", output.describe());
}

#[test]
fn what_root_keeps_of_a_host_is_written_through_no_link() {
    let Some(host) = Host::new("lowest-baseline") else { return };
    host.as_lowest("ln -s ../secret theirs/b.json.new; ln -s ../secret theirs/linked.json");
    host.as_root(&["doctor", "baseline", "save", "theirs/b.json"]).expect_success();
    host.secret_is_untouched();
    assert!(std::fs::read_to_string(host.at("theirs/b.json")).unwrap().contains("\"format\""));
    let refused = host.as_root(&["doctor", "baseline", "save", "theirs/linked.json"]);
    host.secret_is_untouched();
    assert!(refused.status.success(), "a link is replaced, not followed: {}", refused.describe());
    // A folder on the way.
    host.as_lowest("ln -s .. theirs/up");
    let refused = host.as_root(&["doctor", "baseline", "save", "theirs/up/secret"]).expect_failure();
    assert!(refused.text().contains("is a link, which is not followed"), "{}", refused.describe());
    host.secret_is_untouched();
    // In the tree of a recorded host, which is given as it came.
    host.as_lowest(
        "mkdir -p theirs/tree/proc theirs/tree/sys theirs/tree/var/lib/forebay/doctor theirs/tree/var/lib/forebay-doctor
         echo Linux version 6.1.0 >theirs/tree/proc/version
         for folder in forebay/doctor forebay-doctor; do
             ln -s ../../../../../../secret theirs/tree/var/lib/$folder/baseline.json.new
             ln -s ../../../../../secret theirs/tree/var/lib/$folder/baseline.json
         done",
    );
    host.as_root(&["doctor", "--sysroot", "theirs/tree", "baseline", "save"]).expect_success();
    host.secret_is_untouched();
    let refused = host.as_root(&["doctor", "record", "theirs/linked.json"]).expect_failure();
    assert!(refused.text().contains("new file"), "{}", refused.describe());
}

#[test]
fn a_record_of_a_host_leads_nowhere_and_makes_root_wait_for_nothing() {
    let Some(host) = Host::new("lowest-record") else { return };
    let evil = host.at("evil");
    let of = |files: &str, links: &str| {
        let text = format!(r#"{{"kind":"forebay-doctor-1","files":{files},"links":{links},"folders":[]}}"#);
        std::fs::write(host.at("record.json"), text).unwrap();
        chown(host.at("record.json"), Some(LOWEST), None).unwrap();
        host.as_root(&["doctor", "--sysroot", "record.json"])
    };
    let here = host.0.path().display();
    for (files, links) in [
        ("{}".to_owned(), format!(r#"{{"/a":"{here}","/a/evil":"/etc/passwd"}}"#)),
        (format!(r#"{{"/..{here}/evil":"x"}}"#), "{}".to_owned()),
        ("{}".to_owned(), format!(r#"{{"/x/../..{here}/evil":"/etc/passwd"}}"#)),
        (r#"{"/a/b":"x","/a":"y"}"#.to_owned(), "{}".to_owned()),
    ] {
        of(&files, &links).expect_failure();
        assert!(std::fs::symlink_metadata(&evil).is_err(), "{files} {links}");
    }
    std::fs::write(host.at("record.json"), [0x80; 4096]).unwrap();
    let refused = host.as_root(&["doctor", "--sysroot", "record.json"]).expect_failure();
    assert!(refused.text().contains("no record of a host"), "{}", refused.describe());
    host.as_lowest("mkfifo theirs/pipe; truncate -s 1G theirs/long");
    for (name, why) in [("theirs/pipe", "is not a regular file"), ("theirs/long", "longer than")] {
        let refused = host.as_root(&["doctor", "--sysroot", name]).expect_failure();
        assert!(refused.text().contains(why), "{}", refused.describe());
    }
    // A tree in which files are pipes, endless, or links to what is root's.
    host.as_lowest(
        "mkdir -p theirs/tree/proc theirs/tree/sys/devices/system/cpu theirs/tree/etc/forebay
         mkfifo theirs/tree/proc/meminfo theirs/tree/sys/devices/system/cpu/online
         truncate -s 1T theirs/tree/proc/cpuinfo
         ln -s ../../../../secret theirs/tree/etc/forebay/locality",
    );
    let output = host.as_root(&["doctor", "--sysroot", "theirs/tree"]).expect_success();
    assert!(!output.text().contains(SECRET), "{}", output.describe());
}

#[test]
fn a_marker_is_written_beside_an_image_and_through_no_link() {
    let Some(host) = Host::new("lowest-marker") else { return };
    let mut volume = Volume::new(&host.0, 8 << 20, Tier::Flash, IoMode::Threads);
    volume.backing = host.at("theirs/vm.img").to_str().unwrap().to_owned();
    host.as_lowest("ln -s ../secret theirs/vm.img.forebay.new; ln -s ../secret theirs/vm.img.forebay-journal.new");
    let daemon = volume.start();
    host.secret_is_untouched();
    daemon.stop(MINUTE);
    host.secret_is_untouched();
    assert!(std::fs::read_to_string(host.at("theirs/vm.img.forebay")).unwrap().contains("\"clean\": true"));
    for (attack, why) in [
        ("rm -f theirs/vm.img.forebay; mkfifo theirs/vm.img.forebay", "is not a regular file"),
        ("rm -f theirs/vm.img.forebay; truncate -s 1G theirs/vm.img.forebay", "longer than"),
        ("rm -f theirs/vm.img.forebay; ln -s ../secret theirs/vm.img.forebay", "is a link, which is not followed"),
        ("mv theirs/vm.img theirs/away.img; ln -s away.img theirs/vm.img", "is a link, which is not followed"),
    ] {
        host.as_lowest(attack);
        volume.expect_refusal().says(&[why]);
        host.secret_is_untouched();
    }
}

#[test]
fn root_serves_from_no_state_folder_and_no_config_of_a_lower_user() {
    let Some(host) = Host::new("lowest-state") else { return };
    host.as_lowest("mkdir state; echo '[node]' >forebay.toml");
    let volume = Volume::new(&host.0, 8 << 20, Tier::Flash, IoMode::Threads);
    volume.expect_refusal().says(&["cannot make the state folder", &format!("belongs to user {LOWEST}"), "chown"]);
    assert_eq!(std::fs::read_dir(host.at("state")).unwrap().count(), 0, "nothing was written");
    let refused = host.as_root(&["serve", "--config", "forebay.toml"]).expect_failure();
    assert!(refused.text().contains(&format!("belongs to user {LOWEST}")), "{}", refused.describe());
}

const SERVE: [&str; 10] =
    ["serve", "--http", "off", "--backing", "home/vm.img", "--size", "8M", "--create", "--tier", "flash"];

/// The binary where every user may run it.
fn program_for_all(host: &Host) -> PathBuf {
    let program = host.at("forebay");
    std::fs::copy(forebay(), &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

fn as_victim(program: &Path, host: &Host, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).uid(VICTIM).gid(VICTIM).current_dir(host.0.path());
    command.env_remove("XDG_RUNTIME_DIR").env_remove("RUNTIME_DIRECTORY").env_remove("FOREBAY_API");
    command.env("TMPDIR", host.0.path()).env("HOME", host.at("home"));
    run_command(MINUTE, command)
}

#[test]
fn a_folder_of_sockets_that_somebody_else_made_first_is_not_used() {
    let Some(host) = Host::new("lowest-sockets") else { return };
    let program = program_for_all(&host);
    std::fs::create_dir(host.at("home")).unwrap();
    chown(host.at("home"), Some(VICTIM), Some(VICTIM)).unwrap();
    host.as_lowest(&format!("mkdir -m 777 forebay-{VICTIM}"));
    let refused = as_victim(&program, &host, &SERVE).expect_failure();
    assert!(refused.text().contains(&format!("belongs to user {LOWEST}")), "{}", refused.describe());
    // Who asks a daemon there may be answered by anybody.
    let asked = as_victim(&program, &host, &["status"]).expect_failure();
    assert!(asked.text().contains(&format!("belongs to user {LOWEST}")), "{}", asked.describe());
    host.as_lowest(&format!("rmdir forebay-{VICTIM}; mkdir -m 777 theirs/open; ln -s theirs/open forebay-{VICTIM}"));
    let refused = as_victim(&program, &host, &SERVE).expect_failure();
    assert!(refused.text().contains("is a link, which is not followed"), "{}", refused.describe());
}

/// The API's socket is open to every user, and root gives commands by it.
#[test]
fn idle_connections_of_the_lowest_user_keep_root_from_nothing_and_end() {
    let Some(host) = Host::new("lowest-idle") else { return };
    let mut volume = Volume::new(&host.0, 16 << 20, Tier::Flash, IoMode::Threads);
    volume.tier_size = 8 << 20;
    let daemon = volume.start();
    let api = volume.api();
    let connect = move || {
        let id = libc::c_long::from(LOWEST as i32);
        // SAFETY: three numbers; by this call, unlike by the function of libc, it changes this thread alone, which ends here.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, id, id, id) };
        assert_eq!(changed, 0, "{}", std::io::Error::last_os_error());
        (0..200).map(|_| UnixStream::connect(&api).expect("everybody may connect")).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    let mut theirs = std::thread::spawn(connect).join().expect("it connects");
    let shown = daemon.show();
    assert_eq!(shown["name"], "vm1", "{shown:#}");
    assert!(begun.elapsed() < Duration::from_secs(8), "root waited {:?}", begun.elapsed());
    // Those that are too many are told so, and the others have so long to ask for something.
    let said = |stream: &mut UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let mut said = Vec::new();
        let ended = stream.read_to_end(&mut said).is_ok();
        (String::from_utf8_lossy(&said).into_owned(), ended)
    };
    let (refused, ended) = said(theirs.last_mut().expect("200"));
    assert!(ended && refused.starts_with("HTTP/1.1 503") && refused.contains("at most 16 connections"), "{refused}");
    let (_, ended) = said(&mut theirs[0]);
    assert!(ended, "an idle connection goes on");
}
