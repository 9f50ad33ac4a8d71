//! Disk operations by an io_uring of the shard's thread.
//!
//! Submissions are gathered and go to the kernel with the next `collect` or `block`. Sockets stay with epoll, which the
//! ring polls only while the thread blocks: the poll is single-shot and armed again for each block, because that
//! reports what is already ready, as a level-triggered epoll must.

use super::Completion;
use super::epoll::Epoll;
use crate::operation::{Call, Operation, Progress};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use slab::Slab;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
/// Kernel threads for calls that block (fdatasync, fallocate, buffered writes), bounded and unbounded kind.
const KERNEL_WORKERS_MAX: [u32; 2] = [128, 32];
/// User data of the poll on the epoll; operations have their slab key.
const POLL: u64 = u64::MAX;

struct InFlight {
    token: u64,
    operation: Operation,
}

pub(super) struct Uring {
    ring: IoUring,
    operations: Slab<InFlight>,
    /// Completion queue entries copied out, so that the operations can be resubmitted while they are walked.
    taken: Vec<(u64, i32)>,
    poll_armed: bool,
    /// Completions wait for us to enter the kernel (DEFER_TASKRUN).
    deferred: bool,
}

impl Uring {
    /// A ring with the best flags that this kernel takes, proved to work by a real request; and which ones.
    pub(super) fn new(epoll: &Epoll) -> io::Result<(Uring, String)> {
        let (ring, flags, deferred) = build()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            ("readv", opcode::Readv::CODE),
            ("writev", opcode::Writev::CODE),
            ("fsync", opcode::Fsync::CODE),
            ("fallocate", opcode::Fallocate::CODE),
            ("poll", opcode::PollAdd::CODE),
        ];
        for (name, code) in needed {
            if !probe.is_supported(code) {
                return Err(io::Error::new(io::ErrorKind::Unsupported, format!("the kernel's io_uring has no {name}")));
            }
        }
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            let reason = "the kernel's io_uring is too old (needs 5.11: EXT_ARG and NODROP)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        // Older kernels (before 5.15) cannot be told; they work all the same.
        let capped = ring.submitter().register_iowq_max_workers(&mut KERNEL_WORKERS_MAX.clone()).is_ok();
        let mut uring = Uring {
            ring,
            operations: Slab::with_capacity(SUBMISSIONS as usize),
            taken: Vec::with_capacity(COMPLETIONS as usize),
            poll_armed: false,
            deferred,
        };
        // A sandbox may let a ring be made and refuse its use: prove it by one poll that ends at once or stays armed.
        uring.arm_poll(epoll.raw());
        uring.ring.submit()?;
        let capped = if capped { "" } else { ", kernel workers not capped" };
        Ok((uring, format!("io_uring works, with {flags}{capped}")))
    }

    pub(super) fn submit(&mut self, token: u64, operation: Operation) {
        let key = self.operations.insert(InFlight { token, operation });
        self.push_operation(key);
    }

    fn push_operation(&mut self, key: usize) {
        let operation = &mut self.operations[key].operation;
        let fd = types::Fd(operation.file().raw());
        let entry = match operation.next_call() {
            Call::Read { iovecs, count, offset } => opcode::Readv::new(fd, iovecs, count as u32).offset(offset).build(),
            Call::Write { iovecs, count, offset, flags } => {
                opcode::Writev::new(fd, iovecs, count as u32).offset(offset).rw_flags(flags).build()
            }
            Call::DataSync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Call::Allocate { mode, offset, length } => {
                opcode::Fallocate::new(fd, length).offset(offset).mode(mode).build()
            }
        };
        self.push(entry.user_data(key as u64));
    }

    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the entry's descriptor and memory belong to an operation that stays in the slab until its
            // completion was taken (or to the reactor's epoll, which outlives the ring). Its iovecs lie on the heap,
            // so the slab may move the operation.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                return;
            }
            // The queue is full: hand it over. A kernel that wants completions to be taken first gets its way.
            let waiting = self.ring.submission().len() as u32;
            self.enter(waiting, 0, None).expect("a ring that worked before takes its own submissions");
            self.take_entries();
        }
    }

    fn arm_poll(&mut self, epoll: RawFd) {
        if !self.poll_armed {
            self.poll_armed = true;
            self.push(opcode::PollAdd::new(types::Fd(epoll), libc::POLLIN as u32).build().user_data(POLL));
        }
    }

    fn take_entries(&mut self) {
        for entry in self.ring.completion() {
            let entry: cqueue::Entry = entry;
            self.taken.push((entry.user_data(), entry.result()));
        }
    }

    /// Hands gathered submissions to the kernel, lets it post what it holds back, and takes what has ended.
    pub(super) fn collect(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        let (waiting, posted_late) = {
            let submission = self.ring.submission();
            (submission.len(), submission.taskrun() || submission.cq_overflow())
        };
        if waiting > 0 || (self.deferred && posted_late) {
            self.enter(waiting as u32, 0, None)?;
        }
        self.take_entries();
        let mut taken = std::mem::take(&mut self.taken);
        for (data, result) in taken.drain(..) {
            if data == POLL {
                self.poll_armed = false;
                continue;
            }
            let key = data as usize;
            match self.operations[key].operation.advance(i64::from(result)) {
                Progress::Again => self.push_operation(key),
                Progress::Finished(result) => {
                    let InFlight { token, operation } = self.operations.remove(key);
                    out.push(Completion::Done { token, result, buffer: operation.into_buffer() });
                }
            }
        }
        self.taken = taken;
        Ok(())
    }

    /// Waits until an operation has ended, the epoll is ready, or the time is over.
    pub(super) fn block(&mut self, epoll: &Epoll, timeout: Option<Duration>) -> io::Result<()> {
        self.arm_poll(epoll.raw());
        let waiting = self.ring.submission().len() as u32;
        self.enter(waiting, 1, timeout)
    }

    fn enter(&mut self, submissions: u32, wanted: usize, timeout: Option<Duration>) -> io::Result<()> {
        let result = match timeout {
            Some(timeout) if wanted > 0 => {
                let timespec = types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                let arguments = types::SubmitArgs::new().timespec(&timespec);
                self.ring.submitter().submit_with_args(wanted, &arguments)
            }
            Some(_) | None => {
                const GETEVENTS: u32 = 1;
                // SAFETY: no argument is given; the entries in the queue are valid as said in `push`.
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(submissions, wanted as u32, GETEVENTS, None) }
            }
        };
        match result {
            Ok(_) => Ok(()),
            // ETIME: the time is over. EINTR: a signal. EBUSY, EAGAIN: take completions first, then it goes on.
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                Some(_) | None => Err(error),
            },
        }
    }
}

