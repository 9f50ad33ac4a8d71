//! Checks 46 to 55: the lines of disks, what joins disks, and how they are set; and check 43, what may wait to be written to them.
//!
//! All is read of files that the kernel keeps in memory: none of them asks a disk, so that none that sleeps is woken.

mod arrays;
mod backing;
pub mod dirty;
mod layers;
mod lines;
mod md;
mod settings;
#[cfg(test)]
mod tests;
pub mod wants;

use super::Check;
use crate::findings::{Finding, Sentence, Verdict};
use forebay_host::system::{Seen, System};
use std::str::FromStr;

/// Checks 46 to 55, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 46, word: "disk-line", look: lines::lines },
    Check { number: 47, word: "md-array", look: md::md },
    Check { number: 48, word: "zfs-pool", look: arrays::zfs },
    Check { number: 49, word: "btrfs", look: arrays::btrfs },
    Check { number: 50, word: "disk-cache", look: settings::write_cache },
    Check { number: 51, word: "disk-depth", look: settings::depth },
    Check { number: 52, word: "disk-zones", look: settings::zones },
    Check { number: 53, word: "disk-discard", look: layers::discard },
    Check { number: 54, word: "disk-crypt", look: layers::crypt },
    Check { number: 55, word: "nvme-state", look: settings::nvme_state },
];

/// Reads files, and keeps the first reason why one that is there could not be read, or told nothing, with what would show it.
struct Reader<'a> {
    system: &'a System,
    hidden: Option<(String, &'static str)>,
}

impl<'a> Reader<'a> {
    fn of(system: &'a System) -> Reader<'a> {
        Reader { system, hidden: None }
    }

    fn known<T>(&mut self, seen: Seen<T>) -> Option<T> {
        match seen {
            Seen::Is(value) => Some(value),
            Seen::Absent => None,
            Seen::Hidden(why) => {
                self.hidden.get_or_insert((why, "doctor.as-root"));
                None
            }
        }
    }

    fn text(&mut self, path: &str) -> Option<String> {
        let seen = self.system.text(path);
        self.known(seen)
    }

    fn number<T: FromStr>(&mut self, path: &str) -> Option<T> {
        let seen = self.system.number(path);
        self.known(seen)
    }

    /// A file says nothing that is known, so that nothing follows from it.
    fn tells_nothing(&mut self, path: &str, text: &str) {
        self.hidden.get_or_insert((format!("{path}: {:.80}", text.trim()), "disk.tells-nothing"));
    }

    /// What was found comes first; where a part could not be read, nothing is said to be fine.
    fn verdict(self, found: Vec<Finding>, fine: Option<Sentence>) -> Verdict {
        match (found.is_empty(), self.hidden, fine) {
            (false, ..) => Verdict::Found(found),
            (true, Some((what, how)), _) => Verdict::NotSeen { what, how: Sentence::new(how) },
            (true, None, Some(fine)) => Verdict::Fine(fine),
            (true, None, None) => Verdict::NotHere,
        }
    }
}
