//! Disk operations by an io_uring of the shard's thread.
//!
//! Submissions are gathered and go to the kernel together, with a block by the same call. Sockets stay with epoll, which the
//! ring polls: the poll is single-shot and, once it has ended, armed again by the next block, because that reports what
//! is already ready, as a level-triggered epoll must. It stays armed over blocks that operations end.

use super::Completion;
use super::epoll::Epoll;
use super::lanes::Lanes;
use crate::operation::{Call, Operation, Progress};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use slab::Slab;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

const SUBMISSIONS: u32 = 256;
const COMPLETIONS: u32 = 4096;
/// Operations of one device that the kernel has at one time. Each that blocks takes one of its threads: all of a file system without
/// asynchronous I/O, and those of a block device that find its queue full.
const PER_DEVICE_MAX: usize = 256;
/// Kernel threads for calls that block: of files and block devices, enough for 16 that hang; and of all else. They are started
/// when there is work for them.
const KERNEL_WORKERS_MAX: [u32; 2] = [16 * PER_DEVICE_MAX as u32, 32];
/// User data of the poll on the epoll; operations have their slab key.
const POLL: u64 = u64::MAX;

struct InFlight {
    token: u64,
    operation: Operation,
}

pub(super) struct Uring {
    ring: IoUring,
    operations: Slab<InFlight>,
    /// Which of the others may be begun.
    lanes: Lanes<InFlight>,
    /// Completion queue entries copied out, so that the operations can be resubmitted while they are walked.
    taken: Vec<(u64, i32)>,
    /// Those that are walked: to begin others may take more of them meanwhile.
    walked: Vec<(u64, i32)>,
    poll_armed: bool,
    /// Completions wait for us to enter the kernel (DEFER_TASKRUN).
    deferred: bool,
}

impl Uring {
    /// A ring with the best flags that this kernel takes, proved to work by a real request; and which ones.
    /// Each step down is tried, because the kernel's version alone does not tell.
    pub(super) fn new(epoll: &Epoll) -> io::Result<(Uring, String)> {
        let mut last = None;
        for flags in RingFlags::LADDER {
            match Uring::with_flags(epoll, flags) {
                Ok(made) => return Ok(made),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("the ladder has steps"))
    }

    fn with_flags(epoll: &Epoll, flags: RingFlags) -> io::Result<(Uring, String)> {
        let ring = flags.build()?;
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
            lanes: Lanes::new(),
            taken: Vec::with_capacity(COMPLETIONS as usize),
            walked: Vec::with_capacity(COMPLETIONS as usize),
            poll_armed: false,
            deferred: flags != RingFlags::Plain,
        };
        // A sandbox may let a ring be made and refuse its use: prove it by one poll that ends at once or stays armed.
        uring.arm_poll(epoll.raw());
        uring.ring.submit()?;
        let capped = if capped { "" } else { ", kernel workers not capped" };
        Ok((uring, format!("io_uring works, with {}{capped}", flags.describe())))
    }

    /// The kernel's workers go where the process may, and not only where the ring's thread may.
    pub(super) fn keep_workers_on(&self, cpus: &[u32]) -> io::Result<()> {
        // SAFETY: a set of bits, of which none is a valid one.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in cpus {
            // The ring takes no larger set.
            if cpu as usize >= libc::CPU_SETSIZE as usize {
                let reason =
                    format!("CPU {cpu} is beyond the {} that io_uring's workers can be kept on", libc::CPU_SETSIZE);
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
            // SAFETY: within the set, as checked above.
            unsafe { libc::CPU_SET(cpu as usize, &mut set) };
        }
        self.ring.submitter().register_iowq_aff(&set)
    }

    pub(super) fn submit(&mut self, token: u64, operation: Operation) {
        let device = operation.device();
        if let Some(admitted) = self.lanes.admit(device, PER_DEVICE_MAX, InFlight { token, operation }) {
            self.begin(admitted);
        }
    }

