//! What went wrong elsewhere, row by row, and the tests that keep it out of the Redis store.
//!
//! `FIELD` are failures of other lock libraries, `REPORTED` what Redisson's users report, `UPSTREAM` what its own
//! tests do. A row without tests says why. A name that no test has is a failure, so the table cannot go stale.

use std::collections::BTreeSet;
use std::path::Path;

use lockkeeper::store::Store;
use lockkeeper_testkit::conformance::cases;
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::common::open;

enum Pinned {
    By(&'static [&'static str]),
    /// It does not apply, or not yet, and why.
    Not(&'static str),
}
use Pinned::{By, Not};

type Rows = &'static [(&'static str, Pinned)];

const QUORUM: &str = "a quorum of nodes is another store";

const FIELD: Rows = &[
    (
        "wake-up lost between try and subscribe",
        By(&[
            "field_wakeup_lost_between_try_and_subscribe",
            "a_cut_connection_is_made_again_and_waiters_go_on",
        ]),
    ),
    (
        "renewal dated from a stale start, or silent re-acquire after expiry",
        By(&[
            "field_silent_reacquire_after_expiry",
            "field_loss_is_told_before_the_lease_ends",
            "deadline_from_reply",
            "renew_recreates",
        ]),
    ),
    (
        "cancelled acquire or release leaves a stuck lock",
        By(&[
            "field_cancelled_acquire_leaves_a_stuck_lock",
            "field_cancelled_release_leaves_a_stuck_lock",
            "an_acquire_dropped_at_every_await_leaves_no_renewed_lock",
        ]),
    ),
    (
        "guard drop does nothing under tokio",
        By(&["field_dropped_guard_keeps_the_lock"]),
    ),
    (
        "acquire loops for ever on any error",
        By(&[
            "field_acquire_loops_for_ever_on_an_error",
            "a_server_that_is_down_is_an_error_in_bounded_time",
        ]),
    ),
    (
        "minority keys left behind after a failed round",
        Not(QUORUM),
    ),
    ("a quorum node restarts empty", Not(QUORUM)),
    (
        "fencing token restarts when the record is deleted",
        By(&[
            "field_token_restarts_when_the_record_is_deleted",
            "after_lost_data_the_holder_is_told_and_tokens_still_grow",
            "fence_restarts",
        ]),
    ),
    (
        "INCR on each node is not monotonic over a quorum",
        Not(QUORUM),
    ),
    (
        "lease expires while queued and the lock is granted all the same",
        By(&[
            "field_granted_after_its_queue_entry_expired",
            "pushed_from_arrival",
        ]),
    ),
    (
        "two guards on one session both acquire",
        By(&["field_two_claims_of_one_keeper_both_hold", "claim_reused"]),
    ),
    (
        "double hold after reconnect",
        By(&[
            "connections_black_holed_cut_and_refused",
            "server_killed_and_restarted_with_its_data",
        ]),
    ),
    (
        "sequence of ephemeral nodes rolls over",
        Not("the line is a list; tokens have 64 bits"),
    ),
    ("semaphore over a quorum is unsound", Not(QUORUM)),
    (
        "crashed reader blocks writers",
        By(&[
            "field_crashed_reader_blocks_writers",
            "a_zombie_reader_does_not_keep_a_writer_out",
        ]),
    ),
    (
        "broken pooled connection poisons other locks",
        By(&[
            "field_cancelled_request_poisons_other_locks",
            "slow_and_cut_connections",
        ]),
    ),
    (
        "two-lock deadlock by order",
        By(&["field_two_locks_in_opposite_order_deadlock"]),
    ),
    (
        "unlock returns false with no error",
        By(&[
            "field_unlock_says_nothing",
            "field_unlock_tells_what_became_of_it",
        ]),
    ),
    (
        "crashed holder keeps the lock for a minute",
        By(&["field_crashed_holder_keeps_the_lock", "holders_killed"]),
    ),
];

