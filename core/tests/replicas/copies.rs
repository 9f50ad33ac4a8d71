//! How many copies there are besides the owner's own, by the orders that it was given, and what that asks of the backing (A1, C4).

use crate::world::World;
use forebay_core::api::Order;
use forebay_core::cluster::Incarnation;
use forebay_core::status::DestageMode;

/// The members by the record, then those by each change of it that is undecided.
#[derive(Default)]
pub struct Sets(Vec<Vec<Incarnation>>);

impl Sets {
    /// The owner is given this order.
    pub fn order(&mut self, order: &Order) {
        match order {
            Order::Own(own) => self.0 = vec![own.members.clone()],
            Order::Propose { members, .. } => self.0.push(members.clone()),
            Order::Decide { members, .. } => self.0 = vec![members.clone()],
            _ => {}
        }
    }

    /// Nodes besides the owner that every set names.
    fn copies(&self) -> usize {
        let Some((recorded, proposed)) = self.0.split_first() else { return 0 };
        recorded.iter().filter(|who| proposed.iter().all(|set| set.contains(who))).count() - 1
    }
}

impl World {
    /// A write of these sectors is acknowledged: with too few copies the backing has them, whatever else it waited for. (Not looked
    /// at where a journal may have them, or where writes of an earlier process may just have landed over them.)
    pub fn has_copies_or_is_written(&self, sectors: &[u64], stamp: u64) {
        let make = &self.nodes[self.owner].make;
        let is_plain = make.destage == DestageMode::Ordered || make.journal_blocks == 0;
        let may_land = self.nodes.iter().any(|node| node.late_until > 0);
        if !is_plain || may_land || self.sets.copies() >= make.min_peers as usize {
            return;
        }
        for sector in sectors {
            let there = self.backing[(sector / 8) as usize][(sector % 8) as usize];
            assert_eq!(
                there,
                stamp,
                "sector {sector} is acknowledged with {} copies\n{}",
                self.sets.copies(),
                self.tell()
            );
        }
    }
}
