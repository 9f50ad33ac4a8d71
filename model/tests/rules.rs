//! Each rule by itself: without it a promise is broken, in a world of the gate, by a shortest trace. `--nocapture` shows the traces.

use forebay_model::rules::Rules;
use forebay_model::setup::{SETUPS, Setup};
use forebay_model::{look, tell};

/// Enough for every counterexample.
const STATES_MAX: usize = 3_000_000;

/// Removes a rule, and expects a violation with these words.
#[track_caller]
fn removing(rule: &str, world: &str, recovery: bool, words: &str) {
    let rules = Rules::LIST.iter().find(|known| known.name == rule).expect("the rule is listed").removed;
    let setup = SETUPS.iter().find(|setup| setup.name == world).expect("the world is listed");
    let outcome = look(&Setup { rules, ..*setup }, recovery, STATES_MAX);
    println!("without {rule}, in the world '{world}', {} states: {}", outcome.states, tell(&outcome));
    let (wrong, ..) = outcome.found.unwrap_or_else(|| panic!("removing {rule} is not noticed in '{world}'"));
    assert!(wrong.contains(words), "removing {rule} is noticed for another reason: {wrong}");
}

macro_rules! removing {
    ($($test:ident: $rule:ident, $world:literal, $words:literal;)+) => {
        $(#[test]
        fn $test() {
            removing(stringify!($rule), $world, stringify!($rule) == "custodian_hands_over", $words);
        })+

        #[test]
        fn every_rule_has_its_test() {
            let tested = [$(stringify!($rule)),+];
            for rule in Rules::LIST {
                assert!(tested.contains(&rule.name), "no test removes {}", rule.name);
            }
        }
    };
}

removing! {
    acknowledging_without_a_member_loses_a_write: ack_by_all_members, "three copies", "lacks what was acknowledged";
    counting_a_hole_as_held_loses_a_write: held_is_a_prefix, "pair", "lacks what was acknowledged";
    counting_a_tail_of_another_term_loses_a_write: tails_compared_by_term, "pair, false suspicion", "lacks what was acknowledged";
    counting_the_answer_of_a_lost_log_loses_a_write: answers_name_incarnations, "pair", "lacks what was acknowledged";
    dropping_before_the_commit_loses_a_write: drop_is_committed_first, "pair, false suspicion", "lacks what was acknowledged";
    not_counting_a_recruit_from_its_proposal_leaves_it_behind: both_member_sets_count, "pair", "lacks what was acknowledged";
    acknowledging_a_pinned_write_by_the_backing_loses_it: pinned_is_not_durable, "pair", "acknowledged as durable";
    showing_a_write_before_it_is_held_takes_it_back: open_writes_are_not_read, "pair", "lacks what was acknowledged";
    not_comparing_the_record_makes_two_owners: record_is_compared, "pair, overwritten", "which the record does not know";
    forgetting_an_unknown_transaction_loses_a_write: unknown_stays_undecided, "pair, answers lost", "lacks what was acknowledged";
    staying_after_a_refusal_loses_a_write: refused_steps_down, "pair, answers lost", "lacks what was acknowledged";
    acting_on_an_unknown_transaction_makes_a_false_owner: unknown_is_not_done, "pair, answers lost", "which the record does not know";
    recording_a_learner_early_leaves_it_behind: learner_has_caught_up, "pair", "lacks what was acknowledged";
    marking_clean_before_the_drain_loses_a_write: clean_after_drain, "stop", "lacks what was acknowledged";
    writing_while_clean_loses_a_write: clean_ends_before_writing, "stop", "although 1 was acknowledged";
    an_old_log_over_a_clean_volume_brings_a_write_back: clean_begins_anew, "stop of a pair", "came back";
    a_take_over_by_anybody_loses_a_write: only_members_take_over, "pair", "lacks what was acknowledged";
    a_take_over_by_an_empty_log_loses_a_write: incarnations_count, "pair", "lacks what was acknowledged";
    trusting_flash_after_a_power_cut_loses_a_write: power_ends_incarnations, "flash, power cut", "lacks what was acknowledged";
    accepting_frames_of_older_terms_loses_a_write: older_terms_are_refused, "pair, overwritten", "lacks what was acknowledged";
    serving_before_all_are_sealed_brings_a_write_back: sealed_before_serving, "hand-over", "came back";
    going_on_after_a_restart_loses_a_write: restart_is_a_take_over, "flash, killed", "lacks what was acknowledged";
    keeping_requests_across_terms_executes_one_twice: sessions_end_with_ownership, "hand-over", "an old request after a newer one";
    a_custodian_that_serves_cannot_read: custodian_serves_nobody, "custodian", "cannot read";
    a_custodian_that_keeps_the_volume_stays_without_service: custodian_hands_over, "custodian", "no recovery";
    destaging_what_is_not_held_shows_an_unknown_write: group_is_held_first, "pair", "no crash image";
    destaging_across_a_barrier_ruins_the_image: groups_go_in_order, "pair", "instead of";
    destaging_ahead_of_what_members_know_lets_a_late_write_through: members_know_progress, "pair", "instead of";
    not_pinning_the_open_group_lets_a_late_write_through: open_group_is_pinned, "pair", "was acknowledged";
    forgetting_older_pins_lets_a_late_write_through: pins_are_inherited, "pair, overwritten", "was acknowledged";
    reading_pinned_ranges_from_the_backing_is_stale: pinned_is_read_from_the_log, "pair", "was acknowledged";
    ending_pins_by_time_lets_a_late_write_through: pins_end_by_evidence, "pair", "was acknowledged";
    a_fence_that_does_not_abort_lets_a_late_write_through: fences_abort, "pair, fenced", "was acknowledged";
    rewriting_before_the_open_group_goes_back: open_group_passes_first, "pair, overwritten", "acknowledged as durable";
    not_rewriting_pinned_ranges_keeps_a_late_write: pinned_is_written_again, "pair", "was acknowledged";
    a_journal_in_place_of_a_member_loses_a_write: batch_is_held_first, "custodian, journal", "lacks what was acknowledged";
    a_journal_of_all_terms_takes_a_late_batch: journal_belongs_to_a_term, "sole survivor, journal", "acknowledged as durable";
    acknowledging_by_a_batch_of_a_former_term_loses_it: journal_is_read_back, "copy missing, journal", "acknowledged as durable";
    a_group_beyond_the_journal_is_taken_back_by_its_replay: journal_before_groups, "sole survivor, journal", "acknowledged as durable";
}
