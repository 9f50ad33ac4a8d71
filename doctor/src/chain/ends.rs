//! The two ends of a path, as a person names them: an interface, an RDMA port, a block device, a file or folder, or memory.

use anyhow::{Result, bail};
use forebay_host::system::{Seen, System};
use forebay_host::topology::Topology;

/// One device, or memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The host's memory, on whichever node.
    Ram,
    /// A network interface.
    Nic(String),
    /// A port of an RDMA device, as `device/port`.
    Rdma(String),
    /// A whole disk, and no partition.
    Disk(String),
}

/// A device with its share of the bytes. Those of several that mirror each other are together more than one.
pub type Part = (End, f64);

/// Which way bytes go at an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Bytes come from the end.
    From,
    /// Bytes go to the end.
    To,
}

/// Follows interfaces and block devices made of others so many times; longer chains are circles.
const DEPTH_MAX: u32 = 8;

/// What `--from` or `--to` names; several, with commas between, share the bytes evenly.
pub fn resolve(system: &System, topology: &Topology, text: &str, way: Way) -> Result<Vec<Part>> {
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        bail!("{text:?} names nothing; write an interface, a block device, a file, an RDMA port, or ram");
    }
    let share = 1.0 / names.len() as f64;
    let mut parts = Vec::new();
    for name in names {
        let of_name = Resolver { system, topology, way }.one(name)?;
        parts.extend(of_name.into_iter().map(|(end, part)| (end, part * share)));
    }
    Ok(parts)
}

struct Resolver<'a> {
    system: &'a System,
    topology: &'a Topology,
    way: Way,
}

