//! Backings that have nothing beside them: what another volume has in a device or an export, only its own record says.
//!
//! Invariant: no volume begins on a device or export that a recorded one has, or may have, even if that one left it complete: nothing
//! would tell it of the new one's writes, and each of the two would go on from its own tier, over the other one's.

use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::record::Record;
use forebay_io::backing::{BackingSpec, Target};
use forebay_io::{Backing, folder::FileKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Refuses a volume that has never served on a device or export that another one has. Of a regular file its marker speaks.
pub(super) fn refuse_backing_of_another(store: &Store, record: &Record, backing: &Backing) -> Result<()> {
    match backing.file() {
        Some(file) if file.kind() == FileKind::Regular => Ok(()),
        Some(file) => refuse(store, record, Some(file.file().metadata()?.rdev())),
        None => refuse(store, record, None),
    }
}

/// `device`: the number of the device; none of an export.
fn refuse(store: &Store, record: &Record, device: Option<u64>) -> Result<()> {
    let own = BackingSpec::parse(&record.backing)?;
    for name in store.names()?.into_iter().filter(|name| *name != record.name) {
        let other = store.load(&name).with_context(|| {
            format!(
                "cannot make volume {} on {}: the record of volume {name} cannot be read, and may name it; nothing was changed. Repair \
                 that file, or put it aside if nobody needs what that volume holds",
                record.name, record.backing
            )
        })?;
        let Some(other) = other.filter(|other| other.tier.made) else { continue };
        let Ok(spec) = BackingSpec::parse(&other.backing) else { continue };
        let is_same = own.target().same_place(spec.target())
            || matches!(spec.target(), Target::Path(path) if device.is_some() && number_of(path) == device);
        if is_same {
            bail!(
                "cannot make volume {} on {}: volume {name} has that backing, as its record says; nothing was changed. Use that volume, \
                 or delete it by `forebay volume delete {name}`",
                record.name,
                record.backing
            );
        }
    }
    Ok(())
}

/// The number of the block device that a path leads to; none where it leads to none now.
fn number_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device()).map(|found| found.rdev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::volume::VolumeSpec;
    use std::io::Write;

    fn spec_of(name: &str, backing: &str) -> VolumeSpec {
        VolumeSpec { name: name.into(), backing: backing.into(), ..VolumeSpec::default() }
    }

    #[test]
    fn an_export_that_another_volume_has_is_not_begun_on() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let record = |name: &str, backing: &str| crate::open::record_of(&store, &spec_of(name, backing)).unwrap();
        let new = record("new", "nbd://host/export");
        refuse(&store, &new, None).unwrap();
        let mut other = record("other", "slow:iops=7:nbd://host:10809/export");
        store.save(&other).unwrap();
        // It has never served.
        refuse(&store, &new, None).unwrap();
        other.tier.made = true;
        store.save(&other).unwrap();
        let refused = |new: &Record| format!("{:#}", refuse(&store, new, None).unwrap_err());
        assert!(refused(&new).contains("volume other has that backing"), "{}", refused(&new));
        refuse(&store, &record("new", "nbd://host/another"), None).unwrap();

        std::fs::write(store.dir().join("volumes/other.toml"), "torn").unwrap();
        assert!(refused(&new).contains("cannot be read"));
    }

    #[test]
    fn a_device_is_known_under_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("disk");
        let is_device = |path: &Path| number_of(path).is_some();
        let Some(device) = std::fs::read_dir("/sys/class/block").ok().and_then(|all| {
            let mut nodes = all.filter_map(|entry| Some(Path::new("/dev").join(entry.ok()?.file_name())));
            nodes.find(|node| is_device(node))
        }) else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: there is no block device here");
            return;
        };
        std::os::unix::fs::symlink(&device, &link).unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let spec = |name: &str, path: &Path| spec_of(name, path.to_str().unwrap());
        let mut other = crate::open::record_of(&store, &spec("other", &device)).unwrap();
        other.tier.made = true;
        store.save(&other).unwrap();
        let new = crate::open::record_of(&store, &spec("new", &link)).unwrap();
        let refused = refuse(&store, &new, number_of(&link)).unwrap_err();
        assert!(refused.to_string().contains("volume other has that backing"), "{refused}");
        assert_eq!(number_of(folder.path()), None);
    }
}
