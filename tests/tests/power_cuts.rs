//! Power cuts of the real daemon: it runs under load in a QEMU guest with tier and backing on one dm-log-writes
//! recorder; then the disks are rebuilt as 200 cuts leave them, the daemon starts on each, and every write that an
//! acknowledged flush or FUA covered before the cut must be there.

use forebay_tests::harness::{TempDir, require_tool, run_command, workspace};
use forebay_tests::logwrites::{Disk, Log, write_sparse};
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What the guest has left.
struct Recording {
    folder: PathBuf,
    log: Log,
    history: History,
}

fn record(folder: &TempDir, binary: &Path, parameters: &[&str], tier: u64, backing: u64) -> Recording {
    let out = folder.join("guest");
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/power-cut.sh")).arg(&out);
    command.arg(env!("CARGO_BIN_EXE_pattern")).arg(binary).args(parameters);
    command.args([format!("tier_mib={}", tier >> 20), format!("backing_mib={}", backing >> 20)]);
    run_command(Duration::from_secs(300), command).expect_success();
    let log = Log::open(&out.join("recording")).unwrap();
    let history = History::read(&out.join("journal")).unwrap();
    let marks = log.entries.iter().filter(|e| e.mark.is_some()).count();
    let flushes = log.entries.iter().filter(|e| e.flush || e.fua).count();
    println!("{} entries, {flushes} flushes and forced writes, {marks} marks", log.entries.len());
    Recording { folder: out, log, history }
}

impl Recording {
    /// The newest barrier whose acknowledgement is certainly before the cut.
    fn promised(&self, before: usize) -> u64 {
        self.log.last_mark(before).map_or(0, |mark| mark.parse().unwrap_or(0))
    }
}

/// The machinery first: a plain disk with a page cache (nbdkit) keeps what it flushed, at every cut.
#[test]
fn a_plain_disk_passes_and_one_deaf_to_flushes_is_caught() {
    let folder = TempDir::new("plain-cuts");
    let (tier, backing) = (1 << 20, 16 << 20);
    let recording = record(&folder, Path::new("none"), &["server=nbdkit", "requests=2500"], tier, backing);
    let cuts = recording.log.cuts(120, 1);
    assert!(cuts.len() >= 120, "{} cuts", cuts.len());
    let image = folder.join("cut");
    let check = |mut disk: Disk| -> Result<(), String> {
        for cut in &cuts {
            disk.advance(cut.before)?;
            write_sparse(&image, &disk.parts_after_cut(cut.keep)?[1])?;
            let promised = recording.promised(cut.before);
            check::disk_after_power_loss(&recording.history, &image, Some(promised))
                .map_err(|e| format!("{cut:?}, promised up to #{promised}: {e}"))?;
        }
        Ok(())
    };
    check(Disk::new(&recording.log, &[tier, backing])).unwrap();
    let caught = check(Disk::deaf_to_flushes(&recording.log, &[tier, backing])).unwrap_err();
    assert!(caught.contains("flushed"), "{caught}");
    assert!(recording.folder.join("load.log").exists());
}
