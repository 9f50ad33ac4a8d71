//! Checks 22 to 25: clocks, sleep states, heat, and one core that does it all.

use super::super::Host;
use super::super::counters::matching;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::numa::{data_ports, spread_over};
use super::processes::servers;
use super::{Check, growth};
use crate::show;
use forebay_host::system::{Seen, System};
use forebay_host::topology::Cpu;
use std::collections::{BTreeMap, BTreeSet};

/// Checks 22 to 25, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 22, word: "cpu-clock", look: clocks },
    Check { number: 23, word: "cpu-sleep", look: sleeps },
    Check { number: 24, word: "heat", look: heat },
    Check { number: 25, word: "one-core", look: one_core },
];

/// A clock that is capped by less is rounding of the firmware's tables.
const CAP_TO_TELL: f64 = 0.95;
/// Exit latency from which a sleep costs more than an NVMe read's own spread, in microseconds.
const SLEEP_US: u64 = 50;
/// An SSD so near below its own warning temperature slows down in the next busy minute, in thousandths of a degree.
const NEARLY_HOT: i64 = 5000;
/// Temperatures outside are a drive's way to say that it has no limit, in thousandths of a degree.
const LIMITS: std::ops::RangeInclusive<i64> = 30_000..=120_000;
/// A core that is so busy has no time left for a burst.
const CORE_FULL: f64 = 0.90;
/// The other cores (median), when there would have been room.
const OTHERS_FREE: f64 = 0.50;
/// Share of a full core's time from which interrupts are what fills it.
const BY_INTERRUPTS: f64 = 0.50;
/// Receive rounds cut short in a second, on one CPU, from which it is told: a few come with every burst.
const SQUEEZES: f64 = 50.0;
/// Families of Intel's whose memory controller has the clock of the cores: Sandy Bridge and Ivy Bridge. At 1.2 GHz they have
/// 24 of 45 and 30 of 56 GB/s; Haswell and later do not.
const UNCORE_AS_CORES: [u32; 4] = [42, 45, 58, 62];

/// A setting that is made for several clock domains (policies) of CPUs.
struct Policy {
    path: String,
    driver: String,
    governor: String,
    preference: Option<String>,
    now_max: u64,
    max: u64,
    min: u64,
}

// Check 22. Reads cpufreq's governors and limits, and the uncore's. Rules: a governor that holds the clock down or prefers to
// save; limits below what the CPU can do; turbo that is off where there is one.
fn clocks(host: &Host) -> Verdict {
    let system = &host.system;
    let names = match system.list("/sys/devices/system/cpu/cpufreq") {
        Seen::Is(names) => names,
        Seen::Absent => return Verdict::NotHere,
        Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
    };
    let mut policies = Vec::new();
    for name in names.iter().filter(|name| name.starts_with("policy")) {
        let path = format!("/sys/devices/system/cpu/cpufreq/{name}");
        let governor = match system.text(&format!("{path}/scaling_governor")) {
            Seen::Is(governor) => governor,
            Seen::Absent => continue,
            Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        };
        let number = |file: &str| system.number(&format!("{path}/{file}")).known().unwrap_or(0);
        policies.push(Policy {
            governor,
            driver: system.text(&format!("{path}/scaling_driver")).known().unwrap_or_default(),
            preference: system.text(&format!("{path}/energy_performance_preference")).known(),
            now_max: number("scaling_max_freq"),
            max: number("cpuinfo_max_freq"),
            min: number("cpuinfo_min_freq"),
            path,
        });
    }
    let Some(fastest) = policies.iter().max_by_key(|policy| policy.max) else { return Verdict::NotHere };
    let fine = Sentence::new("cpu.clock-fine")
        .with("governor", &fastest.governor)
        .with("clock", show::clock(fastest.now_max))
        .with("policies", policies.len());
    let found: Vec<Finding> = [
        saving_governor(host, &policies),
        saving_preference(&policies),
        capped(&policies),
        without_turbo(system),
        slow_uncore(system),
    ]
    .into_iter()
    .flatten()
    .collect();
    if found.is_empty() { Verdict::Fine(fine) } else { Verdict::Found(found) }
}

fn clock_finding(id: &str, severity: Severity, text: Sentence, evidence: Vec<Evidence>, remedy: Remedy) -> Finding {
    Finding {
        id: format!("cpu-clock/{id}"),
        check: 22,
        severity,
        confidence: Confidence::Certain,
        text,
        evidence,
        number: None,
        remedies: vec![remedy],
    }
}

fn write_to(policies: &[&Policy], file: &str, value: impl Fn(&Policy) -> String) -> Vec<Write> {
    policies.iter().map(|policy| Write { path: format!("{}/{file}", policy.path), value: value(policy) }).collect()
}

