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
use crate::node::{Node, Reserved, Retry};
use crate::unit::Unit;
use crate::volume_store::Store;
use anyhow::{Result, bail};
use forebay_api::config::volume::VolumeSpec;
use forebay_api::config::{self, Config};
use forebay_api::units::show_size;
use forebay_io::backing::BackingSpec;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};
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
/// Between two rounds of those that could not be opened: the first attempt comes after so long, and a look at an image that is put there.
const ROUND: Duration = Duration::from_secs(5);
/// Rounds between two attempts at last.
const ROUNDS_MAX: u32 = 12;

/// A volume of the start.
struct Opening {
    reserved: Reserved,
    told: Told,
}

/// What was told last of why a volume could not be opened; none: it is not tried again.
type Told = Option<Arc<Mutex<String>>>;

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
        let mut again = Vec::new();
        for (i, spec) in of_config.iter().enumerate() {
            let volume = Again::of(spec, i == 0);
            let told = Some(volume.told.clone());
            again.push(volume);
            match node.reserve(&spec.name, Some(spec.clone()), i == 0, true).await {
                Ok(reserved) => openings.push(Opening { reserved, told }),
                Err(failure) => tell_failed(unit, &spec.name, failure.message, &told),
            }
        }
        for name in recorded {
            match node.reserve(&name, None, false, false).await {
                Ok(reserved) => openings.push(Opening { reserved, told: None }),
                Err(failure) => tell_failed(unit, &name, failure.message, &None),
            }
        }
        let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
        let mut running = JoinSet::new();
        for opening in openings {
            unit.opens(opening.reserved.name());
            running.spawn(opening.run(node.clone(), unit.clone(), places.clone()));
        }
        tokio::spawn(try_again(node.clone(), unit.clone(), again));
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
        let Opening { reserved, told } = self;
        let name = reserved.name().to_owned();
        let mut place = places.acquire_owned().await.ok();
        let begun = tokio::time::Instant::now();
        let mut opening = std::pin::pin!(node.open_reserved(reserved, || Ok(()), progress_of(&name)));
        let opened = match tokio::time::timeout(PLACE_MAX, opening.as_mut()).await {
            Ok(opened) => opened,
            Err(_) => {
                drop(place.take());
                opening.await
            }
        };
        match opened {
            Ok(remarks) => {
                say_all(&name, remarks);
                if begun.elapsed() >= OPENINGS_MAX {
                    log::say!(Notice, volume(name), "it is open now");
                }
                unit.opened(&name, false);
            }
            Err(failure) => tell_failed(&unit, &name, failure.message, &told),
        }
    }
}

/// Tells why a volume of the start could not be opened.
fn tell_failed(unit: &Unit, name: &str, why: String, told: &Told) {
    let cure = if told.is_some() { ", and it is tried again. Put that right" } else { "" };
    log::say!(Error, about(name), "{why}; the other volumes are served{cure}");
    unit.opened(name, told.is_some());
    if let Some(told) = told {
        *told.lock().expect("nobody panics while holding it") = why;
    }
}

/// A volume of the config, which is tried again where it could not be opened.
struct Again {
    /// Without what was said of what lay there at the start.
    spec: VolumeSpec,
    default: bool,
    /// Rounds between the attempts, and those that are left until the next one.
    rounds: u32,
    left: u32,
    seen: Arc<Mutex<Seen>>,
    /// What was told last of why it could not be opened.
    told: Arc<Mutex<String>>,
}

impl Again {
    fn of(spec: &VolumeSpec, default: bool) -> Again {
        let spec = VolumeSpec { adopt_changed_backing: false, same_image: false, ..spec.clone() };
        Again { spec, default, rounds: 1, left: 0, seen: Arc::default(), told: Arc::default() }
    }

