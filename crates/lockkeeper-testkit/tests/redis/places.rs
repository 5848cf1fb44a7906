//! Which waiters keep a place in line. The server's clock stands, so that a busy machine does not end anything.

use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Clock;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Claim, Mode, Store};
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

/// A server whose clock stands, and what moves it.
fn standing() -> (RedisServer, impl Fn(Duration)) {
    let (clock, wall) = (Clock::simulated(), WallClock::new());
    wall.stand_at(Duration::from_micros(clock.unix_micros()));
    let server = RedisServer::start_with(RedisOptions {
        environment: wall.environment(),
        ..RedisOptions::default()
    });
    let advance = move |by| {
        clock.advance(by);
        wall.stand_at(Duration::from_micros(clock.unix_micros()));
    };
    (server, advance)
}

async fn holds(store: &RedisStore, claim: &Claim) -> bool {
    let info = store.inspect(&claim.name).await.expect("answers");
    let info = info.expect("it is known");
    info.holders.iter().any(|holder| holder.claim == claim.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_for_a_moment_does_not_cost_the_place_in_line() {
    for mode in [Mode::Exclusive, Mode::Write, Mode::Fair] {
        let (server, _) = standing();
        let proxy = Proxy::to(server.port());
        let store = open(&server.url()).await;
        let shaky = open(&format!("redis://127.0.0.1:{}/0", proxy.port())).await;
        let [held, first, second, third] = [(); 4].map(|()| waiting("line", mode));
        granted(&store, &held).await;
        busy(&shaky, &first).await;
        busy(&store, &second).await;
        busy(&store, &third).await;
        proxy.refuse();
        until("it listens no more", async || {
            let channels = server.strings(&["PUBSUB", "CHANNELS", "lockkeeper_wake*"]);
            channels.len() == 1
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true));
        assert!(holds(&store, &second).await, "{mode}: nobody waits for it");
        proxy.heal();
        until("it is back", async || {
            shaky.inspect(&first.name).await.is_ok()
        })
        .await;
        busy(&shaky, &first).await;
        assert_eq!(release(&store, &second).await, Ok(true));
        assert!(
            holds(&store, &first).await,
            "{mode}: it asked before the third"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_granted_while_its_process_does_not_listen_leaves_the_line() {
    for mode in [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write] {
        let (server, _) = standing();
        let channels = || server.strings(&["PUBSUB", "CHANNELS", "lockkeeper_wake*"]);
        let store = open(&server.url()).await;
        let own = channels();
        let ears = open(&server.url()).await;
        let (held, wish) = (waiting("line", Mode::Exclusive), waiting("line", mode));
        granted(&store, &held).await;
        busy(&ears, &wish).await;
        // Only what listens goes, and comes back later. The claim is asked for all the while.
        let mut heard = channels();
        heard.retain(|channel| !own.contains(channel));
        drop(ears);
        until("nobody listens for it", async || channels() == own).await;
        assert_eq!(release(&store, &held).await, Ok(true));
        granted(&store, &wish).await;
        let _ears = server.listen(&heard[0]);
        assert_eq!(release(&store, &wish).await, Ok(true));
        let info = store.inspect(&wish.name).await.expect("answers");
        let info = info.expect("it is known");
        assert!(info.holders.is_empty(), "{mode}: {:?}", info.holders);
        assert_eq!(info.waiters, 0, "{mode}");
        let queue = server.strings(&["ZRANGE", "lockkeeper_queue:{line}", "0", "-1"]);
        assert!(queue.is_empty(), "{mode}: {queue:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_in_line_keep_nobody_waiting() {
    for mode in [Mode::Exclusive, Mode::Fair] {
        let (server, advance) = standing();
        let store = open(&server.url()).await;
        let dead = open(&server.url()).await;
        let held = waiting("line", mode);
        granted(&store, &held).await;
        for _ in 0..100 {
            busy(&dead, &waiting("line", mode)).await;
        }
        let last = waiting("line", mode);
        busy(&store, &last).await;
        drop(dead);
        until("it listens no more", async || {
            let channels = server.strings(&["PUBSUB", "CHANNELS", "lockkeeper_wake*"]);
            channels.len() == 1
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true));
        assert!(holds(&store, &last).await, "{mode}");
        assert_eq!(release(&store, &last).await, Ok(true));
        // Nor somebody who will not wait.
        let next = claim("line", mode);
        granted(&store, &next).await;
        assert_eq!(release(&store, &next).await, Ok(true));
        advance(Duration::from_secs(6));
        let info = store.inspect(&last.name).await.expect("answers");
        assert_eq!(info.expect("it is known").waiters, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_said_nothing_for_long_comes_back_at_the_end() {
    for mode in [Mode::Exclusive, Mode::Read, Mode::Fair] {
        let (server, advance) = standing();
        let store = open(&server.url()).await;
        let held = waiting("line", Mode::Exclusive);
        let [first, lapses, stays] = [(); 3].map(|()| waiting("line", mode));
        granted(&store, &held).await;
        busy(&store, &first).await;
        busy(&store, &lapses).await;
        advance(Duration::from_secs(3));
        busy(&store, &first).await;
        busy(&store, &stays).await;
        advance(Duration::from_secs(3));
        busy(&store, &lapses).await;
        assert_eq!(release(&store, &held).await, Ok(true));
        if mode == Mode::Read {
            // All of them, in the order of the line.
            let info = store.inspect(&held.name).await.expect("answers");
            let mut holders = info.expect("it is known").holders;
            holders.sort_by_key(|holder| holder.token);
            let ids: Vec<_> = holders.iter().map(|holder| holder.claim).collect();
            assert_eq!(ids, [first.id, stays.id, lapses.id]);
            continue;
        }
        assert!(holds(&store, &first).await);
        assert_eq!(release(&store, &first).await, Ok(true));
        assert!(
            holds(&store, &stays).await,
            "{mode}: it was there all the while"
        );
    }
}
