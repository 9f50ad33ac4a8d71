//! Random lives of a volume on three nodes: processes end and come back, nodes are cut off, messages go astray, members are
//! dropped and learnt anew; and in the end everything that was acknowledged is there, on every member and in the backing.
//!
//! Who owns the volume is decided here, as ownership would: a record that only grows, a change proposed before it is
//! decided, an owner followed by a member of its record.

use crate::oracle::Oracle;
use crate::weather::*;
use crate::world::*;
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::status::{DestageMode, Flush, Phase, Policy};
use forebay_core::types::*;

/// The coordinator's record, and what is not decided yet.
struct Ruler {
    term: u32,
    epoch: u32,
    members: Vec<Incarnation>,
    /// What may become its members, and, once that is covered, when the coordinator decides.
    proposed: Option<(Vec<Incarnation>, Option<u64>)>,
    /// How often something was proposed.
    proposals: u64,
    /// Terms whose owners may still write to the backing, and until when they do.
    unfenced: Vec<(u32, u64)>,
}

pub struct Storm {
    world: World,
    ruler: Ruler,
    down_until: Vec<u64>,
    cut_until: Vec<u64>,
    take_overs: u32,
    changes: u32,
    pins_ended: u32,
    /// When the operator changes the policy, which is no part of the weather.
    operator: Chance,
}

fn random_make(chance: &mut Chance) -> Make {
    let base = if chance.percent(50) { MEMORY } else { FLASH };
    Make { backing_align: if chance.percent(50) { 512 } else { 4096 }, ..base }
}

impl Storm {
    pub fn new(seed: u64) -> Storm {
        let mut chance = Chance(seed);
        let kinds: Vec<Make> = (0..3).map(|_| random_make(&mut chance)).collect();
        let common = Make {
            min_peers: chance.below(2) as u32,
            flush: [Flush::Best, Flush::Replicated, Flush::Destage][chance.below(3) as usize],
            destage: if chance.percent(50) { DestageMode::Ordered } else { DestageMode::Auto },
            journal_blocks: if chance.percent(50) { 64 } else { 0 },
            peer_window_bytes_max: (8 + chance.below(64)) * BLOCK_BYTES,
            ..MEMORY
        };
        let weather = Weather {
            lost_percent: chance.below(4) * chance.below(4),
            twice_percent: chance.below(10),
            spoilt_percent: chance.below(3),
            delay_us_max: [0, 100, 5_000, 30_000][chance.below(4) as usize],
            disk_us_max: [100, 3_000, 40_000][chance.below(3) as usize],
        };
        let makes: Vec<Make> = kinds
            .iter()
            .map(|kind| Make {
                kind: kind.kind,
                tier_blocks: kind.tier_blocks,
                frames: kind.frames,
                backing_align: kind.backing_align,
                ..common
            })
            .collect();
        let mut world = World::new(seed ^ 0x5702, weather, &[]);
        for make in makes {
            world.add(make);
        }
        world.found(0, &[0, 1, 2]);
        let members = world.members(&[0, 1, 2]);
        let ruler = Ruler { term: 1, epoch: 1, members, proposed: None, proposals: 0, unfenced: Vec::new() };
        Storm {
            world,
            ruler,
            down_until: vec![0; 3],
            cut_until: vec![0; 3],
            take_overs: 0,
            changes: 0,
            pins_ended: 0,
            operator: Chance(seed ^ 0x0b50),
        }
    }

    fn is_up(&self, node: usize) -> bool {
        self.world.nodes[node].volume.is_some()
    }

    fn is_member(&self, node: usize) -> bool {
        self.ruler.members.contains(&self.world.own(node))
    }

    fn kill(&mut self, node: usize) {
        self.world.kill(node);
        self.down_until[node] = self.world.now + self.world.chance.below(3_000) * MS;
        if node == self.world.owner {
            self.world.sessions_end();
            self.ruler.proposed = None;
        }
    }

    fn fault(&mut self) {
        let node = self.world.chance.below(3) as usize;
        // The log of one node at least stays: nobody could take over otherwise.
        match self.world.chance.below(100) {
            0..=1 if self.is_up(node) => self.kill(node),
            2..=3 => {
                self.world.nodes[node].cut_off = true;
                self.cut_until[node] = self.world.now + self.world.chance.below(2_000) * MS;
            }
            _ => {}
        }
    }

    /// Writes go through for a while, most often from when a node is out of reach, which is when they are under way.
    fn command(&mut self) {
        let owner = self.world.owner;
        let (policy, often) = match self.world.nodes.iter().any(|node| node.cut_off) {
            true => (Policy::Through, 10),
            false => (Policy::Back, 5),
        };
        if !self.is_up(owner) || !self.operator.percent(often) {
            return;
        }
        self.world.hand(owner, Event::Control { id: ControlId(1), command: Control::SetPolicy(policy) });
    }

