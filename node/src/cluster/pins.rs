//! What a volume of the cluster is, as this node has learnt it first: `cluster/volumes/VOLUME.json` in the state folder. Name, backing
//! and the sizes of tiers belong to a volume for its life, so a definition that says something else later was not written by Forebay.
//!
//! Invariants:
//! - A pin is durable before anything is opened by it, and goes only when a linearizable read shows that the volume was deleted, or
//!   never was.
//! - No two volumes have one name or one backing here: who was pinned first keeps it, however the coordinator lists them.
//! - Which clients a volume is for lies beside its pin (`VOLUME.clients`): [`super::clients`] says what changes that.
//! - Whether a command of this node has named the backing is this node's own knowledge, and nothing that the coordinator says.
//! - Of a volume that this node had owned before it kept pins, that a number of a term is left says nothing of the backing. Its marker
//!   does: it lies beside the image, names the volume, and nobody but root and the daemon's user can have put it there. Until the
//!   first look at all definitions is complete (`.begun`), a start that ends early takes nothing of this away.

use super::clients::KnownClients;
use crate::allowed::NamedBy;
use crate::coordinator::schema::Definition;
use crate::log;
use crate::names;
use anyhow::{Context, Result, bail};
use forebay_api::config;
use forebay_api::record::{Marker, VolumeId};
use forebay_io::backing::BackingSpec;
use forebay_io::durable::{remove_durably, write_atomically};
use forebay_io::folder::{self, Folder};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Version of these files.
const VERSION: u32 = 1;
/// Longest of these files: a definition has bounds.
const PIN_BYTES_MAX: u64 = 1 << 20;
/// So many volumes of a cluster a node knows at most.
const VOLUMES_MAX: usize = 4096;
/// How the name of the file ends that says which clients a volume is for. Older versions pass it over.
const CLIENTS: &str = "clients";
/// The file that says that this node has looked at all definitions since it keeps pins.
const BEGUN: &str = ".begun";

/// What one volume is for its life, as its file has it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pin {
    version: u32,
    /// A command of this node has named the backing, or a marker beside it has shown that this node had served it.
    named_here: bool,
    /// This node had owned the volume before it kept pins: a marker decides about its backing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    owned_before: bool,
    definition: Definition,
}

impl Pin {
    /// Whether a marker is still to decide, and says that the backing is this volume's. May take as long as its file system does.
    fn is_marked(&self) -> bool {
        self.owned_before && !self.named_here && is_marked(&self.definition)
    }
}

/// Whether the marker beside an image names the volume. What wraps a backing, a device and an NBD export have none.
fn is_marked(definition: &Definition) -> bool {
    let Ok(spec) = BackingSpec::parse(&definition.backing) else { return false };
    let (None, Some(path)) = (spec.wrappers().next(), spec.path()) else { return false };
    let mut marker = path.as_os_str().to_owned();
    marker.push(".forebay");
    let found = Marker::load_private(Path::new(&marker));
    found.is_ok_and(|marker| marker.is_some_and(|marker| marker.volume == definition.volume))
}

