//! The seeds whose decisions are compared, in blocks, and what is expected of each: `sim/digest.txt`.
//!
//! One line has a world and the digest of all its seeds, those under it have its blocks: a difference names the few seeds to look at.

use crate::digest::{Digest, recorded};
use crate::ownership::chaos;
use crate::run::{self, Failure};
use crate::situations::journaled;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kind of world, and how many seeds of it are compared.
pub struct Kind {
    /// Its name in the file of digests.
    pub name: &'static str,
    seeds: u64,
    block: u64,
    run: fn(u64) -> Result<(), Failure>,
}

/// All of them: 2,000 seeds, few of the worlds that take longest.
pub const KINDS: [Kind; 8] = [
    Kind { name: "one-node", seeds: 400, block: 20, run: |seed| run::run_seed(seed, None, false).map(drop) },
    Kind {
        name: "journal",
        seeds: 160,
        block: 20,
        run: |seed| run::run_setup("journal", journaled(seed), seed, false).map(drop),
    },
    Kind { name: "cluster", seeds: 40, block: 2, run: |seed| run::run_cluster_seed(seed, false).map(drop) },
    Kind { name: "restless", seeds: 20, block: 2, run: |seed| run::run_restless_seed(seed, false).map(drop) },
    Kind { name: "hostile", seeds: 20, block: 2, run: |seed| run::run_hostile_seed(seed, false).map(drop) },
    Kind { name: "migrating", seeds: 20, block: 2, run: |seed| run::run_migrating_seed(seed, false).map(drop) },
    Kind { name: "parted", seeds: 20, block: 2, run: |seed| run::run_parted_seed(seed, false).map(drop) },
    Kind {
        name: "ownership",
        seeds: 1320,
        block: 60,
        run: |seed| chaos::run_seed(seed, forebay_core::ownership::Rules::default(), false).map(drop),
    },
];

/// Some seeds of a kind that follow each other: its place among [`KINDS`], and the seeds.
pub type Block = (usize, Range<u64>);

/// The digest of each block of seeds.
pub type Digests = BTreeMap<(usize, u64), u64>;

/// Every block, those that take longest first.
pub fn all() -> Vec<Block> {
    (0..KINDS.len()).rev().flat_map(|kind| first(kind, KINDS[kind].seeds / KINDS[kind].block)).collect()
}

/// The first block of each kind.
pub fn share() -> Vec<Block> {
    (0..KINDS.len()).rev().flat_map(|kind| first(kind, 1)).collect()
}

fn first(kind: usize, count: u64) -> impl Iterator<Item = Block> {
    let block = KINDS[kind].block;
    (0..count).map(move |at| (kind, at * block..(at + 1) * block))
}

/// What is decided in the runs of a block.
fn digest_of((kind, seeds): &Block) -> Result<u64, Failure> {
    let mut digest = Digest::default();
    for seed in seeds.clone() {
        let (run, decided) = recorded(|| (KINDS[*kind].run)(seed));
        run?;
        digest.number(decided);
    }
    Ok(digest.value())
}

/// The same of many, on all CPUs. The first run that breaks a promise is the error.
pub fn digests_of(blocks: &[Block]) -> Result<Digests, Failure> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(block) = blocks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let digest = digest_of(block)?;
            done.push(((block.0, block.1.start), digest));
        }
        Ok(done)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut digests = Digests::new();
        for worker in workers {
            digests.extend(worker.join().expect("a run's panic is caught")?);
        }
        Ok(digests)
    })
}

/// Where the expected digests are.
pub const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/digest.txt");

const HEAD: &str = "\
# What the cores decide: a digest of every effect of these seeds (sim/src/digest). Written by
#   cargo run -p forebay-sim -- digest --write
# in a commit that is alone and changes decisions on purpose; compared by the same without --write.
";

/// The text of the file.
pub fn text_of(digests: &Digests) -> String {
    let mut text = HEAD.to_string();
    for (kind, Kind { name, seeds, block, .. }) in KINDS.iter().enumerate() {
        let of_kind: Vec<_> =
            digests.range((kind, 0)..(kind + 1, 0)).map(|((_, from), digest)| (from, digest)).collect();
        let mut whole = Digest::default();
        of_kind.iter().for_each(|(_, digest)| whole.number(**digest));
        let _ = writeln!(text, "{name} 0..{seeds} {:016x}", whole.value());
        for (from, digest) in of_kind {
            let _ = writeln!(text, "    {from}..{} {digest:016x}", from + block);
        }
    }
    text
}

/// Back from the text. The error says which line is wrong.
pub fn digests_in(text: &str) -> Result<Digests, String> {
    let mut digests = Digests::new();
    let mut kind = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let wrong = || format!("digest.txt: what is {line:?}?");
        match (line.strip_prefix("    "), kind) {
            (Some(block), Some(kind)) => {
                let (seeds, digest) = block.split_once(' ').ok_or_else(wrong)?;
                let (from, _) = seeds.split_once("..").ok_or_else(wrong)?;
                let from = from.parse().map_err(|_| wrong())?;
                let digest = u64::from_str_radix(digest, 16).map_err(|_| wrong())?;
                digests.insert((kind, from), digest);
            }
            _ => {
                let name = line.split(' ').next();
                kind = Some(KINDS.iter().position(|kind| Some(kind.name) == name).ok_or_else(wrong)?);
            }
        }
    }
    Ok(digests)
}

/// The digests that are checked in.
pub fn expected() -> Result<Digests, String> {
    let text = std::fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    digests_in(&text)
}

/// For each kind that differs, its first block that does: what to look at.
pub fn differences(found: &Digests, expected: &Digests) -> Vec<String> {
    let differs = |(place, digest): &(&(usize, u64), &u64)| expected.get(place) != Some(*digest);
    let mut kinds: Vec<Vec<u64>> = vec![Vec::new(); KINDS.len()];
    found.iter().filter(differs).for_each(|((kind, from), _)| kinds[*kind].push(*from));
    let told = |(kind, blocks): (usize, Vec<u64>)| {
        let first = blocks.first()?;
        let Kind { name, block, .. } = KINDS[kind];
        let count = blocks.len();
        Some(format!("{name}: other decisions, first in seeds {first}..{}, in {count} blocks", first + block))
    };
    kinds.into_iter().enumerate().filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_two_thousand_seeds_in_whole_blocks() {
        assert_eq!(all().iter().map(|(_, seeds)| seeds.end - seeds.start).sum::<u64>(), 2_000);
        assert!(KINDS.iter().all(|kind| kind.seeds.is_multiple_of(kind.block)));
    }

    #[test]
    fn the_file_is_what_is_written_of_all_blocks() {
        let text = std::fs::read_to_string(PATH).expect("it is checked in");
        let digests = digests_in(&text).expect("lines that are understood");
        assert_eq!(text_of(&digests), text);
        assert!(all().iter().all(|(kind, seeds)| digests.contains_key(&(*kind, seeds.start))));
        assert_eq!(digests.len(), all().len());
    }

    #[test]
    fn a_difference_names_the_world_and_the_first_block() {
        let expected: Digests = all().into_iter().map(|(kind, seeds)| ((kind, seeds.start), 1)).collect();
        assert!(differences(&expected, &expected).is_empty());
        let mut found = expected.clone();
        [(0, 40), (0, 80), (7, 60)].into_iter().for_each(|place| *found.get_mut(&place).expect("a block") += 1);
        let told = differences(&found, &expected);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("one-node:") && told[0].contains("40..60"), "{told:?}");
        assert!(told[1].starts_with("ownership:") && told[1].contains("60..120"), "{told:?}");
    }
}