    fn begin(&mut self, admitted: InFlight) {
        let key = self.operations.insert(admitted);
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

    /// Hands gathered submissions to the kernel.
    pub(super) fn begin_submitted(&mut self) -> io::Result<()> {
        let waiting = self.ring.submission().len() as u32;
        if waiting > 0 { self.enter(waiting, 0, None) } else { Ok(()) }
    }

    /// Lets the kernel post what it holds back, and takes what has ended.
    pub(super) fn collect(&mut self, out: &mut Vec<Completion>) -> io::Result<()> {
        let (waiting, posted_late) = {
            let submission = self.ring.submission();
            (submission.len(), (self.deferred && submission.taskrun()) || submission.cq_overflow())
        };
        if posted_late {
            self.enter(waiting as u32, 0, None)?;
        }
        self.take_entries();
        let mut walked = std::mem::take(&mut self.walked);
        while !self.taken.is_empty() {
            std::mem::swap(&mut walked, &mut self.taken);
            for (data, result) in walked.drain(..) {
                self.end(data, result, out);
            }
        }
        self.walked = walked;
        Ok(())
    }

    /// One entry of the completion queue.
    fn end(&mut self, data: u64, result: i32, out: &mut Vec<Completion>) {
        if data == POLL {
            self.poll_armed = false;
            return;
        }
        let key = data as usize;
        match self.operations[key].operation.advance(i64::from(result)) {
            Progress::Again => self.push_operation(key),
            Progress::Finished(result) => {
                let InFlight { token, operation } = self.operations.remove(key);
                if let Some(next) = self.lanes.end(operation.device()) {
                    self.begin(next);
                }
                out.push(Completion::Done { token, result, buffer: operation.into_buffer() });
            }
        }
    }

    /// False while the ring's poll of the epoll is armed and has not ended: then no descriptor is ready, and to ask the
    /// epoll would cost a system call that finds nothing.
    pub(super) fn descriptors_may_be_ready(&self) -> bool {
        !self.poll_armed
    }

    /// Waits until so many operations have ended, or the time is over. A ready epoll counts as one of them.
    pub(super) fn block(&mut self, epoll: &Epoll, wanted: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.arm_poll(epoll.raw());
        // Found where the queue was full: whoever waits for them need not wait.
        if !self.taken.is_empty() {
            return Ok(());
        }
        let waiting = self.ring.submission().len() as u32;
        self.enter(waiting, wanted, timeout)
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
        self.lanes.clear();
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

/// Set-up flags, from the best to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RingFlags {
    Deferred,
    Cooperative,
    Plain,
}

impl RingFlags {
    const LADDER: [RingFlags; 3] = [RingFlags::Deferred, RingFlags::Cooperative, RingFlags::Plain];

    fn describe(self) -> &'static str {
        match self {
            RingFlags::Deferred => "SINGLE_ISSUER, DEFER_TASKRUN and COOP_TASKRUN",
            RingFlags::Cooperative => "COOP_TASKRUN",
            RingFlags::Plain => "no optional flags",
        }
    }

    fn build(self) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).dontfork();
        match self {
            RingFlags::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag();
            }
            RingFlags::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            RingFlags::Plain => {}
        }
        builder.build(SUBMISSIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::buffers::Buffers;
    use crate::file::DeviceFile;
    use crate::operation::OperationKind;
    use crate::reactor::{Interest, new_eventfd, signal};
    use forebay_core::types::FrameId;
    use std::os::fd::AsRawFd;
    use std::sync::Arc;

    /// A device with more operations than its lane takes, and another one whose operations are gathered: what begins in the place of
    /// what has ended fills the queue, and what is taken then must not be lost.
    #[test]
    fn what_ends_while_others_begin_is_taken_as_well() {
        const MANY: u64 = PER_DEVICE_MAX as u64 + 200;
        let folder = tempfile::tempdir().unwrap();
        let device = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![0u8; 64 * 4096]).unwrap();
            // Read through the page cache: it ends where it is handed over.
            Arc::new(DeviceFile::buffered(std::fs::File::open(&path).unwrap(), &path, "it is a test").unwrap())
        };
        let (deep, other) = (device("deep"), device("other"));
        let arena = Arena::anonymous(64, false).unwrap();
        let read = |file: &Arc<DeviceFile>, i: u64| {
            let mut buffers = Buffers::none();
            buffers.push_frame(&arena, FrameId((i % 64) as u32), 0, 4096);
            Operation::new(file.clone(), OperationKind::Read { offset: i % 64 * 4096 }, buffers)
        };
        for flags in RingFlags::LADDER {
            let epoll = Epoll::new().unwrap();
            let (mut ring, _) = Uring::with_flags(&epoll, flags).unwrap();
            for i in 0..MANY {
                ring.submit(i, read(&deep, i));
            }
            ring.begin_submitted().unwrap();
            for i in MANY..MANY + u64::from(SUBMISSIONS) - 50 {
                ring.submit(i, read(&other, i));
            }
            let expected = (MANY + u64::from(SUBMISSIONS) - 50) as usize;
            let mut out = Vec::new();
            let limit = std::time::Instant::now() + Duration::from_secs(20);
            while out.len() < expected {
                assert!(std::time::Instant::now() < limit, "{flags:?}: {} of {expected} ended", out.len());
                ring.collect(&mut out).unwrap();
                ring.begin_submitted().unwrap();
            }
        }
    }

    /// As many operations as the queue takes, which end as they are handed over, and no poll armed: the wait finds them.
    #[test]
    fn a_wait_does_not_sleep_over_what_a_full_queue_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::write(&path, vec![0u8; 4096]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let file = Arc::new(DeviceFile::buffered(file, &path, "it is a test").unwrap());
        let arena = Arena::anonymous(1, false).unwrap();
        for flags in RingFlags::LADDER {
            let epoll = Epoll::new().unwrap();
            let (mut ring, _) = Uring::with_flags(&epoll, flags).unwrap();
            let event = new_eventfd().unwrap();
            epoll.add(event.as_raw_fd(), 1, Interest::READ).unwrap();
            signal(event.as_raw_fd());
            let mut out = Vec::new();
            while ring.poll_armed {
                ring.block(&epoll, 1, Some(Duration::from_secs(20))).unwrap();
                ring.collect(&mut out).unwrap();
            }
            crate::reactor::drain(event.as_raw_fd());
            for i in 0..u64::from(SUBMISSIONS) {
                let mut buffers = Buffers::none();
                buffers.push_frame(&arena, FrameId(0), 0, 4096);
                ring.submit(i, Operation::new(file.clone(), OperationKind::Read { offset: 0 }, buffers));
            }
            let start = std::time::Instant::now();
            ring.block(&epoll, 1, Some(Duration::from_secs(20))).unwrap();
            assert!(start.elapsed() < Duration::from_secs(10), "{flags:?}: it slept over what had ended");
            ring.collect(&mut out).unwrap();
            assert!(!out.is_empty(), "{flags:?}");
        }
    }

    /// Kernels of different age take different steps of the ladder; each must work on this one.
    #[test]
    fn every_step_of_the_ladder_serves_disks_and_descriptors() {
        const COUNT: u64 = 6000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("device");
        std::fs::write(&path, vec![0u8; 64 * 4096]).unwrap();
        let file = Arc::new(DeviceFile::open(&path, false).unwrap());
        let mut arena = Arena::anonymous(64, false).unwrap();
        for (step, flags) in RingFlags::LADDER.into_iter().enumerate() {
            let epoll = Epoll::new().unwrap();
            let (mut ring, why) = Uring::with_flags(&epoll, flags).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
            assert!(why.contains(flags.describe()));
            for frame in 0..64 {
                arena.bytes_mut(FrameId(frame)).fill(frame as u8 + 64 * step as u8 + 1);
            }
            for i in 0..COUNT {
                let mut buffers = Buffers::none();
                buffers.push_frame(&arena, FrameId((i % 64) as u32), 0, 4096);
                let kind = OperationKind::Write { offset: i % 64 * 4096 };
                ring.submit(i, Operation::new(file.clone(), kind, buffers));
            }
            let mut out = Vec::new();
            let limit = std::time::Instant::now() + Duration::from_secs(60);
            while (out.len() as u64) < COUNT {
                assert!(std::time::Instant::now() < limit, "{flags:?}: {} of {COUNT} ended", out.len());
                ring.block(&epoll, 1, Some(Duration::from_secs(20))).unwrap();
                ring.collect(&mut out).unwrap();
                ring.begin_submitted().unwrap();
            }
            let mut seen = vec![false; COUNT as usize];
            for completion in out.drain(..) {
                let Completion::Done { token, result: Ok(()), .. } = completion else { panic!("{completion:?}") };
                assert!(!std::mem::replace(&mut seen[token as usize], true), "{flags:?}: {token} ended twice");
            }
            let bytes = std::fs::read(&path).unwrap();
            let expected = |i: usize| i as u8 + 64 * step as u8 + 1;
            assert!(bytes.chunks(4096).enumerate().all(|(i, block)| block.iter().all(|&b| b == expected(i))));

            // A descriptor ends a block, as often as it is ready, whether it became so before or during the block.
            let event = new_eventfd().unwrap();
            epoll.add(event.as_raw_fd(), 1, Interest::READ).unwrap();
            let start = std::time::Instant::now();
            ring.block(&epoll, 1, Some(Duration::from_millis(20))).unwrap();
            ring.collect(&mut out).unwrap();
            assert!(start.elapsed() >= Duration::from_millis(19), "{flags:?}: nothing was ready");
            let raw = event.as_raw_fd();
            let other = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                signal(raw);
            });
            for _ in 0..3 {
                let start = std::time::Instant::now();
                ring.block(&epoll, 1, Some(Duration::from_secs(20))).unwrap();
                ring.collect(&mut out).unwrap();
                assert!(start.elapsed() < Duration::from_secs(10), "{flags:?}: readiness was missed");
                let mut ready = 0;
                epoll.poll(|_, _, _, _| ready += 1).unwrap();
                assert_eq!((ready, out.len()), (1, 0), "{flags:?}");
            }
            other.join().unwrap();
        }
    }
}