    /// One round: whether there is to be another one.
    async fn round(&mut self, node: &Arc<Node>, unit: &Arc<Unit>) -> bool {
        let name = &self.spec.name;
        // As soon as its image moves, it is looked at in each round.
        let has_moved = self.seen.lock().expect("nobody panics while holding it").moves;
        match node.retry(name) {
            Retry::NotNow => return true,
            Retry::Over => {
                unit.opened(name, false);
                return false;
            }
            Retry::Due if self.left > 0 && !has_moved => {
                self.left -= 1;
                return true;
            }
            Retry::Due => unit.opened(name, true),
        }
        self.rounds = if has_moved { 1 } else { (2 * self.rounds).min(ROUNDS_MAX) };
        self.left = self.rounds - 1;
        match node.reserve_again(name, self.spec.clone(), self.default).await {
            Ok(Some(reserved)) => {
                let attempt = self.attempt(node.clone(), unit.clone(), reserved);
                // One that takes longer goes on, and the next volume has its turn.
                let _ = tokio::time::timeout(PLACE_MAX, tokio::spawn(attempt)).await;
            }
            // The next round finds out what has become of it.
            Ok(None) => {}
            Err(failure) => tell_again(name, failure.message, &self.told),
        }
        true
    }

    fn attempt(&self, node: Arc<Node>, unit: Arc<Unit>, reserved: Reserved) -> impl Future<Output = ()> + Send + use<> {
        let (name, backing) = (self.spec.name.clone(), config::absolute_spec(&self.spec.backing));
        let (seen, told) = (self.seen.clone(), self.told.clone());
        let has_served = reserved.has_served();
        let first = move || if has_served { Ok(()) } else { require_at_rest(&backing, &seen) };
        async move {
            match node.open_reserved(reserved, first, progress_of(&name)).await {
                Ok(remarks) => {
                    say_all(&name, remarks);
                    log::say!(Notice, volume(name), "it could be opened this time");
                    unit.opened(&name, false);
                }
                Err(failure) => tell_again(&name, failure.message, &told),
            }
        }
    }
}

/// What is the same as before is told once.
fn tell_again(name: &str, why: String, told: &Mutex<String>) {
    let mut told = told.lock().expect("nobody panics while holding it");
    if *told != why {
        log::say!(Error, about(name), "{why}; it is tried again");
        *told = why;
    }
}

/// Tries the volumes of the config that could not be opened again, one after the other, until each is open or a command has taken its name.
async fn try_again(node: Arc<Node>, unit: Arc<Unit>, mut volumes: Vec<Again>) {
    while !volumes.is_empty() {
        tokio::time::sleep(ROUND).await;
        let mut left = Vec::with_capacity(volumes.len());
        for mut volume in volumes {
            if volume.round(&node, &unit).await {
                left.push(volume);
            }
        }
        volumes = left;
    }
}

/// What was seen of an image that a volume is to be made of.
#[derive(Default)]
struct Seen {
    /// At the last look, if there was one; nothing lay there where it is none.
    last: Option<Option<ImageState>>,
    /// It was another one at the last look than at the one before.
    moves: bool,
}

/// What tells whether a file is being written: its number, size and time of change.
type ImageState = (u64, u64, i64, i64);

/// Refuses an image that is not as it was at the look before: whoever puts it there may not have finished. Where nothing lies, the opening
/// says so.
fn require_at_rest(backing: &str, seen: &Mutex<Seen>) -> Result<()> {
    let now = image_state(backing);
    let mut seen = seen.lock().expect("nobody panics while holding it");
    seen.moves = seen.last.replace(now) != Some(now) && now.is_some();
    if seen.moves {
        bail!("its image {backing} has just been put there or changed, and is opened when it is at rest");
    }
    Ok(())
}

/// What lies at the place of a backing; nothing where that is no file, or not to be seen.
fn image_state(backing: &str) -> Option<ImageState> {
    let spec = BackingSpec::parse(backing).ok()?;
    let found = std::fs::metadata(spec.path()?).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_opened_when_it_was_the_same_at_two_looks() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("x.img");
        let (backing, seen) = (image.display().to_string(), Mutex::new(Seen::default()));
        let look = || require_at_rest(&backing, &seen).is_ok();
        assert!(look() && look(), "the opening says that nothing is there");
        std::fs::write(&image, "a").unwrap();
        assert!(!look() && look());
        std::fs::write(&image, "more").unwrap();
        assert!(!look() && seen.lock().unwrap().moves && look());
        // What was there at the first look may be half of it, too.
        let fresh = Mutex::new(Seen::default());
        assert!(require_at_rest(&backing, &fresh).is_err() && require_at_rest(&backing, &fresh).is_ok());
    }
}
