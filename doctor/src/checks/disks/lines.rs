//! Check 46: what the lines of disks at SATA and SAS run at.

use super::Reader;
use super::wants::{Port, gigabits, is_sata, moves, named, ports_of};
use crate::Host;
use crate::checks::storage::real_disks;
use crate::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use crate::formulas::{sas, sata};
use crate::show;
use forebay_host::topology::Disk;
use std::collections::BTreeSet;

/// How far a disk has to exceed its line: what disks of a kind move is a rule of thumb.
const SHORT: f64 = 1.10;
/// What an SSD moves at 6 Gb/s; those at SAS may be made for no more.
const SSD: f64 = 560e6;
/// Where SATA ends, in gigabits a second, whatever the lane of a SAS controller can.
const SATA_MOST: f64 = 6.0;

/// A disk's port, while all of them are looked at.
struct Look<'a, 'b> {
    read: Reader<'a>,
    found: Vec<Finding>,
    /// Gigabits a second of the slowest line, and whose it is.
    slowest: Option<(f64, String)>,
    lines: usize,
    host: &'a Host,
    seen: BTreeSet<&'b str>,
}

/// Check 46. Reads what the links of SATA and the lanes of SAS run at, and what they are limited to. Rules: the kernel has lowered a
/// link's limit, which it does after errors; lanes of one port differ; a lane runs at a limit that is set to less than it and its disk can; a line carries less than
/// its disk moves.
pub fn lines(host: &Host) -> Verdict {
    if host.topology.hypervisor.is_some() {
        return Verdict::NotHere;
    }
    let disks: Vec<(String, &String, &Disk, Port)> = real_disks(host)
        .filter(|(_, disk)| disk.kind == "scsi")
        .flat_map(|(name, disk)| ports_of(&host.system, name).into_iter().map(move |port| (name, disk, port)))
        .map(|(name, disk, port)| (port.name(), name, disk, port))
        .collect();
    let read = Reader::of(&host.system);
    let mut look = Look { read, found: Vec::new(), slowest: None, lines: 0, host, seen: BTreeSet::new() };
    for (key, name, disk, port) in &disks {
        // Behind port multipliers and expanders several disks have the same.
        if !look.seen.insert(key) {
            continue;
        }
        match port {
            Port::Sata(number) => look.sata(*number, name, disk),
            Port::Sas { lanes, own, .. } => look.sas(lanes, key, name, own.then_some(disk)),
        }
    }
    let fine = look.slowest.map(|(speed, name)| {
        Sentence::new("disk.lines-fine").with("lines", look.lines).with("disk", named(host, &name)).with("speed", speed)
    });
    look.read.verdict(look.found, fine)
}

impl Look<'_, '_> {
    fn runs_at(&mut self, speed: f64, name: &str) {
        self.lines += 1;
        if self.slowest.as_ref().is_none_or(|(least, _)| speed < *least) {
            self.slowest = Some((speed, name.to_owned()));
        }
    }

    fn sata(&mut self, number: u32, name: &str, disk: &Disk) {
        let at = |file: &str| format!("/sys/class/ata_link/link{number}/{file}");
        let [now, limit, hardware] = ["sata_spd", "sata_spd_limit", "hw_sata_spd_limit"].map(|file| {
            let text = self.read.text(&at(file))?;
            Some((gigabits(&text)?, Evidence::new(at(file), text)))
        });
        let Some((speed, shown)) = now else { return };
        self.runs_at(speed, name);
        let hardware_speed = hardware.as_ref().map(|(speed, _)| *speed);
        match limit {
            // Without a limit of the hardware, or of whoever started the kernel, there is none at first.
            Some((limit, limit_shown)) if speed <= limit && hardware_speed.is_none_or(|most| limit < most) => {
                let could_be = hardware_speed.unwrap_or(if limit < 3.0 { 3.0 } else { limit.max(6.0) });
                self.found.push(Finding {
                    id: format!("disk-line/{name}"),
                    check: 46,
                    severity: Severity::Warning,
                    confidence: Confidence::Certain,
                    text: Sentence::new("disk.line-lowered")
                        .with("disk", named(self.host, name))
                        .with("speed", speed)
                        .with("carries", show::bytes(sata(speed))),
                    evidence: [Some(shown), Some(limit_shown), hardware.map(|(_, shown)| shown)]
                        .into_iter()
                        .flatten()
                        .collect(),
                    number: Some(Number { is: sata(speed), could_be: sata(could_be), unit: "B/s".to_owned() }),
                    remedies: vec![Remedy::Explain {
                        what: Sentence::new("disk.line-lowered-remedy"),
                        command: Some("dmesg | grep -i 'ata.*limiting SATA link speed'".to_owned()),
                    }],
                });
            }
            _ => self.slow(name, disk, sata(speed), speed, shown),
        }
    }

