//! The one place where a shard thread waits: for disks, sockets and other threads.
//!
//! Two modes behind one type. `Uring` gives disk operations to an io_uring of this thread; `Threads` gives them to
//! worker threads, for containers that forbid io_uring. Sockets are read and written by their owner, never here:
//! both modes only tell readiness, by the same level-triggered epoll (in `Uring` the ring polls that epoll).
//!
//! A ring begins an operation on the thread that submits it, and leaves it to the file system to say that it would have to wait. Some
//! do not say it and wait (FUSE), and of those that do some have no FOP_DIO_PARALLEL_WRITE: io_uring hands their files one write at a
//! time. So the files of file systems
//! that are not known to work asynchronously go to worker threads in both modes ([`DeviceFile::is_asynchronous`]).
//!
//! [`DeviceFile::is_asynchronous`]: crate::file::DeviceFile::is_asynchronous
//!
//! Invariants:
//! - Each submitted operation completes exactly once; the reactor owns it until then.
//! - Nothing in here wakes up by itself: no timer, no polling beyond the short spin before a wait.
//! - A reactor belongs to the thread that made it (the ring refuses any other).

mod bursts;
mod epoll;
mod lanes;
mod spin;
mod threads;
mod uring;

use crate::memory::AlignedBuffer;
use crate::operation::Operation;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bursts::Bursts;
use epoll::Epoll;
use spin::Spin;
use threads::Threads;
use uring::Uring;

/// Socket tokens from here on are the reactor's own.
const TOKEN_RESERVED: u64 = u64::MAX - 15;
const TOKEN_WAKER: u64 = u64::MAX;
const TOKEN_WORKERS: u64 = u64::MAX - 1;

/// What the operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeChoice {
    /// io_uring where it works, otherwise threads.
    Auto,
    /// io_uring or an error.
    Uring,
    /// epoll and worker threads.
    Threads,
}

/// What carries the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// io_uring, for operations and readiness.
    Uring,
    /// epoll and worker threads.
    Threads,
}

/// Readiness that the owner of a socket wants to hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it is
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

impl Interest {
    /// Told when bytes can be read, not when they can be written.
    pub const READ: Interest = Interest { read: true, write: false };
    /// Told when bytes can be written, not when they can be read.
    pub const WRITE: Interest = Interest { read: false, write: true };
    /// Told when bytes can be read, and when they can be written.
    pub const BOTH: Interest = Interest { read: true, write: true };
    /// Neither: a hang-up is still told.
    pub const NONE: Interest = Interest { read: false, write: false };
}

/// Something that [`Reactor::wait`] found.
#[derive(Debug)]
pub enum Completion {
    /// An operation has ended.
    Done {
        /// As given to `submit`.
        token: u64,
        /// How it ended; an error is as the system call told it.
        result: io::Result<()>,
        /// The operation's owned buffer, if it had one.
        buffer: Option<AlignedBuffer>,
    },
    /// A watched descriptor is ready. Told again at each wait until it no longer is.
    Ready {
        /// As given to `watch`.
        token: u64,
        /// Bytes, a connection, or the end of the stream can be read.
        readable: bool,
        /// Bytes can be written without waiting.
        writable: bool,
        /// The other side has hung up, or the descriptor has an error.
        hangup: bool,
    },
    /// A [`Waker`] was used.
    Woken,
}

/// Ends another thread's [`Reactor::wait`]. Any number of wakes before that wait count as one.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<WakerShared>,
}

#[derive(Debug)]
struct WakerShared {
    event: OwnedFd,
    pending: AtomicBool,
}

impl Waker {
    fn new() -> io::Result<Waker> {
        Ok(Waker { shared: Arc::new(WakerShared { event: new_eventfd()?, pending: AtomicBool::new(false) }) })
    }

    /// Wakes the reactor. What was written to shared memory before is seen by the thread after `Woken`.
    pub fn wake(&self) {
        if !self.shared.pending.swap(true, Ordering::AcqRel) {
            signal(self.shared.event.as_raw_fd());
        }
    }

