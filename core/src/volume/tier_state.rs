//! Whether the tier still takes anything, and whether it is being synced.
//!
//! - A tier that has failed stays so: nobody knows what its device kept, and only the next start looks.
//! - At most one sync is under way at any time ([`super::append`] has the reason).
//!
//! Left to others: what the tier has of which record ([`super::flash`], [`super::positions`]), and what follows from a failure
//! ([`super::append`]).

/// See the module.
#[derive(Default)]
pub(super) struct TierState {
    failed: bool,
    syncing: bool,
}

impl TierState {
    /// A write or a sync has failed: nothing more is written, and nothing that was counts any more.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// A write or a sync has failed. True: it is the first.
    pub(super) fn fail(&mut self) -> bool {
        !core::mem::replace(&mut self.failed, true)
    }

    /// A sync is under way.
    pub(super) fn is_syncing(&self) -> bool {
        self.syncing
    }

    /// A sync is asked for.
    pub(super) fn begin_sync(&mut self) {
        self.syncing = true;
    }

    /// It was answered.
    pub(super) fn end_sync(&mut self) {
        self.syncing = false;
    }
}
