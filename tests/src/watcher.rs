//! Looks at all nodes of a cluster all the time, in a thread of its own: whether two own a volume in one term, and how often each
//! step of the protocol was taken.

use crate::cluster::NAMES;
use crate::eyes::{Eyes, View};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(250);

/// Looks until it is dropped.
pub struct Watcher {
    ends: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    owners: BTreeMap<(String, u64), usize>,
    /// The last value of each counter of each node and volume; and what former processes had counted.
    last: BTreeMap<(usize, String, String), u64>,
    sums: BTreeMap<String, u64>,
    finding: Option<String>,
}

impl Watcher {
    /// Begins to look, in a thread of its own.
    pub fn begin(eyes: Eyes) -> Watcher {
        let (ends, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let (ended, shared) = (ends.clone(), seen.clone());
        let watch = move || {
            while !ended.load(Ordering::Acquire) {
                for node in 0..NAMES.len() {
                    let volumes = eyes.volumes(node).unwrap_or_default();
                    let mut seen = shared.lock().expect("nobody panics while holding it");
                    volumes.iter().for_each(|(volume, view)| seen.look(node, volume, view));
                }
                std::thread::sleep(LOOK);
            }
        };
        Watcher { ends, seen, thread: Some(std::thread::spawn(watch)) }
    }

    /// What must not be, if it was.
    pub fn finding(&self) -> Option<String> {
        self.seen.lock().expect("nobody panics while holding it").finding.clone()
    }

    /// How often all nodes together have taken each step.
    pub fn sums(&self) -> BTreeMap<String, u64> {
        self.seen.lock().expect("nobody panics while holding it").sums.clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Seen {
    fn look(&mut self, node: usize, volume: &str, view: &View) {
        if view.serves() {
            let owner = *self.owners.entry((volume.to_owned(), view.term)).or_insert(node);
            if owner != node {
                let (one, other) = (NAMES[owner], NAMES[node]);
                let finding = format!("double owner: {one} and {other} both own {volume} in term {}", view.term);
                self.finding.get_or_insert(finding);
            }
        }
        for (name, value) in view.shown["cluster"]["counters"].as_object().into_iter().flatten() {
            let value = value.as_u64().unwrap_or(0);
            let last = self.last.entry((node, volume.to_owned(), name.clone())).or_default();
            // A process that counts less is another one.
            let more = if value >= *last { value - *last } else { value };
            *last = value;
            *self.sums.entry(name.clone()).or_default() += more;
        }
    }
}
