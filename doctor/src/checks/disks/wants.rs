//! What disks move by their kind and their line, and so what a controller of them wants of its slot.

use crate::Host;
use crate::checks::storage::real_disks;
use crate::findings::Evidence;
use crate::formulas::{pcie_raw, sas, sata};
use forebay_host::system::System;
use forebay_host::topology::{Disk, PciDevice};
use std::collections::{BTreeMap, BTreeSet};

/// Most that a disk of a kind writes, in bytes a second: the outer tracks, the SATA line, two lanes of SAS at 22.5 Gb/s,
/// four lanes of PCIe 5.0.
const SPINNING: f64 = 280e6;
const SATA_SSD: f64 = 560e6;
const SAS_SSD: f64 = 4.8e9;
const NVME: f64 = 15e9;
/// What a spinning disk moves in the mean of all its tracks.
const SPINNING_MEAN: f64 = 200e6;
/// What an SSD at SAS moves whose line is not told: that of one lane at 12 Gb/s.
const SAS_LANE: f64 = 1.1e9;
/// Disks that are shown as the evidence of what a controller wants; a shelf has 60.
const SHOWN: usize = 4;
/// Drivers of controllers whose "disk" is an array of any size.
pub const ARRAYS: &[&str] =
    &["megaraid_sas", "megaraid", "hpsa", "smartpqi", "aacraid", "arcmsr", "cciss", "3w-9xxx", "3w-sas", "mpi3mr"];

/// What a controller's disks want together.
pub struct Wants {
    /// Bytes a second, all of them.
    pub bytes: f64,
    /// The part of that of SSDs.
    pub of_ssds: f64,
    /// How many disks there are.
    pub disks: usize,
    /// One disk of NVMe, which wants what its own end of the link can.
    pub is_nvme: bool,
    /// What says of which kind they are, and how fast their lines, of the first few.
    pub evidence: Vec<Evidence>,
}

/// A disk with its model, where it is known: `nvme0n1 (Samsung SSD 980 PRO 1TB)`.
pub fn named(host: &Host, name: &str) -> String {
    match host.topology.disks.get(name).and_then(|disk| disk.model.as_ref()) {
        Some(model) => format!("{name} ({model})"),
        None => name.to_owned(),
    }
}

/// Whether a disk is one disk at a controller that says of which kind it is: no array, no volume of a storage network, nothing at USB.
pub fn is_single(host: &Host, name: &str, disk: &Disk) -> bool {
    let Some(function) = disk.pci.as_ref().and_then(|pci| host.topology.pci.get(pci)) else { return false };
    let Some(driver) = function.driver.as_deref().filter(|driver| !ARRAYS.contains(driver)) else { return false };
    match function.class >> 8 {
        0x0101 | 0x0106 => true,
        // Firmware can have a SATA controller say that it is one of arrays.
        0x0104 => driver == "ahci",
        // Those of LSI make arrays, too, which are at no port.
        0x0100 | 0x0107 => !driver.starts_with("mpt") || !ports_of(&host.system, name).is_empty(),
        _ => false,
    }
}

/// Whether a disk that is no NVMe speaks SATA, be it through a SAS controller.
pub fn is_sata(host: &Host, name: &str, disk: &Disk) -> bool {
    let driver = disk.pci.as_ref().and_then(|pci| host.topology.pci.get(pci)?.driver.as_deref());
    let vendor = host.system.text(&format!("/sys/block/{name}/device/vendor")).known();
    match vendor.as_deref().map(str::trim) {
        Some(vendor) => vendor == "ATA",
        None => driver.is_some_and(|driver| driver.starts_with("ahci") || driver.starts_with("sata_")),
    }
}

