//! Bugs planted in volume and ownership of every node of a cluster, each a rule of docs/protocol.md left out: each must be
//! caught within a bounded number of seeds. A mutant that survives means that a rule is tested by nothing.
//!
//! Rules that two places look at, or whose trouble is rare between whole nodes, are planted where that trouble is made on
//! purpose: those of the stream in core's own storms and stories (`core/tests/replicas/mutants.rs`), those of ownership in a
//! world of ownership by itself (`ownership_mutants.rs`).

use forebay_core::{ownership, volume};
use forebay_sim::families::{migrating, parted, restless, seeded};
use forebay_sim::mutants::is_caught;

/// One test for each planted bug: named as it is, caught by one of these seeds of such a world.
macro_rules! mutants {
    ($part:ident, $from:literal..$to:literal of $world:expr; $($rule:ident)*) => { $(
        #[test]
        fn $rule() {
            let planted = $part::Rules { $rule: true, ..$part::Rules::default() };
            is_caught(stringify!($rule), planted, $from..$to, $world);
        }
    )* };
}

mutants! { volume, 0..400 of seeded;
    acknowledge_before_members
    ask_recorded_only
    destage_outside_window
    flush_by_own_sync
    free_before_mark
    ignore_min_peers
    keep_learners_waiting
    logs_stand_early
    never_end_pins
    read_without_lease
    take_gaps
    trust_payload
}

mutants! { volume, 0..800 of seeded;
    window_before_mark
}

mutants! { ownership, 0..400 of seeded;
    adds_uncovered
    asks_old_set_only
    drops_uncommitted
    earlier_life_asks
    impatient
    outsiders_ask
    restart_goes_on
    through_uncovered
    unknown_is_won
}

mutants! { volume, 0..400 of restless;
    count_learners
    cover_at_once
    forget_pins
}

mutants! { volume, 0..8 of parted;
    show_uncommitted
}

mutants! { volume, 0..400 of restless;
    destage_uncommitted
}

mutants! { volume, 0..400 of migrating;
    keep_overwritten
}

mutants! { ownership, 0..400 of restless;
    endless_lease
    ends_pins_unproven
    forgets_former_owner
    hands_over_unquiet
    lease_of_latest
    rewrites_unlisted
    serves_while_handing_over
}

mutants! { ownership, 0..400 of restless;
    compares_with_the_winner
}

mutants! { ownership, 0..400 of restless;
    fenced_before_rewritten
}
