//! The end of an opening of a backing: who looks after something of it on other threads learns that it is of no use any more.

use forebay_io::{Backing, closing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Whether an opening has ended, and how. Set once, by the data path.
#[derive(Debug, Default)]
pub struct OpeningEnd {
    all_done: AtomicBool,
    has_ended: AtomicBool,
    told: Notify,
}

impl OpeningEnd {
    /// Nobody uses it any more. `all_done`: no change that was asked for by it can still come.
    pub fn end(&self, all_done: bool) {
        self.all_done.store(all_done, Ordering::Release);
        self.has_ended.store(true, Ordering::Release);
        self.told.notify_one();
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether it has ended, and no change that was asked for by it can still come.
    pub fn all_is_done(&self) -> bool {
        self.has_ended() && self.all_done.load(Ordering::Acquire)
    }

    /// Returns when it has ended; for one task.
    pub async fn ended(&self) {
        while !self.has_ended() {
            self.told.notified().await;
        }
    }
}

/// A backing, and its end.
pub type OpenedBacking = (Box<Backing>, Arc<OpeningEnd>);

/// Nobody has used it: it is closed, and its lock goes with it.
pub(super) fn end_opening(opened: Option<OpenedBacking>) {
    if let Some((backing, end)) = opened {
        end.end(true);
        closing::end_then(backing.name(), backing, || {});
    }
}
