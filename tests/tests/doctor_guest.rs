//! `forebay doctor` in a machine with two sockets, emulated: what a real kernel shows of nodes, links, interrupts and memory, and
//! what it lets be changed. One boot is for all of them; `scripts/guest/doctor` is what happens in it.

use forebay_tests::bmc::Bmc;
use forebay_tests::harness::{TempDir, forebay, require_tool, run_command, skip, soak, workspace};
use forebay_tests::nodes::{Machine, Ran};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

static RAN: LazyLock<Ran> = LazyLock::new(|| {
    let folder = TempDir::new("doctor-guest-board");
    let (_board, port) = Bmc::start_as_a_board(folder.path());
    let script = workspace().join("scripts/guest/doctor");
    let script = std::fs::read_to_string(&script).unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    let machine = Machine::default().option("nodes=3").option("node_mib=768");
    let machine = machine.option(&format!("bmc=127.0.0.1:{port}"));
    let machine = machine.with(&require_tool("ipmitool")).with(&require_tool("migratepages"));
    let ran = machine.with(Path::new(env!("CARGO_BIN_EXE_resident"))).run("doctor-guest", &script);
    ran.console.lines().filter(|line| line.starts_with("guest: ")).for_each(|line| println!("{line}"));
    ran
});

/// PCI function of a device, by what the script calls it.
fn function_of(device: &str) -> String {
    named(device).1
}

/// Name of a device, and its PCI function.
#[track_caller]
fn named(device: &str) -> (String, String) {
    let text = RAN.text("devices");
    let mut lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = lines.find(|words| words[0] == device);
    let words = found.unwrap_or_else(|| panic!("no {device}: {text}"));
    (words[words.len() - 2].to_owned(), words[words.len() - 1].to_owned())
}

fn ids(report: &Value) -> BTreeSet<String> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["id"].as_str().expect("a word").to_owned()).collect()
}

#[track_caller]
fn finding(report: &Value, id: &str) -> Value {
    let findings = report["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}, but {:?}; {}", ids(report), RAN.console)).clone()
}

/// What shows a finding: file and value.
fn evidence(finding: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let all = finding["evidence"].as_array().expect("a list");
    all.iter().map(|one| (text(&one["source"]), text(&one["value"]))).collect()
}

fn fine(report: &Value, word: &str) -> Option<String> {
    let fine = report["fine"].as_array().expect("a list");
    fine.iter().find(|fine| fine["word"] == word).map(|fine| fine["says"].as_str().expect("text").to_owned())
}

/// What each interrupt's `smp_affinity_list` held.
fn places(name: &str) -> BTreeMap<String, String> {
    let text = RAN.text(name);
    text.lines().filter_map(|line| line.split_once(':')).map(|(path, at)| (path.to_owned(), at.to_owned())).collect()
}

/// How often interrupts came, on each CPU, by number and by name.
type Came = BTreeMap<(String, String), Vec<u64>>;

/// Between two copies of `/proc/interrupts`.
fn came(before: &str, after: &str) -> Came {
    let counts = |name: &str| -> Came {
        let text = RAN.text(name);
        let lines = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = words.first()?.strip_suffix(':').filter(|word| word.parse::<u32>().is_ok())?;
            let counts: Vec<u64> = words.iter().skip(1).map_while(|word| word.parse().ok()).take(4).collect();
            Some(((number.to_owned(), (*words.last()?).to_owned()), counts))
        });
        lines.collect()
    };
    let (before, mut after) = (counts(before), counts(after));
    for (interrupt, counts) in &mut after {
        let earlier = before.get(interrupt).expect("none is new");
        counts.iter_mut().zip(earlier).for_each(|(count, earlier)| *count -= earlier);
    }
    after
}

/// On the CPUs of each node, of the interrupts whose name begins so.
fn by_node(came: &Came, name: &str) -> [u64; 2] {
    let of = came.iter().filter(|((_, called), _)| called.starts_with(name)).map(|(_, counts)| counts);
    of.fold([0, 0], |[near, far], counts| [near + counts[0] + counts[1], far + counts[2] + counts[3]])
}

