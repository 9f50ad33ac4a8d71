//! What a user types and a program asks: commands and their `--json`, HTTP with and without the token, what systemd is
//! told, the line for QEMU, pages and completions.

use forebay_tests::curl::{curl, free_address};
use forebay_tests::harness::{
    Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume, find_tool, forebay, run_command, run_tool, workspace,
};
use forebay_tests::nbd::{Client, Target};
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::scene;
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// `forebay ARGUMENTS --json` against the daemon, read as JSON.
#[track_caller]
fn json<S: AsRef<OsStr>>(daemon: &Daemon, arguments: impl IntoIterator<Item = S>) -> Value {
    let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
    let output = daemon.command(arguments.chain(["--json".into()])).expect_success();
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.stdout))
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < MINUTE, "waited a minute in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|volume| volume["name"].as_str().expect("a name")).collect()
}

#[test]
fn a_volume_is_created_grown_and_deleted_beside_another_one() {
    let folder = TempDir::new("commands");
    let daemon = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring).start();
    let image = folder.join("second.img");
    let image = image.to_str().unwrap();
    let create = ["volume", "create", "second", "--backing", image, "--size", "32M", "--create"];
    assert_eq!(json(&daemon, create)["name"], "second");
    assert_eq!(names(&json(&daemon, ["volume", "list"])), ["second", VOLUME_NAME]);
    assert!(daemon.command(create).expect_failure().text().contains("has that name already"));
    let access = json(&daemon, ["volume", "show", "second"])["backing"]["access"].clone();
    assert!(access.as_str().is_some_and(|access| access.contains("O_DIRECT")), "which access was found: {access}");

    let target = Target::parse(&format!("nbd+unix:///second?socket={}", folder.join("nbd.sock").display())).unwrap();
    let mut old = Client::connect(&target).unwrap();
    old.write(0, &[0x5a; 4096], 0).unwrap().unwrap();
    assert!(daemon.volume_command(["resize", "second", "16M"]).expect_failure().text().contains("can only grow"));
    assert_eq!(json(&daemon, ["volume", "resize", "second", "48M"])["size_bytes"], 48 * MIB);
    // Who is connected goes on with the old size, who comes sees the new one.
    old.write(4096, &[0x5b; 4096], 0).unwrap().unwrap();
    let mut new = Client::connect(&target).unwrap();
    assert_eq!(new.size, 48 * MIB);
    new.write(48 * MIB - 4096, &[0x5c; 4096], 0).unwrap().unwrap();
    new.flush().unwrap().unwrap();

    // Not taken away from somebody by a slip.
    assert_eq!(json(&daemon, ["volume", "drain", "second"])["dirty"]["bytes"], 0);
    json(&daemon, ["volume", "drain", "second", "--hold", "1m"]);
    assert_eq!(json(&daemon, ["volume", "show", "second"])["backing"]["state"], "held");
    json(&daemon, ["volume", "release", "second"]);
    assert!(daemon.volume_command(["release", "second"]).expect_failure().text().contains("it is not held"));
    let refused = daemon.volume_command(["delete", "second"]).expect_failure().text();
    assert!(refused.contains("2 clients; disconnect them first"), "{refused}");
    drop((old, new));
    wait_until("both clients to be gone", || json(&daemon, ["volume", "show", "second"])["connections"] == 0);
    daemon.volume_command(["delete", "second"]).expect_success();
    assert_eq!(names(&json(&daemon, ["volume", "list"])), [VOLUME_NAME]);
    assert!(Client::connect(&target).is_err(), "a deleted volume is no export");
    let left = std::fs::read(image).unwrap();
    assert_eq!(left.len() as u64, 48 * MIB);
    for (at, byte) in [(0, 0x5a), (4096, 0x5b), (48 * MIB as usize - 4096, 0x5c)] {
        assert!(left[at..at + 4096].iter().all(|found| *found == byte), "the backing stays, and is complete");
    }
}

