//! What everything that this start writes is marked with: the volume, the owner's term, the start of the tier and its life.
//!
//! - Start and life are those of one process, and grow with every start; the term is the highest that was seen, and never
//!   goes back.
//! - Where one node has the volume to itself, each start is a new owner: a new term, too.
//! - The life counts what the tier may have lost of what it had held: another life is another incarnation.
//!
//! Left to others: what a term means to other nodes ([`super::replica_role`]).

use super::*;

/// See the module.
pub(super) struct Identity {
    volume: [u8; 16],
    term: Term,
    start: Start,
    life: u32,
}

impl Identity {
    /// Of this volume, before anything of its tier was read.
    pub(super) fn new(volume: [u8; 16]) -> Identity {
        Identity { volume, term: Term(0), start: Start(0), life: 0 }
    }

    /// What a start finds in the tier's checkpoint leads to its own numbers. `owner`: it is a new owner. `whole`: the tier cannot
    /// have lost anything since.
    pub(super) fn begin_start(&mut self, before: &Checkpoint, owner: bool, whole: bool) {
        self.start = Start(before.start.0 + 1);
        self.life = before.life + u32::from(!whole);
        self.term = Term(before.term.0 + u32::from(owner));
    }

    /// Somebody has this term, which is not lower than any that was seen.
    pub(super) fn see(&mut self, term: Term) {
        debug_assert!(term >= self.term);
        self.term = term;
    }

    pub(super) fn volume(&self) -> &[u8; 16] {
        &self.volume
    }

    pub(super) fn term(&self) -> Term {
        self.term
    }

    pub(super) fn start(&self) -> Start {
        self.start
    }

    pub(super) fn life(&self) -> u32 {
        self.life
    }
}