#[test]
fn nodes_distances_devices_and_links_are_as_the_machine_was_made() {
    let made = RAN.json("made.json");
    let record = RAN.json("host.json");
    for (node, distances) in [(0, "10 21 31"), (1, "21 10 24"), (2, "31 24 10")] {
        assert_eq!(record["files"][format!("/sys/devices/system/node/node{node}/distance")], format!("{distances}\n"));
    }
    let baseline = RAN.json("baseline.json");
    for (device, node, port) in
        [("eth0", "0", "16.0 16"), ("near", "0", "8.0 4"), ("eth1", "1", "5.0 8"), ("far", "1", "8.0 4")]
    {
        let function = function_of(device);
        let item = |what: &str| baseline["items"][format!("{what} of {function}")]["value"].clone();
        assert_eq!(
            (item("node"), item("lanes"), item("speed")),
            (node.into(), "1".into(), "2.5 GT/s PCIe".into()),
            "{device}"
        );
        // Its port's end, which can do more.
        let above = record["files"].as_object().expect("by path").iter().filter_map(|(path, value)| {
            let (folder, file) = path.rsplit_once('/')?;
            let is_port = record["files"].get(format!("{folder}/{function}/current_link_speed")).is_some();
            is_port.then(|| (file, value.as_str().expect("text").trim()))
        });
        let above: BTreeMap<&str, &str> = above.collect();
        let can = format!("{} {}", above["max_link_speed"].trim_end_matches(" GT/s PCIe"), above["max_link_width"]);
        assert_eq!(can, port, "{device}");
    }
    // The fast interface is at node 0, and one of the disks is not.
    let (far, function) = named("far");
    let apart = finding(&made, &format!("numa-apart/{far}"));
    let shown = [(function, "1"), (function_of("eth0"), "0")];
    let shown = shown.map(|(function, node)| (format!("/sys/bus/pci/devices/{function}/numa_node"), node.to_owned()));
    assert_eq!(evidence(&apart), shown);
    let board = ["management/CPU-Temp", "management/log"].map(str::to_owned);
    let all: BTreeSet<String> = [format!("numa-apart/{far}")].into_iter().chain(board).collect();
    assert_eq!(ids(&made), all, "nothing else is wrong with it");
    let path = RAN.json("path.json");
    let hops: BTreeSet<&str> =
        path["hops"].as_array().expect("a list").iter().filter_map(|hop| hop["resource"].as_str()).collect();
    assert!(hops.contains("link 0>1") && !hops.contains("node 2"), "{hops:?}");
}

#[test]
fn interrupts_at_the_far_socket_are_found_with_the_files_that_show_it() {
    let report = RAN.json("misplaced.json");
    let misplaced = places("misplaced");
    for (device, node, set, shown) in [("eth0", "0", "2", &["2"][..]), ("eth1", "1", "0-1", &["0", "1"])] {
        let found = finding(&report, &format!("irq-far/{device}"));
        let evidence = evidence(&found);
        let function = function_of(device);
        assert_eq!(evidence[0], (format!("/sys/bus/pci/devices/{function}/numa_node"), node.to_owned()));
        let (path, goes_to) = &evidence[1];
        let number = path.strip_prefix("/proc/irq/").and_then(|path| path.strip_suffix("/effective_affinity_list"));
        let number = number.unwrap_or_else(|| panic!("{evidence:?}"));
        assert!(shown.contains(&goes_to.as_str()), "{evidence:?}");
        assert_eq!(misplaced[&format!("/proc/irq/{number}/smp_affinity_list")], set);
        assert_eq!(evidence[2].0, "/proc/interrupts");
        // Without its own words: the counts of /proc/interrupts between two copies of it. The first after a move still comes where
        // the one before came.
        let [at_0, at_1] =
            by_node(&came("interrupts-far", "interrupts-far-later"), if device == "eth0" { "virtio0" } else { "eth1" });
        let (near, far) = if node == "0" { (at_0, at_1) } else { (at_1, at_0) };
        assert!(far > 100 && near < far / 10, "{device}: {near} near, {far} far");
        assert_eq!(found["number"]["is"], 1.0, "{found}");
    }
}

