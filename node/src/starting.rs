//! The volumes of a start: opened side by side, so that a backing that is slow delays no other volume, and opened again where they
//! could not be.
//!
//! Invariants:
//! - Before the first client is let in every volume of the start is known: who asks for one that is not open yet waits for it.
//! - A volume whose opening takes long keeps no other one from being opened, however many there are.
//! - What the operator has said about an image (`--adopt-changed-backing`, `--same-image`) was said of what lay there at the start: an
//!   opening that is tried again does without it.
//! - The first opening of a volume that is tried again waits until its image is at rest: whoever puts it there is not overtaken.

use crate::log;
use crate::node::{Node, Reserved};
use crate::unit::Unit;
use crate::volume_store::Store;
use anyhow::{Result, bail};
use forebay_api::config::volume::VolumeSpec;
use forebay_api::config::{self, Config};
use forebay_api::units::show_size;
use forebay_io::backing::BackingSpec;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The start is told as done after so long, with the volumes that are open by then.
pub const OPENINGS_MAX: Duration = Duration::from_secs(60);
/// Openings that begin side by side, each for as long as it counts as one that does not hang.
const SIDE_BY_SIDE: usize = 16;
/// An opening that takes longer leaves its place to the next one, and goes on.
const PLACE_MAX: Duration = Duration::from_secs(5);
/// Between two words to systemd while a start takes its time.
const MORE_TIME: Duration = Duration::from_secs(1);
/// Before a volume that could not be opened is tried again for the first time, and between two looks at an image that is being put there.
const AGAIN_FIRST: Duration = Duration::from_secs(5);
/// The same at last.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A volume of the start, and how it is to be opened again.
struct Opening {
    reserved: Reserved,
    again: Option<Again>,
}

/// A volume of the config that is tried again when it could not be opened.
#[derive(Clone)]
struct Again {
    spec: VolumeSpec,
    default: bool,
    /// What was told last of why it could not be opened.
    told: String,
}

/// The volumes of a start that are being opened.
pub struct Openings {
    running: JoinSet<()>,
}

/// Opens what is named on the command line without a config file: whoever has given that sees at once that nothing is served, and why.
pub async fn open_asked(node: &Arc<Node>, config: &Config, unit: &Arc<Unit>) -> Result<()> {
    for (i, spec) in config.volume.iter().enumerate() {
        unit.opens(&spec.name);
        let opening = node.open(&spec.name, Some(spec.clone()), i == 0, progress_of(&spec.name));
        let opened = with_time(unit, opening).await;
        unit.opened(&spec.name, false);
        match opened {
            Ok(remarks) => say_all(&spec.name, remarks),
            Err(failure) => bail!("{}", failure.message),
        }
    }
    Ok(())
}

/// Ends with a future, and asks systemd for more time meanwhile.
async fn with_time<T>(unit: &Unit, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(MORE_TIME, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => unit.needs_time(),
        }
    }
}

impl Openings {
    /// Begins to open what the config names, and what else is recorded. All of it is known when this returns. Each may fail alone.
    pub async fn begin(node: &Arc<Node>, store: &Store, config: &Config, unit: &Arc<Unit>) -> Result<Openings> {
        let of_config: &[VolumeSpec] = if config.is_of_file { &config.volume } else { &[] };
        let is_named = |name: &String| config.volume.iter().any(|spec| spec.name == *name);
        let recorded: Vec<String> = store.names()?.into_iter().filter(|name| !is_named(name)).collect();
        node.set_order_of_start(config.volume.iter().map(|spec| &spec.name).chain(&recorded).cloned().collect());
        let mut openings = Vec::new();
        for (i, spec) in of_config.iter().enumerate() {
            let again = Again { spec: spec.clone(), default: i == 0, told: String::new() };
            match node.reserve(&spec.name, Some(spec.clone()), i == 0, false).await {
                Ok(reserved) => openings.extend(reserved.map(|reserved| Opening { reserved, again: Some(again) })),
                Err(failure) => tell_and_try_again(node, unit, again, failure.message),
            }
        }
        for name in recorded {
            match node.reserve(&name, None, false, false).await {
                Ok(reserved) => openings.extend(reserved.map(|reserved| Opening { reserved, again: None })),
                Err(failure) => log::say!(Error, about(name), "{}; the other volumes are served", failure.message),
            }
        }
        let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        let mut running = JoinSet::new();
        for opening in openings {
            unit.opens(opening.reserved.name());
            running.spawn(opening.run(node.clone(), unit.clone(), places.clone()));
        }
        Ok(Openings { running })
    }

