//! What tests ask of the kernel: control groups, loop devices, mounts, FUSE and device-mapper marks. Each is given back when
//! it is dropped.

use crate::harness::{require_tool, run_command, run_tool, wait_within};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A control group with a memory limit, removed when dropped: of version 2, or of version 1 where the host still has
/// the memory controller there.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
    version: u8,
}

impl ControlGroup {
    /// Makes one at the root of the hierarchy. `Err`: what is missing here.
    pub fn new(name: &str, memory_bytes_max: u64) -> Result<ControlGroup, String> {
        let root = Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let version = if controllers.split_whitespace().any(|controller| controller == "memory") { 2 } else { 1 };
        let parent = if version == 2 { root.to_owned() } else { root.join("memory") };
        if version == 1 && !parent.join("memory.limit_in_bytes").exists() {
            return Err("no memory controller, neither of cgroup version 2 nor 1".to_owned());
        }
        let folder = parent.join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::create_dir(&folder).map_err(|e| format!("cannot make the control group {}: {e}", folder.display()))?;
        let group = ControlGroup { folder, version };
        let limit = if version == 2 { "memory.max" } else { "memory.limit_in_bytes" };
        let path = group.folder.join(limit);
        std::fs::write(&path, memory_bytes_max.to_string())
            .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(group)
    }

    /// The folder that the kernel shows the group as.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Processes that the kernel has killed for memory.
    pub fn killed_for_memory(&self) -> u64 {
        let file = if self.version == 2 { "memory.events" } else { "memory.oom_control" };
        let path = self.folder.join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or_else(|| panic!("no oom_kill in {text}"))
    }

    /// Most bytes in use so far; page cache counts, and is given back before anything is killed.
    pub fn peak_bytes(&self) -> u64 {
        let file = if self.version == 2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
        std::fs::read_to_string(self.folder.join(file)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The kernel needs a moment to bury the last process.
        for _ in 0..200 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = writeln!(std::io::stderr(), "could not remove the control group {}", self.folder.display());
    }
}

/// A loop device over a file, detached when dropped.
///
/// It is held open all the while: the kernel gives a device to another file only after the last close, so that whoever detaches it
/// meanwhile (see [`detach_the_dead`]) does not have this one end what another test has attached to the same number since.
#[derive(Debug)]
pub struct Loop {
    path: PathBuf,
    open: File,
}

/// `LOOP_CLR_FD` of linux/loop.h.
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;

impl Loop {
    /// Attaches a free loop device to the file.
    #[track_caller]
    pub fn attach(file: &Path) -> Loop {
        detach_the_dead();
        let output =
            run_tool(Duration::from_secs(20), "losetup", ["-f", "--show", file.to_str().expect("a plain path")]);
        let path = PathBuf::from(output.expect_success().stdout.trim());
        let open = File::open(&path).unwrap_or_else(|e| panic!("open {}: {e}", path.display()));
        Loop { path, open }
    }

    /// From now on it takes sectors of this size, and no less.
    #[track_caller]
    pub fn set_sector_bytes(&self, bytes: u32) {
        let device = self.path.to_str().expect("a plain path");
        run_tool(Duration::from_secs(20), "losetup", ["--sector-size", &bytes.to_string(), device]).expect_success();
    }

