//! Check 58: limits of control groups (cgroup v2) that hold the data path's servers back.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::processes::{Server, servers};
use super::{disks, growth};
use crate::show;
use forebay_host::system::System;
use std::collections::{BTreeMap, BTreeSet};

const CHECK: u8 = 58;
/// Processes of a server whose group is asked for; those of one server share a few.
const PROCESSES_MAX: usize = 4096;
/// A group below so many others; deeper ones are not what service managers make.
const DEPTH_MAX: usize = 16;
/// Groups that are looked at: of a hundred virtual machines, each with those above it.
const GROUPS_MAX: usize = 512;
/// A group that was stopped in so much of its periods is held back, and did not only end one of them early.
const STOPPED: f64 = 0.10;
/// Of its limit; a group's page cache grows up to it by itself.
const NEARLY_ALL: f64 = 0.95;
/// Counters of a group that are compared with what they were.
const COUNTERS: [&str; 2] = ["cpu.stat", "memory.events.local"];

/// Folders of control groups that programs other than systemd make, or that it makes anew for each login.
const NOT_OF_UNITS: [&str; 6] = ["user@", "user-", "kubepods", "docker", "cri-", "libpod-"];

/// Groups that bound servers, and whether these are all.
struct Groups {
    /// Folders below `/sys`, with the name of a server that each bounds.
    servers: BTreeMap<String, String>,
    whole: bool,
}

/// Groups that bound servers, with the name of one that each bounds: a server's own, and all above it. Folders below `/sys`.
fn groups(system: &System, servers: &[Server]) -> Groups {
    // Where both versions are in use, the second has a folder of its own.
    let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let Some(root) = root.into_iter().find(|root| system.has(&format!("{root}/cgroup.controllers"))) else {
        return Groups { servers: BTreeMap::new(), whole: true };
    };
    let (mut groups, mut whole, mut paths) = (BTreeMap::new(), true, BTreeSet::new());
    for server in servers {
        whole &= server.pids.len() <= PROCESSES_MAX;
        for pid in server.pids.iter().take(PROCESSES_MAX) {
            let text = system.text(&format!("/proc/{pid}/cgroup")).known().unwrap_or_default();
            let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::")) else { continue };
            if !paths.insert(path.to_owned()) {
                continue;
            }
            // Outside of what this process sees: `/../other`.
            if path.split('/').any(|part| part == "..") {
                continue;
            }
            let own = format!("{root}{}", path.trim_end_matches('/'));
            let above = std::iter::successors(Some(own.as_str()), |group| {
                group.rsplit_once('/').map(|(above, _)| above).filter(|above| above.len() >= root.len())
            });
            for (depth, group) in above.enumerate() {
                if depth == DEPTH_MAX || groups.len() == GROUPS_MAX && !groups.contains_key(group) {
                    whole = false;
                    break;
                }
                groups.entry(group.to_owned()).or_insert_with(|| server.name.clone());
            }
        }
    }
    Groups { servers: groups, whole }
}

/// The files that count how often limits were reached.
pub fn counted(system: &System) -> Vec<String> {
    let groups = groups(system, &servers(system).known().unwrap_or_default());
    groups.servers.keys().flat_map(|group| COUNTERS.map(|file| format!("{group}/{file}"))).collect()
}

/// One group, and a server that it bounds.
struct Group<'a> {
    host: &'a Host,
    folder: &'a str,
    server: &'a str,
}

/// Check 58. Reads the limits of the servers' groups, and how often they were reached between the looks.
pub fn limits(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let servers = gathered.see(servers(&host.system)).unwrap_or_default();
    let (mut looked, mut names) = (0, Vec::new());
    let groups = groups(&host.system, &servers);
    if !groups.whole {
        gathered.hide("/sys/fs/cgroup".to_owned(), Sentence::new("mounts.more"));
    }
    for (folder, server) in &groups.servers {
        let group = Group { host, folder, server };
        let seen = [group.memory(&mut gathered), group.cpu(&mut gathered), group.disks(&mut gathered)];
        if seen.contains(&true) {
            looked += 1;
            if !names.contains(server) {
                names.push(server.clone());
            }
        }
    }
    if looked > 0 {
        gathered.fine(Sentence::new("cgroup.fine").with("servers", show::names(&names)).with("groups", looked));
    }
    gathered.verdict()
}

