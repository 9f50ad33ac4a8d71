//! The volumes of a node, and which of them are to be looked after: those that somebody has had in hand since they were last looked
//! after, and those whose time has come. So a round costs nothing for a volume that rests, however many there are.
//!
//! Invariants:
//! - Whoever gets a volume to change it puts it on the agenda. Only who looks after it has another way to it.
//! - Each volume has one time, the earliest at which it has to be told that time has passed; it is asked for whenever the volume was
//!   looked after ([`Agenda::settle`]).

use forebay_core::types::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Names a volume: its identity.
type Key = [u8; 16];

struct Item<V> {
    of: V,
    /// It is on the list.
    stirred: bool,
    due: Option<Instant>,
}

/// See the module's text.
pub(super) struct Agenda<V> {
    all: BTreeMap<Key, Item<V>>,
    stirred: VecDeque<Key>,
    times: BTreeSet<(Instant, Key)>,
}

impl<V> Agenda<V> {
    /// Of no volume.
    pub(super) fn new() -> Agenda<V> {
        Agenda { all: BTreeMap::new(), stirred: VecDeque::new(), times: BTreeSet::new() }
    }

    /// A new volume, or one in the place of a former one. It is to be looked after.
    pub(super) fn insert(&mut self, key: Key, of: V) {
        self.remove(&key);
        self.all.insert(key, Item { of, stirred: true, due: None });
        self.stirred.push_back(key);
    }

    /// Takes one off.
    pub(super) fn remove(&mut self, key: &Key) -> Option<V> {
        let item = self.all.remove(key)?;
        if let Some(due) = item.due {
            self.times.remove(&(due, *key));
        }
        Some(item.of)
    }

    /// Whether there is this one.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.all.contains_key(key)
    }

    /// One, as it is.
    pub(super) fn get(&self, key: &Key) -> Option<&V> {
        self.all.get(key).map(|item| &item.of)
    }

    /// All, as they are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &V)> {
        self.all.iter().map(|(key, item)| (key, &item.of))
    }

    /// One, to change it: it is to be looked after.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut V> {
        let item = self.all.get_mut(key)?;
        if !std::mem::replace(&mut item.stirred, true) {
            self.stirred.push_back(*key);
        }
        Some(&mut item.of)
    }

    /// The one that is being looked after.
    pub(super) fn in_hand(&mut self, key: &Key) -> Option<&mut V> {
        self.all.get_mut(key).map(|item| &mut item.of)
    }

    /// All, to change them: all are to be looked after.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.stirred.clear();
        self.stirred.extend(self.all.keys());
        self.all.values_mut().map(|item| {
            item.stirred = true;
            &mut item.of
        })
    }

    /// Somebody is to be looked after.
    pub(super) fn has_work(&self) -> bool {
        !self.stirred.is_empty()
    }

    /// The next one to be looked after; who has waited longest comes first.
    pub(super) fn take_stirred(&mut self) -> Option<Key> {
        loop {
            let key = self.stirred.pop_front()?;
            // It may have been looked after since it was put on the list, or have gone.
            if let Some(item) = self.all.get_mut(&key)
                && std::mem::take(&mut item.stirred)
            {
                return Some(key);
            }
        }
    }

    /// It has been looked after, and has nothing to do before `due`.
    pub(super) fn settle(&mut self, key: &Key, due: impl FnOnce(&V) -> Option<Instant>) {
        let Some(item) = self.all.get_mut(key) else { return };
        item.stirred = false;
        let due = due(&item.of);
        let before = std::mem::replace(&mut item.due, due);
        if before != due {
            before.map(|at| self.times.remove(&(at, *key)));
            due.map(|at| self.times.insert((at, *key)));
        }
    }

    /// The next one whose time has come; it is told so, and looked after then.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<&mut V> {
        let (at, key) = *self.times.first()?;
        if at > now {
            return None;
        }
        self.times.pop_first();
        self.all.get_mut(&key).expect("a time is of a volume that is there").due = None;
        self.get_mut(&key)
    }

    /// When the first one's time comes.
    pub(super) fn first_due(&self) -> Option<Instant> {
        self.times.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Key {
        [number; 16]
    }

    fn agenda(count: u8) -> Agenda<u32> {
        let mut agenda = Agenda::new();
        (0..count).for_each(|number| agenda.insert(key(number), 0));
        while let Some(key) = agenda.take_stirred() {
            agenda.settle(&key, |_| None);
        }
        agenda
    }

    fn stirred(agenda: &mut Agenda<u32>) -> Vec<Key> {
        let mut all: Vec<Key> = std::iter::from_fn(|| agenda.take_stirred()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn who_rests_is_not_looked_after() {
        let mut agenda = agenda(100);
        assert!(!agenda.has_work());
        *agenda.get_mut(&key(7)).unwrap() = 1;
        *agenda.get_mut(&key(7)).unwrap() = 2;
        assert_eq!(agenda.get(&key(9)), Some(&0));
        assert_eq!(stirred(&mut agenda), [key(7)], "once, however often it was in hand");
        agenda.all_mut().for_each(|of| *of += 1);
        assert_eq!(stirred(&mut agenda).len(), 100);
        assert_eq!(agenda.get(&key(7)), Some(&3));
    }

    #[test]
    fn who_was_looked_after_or_has_gone_is_not_looked_after_again() {
        let mut agenda = agenda(3);
        agenda.get_mut(&key(0));
        agenda.get_mut(&key(1));
        agenda.settle(&key(0), |_| None);
        agenda.remove(&key(1));
        assert!(stirred(&mut agenda).is_empty());
        // In hand anew while it is looked after.
        agenda.get_mut(&key(2));
        assert_eq!(agenda.take_stirred(), Some(key(2)));
        agenda.get_mut(&key(2));
        assert_eq!(stirred(&mut agenda), [key(2)]);
    }

    #[test]
    fn each_has_one_time_and_the_first_comes_first() {
        let mut agenda = agenda(4);
        for (number, at) in [(0, 30), (1, 10), (2, 20)] {
            agenda.settle(&key(number), |_| Some(Instant(at)));
        }
        // Another time takes the place of the former one.
        agenda.settle(&key(1), |_| Some(Instant(40)));
        assert_eq!(agenda.first_due(), Some(Instant(20)));
        assert!(agenda.take_due(Instant(19)).is_none());
        *agenda.take_due(Instant(30)).unwrap() = 2;
        *agenda.take_due(Instant(30)).unwrap() = 1;
        assert!(agenda.take_due(Instant(30)).is_none());
        assert_eq!((agenda.get(&key(2)), agenda.get(&key(0))), (Some(&2), Some(&1)));
        assert_eq!(stirred(&mut agenda), [key(0), key(2)], "who was told that time has passed is looked after");
        agenda.remove(&key(1));
        assert_eq!(agenda.first_due(), None);
    }
}
