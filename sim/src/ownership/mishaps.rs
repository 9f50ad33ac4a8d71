//! What happens to nodes, their tiers and the network between them.

use super::{Item, MS, World};
use forebay_core::ownership::Event;

impl World {
    /// The node can reach the backing from now on, or can not.
    pub fn reach(&mut self, node: usize, reached: bool) {
        self.tell(|| format!("node {} reaches the backing: {reached}", node + 1));
        self.nodes[node].reaches_backing = reached;
        self.tell_candidates();
    }

    /// The operator is about to stop the node, or not any more.
    pub fn leave(&mut self, node: usize, leaving: bool) {
        self.tell(|| format!("node {} is about to leave: {leaving}", node + 1));
        self.nodes[node].leaving = leaving;
        self.tell_candidates();
    }

    /// Ends a process; its tier stays, and what it gave to the backing.
    pub fn kill(&mut self, node: usize) {
        let Some(process) = self.nodes[node].process.take() else { return };
        self.tell(|| format!("node {} is killed", node + 1));
        self.nodes[node].paused_until = 0;
        if let Some(tier) = &mut self.tiers[node]
            && process.volume.owned().is_some()
        {
            // What an owner knows of its own destaging is written down behind its members' (D3).
            tier.watermark = tier.checkpoint;
        }
    }

    /// Ends a machine's boot: memory is gone, flash keeps what was synced and perhaps more.
    pub fn cut_power(&mut self, node: usize) {
        self.kill(node);
        self.tell(|| format!("node {} loses power", node + 1));
        let host = &mut self.nodes[node].host;
        host.boot[0] = host.boot[0].wrapping_add(1);
        if self.setup.writes_die_with_host {
            let machine = self.nodes[node].host.machine;
            self.under_way.retain(|write| write.host.machine != machine);
        }
        let Some(tier) = &mut self.tiers[node] else { return };
        if !tier.flash {
            self.tiers[node] = None;
            return;
        }
        let least = tier.synced.max(tier.checkpoint).min(tier.log.len());
        let end = self.random.range(least as u64, tier.log.len() as u64);
        tier.log.truncate(end as usize);
        tier.synced = tier.log.len();
        tier.committed = tier.checkpoint.min(tier.log.len());
        tier.incarnation.life += 1;
    }

    /// A process does not run for a while.
    pub fn pause(&mut self, node: usize, time: u64) {
        self.tell(|| format!("node {} pauses for {} ms", node + 1, time / MS));
        self.nodes[node].paused_until = self.now + time;
    }

    /// Nothing arrives from one node at the other any more.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.tell(|| format!("nothing arrives from {} at {}", from + 1, to + 1));
        self.cut.insert((from, to));
        self.paths_changed_at = self.now;
    }

    /// The newest question to a node to become a learner arrives once more.
    pub fn ask_to_learn_again(&mut self, node: usize) {
        let (envelope, message) = self.learns[&node].clone();
        self.after(0, Item::Arrive { node, envelope, message, numbers: Vec::new() });
    }

    /// The network is whole again.
    pub fn mend(&mut self) {
        self.cut.clear();
        self.paths_changed_at = self.now;
    }

    /// No sync of a medium ends, until it does again.
    pub fn hang_media(&mut self, hang: bool) {
        self.media_hang = hang;
        for process in self.nodes.iter_mut().filter_map(|node| node.process.as_mut()) {
            process.volume.medium_hangs = hang;
        }
    }

    /// The tier of a node fails.
    pub fn fail_tier(&mut self, node: usize) {
        if let Some(process) = &mut self.nodes[node].process {
            process.volume.fail();
            self.tell(|| format!("the tier of node {} fails", node + 1));
            self.drive(node, Event::Timeout);
        }
    }

    /// The device of a node's tier forgets what was written to it and not synced.
    pub fn forget_unsynced(&mut self, node: usize) {
        if let Some(tier) = &mut self.tiers[node] {
            tier.log.truncate(tier.synced.max(tier.watermark));
        }
    }
}