/// The most that a disk writes, by its kind, in bytes a second. None where the kind tells nothing: behind a hypervisor, a
/// controller of arrays, or USB.
pub fn at_best(host: &Host, name: &str, disk: &Disk) -> Option<f64> {
    if host.topology.hypervisor.is_some() {
        return None;
    }
    match (disk.kind.as_str(), disk.rotational) {
        ("nvme", _) => {
            let link = disk.pci.as_ref().and_then(|pci| host.topology.pci.get(pci)?.link);
            let most = link.map(|link| pcie_raw(link.speed_max_gts, link.width_max)).filter(|most| *most > 0.0);
            Some(most.unwrap_or(NVME))
        }
        ("scsi", true) if is_single(host, name, disk) => Some(SPINNING),
        ("scsi", false) if is_single(host, name, disk) && is_sata(host, name, disk) => Some(SATA_SSD),
        ("scsi", false) if is_single(host, name, disk) => Some(SAS_SSD),
        _ => None,
    }
}

/// A disk's line: where it is shown, and what it runs at.
pub struct Line {
    /// What shares the line, behind a port multiplier: the name of the port.
    pub port: String,
    /// The file that shows its speed, and what it says.
    pub shown: Evidence,
    /// Bytes a second that it carries.
    pub carries: f64,
}

/// `6.0 Gbps`, `12.0 Gbit`; other words say that there is no link, or none that is known.
pub fn gigabits(text: &str) -> Option<f64> {
    let (number, unit) = text.trim().split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    (matches!(unit, "Gbps" | "Gbit") && number > 0.0 && number < 1000.0).then_some(number)
}

/// Where a disk's line begins.
pub enum Port {
    /// A SATA port, by the number that libata gives it.
    Sata(u32),
    /// A SAS port.
    Sas {
        /// Its name, as in `port-0:1`.
        name: String,
        /// Its lanes, as in `phy-0:4`.
        lanes: Vec<String>,
        /// It is the disk's own, and leads to no expander.
        own: bool,
    },
}

impl Port {
    /// A name that no other port of the host has.
    pub fn name(&self) -> String {
        match self {
            Port::Sata(number) => format!("ata{number}"),
            Port::Sas { name, .. } => name.clone(),
        }
    }
}

/// The ports on the way from the controller to a disk at SATA or SAS, its own last.
pub fn ports_of(system: &System, disk: &str) -> Vec<Port> {
    let Some(real) = system.real(&format!("/sys/block/{disk}")).known() else { return Vec::new() };
    if let Some(port) = real.split('/').find_map(|part| part.strip_prefix("ata")?.parse::<u32>().ok()) {
        return vec![Port::Sata(port)];
    }
    let port = |at: usize| {
        let end = real[at + 1..].find('/').map_or(real.len(), |length| at + 1 + length);
        let mut lanes = system.list(&real[..end]).known().unwrap_or_default();
        lanes.retain(|lane| lane.starts_with("phy-"));
        Port::Sas { name: real[at + 1..end].to_owned(), lanes, own: false }
    };
    let mut ports: Vec<Port> = real.match_indices("/port-").map(|(at, _)| port(at)).collect();
    if let Some(Port::Sas { own, .. }) = ports.last_mut() {
        *own = true;
    }
    ports
}

/// The line of a disk at SATA or SAS.
pub fn line_of(host: &Host, name: &str) -> Option<Line> {
    let port = ports_of(&host.system, name).pop()?;
    let rate_of = |path: String| {
        let text = host.system.text(&path).known()?;
        Some((gigabits(&text)?, Evidence::new(path, text)))
    };
    let lanes: Vec<(f64, Evidence)> = match &port {
        Port::Sata(number) => {
            let (rate, shown) = rate_of(format!("/sys/class/ata_link/link{number}/sata_spd"))?;
            return Some(Line { port: port.name(), shown, carries: sata(rate) });
        }
        Port::Sas { lanes, .. } => {
            let lane = |lane: &String| rate_of(format!("/sys/class/sas_phy/{lane}/negotiated_linkrate"));
            lanes.iter().filter_map(lane).collect()
        }
    };
    let carries = lanes.iter().map(|(rate, _)| sas(*rate, 1)).sum();
    let (_, shown) = lanes.into_iter().next()?;
    Some(Line { port: port.name(), shown, carries })
}

/// What a disk at SATA or SAS moves, whatever its line carries.
pub fn moves(host: &Host, name: &str, disk: &Disk) -> f64 {
    match disk.rotational {
        true => SPINNING_MEAN,
        false if is_sata(host, name, disk) => SATA_SSD,
        false => SAS_LANE,
    }
}

