//! Check 69: whether a volume's tier lies on disks that are worth it.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::{Check, mounts, storage};
use crate::show;
use forebay_api::config::TierName;
use forebay_api::record::Record;
use forebay_host::mounts::{Mount, holding};
use forebay_io::backing::{BackingSpec, Target};
use std::collections::BTreeSet;

/// Check 69 alone.
pub const CHECKS: &[Check] = &[Check { number: 69, word: "tier-place", look: places }];

/// Volumes that are looked at.
const VOLUMES_MAX: usize = 256;

// Check 69. Reads the records of volumes, the mounts that tiers and backings lie in, and the disks below them. Rules: a tier shares a
// disk with its backing; all disks of a tier are of a slower kind than all of its backing.
fn places(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let folder = format!("{}/volumes", storage::state_folder(&host.system));
    let names = gathered.see(host.system.list(&folder)).unwrap_or_default();
    let mut names: Vec<&String> = names.iter().filter(|name| name.ends_with(".toml")).collect();
    if names.is_empty() {
        return gathered.verdict();
    }
    if names.len() > VOLUMES_MAX {
        gathered.hide(folder.clone(), Sentence::new("mounts.more"));
        names.truncate(VOLUMES_MAX);
    }
    let mounted = mounts::all(host, &mut gathered);
    let mut judged = 0;
    for name in names {
        let path = format!("{folder}/{name}");
        let Some(text) = gathered.see(host.system.text(&path)) else { continue };
        // A record of another version, or a damaged one, is the daemon's to tell.
        let Ok(record) = toml::from_str::<Record>(&text) else { continue };
        let Some(pair) = Pair::of(host, &mounted, &record) else { continue };
        judged += 1;
        if let Some(found) = pair.judged(host, path) {
            gathered.find(found);
        }
    }
    if judged > 0 {
        gathered.fine(Sentence::new("tiers.fine").with("count", judged));
    }
    gathered.verdict()
}

/// A tier of flash and its backing, each with the whole disks that it is on.
struct Pair<'a> {
    record: &'a Record,
    tier: BTreeSet<String>,
    backing: BTreeSet<String>,
}

impl<'a> Pair<'a> {
    /// None: there is no tier on disks, or the disks of one of the two are not known.
    fn of(host: &Host, mounted: &[Mount], record: &'a Record) -> Option<Pair<'a>> {
        if record.tier.kind != TierName::Flash {
            return None;
        }
        let spec = BackingSpec::parse(&record.backing).ok()?;
        let Target::Path(backing) = spec.target() else { return None };
        let backing = disks_below(host, mounted, backing.to_str()?)?;
        Some(Pair { record, tier: disks_below(host, mounted, record.tier.path.to_str()?)?, backing })
    }

    fn judged(&self, host: &Host, path: String) -> Option<Finding> {
        let list = |disks: &BTreeSet<String>| show::names(&disks.iter().collect::<Vec<_>>());
        let shared: BTreeSet<String> = self.tier.intersection(&self.backing).cloned().collect();
        let ranks =
            |disks: &BTreeSet<String>| disks.iter().map(|disk| mounts::rank(host, disk)).collect::<Option<Vec<u8>>>();
        let is_slower = || Some(ranks(&self.tier)?.into_iter().max()? < ranks(&self.backing)?.into_iter().min()?);
        let name = &self.record.name;
        let (word, text) = if !shared.is_empty() {
            ("same", Sentence::new("tiers.same").with("disks", list(&shared)))
        } else if is_slower() == Some(true) {
            let text = Sentence::new("tiers.slower").with("disks", list(&self.tier));
            ("slower", text.with("backing", list(&self.backing)))
        } else {
            return None;
        };
        let value = format!(
            "backing = {} ({}), tier.path = {} ({})",
            self.record.backing,
            list(&self.backing),
            self.record.tier.path.display(),
            list(&self.tier)
        );
        Some(Finding {
            id: format!("tier-place/{name}/{word}"),
            check: 69,
            severity: Severity::Warning,
            // A link on the way may lead elsewhere.
            confidence: Confidence::Likely,
            text: text.with("volume", name),
            evidence: vec![Evidence::new(path, value)],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("tiers.help"), command: None }],
        })
    }
}