/// `powersave` of a driver that chooses clocks itself (intel_pstate, amd-pstate-epp) follows the load; of others it is the
/// lowest clock, for good.
fn saving_governor(host: &Host, policies: &[Policy]) -> Option<Finding> {
    let chooses = |policy: &Policy| ["intel_pstate", "amd-pstate-epp"].contains(&policy.driver.as_str());
    let saving: Vec<&Policy> =
        policies.iter().filter(|policy| policy.governor == "powersave" && !chooses(policy)).collect();
    let first = saving.first()?;
    let memory_too = memory_follows(&host.system);
    let key = if memory_too { "cpu.powersave-memory" } else { "cpu.powersave" };
    let text = Sentence::new(key)
        .with("policies", saving.len())
        .with("clock", show::clock(first.min))
        .with("max", show::clock(first.max));
    let evidence = vec![
        Evidence::new(format!("{}/scaling_governor", first.path), &first.governor),
        Evidence::new(format!("{}/scaling_driver", first.path), &first.driver),
    ];
    let remedy = Remedy::Apply {
        what: Sentence::new("cpu.governor-remedy"),
        writes: write_to(&saving, "scaling_governor", |_| "performance".to_owned()),
    };
    let number = Number { is: first.min as f64 * 1e3, could_be: first.max as f64 * 1e3, unit: "Hz".to_owned() };
    let finding = clock_finding("governor", Severity::Warning, text, evidence, remedy);
    Some(Finding { number: (first.max > 0).then_some(number), ..finding })
}

fn memory_follows(system: &System) -> bool {
    let about = system.text("/proc/cpuinfo").known().unwrap_or_default();
    let of = |name: &str| -> Option<&str> {
        let line = about.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
        line.map(|(_, value)| value.trim())
    };
    let model = of("model").and_then(|model| model.parse().ok()).unwrap_or(0);
    of("vendor_id") == Some("GenuineIntel") && of("cpu family") == Some("6") && UNCORE_AS_CORES.contains(&model)
}

fn saving_preference(policies: &[Policy]) -> Option<Finding> {
    let prefers =
        |policy: &Policy| policy.preference.as_deref().is_some_and(|p| ["power", "balance_power"].contains(&p));
    let saving: Vec<&Policy> = policies.iter().filter(|policy| prefers(policy)).collect();
    let first = saving.first()?;
    let preference = first.preference.clone().unwrap_or_default();
    let path = format!("{}/energy_performance_preference", first.path);
    let text = Sentence::new("cpu.preference").with("policies", saving.len()).with("preference", &preference);
    let remedy = Remedy::Apply {
        what: Sentence::new("cpu.preference-remedy"),
        writes: write_to(&saving, "energy_performance_preference", |_| "performance".to_owned()),
    };
    Some(clock_finding("preference", Severity::Note, text, vec![Evidence::new(path, preference)], remedy))
}

fn capped(policies: &[Policy]) -> Option<Finding> {
    let is_capped = |policy: &Policy| policy.now_max > 0 && (policy.now_max as f64) < CAP_TO_TELL * policy.max as f64;
    let capped: Vec<&Policy> = policies.iter().filter(|policy| is_capped(policy)).collect();
    let worst = capped.iter().min_by_key(|policy| policy.now_max)?;
    let text = Sentence::new("cpu.capped")
        .with("policies", capped.len())
        .with("clock", show::clock(worst.now_max))
        .with("max", show::clock(worst.max));
    let evidence = vec![
        Evidence::new(format!("{}/scaling_max_freq", worst.path), worst.now_max),
        Evidence::new(format!("{}/cpuinfo_max_freq", worst.path), worst.max),
    ];
    let remedy = Remedy::Apply {
        what: Sentence::new("cpu.capped-remedy"),
        writes: write_to(&capped, "scaling_max_freq", |policy| policy.max.to_string()),
    };
    let number = Number { is: worst.now_max as f64 * 1e3, could_be: worst.max as f64 * 1e3, unit: "Hz".to_owned() };
    let finding = clock_finding("cap", Severity::Warning, text, evidence, remedy);
    Some(Finding { number: Some(number), ..finding })
}

fn without_turbo(system: &System) -> Option<Finding> {
    let switches = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1", "0"),
        ("/sys/devices/system/cpu/cpufreq/boost", "0", "1"),
    ];
    let (path, off, on) =
        switches.into_iter().find(|(path, off, _)| system.text(path).known().as_deref() == Some(*off))?;
    let able = turbo_ability(system)?;
    let writes = vec![Write { path: path.to_owned(), value: on.to_owned() }];
    let remedy = Remedy::Apply { what: Sentence::new("cpu.turbo-remedy"), writes };
    let evidence = vec![Evidence::new(path, off), able];
    Some(clock_finding("turbo", Severity::Note, Sentence::new("cpu.turbo"), evidence, remedy))
}

/// What shows that there is a turbo to switch on. The switch alone does not: it reads "off" on CPUs that have none.
fn turbo_ability(system: &System) -> Option<Evidence> {
    let highest = matching(system, "/sys/devices/system/cpu/*/acpi_cppc/highest_perf");
    let gains = highest.into_iter().filter_map(|path| {
        let nominal = system.number::<u64>(&path.replace("highest_perf", "nominal_perf")).known()?;
        let highest = system.number::<u64>(&path).known()?;
        (nominal > 0).then_some((highest as f64 / nominal as f64, highest, path))
    });
    if let Some((gain, highest, path)) = gains.max_by(|a, b| a.0.total_cmp(&b.0)) {
        return (gain * CAP_TO_TELL > 1.0).then(|| Evidence::new(path, highest));
    }
    // Bits of CPUID: Intel's (turbo) and AMD's (core performance boost); where the firmware forbids it they are not set.
    let cpuinfo = system.text("/proc/cpuinfo").known()?;
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    let flag = flags.split_whitespace().find(|flag| ["ida", "cpb"].contains(flag))?;
    Some(Evidence::new("/proc/cpuinfo", format!("flags: {flag}")))
}