impl Group<'_> {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// What the host's systemd calls it, where that made the group, and the name may stand in a command.
    fn unit(&self) -> Option<&str> {
        let path = self.folder.strip_prefix("/sys/fs/cgroup")?;
        let path = path.strip_prefix("/unified").unwrap_or(path).strip_prefix('/')?;
        if path.split('/').any(|part| NOT_OF_UNITS.iter().any(|other| part.starts_with(other))) {
            return None;
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        if !above.is_empty() && !above.split('/').all(|part| part.ends_with(".slice")) {
            return None;
        }
        let is_unit = [".service", ".slice", ".scope"].iter().any(|end| name.ends_with(end));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@:\\-".contains(&byte);
        (is_unit && name.bytes().all(plain)).then_some(name)
    }

    fn finding(&self, word: &str, severity: Severity, text: Sentence, evidence: Vec<Evidence>, set: &str) -> Finding {
        let name = self.folder.trim_start_matches("/sys/fs/cgroup").trim_start_matches('/');
        let name = if name.is_empty() { "root" } else { name };
        let command = self.unit().filter(|_| !set.is_empty());
        Finding {
            id: format!("cgroup-limit/{name}/{word}"),
            check: CHECK,
            severity,
            confidence: Confidence::Certain,
            text: text.with("server", self.server).with("group", name),
            evidence,
            number: None,
            remedies: vec![Remedy::Explain {
                what: Sentence::new("cgroup.help"),
                command: command.map(|unit| format!("systemctl set-property '{unit}' {set}")),
            }],
        }
    }

    /// Whether there is a file of limits of memory.
    fn memory(&self, gathered: &mut Gathered) -> bool {
        let (mut seen, mut limited) = (false, false);
        let path = self.file("memory.events.local");
        let grown = growth::grown(self.host, &path);
        for (file, event, key, set) in [
            ("memory.max", "max", "cgroup.memory", "MemoryMax=infinity"),
            ("memory.high", "high", "cgroup.memory-high", "MemoryHigh=infinity"),
        ] {
            let limit_path = self.file(file);
            let Some(text) = gathered.see(self.host.system.text(&limit_path)) else { continue };
            seen = true;
            let Ok(limit) = text.trim().parse::<u64>() else { continue };
            limited = true;
            let Some((grown, seconds)) = &grown else {
                let is_there = self.host.system.has(&path);
                let how = if is_there { "cpu.second-look" } else { "cgroup.old-kernel" };
                gathered.hide(path.clone(), Sentence::new(how));
                continue;
            };
            let limit_evidence = Evidence::new(&limit_path, limit);
            match grown.get(event).copied().unwrap_or(0) {
                0 if event == "max" => self.nearly_all(limit, limit_evidence, gathered),
                0 => {}
                times => {
                    let text = Sentence::new(key).with("limit", show::bytes(limit as f64)).with("times", times);
                    let shown = Evidence::new(&path, format!("{event}: +{times} in {seconds:.1} s"));
                    gathered.find(self.finding(file, Severity::Warning, text, vec![shown, limit_evidence], set));
                }
            }
        }
        // Without a limit of its own the host's memory was short, or that of a group above.
        let killed = grown.as_ref().filter(|_| limited).and_then(|(grown, _)| grown.get("oom_kill").copied());
        if let Some(killed) = killed.filter(|killed| *killed > 0) {
            let text = Sentence::new("cgroup.killed").with("killed", killed);
            let evidence = vec![Evidence::new(&path, format!("oom_kill: +{killed}"))];
            gathered.find(self.finding("oom", Severity::Note, text, evidence, ""));
        }
        seen
    }

    /// A group whose page cache can grow no more, on a host with room for it.
    fn nearly_all(&self, limit: u64, shown: Evidence, gathered: &mut Gathered) {
        let path = self.file("memory.current");
        let Some(current) = gathered.see(self.host.system.number::<u64>(&path)) else { return };
        let Some(available) = gathered.see(disks::dirty::memory(&self.host.system, "MemAvailable")) else { return };
        if (current as f64) < limit as f64 * NEARLY_ALL || available < limit / 2 {
            return;
        }
        let text = Sentence::new("cgroup.memory-near")
            .with("limit", show::bytes(limit as f64))
            .with("current", show::bytes(current as f64))
            .with("available", show::bytes(available as f64));
        let evidence = vec![Evidence::new(path, current), shown];
        gathered.find(self.finding("memory.current", Severity::Note, text, evidence, "MemoryMax=infinity"));
    }

    /// Whether there is a file of a limit of CPU time.
    fn cpu(&self, gathered: &mut Gathered) -> bool {
        let limit_path = self.file("cpu.max");
        let Some(limit) = gathered.see(self.host.system.text(&limit_path)) else { return false };
        if limit.split(' ').next().is_none_or(|quota| quota.parse::<u64>().is_err()) {
            return true;
        }
        let path = self.file("cpu.stat");
        let Some((grown, _)) = growth::grown(self.host, &path) else {
            gathered.hide(path, Sentence::new("cpu.second-look"));
            return true;
        };
        let of = |name: &str| grown.get(name).copied().unwrap_or(0);
        let (stopped, periods) = (of("nr_throttled"), of("nr_periods"));
        let share = (stopped as f64 / periods.max(1) as f64).min(1.0);
        if stopped > 0 && share >= STOPPED {
            let text = Sentence::new("cgroup.cpu").with("stopped", stopped).with("periods", periods);
            let evidence = vec![
                Evidence::new(&path, format!("nr_throttled: +{stopped}, nr_periods: +{periods}")),
                Evidence::new(&limit_path, &limit),
            ];
            let found = self.finding("cpu.max", Severity::Warning, text, evidence, "CPUQuota=");
            gathered.find(Finding { number: Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() }), ..found });
        }
        true
    }

    /// Whether there is a file of limits of disks.
    fn disks(&self, gathered: &mut Gathered) -> bool {
        /// Lines that are told of; a host has a few disks that are limited.
        const LINES_MAX: usize = 64;
        let path = self.file("io.max");
        let Some(text) = gathered.see(self.host.system.text(&path)) else { return false };
        if text.lines().nth(LINES_MAX).is_some() {
            gathered.hide(path.clone(), Sentence::new("mounts.more"));
        }
        for line in text.lines().take(LINES_MAX) {
            let mut words = line.split_whitespace();
            let Some(number) = words.next() else { continue };
            let set: Vec<&str> = words.filter(|word| !word.ends_with("=max")).collect();
            if set.is_empty() {
                continue;
            }
            let real = self.host.system.real(&format!("/sys/dev/block/{number}")).known();
            let disk = real.as_deref().and_then(|real| real.rsplit('/').next()).unwrap_or(number);
            let text = Sentence::new("cgroup.disk").with("disk", disk).with("limits", set.join(", "));
            let evidence = vec![Evidence::new(&path, line)];
            gathered.find(self.finding(&format!("io.max/{number}"), Severity::Note, text, evidence, ""));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect::{command, fine, not_here, not_seen, one, text};
    use super::super::processes::with_process;
    use super::*;
    use crate::fixture::Tree;

    const GROUP: &str = "/sys/fs/cgroup/system.slice/smbd.service";

    fn served() -> Tree {
        with_process(Tree::new(), 7, "smbd", "smbd\0-F", &[(0, 1)])
            .file("/proc/7/cgroup", "1:name=systemd:/\n0::/system.slice/smbd.service\n")
            .file("/sys/fs/cgroup/cgroup.controllers", "cpu io memory")
            .file("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n")
    }

    fn with(tree: Tree, name: &str, text: &str) -> Tree {
        tree.file(&format!("{GROUP}/{name}"), text)
    }

    fn grows(tree: Tree, name: &str, before: &str, now: &str) -> Tree {
        with(tree, name, now).earlier(&format!("{GROUP}/{name}"), before)
    }

    #[test]
    fn a_limit_of_memory_that_was_reached_is_told_with_the_command() {
        let limited = |now: &str| {
            let tree = with(with(served(), "memory.max", "1073741824"), "memory.current", "900");
            grows(tree, "memory.events.local", "high 0\nmax 5\noom_kill 0\n", now)
        };
        let finding = one(&limited("high 0\nmax 25\noom_kill 0\n"), 58);
        assert_eq!(finding.id, "cgroup-limit/system.slice/smbd.service/memory.max");
        assert!(text(&finding).contains("20 times") && text(&finding).contains("1.1 GB"), "{}", text(&finding));
        assert_eq!(command(&finding), "systemctl set-property 'smbd.service' MemoryMax=infinity");
        assert!(fine(&limited("high 0\nmax 5\noom_kill 0\n").virtual_machine(), 58).contains("smbd"));
        let killed = one(&limited("high 0\nmax 5\noom_kill 2\n"), 58);
        assert_eq!(killed.id, "cgroup-limit/system.slice/smbd.service/oom");
        let before = grows(with(served(), "memory.max", "9"), "memory.events.local", "oom_kill 2\n", "oom_kill 2\n");
        fine(&with(before, "memory.current", "1"), 58);
        let of_host = grows(with(served(), "memory.max", "max"), "memory.events.local", "oom_kill 0\n", "oom_kill 2\n");
        fine(&of_host, 58);
        let high = grows(with(served(), "memory.high", "4096"), "memory.events.local", "high 0\n", "high 3\n");
        assert_eq!(one(&high, 58).text.key, "cgroup.memory-high");
    }

    #[test]
    fn a_full_group_on_a_host_with_room_is_told_and_on_a_full_host_is_not() {
        let full = with(with(served(), "memory.max", "1073741824"), "memory.current", "1073000000");
        let full = grows(full, "memory.events.local", "max 5\n", "max 5\n");
        let finding = one(&full, 58);
        assert_eq!((finding.text.key.as_str(), finding.severity), ("cgroup.memory-near", Severity::Note));
        fine(&full.file("/proc/meminfo", "MemAvailable: 1024 kB\n"), 58);
    }

    #[test]
    fn a_group_that_was_stopped_for_its_share_of_cpu_is_told_also_where_one_above_it_has_the_limit() {
        let above = "/sys/fs/cgroup/system.slice";
        let tree = |stopped: u64| {
            served()
                .file(&format!("{above}/cpu.max"), "50000 100000")
                .file(&format!("{above}/cpu.stat"), &format!("usage_usec 9\nnr_periods 110\nnr_throttled {stopped}\n"))
                .earlier(&format!("{above}/cpu.stat"), "usage_usec 1\nnr_periods 100\nnr_throttled 4\n")
        };
        let finding = one(&tree(11), 58);
        assert!(text(&finding).contains("7 of 10 periods"), "{}", text(&finding));
        assert_eq!(command(&finding), "systemctl set-property 'system.slice' CPUQuota=");
        fine(&tree(4), 58);
        fine(&with(served(), "cpu.max", "max 100000"), 58);
    }

    /// A server in a group that is stopped for its share of CPU.
    fn stopped_in(group: &str) -> Tree {
        let folder = format!("/sys/fs/cgroup{group}");
        served()
            .file("/proc/7/cgroup", &format!("0::{group}\n"))
            .file(&format!("{folder}/cpu.max"), "1 2")
            .file(&format!("{folder}/cpu.stat"), "nr_periods 9\nnr_throttled 9\n")
            .earlier(&format!("{folder}/cpu.stat"), "nr_periods 0\nnr_throttled 0\n")
    }

    #[test]
    fn a_command_is_shown_for_units_of_the_hosts_systemd_alone() {
        let of = |group: &str| match one(&stopped_in(group), 58).remedies.remove(0) {
            Remedy::Explain { command, .. } => command,
            other => panic!("{other:?}"),
        };
        for (group, unit) in [
            ("/system.slice/a.slice/x.service", Some("x.service")),
            ("/x.scope", Some("x.scope")),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", None),
            ("/user.slice/user-1000.slice", None),
            ("/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope", None),
            ("/system.slice/docker-1.scope", None),
            ("/lxc/7/system.slice/x.service", None),
            ("/machine.slice/machine-1.scope/libvirt", None),
        ] {
            let expected = unit.map(|unit| format!("systemctl set-property '{unit}' CPUQuota="));
            assert_eq!(of(group), expected, "{group}");
        }
    }

    #[test]
    fn groups_beyond_those_that_are_looked_at_are_not_fine() {
        let group = "/a".repeat(20);
        let deep = served().file("/proc/7/cgroup", &format!("0::{group}\n"));
        assert_eq!(not_seen(&deep.file(&format!("/sys/fs/cgroup{group}/cpu.max"), "max 1"), 58), "/sys/fs/cgroup");
    }

    #[test]
    fn limits_of_disks_are_told_by_name() {
        let limited = |line: &str| with(served(), "io.max", line);
        let tree = limited("8:0 rbps=max wbps=1048576 riops=max wiops=max\n").file("/sys/block/sda/size", "9");
        let finding = one(&tree.link("/sys/dev/block/8:0", "../../block/sda"), 58);
        assert!(text(&finding).contains("sda") && text(&finding).contains("wbps=1048576"), "{}", text(&finding));
        fine(&limited("8:0 rbps=max wbps=max riops=max wiops=max\n"), 58);
    }

    #[test]
    fn groups_that_are_hidden_absent_or_seen_once_are_no_finding() {
        not_here(&Tree::new(), 58);
        not_here(&served(), 58);
        not_here(&served().file("/proc/7/cgroup", "0::/../other\n"), 58);
        assert!(not_seen(&served().hidden(&format!("{GROUP}/memory.max")), 58).contains("memory.max: "));
        assert!(not_seen(&Tree::new().hidden("/proc/7/comm"), 58).contains("/proc/7/comm"));
        let once = with(with(served(), "cpu.max", "1 2"), "cpu.stat", "nr_throttled 5\n");
        assert!(not_seen(&once, 58).ends_with("cpu.stat"));
        let old = with(served(), "memory.max", "4096");
        assert!(not_seen(&old, 58).ends_with("memory.events.local"));
        // A name that would be more than a name in a shell is in no command.
        let tree = stopped_in("/a';b.service");
        assert_eq!(one(&tree, 58).remedies, [Remedy::Explain { what: Sentence::new("cgroup.help"), command: None }]);
    }
}
