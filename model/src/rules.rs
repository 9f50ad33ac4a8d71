//! The protocol's rules by name, each a switch, so that each can be removed and its counterexample seen.

/// One rule: its name, where it comes from, and the fault that it prevents.
pub struct Rule {
    /// Name of its field in [`Rules`].
    pub name: &'static str,
    /// What happens without it.
    pub prevents: &'static str,
    /// The rules without this one.
    pub removed: Rules,
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident: $prevents:literal;)+) => {
        /// Which rules hold.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Rules {
            $($(#[doc = $doc])+ pub $name: bool,)+
        }

        impl Rules {
            /// The protocol as it is: all rules hold.
            pub const ALL: Rules = Rules { $($name: true,)+ };
            /// Every rule, in the order of declaration.
            pub const LIST: &[Rule] = &[
                $(Rule { name: stringify!($name), prevents: $prevents, removed: Rules { $name: false, ..Rules::ALL } },)+
            ];
        }
    };
}

rules! {
    // Acknowledgement.
    /// A write is acknowledged only when every recorded member holds it; copies, backing and journal are grounds on top of that, never instead.
    ack_by_all_members: "a member that lacks an acknowledged write takes over";
    /// A member reports the position up to which it holds everything, not the highest that it has seen.
    held_is_a_prefix: "frames arrive out of order, and a hole counts as held";
    /// In a new term only what its owner has confirmed counts as held: the tails of two terms may differ at one position.
    tails_compared_by_term: "a record of a former term is taken for the one that was written over it";
    /// An answer counts only for the incarnation that gave it.
    answers_name_incarnations: "the answer of a log that is gone counts for the empty one in its place";
    /// A member leaves the record by a committed change before the next acknowledgement without it.
    drop_is_committed_first: "a dropped member that is still recorded takes over without the newest writes";
    /// While a change of members is undecided, everybody counts who is a member before or after it.
    both_member_sets_count: "a recruit is recorded between its proposal and the answer, and lacks what was acknowledged meanwhile";
    /// A range that a former owner may still write is not durable by having been written to the backing.
    pinned_is_not_durable: "a write that only the backing holds is overwritten by a late one";
    /// A read that would return a write which some member does not hold waits until all do, whether it is acknowledged then or not (A8).
    open_writes_are_not_read: "a read shows a write that a take-over then loses";

    // The record.
    /// The coordinator applies a change only to the record that it was made from.
    record_is_compared: "two nodes own the volume in one term";
    /// A transaction whose answer is lost is undecided as long as the record reads as before: it may be applied later. It is sent again, never forgotten.
    unknown_stays_undecided: "a recruit that was given up is recorded later, and takes over without the newest writes";
    /// Whoever learns from the record, or from a refused transaction, that the term is over, stops at once.
    refused_steps_down: "a deposed owner forgets the member that it proposed, and acknowledges without it";
    /// Nothing is done on an undecided transaction as if it had been applied.
    unknown_is_not_done: "a node acts as owner or without a member although the record never said so";
    /// A learner is proposed as a member only when it holds everything acknowledged and knows the newest progress.
    learner_has_caught_up: "a learner that lacks acknowledged writes takes over";
    /// `clean` is set only when the backing has everything.
    clean_after_drain: "a node without the log takes over a volume whose newest writes are only in the log";
    /// `clean` is taken back by the change that makes an owner, before the next write.
    clean_ends_before_writing: "a second node takes over as if nothing had been written";
    /// Who takes over a clean volume begins with a new log, of a new incarnation, before it proposes.
    clean_begins_anew: "an old log is taken for that of the owner of a clean volume";

    // Take-over.
    /// Only a recorded member takes over, unless the record is clean.
    only_members_take_over: "a node that was dropped, or never caught up, serves an old state";
    /// A member is its incarnation: one that lost its log is none.
    incarnations_count: "an empty log takes over";
    /// A host that died may have lost what its log had not synced: with it ends the incarnation of a flash log as well.
    power_ends_incarnations: "a flash log without its unsynced end takes over";
    /// Whoever follows a term refuses all frames of older ones.
    older_terms_are_refused: "a former owner collects copies, and acknowledges what the new one does not have";
    /// A new owner serves when every recorded member follows it and has cut what is not in its log.
    sealed_before_serving: "a write that a take-over gave up comes back with the next one";
    /// A node that restarts takes part only as the record says, and owns the volume only in a new term.
    restart_is_a_take_over: "a restarted owner goes on by what it remembers, beside the next owner or beside its own late writes";
    /// Requests that a node has not executed when it loses the volume are discarded with their connection.
    sessions_end_with_ownership: "a request that the client repeated elsewhere is executed a second time, over a newer one";
    /// A node that cannot reach the backing serves nobody.
    custodian_serves_nobody: "a read needs the backing and cannot be answered";
    /// A custodian hands over to a member that reaches the backing.
    custodian_hands_over: "the volume stays without service although its backing is back";

    // Destage.
    /// A group goes to the backing only when every member holds it.
    group_is_held_first: "the backing has a write that the next owner does not know";
    /// No group before the one in front of it is durable.
    groups_go_in_order: "the backing is no crash image";
    /// No group before every member knows that the one in front of it is durable: so a member knows which may be in flight.
    members_know_progress: "a late write hits a range that nobody has pinned";
    /// A new owner pins the group that its predecessor may have in flight.
    open_group_is_pinned: "a late write of the former owner replaces a newer one in the backing";
    /// A new owner goes on with the pins that it was told as a member: they may stand for an owner before the last.
    pins_are_inherited: "after a second take-over a late write of the first owner replaces a newer one";
    /// Pinned ranges are read from the log.
    pinned_is_read_from_the_log: "a read returns what a late write has left in the backing";
    /// Pins end by evidence that the former owner writes no more, not by time.
    pins_end_by_evidence: "a late write hits after the pin has ended";
    /// A fence aborts what the former owner has queued, it does not only refuse what comes.
    fences_abort: "a write that was queued before the fence lands after the pin has ended";
    /// Pinned ranges are written again only when the group that was open has passed: its newest values, not older ones.
    open_group_passes_first: "the former owner had finished the group, and a write that only the backing holds is replaced by the one before";
    /// When pins end, their ranges are written again.
    pinned_is_written_again: "the backing keeps a late write";

    // Journal.
    /// A batch goes to the journal only when every recorded member holds it: the journal makes up for missing copies, never for a member.
    batch_is_held_first: "a slow member that does not reach the journal takes over without what only the journal has";
    /// A journal belongs to one term: batches of older terms count for nothing once a newer one has begun to write.
    journal_belongs_to_a_term: "a late batch of a former owner replaces the newer one";
    /// A batch is ground for an acknowledgement only if, after its sync, no newer term is found to have begun to write.
    journal_is_read_back: "a deposed owner acknowledges by a batch that no replay will look at";
    /// No group goes beyond the batch in the journal: it is replaced or erased first.
    journal_before_groups: "a replay takes the backing back";
}