    /// Path of the block device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Detaches loop devices whose file lies on a FUSE file system without a process: a killed test leaves them, and programs
/// that look at all loop devices (mkfs.btrfs) fail on them. What is not connected now never is again.
fn detach_the_dead() {
    for device in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = || std::fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        let dead =
            |path: &Path| std::fs::metadata(path).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
        if !Path::new(file().trim()).ancestors().any(dead) {
            continue;
        }
        let path = Path::new("/dev").join(device.file_name());
        let Ok(open) = File::open(&path) else { continue };
        // Once more, now that it is held: it may have become another file's since.
        let file = file();
        if Path::new(file.trim()).ancestors().any(dead) {
            let _ = Command::new("umount").arg("-l").arg(file.trim()).stderr(Stdio::null()).status();
            drop(Loop { path, open });
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open, and the request takes no argument. It takes effect with the last close, which is as a
        // rule that of this descriptor, right after.
        unsafe { libc::ioctl(self.open.as_raw_fd(), LOOP_CLR_FD) };
    }
}

/// A mounted file system, unmounted when dropped.
#[derive(Debug)]
pub struct Mounted(PathBuf);

impl Mounted {
    /// `mount OPTIONS DEVICE POINT`; the point is made.
    #[track_caller]
    pub fn new(options: &[&str], device: &str, point: &Path) -> Mounted {
        std::fs::create_dir_all(point).unwrap_or_else(|e| panic!("make {}: {e}", point.display()));
        let mut command = Command::new(require_tool("mount"));
        command.args(options).arg(device).arg(point);
        run_command(Duration::from_secs(60), command).expect_success();
        Mounted(point.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmount = |options: &[&str]| {
            let mut command = Command::new("umount");
            command.args(options).arg(&self.0).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        // A dead device below cannot be unmounted in order.
        if !unmount(&[]) {
            unmount(&["-l"]);
        }
    }
}

/// nbdfuse: an NBD export as a plain file, unmounted when dropped. It dies when its server dies under I/O.
#[derive(Debug)]
pub struct Fuse {
    child: Child,
    file: PathBuf,
}

impl Fuse {
    /// Mounts on `file` itself, so that its neighbours in the folder stay plain files.
    #[track_caller]
    pub fn mount(file: &Path, uri: &str) -> Fuse {
        File::create(file).unwrap_or_else(|e| panic!("make {}: {e}", file.display()));
        let mut command = Command::new(require_tool("nbdfuse"));
        command.arg(file).arg(uri).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let begun = Instant::now();
        while std::fs::metadata(file).map_or(0, |m| m.len()) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nbdfuse has not mounted {uri}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Fuse { child, file: file.to_owned() }
    }

    /// The file whose content is the export's.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Lazily: a server that no longer answers must not keep the test.
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.file).stderr(Stdio::null()).status();
        if wait_within(&mut self.child, Duration::from_secs(10)).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Why FUSE and loop devices cannot be used here, if so.
pub fn no_fuse_or_loop() -> Option<&'static str> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return Some("needs root for mounts and loop devices");
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("/dev/fuse is missing");
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("/dev/loop-control is missing");
    }
    None
}

/// A device-mapper device that takes marks (dm-log-writes), by its control node.
#[derive(Debug)]
pub struct MarkDevice {
    control: File,
    name: String,
}

/// `struct dm_ioctl` of linux/dm-ioctl.h, followed by `struct dm_target_msg` and its text.
#[repr(C)]
struct TargetMessage {
    version: [u32; 3],
    data_size: u32,
    data_start: u32,
    target_count: u32,
    open_count: i32,
    flags: u32,
    event_nr: u32,
    padding: u32,
    dev: u64,
    name: [u8; 128],
    uuid: [u8; 129],
    data: [u8; 7],
    sector: u64,
    text: [u8; 64],
}

/// `_IOWR(0xfd, 14, struct dm_ioctl)`: DM_TARGET_MSG, with the size of `struct dm_ioctl` alone.
const DM_TARGET_MSG: libc::c_ulong = (3 << 30) | (312 << 16) | (0xfd << 8) | 14;
const _: () = assert!(std::mem::offset_of!(TargetMessage, sector) == 312);

impl MarkDevice {
    /// The mapped device of this name.
    pub fn open(name: &str) -> Result<MarkDevice, String> {
        let control = File::options().read(true).write(true).open("/dev/mapper/control");
        let control = control.map_err(|e| format!("open /dev/mapper/control to mark {name}: {e}"))?;
        Ok(MarkDevice { control, name: name.to_owned() })
    }

    /// Writes a mark into the recording; everything that completed before is before it.
    ///
    /// A recording with a missing mark would promise less than was acknowledged, so a failure ends the process.
    pub fn mark(&self, text: &str) {
        let message = format!("mark {text}");
        let mut request = TargetMessage {
            version: [4, 0, 0],
            data_size: size_of::<TargetMessage>() as u32,
            data_start: 312,
            target_count: 0,
            open_count: 0,
            flags: 0,
            event_nr: 0,
            padding: 0,
            dev: 0,
            name: [0; 128],
            uuid: [0; 129],
            data: [0; 7],
            sector: 0,
            text: [0; 64],
        };
        request.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        request.text[..message.len()].copy_from_slice(message.as_bytes());
        // SAFETY: the struct has the kernel's layout, says its own size, and lives through the call.
        let result = unsafe { libc::ioctl(self.control.as_raw_fd(), DM_TARGET_MSG, &raw mut request) };
        assert_eq!(result, 0, "mark '{text}' on {}: {}", self.name, std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{TempDir, skip};

    #[test]
    fn a_loop_device_that_somebody_else_detached_does_not_take_the_next_file_with_it() {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("loops");
        let (first_file, second_file) = (folder.sparse("first", 1 << 20), folder.sparse("second", 1 << 20));
        let first = Loop::attach(&first_file);
        let device = first.path().to_str().expect("a plain path");
        run_tool(Duration::from_secs(20), "losetup", ["-d", device]).expect_success();
        let second = Loop::attach(&second_file);
        drop(first);
        let name = second.path().file_name().expect("a name").to_str().expect("a plain name").to_owned();
        let attached = || std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
        assert_eq!(Path::new(attached().trim()), second_file);
        drop(second);
        assert_ne!(Path::new(attached().trim()), second_file);
    }
}
