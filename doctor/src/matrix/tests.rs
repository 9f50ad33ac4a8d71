use super::*;
use crate::fixture::Tree;
use forebay_host::topology::CpuPlace;
use forebay_tests::harness::skip;

/// Two nodes of two cores with two threads each, and one of memory alone.
fn host() -> Topology {
    let cpus = (0..8).map(|cpu| {
        let (core, node) = (cpu % 4, cpu % 4 / 2);
        let shares_cache = (0..8).filter(|other| other % 4 / 2 == node).collect();
        (cpu, CpuPlace { node, package: node, core, shares_cache, cache_bytes: 64 << 20 })
    });
    let node = |number| {
        let cpus = if number < 2 { vec![2 * number, 2 * number + 1, 2 * number + 4, 2 * number + 5] } else { vec![] };
        (number, NumaNode { cpus, memory_bytes: 8 << 30, distances: BTreeMap::new() })
    };
    Topology { cpus: cpus.collect(), nodes: (0..3).map(node).collect(), ..Topology::default() }
}

#[test]
fn nodes_without_cpus_are_read_from_and_cores_come_before_their_threads() {
    let topology = host();
    let all: Vec<Cpu> = topology.cpus.keys().copied().collect();
    let cast = Cast::of(&topology, &all);
    assert_eq!(cast.cores, BTreeMap::from([(0, vec![0, 1]), (1, vec![2, 3])]));
    assert_eq!(cast.threads, BTreeMap::from([(0, vec![0, 1, 4, 5]), (1, vec![2, 3, 6, 7])]));
    let cells = cells(&cast);
    let reads =
        |all| cells.iter().filter(|cell| matches!(cell, Cell::Read { all_threads, .. } if *all_threads == all)).count();
    assert_eq!((reads(false), reads(true)), (6, 6));
    assert!(cells.contains(&Cell::Latency { cpus: 1, memory: 2 }));
    assert!(cells.contains(&Cell::BothWays { a: 0, b: 1 }) && !cells.contains(&Cell::BothWays { a: 1, b: 0 }));
    assert!(!cells.iter().any(|cell| matches!(cell, Cell::Loaded { node: 2 } | Cell::Mix { node: 2, .. })));
    let homes = cells.iter().filter(|cell| matches!(cell, Cell::Cores { a: 0, b: 2, .. })).count();
    assert_eq!(homes, 2, "the line of a far pair is measured on either node");
}

#[test]
fn cpus_that_the_process_may_not_use_take_no_part() {
    let topology = host();
    let cast = Cast::of(&topology, &[5, 2]);
    assert_eq!(cast.cores, BTreeMap::from([(0, vec![5]), (1, vec![2])]));
    assert!(!cast.has_threads());
    assert!(!cells(&cast).iter().any(|cell| matches!(cell, Cell::Loaded { .. })), "nobody is there to make the load");
    assert!(Cast::of(&topology, &[]).cores.is_empty());
}

