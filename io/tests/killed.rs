//! A memory tier after SIGKILL: what it holds is a prefix of what the process stored, in the order of its stores.

use forebay_core::format::{DESCRIPTOR_BYTES, TierLayout};
use forebay_core::types::{FrameId, TierBlock};
use forebay_io::{Arena, MemoryTier};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "FOREBAY_TEST_TIER_OF_CHILD";
const TIER_BLOCKS: u32 = 256;
const WAIT: Duration = Duration::from_secs(20);

fn layout() -> TierLayout {
    TierLayout::memory(TIER_BLOCKS).unwrap()
}

/// Record n goes to slot n modulo slots: first the payload, then the descriptor, both full of n. For ever.
fn store_until_killed(path: &Path) -> ! {
    let layout = layout();
    let mut tier = MemoryTier::open(path, WAIT).unwrap();
    tier.set_table(layout.table_first, layout.table_blocks);
    let first = layout.payload_first as usize * 4096;
    let mut arena = Arena::within(tier.mapping().clone(), first, layout.payload_blocks);
    println!("ready");
    for n in 1u64.. {
        let slot = (n % u64::from(layout.payload_blocks)) as u32;
        for word in arena.bytes_mut(FrameId(slot)).chunks_exact_mut(8) {
            word.copy_from_slice(&n.to_le_bytes());
        }
        let descriptor = [n.to_le_bytes(); 4].concat();
        tier.describe(slot, descriptor.as_slice().try_into().unwrap());
    }
    unreachable!("2^64 records");
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn descriptors_and_payload_are_a_prefix_after_sigkill() {
    if let Some(path) = std::env::var_os(CHILD) {
        store_until_killed(Path::new(&path));
    }
    let folder = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
    let layout = layout();
    let slots = u64::from(layout.payload_blocks);
    let mut most = 0;
    for round in 0..25u64 {
        let path = folder.path().join(format!("tier-{round}"));
        drop(MemoryTier::create(&path, u64::from(TIER_BLOCKS) * 4096, WAIT).unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "descriptors_and_payload_are_a_prefix_after_sigkill", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "the child ended early");
        std::thread::sleep(Duration::from_micros(100 + round * 379));
        child.kill().unwrap();
        child.wait().unwrap();

        let tier = MemoryTier::open(&path, WAIT).unwrap();
        let table = tier.scan(TierBlock(layout.table_first), layout.table_blocks);
        let found: Vec<Vec<u64>> =
            (0..slots as usize).map(|slot| words(&table[slot * DESCRIPTOR_BYTES..][..DESCRIPTOR_BYTES])).collect();
        let whole = |words: &Vec<u64>| words.iter().all(|&word| word == words[0]);
        let last = found.iter().filter(|words| whole(words)).map(|words| words[0]).max().unwrap();
        most = most.max(last);
        for (slot, words_of_slot) in found.iter().enumerate() {
            // The newest record of this slot up to `last`; 0 where there was none yet.
            let back = (last % slots + slots - slot as u64) % slots;
            let expected = last.saturating_sub(back);
            let next_one = (last + 1) % slots == slot as u64;
            if !whole(words_of_slot) {
                assert!(next_one, "round {round}: slot {slot} is torn, and {last} was not just before it");
                continue;
            }
            assert_eq!(words_of_slot[0], expected, "round {round}: slot {slot} after record {last}");
            let payload = words(&tier.scan(TierBlock(layout.payload_first + slot as u32), 1));
            let right = |&word: &u64| word == expected || (next_one && word == last + 1);
            assert!(payload.iter().all(right), "round {round}: payload of record {expected} after record {last}");
        }
    }
    assert!(most > slots, "no child got so far that it used a slot twice ({most} records)");
}
