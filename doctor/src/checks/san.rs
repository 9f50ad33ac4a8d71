//! Checks 65 and 66: several paths to one disk, and the links of a storage network (iSCSI, Fibre Channel).

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::{Check, growth};
use crate::interfaces::hardware;
use crate::show;
use forebay_host::system::Seen;
use std::collections::{BTreeMap, BTreeSet};

/// Checks 65 and 66, in the order of their numbers.
pub const CHECKS: &[Check] =
    &[Check { number: 65, word: "multipath", look: multipath }, Check { number: 66, word: "san-link", look: links }];

/// Disks, sessions or ports that are looked at.
const LOOKED_MAX: usize = 1024;
/// Bytes a second of a disk, from which it shows how they are spread over its paths.
const BUSY: f64 = 10e6;
/// A path that carries as much of them carries them alone.
const ALONE: f64 = 0.95;

/// What can be lost or gained on the way to a disk.
struct Said {
    id: String,
    severity: Severity,
    confidence: Confidence,
    text: Sentence,
    evidence: Vec<Evidence>,
    help: &'static str,
    command: Option<String>,
}

fn find(gathered: &mut Gathered, check: u8, said: Said) {
    gathered.find(Finding {
        id: said.id,
        check,
        severity: said.severity,
        confidence: said.confidence,
        text: said.text,
        evidence: said.evidence,
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new(said.help), command: said.command }],
    });
}

/// One way to a disk.
struct Path {
    name: String,
    /// The file that says in which state it is.
    file: String,
    state: String,
    /// What the storage says of it: `active/optimized`, `optimized`, and the file; none where it says nothing.
    access: Option<Evidence>,
}

/// Words of the storage for a path that it serves nothing by, of SCSI (ALUA) and of NVMe (ANA).
const NOT_SERVED: [&str; 4] = ["unavailable", "offline", "inaccessible", "persistent-loss"];
/// The name of a subsystem that has no disks, and tells of others that have.
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Words of the kernel for a path that carries nothing, of SCSI and of NVMe. Others, such as `quiesce`, are over in a moment.
const DOWN: [&str; 8] = [
    "offline",
    "transport-offline",
    "blocked",
    "created-blocked",
    "connecting",
    "dead",
    "deleting",
    "deleting (no IO)",
];

impl Path {
    fn is_up(&self) -> bool {
        ["running", "live"].contains(&self.state.as_str()) && !self.is_refused()
    }

    /// The storage serves nothing by it.
    fn is_refused(&self) -> bool {
        self.access.as_ref().is_some_and(|access| NOT_SERVED.contains(&access.value.as_str()))
    }

    /// What shows that it carries nothing.
    fn shown(&self) -> Evidence {
        let refused = self.access.clone().filter(|_| !self.is_down());
        refused.unwrap_or_else(|| Evidence::new(&self.file, &self.state))
    }

    fn is_down(&self) -> bool {
        DOWN.contains(&self.state.as_str())
    }

    fn is_best(&self) -> bool {
        self.is_up() && self.access.as_ref().is_some_and(|access| access.value.rsplit('/').next() == Some("optimized"))
    }
}

