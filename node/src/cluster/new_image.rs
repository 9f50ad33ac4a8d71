//! The backing of a volume of the cluster that is about to be made: looked at, and where it was made for the volume kept under its lock
//! until it is known whether there will be one. An image that was made for a volume that could not be made goes again.

use super::marker::ImageMarker;
use crate::log;
use anyhow::{Context, Result, bail};
use forebay_api::config;
use forebay_api::config::volume::VolumeSpec;
use forebay_api::record::VolumeId;
use forebay_core::types::SECTOR_BYTES;
use forebay_io::backing::MadeImage;
use forebay_io::fence::ReservableDevice;
use forebay_io::{Backing, BackingOptions, LockAttempt};

/// The image, if it was made for the volume, under its lock.
pub(super) struct NewImage(Option<(MadeImage, Backing)>);

impl NewImage {
    /// There is no volume: removes it, unless somebody uses it or has written to it.
    pub(super) async fn take_back(self) {
        let Some((made, backing)) = self.0 else { return };
        let _ = tokio::task::spawn_blocking(move || take_back(&made, &backing)).await;
    }

    /// It is the volume's, for whoever serves that.
    pub(super) async fn give_up_lock(self) {
        let Some(locked) = self.0 else { return };
        // Its close takes as long as its server does.
        let _ = tokio::task::spawn_blocking(move || drop(locked)).await;
    }
}

fn take_back(made: &MadeImage, backing: &Backing) {
    let (path, file) = (made.path().display(), backing.file());
    let said = file.map(|file| made.take_back(file.file()));
    match said {
        None | Some(Ok(None)) => {}
        Some(Ok(Some(why))) => {
            log::say!(Notice, "the image {path}, which was made for a volume that could not be made, stays: {why}");
        }
        Some(Err(error)) => log::say!(Notice, "cannot remove the image {path} again: {error}"),
    }
}

/// How the backing of a new volume is opened.
pub(super) fn options(spec: &VolumeSpec) -> BackingOptions {
    let create = spec.size.filter(|_| spec.create);
    BackingOptions { create, format_raw: spec.format.is_some(), volume_bytes: None }
}

/// Looks at the backing of a new volume: the volume's size, and the image where that was made for it. Where it is refused, what was made
/// goes again.
pub(super) fn prepare(
    volume: VolumeId,
    mut backing: Backing,
    size: Option<u64>,
    reserves: bool,
) -> Result<(u64, NewImage)> {
    let made = backing.take_made();
    let looked = look(volume, &mut backing, size, reserves);
    match (looked, made) {
        (Ok(size_bytes), made) => Ok((size_bytes, NewImage(made.map(|made| (made, backing))))),
        (Err(error), Some(made)) => {
            take_back(&made, &backing);
            Err(error)
        }
        (Err(error), None) => Err(error),
    }
}

fn look(volume: VolumeId, backing: &mut Backing, size: Option<u64>, reserves: bool) -> Result<u64> {
    if reserves {
        let file = backing.file().context("an NBD export cannot be reserved; leave --reserve out")?;
        ReservableDevice::of(file).context("leave --reserve out, or give another backing")?;
    }
    let has = backing.size().with_context(|| format!("cannot read the size of {}", backing.name()))?;
    let wanted = size.unwrap_or(has / SECTOR_BYTES * SECTOR_BYTES);
    config::check_whole_units(wanted, backing)?;
    if has < wanted {
        bail!("the backing {} has {has} usable bytes, and {wanted} were asked for", backing.name());
    }
    if let LockAttempt::HeldBy(holder) =
        backing.try_lock().with_context(|| format!("cannot lock {}", backing.name()))?
    {
        bail!("the backing {} is in use by {holder}; end that use first", backing.name());
    }
    backing.require_its_path().with_context(|| format!("cannot use the backing {}", backing.name()))?;
    if let Some(marker) = ImageMarker::of(backing) {
        marker.check(volume)?;
    }
    Ok(wanted)
}
