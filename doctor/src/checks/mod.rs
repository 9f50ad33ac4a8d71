//! The checks, each a small unit: what it reads, its rule, what it says. One file for each group.

#[cfg(test)]
mod contradictions;
mod cpu;
mod disks;
mod dma;
mod drift;
#[cfg(test)]
mod expect;
mod growth;
mod guests;
pub mod limits;
pub mod links;
pub mod management;
pub mod memory;
mod mounts;
pub(super) mod nics;
mod numa;
mod paths;
pub mod pcie;
mod placement;
mod platform;
mod pressure;
mod processes;
mod san;
mod storage;
mod tiers;
mod zfs;

use super::Host;
use super::findings::Verdict;

/// One question to the host.
pub struct Check {
    /// Its number in the list of the documentation.
    pub number: u8,
    /// First part of its findings' ids.
    pub word: &'static str,
    /// Looks. It never changes anything, and never waits: what grows is compared with [`Host::earlier`].
    pub look: fn(&Host) -> Verdict,
}

/// All of them, in order of their numbers.
pub fn all() -> Vec<&'static Check> {
    let groups = [
        pcie::CHECKS,
        numa::CHECKS,
        memory::CHECKS,
        links::CHECKS,
        dma::CHECKS,
        cpu::CHECKS,
        nics::CHECKS,
        paths::CHECKS,
        storage::CHECKS,
        disks::CHECKS,
        pressure::CHECKS,
        mounts::CHECKS,
        zfs::CHECKS,
        san::CHECKS,
        guests::CHECKS,
        tiers::CHECKS,
    ];
    let mut all: Vec<&Check> = groups.into_iter().flatten().collect();
    all.sort_by_key(|check| check.number);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_a_number_of_its_own_and_its_row_in_the_documentation() {
        let page = include_str!("../../../docs/doctor.md");
        let mut numbers = std::collections::BTreeSet::new();
        for Check { number, word, .. } in all() {
            assert!(numbers.insert(*number), "{number} is there once");
            assert!(page.contains(&format!("| {number} | `{word}` |")), "{number} {word}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains(" | `")).count();
        assert_eq!(rows, numbers.len(), "and no row is without a check");
    }
}