/// What the lanes of a SAS controller carry together that lead somewhere. None: it shows none.
fn lanes_of_controller(host: &Host, disk: &str) -> Option<f64> {
    let real = host.system.real(&format!("/sys/block/{disk}")).known()?;
    let number = real.split('/').find_map(|part| part.strip_prefix("host")?.parse::<u32>().ok())?;
    let own = format!("phy-{number}:");
    let lanes = host.system.list("/sys/class/sas_phy").known()?;
    // Those of expanders have two colons.
    let lanes = lanes.iter().filter(|lane| lane.strip_prefix(&own).is_some_and(|rest| !rest.contains(':')));
    let rate = |lane: &String| {
        let text = host.system.text(&format!("/sys/class/sas_phy/{lane}/negotiated_linkrate")).known()?;
        gigabits(&text)
    };
    Some(lanes.filter_map(rate).map(|rate| sas(rate, 1)).sum()).filter(|carries| *carries > 0.0)
}

/// Whether a driver for disks has a SATA or SAS controller, so that all of its disks are shown.
fn is_driven(function: &PciDevice) -> bool {
    let Some(driver) = function.driver.as_deref() else { return false };
    let is_of_disks = !ARRAYS.contains(&driver) && !["vfio-pci", "pci-stub", "uio_pci_generic"].contains(&driver);
    match function.class >> 8 {
        0x0101 | 0x0106 | 0x0107 => is_of_disks,
        0x0100 => driver.starts_with("mpt"),
        0x0104 => driver == "ahci",
        _ => false,
    }
}

/// What the disks of a SATA or SAS controller want, of which `here` says whether a function is a part: nothing, where it has none.
/// None: no driver shows its disks, or one of them does not say of which kind it is.
pub fn of_controller(host: &Host, here: impl Fn(&str) -> bool) -> Option<Wants> {
    let mut disks: Vec<(&String, &Disk)> =
        real_disks(host).filter(|(_, disk)| disk.kind == "scsi" && disk.pci.as_deref().is_some_and(&here)).collect();
    // A disk with two ports is shown by each of them, and moves what one disk does.
    let mut known = BTreeSet::new();
    disks.retain(|(name, _)| {
        let id = host.system.text(&format!("/sys/block/{name}/device/wwid")).known().unwrap_or_default();
        id.trim().is_empty() || known.insert(id)
    });
    let Some((first, _)) = disks.first() else {
        let of = |(address, function): (&String, &PciDevice)| here(address) && is_driven(function);
        let wants = || Wants { bytes: 0.0, of_ssds: 0.0, disks: 0, is_nvme: false, evidence: Vec::new() };
        return host.topology.pci.iter().any(of).then(wants);
    };
    if !disks.iter().all(|(name, disk)| is_single(host, name, disk)) {
        return None;
    }
    // By port: what all of its disks move, those of them that are SSDs, and what its line carries.
    let mut ports: BTreeMap<String, (f64, f64, f64)> = BTreeMap::new();
    let mut evidence = Vec::new();
    for (name, disk) in &disks {
        let moves = moves(host, name, disk);
        let line = line_of(host, name);
        let (port, carries) = line.as_ref().map_or((name.to_string(), moves), |line| (line.port.clone(), line.carries));
        let (all, ssds, _) = ports.get(&port).copied().unwrap_or_default();
        ports.insert(port, (all + moves, ssds + if disk.rotational { 0.0 } else { moves }, carries));
        if evidence.len() < 2 * SHOWN {
            let path = format!("/sys/block/{name}/queue/rotational");
            evidence.push(Evidence::new(path, u8::from(disk.rotational)));
            evidence.extend(line.map(|line| line.shown));
        }
    }
    let bytes = ports.values().map(|(all, _, carries)| all.min(*carries)).sum::<f64>();
    let of_ssds = ports.values().map(|(_, ssds, carries)| ssds.min(*carries)).sum::<f64>();
    let most = lanes_of_controller(host, first).unwrap_or(f64::INFINITY);
    Some(Wants { bytes: bytes.min(most), of_ssds: of_ssds.min(most), disks: disks.len(), is_nvme: false, evidence })
}