    /// Waits until every volume is open, or has failed, or has taken too long. Those go on, and are served when they are open.
    pub async fn settle(mut self, unit: &Unit) {
        let all = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(OPENINGS_MAX, with_time(unit, all)).await.is_err() {
            log::say!(
                Error,
                "{} could not be opened within {} s: backing or tier does not answer; the other volumes are served, and these when they \
                 are open. `forebay volume list` shows what is waited for",
                unit.waits_for(),
                OPENINGS_MAX.as_secs()
            );
        }
    }
}

impl Drop for Openings {
    fn drop(&mut self) {
        // What is on its way to a shard is not broken off.
        self.running.detach_all();
    }
}

impl Opening {
    async fn run(self, node: Arc<Node>, unit: Arc<Unit>, places: Arc<Semaphore>) {
        let Opening { reserved, again } = self;
        let name = reserved.name().to_owned();
        let mut place = places.acquire_owned().await.ok();
        let begun = tokio::time::Instant::now();
        let mut opening = std::pin::pin!(node.open_reserved(reserved, progress_of(&name)));
        let opened = match tokio::time::timeout(PLACE_MAX, opening.as_mut()).await {
            Ok(opened) => opened,
            Err(_) => {
                drop(place.take());
                opening.await
            }
        };
        match (opened, again) {
            (Ok(remarks), _) => {
                say_all(&name, remarks);
                if begun.elapsed() >= OPENINGS_MAX {
                    log::say!(Notice, volume(name), "it is open now");
                }
                unit.opened(&name, false);
            }
            (Err(failure), Some(again)) => tell_and_try_again(&node, &unit, again, failure.message),
            (Err(failure), None) => {
                log::say!(Error, about(name), "{}; the other volumes are served", failure.message);
                unit.opened(&name, false);
            }
        }
    }
}

/// Tells why a volume of the config could not be opened, and goes on trying.
fn tell_and_try_again(node: &Arc<Node>, unit: &Arc<Unit>, mut again: Again, why: String) {
    log::say!(
        Error,
        about(again.spec.name),
        "{why}; the other volumes are served, and it is tried again. Put that right"
    );
    unit.opened(&again.spec.name, true);
    node.note_tried_again(&again.spec.name);
    again.told = why;
    tokio::spawn(again.run(node.clone(), unit.clone()));
}

impl Again {
    /// Tries until it is open, or nobody wants it any more.
    async fn run(mut self, node: Arc<Node>, unit: Arc<Unit>) {
        let name = self.spec.name.clone();
        let spec = VolumeSpec { adopt_changed_backing: false, same_image: false, ..self.spec.clone() };
        let mut pause = AGAIN_FIRST;
        let mut seen = look_at_image(&spec.backing).await;
        loop {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(AGAIN_MAX);
            // One that has served is known by its marker.
            let is_new = node.record_of_failed(&name).is_some_and(|record| !record.tier.made);
            let now = if is_new { look_at_image(&spec.backing).await } else { seen };
            if std::mem::replace(&mut seen, now) != now {
                pause = AGAIN_FIRST;
                let why = format!("its image {} has just changed, and is opened when it is at rest", spec.backing);
                node.note_not_tried(&name, &why);
                node.note_tried_again(&name);
                continue;
            }
            let opened = match node.reserve(&name, Some(spec.clone()), self.default, true).await {
                Ok(None) => return unit.opened(&name, false),
                Ok(Some(reserved)) => node.open_reserved(reserved, progress_of(&name)).await,
                Err(failure) => Err(failure),
            };
            match opened {
                Ok(remarks) => {
                    say_all(&name, remarks);
                    log::say!(Notice, volume(name), "it could be opened this time");
                    return unit.opened(&name, false);
                }
                Err(failure) => {
                    node.note_tried_again(&name);
                    if failure.message != self.told {
                        log::say!(Error, about(name), "{}; it is tried again", failure.message);
                        self.told = failure.message;
                    }
                }
            }
        }
    }
}

/// What tells whether a file is being written: its number, size and time of change.
type Seen = Option<(u64, u64, i64, i64)>;

/// What lies at the place of a backing; nothing where that is no file, or not to be seen.
async fn look_at_image(backing: &str) -> Seen {
    let backing = config::absolute_spec(backing);
    let look = move || {
        let spec = BackingSpec::parse(&backing).ok()?;
        let found = std::fs::metadata(spec.path()?).ok()?;
        Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    };
    tokio::task::spawn_blocking(look).await.ok().flatten()
}

fn say_all(name: &str, remarks: Vec<String>) {
    for remark in remarks {
        log::say!(Notice, volume(name), "{remark}");
    }
}

/// Says how far the making of a tier is.
fn progress_of(name: &str) -> impl FnMut(u64, u64) + Send + use<> {
    let shown = name.to_owned();
    let mut last = 0;
    move |done: u64, all: u64| {
        if done == all || done >= last + (256 << 20) {
            last = done;
            log::say!(Notice, volume(shown), "preparing its tier, {} of {}", show_size(done), show_size(all));
        }
    }
}