fn slow_uncore(system: &System) -> Option<Finding> {
    let (mut writes, mut worst) = (Vec::new(), None::<(u64, u64, String)>);
    for path in matching(system, "/sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz") {
        let initial = path.replace("/max_freq_khz", "/initial_max_freq_khz");
        let (Seen::Is(now), Seen::Is(max)) = (system.number::<u64>(&path), system.number::<u64>(&initial)) else {
            continue;
        };
        if (now as f64) < CAP_TO_TELL * max as f64 {
            writes.push(Write { path: path.clone(), value: max.to_string() });
            if worst.as_ref().is_none_or(|(least, ..)| now < *least) {
                worst = Some((now, max, path));
            }
        }
    }
    let (now, max, path) = worst?;
    let text = Sentence::new("cpu.uncore").with("clock", show::clock(now)).with("max", show::clock(max));
    let remedy = Remedy::Apply { what: Sentence::new("cpu.uncore-remedy"), writes };
    let number = Number { is: now as f64 * 1e3, could_be: max as f64 * 1e3, unit: "Hz".to_owned() };
    let finding = clock_finding("uncore", Severity::Warning, text, vec![Evidence::new(path, now)], remedy);
    Some(Finding { number: Some(number), ..finding })
}

// Check 23. Reads the sleep states of CPUs that take interrupts of fast interfaces and NVMe. Rule: one that takes longer than
// SLEEP_US to leave is allowed, and was entered.
fn sleeps(host: &Host) -> Verdict {
    let (topology, system) = (&host.topology, &host.system);
    let ports = data_ports(topology).into_iter().map(|port| port.pci);
    let nvme = topology.disks.values().filter(|disk| disk.kind == "nvme").filter_map(|disk| disk.pci.as_deref());
    let fast: BTreeSet<&str> = ports.chain(nvme).collect();
    if fast.is_empty() {
        return Verdict::NotHere;
    }
    let taken = fast
        .iter()
        .flat_map(|pci| topology.interrupts_of(pci))
        .filter(|(_, interrupt)| interrupt.counts.values().any(|count| *count > 0));
    let mut cpus: BTreeSet<Cpu> = taken.flat_map(|(_, interrupt)| interrupt.goes_to.iter().copied()).collect();
    if cpus.is_empty() {
        cpus = topology.cpus.keys().copied().collect();
    }
    // What somebody asked for (PM QoS) holds for all CPUs. It is root's to read; not knowing it makes the finding less sure.
    let asked = system.bytes("/dev/cpu_dma_latency").known().and_then(|bytes| bytes.first_chunk().copied());
    let asked = asked.map(i32::from_le_bytes).and_then(|latency| u64::try_from(latency).ok());
    let (mut deep, mut deepest, mut seen) =
        (BTreeMap::<String, Vec<(u64, String)>>::new(), None::<(u64, String)>, false);
    for cpu in cpus {
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        let states = match system.list(&folder) {
            Seen::Is(states) => states,
            Seen::Absent => continue,
            Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        };
        for state in states.iter().filter(|state| state.starts_with("state")) {
            let path = format!("{folder}/{state}");
            let number = |file: &str| system.number::<u64>(&format!("{path}/{file}")).known();
            let (Some(latency), Some(0)) = (number("latency"), number("disable")) else { continue };
            seen = true;
            let name = system.text(&format!("{path}/name")).known().unwrap_or_else(|| state.clone());
            if asked.is_some_and(|asked| latency > asked) {
                continue;
            }
            if deepest.as_ref().is_none_or(|(most, _)| latency > *most) {
                deepest = Some((latency, name.clone()));
            }
            if latency > SLEEP_US && number("usage").is_some_and(|usage| usage > 0) {
                deep.entry(name).or_default().push((latency, path));
            }
        }
    }
    let Some((name, on)) = deep.iter().max_by_key(|(_, on)| on.iter().map(|(latency, _)| *latency).max()) else {
        return match deepest {
            Some((latency, name)) if seen => {
                Verdict::Fine(Sentence::new("cpu.sleep-fine").with("state", name).with("latency", latency))
            }
            _ => Verdict::NotHere,
        };
    };
    let latency = on.iter().map(|(latency, _)| *latency).max().unwrap_or(0);
    let usage = format!("{}/usage", on[0].1);
    let entered = system.text(&usage).known().unwrap_or_default();
    let evidence = vec![Evidence::new(format!("{}/latency", on[0].1), latency), Evidence::new(usage, &entered)];
    let disable = |(_, path): &(u64, String)| Write { path: format!("{path}/disable"), value: "1".to_owned() };
    Verdict::Found(vec![Finding {
        id: format!("cpu-sleep/{name}"),
        check: 23,
        severity: Severity::Note,
        confidence: if asked.is_some() { Confidence::Certain } else { Confidence::Computed },
        text: Sentence::new("cpu.sleep").with("state", name).with("latency", latency).with("cpus", on.len()),
        evidence,
        number: Some(Number { is: latency as f64 / 1e6, could_be: SLEEP_US as f64 / 1e6, unit: "s".to_owned() }),
        remedies: vec![Remedy::Apply {
            what: Sentence::new("cpu.sleep-remedy").with("state", name),
            writes: deep.values().flatten().map(disable).collect(),
        }],
    }])
}

