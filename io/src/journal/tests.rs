//! The file itself: its first block, its making and removal, and the smallest unit that a replay writes.

use super::replay::{Sectors, write_window};
use super::*;
use crate::backing::{Backing, BackingOptions};
use crate::file_error::FileProblem;
use forebay_core::types::{BlockIndex, SectorMask};

const VOLUME: [u8; 16] = *b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";
const SECOND: Duration = Duration::from_secs(1);
/// Computed by a second implementation of `docs/format.md`.
const GOLDEN: &str = "46424a46494c45000100000033ca4afb101112131415161718191a1b1c1d1e1f00040000";
const AREAS: u64 = 2 * 64 * BLOCK;

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    std::fs::write(&image, [0; 4096]).unwrap();
    let path = path_of(&image).unwrap();
    (folder, path)
}

/// Changes the first block and seals it again, so that the checksum does not hide the check behind it.
fn change_first_block(path: &Path, change: impl FnOnce(&mut [u8])) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    bytes[12..16].fill(0);
    let volume: [u8; 16] = bytes[16..32].try_into().unwrap();
    let sum = JournalSuperblock::checksum(&volume, &bytes[..4096]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn the_first_block_is_golden_both_ways() {
    let superblock = JournalSuperblock { volume: VOLUME, area_blocks: 1024 };
    let bytes = superblock.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(&hex[..GOLDEN.len()], GOLDEN);
    assert!(bytes[GOLDEN.len() / 2..].iter().all(|&byte| byte == 0));
    assert_eq!(JournalSuperblock::decode(&bytes), Ok(superblock));
    assert_eq!(superblock.file_bytes(), 2049 * 4096);
    for at in 0..4096 {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0x10;
        assert!(JournalSuperblock::decode(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn a_journal_is_reserved_found_again_and_removed() {
    let (folder, path) = place();
    assert!(path.to_str().unwrap().ends_with("/disk.img.forebay-journal"));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("disk.img"), &link).unwrap();
    assert_eq!(path_of(&link).unwrap(), path, "found by every name of the image");
    assert!(path_of(&folder.path().join("missing")).is_err());

    remove(&path, &VOLUME).unwrap();
    std::fs::write(path.with_extension("forebay-journal.new"), b"an interrupted attempt").unwrap();
    let journal = Journal::create(&path, &VOLUME, AREAS, SECOND).unwrap();
    assert_eq!((journal.blocks(), journal.path()), (128, path.as_path()));
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 4096 + AREAS);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 >= metadata.len(), "no room is missing later");
    assert!(!path.with_extension("forebay-journal.new").exists());
    assert!(matches!(Journal::create(&path, &VOLUME, AREAS, SECOND), Err(JournalError::Exists { .. })));
    let second = Journal::open(&path, &VOLUME, Duration::from_millis(30)).unwrap_err();
    assert!(second.to_string().contains(&format!("process {}", std::process::id())), "{second}");
    drop(journal);
    assert_eq!(Journal::open(&path, &VOLUME, SECOND).unwrap().blocks(), 128);
    remove(&path, &VOLUME).unwrap();
    assert!(!path.exists());
    assert!(matches!(
        Journal::open(&path, &VOLUME, SECOND),
        Err(JournalError::File(FileError { problem: FileProblem::Failed { .. }, .. }))
    ));
}

#[test]
fn a_journal_that_may_hold_a_batch_is_neither_used_nor_removed() {
    let (_folder, path) = place();
    drop(Journal::create(&path, &VOLUME, AREAS, SECOND).unwrap());
    let clean = std::fs::read(&path).unwrap();
    for area in [0u64, 64] {
        let mut bytes = clean.clone();
        bytes[byte_of(area) as usize + 4095] = 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(Journal::open(&path, &VOLUME, SECOND), Err(JournalError::NotReplayed { .. })));
        let error = remove(&path, &VOLUME).unwrap_err();
        assert!(matches!(error, JournalError::NotReplayed { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn what_is_no_whole_journal_of_ours_is_refused_untouched() {
    let (_folder, path) = place();
    drop(Journal::create(&path, &VOLUME, AREAS, SECOND).unwrap());
    let good = std::fs::read(&path).unwrap();
    let refused = |text: &str| {
        let before = std::fs::read(&path).unwrap();
        let error = Journal::open(&path, &VOLUME, SECOND).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        std::fs::write(&path, &good).unwrap();
    };
    std::fs::write(&path, &good[..good.len() - 4096]).unwrap();
    refused("was made with 528384");
    std::fs::write(&path, [good.as_slice(), &[0; 512]].concat()).unwrap();
    refused("was made with 528384");
    std::fs::write(&path, [0; 8192]).unwrap();
    refused("does not begin like a journal");
    std::fs::write(&path, b"").unwrap();
    refused("does not begin like a journal");
    change_first_block(&path, |b| b[8] = 2);
    refused("newer version");
    change_first_block(&path, |b| b[32..36].fill(0xff));
    refused("impossible length");
    change_first_block(&path, |b| b[16] ^= 0xff);
    refused("belongs to volume ef111213-1415-1617-1819-1a1b1c1d1e1f and not to volume 10111213-1415-1617");
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    refused("first block is damaged");
}

#[test]
fn lengths_follow_the_volume_and_impossible_ones_make_nothing() {
    assert_eq!(areas_bytes_default(512), 8 << 20);
    assert_eq!(areas_bytes_default(256 << 20), 32 << 20);
    assert_eq!(areas_bytes_default(64 << 40), 128 << 20);
    for bytes in [0, 8192, 16384 + 4096, 16 << 30] {
        let (folder, path) = place();
        assert!(
            matches!(
                Journal::create(&path, &VOLUME, bytes, SECOND),
                Err(JournalError::File(FileError { problem: FileProblem::Unusable(_), .. }))
            ),
            "{bytes}"
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    for volume in [512, 100_000_512, 1 << 40] {
        let (_folder, path) = place();
        Journal::create(&path, &VOLUME, areas_bytes_default(volume), SECOND).unwrap();
    }
}

#[test]
fn room_that_cannot_be_reserved_is_written() {
    let (folder, _) = place();
    let path = folder.path().join("zeros");
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let length = (2 << 20) + 3 * 4096;
    write_zeros(&file, &path, length).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), length);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) * 512 >= length);
    assert!(std::fs::read(&path).unwrap().iter().all(|&byte| byte == 0));
}

/// On a medium of 4 KiB sectors the rest of a block is read and written again; what lies around it stays.
#[test]
fn both_units_write_the_same_bytes() {
    let mut written = Vec::new();
    for align in [512, 4096] {
        let (folder, _) = place();
        let image = folder.path().join("disk.img");
        let old: Vec<u8> = (0..8 * 4096).map(|i| (i / 512) as u8 + 1).collect();
        std::fs::write(&image, &old).unwrap();
        let mut backing = Backing::open(image.to_str().unwrap(), BackingOptions::default()).unwrap();
        assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
        let payload: Vec<u8> = (0..2 * 4096).map(|i| 0x80 | (i / 512) as u8).collect();
        let part = |block, mask, payload| Sectors { block: BlockIndex(block), mask: SectorMask(mask), payload };
        let parts = vec![
            part(6, 0b0001_0010, Some(1)),
            part(2, 0xff, Some(0)),
            part(3, 0b1000_0001, None),
            part(2, 0b0000_0100, Some(1)),
            part(2, 0b0000_1100, None),
        ];
        write_window(&mut backing, align, parts, &payload).unwrap();
        let mut expected = old;
        let mut put = |sector: usize, byte: u8| expected[sector * 512..][..512].fill(byte);
        (0..8).for_each(|i| put(16 + i, 0x80 | i as u8));
        [(18, 0), (19, 0), (24, 0), (31, 0), (49, 0x89), (52, 0x8c)].into_iter().for_each(|(at, byte)| put(at, byte));
        let found = std::fs::read(&image).unwrap();
        assert!(found == expected, "in units of {align}");
        written.push((backing.stats.reads.operations, backing.stats.writes.operations));
    }
    // By sectors: block 2 with the first sector of block 3, its last one, and two of block 6. By blocks: 2 with 3, and 6.
    assert_eq!(written, [(0, 4), (2, 2)]);
}