/// The whole disks below a file or a block device of this host; none where they are not known. Of a file the path decides as it stands:
/// to follow its links would ask the file system, which may hang, or wake a disk.
fn disks_below(host: &Host, mounted: &[Mount], path: &str) -> Option<BTreeSet<String>> {
    if path.starts_with("/dev/") {
        return mounts::disks_at(host, path);
    }
    if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let mount = holding(mounted, &format!("/{}", parts.join("/")))?;
    mount.is_of_disks().then(|| mounts::disks_of(host, mount))?
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, not_here, not_seen, one, text};
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::mounts::MOUNTS;

    /// `sda` turns, `sdb` is of flash, `nvme0n1` is what it says; each is mounted at a folder of its name.
    fn host(backing: &str, tier: &str) -> Tree {
        let (sata, nvme) = ("0000:03:00.0", "0000:04:00.0");
        let tree = Tree::new().pci(sata, 0x010601, 0).driver(sata, "ahci").pci(nvme, 0x010802, 0).driver(nvme, "nvme");
        let tree = tree.disk("sda", sata, 9).disk("sdb", sata, 9).disk("nvme0n1", nvme, 9);
        let tree = tree.file("/sys/block/sda/queue/rotational", "1");
        let (mut lines, mut tree) = ("20 1 8:0 / / rw - ext4 /dev/sda rw\n".to_owned(), tree);
        for (number, disk) in ["sda", "sdb", "nvme0n1"].into_iter().enumerate() {
            lines += &format!("3{number} 20 8:{number} / /{disk} rw - xfs /dev/{disk} rw\n");
            tree = tree
                .link(&format!("/sys/dev/block/8:{number}"), &format!("../../block/{disk}"))
                .link(&format!("/sys/class/block/{disk}"), &format!("../../block/{disk}"));
        }
        lines += "40 20 0:50 / /nas rw - nfs4 nas:/x rw\n";
        let record = format!(
            "version = 1\nname = \"a\"\nvolume = \"00000000-0000-4000-8000-000000000001\"\nbacking = \"{backing}\"\nsize_bytes = 1\n\
             policy = \"back\"\nvolatile = false\nformat_raw = true\nmemory_bytes = 0\n\
             [tier]\nkind = \"flash\"\npath = \"{tier}\"\nsize_bytes = 4096\nmade = true\n"
        );
        assert!(toml::from_str::<Record>(&record).is_ok(), "{:?}", toml::from_str::<Record>(&record));
        tree.file(MOUNTS, &lines).file("/var/lib/forebay/volumes/a.toml", &record)
    }

    #[test]
    fn a_tier_on_the_disk_of_its_backing_or_on_a_slower_one_is_told() {
        for (backing, tier, word) in [
            ("/sda/x.img", "/sda/x.tier", "same"),
            ("/nvme0n1/x.img", "/dev/nvme0n1", "same"),
            ("/sdb/x.img", "/sda/x.tier", "slower"),
            ("/nvme0n1/x.img", "/sdb/x.tier", "slower"),
            ("/dev/nvme0n1", "/x.tier", "slower"),
        ] {
            let finding = one(&host(backing, tier), 69);
            assert_eq!((finding.id, finding.severity), (format!("tier-place/a/{word}"), Severity::Warning));
        }
        let finding = one(&host("/sdb/x.img", "/sda/x.tier"), 69);
        assert!(text(&finding).contains("sda") && text(&finding).contains("sdb"), "{}", text(&finding));
        assert_eq!(finding.evidence[0].source, "/var/lib/forebay/volumes/a.toml");
    }

    #[test]
    fn a_tier_on_a_faster_disk_or_on_another_of_the_same_kind_is_fine() {
        fine(&host("/sda/x.img", "/nvme0n1/x.tier"), 69);
        fine(&host("/sda/x.img", "/sdb/x.tier"), 69);
        // Which of a guest's disks is the slower one nobody knows; that they are the same is known.
        fine(&host("/sdb/x.img", "/sda/x.tier").virtual_machine(), 69);
        assert_eq!(one(&host("/sda/x.img", "/sda/x.tier").virtual_machine(), 69).id, "tier-place/a/same");
    }

    #[test]
    fn a_path_is_judged_by_the_mount_that_it_is_in_and_no_link_is_followed() {
        assert_eq!(one(&host("//sda/./x.img", "/sda/x").link("/sda", "/nvme0n1"), 69).id, "tier-place/a/same");
        not_here(&host("/sda/x.img", "/sda/../l/x"), 69);
        not_here(&host("/dev/../nas/x", "/sda/x"), 69);
        not_here(&host("/sda/x.img", "/nas/x"), 69);
        // Devices that are made of each other, layer upon layer, are looked at once each.
        let layers = (0..60).fold(host("/dev/dm-0", "/sda/x"), |tree, layer| {
            let below = |twin: u32| format!("dm-{}", layer * 2 + 2 + twin);
            [0, 1].into_iter().fold(tree, |tree, twin| {
                let name = format!("dm-{}", layer * 2 + twin);
                let tree = tree.disk(&name, "", 9);
                [0, 1].into_iter().fold(tree, |tree, to| {
                    let to = if layer == 59 { "sda".to_owned() } else { below(to) };
                    tree.file(&format!("/sys/block/{name}/slaves/{to}/x"), "")
                })
            })
        });
        assert_eq!(one(&layers, 69).id, "tier-place/a/same");
    }

    #[test]
    fn disks_at_another_host_or_usb_have_no_rank_and_btrfs_of_several_none_either() {
        let far = |way: &str| {
            let tree = host("/sdb/x.img", "/usb/x").file(&format!("{way}/block/sdz/size"), "99");
            let tree = tree.file(&format!("{way}/block/sdz/queue/rotational"), "1");
            tree.link("/sys/block/sdz", &format!("..{}/block/sdz", &way["/sys".len()..]))
        };
        for way in ["usb1/1-1/host7", "host7/session1", "host7/rport-7:0-0"] {
            let tree = far(&format!("/sys/devices/pci0000:03/0000:03:00.0/{way}/target7:0:0/7:0:0:0"));
            let looked = Host::look(tree.system());
            assert_eq!(mounts::rank(&looked, "sdz"), None, "{way}");
        }
        let btrfs = |devices: &[&str]| {
            let tree = host("/b/x.img", "/sda/x")
                .file(MOUNTS, "5 1 0:9 / /b rw - btrfs /dev/sda rw\n6 1 8:0 / /sda rw - xfs /dev/sda rw\n");
            devices.iter().fold(tree, |tree, name| tree.file(&format!("/sys/fs/btrfs/u/devices/{name}/x"), ""))
        };
        assert_eq!(one(&btrfs(&["sda"]), 69).id, "tier-place/a/same");
        not_here(&btrfs(&["sda", "sdb"]), 69);
        not_here(&btrfs(&[]), 69);
    }

    #[test]
    fn backings_elsewhere_and_records_that_are_hidden_absent_or_damaged_are_no_finding() {
        not_here(&host("/nas/x.img", "/sda/x.tier"), 69);
        not_here(&host("nbd://10.0.0.9/x", "/sda/x.tier"), 69);
        not_here(&Tree::new(), 69);
        let good = || host("/sda/x.img", "/sda/x.tier");
        not_here(&good().file("/var/lib/forebay/volumes/a.toml", "version = 9\n"), 69);
        not_here(&good().file(MOUNTS, "damaged"), 69);
        let hidden = host("/sda/x.img", "/nvme0n1/x").hidden("/var/lib/forebay/volumes/b.toml");
        assert!(not_seen(&hidden, 69).contains("volumes/b.toml: "));
    }
}