// Check 24. Reads counters of throttled CPUs, and temperatures of SSDs. Rules: a counter grew between the looks; a drive is at
// its own warning temperature, or nearly.
fn heat(host: &Host) -> Verdict {
    let mut found = Vec::new();
    let (mut counted, mut since_boot) = (false, 0);
    if let Some((before, between)) = &host.earlier {
        let (mut grew, mut worst) = (0, None::<(u64, &String)>);
        for path in host.counters.0.keys().filter(|path| path.contains("/thermal_throttle/")) {
            let Some(now) = host.counters.number(path) else { continue };
            counted = true;
            since_boot += now;
            let grown = before.number(path).map_or(0, |before| now.saturating_sub(before));
            grew += grown;
            if grown > worst.map_or(0, |(most, _)| most) {
                worst = Some((grown, path));
            }
        }
        if let Some((_, path)) = worst {
            let seconds = format!("{:.1}", between.as_secs_f64());
            found.push(Finding {
                id: "heat/cpu".to_owned(),
                check: 24,
                severity: Severity::Warning,
                confidence: Confidence::Certain,
                text: Sentence::new("cpu.throttled").with("times", grew).with("seconds", seconds),
                evidence: vec![Evidence::new(path, host.counters.number(path).unwrap_or(0))],
                number: None,
                remedies: vec![Remedy::Explain { what: Sentence::new("cpu.air-remedy"), command: None }],
            });
        }
    }
    let (drives, hidden) = drives(&host.system);
    found.extend(drives.iter().filter_map(hot_drive));
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let hottest = drives.iter().min_by_key(|drive| drive.limit - drive.now);
    match (hottest, counted, hidden) {
        (Some(drive), ..) => Verdict::Fine(
            Sentence::new("cpu.drive-cool")
                .with("drive", &drive.name)
                .with("now", drive.now / 1000)
                .with("limit", drive.limit / 1000),
        ),
        (None, true, _) => Verdict::Fine(Sentence::new("cpu.not-throttled").with("times", since_boot)),
        (None, false, Some(what)) => Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        (None, false, None) => Verdict::NotHere,
    }
}

/// An SSD that tells its temperature and the one from which it slows down, in thousandths of a degree.
struct Drive {
    name: String,
    path: String,
    now: i64,
    limit: i64,
}

fn drives(system: &System) -> (Vec<Drive>, Option<String>) {
    let (mut drives, mut hidden) = (Vec::new(), None);
    for path in matching(system, "/sys/class/hwmon/*/temp1_input") {
        let folder = path.trim_end_matches("/temp1_input");
        let kind = system.text(&format!("{folder}/name")).known().unwrap_or_default();
        // Other disks tell the temperature that they are meant for, and do not slow down above it.
        if kind != "nvme" {
            continue;
        }
        let now = match system.number(&path) {
            Seen::Is(now) => now,
            Seen::Absent => continue,
            Seen::Hidden(why) => {
                hidden = Some(why);
                continue;
            }
        };
        let Some(limit) = system.number(&format!("{folder}/temp1_max")).known().filter(|limit| LIMITS.contains(limit))
        else {
            continue;
        };
        let device = system.real(&format!("{folder}/device")).known().unwrap_or_else(|| folder.to_owned());
        let name = device.rsplit('/').next().unwrap_or_default().to_owned();
        drives.push(Drive { name, path, now, limit });
    }
    (drives, hidden)
}

fn hot_drive(drive: &Drive) -> Option<Finding> {
    let hot = drive.now >= drive.limit;
    (drive.now > drive.limit - NEARLY_HOT).then(|| Finding {
        id: format!("heat/{}", drive.name),
        check: 24,
        severity: if hot { Severity::Warning } else { Severity::Note },
        confidence: Confidence::Certain,
        text: Sentence::new(if hot { "cpu.drive-hot" } else { "cpu.drive-nearly-hot" })
            .with("drive", &drive.name)
            .with("now", drive.now / 1000)
            .with("limit", drive.limit / 1000),
        evidence: vec![
            Evidence::new(&drive.path, drive.now),
            Evidence::new(drive.path.replace("_input", "_max"), drive.limit),
        ],
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new("cpu.air-remedy"), command: None }],
    })
}

// Check 25. Reads what each CPU did between the looks, and what the network stack dropped on it. Rules: one is full by
// interrupts, or by a server's thread of the kernel, while the others are free; packets were dropped or rounds cut short.
fn one_core(host: &Host) -> Verdict {
    if let Seen::Hidden(what) = host.system.text("/proc/stat") {
        return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") };
    }
    if host.counters.0.contains_key("/proc/stat") && host.earlier.is_none() {
        let what = "/proc/stat".to_owned();
        return Verdict::NotSeen { what, how: Sentence::new("cpu.second-look") };
    }
    let Some(loads) = growth::loads(host).filter(|loads| loads.len() > 1) else { return Verdict::NotHere };
    let (&cpu, &load) = loads.iter().max_by(|(_, a), (_, b)| a.busy.total_cmp(&b.busy)).expect("there are two or more");
    let mut others: Vec<f64> = loads.iter().filter(|(other, _)| **other != cpu).map(|(_, load)| load.busy).collect();
    others.sort_by(f64::total_cmp);
    let others = others[others.len() / 2];
    let mut found = dropped(host);
    if load.busy > CORE_FULL && others < OTHERS_FREE {
        found.extend(full_core(host, cpu, load, others));
    }
    if others > CORE_FULL {
        found.push(all_full(host, loads.len(), others));
    }
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    Verdict::Fine(
        Sentence::new("cpu.no-single-core")
            .with("cpu", cpu)
            .with("busy", show::percent(load.busy))
            .with("others", show::percent(others)),
    )
}

