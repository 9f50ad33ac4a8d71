//! The protocol between nodes, as an explicit-state model: replication, membership, take-over and destage, checked in
//! every reachable state of small worlds. It is written before the code, and is the code's precise statement.
//!
//! # How to read it
//!
//! [`state`] has the types: a node, the coordinator's record, messages, the backing. [`rules`] has every rule by name; each
//! is a switch. [`protocol`] has the steps, each with what must hold before it, and names the rule where it acts.
//! [`checks`] has what must hold in every state. [`setup`] has the worlds, [`checker`] the search.
//!
//! # What is promised, and checked in every state
//!
//! - No acknowledged write is missing at a recorded member that is up in its recorded incarnation.
//! - At most one node owns the volume in a term; who serves in the newest term is its recorded owner, and a member.
//! - A read is never older than what was acknowledged to its session, and a write that an owner has served without never
//!   comes back.
//! - The backing, after replay of the journal beside it and outside pinned ranges, is a crash image: all groups up to
//!   one, and any part of the next. Where no pin is, it has what the owner has trimmed.
//! - What was acknowledged because backing or journal have it is there although every log is lost.
//! - *Recovery*: from every state, without further faults, a state is reachable in which the recorded owner serves, all
//!   copies are there and nothing is dirty, pinned or unacknowledged. Only where every recorded log is lost, or the volume
//!   was stopped, a person is needed.
//!
//! # What may happen
//!
//! Messages are delayed, reordered, duplicated and lost; nodes die with or without their log, and come back; any node
//! takes any other for dead, at any moment; answers of the coordinator are lost, and transactions applied long after
//! nobody waits for them; writes that were given to the backing land at any moment, also when their sender is gone. No
//! rule leans on a clock.
//!
//! # The rules
//!
//! The numbers are the sections of the design. *New* rules are those that the model has added to it, *sharper* ones those
//! whose plain reading it refuted.
//!
//! | rule | design | |
//! |---|---|---|
//! | [`ack_by_all_members`](rules::Rules::ack_by_all_members) | 3, 7: three grounds | sharper: backing and journal replace missing *copies*, never a recorded member that lacks the write |
//! | [`held_is_a_prefix`](rules::Rules::held_is_a_prefix) | 5: acknowledgement is by prefix | |
//! | [`tails_compared_by_term`](rules::Rules::tails_compared_by_term) | 7: seal | |
//! | [`answers_name_incarnations`](rules::Rules::answers_name_incarnations) | 7: incarnations | sharper: frames and answers carry them, not only the record |
//! | [`drop_is_committed_first`](rules::Rules::drop_is_committed_first) | 7: drop | |
//! | [`both_member_sets_count`](rules::Rules::both_member_sets_count) | 7: recruit | new: for copies, groups and progress, from the proposal to the decision |
//! | [`pinned_is_not_durable`](rules::Rules::pinned_is_not_durable) | 7: quarantine | |
//! | [`open_writes_are_not_read`](rules::Rules::open_writes_are_not_read) | 3: reads | new |
//! | [`record_is_compared`](rules::Rules::record_is_compared) | 7: coordinator | |
//! | [`unknown_stays_undecided`](rules::Rules::unknown_stays_undecided) | 7: unknown outcome | sharper: a read of the old record decides nothing |
//! | [`refused_steps_down`](rules::Rules::refused_steps_down) | 7: terms | |
//! | [`unknown_is_not_done`](rules::Rules::unknown_is_not_done) | 7: unknown outcome | |
//! | [`learner_has_caught_up`](rules::Rules::learner_has_caught_up) | 7: recruit | sharper: up to the end of the log and of the progress, not to what this owner has acknowledged |
//! | [`clean_after_drain`](rules::Rules::clean_after_drain), [`clean_ends_before_writing`](rules::Rules::clean_ends_before_writing) | 7: clean | sharper: not by hand-over |
//! | [`clean_begins_anew`](rules::Rules::clean_begins_anew) | 7: clean | new |
//! | [`only_members_take_over`](rules::Rules::only_members_take_over), [`incarnations_count`](rules::Rules::incarnations_count) | 7: take-over | |
//! | [`power_ends_incarnations`](rules::Rules::power_ends_incarnations) | 7: incarnations | new |
//! | [`older_terms_are_refused`](rules::Rules::older_terms_are_refused) | 7: terms | |
//! | [`sealed_before_serving`](rules::Rules::sealed_before_serving) | 7: take-over | sharper: every recorded member, or it is dropped first |
//! | [`restart_is_a_take_over`](rules::Rules::restart_is_a_take_over) | 5: a restart is a take-over from oneself | |
//! | [`sessions_end_with_ownership`](rules::Rules::sessions_end_with_ownership) | 7: requests belong to a term and a session | |
//! | [`custodian_serves_nobody`](rules::Rules::custodian_serves_nobody), [`custodian_hands_over`](rules::Rules::custodian_hands_over) | 7: custodian | |
//! | [`group_is_held_first`](rules::Rules::group_is_held_first), [`groups_go_in_order`](rules::Rules::groups_go_in_order), [`members_know_progress`](rules::Rules::members_know_progress) | 6: barrier groups | |
//! | [`open_group_is_pinned`](rules::Rules::open_group_is_pinned), [`pinned_is_read_from_the_log`](rules::Rules::pinned_is_read_from_the_log), [`pins_end_by_evidence`](rules::Rules::pins_end_by_evidence), [`pinned_is_written_again`](rules::Rules::pinned_is_written_again) | 7: quarantine | |
//! | [`pins_are_inherited`](rules::Rules::pins_are_inherited) | 7: quarantine | new: pins travel with the seal and the progress |
//! | [`open_group_passes_first`](rules::Rules::open_group_passes_first) | 7: quarantine | new: the newest content is that of the open group |
//! | [`fences_abort`](rules::Rules::fences_abort) | 7: fences | |
//! | [`batch_is_held_first`](rules::Rules::batch_is_held_first) | 7: three grounds | sharper: as `ack_by_all_members` |
//! | [`journal_is_read_back`](rules::Rules::journal_is_read_back) | 6: journal and marker | new: the new owner begins its own first and then looks at older ones |
//! | [`journal_belongs_to_a_term`](rules::Rules::journal_belongs_to_a_term), [`journal_before_groups`](rules::Rules::journal_before_groups) | 6: journal and marker | |
//!
//! # What it leaves to others
//!
//! Leases and their times (they bound how long a deposed owner answers reads, and nothing else here), checksums and damage,
//! the journal as a way of destaging, the coordinator's own replication and its return to an older state, the operator's
//! words after a total loss. A member need not read the record before it follows a seal: a seal is sent only by who knows
//! from the record that it owns the term (`unknown_is_not_done`). Nor need a candidate stop following the old owner
//! before it has won: its log is the truth from the moment in which it learns that.
//!
//! Run it: `cargo run --release -p forebay-model -- --help`.
#![forbid(unsafe_code)]

pub mod checker;
pub mod checks;
pub mod protocol;
pub mod rules;
pub mod setup;
pub mod state;

use checker::Outcome;
use protocol::{Protocol, Step};
use setup::Setup;

/// Looks at every state of one world, at most `most`.
pub fn look(setup: &Setup, recovery: bool, most: usize) -> Outcome<Step> {
    checker::check(&Protocol(*setup), recovery, most)
}

/// A counterexample for people: what is wrong, and a step on each line.
pub fn tell(outcome: &Outcome<Step>) -> String {
    match &outcome.found {
        None => format!("nothing wrong in {} states", outcome.states),
        Some((wrong, steps, state)) => {
            let lines: String = steps.iter().map(|step| format!("    {step:?}\n")).collect();
            format!("{wrong}, after {} steps:\n{lines}    {state}", steps.len())
        }
    }
}
