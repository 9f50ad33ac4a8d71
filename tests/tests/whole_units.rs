//! Volumes that end inside a unit of their backing: a device of 4 KiB sectors takes no less, so the last bytes of such a volume
//! would stay in the tier for ever.

use forebay_tests::harness::{IoMode, TempDir, Tier, VOLUME_NAME, Volume, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Loop, no_fuse_or_loop};
use forebay_tests::nbd::Client;
use std::path::Path;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const SECTOR: u64 = 512;
/// The last block of the volume is one sector.
const SIZE: u64 = (16 << 20) + SECTOR;
const DEVICE: u64 = 17 << 20;
/// What lies on the device behind the volume's end, and is nobody's business.
const BEHIND: u8 = 0xb7;

fn device(folder: &TempDir) -> (Loop, std::path::PathBuf) {
    let file = folder.join("device");
    std::fs::write(&file, vec![BEHIND; DEVICE as usize]).unwrap();
    (Loop::attach(&file), file)
}

fn volume(folder: &TempDir, device: &Path, io: IoMode) -> Volume {
    let mut volume = Volume::new(folder, SIZE, Tier::Flash, io);
    volume.backing = device.to_str().unwrap().to_owned();
    volume
}

/// Writes up to the end: the last sector, which is a block of its own, and two before.
fn write_the_end(volume: &Volume) {
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(SIZE - 3 * SECTOR, &[0x11; 3 * SECTOR as usize], 0).unwrap().unwrap();
    client.flush().unwrap().unwrap();
}

/// What the device must hold.
fn check_device(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    let end = SIZE as usize;
    assert!(bytes[end - 3 * SECTOR as usize..end].iter().all(|&byte| byte == 0x11), "the end of the volume");
    assert!(bytes[end..].iter().all(|&byte| byte == BEHIND), "what lies behind the volume was changed");
}

in_both_io_modes! {
    fn a_new_volume_that_ends_inside_a_unit_of_its_backing_is_refused(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("whole-units");
        let (device, file) = device(&folder);
        device.set_sector_bytes(4096);
        let mut volume = volume(&folder, device.path(), io);
        let more = (SIZE - SECTOR + 4096).to_string();
        volume.expect_refusal().says(&["multiple of the 4096 bytes", device.path().to_str().unwrap(), &more]);
        assert!(std::fs::read(&file).unwrap().iter().all(|&byte| byte == BEHIND), "it was written to");
        // The same name, with what was wrong put right.
        volume.size = Some(SIZE - SECTOR);
        let daemon = volume.start();
        let grown = daemon.volume_command(["resize", VOLUME_NAME, &SIZE.to_string()]);
        assert!(grown.expect_failure().text().contains("multiple of 4096"), "it grew into half a unit");
        daemon.stop(MINUTE);
    }

    /// Proves L-BF-1 for a volume that was made where it ended with a unit, and whose device has other ones now.
    fn a_volume_that_is_there_reaches_its_backing_to_the_last_byte(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("last-bytes");
        let (device, file) = device(&folder);
        let mut volume = volume(&folder, device.path(), io);
        let plain = volume.backing.clone();
        volume.backing = format!("slow:latency=30s:{plain}");
        let daemon = volume.start();
        write_the_end(&volume);
        daemon.kill9();
        forebay_tests::locks::wait_for_late_writes(device.path());
        device.set_sector_bytes(4096);
        volume.backing = plain;
        let daemon = volume.start();
        daemon.drain();
        assert_eq!(daemon.show()["dirty"]["bytes"], 0);
        check_device(&file);
        let mut client = Client::connect(&volume.target()).unwrap();
        client.zero(SIZE - 5 * SECTOR, (5 * SECTOR) as u32, 0).unwrap().unwrap();
        client.disconnect().unwrap();
        daemon.drain();
        write_the_end(&volume);
        daemon.stop(MINUTE);
        check_device(&file);
    }
}

/// A hold promises an image that does not change: neither do its bytes, nor its size.
#[test]
fn a_held_volume_does_not_grow() {
    let folder = TempDir::new("held-growth");
    let volume = Volume::new(&folder, 16 << 20, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    daemon.volume_command(["drain", VOLUME_NAME, "--hold", "5m"]).expect_success();
    let refused = daemon.volume_command(["resize", VOLUME_NAME, "32M"]).expect_failure().text();
    assert!(refused.contains("held") && refused.contains("release"), "{refused}");
    assert_eq!(std::fs::metadata(volume.image()).unwrap().len(), 16 << 20);
    daemon.volume_command(["release", VOLUME_NAME]).expect_success();
    daemon.volume_command(["resize", VOLUME_NAME, "32M"]).expect_success();
    assert_eq!(std::fs::metadata(volume.image()).unwrap().len(), 32 << 20);
    daemon.stop(MINUTE);
}
