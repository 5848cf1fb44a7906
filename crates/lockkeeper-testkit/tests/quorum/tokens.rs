//! Token keys on the nodes: when they end, and that tokens grow all the same.

use std::time::Duration;

use crate::common::*;
use lockkeeper::store::quorum::protocol::{Ask, RoundId, Run, Terms, Vote};
use lockkeeper::store::quorum::trial::Trial;
use lockkeeper::store::{Attempt, Mode, Renewed, Store};
use lockkeeper::{Error, LossCause};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

const MINUTE: i64 = 60 * 1000;
const DAY: i64 = 24 * 60 * MINUTE;
/// How long they stay in the plain dialect by default, in ms.
const MONTH: i64 = 30 * DAY;
const PLAIN: &str = "lockkeeper_token:{n}";
const REDISSON: &str = "redisson_lock_token:{n}";
const PATIENT: &str = "120s&node_timeout=10s";

/// What is left of a key, in ms: -1 if it has no end, -2 if it is not there.
fn left(server: &RedisServer, key: &str) -> i64 {
    server.strings(&["PTTL", key])[0].parse().expect("a number")
}

/// Whether a token key has about a month, and as much more as its token is ahead of the server's clock. Nodes that have just
/// started want tokens that are.
fn has_a_month(server: &RedisServer, key: &str) -> bool {
    let lead = ahead(server, key).max(0);
    (MONTH + lead - MINUTE..=MONTH + lead + MINUTE).contains(&left(server, key))
}

/// How far the last token is ahead of the server's clock, in ms.
fn ahead(server: &RedisServer, key: &str) -> i64 {
    let token = server.strings(&["GET", key])[0].parse().unwrap_or(0_i64);
    (token - micros(server) as i64) / 1_000
}

fn micros(server: &RedisServer) -> u64 {
    let time = server.strings(&["TIME"]);
    let part = |at: usize| time[at].parse::<u64>().expect("a number");
    part(0) * 1_000_000 + part(1)
}

fn with_clock(clock: &WallClock) -> RedisOptions {
    RedisOptions {
        environment: clock.environment(),
        ..RedisOptions::default()
    }
}

#[tokio::test]
async fn plain_token_keys_end_thirty_days_after_their_last_use_and_redissons_stay() {
    let nodes = Independent::start(3);
    for (options, key, month) in [
        ("&dialect=plain", PLAIN, true),
        ("", REDISSON, false),
        ("&dialect=plain&token_retention=forever", PLAIN, false),
        ("&token_retention=30d", REDISSON, true),
    ] {
        let store = open(&nodes.url_at_once(&format!("{PATIENT}{options}"))).await;
        for server in nodes.servers() {
            server.command(&["DEL", key]);
        }
        let kept = |server: &RedisServer| match month {
            true => has_a_month(server, key),
            false => left(server, key) == -1,
        };
        let everywhere = async |what: &str| {
            until(&format!("{what} ({options})"), async || {
                nodes.servers().iter().all(kept)
            })
            .await;
        };
        for _ in 0..2 {
            let held = claim("n", Mode::Exclusive);
            assert!(is_granted(&store, &held).await);
            // Nodes that have just started may want a higher token than the majority did: a renewal brings it to them.
            until("all keep it", async || {
                assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
                nodes.count_key("n") == 3
            })
            .await;
            everywhere("granted").await;
            if month {
                // As on a node on which it was not used lately.
                for server in nodes.servers() {
                    server.command(&["PEXPIRE", key, &DAY.to_string()]);
                }
                assert_eq!(renew(&store, &held, LEASE).await, Ok(Renewed::Renewed));
                let pushed_out = |server: &RedisServer| left(server, key) > MONTH - MINUTE;
                assert!(nodes.servers().iter().filter(|s| pushed_out(s)).count() >= 2);
                for server in nodes.servers() {
                    server.command(&["PEXPIRE", key, &DAY.to_string()]);
                }
            }
            assert_eq!(release(&store, &held).await, Ok(true));
            until("all let go", async || nodes.count_key("n") == 0).await;
        }
    }
}

/// A node's key ended by its own clock. What comes late, or from a client whose clock is behind, must not bring a token that
/// is below the one it forgot.
#[tokio::test]
async fn a_node_whose_token_key_ended_takes_no_token_that_is_lower() {
    let (lease, gone) = (Duration::from_secs(30), Duration::from_secs(2 * 60 * 60));
    for (dialect, key) in [("plain", PLAIN), ("redisson", REDISSON)] {
        let clock = WallClock::new();
        let server = RedisServer::start_with(with_clock(&clock));
        let url = format!("{}?dialect={dialect}&token_retention=1h", server.url());
        let node = Trial::open(&url, "n", Terms::new(3, lease)).await;
        let node = node.expect("connects");
        let ask = |first| ask(first, lease);
        let last = micros(&server);
        let held = ask(last);
        assert_eq!(node.acquire(held).await, Ok(Vote::Yes));
        node.release(held.round, held.run).await.expect("lets go");
        clock.ahead(gone);
        until("its key ended", async || left(&server, key) == -2).await;
        let lower = node.acquire(ask(last - 60_000_000)).await;
        let Ok(Vote::Stale { last: wants, now }) = lower else {
            panic!("{dialect}: {lower:?}");
        };
        assert!(wants == now && now > last, "{dialect}: {wants}");
        // What it says it wants, it takes, also a little later.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(node.acquire(ask(wants + 1)).await, Ok(Vote::Yes));
    }
}

