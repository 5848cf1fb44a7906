//! The plain dialect beside redis-py, redsync and redlock, on one server and on a quorum of three, in both directions.
//!
//! Run by `cargo xtask interop plain`, which installs the peers.

mod cases;
mod load;
mod peer;

/// Every case, for every peer.
macro_rules! with_every_peer {
    ($($case:ident)*) => {
        with_every_peer!(@redis_py Python 1 $($case)*);
        with_every_peer!(@redsync Go 1 $($case)*);
        with_every_peer!(@redlock Node 1 $($case)*);
        with_every_peer!(@redsync_over_a_quorum Go 3 $($case)*);
        with_every_peer!(@redlock_over_a_quorum Node 3 $($case)*);
    };
    (@$module:ident $kind:ident $nodes:literal $($case:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    use crate::peer::{Kind, Setting};
                    let kind = Kind::$kind;
                    crate::cases::$case(Setting { kind, nodes: $nodes }).await;
                }
            )*

            #[test]
            fn no_update_is_lost_under_load() {
                use crate::peer::Kind::{$kind, Ours};
                crate::load::no_update_is_lost($nodes, &[$kind, $kind, Ours, Ours]);
            }
        }
    };
}

with_every_peer! {
    ours_is_busy_and_waits_while_the_peer_holds
    the_peer_is_busy_and_waits_while_ours_holds
    the_peers_lease_ends
    our_lease_ends_and_we_do_not_free_the_peers_lock
    the_peer_extends_and_keeps_ours_out
    ours_extends_and_keeps_the_peer_out
    the_watchdog_keeps_the_peer_out
    a_late_peer_does_not_free_or_extend_our_lock
    a_killed_peers_lock_is_free_after_its_lease
    our_killed_process_lock_is_free_after_its_lease
    odd_names_are_the_same_lock
    a_peers_lock_is_shown_and_can_be_broken
}