// Check 65. Reads the paths of disks that have several: those of dm-multipath, and controllers of NVMe subsystems. Rules: a path is
// down; there is one path alone; one carries what another, as good by the storage's own word, could share.
fn multipath(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let mut counts = (0, 0);
    let names = gathered.see(host.system.list("/sys/block")).unwrap_or_default();
    for disk in names.iter().filter(|name| name.starts_with("dm-")).take(LOOKED_MAX) {
        let uuid = gathered.see(host.system.text(&format!("/sys/block/{disk}/dm/uuid"))).unwrap_or_default();
        if !uuid.starts_with("mpath-") {
            continue;
        }
        let (paths, whole) = scsi_paths(host, disk, &mut gathered);
        // Disks of this host that multipathd has taken as well have one path for good.
        let real = |path: &Path| host.system.real(&format!("/sys/block/{}", path.name)).known().unwrap_or_default();
        let is_far = paths.iter().map(real).any(|real| real.contains("/session") || real.contains("/rport-"));
        judge(&mut gathered, disk, &paths, whole && is_far);
        uneven(host, &mut gathered, disk, &paths);
        counts = (counts.0 + 1, counts.1 + paths.len());
    }
    for subsystem in gathered.see(host.system.list("/sys/class/nvme-subsystem")).unwrap_or_default() {
        let folder = format!("/sys/class/nvme-subsystem/{subsystem}");
        let says =
            |file: &str, word: &str| host.system.text(&format!("{folder}/{file}")).known().as_deref() == Some(word);
        if says("subsystype", "discovery") || says("subsysnqn", DISCOVERY) {
            continue;
        }
        let (paths, whole) = nvme_paths(host, &folder, &mut gathered);
        if paths.is_empty() {
            continue;
        }
        judge(&mut gathered, &subsystem, &paths, whole);
        one_policy(host, &mut gathered, &subsystem, &paths);
        counts = (counts.0 + 1, counts.1 + paths.len());
    }
    if counts.0 > 0 {
        gathered.fine(Sentence::new("san.paths-fine").with("disks", counts.0).with("paths", counts.1));
    }
    gathered.verdict()
}

/// The paths whose state is shown, and whether these are all.
fn scsi_paths(host: &Host, disk: &str, gathered: &mut Gathered) -> (Vec<Path>, bool) {
    let slaves = gathered.see(host.system.list(&format!("/sys/block/{disk}/slaves"))).unwrap_or_default();
    let (mut paths, all) = (Vec::new(), slaves.len());
    for name in slaves.into_iter().take(LOOKED_MAX) {
        let file = format!("/sys/block/{name}/device/state");
        let Some(state) = gathered.see(host.system.text(&file)) else { continue };
        let access_file = format!("/sys/block/{name}/device/access_state");
        let access = host.system.text(&access_file).known().map(|access| Evidence::new(access_file, access));
        paths.push(Path { name, file, state, access });
    }
    let whole = paths.len() == all;
    (paths, whole)
}

/// Controllers of a subsystem that is at another host, or has several controllers; and whether these are all.
fn nvme_paths(host: &Host, folder: &str, gathered: &mut Gathered) -> (Vec<Path>, bool) {
    let is_controller = |name: &String| name.strip_prefix("nvme").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let names = gathered.see(host.system.list(folder)).unwrap_or_default();
    let (mut paths, mut far, mut all) = (Vec::new(), false, 0);
    for name in names.into_iter().filter(is_controller).take(LOOKED_MAX) {
        all += 1;
        let transport = host.system.text(&format!("{folder}/{name}/transport")).known().unwrap_or_default();
        far |= ["tcp", "rdma", "fc"].contains(&transport.as_str());
        let file = format!("{folder}/{name}/state");
        let Some(state) = gathered.see(host.system.text(&file)) else { continue };
        // `nvme0c1n1`: the first name space, as it is seen by this controller.
        let below = host.system.list(&format!("{folder}/{name}")).known().unwrap_or_default();
        let seen =
            below.into_iter().find(|below| below.starts_with("nvme") && below.contains('c') && below.contains('n'));
        let access_file = seen.map(|seen| format!("{folder}/{name}/{seen}/ana_state"));
        let access = access_file.and_then(|file| Some(Evidence::new(&file, host.system.text(&file).known()?)));
        paths.push(Path { name, file, state, access });
    }
    let whole = paths.len() == all;
    if far || all > 1 { (paths, whole) } else { (Vec::new(), whole) }
}

