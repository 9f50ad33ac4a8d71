//! When fences of other nodes were last proven: a file each, in the state folder.

use anyhow::{Context, Result};
use forebay_api::units::show_seconds;
use forebay_core::fence::Means;
use forebay_io::durable::write_atomically;
use forebay_io::fence::ReservableDevice;
use forebay_io::folder::{self, Folder};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes that are read of a proof.
const PROOF_BYTES_MAX: u64 = 1 << 16;

/// What is kept of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// `power`, `reservation` or `watchdog`.
    pub fence: String,
    /// The node that was switched off, or the device that refuses or resets.
    pub target: String,
    /// The agent, or how the other was expelled.
    pub by: String,
    /// When it was proven, in seconds since 1970.
    pub proven_unix_s: u64,
    /// How many milliseconds it took until it was proven.
    pub took_ms: u64,
}

/// Proofs, a file each, in the state folder.
#[derive(Clone)]
pub struct Proofs {
    folder: PathBuf,
}

impl Proofs {
    /// Those that are kept below this state folder.
    pub fn below(state: &Path) -> Proofs {
        Proofs { folder: state.join("fences") }
    }

    fn path(&self, fence: &str, target: &str) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '_' };
        self.folder.join(format!("{fence}-{}.json", target.chars().map(plain).collect::<String>()))
    }

    /// Before the test changes anything: a proof that cannot be kept is not worth a power cut.
    pub fn prepare(&self) -> Result<()> {
        Folder::make_all(&self.folder, 0o755).map(|_| ()).with_context(|| {
            format!(
                "cannot make the folder {} for proofs: run this with the right to write there, or name another state folder \
                 with --state",
                self.folder.display()
            )
        })
    }

    /// The effect was seen now.
    pub fn keep(&self, means: Means, target: &str, by: &str, took: Duration) -> Result<()> {
        let fence = fence_name(means);
        let took_ms = took.as_millis() as u64;
        let proof =
            Proof { fence: fence.into(), target: target.into(), by: by.into(), proven_unix_s: unix_now(), took_ms };
        Ok(write_atomically(&self.path(fence, target), serde_json::to_string_pretty(&proof)?.as_bytes())?)
    }

    /// The last one of a fence.
    pub fn last(&self, fence: &str, target: &str) -> Result<Option<Proof>> {
        let path = self.path(fence, target);
        Ok(read_proof(&path)?.filter(|proof| proof.target == target))
    }

    /// All of them, by kind and target.
    pub fn all(&self) -> Result<Vec<Proof>> {
        let names = match Folder::open(&self.folder).and_then(|folder| folder.names()) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read the folder {}", self.folder.display()));
            }
        };
        let mut all = Vec::new();
        for name in names {
            let path = self.folder.join(name);
            if path.extension().is_some_and(|end| end == "json") {
                all.extend(read_proof(&path)?);
            }
        }
        all.sort_by(|one, other| (&one.fence, &one.target).cmp(&(&other.fence, &other.target)));
        Ok(all)
    }
}

/// The own name of the device that is open, which every host knows it by; its path where it has none.
pub fn name_of_device(device: &ReservableDevice) -> String {
    name_of_number(device.number().ok(), device.path())
}

/// The same of what lies at a path now, without opening it.
pub fn device_name(path: &Path) -> String {
    name_of_number(std::fs::metadata(path).map(|found| found.rdev()).ok(), path)
}

/// The fence's name in reports and files.
pub fn fence_name(means: Means) -> &'static str {
    match means {
        Means::Reservation => "reservation",
        Means::PowerOff => "power",
        Means::Watchdog => "watchdog",
        Means::ImageLock(_) | Means::OtherBoot | Means::Lease => unreachable!("no fence, so it is not tried here"),
    }
}

/// How long ago a second since 1970 was, for people.
pub fn ago(unix_s: u64) -> String {
    match unix_now().checked_sub(unix_s) {
        Some(seconds) => format!("{} ago", show_seconds(seconds as f64)),
        None => "in the future, by this host's clock".into(),
    }
}

fn read_proof(path: &Path) -> Result<Option<Proof>> {
    let text = match folder::read_text(path, PROOF_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read the proof {}", path.display())),
    };
    let proof = serde_json::from_str(&text)
        .with_context(|| format!("the proof {} is damaged: remove it and prove the fence anew", path.display()))?;
    Ok(Some(proof))
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn name_of_number(number: Option<u64>, path: &Path) -> String {
    let number = number.unwrap_or_default();
    let block = PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number)));
    let read = |file: &str| std::fs::read_to_string(block.join(file)).ok();
    let name = read("wwid").or_else(|| read("device/wwid")).map(|text| text.trim().to_owned());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_kept_for_each_target_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let proofs = Proofs { folder: folder.path().join("fences") };
        assert_eq!(proofs.all().unwrap(), []);
        assert_eq!(proofs.last("power", "beta").unwrap(), None);
        proofs.prepare().unwrap();
        let took = Duration::from_millis(1500);
        proofs.keep(Means::PowerOff, "beta", "fence_x", took).unwrap();
        proofs.keep(Means::Reservation, "naa.6001/a b", "preempt and abort", took).unwrap();
        let last = proofs.last("power", "beta").unwrap().unwrap();
        assert_eq!((last.by.as_str(), last.took_ms), ("fence_x", 1500));
        assert!(unix_now() - last.proven_unix_s < 60);
        assert_eq!(proofs.all().unwrap().len(), 2);
        // Two names that fall on one file are not taken for each other.
        assert!(proofs.last("reservation", "naa.6001/a b").unwrap().is_some());
        assert_eq!(proofs.last("reservation", "naa.6001_a_b").unwrap(), None);
        std::fs::write(proofs.path("power", "beta"), "{").unwrap();
        let error = format!("{:#}", proofs.all().unwrap_err());
        assert!(error.contains("power-beta.json is damaged: remove it"), "{error}");
    }

    #[test]
    fn a_proof_is_written_through_no_link_of_the_state_folders_user() {
        use std::os::unix::fs::{lchown, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (theirs, secret) = (folder.path().join("state"), folder.path().join("secret"));
        std::fs::create_dir_all(theirs.join("fences")).unwrap();
        std::fs::write(&secret, "secret").unwrap();
        symlink("../../secret", theirs.join("fences/power-beta.json.new")).unwrap();
        for path in [theirs.clone(), theirs.join("fences"), theirs.join("fences/power-beta.json.new")] {
            if let Err(error) = lchown(path, Some(65_533), None) {
                forebay_tests::harness::skip(&format!("files of another user need root: {error}"));
                return;
            }
        }
        let proofs = Proofs::below(&theirs);
        proofs.prepare().unwrap();
        proofs.keep(Means::PowerOff, "beta", "fence_x", Duration::ZERO).unwrap();
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
        assert_eq!(proofs.all().unwrap().len(), 1);
        // A folder of root's, by a link of theirs.
        std::fs::create_dir(folder.path().join("ours")).unwrap();
        std::fs::rename(theirs.join("fences"), theirs.join("aside")).unwrap();
        symlink("../ours", theirs.join("fences")).unwrap();
        lchown(theirs.join("fences"), Some(65_533), None).unwrap();
        assert!(proofs.prepare().is_err());
        assert!(proofs.keep(Means::PowerOff, "beta", "fence_x", Duration::ZERO).is_err());
        assert_eq!(std::fs::read_dir(folder.path().join("ours")).unwrap().count(), 0);
    }
}