#[test]
fn interrupts_are_moved_for_real_and_every_byte_of_their_places_comes_back() {
    let applied = RAN.json("applied.json");
    let changes = applied["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 2, "{applied}");
    let (misplaced, now) = (places("misplaced"), places("applied"));
    let mut written = BTreeSet::new();
    for change in changes {
        assert_eq!(change["became"], "kept", "{change}");
        let near = if change["finding"] == "irq-far/eth0" { ["0", "1"] } else { ["2", "3"] };
        for write in change["writes"].as_array().expect("a list") {
            let path = write["path"].as_str().expect("a path");
            assert_eq!(now[path], write["new"].as_str().expect("a CPU"));
            assert!(near.contains(&now[path].as_str()), "{write}");
            assert_eq!(misplaced[path], write["old"].as_str().expect("a list"));
            written.insert(path.to_owned());
        }
    }
    assert!(written.len() >= 2, "{applied}");
    for (path, place) in &now {
        assert!(written.contains(path) || misplaced[path] == *place, "{path} was not to be touched");
    }
    // They come where they were sent.
    let came = came("interrupts-near", "interrupts-near-later");
    let ([near_0, _], [_, near_1]) = (by_node(&came, "virtio0-input"), by_node(&came, "eth1-rx"));
    let ([_, far_0], [far_1, _]) = (by_node(&came, "virtio0-input"), by_node(&came, "eth1-rx"));
    // The first after a move still comes where the one before came, however late that is on a machine that has other work.
    assert!(near_0 > 30 && far_0 <= 1, "eth0: {near_0} near, {far_0} far");
    assert!(near_1 > 30 && far_1 <= 1, "eth1: {near_1} near, {far_1} far");
    let cured = ids(&RAN.json("cured.json"));
    assert!(!cured.iter().any(|id| id.starts_with("irq-far")), "{cured:?}");

    let reverted = RAN.json("reverted.json");
    assert!(
        reverted["changes"].as_array().expect("a list").iter().all(|change| change["became"] == "reverted"),
        "{reverted}"
    );
    assert_eq!(places("reverted"), misplaced);
}

#[test]
fn killed_in_between_the_next_revert_has_every_interrupt_where_it_was() {
    let (misplaced, killed) = (places("misplaced"), places("killed"));
    assert_ne!(killed, misplaced, "nothing was changed before the kill");
    let recovered = RAN.json("recovered.json");
    let changes = recovered["changes"].as_array().expect("a list");
    assert!(!changes.is_empty() && changes.iter().all(|change| change["became"] == "reverted"), "{recovered}");
    assert_eq!(places("recovered"), misplaced);
}

#[test]
fn interrupts_that_the_kernel_places_by_itself_are_neither_blamed_nor_touched() {
    let (far, _) = named("far");
    let controller = far.trim_end_matches("n1");
    let came = came("interrupts-far", "interrupts-far-later");
    let [at_0, _] = by_node(&came, &format!("{controller}q"));
    assert!(at_0 > 100, "the disk at node 1 had {at_0} interrupts at node 0, too few to tell anything");
    let report = RAN.json("misplaced.json");
    assert!(!ids(&report).iter().any(|id| id.starts_with("irq-far/nvme")), "{:?}", ids(&report));
    // Who moves one is told that it is not his.
    let managed = RAN.text("managed");
    assert!(managed.lines().count() >= 4, "{managed}");
    let (misplaced, applied) = (places("misplaced"), places("applied"));
    for line in managed.lines() {
        assert!(line.contains("Input/output error") || line.contains("Operation not permitted"), "{line}");
        let path = format!("/proc/irq/{}/smp_affinity_list", line.split(' ').next().expect("a number"));
        assert_eq!(misplaced[&path], applied[&path]);
    }
}

#[test]
fn a_server_its_memory_and_its_page_cache_at_the_far_socket_are_found_and_cured_by_what_is_said() {
    let report = RAN.json("misplaced.json");
    let server = RAN.text("server").trim().to_owned();
    let process = finding(&report, "process-far/forebay");
    assert!(
        evidence(&process).contains(&(format!("/proc/{server}/status"), "Cpus_allowed_list: 2-3".to_owned())),
        "{process}"
    );
    assert_eq!(process["remedies"][0]["command"], format!("taskset -acp 0-1 {server}"));
    let buffers = finding(&report, &format!("buffers-far/{server}"));
    assert_eq!(evidence(&buffers)[0].0, format!("/proc/{server}/numa_maps"));
    assert!(buffers["number"]["is"].as_f64().is_some_and(|share| share > 0.9), "{buffers}");
    assert_eq!(buffers["remedies"][0]["command"], format!("migratepages {server} 1 0"));
    let cache = finding(&report, "page-cache-far/eth0");
    let files: Vec<String> = evidence(&cache).into_iter().map(|(file, _)| file).collect();
    assert!(files.contains(&"/sys/devices/system/node/node1/meminfo".to_owned()), "{cache}");
    // The kernel's own words for what the script did: who reads first has the pages.
    let kib = |name: &str, node: usize| -> u64 {
        let text = RAN.text(name);
        let line = text.lines().find(|line| line.contains(&format!("Node {node} "))).expect("of each node");
        line.split_whitespace().rev().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    };
    let filled = [0, 1].map(|node| kib("pages", node) as i64 - kib("pages-before", node) as i64);
    assert!(filled[1] > 250 << 10 && filled[0] < 5 << 10, "{filled:?} KiB");

    let cured = RAN.json("cured.json");
    let left = ids(&cured);
    for word in ["process-far", "buffers-far", "page-cache-far"] {
        assert!(!left.iter().any(|id| id.starts_with(word)), "{left:?}");
        assert!(fine(&cured, word).is_some(), "{word}: {}", cured["fine"]);
    }
}

#[test]
fn a_record_says_elsewhere_what_the_machine_said() {
    let folder = TempDir::new("doctor-guest-record");
    let file = folder.join("host.json");
    std::fs::write(&file, RAN.text("host.json")).expect("the test's folder takes a file");
    let mut command = Command::new(forebay());
    command.args(["doctor", "--language", "en", "--json", "--sysroot"]).arg(&file);
    let told = run_command(MINUTE, command).expect_success().stdout;
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|e| panic!("not JSON ({e}): {told}"));
    let said = RAN.json("misplaced.json");
    // Whether one CPU had too much to do is of the half second of each look.
    let steady = |report: &Value| -> BTreeSet<String> {
        ids(report).into_iter().filter(|id| !id.starts_with("one-core/")).collect()
    };
    assert_eq!(steady(&told), steady(&said));
    for id in ["management/CPU-Temp", "management/log"] {
        assert_eq!(finding(&told, id), finding(&said, id));
    }
    let own: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(own, [file], "to look at a record leaves nothing");
}