/// `may_have_more`: these are all paths of a disk that may have several.
fn judge(gathered: &mut Gathered, disk: &str, paths: &[Path], may_have_more: bool) {
    let up = paths.iter().filter(|path| path.is_up()).count();
    // Beside others that it serves by, storage may well keep some for later.
    let down: Vec<&Path> = paths.iter().filter(|path| path.is_down() || up == 0 && path.is_refused()).collect();
    let names: Vec<&str> = down.iter().map(|path| path.name.as_str()).collect();
    let said = if !down.is_empty() {
        Said {
            id: format!("multipath/{disk}/down"),
            severity: if up == 0 { Severity::Error } else { Severity::Warning },
            confidence: Confidence::Certain,
            text: Sentence::new("san.paths-down")
                .with("disk", disk)
                .with("paths", show::names(&names))
                .with("up", up)
                .with("all", paths.len()),
            evidence: down.iter().take(4).map(|path| path.shown()).collect(),
            help: "san.paths-help",
            command: None,
        }
    } else if let Some(only) = paths.first().filter(|_| may_have_more && paths.len() == 1) {
        Said {
            id: format!("multipath/{disk}/one"),
            severity: Severity::Note,
            confidence: Confidence::Certain,
            text: Sentence::new("san.one-path").with("disk", disk).with("path", &only.name),
            evidence: vec![Evidence::new(&only.file, &only.state)],
            help: "san.one-path-help",
            command: None,
        }
    } else {
        return;
    };
    find(gathered, 65, said);
}

/// Bytes of a disk that went by one of several paths that are equally good.
fn uneven(host: &Host, gathered: &mut Gathered, disk: &str, paths: &[Path]) {
    let Some(work) = growth::disks(host) else { return };
    let best: Vec<(&str, f64)> = paths
        .iter()
        .filter(|path| path.is_best())
        .filter_map(|path| Some((path.name.as_str(), work.get(&path.name)?.bytes)))
        .collect();
    let all: f64 = best.iter().map(|(_, bytes)| bytes).sum();
    let Some((busiest, most)) = best.iter().copied().max_by(|(_, a), (_, b)| a.total_cmp(b)) else { return };
    if best.len() < 2 || all < BUSY || most < all * ALONE {
        return;
    }
    let others: Vec<&str> = best.iter().map(|(name, _)| *name).filter(|name| *name != busiest).collect();
    let text = Sentence::new("san.uneven")
        .with("disk", disk)
        .with("path", busiest)
        .with("share", show::percent(most / all))
        .with("speed", show::bytes(all))
        .with("others", show::names(&others));
    gathered.find(Finding {
        id: format!("multipath/{disk}/uneven"),
        check: 65,
        severity: Severity::Note,
        confidence: Confidence::Computed,
        text,
        evidence: best
            .iter()
            .take(4)
            .map(|(name, bytes)| Evidence::new("/proc/diskstats", format!("{name} {}/s", show::bytes(*bytes))))
            .collect(),
        number: Some(Number { is: most, could_be: all / best.len() as f64, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new("san.uneven-help"), command: None }],
    });
}

/// NVMe's own choice of paths, which takes the nearest of several that are equally good, and leaves the others idle.
fn one_policy(host: &Host, gathered: &mut Gathered, subsystem: &str, paths: &[Path]) {
    let file = format!("/sys/class/nvme-subsystem/{subsystem}/iopolicy");
    let best: Vec<&str> = paths.iter().filter(|path| path.is_best()).map(|path| path.name.as_str()).collect();
    if best.len() < 2 || host.system.text(&file).known().as_deref() != Some("numa") {
        return;
    }
    let said = Said {
        id: format!("multipath/{subsystem}/policy"),
        severity: Severity::Note,
        confidence: Confidence::Likely,
        text: Sentence::new("san.policy").with("disk", subsystem).with("paths", show::names(&best)),
        evidence: vec![Evidence::new(&file, "numa")],
        help: "san.policy-help",
        command: subsystem
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            .then(|| format!("echo round-robin > {file}")),
    };
    find(gathered, 65, said);
}

// Check 66. Reads sessions of iSCSI and ports of Fibre Channel. Rules: a session is not logged in; all sessions of a target go to one of
// its portals; a target has one session, while the host has several lines; a port is down beside one that is up; a port is slower
// than it can be.
fn links(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let sessions = sessions(host, &mut gathered);
    let ports = ports(host, &mut gathered);
    if sessions + ports > 0 {
        gathered.fine(Sentence::new("san.links-fine").with("sessions", sessions).with("ports", ports));
    }
    gathered.verdict()
}