    fn recover(&mut self, now: u64) {
        for node in 0..3 {
            if self.world.nodes[node].cut_off && self.cut_until[node] <= now {
                self.world.nodes[node].cut_off = false;
                let owner = self.world.owner;
                let id = self.world.own(node).node;
                self.world.hand(owner, Event::Interrupted(id));
            }
            if !self.is_up(node) && self.down_until[node] <= now {
                if self.is_member(node) {
                    self.world.start(node);
                } else {
                    self.world.format(node);
                }
            }
        }
    }

    /// A member of the record takes over from an owner that is gone, and may have left writes behind.
    fn replace_owner(&mut self) {
        let owner = self.world.owner;
        if self.is_up(owner) && self.world.status(owner).phase != Phase::Following {
            return;
        }
        let able =
            |storm: &Storm, node: usize| storm.is_up(node) && storm.is_member(node) && !storm.world.nodes[node].cut_off;
        let candidates: Vec<usize> = (0..3).filter(|&node| able(self, node)).collect();
        if candidates.is_empty() || self.ruler.unfenced.len() >= PINS_MAX {
            return self.prove();
        }
        let next = candidates[self.world.chance.below(candidates.len() as u64) as usize];
        self.ruler.unfenced.push((self.ruler.term, self.world.nodes[owner].late_until));
        // Whom it does not reach is left behind.
        self.ruler.term += 1;
        self.ruler.epoch += 1;
        self.ruler.members = self.world.members(&candidates);
        let unfenced: Vec<u32> = self.ruler.unfenced.iter().map(|(term, _)| *term).collect();
        self.world.take_over_from(next, &candidates, self.ruler.term, self.ruler.epoch, &unfenced);
        self.take_overs += 1;
    }

    /// Proof for every former owner comes some time after the last of their writes has landed (T6).
    fn prove(&mut self) {
        let owner = self.world.owner;
        let over = self.ruler.unfenced.iter().all(|(_, until)| *until < self.world.now);
        if self.ruler.unfenced.is_empty() || !over || !self.is_up(owner) {
            return;
        }
        if self.world.status(owner).phase == Phase::Serving && self.world.chance.percent(10) {
            self.world.order(owner, Order::Proven);
        }
    }

    /// Does what ownership does with what the owner reports.
    fn rule(&mut self) {
        let owner = self.world.owner;
        if !self.is_up(owner) {
            return;
        }
        for report in std::mem::take(&mut self.world.nodes[owner].reports) {
            let mut members = self.ruler.members.clone();
            match report {
                Report::PeerFailed { peer, .. } => members.retain(|member| *member != peer),
                Report::LearnerReady { peer } => members.push(peer),
                Report::Covered { proposal } if proposal == self.ruler.proposals => {
                    let wait = self.world.chance.below(400) * MS;
                    if let Some((_, at @ None)) = &mut self.ruler.proposed {
                        *at = Some(self.world.now + wait);
                    }
                    continue;
                }
                Report::PinsEnded => {
                    self.ruler.unfenced.clear();
                    self.pins_ended += 1;
                    continue;
                }
                _ => continue,
            }
            // Its turn comes when it is reported again.
            if self.ruler.proposed.is_none() && members != self.ruler.members {
                self.propose(members);
            }
        }
        if let Some((members, _)) = self.ruler.proposed.take_if(|(_, at)| at.is_some_and(|at| at <= self.world.now)) {
            if !self.world.chance.percent(20) {
                self.ruler.members = members;
                self.ruler.epoch += 1;
                self.changes += 1;
            }
            self.decide();
        } else if self.ruler.proposed.is_some() && self.world.chance.percent(1) {
            // What was never sent can be taken back: whom it would name may have gone.
            self.ruler.proposed = None;
            self.decide();
        }
        self.prove();
    }

    fn propose(&mut self, members: Vec<Incarnation>) {
        let epoch = Epoch(self.ruler.epoch + 1);
        self.ruler.proposed = Some((members.clone(), None));
        self.ruler.proposals += 1;
        let proposal = self.ruler.proposals;
        self.world.order(
            self.world.owner,
            Order::Propose { proposal, epoch, members, log: LogState::Needed, flushed: Flushed::Unrecorded },
        );
    }

    fn decide(&mut self) {
        let (epoch, members) = (Epoch(self.ruler.epoch), self.ruler.members.clone());
        self.world.order(
            self.world.owner,
            Order::Decide { epoch, members, log: LogState::Needed, flushed: Flushed::Unrecorded },
        );
    }