#[test]
fn a_hold_is_given_up_when_its_caller_goes_away_and_drains_wait_for_each_other() {
    let folder = TempDir::new("hold-gone");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    volume.backing = format!("slow:latency=1500ms:{}", volume.backing);
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(0, &[1; 65536], 0).unwrap().unwrap();
    let mut command = Command::new(forebay());
    command.args(["volume", "drain", VOLUME_NAME, "--hold", "10m", "--api"]).arg(volume.api());
    let mut caller = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(caller.try_wait().unwrap().is_none(), "the drain was over before its caller could go away");
    caller.kill().unwrap();
    caller.wait().unwrap();
    // Waits for the drain that goes on, and is not refused; behind it nothing is held.
    let drained = json(&daemon, ["volume", "drain", VOLUME_NAME]);
    assert_eq!((&drained["backing"]["state"], &drained["dirty"]["bytes"]), (&"ready".into(), &0.into()), "{drained}");
    // One whose caller is there is in effect, and says for how long.
    let held = json(&daemon, ["volume", "drain", VOLUME_NAME, "--hold", "10m"]);
    let left = held["backing"]["hold_left_s"].as_f64();
    assert!(left.is_some_and(|left| (590.0..=600.0).contains(&left)), "{held}");
    let said = daemon.volume_command(["release", VOLUME_NAME]).expect_success().stdout;
    assert!(said.contains("in effect until now"), "{said}");
    assert_eq!(daemon.show()["backing"].get("hold_left_s"), None);
}

#[test]
fn an_image_does_not_grow_while_a_hold_of_it_is_on_its_way_or_in_effect() {
    let folder = TempDir::new("hold-resize");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    volume.backing = format!("slow:latency=1500ms:{}", volume.backing);
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(0, &[1; 65536], 0).unwrap().unwrap();
    let mut command = Command::new(forebay());
    command.args(["volume", "drain", VOLUME_NAME, "--hold", "10m", "--api"]).arg(volume.api());
    let mut caller = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(caller.try_wait().unwrap().is_none(), "the hold was in effect before anybody could ask for a growth");
    let refused = daemon.volume_command(["resize", VOLUME_NAME, "48M"]).expect_failure().text();
    assert!(refused.contains("is held"), "{refused}");
    assert!(caller.wait().unwrap().success());
    assert_eq!(std::fs::metadata(volume.image()).unwrap().len(), 32 * MIB);
    daemon.volume_command(["release", VOLUME_NAME]).expect_success();
    assert_eq!(json(&daemon, ["volume", "resize", VOLUME_NAME, "48M"])["size_bytes"], 48 * MIB);
}

#[test]
fn a_policy_that_waits_for_the_log_shows_both_policies_and_why() {
    let folder = TempDir::new("policy");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    volume.backing = format!("slow:latency=1500ms:{}", volume.backing);
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(0, &[1; 65536], 0).unwrap().unwrap();
    assert_eq!(json(&daemon, ["volume", "set", VOLUME_NAME, "--policy", "through"])["name"], VOLUME_NAME);
    let policy = daemon.show()["policy"].clone();
    assert_eq!((&policy["requested"], &policy["effective"]), (&"through".into(), &"back".into()), "{policy}");
    assert_eq!(policy["reason"], "draining", "{policy}");
    wait_until("through to be in effect", || daemon.show()["policy"]["effective"] == "through");
    let policy = daemon.show()["policy"].clone();
    assert_eq!(policy["reason"], "as-requested", "{policy}");
    // Acknowledged now means: the backing has it.
    client.write(65536, &[2; 4096], 0).unwrap().unwrap();
    assert!(std::fs::read(volume.image()).unwrap()[65536..65536 + 4096].iter().all(|byte| *byte == 2));
}

