//! The tier of a volume that is made: what lies in its place goes only where it is certain that nobody needs it.
//!
//! Invariants:
//! - Nothing is removed that another volume, or another process, has: it is removed under its lock, and looked at under that. A volume that
//!   is not open has nothing locked, and its tier may be damaged: what its record names is its own.
//! - In a place of the operator's goes only what says of itself that it is an unused tier of this volume, or what is all zeros.

use super::{TIER_LOCK_WAIT, find_tier};
use crate::memory_place;
use crate::names;
use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::config::TierName;
use forebay_api::record::{Record, VolumeId};
use forebay_api::units::show_size;
use forebay_core::format::{Superblock, TIER_FIXED_BLOCKS, TierLayout, Version};
use forebay_core::types::BLOCK_BYTES;
use forebay_io::folder::{FileKind, Held};
use forebay_io::{FlashTier, LockAttempt, MemoryTier, Tier};
use forebay_rescue::tier_reader::TierReader;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Makes the tier that a record names, where nothing is that anybody needs.
pub fn make_tier(store: &Store, record: &Record, progress: &mut dyn FnMut(u64, u64)) -> Result<(Tier, Superblock)> {
    let (path, bytes) = (&record.tier.path, record.tier.size_bytes);
    let blocks = u32::try_from(bytes / BLOCK_BYTES).context("a tier has at most 8 TiB")?;
    let layout = match record.tier.kind {
        TierName::Memory => TierLayout::memory(blocks),
        TierName::Flash => TierLayout::flash(blocks),
    };
    let layout = layout.map_err(|reason| anyhow::anyhow!("a tier of {}: {reason}", show_size(bytes)))?;
    let mut identity = [0; 8];
    forebay_io::machine::random_bytes(&mut identity)?;
    refuse_foreign_tier(path, record)?;
    refuse_recorded(store, record)?;
    if is_own_place(store, record) {
        clear_own_place(path, record)?;
    } else {
        clear_unused_tier(path, record)?;
    }
    let tier = match record.tier.kind {
        TierName::Memory => Tier::Memory(MemoryTier::create(path, bytes, TIER_LOCK_WAIT)?),
        TierName::Flash => {
            Tier::Flash(FlashTier::create(path, bytes, true, TIER_LOCK_WAIT, |done| progress(done, bytes))?)
        }
    };
    let mut name = [0u8; 64];
    name[..record.name.len()].copy_from_slice(record.name.as_bytes());
    let created = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let superblock = Superblock {
        version: Version::Two,
        tier: u64::from_le_bytes(identity),
        volume: record.volume.0,
        name,
        size_bytes: record.size_bytes,
        created_unix_s: created,
        layout,
    };
    Ok((tier, superblock))
}

/// Whether its tier lies under a name that Forebay gives to this volume's tiers alone, in a folder of its own, and no other volume was given
/// it by its operator, as far as all records say: whatever else lies there was left by a start of this volume.
pub fn is_own_place(store: &Store, record: &Record) -> bool {
    let is_named_so = record.tier.path == store.tier_path(&record.name)
        || memory_place::is_of_volume(&record.tier.path, &record.name);
    is_named_so && matches!(recorded_for_another(store, record), Ok(None))
}

/// The other volume whose record names the place of this one's tier; an error where a record cannot be read, and so may name it.
fn recorded_for_another(store: &Store, record: &Record) -> Result<Option<String>> {
    let (mut unread, path) = (Ok(None), &record.tier.path);
    let place = place_of(path);
    // One place may have many names: links to it, links to its folder, and device nodes.
    let is_same = |other: &PathBuf| other == path || place.is_some() && place_of(other) == place;
    for name in store.names()?.into_iter().filter(|name| *name != record.name) {
        match store.load(&name) {
            Ok(Some(other)) if is_same(&other.tier.path) || other.spare.as_ref().is_some_and(is_same) => {
                return Ok(Some(name));
            }
            Ok(_) => {}
            Err(error) => unread = Err(error),
        }
    }
    unread
}