    /// Drains first and clears after: a wake between the two is covered by the `Woken` that follows.
    fn acknowledge(&self) {
        drain(self.shared.event.as_raw_fd());
        self.shared.pending.swap(false, Ordering::AcqRel);
    }
}

fn new_eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; a descriptor or an error comes back.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn signal(event: RawFd) {
    let one = 1u64;
    // SAFETY: eight bytes are read from `one`. The only failure, a full counter, means that a signal is pending.
    unsafe { libc::write(event, (&raw const one).cast(), 8) };
}

fn drain(event: RawFd) {
    let mut count = 0u64;
    // SAFETY: eight bytes are written to `count`. The only failure, an empty counter, means that nothing is pending.
    unsafe { libc::read(event, (&raw mut count).cast(), 8) };
}

/// See the module's text.
pub struct Reactor {
    /// None: all operations go to worker threads.
    ring: Option<Box<Uring>>,
    threads: Threads,
    epoll: Epoll,
    waker: Waker,
    spin: Spin,
    bursts: Bursts,
    why: String,
    in_ring: usize,
    on_threads: usize,
    /// A ring of SINGLE_ISSUER refuses other threads.
    not_send: PhantomData<*const ()>,
}

impl Reactor {
    /// A reactor for the calling thread.
    pub fn new(choice: ModeChoice) -> io::Result<Reactor> {
        let epoll = Epoll::new()?;
        let waker = Waker::new()?;
        epoll.add(waker.shared.event.as_raw_fd(), TOKEN_WAKER, Interest::READ)?;
        let threads = Threads::new(&epoll)?;
        let (ring, why) = match choice {
            ModeChoice::Threads => (None, "threads were asked for".to_owned()),
            ModeChoice::Uring => match Uring::new(&epoll) {
                Ok((ring, why)) => (Some(Box::new(ring)), why),
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!(
                            "io_uring was asked for and does not work here: {error}; allow it (container seccomp \
                             profile, sysctl kernel.io_uring_disabled) or let the mode be chosen automatically"
                        ),
                    ));
                }
            },
            ModeChoice::Auto => match Uring::new(&epoll) {
                Ok((ring, why)) => (Some(Box::new(ring)), why),
                Err(error) => (None, format!("io_uring does not work here: {error}")),
            },
        };
        Ok(Reactor {
            ring,
            threads,
            epoll,
            waker,
            spin: Spin::new(),
            bursts: Bursts::new(),
            why,
            in_ring: 0,
            on_threads: 0,
            not_send: PhantomData,
        })
    }

    /// What carries the I/O, as it was found at the start.
    pub fn mode(&self) -> Mode {
        if self.ring.is_some() { Mode::Uring } else { Mode::Threads }
    }

    /// Why that one, for status.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Keeps what the kernel starts for this reactor's disk operations on these CPUs, and not only its thread. Worker threads are started
    /// by that thread and stay where it does.
    pub fn keep_workers_on(&self, cpus: &[u32]) -> io::Result<()> {
        self.ring.as_ref().map_or(Ok(()), |ring| ring.keep_workers_on(cpus))
    }

    /// Something with which other threads end a wait of this one.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Operations submitted and not completed.
    pub fn in_flight(&self) -> usize {
        self.in_ring + self.on_threads
    }

    /// Begins to tell a descriptor's readiness. The owner calls `unwatch` before closing it.
    pub fn watch(&mut self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        assert!(token < TOKEN_RESERVED, "the last sixteen tokens are the reactor's own");
        self.epoll.add(fd, token, interest)
    }

    /// Changes of which readiness of a watched descriptor is told, and by which token.
    pub fn rewatch(&mut self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        assert!(token < TOKEN_RESERVED, "the last sixteen tokens are the reactor's own");
        self.epoll.change(fd, token, interest)
    }

    /// Tells nothing of the descriptor any more; to be called before it is closed.
    pub fn unwatch(&mut self, fd: RawFd) -> io::Result<()> {
        self.epoll.remove(fd)
    }

    /// Takes an operation. It is begun at the latest by the next `wait`, so that many go to the kernel together.
    pub fn submit(&mut self, token: u64, operation: Operation) {
        match &mut self.ring {
            Some(ring) if operation.file().is_asynchronous() => {
                self.in_ring += 1;
                ring.submit(token, operation);
            }
            Some(_) | None => {
                self.on_threads += 1;
                self.threads.submit(token, operation);
            }
        }
    }

    /// Waits until something has happened or the time is over, and appends what was found. No timeout: for ever.
    pub fn wait(&mut self, timeout: Option<Duration>, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        self.collect(out)?;
        if out.len() > before || timeout == Some(Duration::ZERO) {
            return self.begin_submitted();
        }
        let start = Instant::now();
        if self.rest_of_burst(start, timeout, out)? {
            return self.begin_submitted();
        }
        // Who has waited for a millisecond does not notice a wake-up.
        let near = !self.bursts.descriptors_are_quiet(start);
        if near
            && let Some(limit) = self.spin.limit(start, timeout)
            && self.look(start, limit, out)?
        {
            return self.begin_submitted();
        }
        let blocked = Instant::now();
        let left = timeout.map(|timeout| timeout.saturating_sub(blocked - start));
        match &mut self.ring {
            Some(ring) => ring.block(&self.epoll, 1, left)?,
            None => self.epoll.block(left)?,
        }
        self.spin.blocked_for(blocked.elapsed());
        self.collect(out)?;
        self.begin_submitted()
    }

    /// Looks again and again for so long at most; true when something was found.
    fn look(&mut self, start: Instant, limit: Duration, out: &mut Vec<Completion>) -> io::Result<bool> {
        self.begin_submitted()?;
        let before = out.len();
        let mut last = start;
        loop {
            std::hint::spin_loop();
            self.collect(out)?;
            let now = Instant::now();
            let interrupted = self.spin.interrupted(now - last, now);
            match (out.len() > before, interrupted) {
                (true, true) => return Ok(true),
                (true, false) => {
                    self.spin.hit();
                    return Ok(true);
                }
                (false, true) => return Ok(false),
                (false, false) if now - start >= limit => {
                    self.spin.missed();
                    return Ok(false);
                }
                (false, false) => last = now,
            }
        }
    }

    /// Waits for several operations at once where a device ends them in bursts. True: some have ended.
    fn rest_of_burst(
        &mut self,
        now: Instant,
        timeout: Option<Duration>,
        out: &mut Vec<Completion>,
    ) -> io::Result<bool> {
        let Some(ring) = &mut self.ring else { return Ok(false) };
        let Some((wanted, limit)) = self.bursts.next_block(now, timeout, self.in_ring) else { return Ok(false) };
        ring.block(&self.epoll, wanted, Some(limit))?;
        let before = out.len();
        self.collect(out)?;
        self.bursts.gathered(out.len() - before);
        Ok(out.len() > before)
    }

    /// Hands what was gathered to the kernel. Not part of `collect`, because a block does it with the same call.
    fn begin_submitted(&mut self) -> io::Result<()> {
        self.ring.as_mut().map_or(Ok(()), |ring| ring.begin_submitted())
    }

    /// Takes what is there, without waiting.
    fn collect(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        let before = out.len();
        if let Some(ring) = &mut self.ring {
            ring.collect(out)?;
            let ended = out.len() - before;
            self.in_ring -= ended;
            self.bursts.note_ended(ended);
            if !ring.descriptors_may_be_ready() {
                return Ok(());
            }
        }
        let (mut woken, mut workers, before) = (false, false, out.len());
        self.epoll.poll(|token, readable, writable, hangup| match token {
            TOKEN_WAKER => woken = true,
            TOKEN_WORKERS => workers = true,
            token => out.push(Completion::Ready { token, readable, writable, hangup }),
        })?;
        if woken {
            self.waker.acknowledge();
            out.push(Completion::Woken);
        }
        if out.len() > before {
            self.bursts.note_descriptors(Instant::now());
        }
        if workers {
            let before = out.len();
            self.threads.collect(out);
            self.on_threads -= out.len() - before;
        }
        Ok(())
    }
}