    /// Nodes that are there and no members are to be learnt; what was not reported again is looked at.
    fn recruit(&mut self) {
        let owner = self.world.owner;
        if !self.is_up(owner) || self.ruler.proposed.is_some() || self.world.status(owner).phase != Phase::Serving {
            return;
        }
        for node in (0..3).filter(|node| *node != owner) {
            if self.is_up(node) && !self.is_member(node) && !self.world.nodes[node].cut_off {
                let stale = self.world.status(node).accepted > Lsn(0);
                let learning = self.world.figures(node).agreed && self.world.figures(node).term.0 == self.ruler.term;
                if stale && !learning {
                    self.world.kill(node);
                    self.world.format(node);
                }
                let own = self.world.own(node);
                self.world.order(owner, Order::Learn(own));
            }
            let lost = self.ruler.members.iter().any(|member| {
                member.node == self.world.own(node).node && (!self.is_up(node) || *member != self.world.own(node))
            });
            if lost && self.world.chance.percent(30) {
                let id = self.world.own(node).node;
                let mut members = self.ruler.members.clone();
                members.retain(|member| member.node != id);
                return self.propose(members);
            }
        }
    }

    fn client(&mut self) {
        let owner = self.world.owner;
        if !self.is_up(owner) || self.world.status(owner).phase == Phase::Following {
            return;
        }
        for _ in 0..self.world.chance.below(4) {
            let block = self.world.chance.below(12) * self.world.chance.below(5) % BLOCKS;
            match self.world.chance.below(20) {
                0..=9 => {
                    self.world.write(8 * block, 8);
                }
                10..=12 => {
                    let first = self.world.chance.below(8);
                    let count = 1 + self.world.chance.below(8 - first);
                    self.world.write(8 * block + first, count);
                }
                13 => {
                    let count = 1 + self.world.chance.below(4).min(BLOCKS - block - 1);
                    self.world.zero(block, count);
                }
                14..=17 => {
                    self.world.read(block);
                }
                _ => self.world.flush(),
            }
        }
    }

    fn check(&self) {
        let owner = self.world.owner;
        if !self.is_up(owner) || self.world.status(owner).phase != Phase::Serving {
            return;
        }
        let members: Vec<usize> = (0..3).filter(|&node| node != owner && self.is_member(node)).collect();
        self.world.check_copies(owner, &members);
    }

    pub fn run(mut self) -> Storm {
        for _ in 0..1_500 {
            self.client();
            self.fault();
            self.command();
            self.go_on();
            self.check();
        }
        // Faults end, and everything becomes whole.
        self.world.weather = Weather { lost_percent: 0, spoilt_percent: 0, ..self.world.weather };
        let now = u64::MAX;
        for _ in 0..20_000 {
            self.recover(now);
            self.go_on();
            self.check();
            if self.is_whole() {
                return self;
            }
        }
        panic!("not whole within a minute: {:?}\n{}", self.ruler.members, self.world.tell());
    }

    fn go_on(&mut self) {
        let wait = 1 + self.world.chance.below(4);
        self.world.run_ms(wait);
        self.recover(self.world.now);
        self.replace_owner();
        self.rule();
        self.recruit();
    }

    fn is_whole(&self) -> bool {
        // Zeros are no dirty bytes, and wait in a group all the same.
        let is_clean = |node| self.world.status(node).groups_waiting == 0;
        (0..3).all(|node| self.is_up(node) && self.is_member(node) && is_clean(node))
            && self.world.open() == 0
            && self.world.status(self.world.owner).phase == Phase::Serving
    }

    /// Every block is read, and lies in the backing.
    pub fn audit(mut self) -> [u32; 3] {
        self.world.read_all();
        let mut oracle: Oracle = std::mem::take(&mut self.world.oracle);
        for (block, bytes) in self.world.backing.iter().enumerate() {
            for (within, stamp) in bytes.iter().enumerate() {
                oracle.shown(block as u64 * 8 + within as u64, *stamp, "the backing");
            }
        }
        [self.take_overs, self.changes, self.pins_ended]
    }
}

fn seeds() -> std::ops::Range<u64> {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let from = of("FROM").unwrap_or(0);
    from..from + of("SEEDS").unwrap_or(60)
}

#[test]
fn after_any_storm_everything_that_was_acknowledged_is_there() {
    let mut seen = [0; 3];
    for seed in seeds() {
        println!("seed {seed}");
        let more = Storm::new(seed).run().audit();
        seen.iter_mut().zip(more).for_each(|(seen, more)| *seen += more);
    }
    println!("{} take-overs, {} changes of members, {} times pins ended", seen[0], seen[1], seen[2]);
    assert!(seen.iter().all(|&times| times > 0), "storms without all of these show nothing: {seen:?}");
}