/// `volume set` does all that it is asked for, or nothing: in effect, in the record, and after the next start.
#[test]
fn a_change_of_which_a_part_is_refused_changes_nothing() {
    let folder = TempDir::new("set-whole");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let record = volume.state().join("volumes").join(format!("{VOLUME_NAME}.toml"));
    let recorded = || std::fs::read_to_string(&record).expect("there is a record");
    let seen = |daemon: &Daemon| {
        let shown = daemon.show();
        [
            &shown["policy"]["requested"],
            &shown["dirty"]["drain_max_s"],
            &shown["destage"]["requested"],
            &shown["clients"],
        ]
        .map(Value::clone)
    };
    let daemon = volume.start();
    let (before, written) = (seen(&daemon), recorded());
    let refused = |arguments: &[&str], words: &str| {
        let arguments = ["set", VOLUME_NAME].iter().chain(arguments);
        let said = daemon.volume_command(arguments).expect_failure().text();
        assert!(said.contains(words), "{said}");
        assert_eq!((seen(&daemon), recorded()), (before.clone(), written.clone()), "{words}");
    };
    refused(&["--policy", "through", "--tier", "memory"], "--volatile");
    refused(&["--policy", "through", "--drain-max", "60s", "--tier", "flash", "--tier-size", "32M"], "already");
    refused(&["--destage", "ordered", "--peers", "1"], "neither peers");
    refused(&["--clients", "none", "--tier", "memory", "--volatile"], "by itself");
    // Found out when half of the work is done: the tier cannot be made.
    let too_large = ["--policy", "through", "--tier", "memory", "--volatile", "--tier-size", "4000G"];
    refused(&too_large, "more than this host has free");
    // What the data path itself refuses, after it was recorded.
    daemon.volume_command(["drain", VOLUME_NAME, "--through"]).expect_success();
    refused(&["--policy", "through", "--drain-max", "60s", "--destage", "ordered"], "nothing is changed");
    daemon.volume_command(["release", VOLUME_NAME]).expect_success();
    daemon.stop(MINUTE);
    let daemon = volume.start();
    assert_eq!(seen(&daemon), before, "nor does the next start change anything");

    let whole = ["set", VOLUME_NAME, "--policy", "through", "--drain-max", "60s", "--tier", "memory", "--volatile"];
    daemon.volume_command(whole).expect_success();
    let shown = daemon.show();
    assert_eq!(
        (&shown["tier"]["kind"], &shown["policy"]["requested"]),
        (&"memory".into(), &"through".into()),
        "{shown:#}"
    );
    assert_eq!(
        (&shown["policy"]["effective"], &shown["dirty"]["drain_max_s"]),
        (&"through".into(), &60.into()),
        "{shown:#}"
    );
    assert!(recorded().contains("policy = \"through\""), "{}", recorded());
}

fn http(arguments: &[&str]) -> (u32, String) {
    let answer = curl(arguments);
    (answer.status, answer.body)
}

#[test]
fn http_reads_without_the_token_and_changes_only_with_it() {
    let folder = TempDir::new("http");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let address = free_address();
    volume.http = address.clone();
    let daemon = volume.start();
    let at = |path: &str| format!("http://{address}{path}");

    let (status, list) = http(&[&at("/v1/volumes")]);
    assert_eq!((status, names(&serde_json::from_str(&list).unwrap())), (200, vec![VOLUME_NAME]));
    let (status, openapi) = http(&[&at("/v1/openapi.json")]);
    let openapi: Value = serde_json::from_str(&openapi).unwrap();
    assert!(status == 200 && openapi["paths"]["/v1/volumes"].is_object(), "{status} {openapi}");
    let (status, metrics) = http(&[&at("/metrics")]);
    let sample = format!("forebay_volume_dirty_bytes{{volume=\"{VOLUME_NAME}\"}} 0");
    assert!(status == 200 && metrics.lines().any(|line| line == sample), "{status}: no {sample} in {metrics}");
    assert_eq!(http(&[&at("/")]).0, 200);

    let drain = at(&format!("/v1/volumes/{VOLUME_NAME}/drain"));
    let token = std::fs::read_to_string(volume.state().join("token")).unwrap();
    let bearer = |token: &str| format!("Authorization: Bearer {}", token.trim());
    assert_eq!(http(&["--request", "POST", &drain]).0, 401);
    assert_eq!(http(&["--request", "POST", "--header", &bearer("not-the-token"), &drain]).0, 401);
    assert_eq!(http(&["--request", "POST", "--header", &bearer(&token), &drain]).0, 200);
    // A page that got here by a name of its own, or from elsewhere.
    assert_eq!(http(&["--header", "Host: rebound.example", &at("/v1/volumes")]).0, 421);
    let stranger =
        ["--header", "Origin: http://elsewhere.example", "--header", &bearer(&token), "--request", "POST", &drain];
    assert_eq!(http(&stranger).0, 403);
    wait_until("the line that says where to look", || daemon.output().contains(&format!("http://{address}/  (")));
    let said = daemon.output();
    assert!(
        said.contains("`forebay dashboard`") && said.contains(volume.state().join("token").to_str().unwrap()),
        "{said}"
    );
    for name in ["token", "token-read"] {
        let token = std::fs::read_to_string(volume.state().join(name)).unwrap();
        assert!(!said.contains(token.trim()), "what a daemon says goes to the system's log: {said}");
    }
}

