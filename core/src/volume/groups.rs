//! The barrier group that the log is at: records of one group may reach the backing in any order, those of the next one only
//! when all of it is durable there.
//!
//! - Groups are counted up, and no number is given to two of them: the count goes round, and only neighbours are compared.
//! - A group without a record is not closed: the next one would be nobody's barrier.
//!
//! Left to others: when a group ends (a flush, a window's size, a drain), and what destage makes of it ([`super::destage`]).

use super::*;

/// See the module.
pub(super) struct Groups {
    current: Group,
    has_records: bool,
}

impl Groups {
    /// Of a log without any.
    pub(super) fn new() -> Groups {
        Groups { current: Group(1), has_records: false }
    }

    /// The one that a record which comes now belongs to.
    pub(super) fn current(&self) -> Group {
        self.current
    }

    /// A record came into the log: of the present group, or at a member of the one that its owner is at.
    pub(super) fn put(&mut self, group: Group) {
        (self.current, self.has_records) = (group, true);
    }

    /// A start has found a record of it, in log order.
    pub(super) fn found(&mut self, group: Group) {
        self.current = group;
    }

    /// A barrier. False: there is nothing that it could divide.
    pub(super) fn close(&mut self) -> bool {
        let closes = self.has_records;
        if closes {
            self.begin_another();
        }
        closes
    }

    /// What comes now is in another group than all that there is.
    pub(super) fn begin_another(&mut self) {
        (self.current, self.has_records) = (self.current.next(), false);
    }

    /// How many there are from this one on.
    pub(super) fn from(&self, oldest: Group) -> u32 {
        self.current.0.wrapping_sub(oldest.0) + u32::from(self.has_records)
    }
}
