//! Tokens that can grow no more: above 2^53 scripts no longer count exactly. Nothing is granted there.

use std::time::Duration;

use crate::common::*;
use lockkeeper::Error;
use lockkeeper::store::{Mode, Release, Store};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

/// 2^53, and more than a number of Lua's can say.
const BEYOND: [&str; 3] = [
    "9007199254740992",
    "9007199254740993",
    "18446744073709551615",
];

fn is_spent<T: std::fmt::Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Refused { reason, .. }) => assert!(reason.contains("2^53"), "{reason}"),
        other => panic!("it should be refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_granted_above_a_foreign_token_that_is_too_high() {
    let server = RedisServer::start();
    for (dialect, key) in [
        ("redisson", "redisson_lock_token:{x}"),
        ("plain", "lockkeeper_token:{x}"),
    ] {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        for token in BEYOND {
            server.command(&["SET", key, token]);
            if token == BEYOND[1] {
                // Longer than fences are kept.
                server.command(&["EXPIRE", key, "31536000"]);
            }
            for reserve in [1, 1, 60] {
                let wish = claim("x", Mode::Exclusive).with_reserve(reserve);
                is_spent(store.try_acquire(&wish).await);
            }
            assert_eq!(server.keys(), [key], "nothing is left of it");
            assert_eq!(server.strings(&["GET", key]), [token], "nor moved");
            assert_eq!(server.strings(&["PTTL", key]), ["-1"], "nor forgotten");
            // Once it is put right, all goes on.
            server.command(&["SET", key, "1700000000000000"]);
            let next = claim("x", Mode::Exclusive);
            granted(&store, &next).await;
            assert_eq!(release(&store, &next).await, Ok(true));
        }
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_lets_go_and_who_waits_is_told() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let modes = [
        Mode::Exclusive,
        Mode::Fair,
        Mode::Read,
        Mode::Write,
        Mode::Permit { limit: 2, count: 1 },
    ];
    for mode in modes {
        let [held, next] = [(); 2].map(|()| waiting("x", mode));
        let blocks = waiting("x", Mode::Exclusive);
        granted(&store, &held).await;
        busy(&store, &blocks).await;
        server.command(&["SET", "redisson_lock_token:{x}", BEYOND[0]]);
        let release = Release::new(held.name.clone(), held.id).with_requeue(Some(next.clone()));
        let released = store.release(&release).await.expect("it lets go");
        assert!(released.was_held && released.regrant.is_none(), "{mode}");
        is_spent(store.try_acquire(&blocks).await);
        is_spent(store.try_acquire(&next).await);
        server.command(&["SET", "redisson_lock_token:{x}", "1700000000000000"]);
        granted(&store, &blocks).await;
        for claim in [&blocks, &next] {
            store
                .withdraw(&claim.name, claim.id)
                .await
                .expect("withdrawn");
        }
        assert_eq!(server.keys(), ["redisson_lock_token:{x}"], "{mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_granted_by_a_clock_that_is_centuries_ahead() {
    let wall = WallClock::new();
    // The year 2256.
    wall.stand_at(Duration::from_secs(9_025_000_000));
    let server = RedisServer::start_with(RedisOptions {
        environment: wall.environment(),
        ..RedisOptions::default()
    });
    for dialect in ["redisson", "plain"] {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        is_spent(store.try_acquire(&claim("x", Mode::Exclusive)).await);
        assert_eq!(server.keys(), Vec::<String>::new());
        // Nor is anything done to a fence that is right.
        let fence = match dialect {
            "redisson" => "redisson_lock_token:{x}",
            _ => "lockkeeper_token:{x}",
        };
        server.command(&["SET", fence, "1700000000000000", "EX", "31536000"]);
        is_spent(store.try_acquire(&claim("x", Mode::Exclusive)).await);
        assert_eq!(server.strings(&["GET", fence]), ["1700000000000000"]);
        assert_eq!(server.strings(&["TTL", fence]), ["31536000"]);
        server.command(&["DEL", fence]);
    }
}