#[test]
fn systemd_is_told_when_it_serves_and_when_it_stops() {
    let folder = TempDir::new("notify");
    let path = folder.join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(MINUTE)).unwrap();
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Threads);
    volume.environment.push(("NOTIFY_SOCKET".into(), path.into()));
    let mut daemon = volume.start();
    let heard = || {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).expect("a word to systemd");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(heard().contains("READY=1"));
    daemon.assert_healthy();
    daemon.stop(MINUTE);
    assert!(heard().contains("STOPPING=1"));
}

/// `verify` only warns of a key that it does not know, so that it must have nothing to say.
#[test]
fn systemd_understands_the_packaged_units() {
    let folder = TempDir::new("units");
    let packaging = workspace().join("packaging");
    let names = ["forebay.service", "forebay-doctor.service", "run-forebay-memory.mount"];
    for unit in names {
        let text = std::fs::read_to_string(packaging.join(unit)).unwrap();
        // The program of this build stands in for the installed one.
        let text = text.replace("/usr/bin/forebay", forebay().to_str().unwrap());
        std::fs::write(folder.join(unit), text).unwrap();
    }
    let units = names.map(|unit| folder.join(unit).to_str().unwrap().to_owned());
    let arguments = ["verify".to_owned(), "--man=no".to_owned()].into_iter().chain(units);
    let said = run_tool(MINUTE, "systemd-analyze", arguments).expect_success().text();
    assert!(said.is_empty(), "{said}");
}

/// What `systemd-analyze security` finds open in a packaged unit is closed, or the unit says why not.
#[test]
fn what_the_packaged_units_leave_open_has_its_reason() {
    if find_tool("systemd-analyze").is_none() {
        eprintln!("skipped: systemd-analyze is not installed");
        return;
    }
    // Later versions may count more, which is for who knows them.
    const KNOWN: u32 = 255;
    let version = run_tool(MINUTE, "systemd-analyze", ["--version"]).expect_success().text();
    let number =
        version.split_whitespace().nth(1).and_then(|number| number.split(['.', '~', '-']).next()?.parse().ok());
    if number.is_none_or(|number: u32| number > KNOWN) {
        eprintln!("skipped: reasons are written for systemd {KNOWN} and before: {version}");
        return;
    }
    let folder = TempDir::new("exposure");
    for (unit, below) in [("forebay.service", 2.2), ("forebay-doctor.service", 2.1)] {
        let path = workspace().join("packaging").join(unit);
        let text = std::fs::read_to_string(&path).unwrap();
        let copy = folder.join(unit);
        std::fs::copy(&path, &copy).unwrap();
        let ask = |more: &[&str]| {
            let always = ["security", "--offline=true", "--no-pager", copy.to_str().unwrap()];
            run_tool(MINUTE, "systemd-analyze", always.iter().chain(more)).expect_success().text()
        };
        let all = ask(&[]);
        let total = all.split_once("Overall exposure level for ").expect("a total").1;
        let total: f64 = total.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(total < below, "{unit}: {all}");
        let reasons = text.lines().filter(|line| line.starts_with("# - ")).map(|line| line.split_once(": ").unwrap().0);
        let reasons: Vec<&str> = reasons.flat_map(|names| names["# - ".len()..].split(", ")).collect();
        let lines: serde_json::Value = serde_json::from_str(&ask(&["--json=short"])).unwrap();
        let open = lines.as_array().unwrap().iter().filter(|line| line["set"] == false && line["exposure"].is_string());
        for line in open {
            let name = line["name"].as_str().unwrap().split('=').next().unwrap();
            assert!(reasons.contains(&name), "{unit} says no reason for {line}");
        }
    }
}