/// What a path leads to, as numbers: of a file its file system's and its own, of a device its own alone. None: nothing is there, or it
/// cannot be looked at.
fn place_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    if found.file_type().is_block_device() { Some((found.rdev(), 0)) } else { Some((found.dev(), found.ino())) }
}

/// A place that the record of another volume names is that volume's, whatever lies there now.
fn refuse_recorded(store: &Store, record: &Record) -> Result<()> {
    match recorded_for_another(store, record) {
        Ok(Some(other)) => bail!(
            "cannot make a tier at {}: volume {other} has it, as its record says; nothing was changed. Give another --tier-path, or \
             delete that volume first if nobody needs what it holds",
            record.tier.path.display()
        ),
        // What a record that cannot be read names is not known: then only what is certainly nobody's goes.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// What a start that ended before the volume served has left in the place of this volume's tiers: nothing was ever stored in it. Another
/// volume may have been given that place for its tier by its operator: whoever has it has it locked, and says whose it is once it serves.
fn clear_own_place(path: &Path, record: &Record) -> Result<()> {
    let is_file = |found: std::fs::Metadata| found.file_type().is_file();
    // Where a link or a device lies, an operator has put it: what is behind that is not Forebay's alone.
    if !std::fs::symlink_metadata(path).is_ok_and(is_file) {
        return clear_unused_tier(path, record);
    }
    let Some(held) = find_tier(path)? else { return Ok(()) };
    let claimed = claim_unused(&held, true)?;
    refuse_foreign(&held, record)?;
    held.remove().with_context(|| format!("cannot remove {}", path.display()))?;
    drop(claimed);
    Ok(())
}

/// What a start that ended before the volume served has left in a place of the operator's: it is removed if it can be
/// nothing else. Until a volume is recorded as made no client has seen it, so its tier holds no write.
pub(super) fn clear_unused_tier(path: &Path, record: &Record) -> Result<()> {
    let Some(held) = find_tier(path)? else { return Ok(()) };
    let is_ours = || -> Result<bool> {
        let found = TierReader::of(&held)?;
        Ok(found.superblock().is_ok_and(|superblock| superblock.volume == record.volume.0))
    };
    // It is looked at once more under the claim, which may have been waited for.
    let ours = is_ours()?;
    match held.kind()? {
        FileKind::Regular => {
            let claimed = claim_unused(&held, ours)?;
            if !is_ours()? && !is_all_zeros(&held)? {
                bail!(
                    "cannot make a tier at {}: there is a file that is not an unused tier of volume {}; nothing was changed. \
                     Give another --tier-path, or remove the file if nobody needs it",
                    path.display(),
                    record.name
                );
            }
            held.remove().with_context(|| format!("cannot remove {}", path.display()))?;
            drop(claimed);
            Ok(())
        }
        FileKind::Block if ours => {
            // Writes of the former process have ended when the device can be claimed.
            let tier = FlashTier::open_held(&held, TIER_LOCK_WAIT)?;
            if !is_ours()? {
                bail!(
                    "cannot make a tier at {}: it is another one by now, not the unused tier of volume {}; nothing was changed. Give \
                     another --tier-path",
                    path.display(),
                    record.name
                );
            }
            wipe_fixed_blocks(&held).with_context(|| format!("cannot wipe the unused tier on {}", path.display()))?;
            drop(tier);
            Ok(())
        }
        // Whether it is empty is looked at when it is taken.
        FileKind::Block => Ok(()),
    }
}

/// Locks a file that may be removed: an empty one may be somebody's new image. Requests of a former start of ours are awaited.
fn claim_unused(held: &Held, ours: bool) -> Result<std::fs::File> {
    let path = held.path().display();
    if let Some(user) = forebay_io::backing::user_of(held) {
        bail!("cannot make a tier at {path}: the file is {user}; nothing was changed. Give another --tier-path");
    }
    let wait = if ours { TIER_LOCK_WAIT } else { std::time::Duration::ZERO };
    let file = held.open(true, 0).with_context(|| format!("cannot open {path}"))?;
    match forebay_io::lock::await_lock(&file, wait).with_context(|| format!("cannot lock {path}"))? {
        LockAttempt::Locked => Ok(file),
        LockAttempt::HeldBy(holder) => bail!(
            "cannot make a tier at {path}: the file is in use by {holder}; nothing was changed. Give another --tier-path, or end \
             that use"
        ),
    }
}

/// Whether nothing was ever stored in a file or device.
pub fn is_all_zeros(held: &Held) -> Result<bool> {
    use std::io::Read;
    let path = held.path();
    let mut file = held.open(false, 0).with_context(|| format!("cannot read {}", path.display()))?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).with_context(|| format!("cannot read {}", path.display()))? {
            0 => return Ok(true),
            read if piece[..read].iter().any(|&byte| byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Superblock and checkpoints: all that formatting has written.
pub(super) fn wipe_fixed_blocks(held: &Held) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = held.open(true, 0)?;
    file.write_all_at(&vec![0; TIER_FIXED_BLOCKS as usize * BLOCK_BYTES as usize], 0)?;
    file.sync_all()
}

/// A device or file that holds the tier of another volume is not made into a new one.
fn refuse_foreign_tier(path: &Path, record: &Record) -> Result<()> {
    let Some(held) = find_tier(path)? else { return Ok(()) };
    refuse_foreign(&held, record)
}

fn refuse_foreign(held: &Held, record: &Record) -> Result<()> {
    if let Ok(superblock) = TierReader::of(held)?.superblock()
        && superblock.volume != record.volume.0
    {
        let path = held.path();
        bail!(
            "{} holds the tier of volume {}; wipe it first if that volume is gone (`wipefs`, or `dd if=/dev/zero bs=4k count=1`)",
            path.display(),
            names::shown_in_full(VolumeId(superblock.volume))
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::{DestageName, PolicyName};
    use forebay_api::record::{STORE_VERSION, TierRecord};

    fn record(path: &Path) -> Record {
        Record {
            version: STORE_VERSION,
            name: "vm1".into(),
            volume: VolumeId([7; 16]),
            backing: "/x.img".into(),
            size_bytes: 1 << 30,
            policy: PolicyName::Back,
            drain_max_s: 0,
            volatile: false,
            format_raw: false,
            memory_bytes: 64 << 20,
            destage: DestageName::Auto,
            journal_bytes: 0,
            spare: None,
            common: Default::default(),
            tier: TierRecord { kind: TierName::Flash, path: path.into(), size_bytes: 1 << 22, made: false },
        }
    }

    #[test]
    fn a_tier_left_by_a_start_that_never_served_is_made_again_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tier");
        let record = record(&path);
        clear_unused_tier(&path, &record).unwrap();

        // Whose new image that is the file itself cannot say; its lock can.
        let in_use = std::fs::File::create(&path).unwrap();
        in_use.set_len(3 << 20).unwrap();
        assert_eq!(forebay_io::lock::try_lock(&in_use).unwrap(), LockAttempt::Locked);
        let error = format!("{:#}", clear_unused_tier(&path, &record).unwrap_err());
        assert!(error.contains("in use by") && path.exists(), "{error}");
        drop(in_use);

        for length in [0, 3 << 20] {
            std::fs::write(&path, vec![0; length]).unwrap();
            clear_unused_tier(&path, &record).unwrap();
            assert!(!path.exists(), "{length} bytes prepared, but not formatted");
        }

        let layout = TierLayout::flash(1024).unwrap();
        let tier = |volume| {
            let mut bytes = Superblock {
                version: Version::Two,
                tier: 1,
                volume,
                name: [0; 64],
                size_bytes: 1 << 30,
                created_unix_s: 0,
                layout,
            }
            .encode();
            bytes.resize(4 << 20, 0);
            bytes
        };
        std::fs::write(&path, tier([7; 16])).unwrap();
        clear_unused_tier(&path, &record).unwrap();
        assert!(!path.exists(), "formatted for this volume, which has never served");

        let mut last_byte = vec![0; 3 << 20];
        *last_byte.last_mut().unwrap() = 1;
        for others in [tier([8; 16]), last_byte] {
            std::fs::write(&path, &others).unwrap();
            let error = format!("{:#}", clear_unused_tier(&path, &record).unwrap_err());
            assert!(error.contains("nothing was changed"), "{error}");
            assert!(std::fs::read(&path).unwrap() == others);
        }
    }
    #[test]
    fn a_memory_tier_in_a_place_of_the_operators_is_made_over_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let path = folder.path().join("anything");
        let mut record = record(&path);
        record.tier.kind = TierName::Memory;
        std::fs::write(&path, "of anybody's").unwrap();
        let error = format!("{:#}", make_tier(&store, &record, &mut |_, _| {}).unwrap_err());
        assert!(error.contains("nothing was changed"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"of anybody's");
        assert!(!is_own_place(&store, &record));
        record.tier.path = store.tier_path("vm1");
        assert!(is_own_place(&store, &record));
    }

    /// A tier that another volume was given there is locked, long before it says whose it is.
    #[test]
    fn what_lies_in_the_place_of_a_volumes_tiers_goes_only_where_nobody_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let path = store.tier_path("vm1");
        let record = record(&path);
        std::fs::write(&path, "left by a start").unwrap();
        let in_use = std::fs::File::options().write(true).open(&path).unwrap();
        assert_eq!(forebay_io::lock::try_lock(&in_use).unwrap(), LockAttempt::Locked);
        std::thread::scope(|scope| {
            let made = scope.spawn(|| make_tier(&store, &record, &mut |_, _| {}).map(drop));
            // Its taker may come at any time before the lock is given back; it is there then.
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                assert_eq!(std::fs::read(&path).unwrap(), b"left by a start");
            }
            drop(in_use);
            made.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::metadata(&path).unwrap().len(), record.tier.size_bytes);

        // What a link leads to is not this volume's alone.
        std::fs::remove_file(&path).unwrap();
        let target = folder.path().join("of anybody's");
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(make_tier(&store, &record, &mut |_, _| {}).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"precious");
    }

    /// A volume that is not open has nothing locked, and a tier that is damaged does not say whose it is.
    #[test]
    fn a_damaged_tier_that_another_record_names_is_not_what_a_start_has_left() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let path = store.tier_path("vm1");
        let record = record(&path);
        let mut other = Record { name: "other".into(), volume: VolumeId([8; 16]), ..record.clone() };
        other.tier.made = true;
        store.save(&other).unwrap();
        std::fs::write(&path, "damaged, with writes").unwrap();
        let refused = format!("{:#}", make_tier(&store, &record, &mut |_, _| {}).map(drop).unwrap_err());
        assert!(refused.contains("volume other has it") && !is_own_place(&store, &record), "{refused}");
        // Under another name it is the same.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(store.tier_path("vm1").parent().unwrap(), &link).unwrap();
        store.save(&Record { tier: TierRecord { path: link.join("vm1.tier"), ..other.tier }, ..other }).unwrap();
        let refused = format!("{:#}", make_tier(&store, &record, &mut |_, _| {}).map(drop).unwrap_err());
        assert!(refused.contains("volume other has it") && !is_own_place(&store, &record), "{refused}");
        // What it names is not known any more, so it may be this.
        std::fs::write(store.dir().join("volumes/other.toml"), "torn").unwrap();
        assert!(make_tier(&store, &record, &mut |_, _| {}).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"damaged, with writes");
        store.remove("other").unwrap();
        make_tier(&store, &record, &mut |_, _| {}).unwrap();
    }
}
