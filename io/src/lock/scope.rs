//! About whom a lock says anything: which file systems make it evidence that a former owner writes no more.
//!
//! What is not known to keep a write out after its lock has ended is no evidence: the list names what is, with the
//! reason in words. It judges by what `statfs` and the list of mounts tell, and by nothing that a server promises.

use crate::file::DeviceFile;
use crate::file_system::{
    BCACHEFS, BTRFS, CEPH, CIFS, EXT, F2FS, FUSE, NFS, OVERLAY, SMB2, TMPFS, XFS, ZFS, file_system_of,
};
use crate::folder::{FileKind, Held};
use forebay_core::fence::LockReach;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whose writes a lock says anything of, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockScope {
    /// Whose writes are known to have ended when the lock has.
    pub about: LockReach,
    /// Why that is so, for people.
    pub reason: &'static str,
}

impl LockScope {
    /// Of an export of an NBD server.
    pub fn of_nbd() -> LockScope {
        LockScope { about: LockReach::Nobody, reason: "the NBD protocol has no locks" }
    }
}

/// A file system as the list of mounts has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountFacts<'a> {
    /// Its type, such as `nfs4`.
    pub kind: &'a str,
    /// The options of the file system itself.
    pub options: &'a str,
}

/// Judges by these facts alone, and looks at nothing.
pub fn judge(kind: FileKind, magic: u64, mount: Option<MountFacts<'_>>) -> LockScope {
    let (about, reason) = match (kind, magic) {
        (FileKind::Block, _) => (
            LockReach::ThisHost,
            "a lock on a block device is the kernel's own: another host that reaches the device does not see it",
        ),
        (FileKind::Regular, EXT | XFS | BTRFS | F2FS | ZFS | BCACHEFS | TMPFS) => (
            LockReach::ThisHost,
            "a local file system: its lock ends with the last write of this host, and no other host has it mounted",
        ),
        (FileKind::Regular, NFS) => return judge_nfs(mount),
        (FileKind::Regular, CIFS | SMB2) => (
            LockReach::Nobody,
            "SMB: a client that was cut off opens the file anew and writes on, with or without its former lock",
        ),
        (FileKind::Regular, FUSE) => (
            LockReach::Nobody,
            "FUSE: what the process behind it still writes after the lock has ended is not seen by the kernel",
        ),
        (FileKind::Regular, OVERLAY) => (
            LockReach::Nobody,
            "overlayfs: a second mount of the same layers has locks of its own; use a volume or bind mount for the image",
        ),
        (FileKind::Regular, CEPH) => (
            LockReach::Nobody,
            "CephFS: whether a client that lost its lock is kept out is a setting of the servers that is not seen here",
        ),
        (FileKind::Regular, _) => {
            (LockReach::Nobody, "a file system of which it is not known that a lost lock keeps writes out")
        }
    };
    LockScope { about, reason }
}

fn judge_nfs(mount: Option<MountFacts<'_>>) -> LockScope {
    let version = |mount: MountFacts<'_>| {
        let mut versions = mount.options.split(',').filter_map(|option| option.strip_prefix("vers="));
        versions.next().map(|version| version.split('.').next().unwrap_or_default().to_owned())
    };
    let (about, reason) = match mount.map(|mount| (mount, version(mount))) {
        Some((mount, Some(version))) if mount.kind == "nfs4" && version == "4" => (
            LockReach::EveryHost,
            "NFSv4: a lock lives by a lease, and the server refuses the writes of who has lost it (RFC 8881, 8.4); not \
             where a host has set nfs.recover_lost_locks",
        ),
        Some((_, Some(version))) if version == "3" || version == "2" => (
            LockReach::Nobody,
            "NFSv3: the server keeps locks apart from writes, and takes writes without a lock; mount it with vers=4.2",
        ),
        Some(_) | None => (LockReach::Nobody, "NFS of a version that the list of mounts does not tell"),
    };
    LockScope { about, reason }
}

/// Looks at an open file, and judges.
pub fn scope_of(file: &DeviceFile) -> io::Result<LockScope> {
    look(file.file(), file.kind())
}

/// The same of what lies at a path, and whether whatever this machine gives to it ends with its present boot: it does on a
/// local file system, which no other host has mounted.
pub fn scope_at(path: &Path) -> io::Result<(LockScope, bool)> {
    // Held, not opened: somebody may have claimed it, and no device is woken.
    let held = Held::of(path)?;
    let kind = held.kind()?;
    let reach = look(&held.place()?, kind)?;
    let local = kind == FileKind::Regular && reach.about == LockReach::ThisHost;
    Ok((reach, local))
}

fn look(file: &File, kind: FileKind) -> io::Result<LockScope> {
    let magic = file_system_of(file)?;
    let device = file.metadata()?.dev();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    Ok(judge(kind, magic, mount_of(&mounts, &number)))
}

/// Finds a file system by its device number in the text of mountinfo.
fn mount_of<'a>(mounts: &'a str, number: &str) -> Option<MountFacts<'a>> {
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        if mount.split(' ').nth(2) != Some(number) {
            return None;
        }
        let mut words = system.split(' ');
        let kind = words.next()?;
        Some(MountFacts { kind, options: words.nth(1)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(magic: u64, mount: Option<MountFacts<'_>>) -> LockReach {
        judge(FileKind::Regular, magic, mount).about
    }

    #[test]
    fn only_what_keeps_late_writes_out_makes_a_lock_evidence() {
        for local in [EXT, XFS, BTRFS, F2FS, ZFS, BCACHEFS, TMPFS] {
            assert_eq!(about(local, None), LockReach::ThisHost);
        }
        for other in [CIFS, SMB2, FUSE, OVERLAY, CEPH, 0, 0x0102_1997] {
            assert_eq!(about(other, None), LockReach::Nobody, "{other:#x}");
        }
        // A shared disk has ext4's magic behind it no less than its own node's: kind counts first.
        assert_eq!(judge(FileKind::Block, EXT, None).about, LockReach::ThisHost);
    }

    #[test]
    fn nfs_is_judged_by_its_version() {
        let mounts = "\
22 1 0:21 / /proc rw - proc proc rw
30 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
61 30 0:45 / /mnt/a rw,relatime shared:9 - nfs4 nas:/a rw,vers=4.2,rsize=1048576,hard,proto=tcp,local_lock=none,addr=::1
62 30 0:46 / /mnt/b rw,relatime - nfs nas:/b rw,vers=3,rsize=1048576,hard,nolock,proto=tcp,local_lock=all
63 30 0:47 / /mnt/c rw,relatime - nfs4 nas:/c rw,hard
";
        assert_eq!(about(NFS, mount_of(mounts, "0:45")), LockReach::EveryHost);
        assert_eq!(about(NFS, mount_of(mounts, "0:46")), LockReach::Nobody);
        assert_eq!(about(NFS, mount_of(mounts, "0:47")), LockReach::Nobody);
        assert_eq!(mount_of(mounts, "0:48"), None);
        assert_eq!(about(NFS, None), LockReach::Nobody);
    }

    #[test]
    fn the_file_system_of_a_test_folder_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [0u8; 4096]).unwrap();
        let reach = scope_of(&DeviceFile::open(&path, false).unwrap()).unwrap();
        let fs = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(&path).output().unwrap();
        let fs = String::from_utf8(fs.stdout).unwrap();
        let local = ["ext2/ext3", "xfs", "btrfs", "tmpfs", "f2fs", "zfs"].contains(&fs.trim());
        assert_eq!(reach.about == LockReach::ThisHost, local, "{fs}: {reach:?}");
    }
}
