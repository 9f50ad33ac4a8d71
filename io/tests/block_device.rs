//! Block devices, by loop devices with both sizes of logical block. They need root and free loop devices, so they
//! are ignored unless asked for: `cargo test -p forebay-io -- --include-ignored`.

use forebay_core::types::FrameId;
use forebay_io::file::Access;
use forebay_io::folder::FileKind;
use forebay_io::{
    Arena, Backing, BackingOptions, Buffers, Completion, FlashTier, LockAttempt, ModeChoice, OpenError, Operation,
    OperationKind, Reactor,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

struct Loop {
    device: String,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

fn command(line: &[&str]) -> String {
    let output = Command::new(line[0]).args(&line[1..]).output().unwrap_or_else(|error| panic!("{line:?}: {error}"));
    assert!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Loop {
    fn new(sector: u32) -> Loop {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk");
        std::fs::write(&file, vec![0x11u8; 4 << 20]).unwrap();
        let sector = sector.to_string();
        let device = command(&["losetup", "--find", "--show", "--sector-size", &sector, file.to_str().unwrap()]);
        Loop { device, file, _folder: folder }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

fn run(reactor: &mut Reactor, operation: Operation) -> std::io::Result<()> {
    reactor.submit(1, operation);
    let mut out = Vec::new();
    while out.is_empty() {
        reactor.wait(Some(Duration::from_secs(20)), &mut out).unwrap();
    }
    let Some(Completion::Done { result, .. }) = out.pop() else { panic!() };
    result
}

#[test]
#[ignore = "needs root and free loop devices: run with --include-ignored"]
fn logical_blocks_of_both_sizes_are_found_and_written() {
    for (sector, mode) in [(512, ModeChoice::Uring), (4096, ModeChoice::Uring), (4096, ModeChoice::Threads)] {
        let device = Loop::new(sector);
        let mut backing = Backing::open(&device.device, BackingOptions::default()).unwrap();
        let file = backing.file().unwrap();
        assert_eq!((file.kind(), file.access()), (FileKind::Block, &Access::Direct { align: sector }));
        assert_eq!(backing.size().unwrap(), 4 << 20);
        assert!(backing.grow(8 << 20).is_err());
        assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
        // Claimed: neither a second opener nor a mount gets it.
        assert!(matches!(Backing::open(&device.device, BackingOptions::default()), Err(OpenError::InUse { .. })));

        let mut reactor = Reactor::new(mode).unwrap();
        let mut arena = Arena::anonymous(16, false).unwrap();
        arena.bytes_mut(FrameId(3)).fill(0x33);
        let mut buffers = Buffers::none();
        buffers.push_frame(&arena, FrameId(3), 0, 4096);
        let write = OperationKind::Write { offset: 8192 };
        run(&mut reactor, Operation::new(backing.file().unwrap().clone(), write, buffers)).unwrap();
        for (offset, hole) in [(16384, true), (32768, false)] {
            let zero = OperationKind::Zero { offset, length: 8192, hole };
            run(&mut reactor, Operation::new(backing.file().unwrap().clone(), zero, Buffers::none())).unwrap();
        }
        run(&mut reactor, Operation::new(backing.file().unwrap().clone(), OperationKind::Sync, Buffers::none()))
            .unwrap();
        // Past the end of a device reads as zeros, like past the end of a file.
        arena.bytes_mut(FrameId(5)).fill(0xee);
        arena.bytes_mut(FrameId(6)).fill(0xee);
        let mut buffers = Buffers::none();
        buffers.push_frame(&arena, FrameId(5), 0, 4096);
        buffers.push_frame(&arena, FrameId(6), 0, 4096);
        let read = OperationKind::Read { offset: (4 << 20) - 4096 };
        run(&mut reactor, Operation::new(backing.file().unwrap().clone(), read, buffers)).unwrap();
        assert!(arena.bytes(FrameId(5)).iter().all(|&b| b == 0x11));
        assert!(arena.bytes(FrameId(6)).iter().all(|&b| b == 0));
        drop(backing);
        let bytes = std::fs::read(&device.file).unwrap();
        for (at, expected) in
            [(0, 0x11), (8192, 0x33), (12288, 0x11), (16384, 0), (24576, 0x11), (32768, 0), (40960, 0x11)]
        {
            assert!(bytes[at..at + 4096].iter().all(|&b| b == expected), "at {at} with sectors of {sector}");
        }
    }
}

#[test]
#[ignore = "needs root and free loop devices: run with --include-ignored"]
fn what_is_mounted_or_looped_is_refused() {
    let device = Loop::new(512);
    let under = Backing::open(device.file.to_str().unwrap(), BackingOptions::default()).unwrap_err();
    assert!(under.to_string().contains(&format!("under the loop device {}", device.device)), "{under}");
    command(&["mkfs.ext4", "-q", &device.device]);
    let point = tempfile::tempdir().unwrap();
    command(&["mount", &device.device, point.path().to_str().unwrap()]);
    let mounted = Backing::open(&device.device, BackingOptions::default());
    command(&["umount", point.path().to_str().unwrap()]);
    let mounted = mounted.unwrap_err().to_string();
    assert!(mounted.contains("mounted at"), "{mounted}");
    Backing::open(&device.device, BackingOptions::default()).unwrap();
}

#[test]
#[ignore = "needs root and free loop devices: run with --include-ignored"]
fn a_tier_takes_an_empty_device_only_and_waits_for_its_claim() {
    let device = Loop::new(4096);
    let path = Path::new(&device.device);
    let wait = Duration::from_millis(50);
    let full = FlashTier::create(path, 2 << 20, true, wait, |_| {}).unwrap_err().to_string();
    assert!(full.contains("not empty") && full.contains("dd if=/dev/zero"), "{full}");
    command(&["dd", "if=/dev/zero", &format!("of={}", device.device), "bs=1M", "count=1", "conv=fsync"]);
    let large = FlashTier::create(path, 8 << 20, true, wait, |_| {}).unwrap_err().to_string();
    assert!(large.contains("choose a smaller tier"), "{large}");
    let tier = FlashTier::create(path, 2 << 20, true, wait, |_| {}).unwrap();
    assert_eq!((tier.blocks(), tier.access()), (512, &Access::Direct { align: 4096 }));
    let claimed = FlashTier::open(path, wait).unwrap_err().to_string();
    assert!(claimed.contains("claimed"), "{claimed}");
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(tier);
    });
    assert_eq!(FlashTier::open(path, Duration::from_secs(20)).unwrap().blocks(), 1024);
    release.join().unwrap();
    assert!(std::fs::read(&device.file).unwrap()[1 << 20..].iter().all(|&b| b == 0x11), "nothing was overwritten");
}

#[test]
#[ignore = "needs root and free loop devices: run with --include-ignored"]
fn a_swap_area_is_refused() {
    let device = Loop::new(4096);
    command(&["mkswap", &device.device]);
    command(&["swapon", &device.device]);
    let swap = Backing::open(&device.device, BackingOptions::default());
    command(&["swapoff", &device.device]);
    let swap = swap.unwrap_err().to_string();
    assert!(swap.contains("in use as swap"), "{swap}");
}