const REPORTED: Rows = &[
    (
        "#6844 unlock of a lock that is not held",
        By(&[
            "field_unlock_tells_what_became_of_it",
            "a_lease_that_ends_goes_to_the_waiter_in_time",
        ]),
    ),
    (
        "#4698 nobody is told that renewal failed",
        By(&[
            "a_guard_is_lost_in_time_when_the_server_stops",
            "a_holder_cut_off_is_told_in_time_and_fenced_off",
        ]),
    ),
    (
        "#2515, #775 renewal stops after an error or a restart",
        By(&[
            "renewal_survives_errors_as_long_as_the_lease",
            "a_hold_survives_a_restart_with_its_data",
        ]),
    ),
    (
        "#6303 renewing many locks is slow",
        By(&[
            "hundreds_of_locks_are_renewed_in_few_requests",
            "a_large_batch_is_answered_in_its_order",
        ]),
    ),
    (
        "#4216 no subscription left to wait with",
        By(&[
            "a_thousand_names_are_waited_for_on_one_connection",
            "channels_that_the_acl_forbids_cost_time_and_not_the_lock",
        ]),
    ),
    (
        "#5761 unlock messages missed",
        By(&[
            "an_unlock_that_nobody_published_costs_a_bounded_delay",
            "a_cut_connection_is_made_again_and_waiters_go_on",
        ]),
    ),
    (
        "#2099, #3004 fair lock drifts or blocks",
        By(&[
            "scores_of_fair_waiters_do_not_drift",
            "a_dead_first_fair_waiter_is_passed_over",
            "a_fair_waiter_that_gives_up_leaves_no_entry",
        ]),
    ),
    (
        "#2669, #5256 fail-over loses the lock",
        By(&[
            "a_lock_that_no_replica_had_is_granted_again_and_the_fence_holds",
            "a_lock_that_its_replica_had_not_is_granted_again_and_the_fence_holds",
            "an_agreed_fail_over_loses_nothing",
        ]),
    ),
    (
        "#4706 no replica in sync after a fail-over",
        By(&[
            "the_master_is_killed_under_load",
            "with_a_stopped_replica_nothing_is_granted_and_nothing_left",
        ]),
    ),
    (
        "#6025 held twice after a time-out",
        By(&[
            "an_acquire_whose_answer_was_lost_is_taken_back",
            "replies_lost_after_the_server_did_it",
        ]),
    ),
    (
        "#3580 bound to a thread",
        By(&[
            "an_owner_re_enters_and_nobody_else_does",
            "owners_re_enter_and_others_do_not",
            "a_guard_dropped_on_a_plain_thread_releases",
        ]),
    ),
    (
        "#6832, #2575 memory and channels leak",
        By(&[
            "five_thousand_operations_leave_no_channel",
            "nothing_is_left_behind",
        ]),
    ),
    (
        "#3349 a cluster broadcasts every unlock",
        Not("sharded channels come with Cluster; each process has one channel, not each name"),
    ),
    (
        "#4462 permits of a crashed process",
        By(&[
            "an_expired_permit_is_free",
            "an_expired_permit_wakes_a_waiter",
        ]),
    ),
    (
        "#6510 token keys stay",
        By(&["a_lock_is_what_redisson_writes", "nothing_is_left_behind"]),
    ),
    (
        "#1458, #5379, #4796 zombie readers, unfair writers, upgrades",
        By(&[
            "a_zombie_reader_does_not_keep_a_writer_out",
            "a_waiting_writer_is_not_starved",
            "upgrading_fails_at_once",
            "a_writer_that_becomes_a_reader_lets_java_readers_in",
        ]),
    ),
    (
        "#4050 several locks deadlock",
        By(&[
            "field_two_locks_in_opposite_order_deadlock",
            "who_waits_for_a_stranger_lets_go_of_what_it_has",
        ]),
    ),
];