/// How many sessions of iSCSI there are.
fn sessions(host: &Host, gathered: &mut Gathered) -> usize {
    const CLASS: &str = "/sys/class/iscsi_session";
    let mut targets: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for session in gathered.see(host.system.list(CLASS)).unwrap_or_default().into_iter().take(LOOKED_MAX) {
        let folder = format!("{CLASS}/{session}");
        let Some(state) = gathered.see(host.system.text(&format!("{folder}/state"))) else { continue };
        // Whose target is not shown is one by itself, of which nobody knows whether it has others.
        let target = gathered.see(host.system.text(&format!("{folder}/targetname"))).unwrap_or_else(|| session.clone());
        targets.entry(target).or_default().push((session, state));
    }
    for (target, sessions) in &targets {
        let down: Vec<_> = sessions.iter().filter(|(_, state)| state != "LOGGED_IN").collect();
        let shown = |sessions: &[&(String, String)]| -> Vec<Evidence> {
            let file = |(session, state): &(String, String)| Evidence::new(format!("{CLASS}/{session}/state"), state);
            sessions.iter().take(4).map(|session| file(session)).collect()
        };
        if !down.is_empty() {
            let text = Sentence::new("san.session-down").with("target", target).with("down", down.len());
            let said = Said {
                id: format!("san-link/{target}/down"),
                severity: if down.len() == sessions.len() { Severity::Error } else { Severity::Warning },
                confidence: Confidence::Certain,
                text: text.with("all", sessions.len()).with("state", &down[0].1),
                evidence: shown(&down),
                help: "san.session-help",
                command: None,
            };
            find(gathered, 66, said);
        } else if sessions.len() == 1 && *target != sessions[0].0 && !has_bond(host) && lines(host) > 1 {
            let said = Said {
                id: format!("san-link/{target}/one"),
                severity: Severity::Note,
                confidence: Confidence::Certain,
                text: Sentence::new("san.one-session").with("target", target).with("lines", lines(host)),
                evidence: shown(&[&sessions[0]]),
                help: "san.one-session-help",
                command: None,
            };
            find(gathered, 66, said);
        } else if let Some(said) = one_portal(host, target, sessions) {
            find(gathered, 66, said);
        }
    }
    targets.values().map(Vec::len).sum()
}

/// Several sessions of a target that all go to one of its portals, which bounds them together.
fn one_portal(host: &Host, target: &str, sessions: &[(String, String)]) -> Option<Said> {
    let portal = |(session, _): &(String, String)| {
        let path = format!("/sys/class/iscsi_connection/connection{}:0/address", session.strip_prefix("session")?);
        let address = host.system.text(&path).known().filter(|address| !address.is_empty())?;
        Some((address, path))
    };
    let portals = sessions.iter().map(portal).collect::<Option<Vec<_>>>()?;
    let (first, _) = portals.first()?;
    let is_one = portals.len() > 1 && portals.iter().all(|(address, _)| address == first);
    let text = Sentence::new("san.one-portal").with("target", target).with("portal", first);
    is_one.then(|| Said {
        id: format!("san-link/{target}/portal"),
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: text.with("sessions", portals.len()),
        evidence: portals.iter().take(4).map(|(address, path)| Evidence::new(path, address)).collect(),
        help: "san.one-session-help",
        command: None,
    })
}

/// Lines of the host that are up, those of one bridge as one.
fn lines(host: &Host) -> usize {
    let line =
        |(name, nic): (&String, &forebay_host::topology::Nic)| nic.master.clone().unwrap_or_else(|| name.clone());
    hardware(host).map(line).collect::<BTreeSet<String>>().len()
}

/// A bond carries one session as well when a line of it fails, and nobody sees here which way the session goes.
fn has_bond(host: &Host) -> bool {
    host.topology.nics.values().any(|nic| nic.kind == "bond" && nic.up)
}

/// Gigabits a second, as a port of Fibre Channel writes them: `16 Gbit`.
fn gigabits(text: &str) -> Option<u32> {
    text.trim().strip_suffix("Gbit")?.trim().parse().ok()
}