impl Resolver<'_> {
    fn one(&self, name: &str) -> Result<Vec<Part>> {
        if name == "ram" {
            return Ok(vec![(End::Ram, 1.0)]);
        }
        if self.topology.nics.contains_key(name) {
            return self.nic(name, 0);
        }
        let ports: Vec<&String> =
            self.topology.rdma.keys().filter(|port| *port == name || port.split('/').next() == Some(name)).collect();
        if !ports.is_empty() {
            let share = 1.0 / ports.len() as f64;
            return Ok(ports.into_iter().map(|port| (End::Rdma(port.clone()), share)).collect());
        }
        if self.topology.disks.contains_key(name) {
            return self.block(name, 0);
        }
        match name.strip_prefix("/dev/") {
            Some(device) => {
                let real = self.system.real(name).known();
                let device = real.as_deref().and_then(|real| real.strip_prefix("/dev/")).unwrap_or(device);
                // As in /dev/cciss/c0d0, which sysfs calls cciss!c0d0.
                self.block(&device.replace('/', "!"), 0)
            }
            None if name.starts_with('/') => self.file(name),
            None => {
                let nics: Vec<&str> = self.topology.nics.keys().map(String::as_str).collect();
                // Of loops and RAM disks a host has dozens, which nobody asks for.
                let real = |kind: &str| !["loop", "ram"].contains(&kind);
                let disks = self.topology.disks.iter().filter(|(_, disk)| real(&disk.kind));
                let disks: Vec<&str> = disks.map(|(name, _)| name.as_str()).collect();
                bail!(
                    "{name:?} is no interface, RDMA port or disk of this host, nor a path that begins with /. It has the \
                     interfaces {} and the disks {}; ram is memory",
                    nics.join(", "),
                    disks.join(", ")
                )
            }
        }
    }

    /// An interface, or what it is made of.
    fn nic(&self, name: &str, depth: u32) -> Result<Vec<Part>> {
        let nic = self.topology.nics.get(name);
        let names = self.system.list(&format!("/sys/class/net/{name}")).known().unwrap_or_default();
        let below: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("lower_")).collect();
        let is_bridge = nic.is_some_and(|nic| nic.kind == "bridge");
        if below.is_empty()
            && nic.is_some_and(|nic| nic.pci.is_some() || nic.usb_mbits.is_some() || nic.kind == "physical")
        {
            return Ok(vec![(End::Nic(name.to_owned()), 1.0)]);
        }
        if is_bridge && below.len() != 1 {
            bail!("{name} is a bridge with the ports {}: name the port that the bytes go through", below.join(", "));
        }
        if below.is_empty() || depth == DEPTH_MAX {
            bail!("{name} is virtual: no device of this host carries its bytes; name the interface that does");
        }
        let (below, share) = self.working(name, below);
        let mut parts = Vec::new();
        for lower in &below {
            let of_lower = self.nic(lower, depth + 1)?;
            parts.extend(of_lower.into_iter().map(|(end, part)| (end, part * share)));
        }
        Ok(parts)
    }

    /// Of the members of a bond those that work, with the bytes at each for each byte of the bond. It spreads many flows evenly, one
    /// alone goes over one member; `active-backup` uses one at a time, `broadcast` sends everything by each. Other interfaces use all.
    fn working<'b>(&self, name: &str, below: Vec<&'b str>) -> (Vec<&'b str>, f64) {
        let text = |file: &str| self.system.text(&format!("/sys/class/net/{name}/bonding/{file}")).known();
        let Some(mode) = text("mode") else {
            let share = 1.0 / below.len() as f64;
            return (below, share);
        };
        let is_up = |member: &&str| self.topology.nics.get(*member).is_some_and(|nic| nic.up);
        let up: Vec<&str> = below.iter().copied().filter(is_up).collect();
        let up = if up.is_empty() { below } else { up };
        if mode.starts_with("active-backup") {
            let active = text("active_slave").unwrap_or_default();
            return (
                up.iter().copied().find(|member| *member == active).or(up.first().copied()).into_iter().collect(),
                1.0,
            );
        }
        let share = if mode.starts_with("broadcast") && self.way == Way::To { 1.0 } else { 1.0 / up.len() as f64 };
        (up, share)
    }

    /// A block device, or the disks that it is on.
    fn block(&self, name: &str, depth: u32) -> Result<Vec<Part>> {
        let folder = format!("/sys/class/block/{name}");
        if !self.topology.disks.contains_key(name) {
            // A partition lies in its disk's folder.
            let real = self.system.real(&folder).known().unwrap_or_default();
            let disk = real.rsplit('/').nth(1).unwrap_or_default();
            if !self.topology.disks.contains_key(disk) {
                bail!("{name} is no block device of this host: {folder} leads to no disk");
            }
            return self.block(disk, depth + 1);
        }
        let slaves = |folder: &str| self.system.list(&format!("{folder}/slaves")).known().unwrap_or_default();
        let below = Some(slaves(&folder)).filter(|below| !below.is_empty());
        let below = below.unwrap_or_else(|| slaves(&format!("/sys/block/{name}")));
        if below.is_empty() {
            return match self.topology.disks.get(name).map(|disk| disk.kind.as_str()) {
                Some("ram") => Ok(vec![(End::Ram, 1.0)]),
                Some("loop") => bail!("{name} is a loop device: name the file that it is on"),
                _ => Ok(vec![(End::Disk(name.to_owned()), 1.0)]),
            };
        }
        if depth >= DEPTH_MAX {
            bail!("{name} is made of devices that are made of others {DEPTH_MAX} times: name a disk");
        }
        let share = self.share_of_each(name, below.len());
        let mut parts = Vec::new();
        for slave in &below {
            parts.extend(self.block(slave, depth + 1)?.into_iter().map(|(end, part)| (end, part * share)));
        }
        Ok(parts)
    }

    /// Bytes at each of an array's disks for each byte of its own: whole stripes, read without a loss.
    fn share_of_each(&self, name: &str, disks: usize) -> f64 {
        let level = self.system.text(&format!("/sys/block/{name}/md/level")).known();
        let disks = disks as f64;
        match (self.way, level.as_deref()) {
            (Way::To, Some("raid1")) => 1.0,
            (Way::To, Some("raid10")) => 2.0 / disks,
            (Way::To, Some("raid4" | "raid5")) => 1.0 / (disks - 1.0).max(1.0),
            (Way::To, Some("raid6")) => 1.0 / (disks - 2.0).max(1.0),
            _ => 1.0 / disks,
        }
    }

    /// The disk below a file, by the mount that it is in.
    fn file(&self, path: &str) -> Result<Vec<Part>> {
        let mounts = match self.system.text("/proc/self/mountinfo") {
            Seen::Is(mounts) => mounts,
            Seen::Absent => bail!("find the disk below {path}: there is no /proc/self/mountinfo; name the disk"),
            Seen::Hidden(why) => bail!("find the disk below {path}: {why}; name the disk"),
        };
        let real = match self.system.real(path) {
            Seen::Is(real) => real,
            // A recorded host has no files of its own.
            _ if !self.system.is_live() => path.to_owned(),
            Seen::Absent => bail!("find the disk below {path}: there is no such file or folder"),
            Seen::Hidden(why) => bail!("find the disk below {path}: {why}"),
        };
        let Some(mount) = Mount::of(&mounts, &real) else {
            bail!("find the disk below {path}: no line of /proc/self/mountinfo holds it; name the disk")
        };
        if ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs"].contains(&mount.kind) {
            return Ok(vec![(End::Ram, 1.0)]);
        }
        if let Some(device) = mount.source.strip_prefix("/dev/")
            && mount.number.starts_with("0:")
        {
            return self.block(device.rsplit('/').next().unwrap_or(device), 0);
        }
        let device = self.system.real(&format!("/sys/dev/block/{}", mount.number)).known();
        match device.as_deref().and_then(|device| device.rsplit('/').next()) {
            Some(device) => self.block(device, 0),
            None => bail!(
                "{path} is on {} ({}), which is no block device of this host; name the interface or the disk that its \
                 bytes go through",
                mount.source,
                mount.kind
            ),
        }
    }
}