const UPSTREAM: Rows = &[
    (
        "mutual exclusion of 1, 16 and 100 clients",
        By(&["one_client_sixteen_clients_and_a_hundred_exclude_each_other"]),
    ),
    (
        "re-entry, hold count, foreign unlock, unlock after expiry",
        By(&[
            "an_owner_re_enters_and_nobody_else_does",
            "a_release_of_an_unknown_claim_changes_nothing",
            "a_release_after_expiry_says_not_held",
        ]),
    ),
    (
        "time-out of a try, hand-over at expiry, nested and stale leases",
        By(&[
            "waiting_at_most_three_seconds_takes_three_seconds",
            "a_lease_that_ends_goes_to_the_waiter_in_time",
            "entering_again_does_not_stretch_the_lease",
        ]),
    ),
    (
        "holder killed, holder alive for ten leases, nested locks and renewal",
        By(&[
            "holders_killed",
            "a_living_holder_keeps_it_for_ten_leases",
            "nested_locking_does_not_stop_a_later_renewal",
        ]),
    ),
    (
        "restart, server down, interrupted try",
        By(&[
            "after_a_restart_a_release_says_so_and_the_next_lock_is_renewed",
            "a_server_that_is_down_is_an_error_in_bounded_time",
            "an_acquire_dropped_at_every_await_leaves_no_renewed_lock",
        ]),
    ),
    (
        "5,000 operations, no channel left",
        By(&["five_thousand_operations_leave_no_channel"]),
    ),
    (
        "cluster, and a master stopped under Sentinel",
        By(&[
            "keepers_exclude_each_other_while_their_slot_moves_round",
            "a_master_that_only_slept_is_left_behind",
            "the_master_is_killed_under_load",
            "a_master_is_killed_under_load",
        ]),
    ),
    (
        "NameMapper",
        By(&["a_prefix_is_what_redisson_calls_a_name_mapper"]),
    ),
    (
        "fair: order, drift, dead first waiter, entry removed",
        By(&[
            "fair_waiters_of_many_keepers_are_served_in_order",
            "scores_of_fair_waiters_do_not_drift",
            "a_dead_first_fair_waiter_is_passed_over",
            "a_fair_waiter_that_gives_up_leaves_no_entry",
        ]),
    ),
    (
        "readers and writers: many readers, downgrade, leases, zombies, who holds, force",
        By(&[
            "readers_share_and_a_writer_does_not",
            "a_writer_becomes_a_reader_without_letting_go",
            "readers_with_different_leases_end_each_by_its_own",
            "a_zombie_reader_does_not_keep_a_writer_out",
            "who_reads_and_who_writes_is_told_and_can_be_broken",
        ]),
    ),
    (
        "second acquire without re-entry",
        By(&["without_an_owner_a_second_acquire_is_refused"]),
    ),
    (
        "tokens grow; ten contenders, one winner",
        By(&[
            "tokens_grow_with_every_release",
            "of_ten_contenders_one_wins_and_has_the_highest_token",
        ]),
    ),
    (
        "MultiLock over three servers",
        Not("a keeper has one store"),
    ),
    (
        "permits: wake, expiry, all or none, lease update",
        By(&[
            "an_expired_permit_wakes_a_waiter",
            "permits_are_taken_and_given_back_all_or_none",
            "permits_are_shared_with_java",
        ]),
    ),
    (
        "addPermits, negative permits, drain",
        Not("the number of permits is the semaphore's, not a counter to change"),
    ),
    (
        "latch: time-out, many waiters, delete, reset",
        By(&["a_latch_times_out_lets_all_go_and_can_be_set_again"]),
    ),
    (
        "listeners for expired and deleted",
        By(&[
            "a_broken_lock_is_lost_and_watched",
            "a_watched_name_hints_at_changes",
        ]),
    ),
    (
        "gap: Java and Rust, both directions",
        Not("played by their commands in `wire`; real clients have a suite of their own"),
    ),
    (
        "gap: replica lost between WAIT and promotion",
        By(&["a_lock_that_no_replica_had_is_granted_again_and_the_fence_holds"]),
    ),
    (
        "gap: ambiguous acquire",
        By(&[
            "an_acquire_whose_answer_was_lost_is_taken_back",
            "a_release_whose_answer_was_lost_is_in_doubt_and_done",
        ]),
    ),
    (
        "gap: clock skew",
        By(&[
            "clients_whose_clocks_are_wrong",
            "a_clock_set_back_keeps_every_rule",
            "a_clock_set_forward_lets_a_second_holder_in_and_tokens_still_grow",
        ]),
    ),
    (
        "gap: cancellation at each await",
        By(&[
            "an_acquire_dropped_at_every_await_leaves_no_renewed_lock",
            "field_cancelled_acquire_through_the_api",
        ]),
    ),
    (
        "gap: mixed kinds on one name",
        By(&[
            "kinds_on_one_name_exclude_each_other",
            "a_key_of_another_kind_is_refused_and_kept",
        ]),
    ),
    (
        "gap: contended try for a token",
        By(&["of_ten_contenders_one_wins_and_has_the_highest_token"]),
    ),
];

/// The tests in a folder's files, by the attribute above them.
fn tests_in(folder: &Path, found: &mut BTreeSet<String>) {
    for file in std::fs::read_dir(folder).expect("a folder") {
        let path = file.expect("a file").path();
        if path.is_dir() {
            tests_in(&path, found);
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("a source");
        let mut is_test = false;
        for line in source.lines() {
            let head = line.split('(').next().unwrap_or_default();
            is_test |= line == "#[test]" || line.starts_with("#[tokio::test");
            if let Some(name) = head.trim_start_matches("async ").strip_prefix("fn ")
                && std::mem::take(&mut is_test)
            {
                found.insert(name.to_owned());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_has_its_tests() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut tests = BTreeSet::new();
    for folder in [
        "lockkeeper-testkit/tests/redis",
        "lockkeeper-testkit/tests/redis_cluster",
        "lockkeeper-testkit/tests/redis_faults",
        // What the engine does is the same on every store.
        "lockkeeper/tests",
    ] {
        tests_in(&crates.join(folder), &mut tests);
    }
    let server = RedisServer::start();
    let capabilities = open(&server.url()).await.capabilities();
    tests.extend(cases(&capabilities).iter().map(|case| case.name.to_owned()));
    for (row, pinned) in FIELD.iter().chain(REPORTED).chain(UPSTREAM) {
        match pinned {
            By(names) => {
                assert!(!names.is_empty(), "{row}");
                for name in *names {
                    assert!(tests.contains(*name), "{row}: there is no test {name}");
                }
            }
            Not(why) => assert!(!why.is_empty(), "{row}"),
        }
    }
    // As many as were found there; a row is never dropped quietly.
    assert_eq!((FIELD.len(), REPORTED.len(), UPSTREAM.len()), (19, 17, 24));
}
