//! The reactor in both modes, by the same test bodies, on real files and sockets.

use forebay_core::types::FrameId;
use forebay_io::{
    AlignedBuffer, Arena, Buffers, Completion, DeviceFile, Interest, Mode, ModeChoice, Operation, OperationKind,
    Reactor,
};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const FILE_BYTES: usize = 1 << 20;
const FRAMES: u32 = 64;

/// The same body as one test for each mode. A machine without io_uring fails the first with the reason.
macro_rules! in_both_modes {
    ($($name:ident)*) => {
        mod uring { $(#[test] fn $name() { super::$name(super::ModeChoice::Uring) })* }
        mod threads { $(#[test] fn $name() { super::$name(super::ModeChoice::Threads) })* }
    };
}

in_both_modes! {
    gather_and_scatter_agree_with_a_flat_array
    more_pieces_than_one_call_takes
    a_flood_of_operations_completes_once_each
    past_the_end_is_zeros_and_only_there
    errors_are_told_with_their_number
    readiness_is_told_until_it_is_used
    no_wake_is_lost
    an_idle_wait_sleeps_until_its_time
    sockets_and_disks_end_the_same_wait
    a_socket_is_heard_among_disks_that_are_never_quiet
    a_reactor_may_be_dropped_with_work_in_flight
}

fn reactor(mode: ModeChoice) -> Reactor {
    Reactor::new(mode).unwrap_or_else(|error| panic!("{error}"))
}

fn device(path: &Path, bytes: usize) -> Arc<DeviceFile> {
    std::fs::write(path, vec![0u8; bytes]).unwrap();
    Arc::new(DeviceFile::open(path, false).unwrap())
}

fn run(reactor: &mut Reactor, operation: Operation) -> (std::io::Result<()>, Option<AlignedBuffer>) {
    reactor.submit(7, operation);
    let mut out = Vec::new();
    let deadline = Instant::now() + LONG;
    while Instant::now() < deadline {
        reactor.wait(Some(LONG), &mut out).unwrap();
        if let Some(Completion::Done { token: 7, result, buffer }) = out.pop() {
            assert!(out.is_empty());
            return (result, buffer);
        }
    }
    panic!("no completion");
}

/// Pieces of frames that do not overlap each other: `(frame, from, length)` in units of sectors.
fn pieces() -> impl Strategy<Value = Vec<(u32, usize, usize)>> {
    let lengths = prop::collection::vec((0usize..8, 1usize..=8), 1..24);
    (Just((0..FRAMES).collect::<Vec<_>>()).prop_shuffle(), lengths, any::<bool>()).prop_map(
        |(frames, lengths, sorted)| {
            let mut frames = frames[..lengths.len()].to_vec();
            if sorted {
                frames.sort_unstable();
            }
            let piece = |(frame, (from, length)): (u32, (usize, usize))| (frame, from, length.min(8 - from));
            frames.into_iter().zip(lengths).map(piece).collect()
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Write { sector: u64, pieces: Vec<(u32, usize, usize)>, fill: u8 },
    Read { sector: u64, pieces: Vec<(u32, usize, usize)> },
    Zero { sector: u64, sectors: u64, hole: bool },
    Sync,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let last = FILE_BYTES as u64 / 512;
    let step = prop_oneof![
        4 => (0..last - 24 * 8, pieces(), any::<u8>())
            .prop_map(|(sector, pieces, fill)| Step::Write { sector, pieces, fill }),
        4 => (0..last + 8, pieces()).prop_map(|(sector, pieces)| Step::Read { sector, pieces }),
        1 => (0..last - 64, 1u64..64, any::<bool>())
            .prop_map(|(sector, sectors, hole)| Step::Zero { sector, sectors, hole }),
        1 => Just(Step::Sync),
    ];
    prop::collection::vec(step, 1..30)
}

fn gather_and_scatter_agree_with_a_flat_array(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    let reactor = std::cell::RefCell::new(reactor(mode));
    let outcome = runner.run(&steps(), |steps| {
        let reactor = &mut *reactor.borrow_mut();
        let file = device(&path, FILE_BYTES);
        let mut flat = vec![0u8; FILE_BYTES];
        let mut arena = Arena::anonymous(FRAMES, false).unwrap();
        let sector_align = u64::from(file.align()) / 512;
        for step in steps {
            match step {
                Step::Write { sector, pieces, fill } => {
                    let sector = sector - sector % sector_align;
                    let mut at = sector as usize * 512;
                    let mut buffers = Buffers::none();
                    for (i, &(frame, from, length)) in pieces.iter().enumerate() {
                        let bytes = &mut arena.bytes_mut(FrameId(frame))[from * 512..(from + length) * 512];
                        for (k, byte) in bytes.iter_mut().enumerate() {
                            *byte = fill.wrapping_add((i * 31 + k / 512 * 7 + k) as u8);
                        }
                        flat[at..at + bytes.len()].copy_from_slice(bytes);
                        at += bytes.len();
                        buffers.push_frame(&arena, FrameId(frame), from * 512, length * 512);
                    }
                    let kind = OperationKind::Write { offset: sector * 512 };
                    run(reactor, Operation::new(file.clone(), kind, buffers)).0.unwrap();
                }
                Step::Read { sector, pieces } => {
                    let sector = sector - sector % sector_align;
                    let mut buffers = Buffers::none();
                    for &(frame, from, length) in &pieces {
                        arena.bytes_mut(FrameId(frame)).fill(0xee);
                        buffers.push_frame(&arena, FrameId(frame), from * 512, length * 512);
                    }
                    let kind = OperationKind::Read { offset: sector * 512 };
                    run(reactor, Operation::new(file.clone(), kind, buffers)).0.unwrap();
                    let mut at = sector as usize * 512;
                    for &(frame, from, length) in &pieces {
                        let bytes = arena.bytes(FrameId(frame));
                        for (i, &byte) in bytes.iter().enumerate() {
                            let expected = if (from * 512..(from + length) * 512).contains(&i) {
                                flat.get(at + i - from * 512).copied().unwrap_or(0)
                            } else {
                                0xee
                            };
                            prop_assert_eq!(byte, expected, "frame {} byte {}", frame, i);
                        }
                        at += length * 512;
                    }
                }
                Step::Zero { sector, sectors, hole } => {
                    let kind = OperationKind::Zero { offset: sector * 512, length: sectors * 512, hole };
                    run(reactor, Operation::new(file.clone(), kind, Buffers::none())).0.unwrap();
                    flat[sector as usize * 512..(sector + sectors) as usize * 512].fill(0);
                }
                Step::Sync => {
                    let sync = Operation::new(file.clone(), OperationKind::Sync, Buffers::none());
                    run(reactor, sync).0.unwrap();
                }
            }
        }
        prop_assert!(std::fs::read(&path).unwrap() == flat, "the file differs from the flat array");
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

fn more_pieces_than_one_call_takes(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let file = device(&path, 4 << 20);
    let mut reactor = reactor(mode);
    let mut arena = Arena::anonymous(2500, false).unwrap();
    let mut buffers = Buffers::none();
    let mut expected = Vec::new();
    // The last frame first: no two pieces are neighbours, so each is an iovec of its own, 2500 in all.
    for frame in (0..2500u32).rev() {
        arena.bytes_mut(FrameId(frame))[..512].fill(frame as u8);
        expected.extend_from_slice(&[frame as u8; 512]);
        buffers.push_frame(&arena, FrameId(frame), 0, 512);
    }
    run(&mut reactor, Operation::new(file.clone(), OperationKind::Write { offset: 4096 }, buffers)).0.unwrap();
    assert!(std::fs::read(&path).unwrap()[4096..4096 + expected.len()] == expected);

    let mut buffers = Buffers::none();
    for frame in (0..2500u32).rev() {
        arena.bytes_mut(FrameId(frame)).fill(0);
        buffers.push_frame(&arena, FrameId(frame), 512, 512);
    }
    run(&mut reactor, Operation::new(file, OperationKind::Read { offset: 4096 }, buffers)).0.unwrap();
    for frame in 0..2500u32 {
        assert!(arena.bytes(FrameId(frame))[512..1024].iter().all(|&b| b == frame as u8), "frame {frame}");
    }
}

fn a_flood_of_operations_completes_once_each(mode: ModeChoice) {
    const COUNT: usize = 6000; // more than the ring's queues hold
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let file = device(&path, 1024 * 4096);
    let mut reactor = reactor(mode);
    let mut arena = Arena::anonymous(1024, false).unwrap();
    for frame in 0..1024 {
        arena.bytes_mut(FrameId(frame)).fill(frame as u8 ^ 0x5a);
    }
    for i in 0..COUNT {
        let block = i % 1024;
        let mut buffers = Buffers::none();
        buffers.push_frame(&arena, FrameId(block as u32), 0, 4096);
        let kind = OperationKind::Write { offset: block as u64 * 4096 };
        reactor.submit(i as u64, Operation::new(file.clone(), kind, buffers));
    }
    let mut seen = vec![false; COUNT];
    let mut out = Vec::new();
    let deadline = Instant::now() + 3 * LONG;
    while reactor.in_flight() > 0 {
        assert!(Instant::now() < deadline, "{} operations never ended", reactor.in_flight());
        reactor.wait(Some(LONG), &mut out).unwrap();
        for completion in out.drain(..) {
            let Completion::Done { token, result, buffer: None } = completion else { panic!("{completion:?}") };
            result.unwrap();
            assert!(!std::mem::replace(&mut seen[token as usize], true), "operation {token} ended twice");
        }
    }
    assert!(seen.iter().all(|&seen| seen));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.chunks(4096).enumerate().all(|(i, block)| block.iter().all(|&b| b == i as u8 ^ 0x5a)));
}

fn past_the_end_is_zeros_and_only_there(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let mut reactor = reactor(mode);
    // A whole number of sectors (O_DIRECT where there is one), and one that is not.
    for bytes in [3 * 512, 1000] {
        let path = folder.path().join(format!("device-{bytes}"));
        std::fs::write(&path, vec![0x77; bytes]).unwrap();
        let file = Arc::new(DeviceFile::open(&path, false).unwrap());
        let mut arena = Arena::anonymous(3, false).unwrap();
        let mut buffers = Buffers::none();
        for frame in 0..3 {
            arena.bytes_mut(FrameId(frame)).fill(0xee);
            buffers.push_frame(&arena, FrameId(frame), 0, 4096);
        }
        run(&mut reactor, Operation::new(file.clone(), OperationKind::Read { offset: 0 }, buffers)).0.unwrap();
        assert!(arena.bytes(FrameId(0))[..bytes].iter().all(|&b| b == 0x77));
        assert!(arena.bytes(FrameId(0))[bytes..].iter().all(|&b| b == 0));
        assert!((1..3).all(|frame| arena.bytes(FrameId(frame)).iter().all(|&b| b == 0)));

        let mut scanned = AlignedBuffer::new(4096);
        scanned.fill(0xee);
        let beyond = OperationKind::Read { offset: 1 << 30 };
        let (result, buffer) = run(&mut reactor, Operation::new(file, beyond, Buffers::owned(scanned)));
        result.unwrap();
        assert!(buffer.unwrap().iter().all(|&b| b == 0));
    }
}

fn errors_are_told_with_their_number(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    std::fs::write(&path, [0u8; 4096]).unwrap();
    // Opened for reading only: every write is EBADF.
    let file = DeviceFile::buffered(std::fs::File::open(&path).unwrap(), &path, "a test").unwrap();
    let mut reactor = reactor(mode);
    let write =
        Operation::new(Arc::new(file), OperationKind::Write { offset: 0 }, Buffers::owned(AlignedBuffer::new(512)));
    let (result, buffer) = run(&mut reactor, write);
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(buffer.map(|buffer| buffer.len()), Some(512));
    assert_eq!(reactor.in_flight(), 0);
}

fn ready_tokens(reactor: &mut Reactor, timeout: Duration) -> Vec<(u64, bool, bool, bool)> {
    let mut out = Vec::new();
    reactor.wait(Some(timeout), &mut out).unwrap();
    out.into_iter()
        .map(|completion| match completion {
            Completion::Ready { token, readable, writable, hangup } => (token, readable, writable, hangup),
            Completion::Done { .. } | Completion::Woken => panic!("{completion:?}"),
        })
        .collect()
}

fn readiness_is_told_until_it_is_used(mode: ModeChoice) {
    let mut reactor = reactor(mode);
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = ours.as_raw_fd();
    reactor.watch(fd, 5, Interest::READ).unwrap();
    assert_eq!(ready_tokens(&mut reactor, Duration::from_millis(20)), []);
    theirs.write_all(b"hello").unwrap();
    for _ in 0..3 {
        assert_eq!(ready_tokens(&mut reactor, LONG), [(5, true, false, false)]);
    }
    ours.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(ready_tokens(&mut reactor, Duration::from_millis(20)), []);
    reactor.rewatch(fd, 6, Interest::BOTH).unwrap();
    assert_eq!(ready_tokens(&mut reactor, LONG), [(6, false, true, false)]);
    reactor.rewatch(fd, 6, Interest::NONE).unwrap();
    assert_eq!(ready_tokens(&mut reactor, Duration::from_millis(20)), []);
    drop(theirs);
    assert_eq!(ready_tokens(&mut reactor, LONG), [(6, false, false, true)]);
    reactor.unwatch(fd).unwrap();
    assert_eq!(ready_tokens(&mut reactor, Duration::from_millis(20)), []);
}

fn no_wake_is_lost(mode: ModeChoice) {
    const ITEMS: u64 = 20_000;
    let mut reactor = reactor(mode);
    let waker = reactor.waker();
    let made = Arc::new(AtomicU64::new(0));
    let maker = std::thread::spawn({
        let made = made.clone();
        move || {
            for i in 0..ITEMS {
                made.fetch_add(1, Ordering::Relaxed);
                waker.wake();
                if i % 64 == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }
    });
    let mut out = Vec::new();
    loop {
        out.clear();
        let start = Instant::now();
        reactor.wait(Some(LONG), &mut out).unwrap();
        assert!(start.elapsed() < LONG, "a wake was lost after {} items", made.load(Ordering::Relaxed));
        assert!(out.iter().all(|completion| matches!(completion, Completion::Woken)));
        // What was made before the wake is seen after it; the last wake therefore shows the last item.
        if made.load(Ordering::Relaxed) == ITEMS {
            break;
        }
    }
    maker.join().unwrap();
}

fn an_idle_wait_sleeps_until_its_time(mode: ModeChoice) {
    let mut reactor = reactor(mode);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    reactor.watch(ours.as_raw_fd(), 1, Interest::READ).unwrap();
    let switches = || -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        line.trim().parse().unwrap()
    };
    let (before, start) = (switches(), Instant::now());
    let mut out = Vec::new();
    reactor.wait(Some(Duration::from_millis(700)), &mut out).unwrap();
    assert!(out.is_empty());
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(699) && waited < Duration::from_secs(5), "{waited:?}");
    assert!(switches() - before <= 3, "{} wake-ups in an idle wait", switches() - before);
}

fn sockets_and_disks_end_the_same_wait(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let file = device(&path, FILE_BYTES);
    let mut reactor = reactor(mode);
    assert_eq!(reactor.mode(), if mode == ModeChoice::Uring { Mode::Uring } else { Mode::Threads });
    assert!(!reactor.why().is_empty());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    reactor.watch(ours.as_raw_fd(), 9, Interest::READ).unwrap();
    let other = std::thread::spawn(move || {
        for _ in 0..200 {
            std::thread::sleep(Duration::from_micros(300));
            theirs.write_all(b"x").unwrap();
        }
        theirs
    });
    let arena = Arena::anonymous(1, false).unwrap();
    let (mut read, mut written) = (0, 0);
    let mut out = Vec::new();
    let submit = |reactor: &mut Reactor| {
        let mut buffers = Buffers::none();
        buffers.push_frame(&arena, FrameId(0), 0, 4096);
        reactor.submit(1, Operation::new(file.clone(), OperationKind::Write { offset: 0 }, buffers));
    };
    submit(&mut reactor);
    let deadline = Instant::now() + LONG;
    while read < 200 || written < 200 {
        assert!(Instant::now() < deadline, "{read} bytes read, {written} blocks written");
        reactor.wait(Some(LONG), &mut out).unwrap();
        for completion in out.drain(..) {
            match completion {
                Completion::Done { token, result, .. } => {
                    assert_eq!(token, 1);
                    result.unwrap();
                    written += 1;
                    submit(&mut reactor);
                }
                Completion::Ready { token, readable, .. } => {
                    assert_eq!((token, readable), (9, true));
                    read += (&ours).read(&mut [0; 64]).unwrap();
                }
                Completion::Woken => panic!("nobody woke it"),
            }
        }
    }
    other.join().unwrap();
}

/// So many operations are in flight that one has always ended, and no wait has to block; a socket that speaks rarely finds
/// the reactor waiting for bursts of them.
fn a_socket_is_heard_among_disks_that_are_never_quiet(mode: ModeChoice) {
    const IN_FLIGHT: u64 = 32;
    const WORDS: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let file = device(&folder.path().join("device"), FILE_BYTES);
    let mut reactor = reactor(mode);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    reactor.watch(ours.as_raw_fd(), 9, Interest::READ).unwrap();
    let arena = Arena::anonymous(IN_FLIGHT as u32, false).unwrap();
    let submit = |reactor: &mut Reactor, i: u64| {
        let mut buffers = Buffers::none();
        buffers.push_frame(&arena, FrameId(i as u32), 0, 4096);
        reactor.submit(i, Operation::new(file.clone(), OperationKind::Write { offset: i * 4096 }, buffers));
    };
    (0..IN_FLIGHT).for_each(|i| submit(&mut reactor, i));
    let mut out = Vec::new();
    for word in 0..WORDS {
        let quiet_until = Instant::now() + Duration::from_millis(3);
        let mut said: Option<Instant> = None;
        loop {
            if said.is_none() && Instant::now() >= quiet_until {
                theirs.write_all(b"x").unwrap();
                said = Some(Instant::now());
            }
            reactor.wait(Some(LONG), &mut out).unwrap();
            let mut heard = false;
            for completion in out.drain(..) {
                match completion {
                    Completion::Done { token, result, .. } => {
                        result.unwrap();
                        submit(&mut reactor, token);
                    }
                    Completion::Ready { token, readable, .. } => {
                        assert_eq!((token, readable, said.is_some()), (9, true, true));
                        heard = true;
                    }
                    Completion::Woken => panic!("nobody woke it"),
                }
            }
            if heard {
                break;
            }
            assert!(said.is_none_or(|said| said.elapsed() < LONG), "word {word} of {WORDS} was not heard");
        }
        (&ours).read_exact(&mut [0; 1]).unwrap();
    }
}

fn a_reactor_may_be_dropped_with_work_in_flight(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    let file = device(&path, FILE_BYTES);
    let mut reactor = reactor(mode);
    let arena = Arena::anonymous(256, false).unwrap();
    for i in 0..256u64 {
        let mut buffers = Buffers::none();
        buffers.push_frame(&arena, FrameId(i as u32), 0, 4096);
        reactor.submit(i, Operation::new(file.clone(), OperationKind::Write { offset: i * 4096 }, buffers));
    }
    drop(arena);
    let start = Instant::now();
    drop(reactor);
    assert!(start.elapsed() < Duration::from_secs(5));
}
