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

    #[test]
    fn a_recorded_host_has_the_same_parts_and_the_same_findings() {
        let tree = host();
        let (_folder, system) = unpacked(&recorded(&tree));
        assert_eq!(format!("{:?}", topology::read(&system)), format!("{:?}", topology::read(&tree.system())));
        let verdicts = |system: System| {
            Host::look(system).examine().into_iter().map(|(check, said)| (check.number, said)).collect::<Vec<_>>()
        };
        let (now, before) = (verdicts(system), verdicts(tree.system()));
        assert!(before.iter().any(|(_, verdict)| matches!(verdict, Verdict::Found(_))));
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
        const MOMENT: [u8; 10] = [9, 13, 14, 18, 19, 20, 24, 25, 27, 43];
        let (system, recorder) = System::live().recording();
        let host = Host::look(system);
        let ids = |verdicts: Vec<(&'static checks::Check, Verdict)>| -> Vec<String> {
            let steady = verdicts.into_iter().filter(|(check, _)| !MOMENT.contains(&check.number));
            steady
                .map(|(check, verdict)| match verdict {
                    Verdict::Found(found) => {
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
