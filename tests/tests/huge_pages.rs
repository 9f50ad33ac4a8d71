//! A memory tier in hugetlbfs: reserved in whole huge pages, refused with the line that makes room, and after SIGKILL
//! everything is there.

use forebay_tests::harness::{TempDir, Tier, Volume, forebay, run_command, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::Mounted;
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, LoadOptions};
use forebay_tests::scene::{SIZE, all_there};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const PAGES: &str = "/proc/sys/vm/nr_hugepages";
const WANTED: u64 = 64;

/// Huge pages for one test at a time; given back when dropped.
struct HugePages {
    before: u64,
    _alone: MutexGuard<'static, ()>,
}

fn pages() -> Option<u64> {
    std::fs::read_to_string(PAGES).ok()?.trim().parse().ok()
}

impl HugePages {
    /// `Err`: what is missing here.
    fn reserve() -> Result<HugePages, String> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let before = pages().ok_or(format!("the kernel has no huge pages: {PAGES} cannot be read"))?;
        std::fs::write(PAGES, (before + WANTED).to_string()).map_err(|e| format!("cannot write {PAGES}: {e}"))?;
        let reserved = HugePages { before, _alone: alone };
        match pages() {
            Some(now) if now >= before + WANTED => Ok(reserved),
            now => Err(format!("{now:?} huge pages could be had, {} were wanted", before + WANTED)),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(PAGES, self.before.to_string());
    }
}

in_both_io_modes! {
    fn a_memory_tier_in_huge_pages_survives_sigkill(io: IoMode) {
        let _reserved = match HugePages::reserve() {
            Ok(reserved) => reserved,
            Err(reason) => return skip(&reason),
        };
        let folder = TempDir::new("huge");
        let mount = folder.join("huge");
        let mounted = Mounted::new(&["-t", "hugetlbfs", "-o", "pagesize=2M"], "none", &mount);
        let tier = mount.join("vm1.tier");
        let mut volume = Volume::new(&folder, SIZE, Tier::Memory, io);
        volume.arguments = vec!["--tier-path".into(), tier.clone().into()];
        // More than there is: refused with the line that makes room, and nothing is left behind.
        volume.tier_size = 1 << 40;
        volume.expect_refusal().says(&["vm.nr_hugepages=", "--tier-size", tier.to_str().unwrap()]);
        assert!(!tier.exists(), "a file that is no tier was left behind");
        let other = TempDir::new("huge-other");
        let mut volume = Volume::new(&other, SIZE, Tier::Memory, io);
        volume.arguments = vec!["--tier-path".into(), tier.clone().into()];
        // Not a whole number of huge pages.
        volume.tier_size = (33 << 20) + 4096;
        let image = volume.backing.clone();
        volume.backing = format!("slow:latency=30s:{image}");
        let mut options = LoadOptions::new(volume.target(), other.join("journal"), 0..SIZE);
        options.requests = Some(300);
        let daemon = volume.start();
        assert_eq!(std::fs::metadata(&tier).unwrap().len(), 34 << 20, "whole pages");
        load::run(&options).unwrap();
        daemon.kill9();
        wait_for_late_writes(&volume.image());
        volume.backing = image;
        let mut inspect = Command::new(forebay());
        inspect.arg("inspect").arg(&tier);
        run_command(MINUTE, inspect).expect_success();
        all_there(&volume, &options);
        // Served and killed once more, with everything on the way.
        let daemon = volume.start();
        load::run(&options).unwrap();
        daemon.kill9();
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.drain();
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        // The pages belong to the tier until it goes.
        std::fs::remove_file(&tier).unwrap();
        drop(mounted);
    }
}