#[test]
fn the_printed_line_for_qemu_opens_the_volume() {
    let folder = TempDir::new("qemu-line");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    wait_until("the line for QEMU", || daemon.output().contains("-drive "));
    let output = daemon.output();
    let line = output.lines().find_map(|line| line.split_once("-drive ")).expect("a line for QEMU").1;
    // What belongs to the machine and not to the image is for the one that boots from it.
    let image = line.replace(",if=virtio,cache=none", "");
    run_tool(MINUTE, "qemu-io", ["--image-opts", &image, "-c", "write -P 7 0 64k", "-c", "flush"]).expect_success();
    let mut bytes = [0; 4096];
    Client::connect(&volume.target()).unwrap().read(0, &mut bytes).unwrap().unwrap();
    assert_eq!(bytes, [7; 4096]);
}

#[test]
fn the_cache_command_brings_the_backings_blocks_into_ram() {
    let folder = TempDir::new("prefetch");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let content: Vec<u8> = (0..32 * MIB).map(|at| (at / 4096) as u8 | 1).collect();
    std::fs::write(volume.image(), content).unwrap();
    volume.size = None;
    let daemon = volume.start();
    let reads = || daemon.show()["counters"]["backing_reads"].as_u64().expect("a counter");
    let script = r#"
import nbd, sys
h = nbd.NBD()
h.connect_uri(sys.argv[1])
h.cache(1 << 20, 8 << 20)
"#;
    let before = reads();
    run_tool(MINUTE, "/usr/bin/python3", ["-c", script, &volume.uri()]).expect_success();
    // It is a hint: its reply may come before its reads have ended, or begun.
    let mut fetched = before;
    wait_until("the backing to be read, and to be left alone again", || {
        std::thread::sleep(Duration::from_millis(500));
        let earlier = std::mem::replace(&mut fetched, reads());
        earlier == fetched && fetched > before
    });
    let mut bytes = vec![0; 1 << 20];
    Client::connect(&volume.target()).unwrap().read(8 << 20, &mut bytes).unwrap().unwrap();
    assert!(
        bytes.chunks(4096).zip(2048u64..).all(|(block, number)| block.iter().all(|byte| *byte == number as u8 | 1))
    );
    assert_eq!(reads(), fetched, "what was prefetched is not read from the backing again");
}

/// A tier that is looked at, or copied from, is not changed: not one byte, and not its times either.
#[test]
fn inspect_and_salvage_read_a_dirty_log_and_write_nothing_to_it() {
    let folder = TempDir::new("inspect");
    let (volume, options) = scene::killed_with_a_dirty_tier(&folder, Tier::Flash, IoMode::Uring);
    let tier = scene::tier_path(&volume);
    let state = |path: &Path| (std::fs::read(path).unwrap(), std::fs::metadata(path).unwrap().modified().unwrap());
    let before = state(&tier);
    let run = |arguments: &[&OsStr]| {
        let mut command = Command::new(forebay());
        command.args(arguments).arg("--json");
        let shown = run_command(MINUTE, command).expect_success().stdout;
        serde_json::from_str::<Value>(&shown).unwrap_or_else(|e| panic!("{e}: {shown}"))
    };
    let shown = run(&["inspect".as_ref(), tier.as_ref()]);
    assert_eq!((&shown["name"], &shown["damage"]), (&VOLUME_NAME.into(), &Value::Array(Vec::new())), "{shown}");
    assert!(shown["records_dirty"].as_u64() > Some(0), "{shown}");
    assert_eq!(shown.get("in_use_by"), None, "{shown}");
    let salvaged = folder.join("salvaged.img");
    run(&["salvage".as_ref(), tier.as_ref(), "--to".as_ref(), salvaged.as_ref()]);
    assert!(state(&tier) == before, "inspect or salvage changed the tier");
    check::image_complete(&History::read(&options.journal).unwrap(), &salvaged).unwrap();
    scene::all_there(&volume, &options);
}

