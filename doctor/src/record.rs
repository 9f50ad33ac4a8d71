//! A host in one file, for a report of a fault: what the doctor read of it, and nothing else.

use crate::Host;
use forebay_host::system::RECORDED;
use forebay_host::system::record::{Record, Recorder};

/// All that was read of a host, with what was asked of the network and of devices, and the counters of the earlier look.
pub fn finish(recorder: Recorder, host: &Host) -> Record {
    let mut asked: Vec<(String, String)> = host.net.record();
    asked.extend(host.devices.record());
    // Drivers' counters are asked, too.
    let counted = host.counters.0.iter().filter(|(path, _)| path.starts_with(RECORDED));
    asked.extend(counted.map(|(path, text)| (path.clone(), text.clone())));
    if let Some((counters, between)) = &host.earlier {
        let below = format!("{RECORDED}/earlier");
        asked.push((format!("{below}/seconds"), between.as_secs_f64().to_string()));
        asked.extend(counters.0.iter().map(|(path, text)| (format!("{below}{path}"), text.clone())));
    }
    recorder.finish(asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;
    use crate::findings::Verdict;
    use crate::fixture::Tree;
    use forebay_host::system::System;
    use forebay_host::topology;
    use forebay_host::topology::MemoryModule;

    fn recorded(tree: &Tree) -> Record {
        let (system, recorder) = tree.system().recording();
        let host = Host::look(system);
        host.examine();
        finish(recorder, &host)
    }

    fn unpacked(record: &Record) -> (tempfile::TempDir, System) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("host.json");
        std::fs::write(&file, record.to_json().expect("JSON")).expect("written");
        let system = System::recorded(&file).expect("it is a record");
        (folder, system)
    }

    fn host() -> Tree {
        Tree::new()
            .node(0, "0-1", 4)
            .node(1, "2-3", 4)
            .pci("0000:80:02.0", 0x060400, 1)
            .pci("0000:80:02.0/0000:82:00.0", 0x020000, -1)
            .pci_link("0000:82:00.0", (8.0, 4), (8.0, 8))
            .pci_link("0000:80:02.0", (8.0, 4), (8.0, 8))
            .driver("0000:82:00.0", "mlx5_core")
            .virtio_nic("ens1", "0000:82:00.0", 25_000)
            .disk("dm-0", "", 10)
            .interrupt(40, "0000:82:00.0", "ens1-0", "2-3", &[0, 0, 5, 9])
            .file(
                &format!("{RECORDED}/devices"),
                r#"{"counted":[{"socket":0,"far":true,"source":"amd_df/event=0x81f,umask=0xbfe/","bytes_per_second":2e9}]}"#,
            )
            .module(MemoryModule { slot: "DIMM_A1".to_owned(), bytes: 4 << 30, ..MemoryModule::default() })
    }

    /// The same with what waits, limits of a server, mounts, ZFS, paths, and a virtual machine.
    fn busy_host() -> Tree {
        let group = "/sys/fs/cgroup/system.slice/smbd.service";
        let arc = |hits| format!("size 4 9\nc_max 4 99\nhits 4 {hits}\nmisses 4 0\n");
        let swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 9 9 -2\n";
        host()
            .file("/proc/pressure/memory", "full avg10=9.00 avg60=9.00 avg300=0.00 total=1\n")
            .file("/proc/swaps", swaps)
            .file("/proc/vmstat", "pswpin 9000\npswpout 0\n")
            .earlier("/proc/vmstat", "pswpin 0\npswpout 0\n")
            .file("/proc/7/comm", "smbd")
            .bytes("/proc/7/cmdline", b"smbd\0-F\0")
            .file("/proc/7/status", "VmSwap: 90000 kB\n")
            .file("/proc/7/cgroup", "0::/system.slice/smbd.service\n")
            .file("/sys/fs/cgroup/cgroup.controllers", "cpu")
            .file(&format!("{group}/cpu.max"), "1000 100000")
            .file(&format!("{group}/cpu.stat"), "nr_periods 9\nnr_throttled 9\n")
            .earlier(&format!("{group}/cpu.stat"), "nr_periods 1\nnr_throttled 1\n")
            .file("/proc/self/mountinfo", "22 1 8:1 / /srv rw - ext4 /dev/sda1 rw,sync\n")
            .file(
                &format!("{RECORDED}/room.json"),
                r#"{"is":{"/srv":{"is":{"used_bytes":99000000000,"free_bytes":1,"files":0,"free_files":0}}}}"#,
            )
            .file("/proc/fs/nfsd/exports", "/srv\t*(rw,async)\n")
            .file("/proc/meminfo", "MemTotal: 99 kB\nMemAvailable: 9 kB\n")
            .file("/proc/spl/kstat/zfs/arcstats", &arc(9000))
            .earlier("/proc/spl/kstat/zfs/arcstats", &arc(0))
            .file("/proc/spl/kstat/zfs/tank/state", "DEGRADED\n")
            .file("/sys/block/dm-1/dm/uuid", "mpath-1")
            .file("/sys/block/dm-1/slaves/sdx/x", "")
            .file("/sys/block/sdx/device/state", "offline")
            .file("/sys/class/iscsi_session/session1/state", "FAILED")
            .file(
                &format!("{RECORDED}/guests.json"),
                r#"[{"pid":9,"disks":[{"id":"d","cache":{"direct":true,"through":true,"no_flush":false},"aio":null,"iothread":true}]}]"#,
            )
    }

    #[test]
    fn what_newer_checks_read_is_in_a_record_as_well() {
        let tree = busy_host();
        let (_folder, system) = unpacked(&recorded(&tree));
        let verdicts = |system: System| -> Vec<(u8, Verdict)> {
            let of_system = |number: &u8| (56..=69).contains(number);
            let all = Host::look(system).examine().into_iter().map(|(check, said)| (check.number, said));
            all.filter(|(number, _)| of_system(number)).collect()
        };
        let (now, before) = (verdicts(system), verdicts(tree.system()));
        let found = before.iter().filter(|(_, verdict)| !verdict.clone().into_found().is_empty());
        let found: Vec<u8> = found.map(|(number, _)| *number).collect();
        assert_eq!(found, [56, 57, 58, 59, 61, 62, 65, 66, 68]);
        assert_eq!(now, before);
    }

    #[test]
    fn a_recorded_host_has_the_same_parts_and_the_same_findings() {
        let tree = host();
        let (_folder, system) = unpacked(&recorded(&tree));
        assert_eq!(format!("{:?}", topology::read(&system)), format!("{:?}", topology::read(&tree.system())));
        let verdicts = |system: System| {
            Host::look(system).examine().into_iter().map(|(check, said)| (check.number, said)).collect::<Vec<_>>()
        };
        let (now, before) = (verdicts(system), verdicts(tree.system()));
        assert!(before.iter().any(|(_, verdict)| !verdict.clone().into_found().is_empty()));
        assert_eq!(now, before);
    }

    #[test]
    fn what_could_not_be_read_cannot_be_read_of_the_record() {
        let tree = host().hidden("/sys/firmware/dmi/entries/17-1/raw");
        let (_folder, system) = unpacked(&recorded(&tree));
        assert!(
            topology::read(&system)
                .modules_hidden
                .is_some_and(|why| why.starts_with("/sys/firmware/dmi/entries/17-1/raw: "))
        );
    }

    #[test]
    fn what_nobody_read_is_not_in_it() {
        let tree = host()
            .file("/etc/forebay/config.toml", "secret")
            .file("/sys/class/net/ens1/address", "aa:bb:cc:00:11:22")
            .file("/proc/77/comm", "bash")
            .file("/proc/77/status", "Cpus_allowed_list: 0")
            .file("/proc/78/comm", "smbd")
            .bytes("/proc/78/cmdline", b"smbd\0-F\0--password=secret\0")
            .file("/proc/78/status", "Cpus_allowed_list: 0");
        let text = recorded(&tree).to_json().expect("JSON");
        for absent in ["secret", "aa:bb:cc", "/proc/77", "/etc/forebay"] {
            assert!(!text.contains(absent), "{absent}");
        }
        assert!(text.contains("/proc/78/status"));
    }

    #[test]
    fn a_record_of_this_host_says_what_this_host_says() {
        // What grows, and what memory is free at the moment, differs from look to look.
        const MOMENT: [u8; 14] = [9, 13, 14, 18, 19, 20, 24, 25, 27, 43, 56, 57, 58, 63];
        let (system, recorder) = System::live().recording();
        let host = Host::look(system);
        let ids = |verdicts: Vec<(&'static checks::Check, Verdict)>| -> Vec<String> {
            let steady = verdicts.into_iter().filter(|(check, _)| !MOMENT.contains(&check.number));
            steady
                .map(|(check, verdict)| match verdict {
                    Verdict::Found(found) | Verdict::FoundPart { found, .. } => {
                        format!(
                            "{} {:?}",
                            check.number,
                            found.into_iter().map(|finding| finding.id).collect::<Vec<_>>()
                        )
                    }
                    Verdict::Fine(fine) => format!("{} {}", check.number, fine.key),
                    Verdict::NotHere => format!("{} not here", check.number),
                    Verdict::NotSeen { .. } => format!("{} not seen", check.number),
                })
                .collect()
        };
        let live = ids(host.examine());
        let record = finish(recorder, &host);
        let (_folder, system) = unpacked(&record);
        let again = Host::look(system);
        let without_counts = |topology: &topology::Topology| {
            let mut topology = topology.clone();
            topology.interrupts.values_mut().for_each(|interrupt| interrupt.counts.clear());
            format!("{topology:?}")
        };
        assert_eq!(without_counts(&again.topology), without_counts(&host.topology));
        assert_eq!(ids(again.examine()), live);
        assert!(again.earlier.is_some());
    }
}