#[derive(Debug)]
struct State {
    pinned: BTreeMap<VolumeId, Pin>,
    clients: BTreeMap<VolumeId, KnownClients>,
    /// All definitions were looked at since this node keeps pins: what comes now, it has not owned before.
    begun: bool,
    /// A pin could not be written since the last look at all definitions began.
    unwritten: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Pins {
    folder: PathBuf,
    state: Mutex<State>,
}

impl Pins {
    pub(super) fn open(state: &Path) -> Result<Pins> {
        let folder = state.join("cluster").join("volumes");
        Folder::make_all(&folder, 0o700).with_context(|| format!("cannot make {}", folder.display()))?;
        let (mut pinned, mut clients) = (BTreeMap::new(), BTreeMap::new());
        for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let pin = load(&path)?;
                let volume = pin.definition.volume;
                names::learn(volume, &pin.definition.name);
                if let Some(known) = load_clients(&path.with_extension(CLIENTS))? {
                    clients.insert(volume, known);
                }
                pinned.insert(volume, pin);
            }
        }
        let begun = folder.join(BEGUN).exists();
        Ok(Pins { folder, state: Mutex::new(State { pinned, clients, begun, unwritten: false }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    fn path(&self, volume: VolumeId) -> PathBuf {
        self.folder.join(format!("{volume}.json"))
    }

    fn write(&self, pin: &Pin) -> Result<()> {
        let text = serde_json::to_vec(pin).context("cannot encode what a volume is")?;
        Ok(write_atomically(&self.path(pin.definition.volume), &text)?)
    }

    /// Who has named this volume's backing, as this node knows. May take as long as its file system does.
    pub(super) fn named_by(&self, volume: VolumeId) -> NamedBy {
        let Some(pin) = self.state().pinned.get(&volume).cloned() else { return NamedBy::Elsewhere };
        // Not while others wait for the pins: the image may lie where nobody answers.
        if pin.is_marked() {
            self.keep_as_named_here(pin);
            return NamedBy::Here;
        }
        if pin.named_here { NamedBy::Here } else { NamedBy::Elsewhere }
    }

    /// The marker may be removed later, to accept an image as it is.
    fn keep_as_named_here(&self, was: Pin) {
        let mut state = self.state();
        let Some(pin) = state.pinned.get_mut(&was.definition.volume).filter(|pin| **pin == was) else { return };
        let named = Pin { named_here: true, ..was };
        match self.write(&named) {
            Ok(()) => *pin = named,
            Err(error) => log::say!(Error, volume(named.definition.name), "{error:#}; trying again"),
        }
    }

    /// Takes what a volume is, or finds that it is still that. The error says why it cannot be. `was_served`: this node has owned it.
    pub(super) fn admit(&self, definition: &Definition, by: NamedBy, was_served: impl Fn() -> bool) -> Result<()> {
        let mut state = self.state();
        if let Some(pin) = state.pinned.get(&definition.volume) {
            return match differs(&pin.definition, definition) {
                None => Ok(()),
                Some(what) => bail!(
                    "its {what} is another one than before, which no command does: see who can write to the coordinator besides \
                     Forebay, and put the former definition back"
                ),
            };
        }
        let other = state.pinned.values().map(|pin| &pin.definition).find_map(|other| {
            let same_backing = config::same_backing(&other.backing, &definition.backing);
            let what = if other.name == *definition.name { Some("name") } else { same_backing.then_some("backing") };
            what.map(|what| (what, other))
        });
        if let Some((what, other)) = other {
            bail!("volume {} ({}) has its {what}, and is not known to be deleted", other.name, other.volume);
        }
        if state.pinned.len() >= VOLUMES_MAX {
            bail!("this node knows {VOLUMES_MAX} volumes of the cluster already, which is the most");
        }
        let owned_before = !state.begun && was_served();
        let (named_here, definition) = (by == NamedBy::Here, definition.clone());
        let pin = Pin { version: VERSION, named_here, owned_before, definition };
        if let Err(error) = self.write(&pin) {
            state.unwritten = true;
            return Err(error);
        }
        names::learn(pin.definition.volume, &pin.definition.name);
        state.pinned.insert(pin.definition.volume, pin);
        Ok(())
    }

    /// All definitions are about to be admitted.
    pub(super) fn begin_look(&self) {
        self.state().unwritten = false;
    }

    /// All definitions that could be read were admitted or refused. Where that is all there are, what comes from now on is new to this
    /// node; else one that was not read may be of a volume that it has owned.
    pub(super) fn end_look(&self, is_whole: bool) {
        let mut state = self.state();
        if state.begun || state.unwritten || !is_whole {
            return;
        }
        match write_atomically(&self.folder.join(BEGUN), b"") {
            Ok(()) => state.begun = true,
            Err(error) => log::say!(Error, "{error:#}; trying again"),
        }
    }

    /// Which clients a volume is for, as far as this node knows.
    pub(super) fn clients(&self, volume: VolumeId) -> Option<KnownClients> {
        self.state().clients.get(&volume).cloned()
    }

    /// From now on, also after a restart. Where that cannot be written, what has said it says it again then.
    pub(super) fn set_clients(&self, volume: VolumeId, known: &KnownClients) {
        let mut state = self.state();
        // Of two that are judged at one time the later one counts.
        if state.clients.get(&volume).is_some_and(|newest| newest.number > known.number) {
            return;
        }
        let text = serde_json::to_vec(known).expect("a number and names are JSON");
        if let Err(error) = write_atomically(&self.path(volume).with_extension(CLIENTS), &text) {
            log::say!(Error, volume(names::shown(volume)), "which clients it is for is not remembered: {error:#}");
        }
        state.clients.insert(volume, known.clone());
    }

    /// It was deleted, or never was.
    pub(super) fn forget(&self, volume: VolumeId) -> Result<()> {
        remove_durably(&self.path(volume).with_extension(CLIENTS))?;
        remove_durably(&self.path(volume))?;
        let mut state = self.state();
        state.clients.remove(&volume);
        state.pinned.remove(&volume);
        Ok(())
    }

    pub(super) fn volumes(&self) -> Vec<VolumeId> {
        self.state().pinned.keys().copied().collect()
    }
}

/// What of a volume never changes, and does.
fn differs(was: &Definition, is: &Definition) -> Option<&'static str> {
    [
        ("name", was.name == is.name),
        ("backing", was.backing == is.backing),
        ("format", was.format_raw == is.format_raw),
        ("tier's size", was.tier.size_bytes == is.tier.size_bytes),
        ("memory", was.memory_bytes == is.memory_bytes),
        ("journal", was.journal_bytes == is.journal_bytes),
        ("reservation", was.reserves == is.reserves),
    ]
    .into_iter()
    .find_map(|(what, same)| (!same).then_some(what))
}

/// None: an older version has made the pin, or a kill came between the two.
fn load_clients(path: &Path) -> Result<Option<KnownClients>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = folder::read_text(path, PIN_BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
    let known = serde_json::from_str(&text);
    known.map(Some).with_context(|| {
        format!(
            "{} is damaged: restore it from a backup, or remove it: this node then takes the clients that the coordinator has",
            path.display()
        )
    })
}

fn load(path: &Path) -> Result<Pin> {
    const WAY_OUT: &str =
        "restore it from a backup, or remove it: this node then takes the volume as the coordinator has it";
    let text = folder::read_text(path, PIN_BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
    let pin: Pin = serde_json::from_str(&text).with_context(|| format!("{} is damaged: {WAY_OUT}", path.display()))?;
    if pin.version != VERSION {
        bail!(
            "{} is of version {}, this Forebay knows version {VERSION}; use a newer one",
            path.display(),
            pin.version
        );
    }
    if path.file_stem().and_then(|stem| stem.to_str()) != Some(&pin.definition.volume.to_string()) {
        bail!("{} speaks of another volume than its name does: {WAY_OUT}", path.display());
    }
    Ok(pin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::schema::Document;
    use forebay_api::record::{ImageIdentity, STORE_VERSION};
    use forebay_tests::harness::TempDir;

    fn definition(name: &str, number: u8, backing: &str) -> Definition {
        let text = format!(
            concat!(
                r#"{{"version":1,"name":"{name}","volume":"{volume}","backing":"{backing}","format_raw":false,"policy":"back","#,
                r#""peers":1,"min_peers":1,"tier":{{"kind":"memory","size_bytes":67108864}},"flush":"auto","memory_bytes":0,"#,
                r#""destage":"ordered","journal_bytes":0,"drain_max_s":0}}"#
            ),
            name = name,
            volume = VolumeId([number; 16]),
            backing = backing
        );
        Definition::decode(&text).unwrap()
    }

    #[test]
    fn a_volume_stays_what_it_was_and_another_does_not_become_it() {
        let folder = TempDir::new("pins");
        let never = || false;
        let vm1 = definition("vm1", 1, "/mnt/nas/vm1.img");
        Pins::open(folder.path()).unwrap().admit(&vm1, NamedBy::Here, never).unwrap();
        // Also after a restart, and whichever is listed first.
        let pins = Pins::open(folder.path()).unwrap();
        pins.admit(&vm1, NamedBy::Elsewhere, never).unwrap();
        assert_eq!(pins.named_by(vm1.volume), NamedBy::Here);
        let refused = |definition: &Definition, why: &str| {
            let error = pins.admit(definition, NamedBy::Elsewhere, never).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&definition("vm2", 1, "/mnt/nas/vm1.img"), "name is another");
        refused(&definition("vm1", 1, "/etc/shadow"), "backing is another");
        refused(&Definition { memory_bytes: 1 << 30, ..vm1.clone() }, "memory is another");
        refused(&Definition { reserves: true, ..vm1.clone() }, "reservation is another");
        refused(&definition("vm1", 2, "/mnt/nas/vm2.img"), "has its name");
        refused(&definition("vm2", 2, "slow:latency=1ms:/mnt/nas/vm1.img"), "has its backing");
        pins.admit(&Definition { peers: 2, drain_max_s: 5, ..vm1.clone() }, NamedBy::Elsewhere, never).unwrap();
        pins.forget(vm1.volume).unwrap();
        pins.admit(&definition("vm1", 2, "/mnt/nas/vm1.img"), NamedBy::Elsewhere, never).unwrap();
        assert_eq!(pins.named_by(VolumeId([2; 16])), NamedBy::Elsewhere);
        assert_eq!(Pins::open(folder.path()).unwrap().volumes(), [VolumeId([2; 16])]);
    }

    #[test]
    fn the_clients_of_a_volume_outlast_the_process_and_go_with_the_volume() {
        let folder = TempDir::new("pins-clients");
        let pins = Pins::open(folder.path()).unwrap();
        let vm1 = definition("vm1", 1, "/mnt/nas/vm1.img");
        pins.admit(&vm1, NamedBy::Elsewhere, || false).unwrap();
        assert_eq!(pins.clients(vm1.volume), None);
        let known = KnownClients { number: 4, clients: "dns:vm1".parse().unwrap() };
        pins.set_clients(vm1.volume, &known);
        assert_eq!(Pins::open(folder.path()).unwrap().clients(vm1.volume), Some(known));
        pins.forget(vm1.volume).unwrap();
        assert_eq!(std::fs::read_dir(&pins.folder).unwrap().count(), 0);
        assert_eq!(pins.clients(vm1.volume), None);
    }

    /// As an owner has left it beside its image.
    fn mark(image: &Path, volume: VolumeId) {
        let image_identity = ImageIdentity { inode: None, born_ns: None, size_bytes: 8192, changed_ns: None };
        let marker = Marker {
            version: STORE_VERSION,
            volume,
            name: "vm1".into(),
            host: "alpha".into(),
            tier: "/dev/shm/vm1.tier".into(),
            term: 3,
            destaged: 7,
            journal: None,
            image: image_identity,
            clean: true,
        };
        marker.save(&image.with_added_extension("forebay")).unwrap();
    }

    #[test]
    fn what_an_older_version_has_served_is_served_on_where_its_marker_says_so() {
        let folder = TempDir::new("pins-upgrade");
        let image = folder.path().join("vm1.img");
        std::fs::write(&image, [0; 8192]).unwrap();
        let vm1 = definition("vm1", 1, image.to_str().unwrap());
        let pins = Pins::open(folder.path()).unwrap();
        pins.begin_look();
        pins.admit(&vm1, NamedBy::Elsewhere, || true).unwrap();
        assert_eq!(
            pins.named_by(vm1.volume),
            NamedBy::Elsewhere,
            "nothing says that it is the backing that was served"
        );
        mark(&image, VolumeId([9; 16]));
        assert_eq!(pins.named_by(vm1.volume), NamedBy::Elsewhere, "another volume's");
        // A kill before the look is complete: it is looked at again, now with the folder there.
        let pins = Pins::open(folder.path()).unwrap();
        mark(&image, vm1.volume);
        assert_eq!(pins.named_by(vm1.volume), NamedBy::Here);
        let vm2 = folder.path().join("vm2.img");
        mark(&vm2, VolumeId([2; 16]));
        pins.begin_look();
        pins.admit(&definition("vm2", 2, vm2.to_str().unwrap()), NamedBy::Elsewhere, || true).unwrap();
        assert_eq!(pins.named_by(VolumeId([2; 16])), NamedBy::Here, "the first look was not complete");
        pins.end_look(true);
        // An operator who accepts an image as it is removes its marker.
        std::fs::remove_file(image.with_added_extension("forebay")).unwrap();
        let pins = Pins::open(folder.path()).unwrap();
        assert_eq!(pins.named_by(vm1.volume), NamedBy::Here);
        let vm3 = folder.path().join("vm3.img");
        mark(&vm3, VolumeId([3; 16]));
        pins.admit(&definition("vm3", 3, vm3.to_str().unwrap()), NamedBy::Elsewhere, || true).unwrap();
        assert_eq!(pins.named_by(VolumeId([3; 16])), NamedBy::Elsewhere, "there were pins when it came");
    }

    /// Who writes to etcd names the backing of a volume that this node has owned, while it starts for the first time since an upgrade.
    #[test]
    fn the_first_start_after_an_upgrade_opens_no_backing_by_the_word_of_the_coordinator_alone() {
        let folder = TempDir::new("pins-forged");
        let image = folder.path().join("vm1.img");
        let volume = VolumeId([1; 16]);
        mark(&image, volume);
        let named = |backing: &str, state: &str| {
            let pins = Pins::open(&folder.path().join(state)).unwrap();
            pins.admit(&definition("vm1", 1, backing), NamedBy::Elsewhere, || true).unwrap();
            pins.named_by(volume)
        };
        let image = image.to_str().unwrap();
        assert_eq!(named("/etc/shadow", "file"), NamedBy::Elsewhere);
        assert_eq!(named("/dev/vda", "device"), NamedBy::Elsewhere);
        assert_eq!(named("nbd://127.0.0.1:10809/secret", "export"), NamedBy::Elsewhere);
        // The right image, by a wrapper that loses what it was told to sync.
        assert_eq!(named(&format!("faulty:drop_sync=1:{image}"), "wrapped"), NamedBy::Elsewhere);
        assert_eq!(named(image, "right"), NamedBy::Here);
        // A marker that somebody else has put beside a file of his own.
        let theirs = folder.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        let own = theirs.join("own.img");
        mark(&own, volume);
        if std::os::unix::fs::chown(&theirs, Some(65533), None).is_err() {
            forebay_tests::harness::skip("a folder of another user needs root");
            return;
        }
        assert_eq!(named(own.to_str().unwrap(), "theirs"), NamedBy::Elsewhere);
    }

    #[test]
    fn a_definition_that_cannot_be_read_keeps_the_first_look_open() {
        let folder = TempDir::new("pins-unread");
        let image = folder.path().join("vm1.img");
        let vm1 = definition("vm1", 1, image.to_str().unwrap());
        mark(&image, vm1.volume);
        let pins = Pins::open(folder.path()).unwrap();
        pins.begin_look();
        pins.end_look(false);
        let pins = Pins::open(folder.path()).unwrap();
        pins.begin_look();
        pins.admit(&vm1, NamedBy::Elsewhere, || true).unwrap();
        pins.end_look(true);
        assert_eq!(pins.named_by(vm1.volume), NamedBy::Here);
    }

    #[test]
    fn a_pin_that_was_not_written_keeps_the_first_look_open() {
        let folder = TempDir::new("pins-full");
        let image = folder.path().join("vm1.img");
        let vm1 = definition("vm1", 1, image.to_str().unwrap());
        mark(&image, vm1.volume);
        let pins = Pins::open(folder.path()).unwrap();
        // What has the name of the pin cannot be replaced by a file.
        let in_the_way = pins.path(vm1.volume);
        std::fs::create_dir(&in_the_way).unwrap();
        pins.begin_look();
        pins.admit(&vm1, NamedBy::Elsewhere, || true).unwrap_err();
        pins.end_look(true);
        std::fs::remove_dir(&in_the_way).unwrap();
        let pins = Pins::open(folder.path()).unwrap();
        pins.begin_look();
        pins.admit(&vm1, NamedBy::Elsewhere, || true).unwrap();
        pins.end_look(true);
        assert_eq!(pins.named_by(vm1.volume), NamedBy::Here);
    }
}
