//! The worlds in which the protocol is checked: how many nodes, which faults, how often.

use crate::rules::Rules;
use crate::state::{BLOCKS, Budget, Journal, LOG, Log, Members, NODES, Node, Position, Ranges, Record, State, Value};

/// One client write: the block, and whether a flush of the client stands before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// 0 or 1.
    pub block: usize,
    /// It begins a new barrier group.
    pub behind_flush: bool,
}

/// Both blocks in one group, then the first again: the shortest load with a group that can be there in part, and an
/// overwrite behind it.
const TWO_THEN_ONE: &[Write] = &[
    Write { block: 0, behind_flush: false },
    Write { block: 1, behind_flush: false },
    Write { block: 0, behind_flush: true },
];
/// One write, where only copies matter.
const ONE: &[Write] = &[Write { block: 0, behind_flush: false }];
/// The same block twice, in two groups: the shortest load with an overwrite.
const OVERWRITE: &[Write] = &[Write { block: 0, behind_flush: false }, Write { block: 0, behind_flush: true }];
/// Three groups of one block.
const OVERWRITES: &[Write] = &[
    Write { block: 0, behind_flush: false },
    Write { block: 0, behind_flush: true },
    Write { block: 0, behind_flush: true },
];

/// One world.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its name in tests and tables.
    pub name: &'static str,
    /// Nodes that exist.
    pub nodes: usize,
    /// Recorded members at the start; node 0 is the owner.
    pub members: usize,
    /// Members that the owner recruits up to.
    pub wanted: u32,
    /// Copies, the owner's own included, that are ground enough for an acknowledgement.
    pub copies: u32,
    /// The log survives the death of the process.
    pub flash: bool,
    /// By node: it reaches the backing.
    pub reaches: [bool; NODES],
    /// The backing can refuse a former owner.
    pub fence: bool,
    /// There is room for a journal beside the backing.
    pub journal: bool,
    /// What the client writes.
    pub load: &'static [Write],
    /// Faults.
    pub budget: Budget,
    /// Rules that hold.
    pub rules: Rules,
}

const NO_FAULTS: Budget =
    Budget { crash: 0, kill: 0, power: 0, suspicion: 0, unheard: 0, hand_over: 0, stop: 0, queued: 0 };

/// Two nodes, one copy besides the owner's, a plain file behind them.
pub const PAIR: Setup = Setup {
    name: "pair",
    nodes: 2,
    members: 2,
    wanted: 2,
    copies: 2,
    flash: false,
    reaches: [true; NODES],
    fence: false,
    journal: false,
    load: TWO_THEN_ONE,
    budget: Budget { crash: 1, ..NO_FAULTS },
    rules: Rules::ALL,
};

