//! `inspect` and `salvage` survive any tier and any journal, also ones whose checksums are right: no panic, nothing read
//! out of bounds, no memory by a length that only the tier claims.
#![no_main]

use arbitrary::Arbitrary;
use forebay_core::cluster::{Mark, PINS_MAX, Part, Pin};
use forebay_core::format::*;
use forebay_core::types::{BlockIndex, Group, Lsn, SectorMask, Start, Term, TierBlock};
use forebay_rescue::{inspect, salvage};
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

const VOLUME: [u8; 16] = [7; 16];
const BASE_BYTES: u64 = 128 << 10;
/// The file is not made longer, whatever its superblock claims.
const FILE_BLOCKS_MAX: u32 = 1024;
const PATCHES_MAX: usize = 48;

#[derive(Arbitrary, Debug)]
struct Record {
    lsn: u64,
    block: u64,
    group: u32,
    term: u8,
    kind: u8,
    mask: u8,
    blocks: u32,
    /// The checksum is that of a payload of zeros; else it is wrong.
    whole: bool,
    /// The numbers are taken as they are; else they are small, so that records meet.
    far: bool,
}

/// What one of several tiers remembers.
#[derive(Arbitrary, Debug)]
struct Member {
    committed: u64,
    above: [u64; PINS_MAX],
    through: [u64; PINS_MAX],
    block: u64,
    blocks: u32,
    small: bool,
}

impl Member {
    fn standing(&self) -> Standing {
        let near = |number: u64| if self.small { number % 64 } else { number };
        let part = Part { block: BlockIndex(near(self.block)), blocks: near(self.blocks.into()) as u32 };
        let pin = |i: usize| Pin {
            term: Term(1),
            above: Lsn(near(self.above[i])),
            through: Lsn(near(self.through[i])),
            part: if i == 0 { part } else { Part::default() },
        };
        let mark = Mark { pins: (0..PINS_MAX).map(pin).collect(), ..Mark::default() };
        Standing { committed: Lsn(near(self.committed)), mark, ..Standing::default() }
    }
}

#[derive(Arbitrary, Debug)]
enum Patch {
    Superblock {
        tier_blocks: u32,
        size_bytes: u64,
    },
    Checkpoint {
        sequence: u64,
        term: u8,
        destaged: u64,
        accepted: u64,
        synced: u64,
        size_bytes: u64,
        small: bool,
        member: Option<Member>,
    },
    Batch {
        place: u16,
        segment: u64,
        sequence: u64,
        synced: u64,
        term: u8,
        records: Vec<Record>,
        small: bool,
    },
    Entry {
        index: u16,
        record: Record,
    },
    Raw {
        at: u32,
        bytes: Vec<u8>,
    },
}

#[derive(Arbitrary, Debug)]
struct Area {
    second: bool,
    sequence: u64,
    through: u64,
    term: u8,
    records: Vec<Record>,
}

#[derive(Arbitrary, Debug)]
enum Act {
    Inspect,
    InspectJournal,
    Salvage,
    SalvageOverBase,
    SalvageJournal,
}

#[derive(Arbitrary, Debug)]
struct Input {
    act: Act,
    memory: bool,
    patches: Vec<Patch>,
    cut: Option<u32>,
    journal_blocks: u8,
    areas: Vec<Area>,
    journal_raw: Vec<(u16, Vec<u8>)>,
}

impl Record {
    fn descriptor(&self) -> Descriptor {
        let far = |number: u64, near: u64| if self.far { number } else { number % near };
        let (block, term) = (BlockIndex(far(self.block, 24) % (1 << 40)), Term(self.term.into()));
        let mask = SectorMask(self.mask.max(1));
        let kind = match self.kind % 4 {
            0 | 1 => {
                let checksum = payload_checksum(&VOLUME, block, mask, term, &[0; TIER_BLOCK_BYTES]);
                Kind::Data { mask, checksum: if self.whole { checksum } else { !checksum } }
            }
            2 => Kind::ZeroSectors { mask },
            _ => Kind::ZeroBlocks { blocks: far(self.blocks.into(), 24) as u32, hole: self.whole },
        };
        Descriptor { lsn: Lsn(far(self.lsn, 64)), block, group: Group(self.group), term, kind }
    }
}

fn descriptors(records: &[Record], most: usize) -> Vec<Descriptor> {
    records.iter().take(most).map(Record::descriptor).collect()
}

fn superblock(memory: bool, tier_blocks: u32, size_bytes: u64) -> Option<Superblock> {
    let layout = if memory { TierLayout::memory(tier_blocks) } else { TierLayout::flash(tier_blocks) }.ok()?;
    Some(Superblock {
        version: Version::Two,
        tier: 1,
        volume: VOLUME,
        name: [b'v'; 64],
        size_bytes,
        created_unix_s: 1,
        layout,
    })
}

fn put(file: &File, byte: u64, bytes: &[u8]) {
    file.write_all_at(bytes, byte).expect("the scratch folder has room");
}

fn put_block(file: &File, block: u32, bytes: &[u8]) {
    // A layout of the largest tier leads behind the end of any file that is made here.
    if block < FILE_BLOCKS_MAX {
        put(file, u64::from(block) * TIER_BLOCK_BYTES as u64, bytes);
    }
}

