//! The list of cases: the one place where a case is named besides its own.

use lockkeeper::store::{Capabilities, Fencing, LeaseEnd, Wakeups};

use super::{Case, acquire, admin, api, breaks, field, hints, labels, latch, lease, modes, names};
use super::{permits, queue, release, renew, tokens, waiters};

/// Makes each conformance case a test of its own, in a module of the given name.
///
/// The second argument is a function without arguments that answers a future of a
/// [`Subject`](crate::conformance::Subject).
///
/// A third argument, `transport`, is for another way to a store whose rules another module tests: the other cases are
/// ignored there, and `cargo xtask nightly` runs them.
#[macro_export]
macro_rules! conformance_tests {
    ($module:ident, $make:expr) => {
        $crate::conformance_tests!($module, $make, whole);
    };
    ($module:ident, $make:expr, $part:ident) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $crate::__conformance_list!([$crate::__conformance_tests] $part $make);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($part:ident $make:expr; $($needs:ident $file:ident { $($case:ident $(: $mark:ident)?)* })*) => {
        $($(
            $crate::__conformance_test!($part $make; $case $($mark)?);
        )*)*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_test {
    (transport $make:expr; $case:ident) => {
        #[test]
        #[ignore = "not about the transport: `cargo xtask nightly` runs it"]
        fn $case() {
            $crate::conformance::run(stringify!($case), $make);
        }
    };
    ($part:ident $make:expr; $case:ident $(transport)?) => {
        #[test]
        fn $case() {
            $crate::conformance::run(stringify!($case), $make);
        }
    };
}

macro_rules! all_cases {
    ($part:ident $make:expr; $($needs:ident $file:ident { $($case:ident $(: $mark:ident)?)* })*) => {
        vec![$($(
            Case {
                name: stringify!($case),
                needs: needs::$needs,
                body: |subject| Box::pin($file::$case(subject)),
            },
        )*)*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_list {
    // A case that is marked `transport` also runs on every other way to a store, such as TLS or Sentinels: it depends
    // on how requests, responses and hints travel, or it uses a command that no other marked case does.
    ([$($with:tt)*] $part:ident $make:expr) => {
        $($with)*! { $part $make;
            nothing acquire {
                a_free_name_is_granted: transport
                a_held_name_is_busy_for_others
                the_same_claim_is_answered_the_same_tokens
                asking_again_prolongs_and_never_shortens
                a_late_request_does_nothing
                a_late_repeat_leaves_the_hold_alone
                an_expired_hold_goes_to_another
                withdrawing_lets_go_of_a_hold: transport
                withdrawing_what_is_not_there_changes_nothing
                one_name_does_not_disturb_another
                twenty_claimants_on_two_handles_exclude_each_other: transport
            }
            nothing release {
                a_release_frees_at_once
                a_repeated_release_says_not_held
                a_release_of_an_unknown_claim_changes_nothing
                a_delayed_release_does_not_touch_the_next_hold
                a_release_after_expiry_says_not_held
            }
            queue release {
                a_release_with_requeue_is_granted_again_when_alone
                a_release_with_requeue_goes_to_the_waiter_first: transport
                a_late_requeue_only_releases
                a_requeue_without_a_hold_changes_nothing
            }
            nothing renew {
                a_renewed_hold_outlives_its_lease
                a_renewal_never_shortens
                asking_whether_a_hold_goes_on_changes_nothing
                a_renewal_after_expiry_revives_nothing
                a_renewal_after_a_break_says_not_held
                a_renewal_of_an_unknown_claim_says_not_held
                a_batch_is_answered_in_its_order
                a_large_batch_is_answered_in_its_order: transport
                a_late_renewal_does_nothing
                a_renewal_just_before_its_end_counts
                each_renewal_of_a_batch_has_its_own_end
            }
            nothing lease {
                the_longest_lease_is_granted
                a_keeper_asks_for_no_longer_lease
                a_store_that_grants_is_ready
                a_store_says_where_it_is
            }
            bounded_lease lease {
                a_lease_longer_than_the_longest_is_refused
            }
            own_lease_end lease {
                a_lease_ends_without_its_handle
            }
            wakeups lease {
                a_grant_in_a_hint_says_how_long_it_lasts
            }
            queue queue {
                waiters_are_granted_first_come_first_served: transport
                a_newcomer_does_not_overtake
                trying_again_keeps_the_place
                a_busy_try_does_not_queue_unasked
                a_direct_grant_is_confirmed_by_its_claim
                an_unconfirmed_grant_lapses_to_the_next
                a_silent_waiter_leaves_the_queue
                a_waiter_that_keeps_trying_keeps_its_place
                withdrawing_leaves_the_queue
                withdrawing_an_unconfirmed_grant_passes_it_on
                an_expired_hold_goes_to_the_head_of_the_queue
                a_broken_lock_goes_to_the_head_of_the_queue
            }
            read_write modes {
                readers_share_and_a_writer_does_not
                a_writer_becomes_a_reader_without_letting_go
                standing_beside_a_foreign_hold_is_refused
            }
            queue_read_write modes {
                standing_beside_nothing_waits_its_turn
                a_waiting_writer_is_not_starved
                readers_behind_a_writer_are_granted_together: transport
                readers_do_not_pass_a_writer_in_the_queue
                becoming_a_reader_does_not_wait_in_the_queue
            }
            fair modes {
                fair_and_exclusive_claims_exclude_each_other: transport
            }
            permits permits {
                permits_add_up_to_the_limit
                the_smallest_limit_counts
                a_released_permit_is_free_at_once
                an_expired_permit_is_free
                permits_do_not_mix_with_locks
                permits_are_never_oversold_in_a_crowd
            }
            queue_permits permits {
                a_large_wish_is_not_starved
                freed_permits_go_to_all_who_fit
            }
            nothing tokens {
                tokens_grow_with_every_release
                tokens_grow_over_an_expiry
                tokens_grow_over_a_break
                reserved_runs_do_not_overlap
                tokens_grow_past_a_long_run
                names_have_tokens_of_their_own
            }
            clock_tokens tokens {
                tokens_are_at_least_the_wall_clock
            }
            read_write tokens {
                tokens_grow_across_modes
            }
            queue tokens {
                a_waiter_gets_the_run_it_asked_for
            }
            nothing admin {
                an_unknown_name_has_no_information
                asking_about_nothing_leaves_nothing
                a_holder_is_described
                a_free_name_remembers_its_last_token
                a_break_ends_the_hold_and_says_whose
                a_break_moves_the_fence
                a_break_keeps_its_reason
                a_break_of_a_free_name_ends_nothing
                a_break_that_ends_nothing_leaves_no_record
                a_list_has_what_is_held_in_order: transport
                a_prefix_is_taken_literally
                an_expired_hold_is_not_listed
            }
            queue admin {
                a_waited_for_name_is_listed
            }
            nothing breaks {
                a_late_break_does_nothing
                a_break_takes_any_token_of_the_run
                a_break_by_a_token_of_no_hold_does_nothing
                a_break_by_claim_ends_that_hold_alone
                a_named_break_of_a_free_name_does_nothing
                a_named_break_moves_the_fence
            }
            clock_tokens breaks {
                a_break_is_not_before_the_tokens_that_it_ends
            }
            queue breaks {
                a_named_break_passes_the_lock_on
            }
            read_write breaks {
                a_break_of_one_reader_leaves_the_others
                a_break_of_a_writer_leaves_the_reader_beside_it
            }
            permits breaks {
                a_break_of_one_permit_leaves_the_others
            }
            nothing labels {
                a_label_stands_beside_its_holder
                a_label_stays_as_long_as_the_hold
                odd_labels_are_kept_exactly: transport
                the_whole_lease_is_known
            }
            read_write labels {
                each_reader_has_its_own_label
            }
            permits labels {
                each_permit_has_its_own_label
            }
            queue labels {
                a_direct_grant_keeps_the_label
                a_requeued_claim_has_its_own_label
            }
            queue waiters {
                waiters_are_described_in_their_order: transport
                trying_again_keeps_place_label_and_time
                a_waiter_that_left_is_not_listed
                more_waiters_than_are_listed_are_counted
                a_list_counts_waiters_and_does_not_list_them
            }
            queue_read_write waiters {
                waiters_of_all_modes_are_listed
            }
            queue_permits waiters {
                a_waiter_for_permits_says_how_many
            }
            queue_fair waiters {
                fair_waiters_are_listed
            }
            latches latch {
                an_unset_latch_is_open
                a_latch_counts_down_to_open
                a_closed_latch_is_not_set_again
                counting_down_twice_with_one_id_counts_once
                an_opened_latch_can_be_set_again
                a_late_request_leaves_the_latch_alone
                a_latch_and_a_lock_of_one_name_are_apart
                a_crowd_counts_down_exactly
            }
            latch_hints latch {
                a_latch_hints_when_it_opens: transport
            }
            wakeups hints {
                a_hint_comes_to_whoever_is_granted: transport
                a_hint_goes_to_nobody_else
                a_hint_from_before_the_wait_counts
            }
            nothing hints {
                a_watched_name_hints_at_changes: transport
                a_break_hints_the_keeper_that_held: transport
                looking_hints_nobody
            }
            nothing names {
                a_name_that_is_refused_is_refused_at_once
                odd_names_work_exactly: transport
                similar_names_are_different_names
            }
            latches names {
                odd_latch_names_work_exactly
            }
            wakeups field {
                field_wakeup_lost_between_try_and_subscribe
            }
            nothing field {
                field_silent_reacquire_after_expiry
                field_cancelled_acquire_leaves_a_stuck_lock
                field_cancelled_release_leaves_a_stuck_lock
                field_cancelled_request_poisons_other_locks: transport
                field_token_restarts_when_the_record_is_deleted
                field_two_claims_of_one_keeper_both_hold
                field_unlock_says_nothing
                field_crashed_holder_keeps_the_lock
            }
            queue field {
                field_granted_after_its_queue_entry_expired
            }
            read_write field {
                field_crashed_reader_blocks_writers
            }
            nothing api {
                field_dropped_guard_keeps_the_lock
                a_dropped_lock_can_be_tried_at_once
                field_cancelled_acquire_through_the_api
                field_acquire_loops_for_ever_on_an_error
                field_two_locks_in_opposite_order_deadlock
                field_unlock_tells_what_became_of_it
                field_loss_is_told_before_the_lease_ends
                tasks_of_two_keepers_exclude_each_other: transport
            }
            read_write api {
                readers_and_writers_of_two_keepers_exclude_each_other: transport
            }
            permits api {
                permits_of_two_keepers_are_never_oversold: transport
            }
            latches api {
                a_latch_opens_for_whoever_waits_elsewhere: transport
            }
        }
    };
}

pub(super) fn all() -> Vec<Case> {
    crate::__conformance_list!([all_cases] whole())
}

/// What a group of cases asks of a store.
mod needs {
    use super::*;

    pub fn nothing(_: &Capabilities) -> bool {
        true
    }
    pub fn queue(c: &Capabilities) -> bool {
        c.queue
    }
    pub fn fair(c: &Capabilities) -> bool {
        c.fair
    }
    pub fn read_write(c: &Capabilities) -> bool {
        c.read_write
    }
    pub fn queue_fair(c: &Capabilities) -> bool {
        c.queue && c.fair
    }
    pub fn queue_read_write(c: &Capabilities) -> bool {
        c.queue && c.read_write
    }
    pub fn permits(c: &Capabilities) -> bool {
        c.permits
    }
    pub fn queue_permits(c: &Capabilities) -> bool {
        c.queue && c.permits
    }
    pub fn latches(c: &Capabilities) -> bool {
        c.latches
    }
    pub fn wakeups(c: &Capabilities) -> bool {
        c.queue && c.wakeups == Wakeups::Direct
    }
    pub fn latch_hints(c: &Capabilities) -> bool {
        c.latches && c.wakeups == Wakeups::Direct
    }
    pub fn bounded_lease(c: &Capabilities) -> bool {
        c.longest_lease < lockkeeper::MAX_LEASE
    }
    pub fn own_lease_end(c: &Capabilities) -> bool {
        c.lease_end == LeaseEnd::ByItself
    }
    pub fn clock_tokens(c: &Capabilities) -> bool {
        c.fencing == Fencing::DataOrClock
    }
}