#[test]
fn buffers_are_many_times_the_caches_as_far_as_there_is_memory_and_a_socket_without_work_is_kept_awake() {
    let topology = host();
    let all: Vec<Cpu> = topology.cpus.keys().copied().collect();
    let mut cast = Cast::of(&topology, &all);
    let together = |cast: &Cast| {
        let bytes = cast.buffer(&[0, 1]);
        assert!(bytes.is_multiple_of(6 << 20), "{bytes}");
        2 * bytes as u64 / (64 << 20)
    };
    assert_eq!(together(&cast), CACHES);
    cast.lends = 9 * (64 << 20);
    assert_eq!(together(&cast), 9);
    cast.lends = 64 << 20;
    assert_eq!((together(&cast), cast.needed() / (64 << 20)), (CACHES_MIN, GROUPS * CACHES_MIN));
    let bytes = cast.buffer(&[0, 1]);
    assert_eq!(cast.buffer(&[]), run::rounded(BUFFER_MIN as usize));
    let stream = Task::Stream { mix: Mix::Read, pause: Duration::ZERO };
    let awake = cast.awake(&[Worker { cpu: 1, memory: 1, bytes, task: stream }]);
    assert_eq!(awake.iter().map(|worker| worker.cpu).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_host_that_is_small_or_busy_is_left_alone_with_the_reason() {
    let topology = host();
    let cast = Cast::of(&topology, &[0, 1, 2, 3]);
    let meminfo = |node: u32, free: u64| format!("Node {node} MemTotal: 9000000 kB\nNode {node} MemFree: {free} kB\n");
    let at = |node| format!("/sys/devices/system/node/node{node}/meminfo");
    let tree = Tree::new()
        .file("/proc/stat", "cpu  100 0 100 1000 0 0 0 0 0 0\n")
        .file(&at(0), &meminfo(0, 4_000_000))
        .file(&at(1), &meminfo(1, 100_000))
        .file(&at(2), &meminfo(2, 4_000_000));
    let reasons = against(&tree.system(), &cast);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert_eq!(reasons[0].key, "matrix.small");
    assert!(reasons[0].with.contains(&("node".to_owned(), "1".to_owned())), "{reasons:?}");
    assert_eq!(cpu_time("cpu  100 20 80 1000 300 5 5 10 7 0\ncpu0 1 1 1 1"), Some((1520, 1300)));
    assert_eq!(cpu_time("intr 5"), None);
    assert_eq!(free(&Tree::new().hidden(&at(0)).system(), 0, None), None);
    let whole = Tree::new().file("/proc/meminfo", "MemTotal: 9 kB\nMemFree:      8 kB\n");
    assert_eq!(free(&whole.system(), 0, Some(&NumaNode::default())), Some(8192));
}

#[test]
fn a_recorded_host_is_not_measured() {
    let error = measure(&Tree::new().system(), &host(), &Plan::default(), |_, _, _| ()).expect_err("no such host");
    assert!(error.to_string().starts_with("measure a recorded host"), "{error}");
}

#[test]
fn the_knee_is_where_a_load_takes_twice_as_long_as_alone() {
    assert_eq!(knee(&[(0.0, 100.0), (10.0, 120.0), (20.0, 180.0), (30.0, 220.0)]), Some(25.0));
    assert_eq!(knee(&[(0.0, 100.0), (10.0, 120.0)]), None);
    assert_eq!(knee(&[]), None);
}

#[test]
fn what_is_kept_counts_for_the_boot_that_it_belongs_to() {
    let matrix = Matrix { boot_id: "a".to_owned(), kernel: "6.1".to_owned(), ..Matrix::default() };
    let text = serde_json::to_string(&matrix).expect("JSON");
    let tree = |boot: &str| Tree::new().file(KEPT, &text).file("/proc/sys/kernel/random/boot_id", boot);
    assert_eq!(Matrix::kept(&tree("a\n").system()), Some(matrix));
    assert_eq!(Matrix::kept(&tree("b\n").system()), None, "firmware may have changed since");
    assert_eq!(Matrix::kept(&Tree::new().file(KEPT, "{").system()), None);
    assert_eq!(Matrix::kept(&Tree::new().hidden(KEPT).system()), None);
}

#[test]
fn what_was_forced_says_so_and_why_it_may_be_wrong() {
    let why = Sentence::new("matrix.busy").with("busy", 87).with("max", 25);
    let forced = Matrix { forced: vec![why], ..Matrix::default() };
    let text = forced.text(Language::En);
    assert!(text.starts_with("Measured with --force, so these figures may be wrong: the host is busy: 87 %"), "{text}");
    let json = serde_json::to_value(&forced).expect("JSON");
    assert_eq!(json["forced"][0]["key"], "matrix.busy", "{json}");
    assert_eq!(serde_json::from_value::<Matrix>(json).expect("read back"), forced);
    assert_eq!(Matrix::default().caveat(Language::En), None, "nothing spoke against it");
}

#[test]
fn a_part_that_is_asked_for_alone_is_measured_and_shown_alone() {
    let system = System::live();
    let topology = forebay_host::topology::read(&system);
    let latency_window = Duration::from_millis(20);
    let plan = Plan { only: vec![Part::Latency], force: true, latency_window, ..Plan::default() };
    let mut cells = Vec::new();
    let measured = measure(&system, &topology, &plan, |cell, _, _| cells.push(cell.key.clone())).expect("measured");
    let matrix = measured.expect("it is not refused where it is forced");
    assert!(!cells.is_empty() && cells.iter().all(|key| key == "matrix.cell.latency"), "{cells:?}");
    assert_eq!(matrix.latency.len(), cells.len());
    let others = Matrix { latency: Vec::new(), ..matrix.clone() }.text(Language::En);
    assert!(!others.lines().any(|line| line.starts_with("    ")), "tables of what was not measured: {others}");
    assert!(!matrix.text(Language::En).contains("GB/s"), "{}", matrix.text(Language::En));
}

#[test]
fn each_part_alone_has_the_caveats_of_the_whole() {
    let stream = |spread| Bandwidth {
        cpus: 0,
        memory: 0,
        mix: Mix::Read,
        threads: 1,
        bytes_per_second: 1e10,
        bus_bytes_per_second: None,
        spread,
    };
    let both = |spread| BothWays { a: 0, b: 1, bytes_per_second: 1e10, spread };
    let latency = |spread| Latency { cpus: 0, memory: 0, nanoseconds: 90.0, spread };
    let parts = |spread| {
        let empty = || Matrix { huge_pages: true, ..Matrix::default() };
        [
            Matrix { read: vec![stream(spread)], ..empty() },
            Matrix { read_all_threads: vec![stream(spread)], ..empty() },
            Matrix { mixes: vec![stream(spread)], ..empty() },
            Matrix { both_ways: vec![both(spread)], ..empty() },
            Matrix { latency: vec![latency(spread)], ..empty() },
        ]
    };
    let keys = |matrix: &Matrix| matrix.caveats().into_iter().map(|says| says.key).collect::<Vec<_>>();
    for (noisy, quiet) in parts(0.2).into_iter().zip(parts(0.01)) {
        assert_eq!(keys(&noisy), ["matrix.noisy"], "{noisy:?}");
        assert!(say(Language::En, &noisy.caveats()[0]).contains("20 %"));
        assert!(keys(&quiet).is_empty());
        assert_eq!(keys(&Matrix { huge_pages: false, ..quiet }), ["matrix.tlb"]);
    }
    let machine = Matrix { hypervisor: Some("KVM".to_owned()), latency: vec![latency(0.0)], ..Matrix::default() };
    assert!(machine.text(Language::En).contains("Virtual machine"));
}

#[test]
fn this_host_has_a_bandwidth_and_latencies_that_a_machine_can_have() {
    let system = System::live();
    let topology = forebay_host::topology::read(&system);
    let milliseconds = Duration::from_millis;
    let plan = Plan {
        window: milliseconds(100),
        latency_window: milliseconds(50),
        pair: milliseconds(200),
        ..Plan::default()
    };
    let matrix = match measure(&system, &topology, &plan, |_, _, _| ()).expect("measured") {
        Ok(matrix) => matrix,
        Err(reasons) => {
            let said: Vec<String> = reasons.iter().map(|reason| say(Language::En, reason)).collect();
            skip(&format!("a measurement of this host's memory: {}", said.join("; ")));
            return;
        }
    };
    let plausible = |cell: &Bandwidth| (1.0..1000.0).contains(&(cell.bytes_per_second / 1e9));
    assert!(!matrix.read.is_empty() && matrix.read.iter().chain(&matrix.mixes).all(plausible), "{matrix:?}");
    let memory = matrix.latency.iter().map(|cell| cell.nanoseconds).fold(f64::INFINITY, f64::min);
    assert!((10.0..10_000.0).contains(&memory), "{memory} ns");
    for pair in &matrix.cores {
        let fastest = pair.swap.min.min(pair.lines.min);
        assert!((1.0..10_000.0).contains(&fastest), "{pair:?}");
        // A virtual machine's CPUs may be anywhere: two below one cache, as it says, were 115 ns apart, which is another die.
        let near = pair.relation <= Relation::SameCache && topology.hypervisor.is_none();
        assert!(!near || memory > fastest, "{memory} ns and {pair:?}");
    }
    let text = matrix.text(Language::En);
    assert!(text.contains("GB/s") && text.contains("node 0"), "{text}");
    let json = serde_json::to_string(&matrix).expect("JSON");
    let back = serde_json::from_str::<Matrix>(&json).expect("read back");
    // The last bit of a float may be another: the parser is a fast one.
    assert_eq!(back.read.len(), matrix.read.len());
    for (back, said) in back.read.iter().zip(&matrix.read) {
        assert_eq!((back.cpus, back.memory, back.threads), (said.cpus, said.memory, said.threads));
        assert!((back.bytes_per_second / said.bytes_per_second - 1.0).abs() < 1e-9, "{back:?} of {said:?}");
    }
}
