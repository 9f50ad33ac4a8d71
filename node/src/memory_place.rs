//! Where the arenas of memory tiers lie: a tmpfs or hugetlbfs, because these outlive the process.
//!
//! Best is a tmpfs of our own (the systemd unit mounts it; so does the daemon where it may), because nobody else fills
//! it and nobody cleans it up. /dev/shm is the second choice: logind may empty it when a user logs out.

use anyhow::{Context, Result};
use forebay_api::paths;
use forebay_api::record::VolumeId;
use forebay_io::folder::Folder;
use forebay_io::place::Place;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A folder in a tmpfs, and what the operator should know of it.
#[derive(Clone, Debug)]
pub struct MemoryPlace {
    /// Path of the folder.
    pub dir: PathBuf,
    /// Why it is not the best one.
    pub warning: Option<String>,
}

/// Finds a tmpfs for memory tiers, or mounts one.
pub fn find(shm_size: Option<u64>) -> Result<MemoryPlace> {
    // One after the other: of two that mount, the later one would hide what the other has put into the first by then.
    static MOUNTING: Mutex<()> = Mutex::new(());
    let _one = MOUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    let own = paths::run_dir().join("memory");
    make_dir(&own)?;
    // Mounted by the administrator or the unit, hugetlbfs as well.
    if Place::of(&own).is_memory() && is_mount_point(&own) {
        return Ok(MemoryPlace { dir: own, warning: None });
    }
    match mount_tmpfs(&own, shm_size) {
        Ok(()) => Ok(MemoryPlace { dir: own, warning: None }),
        Err(error) => {
            let dir = PathBuf::from(format!("/dev/shm/forebay-{}", paths::user_id()));
            if Place::of(Path::new("/dev/shm")) != Place::Tmpfs {
                anyhow::bail!(
                    "cannot mount a tmpfs at {} ({error}), and /dev/shm is none: mount one there, as in \
                     packaging/run-forebay-memory.mount, or use --tier flash",
                    own.display()
                );
            }
            make_dir(&dir)?;
            let warning = format!(
                "memory tiers lie in {}, because a tmpfs at {} could not be mounted ({error}); logind empties it when \
                 the last session of a user ends, unless RemoveIPC=no in logind.conf, or this is a system user",
                dir.display(),
                own.display()
            );
            Ok(MemoryPlace { dir, warning: Some(warning) })
        }
    }
}

/// The folders that may be such places here, as far as they are there.
pub fn existing() -> Vec<PathBuf> {
    let all = [paths::run_dir().join("memory"), PathBuf::from(format!("/dev/shm/forebay-{}", paths::user_id()))];
    all.into_iter().filter(|dir| dir.is_dir()).collect()
}

/// Whether a path is one that Forebay has made up for the tier of a volume of this name, and of no other.
pub fn is_of_volume(path: &Path, name: &str) -> bool {
    let file = path.file_name().and_then(|file| file.to_str());
    let identity = file.and_then(|file| file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".tier"));
    let is_identity = identity.is_some_and(|text| VolumeId::try_from(text.to_owned()).is_ok());
    is_identity && existing().iter().any(|folder| path.parent() == Some(folder))
}

fn make_dir(dir: &Path) -> Result<()> {
    // /dev/shm is open to all: a folder, or a link, that somebody else put there first would lead to where they can read or empty it.
    let folder =
        Folder::make_private(dir, 0o700).with_context(|| format!("cannot make the folder {}", dir.display()))?;
    let owner = folder.user().with_context(|| format!("cannot look at {}", dir.display()))?;
    if owner != paths::user_id() {
        anyhow::bail!(
            "the folder {} belongs to user {owner}; remove it, or run the daemon as that user",
            dir.display()
        );
    }
    Ok(())
}

fn is_mount_point(path: &Path) -> bool {
    let device = |p: &Path| std::fs::metadata(p).map(|m| m.dev()).ok();
    path.parent().is_some_and(|parent| device(path) != device(parent))
}

fn mount_tmpfs(at: &Path, size: Option<u64>) -> std::io::Result<()> {
    let at = CString::new(at.as_os_str().as_bytes())?;
    let size = size.map_or("50%".to_owned(), |bytes| bytes.to_string());
    // Huge pages, where a file is large enough for them: an arena is touched at random, and with small pages address
    // translation costs more than the copy. Pages are brought in at the start and stay; noswap (since Linux 6.4) keeps
    // them in. A kernel that refuses an option gets less of them.
    for options in [",huge=within_size,noswap", ",noswap", ",huge=within_size", ""] {
        let options = CString::new(format!("mode=0700,size={size}{options}"))?;
        let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // SAFETY: terminated strings that live through the call.
        let rc =
            unsafe { libc::mount(c"forebay".as_ptr(), at.as_ptr(), c"tmpfs".as_ptr(), flags, options.as_ptr().cast()) };
        if rc == 0 {
            return Ok(());
        }
    }
    Err(std::io::Error::last_os_error())
}