#[test]
fn inspect_names_who_serves_from_the_tier_meanwhile() {
    let folder = TempDir::new("inspect-served");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let mut command = Command::new(forebay());
    command.arg("inspect").arg(scene::tier_path(&volume));
    let shown = run_command(MINUTE, command).expect_success().stdout;
    assert!(shown.contains(&format!("in use    by process {}", daemon.pid())), "{shown}");
}

#[test]
fn pages_and_completions_name_every_command() {
    let folder = TempDir::new("pages");
    let run = |arguments: &[&str]| run_tool(MINUTE, forebay().to_str().unwrap(), arguments).expect_success().stdout;
    let commands =
        ["serve", "volume", "node", "top", "report", "status", "inspect", "salvage", "bench", "completions", "man"];
    let (page, help) = (run(&["man"]), run(&["--help"]));
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        for command in commands {
            assert!(script.contains(command), "{shell}: no {command}");
        }
    }
    for command in commands {
        assert!(page.contains(command) && help.contains(command), "{command}");
    }
    run(&["man", "--dir", folder.path().to_str().unwrap()]);
    for page in ["forebay.1", "forebay-serve.1", "forebay-volume-create.1", "forebay-node-enrol.1"] {
        assert!(folder.join(page).exists(), "{page}");
    }
}

#[test]
fn a_cluster_of_three_has_its_identities_by_two_commands() {
    let folder = TempDir::new("enrol");
    let run = |words: &str| {
        let mut command = Command::new(forebay());
        command.current_dir(folder.path()).env("STATE_DIRECTORY", folder.join("state")).args(words.split(' '));
        run_command(MINUTE, command)
    };
    let before = run("node enrol alpha").expect_failure().text();
    assert!(before.contains("init-ca"), "{before}");
    let made = run("node init-ca --cluster lab").expect_success().stdout;
    assert!(made.contains("cluster lab") && made.contains("enrol"), "{made}");
    run("node enrol alpha beta gamma").expect_success();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["alpha", "beta", "gamma"] {
        let path = folder.join(&format!("{name}.identity.toml"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("PRIVATE KEY") && text.contains(&format!("name = \"{name}\"")));
        assert_eq!(mode(&path), 0o600);
    }
    assert_eq!(mode(&folder.join("state/authority/authority.toml")), 0o600);
    let again = run("node enrol alpha").expect_failure().text();
    assert!(again.contains("--renew") && again.contains("until 20"), "{again}");
    assert!(run("node init-ca").expect_failure().text().contains("stranger"));
    assert!(run("node enrol Delta").expect_failure().text().contains("lower-case"));
    assert!(run("node enrol delta delta").expect_failure().text().contains("twice"));
    let number = |text: &str| serde_json::from_str::<Value>(text).unwrap()[0]["node"].as_str().unwrap().to_owned();
    let renewed = run("node enrol alpha --renew --json").expect_success().stdout;
    let text = std::fs::read_to_string(folder.join("alpha.identity.toml")).unwrap();
    assert!(text.contains(&number(&renewed)), "{renewed}");
}

/// Reading only, so that nothing has to be given up; the rows of both sides are there, by fio.
#[test]
fn bench_puts_a_backing_and_a_volume_side_by_side() {
    let folder = TempDir::new("bench");
    let daemon = Volume::new(&folder, 64 * MIB, Tier::Flash, IoMode::Uring).start();
    let other = folder.join("other.img");
    std::fs::write(&other, vec![1; 64 << 20]).unwrap();
    let arguments =
        ["bench", "--backing", other.to_str().unwrap(), "--volume", VOLUME_NAME, "--size", "32M", "--time", "1s"];
    let rows = json(&daemon, arguments);
    let text = rows.to_string();
    for row in ["seq 1M q8 read", "rand 4K q32 read", "rand 4K q1 read"] {
        assert!(text.contains(row), "no {row} in {rows}");
    }
    assert!(!text.contains("write"), "writing has to be asked for: {rows}");
}