/// A line of mountinfo.
struct Mount<'a> {
    number: &'a str,
    kind: &'a str,
    source: &'a str,
}

impl<'a> Mount<'a> {
    /// The mount that a path is in: the longest that holds it, and of several at one place the last.
    fn of(mounts: &'a str, path: &str) -> Option<Mount<'a>> {
        let mut best: Option<(usize, Mount)> = None;
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let (mut before, mut after) = (before.split(' ').skip(2), after.split(' '));
            let (Some(number), Some(place)) = (before.next(), before.nth(1)) else { continue };
            let (Some(kind), Some(source)) = (after.next(), after.next()) else { continue };
            let place = unescaped(place);
            let holds =
                path == place || place == "/" || path.strip_prefix(&place).is_some_and(|rest| rest.starts_with('/'));
            if holds && best.as_ref().is_none_or(|(length, _)| *length <= place.len()) {
                best = Some((place.len(), Mount { number, kind, source }));
            }
        }
        best.map(|(_, mount)| mount)
    }
}

/// Blanks, tabs, line feeds and backslashes stand there as `\040`, `\011`, `\012` and `\134`.
fn unescaped(place: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(place.to_owned(), |place, (code, letter)| place.replace(code, letter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::topology;

    const MOUNTS: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        23 22 0:21 / /run rw - tmpfs tmpfs rw\n\
        24 22 259:0 / /data rw shared:1 - xfs /dev/nvme0n1 rw\n\
        25 22 0:40 / /share rw - nfs4 nas:/share rw\n\
        26 24 9:0 / /data/my\\040set rw - ext4 /dev/md0 rw\n\
        27 22 0:50 /sub /pool rw - btrfs /dev/sdb rw\n";

    fn tree() -> Tree {
        let pci = |tree: Tree, way: &str, class| tree.pci(way, class, 0);
        let tree = pci(Tree::new().node(0, "0", 1), "0000:00:01.0/0000:01:00.0", 0x0002_0000);
        let tree = pci(pci(tree, "0000:00:02.0", 0x0001_0601), "0000:00:03.0", 0x0001_0802);
        tree.nic("eth0", "0000:01:00.0", 10_000)
            .nic("eth1", "0000:01:00.0", 10_000)
            .nic("bond0", "", 20_000)
            .file("/sys/class/net/bond0/lower_eth0/x", "")
            .file("/sys/class/net/bond0/lower_eth1/x", "")
            .nic("veth0", "", 10_000)
            .rdma("mlx4_0", 1, "0000:01:00.0", "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
            .rdma("mlx4_0", 2, "0000:01:00.0", "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
            .disk("sda", "0000:00:02.0", 100)
            .disk("sdb", "0000:00:02.0", 100)
            .disk("nvme0n1", "0000:00:03.0", 100)
            .disk("md0", "", 100)
            .file("/sys/block/md0/md/level", "raid1")
            .file("/sys/block/md0/slaves/sda/x", "")
            .file("/sys/block/md0/slaves/sdb/x", "")
            .file("/sys/block/sda/sda1/partition", "1")
            .link("/sys/class/block/sda1", "../../block/sda/sda1")
            .link("/sys/dev/block/8:1", "../../block/sda/sda1")
            .link("/sys/dev/block/259:0", "../../block/nvme0n1")
            .link("/sys/dev/block/9:0", "../../block/md0")
            .file("/proc/self/mountinfo", MOUNTS)
    }

    fn ask(tree: &Tree, text: &str, way: Way) -> Result<Vec<Part>> {
        let system = tree.system();
        resolve(&system, &topology::read(&system), text, way)
    }

    fn disk(name: &str, share: f64) -> Part {
        (End::Disk(name.to_owned()), share)
    }

    fn nic(name: &str, share: f64) -> Part {
        (End::Nic(name.to_owned()), share)
    }

    #[test]
    fn devices_are_found_by_each_of_their_names() {
        let tree = tree();
        let from = |text| ask(&tree, text, Way::From).unwrap_or_else(|e| panic!("{text}: {e:#}"));
        assert_eq!(from("ram"), [(End::Ram, 1.0)]);
        assert_eq!(from("eth0"), [nic("eth0", 1.0)]);
        assert_eq!(from("eth0, eth1"), [nic("eth0", 0.5), nic("eth1", 0.5)]);
        assert_eq!(from("bond0"), [nic("eth0", 0.5), nic("eth1", 0.5)]);
        assert_eq!(from("mlx4_0/2"), [(End::Rdma("mlx4_0/2".to_owned()), 1.0)]);
        assert_eq!(from("mlx4_0").len(), 2);
        assert_eq!(from("/dev/sda1"), [disk("sda", 1.0)]);
        assert_eq!(from("nvme0n1"), [disk("nvme0n1", 1.0)]);
    }

    #[test]
    fn a_file_is_on_the_disk_of_the_mount_that_holds_it() {
        let tree = tree();
        let from = |text| ask(&tree, text, Way::From).unwrap_or_else(|e| panic!("{text}: {e:#}"));
        assert_eq!(from("/etc/fstab"), [disk("sda", 1.0)]);
        assert_eq!(from("/data/a/b"), [disk("nvme0n1", 1.0)]);
        assert_eq!(from("/database"), [disk("sda", 1.0)], "a name that only begins alike");
        assert_eq!(from("/run/x"), [(End::Ram, 1.0)]);
        assert_eq!(from("/pool/x"), [disk("sdb", 1.0)], "a file system without a number of its own");
        assert_eq!(from("/data/my set/x"), [disk("sda", 0.5), disk("sdb", 0.5)], "a mirror is read from both");
        let to = ask(&tree, "/data/my set/x", Way::To).expect("found");
        assert_eq!(to, [disk("sda", 1.0), disk("sdb", 1.0)], "and written to each");
    }

    #[test]
    fn what_is_on_no_device_of_this_host_is_refused_with_what_to_name_instead() {
        let tree = tree();
        let why = |text: &str| ask(&tree, text, Way::From).expect_err(text).to_string();
        assert!(why("/share/x").contains("nas:/share (nfs4)"), "{}", why("/share/x"));
        assert!(why("veth0").contains("virtual"), "{}", why("veth0"));
        assert!(why("eth7").contains("interfaces bond0, eth0"), "{}", why("eth7"));
        assert!(why("/dev/sdz").contains("no block device"), "{}", why("/dev/sdz"));
        assert!(why(" , ").contains("names nothing"));
        let hidden = Tree::new().hidden("/proc/self/mountinfo");
        assert!(ask(&hidden, "/x", Way::From).expect_err("hidden").to_string().contains("/proc/self/mountinfo: "));
    }

    #[test]
    fn parity_is_written_as_well() {
        let level = |level: &str, way| {
            let tree = Tree::new().file("/sys/block/md0/md/level", level);
            let (system, topology) = (tree.system(), Topology::default());
            Resolver { system: &system, topology: &topology, way }.share_of_each("md0", 4)
        };
        assert_eq!(["raid0", "raid10", "raid5", "raid6"].map(|name| level(name, Way::To)), [0.25, 0.5, 1.0 / 3.0, 0.5]);
        assert_eq!(level("raid6", Way::From), 0.25);
    }
}
