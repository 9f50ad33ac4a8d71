//! Ends of files and mappings, away from the threads that must not block.
//!
//! To close the last descriptor of a file may take as long as its server does: NFS writes back what is left and returns the lock. To unmap
//! a large arena takes its pages one by one. Nobody knows beforehand which owner will be the last one, so a thread that many
//! wait for (one that serves volumes, the control thread) declares itself, and what would end on it is handed to a thread of its own.
//! On any other thread it ends at once.
//!
//! Invariants:
//! - What is handed over ends exactly once, and what waits for its end ([`end_then`]) goes on only after it.
//! - An end that hangs holds up nobody but those who wait for it: each has its own thread.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

thread_local! {
    static NEVER_BLOCKS: Cell<bool> = const { Cell::new(false) };
}

/// Something that ends, and what it is called.
struct Job {
    what: String,
    end: Box<dyn FnOnce() + Send>,
}

/// An end that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnderWay {
    /// Names this end among all of the process.
    pub number: u64,
    /// The file, memory or volume that ends.
    pub what: String,
    /// For how long it has been under way.
    pub time: Duration,
}

static HANDED_OVER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
static UNDER_WAY: Mutex<BTreeMap<u64, (String, Instant)>> = Mutex::new(BTreeMap::new());

fn ends_under_way() -> MutexGuard<'static, BTreeMap<u64, (String, Instant)>> {
    // What a thread that panicked has left is a list all the same.
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is being ended now, for people: what was begun first comes first.
pub fn under_way() -> Vec<UnderWay> {
    let ends = ends_under_way();
    ends.iter()
        .map(|(number, (what, since))| UnderWay { number: *number, what: what.clone(), time: since.elapsed() })
        .collect()
}

/// Declares that many wait for this thread: from now on nothing that may block ends on it.
pub fn never_block_this_thread() -> io::Result<()> {
    if HANDED_OVER.get().is_none() {
        let (sender, jobs) = mpsc::channel();
        std::thread::Builder::new().name("closing".to_owned()).spawn(move || end_all(&jobs))?;
        // Of two threads that start at once one is the first; the other's ends when it has nothing to wait for.
        let _ = HANDED_OVER.set(sender);
    }
    NEVER_BLOCKS.set(true);
    Ok(())
}

/// Ends something by a thread of its own, and then does something more. `what` names it for whoever has to wait.
pub fn end_then<T: Send + 'static>(what: String, item: T, then: impl FnOnce() + Send + 'static) {
    let end = move || {
        drop(item);
        then();
    };
    match HANDED_OVER.get() {
        Some(closer) => {
            // The closer's thread lives as long as the process.
            let _ = closer.send(Job { what, end: Box::new(end) });
        }
        // No thread of this process has declared itself.
        None => end(),
    }
}

/// Body of the thread that has each end done.
fn end_all(jobs: &mpsc::Receiver<Job>) {
    let mut number = 0;
    while let Ok(Job { what, end }) = jobs.recv() {
        number += 1;
        ends_under_way().insert(number, (what, Instant::now()));
        let job = Arc::new(Mutex::new(Some(end)));
        let body = {
            let job = job.clone();
            move || run(number, &job)
        };
        if std::thread::Builder::new().name("closing-one".to_owned()).spawn(body).is_err() {
            // The host gives no more threads: then one after the other.
            run(number, &job);
        }
    }
}

fn run(number: u64, job: &Mutex<Option<Box<dyn FnOnce() + Send>>>) {
    let end = job.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(end) = end {
        end();
    }
    ends_under_way().remove(&number);
}

/// Something whose end may block. It ends on the thread of its last owner, or elsewhere if that one must not block.
#[derive(Debug)]
pub struct EndsElsewhere<T: Send + 'static> {
    /// There until it ends.
    item: Option<T>,
    what: String,
}

impl<T: Send + 'static> EndsElsewhere<T> {
    /// `what` names it for whoever has to wait for its end.
    pub fn new(what: String, item: T) -> EndsElsewhere<T> {
        EndsElsewhere { item: Some(item), what }
    }
}

impl<T: Send + 'static> Deref for EndsElsewhere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.item.as_ref().expect("it is there until it ends")
    }
}

impl<T: Send + 'static> Drop for EndsElsewhere<T> {
    fn drop(&mut self) {
        // A thread that is ending itself has no such variables any more; nobody waits for it.
        if NEVER_BLOCKS.try_with(Cell::get).unwrap_or(false) {
            end_then(std::mem::take(&mut self.what), self.item.take(), || {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::ThreadId;

    /// Tells which thread has ended it, when it is let.
    struct Probe {
        ended: mpsc::Sender<ThreadId>,
        gate: Option<mpsc::Receiver<()>>,
    }

    impl Drop for Probe {
        fn drop(&mut self) {
            if let Some(gate) = &self.gate {
                let _ = gate.recv();
            }
            let _ = self.ended.send(std::thread::current().id());
        }
    }

    fn probe(gate: Option<mpsc::Receiver<()>>) -> (EndsElsewhere<Probe>, mpsc::Receiver<ThreadId>) {
        let (ended, end) = mpsc::channel();
        (EndsElsewhere::new("a probe".to_owned(), Probe { ended, gate }), end)
    }

    #[test]
    fn what_ends_on_a_thread_that_must_not_block_ends_elsewhere() {
        let here = std::thread::current().id();
        let (one, end) = probe(None);
        drop(one);
        assert_eq!(end.try_recv(), Ok(here), "this thread may block");
        std::thread::spawn(move || {
            let here = std::thread::current().id();
            never_block_this_thread().unwrap();
            let (one, end) = probe(None);
            drop(one);
            assert_ne!(end.recv().unwrap(), here);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn an_end_that_hangs_is_named_and_holds_up_only_who_waits_for_it() {
        std::thread::spawn(|| {
            never_block_this_thread().unwrap();
            let (let_go, gate) = mpsc::channel();
            let (hung, hung_end) = probe(Some(gate));
            let (told, tale) = mpsc::channel();
            end_then("the one that hangs".to_owned(), hung, move || told.send(()).unwrap());
            // It holds up neither its thread nor the next one.
            let (next, next_end) = probe(None);
            drop(next);
            next_end.recv().unwrap();
            while !under_way().iter().any(|end| end.what == "the one that hangs") {
                std::thread::yield_now();
            }
            assert!(tale.try_recv().is_err(), "it has not ended");
            let_go.send(()).unwrap();
            tale.recv().unwrap();
            hung_end.try_recv().expect("what waits for an end goes on after it");
            while under_way().iter().any(|end| end.what == "the one that hangs") {
                std::thread::yield_now();
            }
        })
        .join()
        .unwrap();
    }
}
