//! Tokens are the server's time, if that is above the fence.

use std::time::Duration;

use crate::common::*;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::redis::RedisServer;

/// Token keys that stay, and token keys that end.
const FENCES: [(&str, &str); 4] = [
    ("redisson", "redisson_lock_token:{n}"),
    ("redisson&token_retention=30d", "redisson_lock_token:{n}"),
    ("plain", "lockkeeper_token:{n}"),
    ("plain&token_retention=forever", "lockkeeper_token:{n}"),
];

async fn pair(store: &RedisStore) -> u64 {
    let claim = claim("n", Mode::Exclusive);
    let grant = granted(store, &claim).await;
    assert_eq!(grant.tokens, 1);
    let shown = store.inspect(&claim.name).await.expect("looks");
    let shown = shown.expect("is held");
    assert_eq!(shown.holders[0].token, Some(grant.token));
    assert_eq!(shown.last_token, Some(grant.token));
    assert_eq!(release(store, &claim).await, Ok(true));
    grant.token.get()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_the_servers_time_and_grow() {
    let server = RedisServer::start();
    for (dialect, fence) in FENCES {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        let mut last = pair(&store).await;
        for _ in 0..50 {
            let before = server_micros(&server);
            let token = pair(&store).await;
            let after = server_micros(&server);
            assert!(token > last, "{dialect}: {token} after {last}");
            assert!(
                (before..=after).contains(&token),
                "{dialect}: {before} {token} {after}"
            );
            assert_eq!(server.strings(&["GET", fence]), [token.to_string()]);
            last = token;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_above_a_fence_that_is_ahead_of_the_clock() {
    let server = RedisServer::start();
    for (dialect, fence) in FENCES {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        let first = pair(&store).await;
        // As after the clock was set back, by a little and by centuries.
        for ahead in [first + 600_000_000, 9_000_000_000_000_000] {
            server.command(&["SET", fence, &ahead.to_string()]);
            assert_eq!(pair(&store).await, ahead + 1, "{dialect}");
            assert_eq!(pair(&store).await, ahead + 2, "{dialect}");
        }
        // As Redisson's clients count; as a text it would be more.
        server.command(&["SET", fence, "9"]);
        assert!(pair(&store).await > first, "{dialect}");
        server.command(&["DEL", fence]);
        assert!(pair(&store).await > first, "{dialect}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_again_answers_the_same_token() {
    let server = RedisServer::start();
    for (dialect, _) in FENCES {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        pair(&store).await;
        let ours = claim("n", Mode::Exclusive);
        let grant = granted(&store, &ours).await;
        assert_eq!(granted(&store, &ours).await, grant, "{dialect}");
        busy(&store, &claim("n", Mode::Exclusive)).await;
        assert_eq!(release(&store, &ours).await, Ok(true));
    }
}

/// The server has lost its data meanwhile, and with it the fence: only its clock tells what was granted before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_comes_late_gets_a_higher_token() {
    for (dialect, _) in FENCES {
        let server = RedisServer::start();
        let proxy = Proxy::to(server.port());
        let option = format!("?dialect={dialect}&response_timeout=10s");
        let near = open(&format!("{}{option}", server.url())).await;
        let far = format!("redis://127.0.0.1:{}{option}", proxy.port());
        let far = open(&far).await;
        pair(&far).await;
        proxy.requests(Way::Held);
        let late = tokio::spawn(async move {
            let claim = claim("n", Mode::Exclusive);
            granted(&far, &claim).await.token.get()
        });
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let last = pair(&near).await;
        server.command(&["FLUSHALL"]);
        proxy.heal();
        let token = late.await.expect("it is granted");
        assert!(token > last, "{dialect}: {token} after {last}");
    }
}

/// A fail-over to a server that has not heard of the last grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_waits_for_another_server_gets_a_higher_token() {
    for (dialect, _) in FENCES {
        let (first, second) = (RedisServer::start(), RedisServer::start());
        let proxy = Proxy::to(first.port());
        let option = format!("?dialect={dialect}&response_timeout=10s&connect_timeout=10s");
        let near = open(&format!("{}{option}", first.url())).await;
        let far = format!("redis://127.0.0.1:{}{option}", proxy.port());
        let far = open(&far).await;
        pair(&far).await;
        proxy.point_to(second.port());
        proxy.requests(Way::Held);
        proxy.cut();
        let stopped = proxy.stopped();
        until("it connects", async || proxy.stopped() > stopped).await;
        let waits = tokio::spawn(async move {
            // A connection may fail, and the next be waited for.
            loop {
                let attempt = far.try_acquire(&claim("n", Mode::Exclusive)).await;
                if let Ok(Attempt::Granted(grant)) = attempt {
                    return grant.token.get();
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let last = pair(&near).await;
        proxy.heal();
        let token = waits.await.expect("it is granted");
        assert!(token > last, "{dialect}: {token} after {last}");
    }
}

/// A fence that something else has taken the place of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_fails_midway_leaves_nothing() {
    let server = RedisServer::start();
    for (dialect, fence) in FENCES {
        let store = open(&format!("{}?dialect={dialect}", server.url())).await;
        pair(&store).await;
        server.command(&["DEL", fence]);
        server.command(&["RPUSH", fence, "somebody's"]);
        let failed = store.try_acquire(&claim("n", Mode::Exclusive)).await;
        let error = failed.expect_err("the fence is no number");
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(server.keys(), [fence], "{dialect}");
        server.command(&["DEL", fence]);
    }
}