/// Every world of the gate.
pub const SETUPS: &[Setup] = &[
    PAIR,
    Setup { name: "pair, false suspicion", budget: Budget { suspicion: 1, ..NO_FAULTS }, ..PAIR },
    Setup { name: "pair, both", budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "pair, overwritten",
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "pair, fenced",
        load: OVERWRITE,
        fence: true,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "pair, answers lost",
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, unheard: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup { name: "pair, two deaths", load: OVERWRITE, budget: Budget { crash: 2, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "pair, journal",
        load: OVERWRITE,
        journal: true,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "copy missing",
        copies: 3,
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "copy missing, journal",
        copies: 3,
        journal: true,
        load: OVERWRITE,
        budget: Budget { suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "flash, killed",
        load: OVERWRITE,
        flash: true,
        budget: Budget { kill: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "flash, power cut",
        load: OVERWRITE,
        flash: true,
        budget: Budget { power: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "sole survivor",
        members: 1,
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "sole survivor, journal",
        members: 1,
        load: OVERWRITE,
        journal: true,
        budget: Budget { crash: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "custodian",
        reaches: [true, false, false],
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "custodian, journal",
        reaches: [true, false, false],
        load: OVERWRITE,
        journal: true,
        budget: Budget { crash: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup { name: "hand-over", load: OVERWRITES, budget: Budget { hand_over: 2, queued: 1, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "hand-over, death",
        load: OVERWRITE,
        budget: Budget { hand_over: 1, crash: 1, unheard: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "stop",
        members: 1,
        wanted: 1,
        copies: 1,
        load: OVERWRITE,
        budget: Budget { stop: 1, suspicion: 1, crash: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "stop of a pair",
        load: OVERWRITE,
        budget: Budget { stop: 1, suspicion: 1, unheard: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup { name: "spare", nodes: 3, load: OVERWRITE, budget: Budget { crash: 1, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "three copies",
        nodes: 3,
        members: 3,
        wanted: 3,
        load: ONE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "three copies, two take-overs",
        nodes: 3,
        members: 3,
        wanted: 1,
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
];

/// The worlds of a long run: more of everything.
pub const DEEP: &[Setup] = &[
    Setup {
        name: "pair, three overwrites",
        load: OVERWRITES,
        budget: Budget { crash: 2, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup { name: "pair, two suspicions", budget: Budget { crash: 1, suspicion: 2, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "pair, operator and coordinator",
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, unheard: 1, hand_over: 1, stop: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup { name: "pair, answers lost twice", budget: Budget { suspicion: 1, unheard: 2, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "pair, journal, two deaths",
        journal: true,
        load: OVERWRITE,
        budget: Budget { crash: 2, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "flash, everything",
        flash: true,
        load: OVERWRITE,
        budget: Budget { kill: 1, power: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "custodian, everything",
        reaches: [true, false, false],
        load: OVERWRITE,
        budget: Budget { crash: 2, suspicion: 1, unheard: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup { name: "spare, suspicion", nodes: 3, load: OVERWRITE, budget: Budget { suspicion: 1, ..NO_FAULTS }, ..PAIR },
    Setup {
        name: "three copies, three take-overs",
        nodes: 3,
        members: 3,
        wanted: 1,
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 2, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "three copies, overwritten",
        nodes: 3,
        members: 3,
        wanted: 3,
        load: OVERWRITE,
        budget: Budget { crash: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "copy missing, everything",
        copies: 3,
        journal: true,
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
    Setup {
        name: "copy missing, fence",
        fence: true,
        copies: 3,
        journal: true,
        load: OVERWRITE,
        budget: Budget { crash: 1, suspicion: 1, ..NO_FAULTS },
        ..PAIR
    },
];

impl Setup {
    /// The write that made a value.
    pub fn write(&self, value: Value) -> Write {
        self.load[value as usize - 1]
    }

    /// The end of the barrier group that holds a position, in this log.
    pub fn group_end(&self, log: &Log, position: Position) -> Position {
        let mut end = position;
        while end < log.prefix() && !self.write(log.at(end + 1)).behind_flush {
            end += 1;
        }
        end
    }

    /// The newest value of a block at positions behind `from` up to `through`; 0 where there is none.
    pub fn newest(&self, log: &Log, block: usize, from: Position, through: Position) -> Value {
        (from + 1..=through).rev().map(|at| log.at(at)).find(|v| *v != 0 && self.write(*v).block == block).unwrap_or(0)
    }

    /// The blocks written at these positions.
    pub fn ranges(&self, log: &Log, from: Position, through: Position) -> Ranges {
        (0..BLOCKS).filter(|block| self.newest(log, *block, from, through) != 0).map(|block| 1 << block).sum()
    }

    /// The first moment: members follow the owner of term 1, nothing is written.
    pub fn first(&self) -> State {
        let members: Members = std::array::from_fn(|node| u8::from(node < self.members));
        let nodes = std::array::from_fn(|node| Node {
            up: node < self.nodes,
            incarnation: 1,
            term: u8::from(node < self.members),
            owned: u8::from(node == 0),
            log: Log::default(),
            confirmed: 0,
            watermark: 0,
            pins: 0,
            owner: (node == 0).then(|| crate::protocol::first_owner(members)),
            pending: None,
            queued: 0,
        });
        State {
            record: Record { term: 1, config: 1, owner: 0, members, clean: false },
            floating: Vec::new(),
            nodes,
            network: Vec::new(),
            backing: [0; BLOCKS],
            journal: Journal { term: 1, batch: None },
            submitted: Vec::new(),
            fenced: 0,
            next: 1,
            acked: Log([0; LOG]),
            durable: 0,
            abandoned: 0,
            sent: Log::default(),
            flagged: false,
            contradiction: false,
            budget: self.budget,
        }
    }
}