fn all_full(host: &Host, cpus: usize, busy: f64) -> Finding {
    let line = host.counters.0.get("/proc/stat").and_then(|text| text.lines().next()).unwrap_or_default();
    Finding {
        id: "one-core/all".to_owned(),
        check: 25,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("cpu.all-full").with("cpus", cpus).with("busy", show::percent(busy)),
        evidence: vec![Evidence::new("/proc/stat", line)],
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new("cpu.all-full-remedy"), command: Some("top".to_owned()) }],
    }
}

fn full_core(host: &Host, cpu: Cpu, load: growth::Load, others: f64) -> Option<Finding> {
    let text = |key| {
        Sentence::new(key)
            .with("cpu", cpu)
            .with("busy", show::percent(load.busy))
            .with("interrupts", show::percent(load.interrupts))
            .with("others", show::percent(others))
    };
    let line = host.counters.0.get("/proc/stat")?.lines().find(|line| line.starts_with(&format!("cpu{cpu} ")))?;
    let finding = |text, confidence, remedy| Finding {
        id: format!("one-core/cpu{cpu}"),
        check: 25,
        severity: Severity::Warning,
        confidence,
        text,
        evidence: vec![Evidence::new("/proc/stat", line)],
        number: Some(Number { is: load.busy, could_be: others, unit: "1".to_owned() }),
        remedies: vec![remedy],
    };
    if load.interrupts >= BY_INTERRUPTS {
        return Some(finding(text("cpu.full-by-interrupts"), Confidence::Certain, relief(host, cpu)));
    }
    // Anybody may fill a core with computing; only a server's own thread bounds the data path by that.
    let servers = servers(&host.system).known().unwrap_or_default();
    let fills = |thread: &super::processes::Thread| thread.running && thread.cpu == cpu;
    let server = servers.iter().find(|server| server.kernel && server.threads.iter().any(fills))?;
    let remedy =
        Remedy::Explain { what: Sentence::new("cpu.server-remedy").with("server", &server.name), command: None };
    Some(finding(text("cpu.full-by-server").with("server", &server.name), Confidence::Likely, remedy))
}

/// What takes interrupts' work off a CPU: several queues that all end there are spread; a single one is shared by RPS.
fn relief(host: &Host, cpu: Cpu) -> Remedy {
    let more_queues = Remedy::Explain { what: Sentence::new("cpu.queues-remedy"), command: None };
    let Some((grown, _)) = growth::interrupts(host) else { return more_queues };
    let topology = &host.topology;
    let came = |nic: &forebay_host::topology::Nic| -> Vec<u32> {
        let of = nic.pci.as_deref().map(|pci| topology.interrupts_of(pci)).into_iter().flatten();
        let here = |number: &u32| grown.get(number).and_then(|counts| counts.get(&cpu)).is_some_and(|count| *count > 0);
        of.filter(|(_, interrupt)| !interrupt.managed).map(|(number, _)| number).filter(here).collect()
    };
    let count = |numbers: &[u32]| -> u64 { numbers.iter().filter_map(|n| grown.get(n)?.get(&cpu)).sum() };
    let busiest = topology.nics.iter().map(|(name, nic)| (name, nic, came(nic))).max_by_key(|(_, _, came)| count(came));
    let Some((name, nic, came)) = busiest.filter(|(_, _, came)| !came.is_empty()) else { return more_queues };
    let node = nic.node.or_else(|| topology.cpus.get(&cpu).map(|place| place.node)).unwrap_or(0);
    let queues = matching(&host.system, &format!("/sys/class/net/{name}/queues/*/rps_cpus"));
    let what = Sentence::new("cpu.spread-remedy").with("device", name).with("node", node);
    if came.len() > 1 {
        return Remedy::Apply { what, writes: spread_over(topology, node, &came) };
    }
    let cpus = topology.nodes.get(&node).map_or(Vec::new(), |node| node.cpus.clone());
    match &queues[..] {
        [only] if cpus.len() > 1 => {
            Remedy::Apply { what, writes: vec![Write { path: only.clone(), value: show::cpu_mask(cpus) }] }
        }
        _ => more_queues,
    }
}

