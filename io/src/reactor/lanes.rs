//! How many operations of one device are at work at one time.
//!
//! An operation that blocks takes a thread, of ours or of the kernel, until its device answers. So each device, as it was opened, has a
//! lane of so many: one that hangs takes no more threads than that, and those of others find one. Files of one server have a lane each:
//! as many of them as there are lanes' worth of threads take them all.

use std::collections::{HashMap, VecDeque};

/// Operations by device: so many are at work, the others wait for one of the same device to end.
pub(super) struct Lanes<T> {
    lanes: HashMap<usize, Lane<T>>,
}

struct Lane<T> {
    at_work: usize,
    waiting: VecDeque<T>,
}

impl<T> Lanes<T> {
    /// No device has any.
    pub(super) fn new() -> Lanes<T> {
        Lanes { lanes: HashMap::new() }
    }

    /// An operation for a device that may have so many at work, always the same number. It is given back when it may begin now;
    /// otherwise it waits.
    pub(super) fn admit(&mut self, device: usize, most: usize, operation: T) -> Option<T> {
        let lane = self.lanes.entry(device).or_insert_with(|| Lane { at_work: 0, waiting: VecDeque::new() });
        if lane.at_work == most {
            lane.waiting.push_back(operation);
            return None;
        }
        lane.at_work += 1;
        Some(operation)
    }

    /// An operation of a device that was at work has ended. The one that begins in its place, in the order of their coming.
    pub(super) fn end(&mut self, device: usize) -> Option<T> {
        // After `clear` what ends leaves no place to anybody.
        let lane = self.lanes.get_mut(&device)?;
        if let Some(next) = lane.waiting.pop_front() {
            return Some(next);
        }
        lane.at_work -= 1;
        if lane.at_work == 0 {
            self.lanes.remove(&device);
        }
        None
    }

    /// What waits never begins.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_lane_keeps_its_own_waiting_in_order_and_nobody_else() {
        let mut lanes = Lanes::new();
        assert_eq!([lanes.admit(1, 2, 'a'), lanes.admit(1, 2, 'b')], [Some('a'), Some('b')]);
        assert_eq!([lanes.admit(1, 2, 'c'), lanes.admit(1, 2, 'd')], [None, None]);
        assert_eq!(lanes.admit(2, 2, 'x'), Some('x'), "another device has a lane of its own");
        assert_eq!([lanes.end(1), lanes.end(1)], [Some('c'), Some('d')]);
        assert_eq!(lanes.admit(1, 2, 'e'), None, "two are at work still");
        assert_eq!([lanes.end(1), lanes.end(1), lanes.end(1)], [Some('e'), None, None]);
        assert_eq!(lanes.end(2), None);
        assert!(lanes.lanes.is_empty(), "what nobody uses takes no memory");
        assert_eq!(lanes.admit(1, 2, 'f'), Some('f'));
        lanes.admit(1, 2, 'g');
        lanes.admit(1, 2, 'h');
        lanes.clear();
        assert_eq!(lanes.end(1), None);
    }
}