/// How many ports of Fibre Channel there are.
fn ports(host: &Host, gathered: &mut Gathered) -> usize {
    const CLASS: &str = "/sys/class/fc_host";
    let names = gathered.see(host.system.list(CLASS)).unwrap_or_default();
    let mut ports = Vec::new();
    for name in names.into_iter().take(LOOKED_MAX) {
        if let Some(state) = gathered.see(host.system.text(&format!("{CLASS}/{name}/port_state"))) {
            ports.push((name, state));
        }
    }
    let up = ports.iter().find(|(_, state)| state == "Online").map(|(name, _)| name.clone());
    for (name, state) in &ports {
        let file = |file: &str| format!("{CLASS}/{name}/{file}");
        if state != "Online" {
            // A host whose ports are all down does not use them.
            let Some(other) = &up else { continue };
            let said = Said {
                id: format!("san-link/{name}/down"),
                severity: Severity::Note,
                confidence: Confidence::Certain,
                text: Sentence::new("san.port-down").with("port", name).with("state", state).with("other", other),
                evidence: vec![Evidence::new(file("port_state"), state)],
                help: "san.port-help",
                command: None,
            };
            find(gathered, 66, said);
            continue;
        }
        let text = |name: &str| match host.system.text(&file(name)) {
            Seen::Is(text) => text,
            Seen::Absent | Seen::Hidden(_) => String::new(),
        };
        let (speed, supported) = (text("speed"), text("supported_speeds"));
        let most = supported.split(',').filter_map(gigabits).max();
        let (Some(now), Some(most)) = (gigabits(&speed), most) else { continue };
        if now < most {
            let said = Said {
                id: format!("san-link/{name}/speed"),
                severity: Severity::Note,
                confidence: Confidence::Certain,
                text: Sentence::new("san.port-slow").with("port", name).with("now", now).with("most", most),
                evidence: vec![
                    Evidence::new(file("speed"), &speed),
                    Evidence::new(file("supported_speeds"), &supported),
                ],
                help: "san.port-slow-help",
                command: None,
            };
            find(gathered, 66, said);
        }
    }
    ports.len()
}

#[cfg(test)]
mod tests {
    use super::super::expect::{command, fine, not_here, not_seen, one, text};
    use super::*;
    use crate::fixture::Tree;

    /// A disk with paths in these states.
    fn paths(states: &[&str]) -> Tree {
        let tree = Tree::new().file("/sys/block/dm-0/dm/uuid", "mpath-3600");
        ["sda", "sdb", "sdc"].into_iter().zip(states).fold(tree, |tree, (name, state)| {
            let above = format!("/sys/devices/platform/host6/session1/target6:0:0/block/{name}");
            tree.file(&format!("/sys/block/dm-0/slaves/{name}/x"), "")
                .file(&format!("{above}/device/state"), state)
                .link(&format!("/sys/block/{name}"), &format!("..{}", &above["/sys".len()..]))
        })
    }

    #[test]
    fn paths_that_are_down_and_one_alone_are_told() {
        let some = one(&paths(&["running", "transport-offline"]), 65);
        assert_eq!((some.id.as_str(), some.severity), ("multipath/dm-0/down", Severity::Warning));
        assert!(text(&some).contains("sdb") && text(&some).contains("1 of 2"), "{}", text(&some));
        assert_eq!(one(&paths(&["offline", "blocked"]).virtual_machine(), 65).severity, Severity::Error);
        assert_eq!(one(&paths(&["running"]), 65).id, "multipath/dm-0/one");
        assert!(fine(&paths(&["running", "running"]), 65).contains('2'));
        // A disk of this host, which multipathd has taken as well.
        let own = Tree::new().file("/sys/block/dm-0/dm/uuid", "mpath-3600").file("/sys/block/dm-0/slaves/sda/x", "");
        fine(&own.file("/sys/block/sda/device/state", "running"), 65);
    }

    /// So many megabytes a second by each of two paths, with what the storage says of the second.
    fn traffic(first: u64, second: u64, access: &str) -> Tree {
        let line = |name: &str, mega: u64| format!("8 0 {name} 1 0 {} 1 0 0 0 0 0 9 0\n", mega * 60_000_000 / 512);
        paths(&["running", "running"])
            .file("/sys/block/sda/device/access_state", "active/optimized")
            .file("/sys/block/sdb/device/access_state", access)
            .file("/proc/diskstats", &(line("sda", first) + &line("sdb", second)))
            .earlier("/proc/diskstats", &(line("sda", 0) + &line("sdb", 0)))
    }