/// The clients' clocks are hours behind those of the nodes, and then the keys end on a majority.
#[tokio::test]
async fn old_tokens_are_refused_and_the_next_round_takes_the_nodes_time() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    for (dialect, key) in [("plain", PLAIN), ("redisson", REDISSON)] {
        let (clock, other) = (WallClock::new(), WallClock::new());
        clock.ahead(3 * HOUR);
        other.ahead(3 * HOUR);
        let clocks = [&clock, &clock, &other];
        let servers = clocks.map(|clock| RedisServer::start_with(with_clock(clock)));
        let nodes = Independent::of(servers);
        let options = format!("{PATIENT}&dialect={dialect}&token_retention=1h");
        let store = open(&nodes.url_at_once(&options)).await;
        let mut last = 0;
        for round in 0..4 {
            if round == 2 {
                let ended = |server: &RedisServer| left(server, key) == -2;
                let mut hours = 3;
                until("the keys ended on a majority", async || {
                    // What was taken back may still be on its way, and uses the keys.
                    hours += 2;
                    clock.ahead(hours * HOUR);
                    nodes.servers()[..2].iter().all(ended)
                })
                .await;
            }
            let before = micros(&nodes.servers()[0]);
            let held = claim("n", Mode::Exclusive);
            let Ok(Attempt::Granted(grant)) = store.try_acquire(&held).await else {
                panic!("{dialect}: not granted");
            };
            let token = grant.token.get();
            assert!(token > last && token >= before, "{token} after {last}");
            last = token;
            assert_eq!(release(&store, &held).await, Ok(true));
        }
    }
}

#[tokio::test]
async fn the_key_of_a_token_ahead_of_a_nodes_clock_stays_longer_by_that() {
    let clock = WallClock::new();
    // The clients' clocks are ahead; within what the nodes take.
    clock.behind(Duration::from_secs(100 * 60));
    let nodes = Independent::start_with(3, &with_clock(&clock));
    let store = open(&nodes.url_at_once("2h&node_timeout=10s&dialect=plain")).await;
    for _ in 0..2 {
        let held = claim("n", Mode::Exclusive);
        assert!(is_granted(&store, &held).await);
        until("the keys stay longer", async || {
            let mut servers = nodes.servers().iter();
            servers.all(|server| ahead(server, PLAIN) > 90 * MINUTE && has_a_month(server, PLAIN))
        })
        .await;
        assert_eq!(release(&store, &held).await, Ok(true));
    }
    // A vote that is refused does not shorten it.
    let lease = Duration::from_secs(2 * 60 * 60);
    let server = &nodes.servers()[0];
    let url = format!("{}?dialect=plain", server.url());
    let node = Trial::open(&url, "n", Terms::new(3, lease)).await;
    let node = node.expect("connects");
    let refused = node.acquire(ask(micros(server), lease)).await;
    assert!(matches!(refused, Ok(Vote::Stale { .. })), "{refused:?}");
    assert!(has_a_month(server, PLAIN));
}

/// Asks a node for a vote for one token.
fn ask(first: u64, lease: Duration) -> Ask {
    let claim = claim("n", Mode::Exclusive).id;
    Ask {
        round: RoundId { claim, number: 1 },
        mode: Mode::Exclusive,
        lease,
        run: Run { first, count: 1 },
        floor: 0,
        not_after: None,
        beside: None,
    }
}

/// Nodes that have just started want tokens that are ahead of their clocks, by up to the longest lease.
#[tokio::test]
async fn a_break_is_told_from_an_earlier_one_where_tokens_are_ahead_of_the_clock() {
    let nodes = Independent::start(3);
    for dialect in ["redisson", "plain"] {
        let options = format!("30s&node_timeout=10s&dialect={dialect}&prefix={dialect}:");
        let url = nodes.url_at_once(&options);
        let (one, two) = (keeper(&url).await, keeper(&url).await);
        let guard = one.lock("n").expect("a lock").acquire().await;
        let guard = guard.expect("acquires");
        two.break_lock("n", "stuck").await.expect("breaks");
        match guard.release().await {
            Err(Error::Lost {
                cause: LossCause::Broken(broken),
                ..
            }) => assert_eq!(broken.reason, "stuck"),
            other => panic!("{dialect}: it was broken, not {other:?}"),
        }
    }
}