impl Drop for Uring {
    /// The kernel may still write to the operations' memory: wait for them a little, and leave behind those of a
    /// device that hangs. Never unmap under a request.
    fn drop(&mut self) {
        let deadline = std::time::Instant::now() + Duration::from_secs(2);
        let mut ended = Vec::new();
        while !self.operations.is_empty() && std::time::Instant::now() < deadline {
            let waiting = self.ring.submission().len() as u32;
            if self.enter(waiting, 1, Some(Duration::from_millis(50))).is_err() || self.collect(&mut ended).is_err() {
                break;
            }
            ended.clear();
        }
        std::mem::forget(std::mem::take(&mut self.operations));
    }
}

/// Flags from the best to none; each step down is tried, because the kernel's version alone does not tell.
fn build() -> io::Result<(IoUring, &'static str, bool)> {
    let base = || {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).dontfork();
        builder
    };
    if let Ok(ring) =
        base().setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag().build(SUBMISSIONS)
    {
        return Ok((ring, "SINGLE_ISSUER, DEFER_TASKRUN and COOP_TASKRUN", true));
    }
    if let Ok(ring) = base().setup_coop_taskrun().setup_taskrun_flag().build(SUBMISSIONS) {
        return Ok((ring, "COOP_TASKRUN", true));
    }
    base().build(SUBMISSIONS).map(|ring| (ring, "no optional flags", false))
}