    #[test]
    fn one_path_that_carries_what_two_could_is_told_by_the_storages_own_word() {
        let finding = one(&traffic(990, 10, "active/optimized"), 65);
        assert!(text(&finding).contains("99 %") && text(&finding).contains("sdb"), "{}", text(&finding));
        fine(&traffic(500, 500, "active/optimized"), 65);
        fine(&traffic(990, 10, "active/non-optimized"), 65);
        fine(&traffic(5, 0, "active/optimized"), 65);
    }

    fn nvme(controllers: &[(&str, &str, &str)], policy: &str) -> Tree {
        let folder = "/sys/class/nvme-subsystem/nvme-subsys1";
        let tree = Tree::new().file(&format!("{folder}/iopolicy"), policy);
        controllers.iter().zip(1..).fold(tree, |tree, ((transport, state, access), number)| {
            let at = |file: &str| format!("{folder}/nvme{number}/{file}");
            let tree = tree.file(&at("transport"), transport).file(&at("state"), state);
            tree.file(&at(&format!("nvme1c{number}n1/ana_state")), access)
        })
    }

    #[test]
    fn controllers_of_nvme_are_paths() {
        let good = ("tcp", "live", "optimized");
        let idle = one(&nvme(&[good, good], "numa"), 65);
        assert_eq!((idle.id.as_str(), idle.confidence), ("multipath/nvme-subsys1/policy", Confidence::Likely));
        assert_eq!(command(&idle), "echo round-robin > /sys/class/nvme-subsystem/nvme-subsys1/iopolicy");
        fine(&nvme(&[good, good], "round-robin"), 65);
        fine(&nvme(&[good, ("tcp", "live", "non-optimized")], "numa"), 65);
        let down = one(&nvme(&[good, ("tcp", "connecting", "optimized")], "numa"), 65);
        assert_eq!((down.id.as_str(), down.severity), ("multipath/nvme-subsys1/down", Severity::Warning));
        assert_eq!(one(&nvme(&[good], "numa"), 65).id, "multipath/nvme-subsys1/one");
        // A disk in this host has one controller, and that is all it needs.
        not_here(&nvme(&[("pcie", "live", "optimized")], "numa"), 65);
        // One that tells of others has no disks.
        let told = |file: &str, word: &str| {
            nvme(&[good], "numa").file(&format!("/sys/class/nvme-subsystem/nvme-subsys1/{file}"), word)
        };
        not_here(&told("subsystype", "discovery\n"), 65);
        not_here(&told("subsysnqn", &format!("{DISCOVERY}\n")), 65);
        assert_eq!(one(&told("subsystype", "nvm\n"), 65).id, "multipath/nvme-subsys1/one");
        // Paths that the storage serves nothing by are not up.
        let refused = |access: &'static str| ("tcp", "live", access);
        let all = one(&nvme(&[refused("inaccessible"), refused("persistent-loss")], "round-robin"), 65);
        assert_eq!((all.id.as_str(), all.severity), ("multipath/nvme-subsys1/down", Severity::Error));
        assert_eq!(all.evidence[0].value, "inaccessible");
        fine(&nvme(&[good, refused("inaccessible")], "numa"), 65);
        let one_left = one(&nvme(&[refused("inaccessible"), ("tcp", "dead", "optimized")], "numa"), 65);
        assert_eq!(one_left.severity, Severity::Error);
        let alua = |access: &str| traffic(0, 0, access).file("/sys/block/sda/device/access_state", access);
        assert_eq!(one(&alua("unavailable"), 65).severity, Severity::Error);
        fine(&alua("standby"), 65);
    }

    #[test]
    fn paths_that_are_hidden_or_absent_are_no_finding() {
        not_here(&Tree::new(), 65);
        not_here(&Tree::new().file("/sys/block/dm-0/dm/uuid", "LVM-x"), 65);
        let hidden = paths(&["running"]).hidden("/sys/block/sdc/device/state").file("/sys/block/dm-0/slaves/sdc/x", "");
        assert!(not_seen(&hidden, 65).starts_with("/sys/block/sdc/device/state: "), "it is not the only one");
        assert!(not_seen(&Tree::new().hidden("/sys/block/dm-0/dm/uuid"), 65).contains("dm/uuid: "));
    }

