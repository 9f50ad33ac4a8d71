//! Whose turn it is to change the record of a volume: no change overwrites another, and what one volume waits for, its backing for example,
//! keeps no other one waiting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::OwnedMutexGuard;

/// A lock for each volume, by its name: so it stays the same one while a volume gives way to another of its name.
#[derive(Default)]
pub(super) struct Recordings {
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Recordings {
    /// Nobody else changes the record of this volume until it is dropped.
    pub(super) async fn turn(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().expect("nobody panics while holding it");
            // What nobody holds or waits for is known by the map alone.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(name.to_owned()).or_default().clone()
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_volume_that_hangs_keeps_no_other_one_waiting() {
        let recordings = Recordings::default();
        let Poll::Ready(hung) = poll(pin!(recordings.turn("vm1"))) else { panic!("nobody has it") };
        let mut same = pin!(recordings.turn("vm1"));
        assert!(poll(same.as_mut()).is_pending(), "no change overwrites another");
        assert!(poll(pin!(recordings.turn("vm2"))).is_ready());
        drop(hung);
        assert!(poll(same.as_mut()).is_ready());
        assert!(poll(pin!(recordings.turn("vm3"))).is_ready());
        assert!(recordings.locks.lock().unwrap().len() <= 2, "locks that nobody needs are dropped");
    }
}
