//! The worlds in which the protocol is checked: how many nodes, which faults, how often.

use crate::rules::Rules;
use crate::state::{
    BLOCKS, Budget, Journal, LOG, Log, Members, NODES, Node, Owner, Position, Ranges, Record, State, Value,
};

/// One client write: the block, and whether a flush of the client stands before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// Block that is written, 0 or 1.
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

/// One world: its nodes, its load, and what may go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Its name in tests and tables.
    pub name: &'static str,
    /// Nodes that there are, members or not.
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
    /// Writes of the client, in its order.
    pub load: &'static [Write],
    /// How many faults of each kind may happen.
    pub budget: Budget,
    /// Rules that hold; all others are broken on purpose.
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

/// A table of worlds: what each has that a pair has not, and how often each fault may happen.
macro_rules! worlds {
    ($($name:literal: {$($field:ident: $value:expr),*} faults {$($fault:ident: $times:literal),*};)+) => {
        &[$(Setup {
            name: $name,
            $($field: $value,)*
            budget: Budget { $($fault: $times,)* ..NO_FAULTS },
            ..PAIR
        }),+]
    };
}

/// Every world of the gate.
pub const SETUPS: &[Setup] = worlds! {
    "pair": {} faults { crash: 1 };
    "pair, false suspicion": {} faults { suspicion: 1 };
    "pair, both": {} faults { crash: 1, suspicion: 1 };
    "pair, overwritten": { load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "pair, fenced": { load: OVERWRITE, fence: true } faults { crash: 1, suspicion: 1 };
    "pair, answers lost": { load: OVERWRITE } faults { crash: 1, suspicion: 1, unheard: 1 };
    "pair, two deaths": { load: OVERWRITE } faults { crash: 2 };
    "pair, journal": { load: OVERWRITE, journal: true } faults { crash: 1, suspicion: 1 };
    "copy missing": { copies: 3, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "copy missing, journal": { copies: 3, journal: true, load: OVERWRITE } faults { suspicion: 1 };
    "flash, killed": { load: OVERWRITE, flash: true } faults { kill: 1, suspicion: 1 };
    "flash, power cut": { load: OVERWRITE, flash: true } faults { power: 1, suspicion: 1 };
    "sole survivor": { members: 1, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "sole survivor, journal": { members: 1, load: OVERWRITE, journal: true } faults { crash: 1 };
    "custodian": { reaches: [true, false, false], load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "custodian, journal": { reaches: [true, false, false], load: OVERWRITE, journal: true } faults { crash: 1 };
    "hand-over": { load: OVERWRITES } faults { hand_over: 2, queued: 1 };
    "hand-over, death": { load: OVERWRITE } faults { hand_over: 1, crash: 1, unheard: 1 };
    "stop": { members: 1, wanted: 1, copies: 1, load: OVERWRITE } faults { stop: 1, suspicion: 1, crash: 1 };
    "stop of a pair": { load: OVERWRITE } faults { stop: 1, suspicion: 1, unheard: 1 };
    "spare": { nodes: 3, load: OVERWRITE } faults { crash: 1 };
    "three copies": { nodes: 3, members: 3, wanted: 3, load: ONE } faults { crash: 1, suspicion: 1 };
    "three copies, two take-overs": { nodes: 3, members: 3, wanted: 1, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "strict three": { nodes: 3, members: 3, wanted: 1, copies: 3, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "custodian, third node": { nodes: 3, reaches: [true, false, true], load: OVERWRITE } faults { crash: 1 };
    "flash, hand-over": { flash: true, load: OVERWRITE } faults { kill: 1, hand_over: 1, unheard: 1 };
    "flash, stop": { flash: true, load: OVERWRITE } faults { kill: 1, stop: 1, unheard: 1 };
};

/// The worlds of a long run: more of everything.
pub const DEEP: &[Setup] = worlds! {
    "pair, three overwrites": { load: OVERWRITES } faults { crash: 2, suspicion: 1 };
    "pair, two suspicions": {} faults { crash: 1, suspicion: 2 };
    "pair, operator and coordinator": { load: OVERWRITE } faults { crash: 1, suspicion: 1, unheard: 1, hand_over: 1, stop: 1 };
    "pair, answers lost, two blocks": {} faults { crash: 1, suspicion: 1, unheard: 1 };
    "pair, hand-over, two blocks": {} faults { crash: 1, suspicion: 1, hand_over: 1 };
    "pair, answers lost twice": {} faults { suspicion: 1, unheard: 2 };
    "pair, journal, two deaths": { journal: true, load: OVERWRITE } faults { crash: 2 };
    "flash, everything": { flash: true, load: OVERWRITE } faults { kill: 1, power: 1, suspicion: 1 };
    "custodian, everything": { reaches: [true, false, false], load: OVERWRITE } faults { crash: 2, suspicion: 1, unheard: 1 };
    "spare, suspicion": { nodes: 3, load: OVERWRITE } faults { suspicion: 1 };
    "three copies, three take-overs": { nodes: 3, members: 3, wanted: 1, load: OVERWRITE } faults { crash: 1, suspicion: 2 };
    "three copies, overwritten": { nodes: 3, members: 3, wanted: 3, load: OVERWRITE } faults { crash: 1 };
    "three copies, suspicion": { nodes: 3, members: 3, wanted: 3, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "spare, death and suspicion": { nodes: 3, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "copy missing, everything": { copies: 3, journal: true, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "copy missing, fence": { fence: true, copies: 3, journal: true, load: OVERWRITE } faults { crash: 1, suspicion: 1 };
    "flash, custodian": { flash: true, reaches: [true, false, false], load: OVERWRITE } faults { kill: 1, power: 1, suspicion: 1 };
    "flash, two deaths": { flash: true } faults { kill: 2 };
    "flash, three deaths": { flash: true, load: OVERWRITE } faults { kill: 3 };
    "flash, journal": { flash: true, journal: true, members: 1, load: OVERWRITE } faults { kill: 1, suspicion: 1 };
    "stop beside a spare": { nodes: 3, load: ONE } faults { crash: 1, stop: 1, unheard: 1 };
    "stop with a journal": { journal: true, members: 1, load: OVERWRITE } faults { crash: 1, stop: 1 };
    "three copies, fence": { fence: true, nodes: 3, members: 3, wanted: 1, load: OVERWRITE } faults { suspicion: 2 };
    "three copies, hand-over": { nodes: 3, members: 3, wanted: 1, load: OVERWRITE } faults { hand_over: 1, suspicion: 1, unheard: 1 };
};

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
            owner: (node == 0).then(|| Owner::first(members)),
            pending: None,
            queued: 0,
        });
        State {
            record: Record { term: 1, epoch: 1, owner: 0, members, clean: false },
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
