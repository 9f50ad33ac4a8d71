//! Planted bugs: each is one rule of the design left out, which the simulator must notice. Every one is off in a product build,
//! where the type has no fields.

macro_rules! rules {
    ($($(#[doc = $doc:literal])* $name:ident,)+) => {
        /// Planted bugs that the simulator must find.
        #[derive(Clone, Copy, Debug, Default)]
        #[allow(missing_docs)] // each name says which rule is broken
        pub struct Rules {
            $($(#[doc = $doc])* #[cfg(feature = "mutants")] pub $name: bool,)+
        }
    };
}

rules! {
    acknowledge_before_held,
    flush_without_sync,
    ignore_groups,
    next_group_before_checkpoint,
    repeat_unsynced_group,
    checkpoint_far_behind,
    repeat_any_group,
    release_without_backing_sync,
    retry_failed_sync,
    overlap_tier_syncs,
    fill_over_newer_write,
    overtake_same_block,
    overtake_deferred,
    await_superseded,
    supersede_across_groups,
    reuse_segment_early,
    forget_what_is_read,
    accept_torn_tail,
    destage_before_lock,
    forget_zeros,
    skip_edge_lock,
    reuse_without_erasing,
    keep_cut_off_batches,
    leave_half_full_untold,
    checkpoint_ahead_of_log,
    count_lost_writes,
    keep_cached_below,
    destage_under_hold,
    mark_unsynced_as_synced,
    grow_before_checkpoint,
    skip_check,
    apply_before_journal_sync,
    ordered_without_erasing,
    supersede_batched,
    retry_takes_less,
    overwrite_complete_batch,
    erase_newest_first,
    journal_unsynced_records,
    journal_over_unheld,
    forget_replay,
    trust_unsynced,
    merge_unchecked,
    copy_sectors_unchecked,
    merge_sectors_unchecked,
    acknowledge_by_completion,
    destage_unheld,
    retire_before_checkpoint,
    sync_again_only,
    serve_before_recovery_sync,
    one_checkpoint,
    believe_older_checkpoint,
    stop_at_bad_header,
    forget_marks,
    end_before_bad_head,
    reuse_frames_at_once,
    keep_zeroed_data,
    fua_is_no_barrier,
    go_on_in_recovered_group,
    skip_damaged_descriptors,
    bring_back_destaged,
    promise_through_early,
    // Between nodes: docs/protocol.md has the rules.
    /// A1: a write is acknowledged when the own tier holds it.
    acknowledge_before_members,
    /// A2: a flush is answered by the own medium.
    flush_by_own_sync,
    /// A2: a flush is answered for what is asked for, before the record says that it is no more.
    flush_for_less_than_recorded,
    /// A1: too few copies are enough.
    ignore_min_peers,
    /// C4: who is only proposed is not asked.
    ask_recorded_only,
    /// S1: a former owner is listened to.
    take_older_terms,
    /// S2: so is who means another incarnation.
    take_for_others,
    /// S3: an `Append` that begins later is taken.
    take_gaps,
    /// S4: a payload is taken unverified.
    trust_payload,
    /// S5: what is superseded goes before everybody holds it.
    free_uncommitted,
    /// S10: who has less than others have heard from it goes on.
    goes_on_in_former_state,
    /// S10: a member says to hold positions that nothing in its tier shows yet.
    tell_unrecorded,
    /// S9: a log that is longer than the tail goes on.
    keep_longer_tail,
    /// D1: what is not committed goes to the backing.
    destage_uncommitted,
    /// D3: the window grows before everybody has the mark.
    window_before_mark,
    /// D4: a member frees what is committed.
    free_before_mark,
    /// D7: the watermark is told at once.
    watermark_over_uncommitted,
    /// T9: an owner that steps down commits what it alone holds.
    commit_alone_at_the_end,
    /// T9: an owner that steps down waits for no erasure, summary or sync of its tier.
    rests_but_for_batches,
    /// T4: answered before everybody has the tail.
    answer_before_agreed,
    answer_before_synced,
    /// A8: a read shows what some member does not hold.
    show_uncommitted,
    /// L3: no look at the lease.
    read_without_lease,
    /// T5: nothing is pinned.
    forget_pins,
    /// T6: pins end with the proof, nothing is written again.
    end_pins_at_once,
    /// S6, A5: a proposal is covered from the beginning.
    cover_at_once,
    /// A5: what the backing completed and did not sync counts as being there, after a failed sync as well.
    through_unsynced,
    /// A1: too few copies matter to nobody who waits for the log since before writes had to wait for the backing.
    leaves_waiters_of_before,
    /// A4: a learner counts as a copy.
    count_learners,
    /// A5: logs stand for a write before the record says so.
    logs_stand_early,
    /// D2: no window.
    destage_outside_window,
    /// K2: what the owner's log covers stays in the cache of the former owner.
    keep_overwritten,
    /// K3: a former owner that is no member any more is asked.
    ask_who_left,
    /// K4: what the former owner sends is taken unverified.
    trust_cached,
    /// Liveness: no learner is ever proposed.
    keep_learners_waiting,
    /// A3: a peer that moves and keeps every write waiting stays.
    endure_slow_peers,
    /// Liveness: who waits for the backing for want of copies waits on for it when there are enough again.
    waits_on_for_backing,
    /// Liveness: a volume that is to become quiet for a member gives the backing nothing, whoever waits for that.
    quiesces_what_is_awaited,
    /// T6: a proof that comes when the volume was told to be quiet has pins written again.
    rewrites_when_quiet,
    /// Liveness: requests are held for a change of hands while what was under way before it is.
    holds_unsettled,
    /// Liveness: requests are held until the volume is quiet, however long that takes.
    holds_without_end,
    /// Liveness: a hold lasts although no trim finds a place any more.
    hold_forgets_ranges,
    /// Liveness: a hold lasts although the log is full and writes wait for room.
    hold_however_full,
    /// Liveness: pins stay after the proof.
    never_end_pins,
    /// What a request waited for room is no part of its time.
    time_from_admission,
    /// How long a failure took is counted with what went well.
    time_failures,
    /// A batch of writes counts as one.
    time_batches,
}
