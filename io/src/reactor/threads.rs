//! Disk operations by worker threads, where io_uring is not to be had, and on file systems that it does not serve well.
//!
//! Workers are started when work waits and none is idle, and end after an idle time. Each device has so many of them at work at
//! most, so that one that hangs does not take the workers of the others.

use super::epoll::Epoll;
use super::lanes::Lanes;
use super::{Completion, Interest, TOKEN_WORKERS, drain, new_eventfd, signal};
use crate::closing;
use crate::operation::Operation;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Operations of one device at work at one time.
const PER_DEVICE_MAX: usize = 16;
/// The same of a file system behind a server or another process, where more of them wait than work.
const PER_DISTANT_DEVICE_MAX: usize = 64;
/// Workers in all; enough for 16 files that hang.
const WORKERS_MAX: usize = 16 * PER_DISTANT_DEVICE_MAX;
const IDLE_MAX: Duration = Duration::from_secs(10);

struct Job {
    token: u64,
    operation: Operation,
}

struct State {
    /// May be begun now.
    ready: VecDeque<Job>,
    /// Which of the others may be begun.
    lanes: Lanes<Job>,
    done: Vec<Completion>,
    workers: usize,
    idle: usize,
    stopping: bool,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    event: OwnedFd,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no worker panics while it holds the lock")
    }
}

pub(super) struct Threads {
    shared: Arc<Shared>,
}

impl Threads {
    pub(super) fn new(epoll: &Epoll) -> io::Result<Threads> {
        let event = new_eventfd()?;
        epoll.add(event.as_raw_fd(), TOKEN_WORKERS, Interest::READ)?;
        let state = State {
            ready: VecDeque::new(),
            lanes: Lanes::new(),
            done: Vec::new(),
            workers: 0,
            idle: 0,
            stopping: false,
        };
        Ok(Threads { shared: Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), event }) })
    }

    pub(super) fn submit(&mut self, token: u64, operation: Operation) {
        let job = Job { token, operation };
        let mut state = self.shared.lock();
        let most = if job.operation.file().is_asynchronous() { PER_DEVICE_MAX } else { PER_DISTANT_DEVICE_MAX };
        let Some(job) = state.lanes.admit(job.operation.device(), most, job) else { return };
        state.ready.push_back(job);
        if state.idle >= state.ready.len() {
            drop(state);
            self.shared.work.notify_one();
            return;
        }
        if state.workers < WORKERS_MAX {
            let shared = self.shared.clone();
            match std::thread::Builder::new().name("forebay-disk".into()).spawn(move || work(&shared)) {
                Ok(_) => state.workers += 1,
                // Without any worker nobody would ever do it: fail what waits. Otherwise those at work take it later.
                Err(error) if state.workers == 0 => {
                    let kind = error.kind();
                    let Some(job) = state.ready.pop_back() else { return };
                    let reason = io::Error::new(kind, format!("cannot start a thread for disk I/O: {error}"));
                    finish(&mut state, job, Err(reason));
                    signal(self.shared.event.as_raw_fd());
                }
                Err(_) => {}
            }
        }
    }

    pub(super) fn collect(&mut self, out: &mut Vec<Completion>) {
        // Drained before the list is taken: what is added after is signalled again.
        drain(self.shared.event.as_raw_fd());
        out.append(&mut self.shared.lock().done);
    }
}

impl Drop for Threads {
    /// Workers own what they are at, so they are not waited for: one may hang in a dead device.
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        state.ready.clear();
        state.lanes.clear();
        drop(state);
        self.shared.work.notify_all();
    }
}

/// Records an end, and admits the next operation of the same device.
fn finish(state: &mut State, job: Job, result: io::Result<()>) {
    if let Some(next) = state.lanes.end(job.operation.device()) {
        state.ready.push_back(next);
    }
    state.done.push(Completion::Done { token: job.token, result, buffer: job.operation.into_buffer() });
}

fn work(shared: &Shared) {
    // An operation may be the last owner of its file, and it ends while others wait for the lock. Who cannot have that closed elsewhere
    // closes it here.
    let _ = closing::never_block_this_thread();
    let mut state = shared.lock();
    loop {
        if state.stopping {
            break;
        }
        let Some(mut job) = state.ready.pop_front() else {
            state.idle += 1;
            let (back, wait) = shared.work.wait_timeout(state, IDLE_MAX).expect("no worker panics with the lock");
            state = back;
            state.idle -= 1;
            if wait.timed_out() && state.ready.is_empty() {
                break;
            }
            continue;
        };
        drop(state);
        let result = job.operation.run();
        state = shared.lock();
        if state.stopping {
            break;
        }
        let first = state.done.is_empty();
        finish(&mut state, job, result);
        if first {
            signal(shared.event.as_raw_fd());
        }
    }
    state.workers -= 1;
}