fn dropped(host: &Host) -> Vec<Finding> {
    let Some((grown, seconds)) = growth::softnet(host) else { return Vec::new() };
    let drops: u64 = grown.values().map(|[drops, _]| drops).sum();
    let squeezes =
        grown.iter().map(|(cpu, [_, squeezes])| (*squeezes as f64 / seconds, *cpu)).max_by(|a, b| a.0.total_cmp(&b.0));
    let limit = |name: &str| {
        let path = format!("/proc/sys/net/core/{name}");
        let now: Option<u64> = host.system.number(&path).known();
        now.map(|now| (now, Write { path, value: (now * 2).to_string() }))
    };
    let finding = |id: &str, severity, text, limit: Option<(u64, Write)>| {
        let mut evidence = vec![Evidence::new("/proc/net/softnet_stat", format!("+{drops} / {seconds:.1} s"))];
        evidence.extend(limit.iter().map(|(now, write)| Evidence::new(&write.path, now)));
        let what = Sentence::new("cpu.softnet-remedy");
        let remedy = |(_, write)| Remedy::Apply { what, writes: vec![write] };
        let remedies = limit.map(remedy).into_iter().collect();
        let confidence = Confidence::Certain;
        Finding {
            id: format!("one-core/{id}"),
            check: 25,
            severity,
            confidence,
            text,
            evidence,
            number: None,
            remedies,
        }
    };
    if drops > 0 {
        let text = Sentence::new("cpu.dropped").with("drops", drops).with("seconds", format!("{seconds:.1}"));
        return vec![finding("dropped", Severity::Warning, text, limit("netdev_max_backlog"))];
    }
    match squeezes {
        Some((rate, cpu)) if rate >= SQUEEZES => {
            let text = Sentence::new("cpu.squeezed").with("cpu", cpu).with("rate", format!("{rate:.0}"));
            let mut found = finding("squeezed", Severity::Note, text, limit("netdev_budget"));
            found.evidence[0].value = format!("+{:.0} / {seconds:.1} s", rate * seconds);
            vec![found]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, found, not_here, not_seen, one, text, writes};
    use super::super::processes::with_process;
    use super::*;
    use crate::fixture::Tree;

    const NIC: &str = "0000:82:00.0";
    const POLICY: &str = "/sys/devices/system/cpu/cpufreq/policy0";

    /// A clock domain: driver, governor, and its clocks in kHz: allowed, and at most.
    fn clocked(driver: &str, governor: &str, now_max: u64, max: u64) -> Tree {
        Tree::new()
            .node(0, "0-3", 32)
            .file(&format!("{POLICY}/scaling_driver"), driver)
            .file(&format!("{POLICY}/scaling_governor"), governor)
            .file(&format!("{POLICY}/scaling_max_freq"), &now_max.to_string())
            .file(&format!("{POLICY}/cpuinfo_max_freq"), &max.to_string())
            .file(&format!("{POLICY}/cpuinfo_min_freq"), "1200000")
    }

    #[test]
    fn powersave_of_a_driver_that_obeys_holds_the_clock_down() {
        let finding = one(&clocked("acpi-cpufreq", "powersave", 3_300_000, 3_300_000), 22);
        assert_eq!(
            text(&finding),
            "Governor powersave holds 1 clock domains at 1.20 GHz of 3.30 GHz, whatever the load."
        );
        assert_eq!(writes(&finding), [format!("{POLICY}/scaling_governor=performance")]);
        assert_eq!(finding.number.expect("there is").is, 1.2e9);
    }

    #[test]
    fn on_sandy_and_ivy_bridge_powersave_takes_memory_bandwidth_too() {
        let about = |model: u32| {
            format!("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nmodel name\t: Xeon\n")
        };
        let of =
            |model| clocked("acpi-cpufreq", "powersave", 3_300_000, 3_300_000).file("/proc/cpuinfo", &about(model));
        assert!(text(&one(&of(62), 22)).contains("memory bandwidth is about halved"));
        assert!(!text(&one(&of(63), 22)).contains("memory"));
    }

    #[test]
    fn powersave_of_a_driver_that_chooses_clocks_itself_is_fine() {
        let tree = clocked("intel_pstate", "powersave", 3_300_000, 3_300_000);
        assert!(fine(&tree, 22).starts_with("CPU clock: up to 3.30 GHz by governor powersave"), "{}", fine(&tree, 22));
        let balanced = tree.file(&format!("{POLICY}/energy_performance_preference"), "balance_performance");
        fine(&balanced, 22);
        let saving = balanced.file(&format!("{POLICY}/energy_performance_preference"), "power");
        assert_eq!(one(&saving, 22).id, "cpu-clock/preference");
    }

    #[test]
    fn turbo_that_a_cpu_does_not_have_is_not_missed() {
        let off = || {
            let tree = clocked("cppc_cpufreq", "performance", 3_900_000, 3_900_000);
            tree.file("/sys/devices/system/cpu/cpufreq/boost", "0")
        };
        fine(&off(), 22);
        fine(&off().file("/proc/cpuinfo", "flags\t\t: fpu arat\n"), 22);
        assert_eq!(one(&off().file("/proc/cpuinfo", "flags\t\t: fpu cpb\n"), 22).id, "cpu-clock/turbo");
        // A machine of Arm's: of all its cores one has 3 % more.
        let cppc = |tree: Tree, cpu: u32, nominal: &str, highest: &str| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/acpi_cppc");
            tree.file(&format!("{folder}/nominal_perf"), nominal).file(&format!("{folder}/highest_perf"), highest)
        };
        fine(&cppc(cppc(off(), 0, "150", "150"), 1, "150", "154"), 22);
        let found = one(&cppc(cppc(off(), 0, "120", "120"), 1, "120", "166"), 22);
        assert_eq!(found.evidence[1].source, "/sys/devices/system/cpu/cpu1/acpi_cppc/highest_perf");
    }

    #[test]
    fn caps_turbo_and_uncore_are_told_each() {
        let uncore = "/sys/devices/system/cpu/intel_uncore_frequency/package_00_die_00";
        let tree = clocked("intel_pstate", "performance", 2_000_000, 3_300_000)
            .file("/sys/devices/system/cpu/intel_pstate/no_turbo", "1")
            .file("/proc/cpuinfo", "flags\t\t: fpu ida arat\n")
            .file(&format!("{uncore}/max_freq_khz"), "1200000")
            .file(&format!("{uncore}/initial_max_freq_khz"), "2400000");
        let found = found(&tree, 22);
        let ids: Vec<&str> = found.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["cpu-clock/cap", "cpu-clock/turbo", "cpu-clock/uncore"]);
        assert_eq!(writes(&found[0]), [format!("{POLICY}/scaling_max_freq=3300000")]);
        assert_eq!(writes(&found[1]), ["/sys/devices/system/cpu/intel_pstate/no_turbo=0"]);
        assert_eq!(writes(&found[2]), [format!("{uncore}/max_freq_khz=2400000")]);
    }

    #[test]
    fn clocks_that_are_hidden_or_a_hypervisors_are_no_finding() {
        let hidden = Tree::new().node(0, "0-3", 4).hidden(&format!("{POLICY}/scaling_governor"));
        assert!(not_seen(&hidden, 22).starts_with(&format!("{POLICY}/scaling_governor: ")));
        not_here(&Tree::new().node(0, "0-1", 4).virtual_machine(), 22);
        not_here(&Tree::new().hidden("/sys/devices/system/cpu/cpufreq"), 22);
    }

    /// Each CPU may fall into C6, which takes so many microseconds to leave.
    fn sleepy(latency: u64, usage: u64) -> Tree {
        let tree = Tree::new().node(0, "0-1", 32).pci(NIC, 0x020000, 0).nic("ens1", NIC, 25_000);
        (0..2).fold(tree.interrupt(40, NIC, "ens1-rx-0", "1", &[0, 500]), |tree, cpu| {
            let state = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state3");
            tree.file(&format!("{state}/name"), "C6")
                .file(&format!("{state}/latency"), &latency.to_string())
                .file(&format!("{state}/usage"), &usage.to_string())
                .file(&format!("{state}/disable"), "0")
        })
    }

    #[test]
    fn a_deep_sleep_of_a_cpu_that_takes_interrupts_is_told() {
        let finding = one(&sleepy(133, 900), 23);
        assert!(
            text(&finding).starts_with("1 CPUs that take interrupts of fast devices fall into C6, and need 133 µs")
        );
        assert_eq!(writes(&finding), ["/sys/devices/system/cpu/cpu1/cpuidle/state3/disable=1"]);
        assert_eq!((finding.severity, finding.confidence), (Severity::Note, Confidence::Computed));
    }

    #[test]
    fn a_sleep_that_is_short_unused_forbidden_or_ruled_out_by_a_request_is_not_told() {
        assert_eq!(fine(&sleepy(40, 900), 23), "CPU sleep: the deepest state in use, C6, takes 40 µs to leave.");
        fine(&sleepy(133, 0), 23);
        not_here(&sleepy(133, 900).file("/sys/devices/system/cpu/cpu1/cpuidle/state3/disable", "1"), 23);
        not_here(&sleepy(133, 900).bytes("/dev/cpu_dma_latency", &0i32.to_le_bytes()), 23);
        let asked = sleepy(133, 900).bytes("/dev/cpu_dma_latency", &200i32.to_le_bytes());
        assert_eq!(one(&asked, 23).confidence, Confidence::Certain);
    }

    #[test]
    fn sleeps_are_of_no_interest_without_a_fast_device_and_unknown_where_hidden() {
        not_here(&Tree::new().node(0, "0-1", 4).virtual_machine(), 23);
        not_here(&Tree::new().node(0, "0-1", 4).pci(NIC, 0x020000, 0).nic("eno1", NIC, 1000), 23);
        let no_states = Tree::new().node(0, "0-1", 4).pci(NIC, 0x020000, 0).nic("ens1", NIC, 25_000);
        not_here(&no_states.hidden("/sys/devices/system/cpu/cpu0/cpuidle/state1/latency"), 23);
    }

    const THROTTLED: &str = "/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";

    #[test]
    fn a_count_of_throttling_that_grows_is_told_and_one_that_stands_is_not() {
        let tree = |before: &str| Tree::new().file(THROTTLED, "12").earlier(THROTTLED, before);
        let finding = one(&tree("7"), 24);
        assert_eq!(text(&finding), "CPUs were slowed down for heat 5 times within 60.0 s.");
        assert_eq!(finding.evidence, [Evidence::new(THROTTLED, 12)]);
        assert_eq!(fine(&tree("12"), 24), "Heat: no CPU is being slowed down now (12 times since boot).");
    }

    fn drive(kind: &str, now: &str, max: &str) -> Tree {
        Tree::new()
            .file("/sys/class/hwmon/hwmon0/name", kind)
            .file("/sys/class/hwmon/hwmon0/temp1_input", now)
            .file("/sys/class/hwmon/hwmon0/temp1_max", max)
            .file("/sys/class/nvme/nvme0/model", "SSD")
            .link("/sys/class/hwmon/hwmon0/device", "../../nvme/nvme0")
    }

    #[test]
    fn a_drive_at_its_limit_or_nearly_is_told() {
        let hot = one(&drive("nvme", "81850", "79850"), 24);
        assert!(text(&hot).starts_with("nvme0 is at 81 °C"), "{}", text(&hot));
        assert_eq!((hot.id.as_str(), hot.severity), ("heat/nvme0", Severity::Warning));
        assert_eq!(one(&drive("nvme", "78000", "80000"), 24).severity, Severity::Note);
        assert!(fine(&drive("nvme", "40000", "80000"), 24).contains("nvme0 is nearest to its limit with 40 of 80 °C"));
    }

    #[test]
    fn sensors_without_a_limit_of_others_or_hidden_are_no_finding() {
        not_here(&drive("nvme", "81850", "65261850"), 24);
        not_here(&drive("drivetemp", "61000", "60000"), 24);
        not_here(&Tree::new().node(0, "0-1", 4).virtual_machine(), 24);
        let hidden =
            Tree::new().file("/sys/class/hwmon/hwmon0/name", "nvme").hidden("/sys/class/hwmon/hwmon0/temp1_input");
        assert!(not_seen(&hidden, 24).starts_with("/sys/class/hwmon/hwmon0/temp1_input: "));
    }

    /// Four CPUs that did nothing but rest, but for what the first did: in programs and in softirqs, of 1000 ticks.
    fn loaded(user: u64, soft: u64) -> Tree {
        let text = |user: u64, soft: u64, idle: u64| {
            let first = format!("cpu0 {user} 0 0 {} 0 0 {soft} 0 0 0\n", idle.saturating_sub(user + soft));
            (1..4).fold(format!("cpu  0\n{first}"), |text, cpu| format!("{text}cpu{cpu} 0 0 0 {idle} 0 0 0 0 0 0\n"))
        };
        Tree::new().node(0, "0-3", 8).file("/proc/stat", &text(user, soft, 1000)).earlier("/proc/stat", &text(0, 0, 0))
    }

    #[test]
    fn one_core_full_of_interrupts_is_told_and_a_single_queue_is_shared_by_rps() {
        let tree = loaded(60, 910)
            .pci(NIC, 0x020000, 0)
            .nic("ens1", NIC, 10_000)
            .interrupt(40, NIC, "ens1", "0", &[90_000])
            .file("/sys/class/net/ens1/queues/rx-0/rps_cpus", "0");
        let finding = one(&tree, 25);
        assert!(text(&finding).starts_with("CPU 0 is 97 % busy, 91 % with interrupts, while the others have 0 %"));
        assert_eq!(writes(&finding), ["/sys/class/net/ens1/queues/rx-0/rps_cpus=0000000f"]);
        let two = tree.interrupt(41, NIC, "ens1-rx-1", "0", &[80_000]);
        assert_eq!(writes(&one(&two, 25)), ["/proc/irq/40/smp_affinity_list=0", "/proc/irq/41/smp_affinity_list=1"]);
    }

    #[test]
    fn cpus_that_are_all_full_are_told_unless_what_fills_them_gives_way() {
        let text = |user: u64, nice: u64| {
            format!("cpu  1 2 3\ncpu0 {user} {nice} 0 0 0 0 0 0 0 0\ncpu1 {user} {nice} 0 0 0 0 0 0 0 0\n")
        };
        let tree = |user, nice| Tree::new().file("/proc/stat", &text(user, nice)).earlier("/proc/stat", &text(0, 0));
        let finding = one(&tree(99, 1), 25);
        assert!(super::super::expect::text(&finding).starts_with("All 2 CPUs are busy: 99 % (median)"));
        assert_eq!(finding.evidence, [Evidence::new("/proc/stat", "cpu  1 2 3")]);
        assert!(fine(&tree(10, 90), 25).contains("is the busiest with 10 %"));
    }

    #[test]
    fn a_program_that_computes_on_one_core_is_not_told_and_a_servers_kernel_thread_is() {
        assert!(fine(&loaded(1000, 0), 25).starts_with("Load: CPU 0 is the busiest with 100 %, the others have 0 %"));
        let target = with_process(loaded(1000, 0), 9, "iscsi_ttx", "", &[(0, 5000)]);
        let finding = one(&target, 25);
        assert!(text(&finding).contains("by a thread of iscsi_ttx"));
        assert_eq!(finding.confidence, Confidence::Likely);
        let elsewhere = with_process(loaded(1000, 0), 9, "iscsi_ttx", "", &[(1, 5000)]);
        fine(&elsewhere, 25);
    }

    #[test]
    fn dropped_packets_and_rounds_cut_short_are_told_when_they_grow() {
        let file = "/proc/net/softnet_stat";
        let tree = |drops: &str, squeezes: &str| {
            let counts = format!("ff {drops} {squeezes}\n");
            loaded(0, 0)
                .file(file, &counts)
                .earlier(file, "00 00 00\n")
                .file("/proc/sys/net/core/netdev_max_backlog", "1000")
        };
        let finding = one(&tree("0a", "00"), 25);
        assert!(text(&finding).starts_with("The kernel dropped 10 received packets within 60.0 s"));
        assert_eq!(writes(&finding), ["/proc/sys/net/core/netdev_max_backlog=2000"]);
        assert!(text(&one(&tree("00", "1000"), 25)).contains("68 times a second"));
        fine(&tree("00", "10"), 25);
    }

    #[test]
    fn loads_need_two_looks_and_more_cpus_than_one() {
        let once = Tree::new().node(0, "0-3", 8).file("/proc/stat", "cpu  0\ncpu0 1 0 0 1 0 0 0 0 0 0\n");
        assert_eq!(not_seen(&once, 25), "/proc/stat");
        assert!(not_seen(&Tree::new().hidden("/proc/stat"), 25).starts_with("/proc/stat: "));
        not_here(&Tree::new(), 25);
        let alone = "cpu  0\ncpu0 9 0 0 1 0 0 0 0 0 0\n";
        not_here(&Tree::new().file("/proc/stat", alone).earlier("/proc/stat", "cpu0 0 0 0 0 0 0 0 0 0 0\n"), 25);
    }
}
