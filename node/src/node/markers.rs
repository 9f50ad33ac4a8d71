//! The marker beside an image: written while the volume serves, and for the last time when it has stopped.

use super::Running;
use crate::config::DestageName;
use crate::mailbox::Snapshot;
use crate::volume_store::{Marker, Record, STORE_VERSION, Store, host_name};
use std::path::PathBuf;

/// When a marker is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Serving,
    /// The volume has stopped; `clean`: with an empty log, on purpose.
    Stopped {
        clean: bool,
    },
}

pub(super) fn save_marker(
    record: &Record,
    running: &Running,
    snapshot: &Snapshot,
    moment: Moment,
) -> anyhow::Result<()> {
    let mut is_final = running.marker_is_final.lock().expect("nobody panics while it writes a marker");
    if *is_final {
        return Ok(());
    }
    let clean = moment == Moment::Stopped { clean: true };
    let image = running.image.identity()?;
    let marker = Marker {
        version: STORE_VERSION,
        volume: record.volume,
        name: record.name.clone(),
        host: host_name(),
        tier: record.tier.path.clone(),
        term: snapshot.status.term.0,
        destaged: snapshot.status.destaged.0,
        journal: match (&running.journal_place, record.destage) {
            (Ok(path), DestageName::Journaled | DestageName::Auto) => Some(path.clone()),
            (Ok(path), DestageName::Ordered) if snapshot.status.journal_bytes > 0 || path.exists() => {
                Some(path.clone())
            }
            (Ok(_), DestageName::Ordered) | (Err(_), _) => None,
        }
        .filter(|_| !clean),
        image,
        clean,
    };
    marker.save(&running.marker_path)?;
    *is_final = moment != Moment::Serving;
    Ok(())
}

pub(super) fn marker_of(store: &Store, record: &Record) -> Option<PathBuf> {
    let spec = forebay_io::backing::BackingSpec::parse(&record.backing).ok()?;
    let device = |path: &&std::path::Path| {
        forebay_io::file::kind_of(path).is_ok_and(|kind| kind == forebay_io::file::FileKind::Block)
    };
    Some(store.marker_path(&record.name, spec.path().filter(|path| !device(path))))
}
