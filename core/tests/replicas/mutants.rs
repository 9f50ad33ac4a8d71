//! What the storms and stories are worth: each rule, broken on purpose, is caught by one of them.

use crate::broken_tiers::*;
use crate::flushes::*;
use crate::former_states::*;
use crate::holds::*;
use crate::predecessor_cache::*;
use crate::quiet::*;
use crate::reads::*;
use crate::storm::Storm;
use crate::story::*;
use crate::world::PLANTED;
use forebay_core::volume::Rules;
use std::panic::catch_unwind;

/// Seeds of storms that are tried for each rule.
const SEEDS: u64 = 200;

macro_rules! storms_catch {
    ($($rule:ident),* $(,)?) => {
        $(#[test]
        fn $rule() {
            PLANTED.set(Rules { $rule: true, ..Rules::default() });
            let caught = (0..SEEDS).find(|&seed| catch_unwind(|| Storm::new(seed).run().audit()).is_err());
            println!("caught by storm {caught:?}");
            assert!(caught.is_some(), "{} survives {SEEDS} storms", stringify!($rule));
        })*
    };
}

macro_rules! stories_catch {
    ($($rule:ident: $story:ident),* $(,)?) => {
        $(#[test]
        fn $rule() {
            PLANTED.set(Rules { $rule: true, ..Rules::default() });
            assert!(catch_unwind($story).is_err(), "{} survives {}", stringify!($rule), stringify!($story));
        })*
    };
}

storms_catch! {
    acknowledge_before_members,
    ask_recorded_only,
    destage_uncommitted,
    end_pins_at_once,
    forget_pins,
    leaves_waiters_of_before,
    take_gaps,
    trust_payload,
}

stories_catch! {
    take_older_terms: messages_of_an_older_term_and_for_another_incarnation_are_refused,
    window_before_mark: nothing_goes_to_the_backing_before_the_member_knows_the_window,
    take_for_others: messages_of_an_older_term_and_for_another_incarnation_are_refused,
    answer_before_agreed: what_a_member_may_bring_back_is_not_said_to_be_gone,
    answer_before_synced: what_was_fetched_is_synced_before_it_is_read,
    goes_on_in_former_state: a_member_that_is_put_back_is_told_while_nothing_is_written,
    tell_unrecorded: a_learner_that_is_killed_holds_what_it_has_said,
    keep_longer_tail: a_log_that_is_longer_than_the_new_terms_tail_is_refused,
    ignore_min_peers: without_the_lost_member_a_write_is_acknowledged_only_when_the_backing_has_it,
    flush_by_own_sync: a_flush_promises_the_media_of_all_while_all_are_on_flash,
    flush_for_less_than_recorded: a_flush_is_answered_for_no_less_than_the_record_promises,
    endure_slow_peers: a_member_that_moves_and_keeps_every_write_waiting_is_reported_within_seconds,
    through_unsynced: a_record_says_through_only_when_the_backing_has_synced_what_was_acknowledged,
    cover_at_once: a_learner_is_brought_up_to_date_while_its_owner_serves_and_then_counts,
    free_before_mark: a_member_frees_nothing_before_it_is_told_to,
    free_uncommitted: a_member_misses_nothing_that_was_superseded_before_it_was_sent,
    watermark_over_uncommitted: a_watermark_does_not_pass_what_was_superseded_by_what_nobody_holds,
    commit_alone_at_the_end: an_owner_that_steps_down_passes_nothing_that_only_it_has_superseded,
    rests_but_for_batches: an_owner_waits_for_erasures_and_syncs_when_it_steps_down,
    show_uncommitted: what_only_an_owner_that_is_cut_off_has_is_not_read,
    read_without_lease: without_a_lease_nothing_is_read_and_nothing_is_written_to_the_backing,
    keep_overwritten: what_the_next_owner_writes_is_not_read_from_the_cache_of_the_former_one,
    ask_who_left: a_former_owner_that_is_no_member_any_more_is_not_asked,
    waits_on_for_backing: a_write_returns_to_the_log_when_there_are_enough_copies_again,
    quiesces_what_is_awaited: a_volume_becomes_quiet_when_the_backing_has_what_is_awaited,
    rewrites_when_quiet: nothing_is_written_again_by_an_owner_that_was_told_to_be_quiet,
    holds_unsettled: requests_are_carried_out_while_what_was_under_way_is_waited_for,
    holds_without_end: requests_are_held_for_no_longer_than_clients_can_wait,
    hold_forgets_ranges: a_hold_ends_before_a_trim_waits_for_a_place,
    trust_cached: what_was_changed_on_the_way_is_read_from_the_backing,
}