fn make_tier(input: &Input, path: &Path) {
    let file = File::create(path).expect("the scratch folder can be written to");
    let mut top = superblock(input.memory, TIER_BLOCKS_MIN, BASE_BYTES).expect("the least tier");
    file.set_len(u64::from(TIER_BLOCKS_MIN) * TIER_BLOCK_BYTES as u64).expect("a sparse file");
    for patch in input.patches.iter().take(PATCHES_MAX) {
        let layout = top.layout;
        match patch {
            Patch::Superblock { tier_blocks, size_bytes } => {
                if let Some(other) = superblock(input.memory, *tier_blocks, *size_bytes) {
                    top = other;
                }
            }
            Patch::Checkpoint { sequence, term, destaged, accepted, synced, size_bytes, small, member } => {
                let near = |number: u64, most: u64| if *small { number % most } else { number };
                let checkpoint = Checkpoint {
                    sequence: *sequence,
                    start: Start((*term).into()),
                    term: Term((*term).into()),
                    destaged: Lsn(near(*destaged, 64)),
                    accepted: Lsn(near(*accepted, 64)),
                    batches_synced: near(*synced, 32),
                    size_bytes: near(*size_bytes, 2 * BASE_BYTES),
                    standing: member.as_ref().map(Member::standing),
                    ..Checkpoint::default()
                };
                put_block(&file, checkpoint.place().0, &checkpoint.encode(Version::Two, &VOLUME));
            }
            Patch::Batch { place, segment, sequence, synced, term, records, small } => {
                let near = |number: u64| if *small { number % 32 } else { number };
                let place = layout.payload_first + u32::from(*place) % layout.payload_blocks;
                let batch = Batch {
                    segment: near(*segment),
                    sequence: near(*sequence),
                    synced_through: near(*synced),
                    start: Start((*term).into()),
                    records: descriptors(records, BATCH_DESCRIPTORS_MAX),
                };
                put_block(&file, place, &batch.encode(&VOLUME, TierBlock(place)));
            }
            Patch::Entry { index, record } => {
                let index = u32::from(*index) % (layout.table_blocks * DESCRIPTORS_PER_BLOCK).max(1);
                let at = layout.table_first + index / DESCRIPTORS_PER_BLOCK;
                if at < FILE_BLOCKS_MAX {
                    let byte = u64::from(at) * TIER_BLOCK_BYTES as u64
                        + u64::from(index % DESCRIPTORS_PER_BLOCK) * DESCRIPTOR_BYTES as u64;
                    put(&file, byte, &record.descriptor().encode(&VOLUME, index.into()));
                }
            }
            Patch::Raw { at, bytes } => put(&file, u64::from(*at % (2 << 20)), bytes),
        }
    }
    put_block(&file, 0, &top.encode());
    if let Some(cut) = input.cut {
        file.set_len(u64::from(cut % (4 << 20))).expect("a sparse file");
    }
}

fn make_journal(input: &Input, path: &Path) {
    let area_blocks = 2 + u32::from(input.journal_blocks % 62);
    let file = File::create(path).expect("the scratch folder can be written to");
    let mut top = vec![0u8; TIER_BLOCK_BYTES];
    top[..8].copy_from_slice(b"FBJFILE\0");
    top[8..10].copy_from_slice(&1u16.to_le_bytes());
    top[16..32].copy_from_slice(&VOLUME);
    top[32..36].copy_from_slice(&area_blocks.to_le_bytes());
    // The checksum as `docs/format.md` has it: over the block, mixed with volume and place.
    let sum = crc32c(&top) ^ crc32c(&[&VOLUME[..], &[0; 8]].concat());
    top[12..16].copy_from_slice(&sum.to_le_bytes());
    put(&file, 0, &top);
    for found in input.areas.iter().take(4) {
        let area = if found.second { area_blocks } else { 0 };
        let batch = JournalBatch {
            sequence: found.sequence,
            through: Lsn(found.through),
            term: Term(found.term.into()),
            records: descriptors(&found.records, 500),
        };
        put(&file, u64::from(1 + area) * TIER_BLOCK_BYTES as u64, &batch.encode(&VOLUME, area));
    }
    for (at, bytes) in input.journal_raw.iter().take(8) {
        put(&file, u64::from(*at), bytes);
    }
    file.set_len(u64::from(1 + 2 * area_blocks) * TIER_BLOCK_BYTES as u64).expect("a sparse file");
}

/// In memory, where there is a place for that.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let shm = Path::new("/dev/shm");
    let place = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    let folder = place.join(format!("forebay-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch folder can be made");
    let base = File::create(folder.join("base.img")).expect("the scratch folder can be written to");
    base.set_len(BASE_BYTES).expect("a sparse file");
    extern "C" fn remove() {
        let _ = std::fs::remove_dir_all(&*FOLDER);
    }
    // SAFETY: a function that touches nothing but files.
    unsafe { libc::atexit(remove) };
    folder
});

fuzz_target!(|input: Input| {
    let (tier, base) = (FOLDER.join("tier"), FOLDER.join("base.img"));
    let (journal, to) = (FOLDER.join("base.img.forebay-journal"), FOLDER.join("to.img"));
    make_tier(&input, &tier);
    make_journal(&input, &journal);
    // What they say of the bytes is theirs; that they say something is what is asked for.
    match input.act {
        Act::Inspect => {
            let _ = inspect::describe(&tier, false);
            if let Ok((text, _)) = inspect::describe(&tier, true) {
                serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
            }
        }
        Act::InspectJournal => {
            let _ = inspect::describe(&journal, false);
            let _ = inspect::describe(&journal, true);
        }
        Act::Salvage => drop(salvage::run(&tier, &to, None)),
        Act::SalvageOverBase => drop(salvage::run(&tier, &to, Some(&base))),
        Act::SalvageJournal => drop(salvage::run_journal(&journal, &to, Some(&base))),
    }
    let _ = std::fs::remove_file(&to);
});
