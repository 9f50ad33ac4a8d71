//! The protocol with all its rules, in every world of the gate: every promise holds in every state, and every state can
//! recover. And the worlds are rich enough to say so: what should occur in them, does.

use forebay_model::checker::{Model, check};
use forebay_model::protocol::{Protocol, Step};
use forebay_model::setup::{SETUPS, Setup};
use forebay_model::state::{Open, Phase, State, Submission};
use forebay_model::{look, tell};

/// Above the largest world of the gate; a world that is cut off would be half looked at.
const STATES_MAX: usize = 3_000_000;

fn world(name: &str) -> &'static Setup {
    SETUPS.iter().find(|setup| setup.name == name).unwrap_or_else(|| panic!("no world is named {name}"))
}

#[test]
fn every_promise_holds_in_every_world_and_every_state_recovers() {
    for setup in SETUPS {
        let outcome = look(setup, true, STATES_MAX);
        println!("{}: {} states", setup.name, outcome.states);
        assert!(!outcome.cut_off, "{}: more than {STATES_MAX} states", setup.name);
        assert!(outcome.found.is_none(), "{}: {}", setup.name, tell(&outcome));
    }
}

/// A world in which the one thing that is wrong is that a situation was reached.
struct Reach {
    protocol: Protocol,
    situation: fn(&State) -> bool,
}

impl Model for Reach {
    type State = State;
    type Step = Step;

    fn initial(&self) -> State {
        self.protocol.initial()
    }

    fn steps(&self, state: &State, out: &mut Vec<(Step, State)>) {
        self.protocol.steps(state, out);
    }

    fn violation(&self, state: &State) -> Option<String> {
        (self.situation)(state).then(|| "reached".to_string())
    }

    fn is_fault(&self, before: &State, after: &State) -> bool {
        self.protocol.is_fault(before, after)
    }

    fn is_good(&self, state: &State) -> bool {
        self.protocol.is_good(state)
    }
}

#[track_caller]
fn reached(name: &str, situation: fn(&State) -> bool) {
    let outcome = check(&Reach { protocol: Protocol(*world(name)), situation }, false, STATES_MAX);
    assert!(outcome.found.is_some(), "{name}: never reached");
}

fn serving(state: &State) -> usize {
    let serves = |node: &&forebay_model::state::Node| node.owner.is_some_and(|owner| owner.phase == Phase::Serving);
    state.nodes.iter().filter(serves).count()
}

#[test]
fn two_nodes_believe_to_be_the_owner() {
    reached("pair, false suspicion", |state| serving(state) == 2);
}

#[test]
fn a_group_of_two_blocks_is_there_in_part_when_its_owner_dies() {
    reached("pair", |state| {
        state.submitted.len() == 1 && state.backing != [0, 0] && state.record.term == 2 && !state.nodes[0].up
    });
}

#[test]
fn one_range_is_pinned_while_the_other_is_destaged_and_acknowledged() {
    reached("pair, false suspicion", |state| {
        let me = &state.nodes[1];
        me.pins == 1 && me.watermark == 2 && state.backing[1] == 2 && state.acked.prefix() >= 1
    });
}

#[test]
fn a_write_of_a_former_owner_waits_while_the_next_one_has_destaged_a_newer_one() {
    reached("pair", |state| {
        let late = |s: &Submission| matches!(s, Submission::Block { value: 1, term: 1, .. });
        state.nodes[1].watermark == 3 && state.nodes[1].owner.is_some() && state.submitted.iter().any(late)
    });
}

#[test]
fn pins_outlive_a_second_take_over() {
    reached("pair, overwritten", |state| state.record.term == 3 && state.nodes[0].pins != 0 && serving(state) > 0);
}

#[test]
fn pinned_ranges_are_written_again_and_the_pins_end() {
    reached("pair", |state| state.nodes[1].owner.is_some_and(|owner| owner.open == Open::Rewrite));
    reached("pair", |state| {
        let me = &state.nodes[1];
        me.owner.is_some_and(|owner| owner.pinned_through == 2) && me.pins == 0 && me.watermark == 3
    });
}

#[test]
fn a_transaction_is_applied_when_nobody_waits_for_it() {
    reached("pair, answers lost", |state| {
        let undecided = |node: &forebay_model::state::Node| {
            node.pending.is_some_and(|pending| pending.unknown && pending.transaction.new == state.record)
        };
        state.nodes.iter().any(undecided)
    });
}

#[test]
fn writes_go_to_a_learner_which_is_then_recorded() {
    reached("pair", |state| {
        let me = &state.nodes[1];
        me.owner.is_some_and(|owner| owner.members[0] == 2 && owner.acked == 3) && state.durable == 0
    });
}

#[test]
fn each_ground_alone_is_enough() {
    reached("pair", |state| state.acked.prefix() == 3 && state.durable == 0 && state.backing == [0, 0]);
    reached("sole survivor", |state| state.durable == 2 && state.journal.batch.is_none());
    reached("sole survivor, journal", |state| state.durable == 2 && state.backing == [0, 0]);
}

#[test]
fn a_pinned_write_is_acknowledged_by_the_journal() {
    reached("sole survivor, journal", |state| {
        let pinned = |node: &forebay_model::state::Node| {
            node.pins != 0 && node.owner.is_some_and(|owner| owner.acked == 2 && owner.members == [0, 1, 0])
        };
        state.durable == 2 && state.nodes.iter().any(pinned)
    });
}

#[test]
fn a_custodian_hands_the_log_to_the_returned_owner() {
    reached("custodian", |state| {
        let returned = &state.nodes[0];
        returned.incarnation == 2 && returned.owner.is_some_and(|owner| owner.acked == 2) && state.backing == [2, 0]
    });
}

#[test]
fn a_killed_node_takes_over_from_itself_while_its_own_writes_are_on_their_way() {
    reached("flash, killed", |state| {
        let own = |s: &Submission| s.sender() == (0, 1);
        state.record.owner == 0 && state.record.term == 2 && serving(state) == 1 && state.submitted.iter().any(own)
    });
}

#[test]
fn a_clean_volume_is_taken_by_a_node_without_the_log() {
    reached("stop", |state| state.record.owner == 1 && serving(state) == 1 && state.acked.prefix() == 2);
}

#[test]
fn ownership_goes_there_and_back() {
    reached("hand-over", |state| state.record.term == 3 && state.record.owner == 0 && state.acked.prefix() == 3);
}
