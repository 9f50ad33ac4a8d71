//! A tier that stalls: it takes no write for a while, without an error, as a device does behind a busy controller. What it
//! has not taken when the daemon is killed never happens.
//!
//! A library that is preloaded into the daemon (`stall.c`) keeps the writes back before the kernel has them, so it works with
//! I/O by threads only; with io_uring the kernel takes them by another way. Another one (`late_removal.c`) keeps a removal back.

use crate::harness::{IoMode, TempDir, Volume};
use crate::preload;
use crate::scene::tier_path;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The tier of one volume, which stalls on demand.
pub struct StallingTier {
    flag: PathBuf,
}

impl StallingTier {
    /// From its next start on the tier of the volume can stall. It has been served before, so that its tier is there.
    ///
    /// # Panics
    /// When the volume's I/O goes by a way that cannot be stalled, or the library cannot be built.
    #[track_caller]
    pub fn of(volume: &mut Volume, folder: &TempDir) -> StallingTier {
        assert_eq!(volume.io, IoMode::Threads, "the kernel's own writes cannot be kept back");
        let library = preload::build(folder, "stall", include_str!("stall.c"));
        let flag = folder.join("stall-now");
        let tier = tier_path(volume);
        for (name, path) in [("LD_PRELOAD", &library), ("STALL_WHILE", &flag), ("STALL_FILE", &tier)] {
            volume.environment.push((name.to_owned(), OsString::from(path)));
        }
        StallingTier { flag }
    }

    /// No write is taken from now on.
    pub fn stall(&self) {
        std::fs::write(&self.flag, "").expect("a folder of our own");
    }

    /// Writes that have waited since it stalled.
    pub fn kept_back(&self) -> u64 {
        std::fs::metadata(&self.flag).map_or(0, |flag| flag.len())
    }

    /// What was kept back, and everything else, is taken.
    pub fn go_on(&self) {
        // It may not have stalled at all.
        let _ = std::fs::remove_file(&self.flag);
    }
}

/// The first removal of a file from its folder, which comes late.
pub struct LateRemoval {
    flag: PathBuf,
}

impl LateRemoval {
    /// From its next start on the daemon of the volume is late with the first removal of this file.
    ///
    /// # Panics
    /// When the library cannot be built, or the file has no name.
    #[track_caller]
    pub fn of(file: &Path, volume: &mut Volume, folder: &TempDir) -> LateRemoval {
        let library = preload::build(folder, "late_removal", include_str!("late_removal.c"));
        let flag = folder.join("late-now");
        std::fs::write(&flag, "").expect("a folder of our own");
        let name = file.file_name().expect("it has a name");
        let path = |path: &PathBuf| OsString::from(path);
        let variables =
            [("LD_PRELOAD", path(&library)), ("LATE_WHILE", path(&flag)), ("LATE_NAME", name.to_os_string())];
        volume.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        LateRemoval { flag }
    }

    /// Whether it has begun, and waits.
    pub fn waits(&self) -> bool {
        std::fs::metadata(&self.flag).is_ok_and(|flag| flag.len() > 0)
    }

    /// It is done now.
    pub fn go_on(&self) {
        std::fs::remove_file(&self.flag).expect("it waits for this");
    }
}