    fn sessions(states: &[&str], nics: &[&str]) -> Tree {
        let tree = nics.iter().zip(1..).fold(Tree::new(), |tree, (name, number)| {
            let card = format!("0000:0{number}:00.0");
            tree.pci(&card, 0x020000, 0).nic(name, &card, 10_000)
        });
        states.iter().zip(1..).fold(tree, |tree, (state, number)| {
            let at = |file: &str| format!("/sys/class/iscsi_session/session{number}/{file}");
            tree.file(&at("state"), state).file(&at("targetname"), "iqn.x:disk")
        })
    }

    #[test]
    fn sessions_that_are_down_or_alone_are_told() {
        let some = one(&sessions(&["LOGGED_IN", "FAILED"], &[]), 66);
        assert_eq!((some.id.as_str(), some.severity), ("san-link/iqn.x:disk/down", Severity::Warning));
        assert_eq!(one(&sessions(&["FAILED"], &[]).virtual_machine(), 66).severity, Severity::Error);
        assert_eq!(one(&sessions(&["LOGGED_IN"], &["eth0", "eth1"]), 66).id, "san-link/iqn.x:disk/one");
        fine(&sessions(&["LOGGED_IN"], &["eth0"]), 66);
        fine(&sessions(&["LOGGED_IN", "LOGGED_IN"], &["eth0", "eth1"]), 66);
        let portals = |first: &str, second: &str| {
            let at = |number: u32| format!("/sys/class/iscsi_connection/connection{number}:0/address");
            sessions(&["LOGGED_IN", "LOGGED_IN"], &[]).file(&at(1), first).file(&at(2), second)
        };
        let one_portal = one(&portals("10.0.0.1", "10.0.0.1"), 66);
        assert_eq!(one_portal.id, "san-link/iqn.x:disk/portal");
        assert!(text(&one_portal).contains("10.0.0.1"), "{}", text(&one_portal));
        fine(&portals("10.0.0.1", "10.0.1.1"), 66);
        // Two lines of a bond are one way.
        let bond = sessions(&["LOGGED_IN"], &["eth0", "eth1"]).nic("bond0", "", 20_000);
        let bond = bond.link("/sys/class/net/eth0/master", "/sys/class/net/bond0");
        let bond = bond.link("/sys/class/net/eth1/master", "/sys/class/net/bond0");
        fine(&bond, 66);
        // By which of three lines the session goes, two of them a bond, is not shown.
        let more = sessions(&["LOGGED_IN"], &["eth0", "eth1"])
            .nic("bond0", "", 20_000)
            .file("/sys/class/net/bond0/bonding/mode", "active-backup 1");
        fine(&more, 66);
    }

    fn fc(ports: &[(&str, &str)]) -> Tree {
        ports.iter().zip(1..).fold(Tree::new(), |tree, ((state, speed), number)| {
            let at = |file: &str| format!("/sys/class/fc_host/host{number}/{file}");
            tree.file(&at("port_state"), state)
                .file(&at("speed"), speed)
                .file(&at("supported_speeds"), "8 Gbit, 16 Gbit, 32 Gbit")
        })
    }

    #[test]
    fn ports_of_fibre_channel_that_are_down_or_slow_are_told() {
        let down = one(&fc(&[("Online", "32 Gbit"), ("Linkdown", "unknown")]), 66);
        assert_eq!(down.id, "san-link/host2/down");
        let slow = one(&fc(&[("Online", "8 Gbit")]), 66);
        assert!(text(&slow).contains('8') && text(&slow).contains("32"), "{}", text(&slow));
        assert!(fine(&fc(&[("Online", "32 Gbit"), ("Online", "unknown")]), 66).contains('2'));
        fine(&fc(&[("Linkdown", "unknown")]), 66);
    }

    #[test]
    fn links_that_are_hidden_or_absent_are_no_finding() {
        not_here(&Tree::new(), 66);
        for hidden in ["/sys/class/iscsi_session/session1/state", "/sys/class/fc_host/host1/port_state"] {
            assert!(not_seen(&Tree::new().hidden(hidden), 66).starts_with(hidden));
        }
    }
}