    /// A line that carries less than the disk moves.
    fn slow(&mut self, name: &str, disk: &Disk, carries: f64, speed: f64, shown: Evidence) {
        let moves = moves(self.host, name, disk).min(SSD);
        if moves <= carries * SHORT {
            return;
        }
        let rotational = Evidence::new(format!("/sys/block/{name}/queue/rotational"), u8::from(disk.rotational));
        self.found.push(Finding {
            id: format!("disk-line/{name}"),
            check: 46,
            severity: Severity::Note,
            confidence: Confidence::Likely,
            text: Sentence::new("disk.line-slow")
                .with("disk", named(self.host, name))
                .with("speed", speed)
                .with("carries", show::bytes(carries))
                .with("moves", show::bytes(moves)),
            evidence: vec![shown, rotational],
            number: Some(Number { is: carries, could_be: moves, unit: "B/s".to_owned() }),
            remedies: vec![Remedy::Explain { what: Sentence::new("disk.line-slow-remedy"), command: None }],
        });
    }

    /// The lanes of one port: a disk's own, or those to an expander.
    fn sas(&mut self, lanes: &[String], port: &str, name: &str, disk: Option<&&Disk>) {
        let at = |lane: &str, file: &str| format!("/sys/class/sas_phy/{lane}/{file}");
        let mut rates: Vec<(f64, Evidence)> = Vec::new();
        let mut set: Option<(f64, f64, Vec<Evidence>)> = None;
        let disk_most = match disk {
            Some(disk) if is_sata(self.host, name, disk) => SATA_MOST,
            _ => f64::INFINITY,
        };
        for lane in lanes {
            let [now, most, hardware] =
                ["negotiated_linkrate", "maximum_linkrate", "maximum_linkrate_hw"].map(|file| {
                    let text = self.read.text(&at(lane, file))?;
                    Some((gigabits(&text)?, Evidence::new(at(lane, file), text)))
                });
            let Some(now) = now else { continue };
            if let (Some((most, shown)), Some((hardware, shown_hardware))) = (most, hardware)
                // What runs below the limit is held back by the other end.
                && now.0 == most
                && most < hardware.min(disk_most)
            {
                set.get_or_insert((most, hardware.min(disk_most), vec![now.1.clone(), shown, shown_hardware]));
            }
            rates.push(now);
        }
        let by_rate = |(a, _): &&(f64, Evidence), (b, _): &&(f64, Evidence)| a.total_cmp(b);
        let (Some(slow), Some(fast)) = (rates.iter().min_by(by_rate), rates.iter().max_by(by_rate)) else { return };
        self.runs_at(slow.0, name);
        let sum: f64 = rates.iter().map(|(rate, _)| sas(*rate, 1)).sum();
        let lane_count = rates.len() as u32;
        let (key, remedy, severity, could_be, evidence) = match (set, disk) {
            _ if slow.0 < fast.0 => (
                "disk.lanes-differ",
                "disk.lanes-differ-remedy",
                Severity::Warning,
                sas(fast.0, lane_count),
                vec![slow.1.clone(), fast.1.clone()],
            ),
            (Some((_, hardware, shown)), _) => {
                ("disk.lane-set", "disk.lane-set-remedy", Severity::Note, sas(hardware, lane_count), shown)
            }
            (None, Some(disk)) => return self.slow(name, disk, sum, slow.0, slow.1.clone()),
            (None, None) => return,
        };
        self.found.push(Finding {
            id: format!("disk-line/{port}"),
            check: 46,
            severity,
            // Whether the other end can do more is not shown.
            confidence: if key == "disk.lane-set" { Confidence::Likely } else { Confidence::Certain },
            text: Sentence::new(key)
                .with("port", port)
                .with("disk", named(self.host, name))
                .with("slow", slow.0)
                .with("fast", fast.0)
                .with("lanes", lane_count)
                .with("is", show::bytes(sum))
                .with("could_be", show::bytes(could_be)),
            evidence,
            number: Some(Number { is: sum, could_be, unit: "B/s".to_owned() }),
            remedies: vec![Remedy::Explain { what: Sentence::new(remedy), command: None }],
        });
    }
}