#[test]
fn what_the_board_senses_and_has_logged_is_told() {
    let report = RAN.json("made.json");
    let hot = finding(&report, "management/CPU-Temp");
    assert_eq!(hot["severity"], "error", "{hot}");
    let [(source, line)] = &evidence(&hot)[..] else { panic!("{hot}") };
    assert_eq!(source, "ipmitool sdr list");
    assert!(line.contains("95 degrees C") && line.ends_with("| cr"), "{line}");
    let [(source, line)] = &evidence(&finding(&report, "management/log"))[..] else { panic!("one line shows it") };
    assert_eq!(source, "ipmitool sel list");
    assert!(line.contains("Memory #0x03") && line.contains("Uncorrectable ECC"), "{line}");
}

#[test]
fn a_link_is_judged_by_what_both_of_its_ends_can() {
    let report = RAN.json("metal.json");
    let links: Vec<String> = ids(&report).into_iter().filter(|id| id.starts_with("pcie-link/")).collect();
    let function = function_of("eth1");
    // All ports can do more than the cards in them; one card could, too.
    assert_eq!(links, [format!("pcie-link/{function}")]);
    let narrow = finding(&report, &links[0]);
    let shown = evidence(&narrow);
    assert!(
        shown.contains(&(format!("/sys/bus/pci/devices/{function}/current_link_width"), "1".to_owned())),
        "{narrow}"
    );
    let says = narrow["says"].as_str().expect("text");
    assert!(says.contains("5 GT/s x8"), "{says}");
}

#[test]
fn the_matrix_is_not_measured_where_a_node_is_too_small_and_its_number_is_said() {
    let refused = RAN.text("matrix");
    assert!(refused.contains("not measured: node 2 has ") && refused.contains("--force"), "{refused}");
}

/// Each cell looks by itself whether its memory is where it was asked for, and fails where it is not.
#[test]
fn the_matrix_measures_every_node_from_every_socket() {
    if !soak() {
        return skip("bandwidth between emulated nodes takes minutes; FOREBAY_SOAK=1 runs it");
    }
    let ran = Machine::default().option("nodes=3").option("far_mib=256").option("seconds=1100").run(
        "doctor-guest-matrix",
        "forebay doctor matrix --force --json >/out/matrix.json 2>/out/why || give_up \"$(cat /out/why)\"",
    );
    let matrix = ran.json("matrix.json");
    for figures in ["read", "latency"] {
        let cells = matrix[figures].as_array().expect("a list");
        let pairs: BTreeSet<(u64, u64)> =
            cells.iter().map(|cell| (cell["cpus"].as_u64().unwrap(), cell["memory"].as_u64().unwrap())).collect();
        assert_eq!(pairs, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)].into(), "{figures}");
    }
    assert!(
        matrix["read"].as_array().expect("a list").iter().all(|cell| cell["bytes_per_second"].as_f64() > Some(1e6)),
        "{matrix}"
    );
}
