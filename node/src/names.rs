//! What the volumes that this daemon knows are called, by their identities: people know a volume by its name, and some messages have only
//! the identity, or the name alone.
//!
//! At most [`NAMES_MAX`] volumes are kept, those that were heard of first are forgotten first: then a message has what it has. Nothing is
//! decided by it.

use forebay_api::record::VolumeId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many volumes are kept.
const NAMES_MAX: usize = 4_096;

/// See the module's text.
#[derive(Default)]
struct Names {
    names: BTreeMap<VolumeId, String>,
    volumes: BTreeMap<String, VolumeId>,
    /// In the order in which they were heard of.
    order: VecDeque<VolumeId>,
}

static NAMES: Mutex<Names> =
    Mutex::new(Names { names: BTreeMap::new(), volumes: BTreeMap::new(), order: VecDeque::new() });

fn all() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A volume is called so, as of now.
pub fn learn(volume: VolumeId, name: &str) {
    all().learn(volume, name);
}

/// Its name; its identity where it has none that is known here.
pub fn shown(volume: VolumeId) -> String {
    known(volume).unwrap_or_else(|| volume.to_string())
}

/// Its name, if it is known here.
pub fn known(volume: VolumeId) -> Option<String> {
    all().names.get(&volume).cloned()
}

/// Its name, and the identity in brackets: where two volumes may be taken for each other.
pub fn shown_in_full(volume: VolumeId) -> String {
    match all().names.get(&volume) {
        Some(name) => format!("{name} ({volume})"),
        None => volume.to_string(),
    }
}

/// The volume that is called so, if it is known here.
pub fn volume_of(name: &str) -> Option<VolumeId> {
    all().volumes.get(name).copied()
}

impl Names {
    fn learn(&mut self, volume: VolumeId, name: &str) {
        if self.volumes.get(name) == Some(&volume) {
            return;
        }
        if self.names.insert(volume, name.to_owned()).is_none() {
            self.order.push_back(volume);
        }
        self.volumes.insert(name.to_owned(), volume);
        if self.order.len() > NAMES_MAX
            && let Some(first) = self.order.pop_front()
            && let Some(name) = self.names.remove(&first)
            && self.volumes.get(&name) == Some(&first)
        {
            self.volumes.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_its_newest_volume_and_the_first_are_forgotten() {
        let mut names = Names::default();
        let id = |number: usize| VolumeId((number as u128).to_be_bytes());
        names.learn(id(0), "vm1");
        names.learn(id(1), "vm1");
        assert_eq!((names.volumes["vm1"], names.names[&id(0)].as_str()), (id(1), "vm1"));
        for number in 2..NAMES_MAX + 1 {
            names.learn(id(number), &format!("vm{number}"));
        }
        assert_eq!((names.names.get(&id(0)), names.volumes["vm1"]), (None, id(1)), "its name is another's by now");
        names.learn(id(NAMES_MAX + 1), "last");
        assert_eq!((names.names.get(&id(1)), names.volumes.get("vm1")), (None, None));
        assert_eq!((names.names.len(), names.order.len()), (NAMES_MAX, NAMES_MAX));
    }

    #[test]
    fn a_volume_is_shown_by_its_name_and_an_unknown_one_by_its_identity() {
        let (known, unknown) = (VolumeId([0xa1; 16]), VolumeId([0xa2; 16]));
        learn(known, "known-by-name");
        assert_eq!((shown(known), shown(unknown)), ("known-by-name".to_owned(), unknown.to_string()));
        assert_eq!(shown_in_full(known), format!("known-by-name ({known})"));
        assert_eq!((volume_of("known-by-name"), volume_of("nobody's")), (Some(known), None));
    }
}
