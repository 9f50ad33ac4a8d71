//! Free ids of records without payload: any one, or, when recovery has found its record, a certain one. Each takes a fixed
//! number of steps however many there are.

use alloc::vec::Vec;

/// See the module.
pub struct FreeIds {
    first: u32,
    /// In no order.
    free: Vec<u32>,
    /// For each id where it stands in `free`, while it is there.
    places: Vec<u32>,
    /// Entries of `free` and `places` that were read or written.
    #[cfg(test)]
    steps: u64,
}

impl FreeIds {
    /// All ids from `first` on are free.
    pub fn new(first: u32, count: u32) -> FreeIds {
        FreeIds {
            first,
            free: (first..first + count).rev().collect(),
            places: (0..count).rev().collect(),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// How many are free.
    pub fn len(&self) -> usize {
        self.free.len()
    }

    /// Takes any free one; none: there is none.
    pub fn take(&mut self) -> Option<u32> {
        self.count_steps(1);
        self.free.pop()
    }

    /// A certain one; false when it is not free.
    pub fn claim(&mut self, id: u32) -> bool {
        let place = self.places[(id - self.first) as usize] as usize;
        self.count_steps(2);
        if self.free.get(place) != Some(&id) {
            return false;
        }
        self.free.swap_remove(place);
        if let Some(&moved) = self.free.get(place) {
            self.places[(moved - self.first) as usize] = place as u32;
            self.count_steps(2);
        }
        true
    }

    /// It is free again.
    pub fn give_back(&mut self, id: u32) {
        self.places[(id - self.first) as usize] = self.free.len() as u32;
        self.free.push(id);
        self.count_steps(2);
    }

    #[cfg(test)]
    fn count_steps(&mut self, steps: u64) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    fn count_steps(&mut self, _steps: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set() {
        let mut ids = FreeIds::new(100, 50);
        let mut model: BTreeSet<u32> = (100..150).collect();
        let mut x = 5u64;
        for _ in 0..5_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let id = 100 + (x >> 33) as u32 % 50;
            match x >> 60 {
                0..5 => assert_eq!(ids.claim(id), model.remove(&id)),
                5..8 => {
                    let taken = ids.take();
                    assert_eq!(taken.is_none(), model.is_empty());
                    assert!(taken.is_none_or(|id| model.remove(&id)));
                }
                _ if model.insert(id) => ids.give_back(id),
                _ => {}
            }
            assert_eq!(ids.len(), model.len());
        }
    }

    #[test]
    fn a_claim_takes_as_many_steps_among_many_as_among_few() {
        let steps_for_each = |count: u32| {
            let mut ids = FreeIds::new(1_000, count);
            // From the end of the list on, which a search from its start would reach last.
            assert!((1_000..1_000 + count).all(|id| ids.claim(id)));
            ids.steps as f64 / f64::from(count)
        };
        assert!(steps_for_each(65_536) <= 4.0, "{} steps for each of 65,536", steps_for_each(65_536));
        assert!(steps_for_each(64) <= 4.0);
    }
}
