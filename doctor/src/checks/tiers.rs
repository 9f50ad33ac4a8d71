//! Check 69: whether a volume's tier lies on disks that are worth it.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::{Check, mounts, storage};
use crate::show;
use forebay_api::config::TierName;
use forebay_api::record::Record;
use forebay_host::mounts::{Mount, holding};
use forebay_host::system::System;
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
    let names: Vec<&String> = names.iter().filter(|name| name.ends_with(".toml")).take(VOLUMES_MAX).collect();
    if names.is_empty() {
        return gathered.verdict();
    }
    let mounted = gathered.see(forebay_host::mounts::mounts(&host.system)).unwrap_or_default();
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
            confidence: Confidence::Computed,
            text: text.with("volume", name),
            evidence: vec![Evidence::new(path, value)],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("tiers.help"), command: None }],
        })
    }
}

/// The whole disks below a file or a block device of this host; none where they are not known.
fn disks_below(host: &Host, mounted: &[Mount], path: &str) -> Option<BTreeSet<String>> {
    if path.starts_with("/dev/") {
        return mounts::disks_at(host, path);
    }
    let real = followed(&host.system, mounted, path)?;
    mounts::disks_of(host, holding(mounted, &real)?)
}

/// Where a path leads, links followed, but none that lies in a file system of others, which may hang. None: it leads there.
fn followed(system: &System, mounted: &[Mount], path: &str) -> Option<String> {
    /// As many as Linux follows.
    const LINKS_MAX: usize = 40;
    /// Folders on the way, those of links among them.
    const STEPS_MAX: usize = 256;
    let parts = |path: &str| -> Vec<String> {
        path.split('/').rev().filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (mut left, mut at, mut links, mut steps) = (parts(path), Vec::<String>::new(), 0, 0);
    while let Some(part) = left.pop() {
        steps += 1;
        if steps > STEPS_MAX {
            return None;
        }
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let here = format!("/{}", at.join("/"));
        if !holding(mounted, &here)?.is_of_disks() {
            return None;
        }
        let Ok(to) = std::fs::read_link(system.place(&here)) else { continue };
        links += 1;
        let to = to.to_str().filter(|_| links <= LINKS_MAX)?.to_owned();
        at.pop();
        if to.starts_with('/') {
            at.clear();
        }
        left.extend(parts(&to));
    }
    let real = format!("/{}", at.join("/"));
    holding(mounted, &real)?.is_of_disks().then_some(real)
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
    fn links_are_followed_where_that_cannot_hang() {
        let linked = host("/sda/x.img", "/tiers/x.tier").link("/tiers", "/nvme0n1");
        fine(&linked, 69);
        assert_eq!(one(&host("/nvme0n1/a/x.img", "/l/x").link("/l", "nvme0n1/a"), 69).id, "tier-place/a/same");
        not_here(&host("/sda/x.img", "/l/x").link("/l", "/nas"), 69);
        not_here(&host("/sda/x.img", "/l/x").link("/l", "/l"), 69);
        not_here(&host("/sda/x.img", &"/sda".repeat(300)), 69);
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
