//! Direct grants: a release tells the next in line what it holds, so that it need not ask.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{
    Attempt, Claim, DirectGrant, GRANT_LEASE, Mode, Release, Renewal, Renewed, Store, Subscription,
};
use lockkeeper::{Error, Guard, HandOff, Lock, Lockkeeper, LossCause, ReleaseOutcome};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::retries;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::common::*;

/// Why a test is done again: what it shows has to happen within the short lease of a direct grant.
const TOO_SLOW: &str = "the machine was too slow for a direct grant";
const SOON: Duration = Duration::from_secs(20);
const HOLDERS: &str = "lockkeeper_holders:{busy}";
const TOKEN: &str = "redisson_lock_token:{busy}";
/// Far from both the grant's lease and the whole one.
const WHOLE: Duration = Duration::from_secs(20);

/// What the next hint brings.
async fn hinted(subscription: &Subscription) -> Option<DirectGrant> {
    let hint = tokio::time::timeout(SOON, subscription.hint()).await;
    hint.expect("a hint");
    subscription.granted()
}

/// How long a key stays; not at all if there is none.
fn left(server: &RedisServer, key: &str) -> Duration {
    let left: i64 = server.strings(&["PTTL", key])[0].parse().expect("ms");
    Duration::from_millis(left.max(0).unsigned_abs())
}

async fn renew(store: &RedisStore, claim: &Claim) -> Renewed {
    let renewal = Renewal::new(
        claim.name.clone(),
        claim.id,
        claim.lease,
        Moment::now() + claim.lease,
    );
    store.renew(&[renewal]).await.expect("renews")[0]
}

async fn keeper(url: &str) -> Lockkeeper {
    let builder = Lockkeeper::builder().url(url).hand_off(HandOff::OFF);
    builder.connect().await.expect("connects")
}

fn busy_lock(keeper: &Lockkeeper) -> Lock {
    keeper.lock("busy").expect("a name")
}

async fn waits(server: &RedisServer, count: usize) {
    until("it waits", async || {
        server.strings(&["ZCARD", "lockkeeper_queue:{busy}"]) == [count.to_string()]
    })
    .await;
}

/// Held by one keeper, and then by another that waited for it.
async fn passed_on(server: &RedisServer, from: &Lockkeeper, to: &Lockkeeper) -> Guard {
    let held = busy_lock(from).acquire().await.expect("acquires");
    let lock = busy_lock(to);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    waits(server, 1).await;
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    waiter.await.expect("finishes").expect("acquires")
}

async fn only_tokens_are_left(server: &RedisServer) {
    until("only tokens are left", async || server.keys() == [TOKEN]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hint_brings_the_tokens_and_when_the_claim_asked() {
    let server = RedisServer::start();
    // The short way; the long one, as after a withdrawal; and that with a fence that is ahead of the clock.
    for way in ["short", "long", "ahead"] {
        // On a machine that stands still for most of a second the grant lapses, or the clock gets past the fence.
        for round in 1.. {
            if is_told(&server, way).await {
                break;
            }
            assert!(round < 10, "{way}");
            retries::count(TOO_SLOW);
        }
    }
}

/// `false`: it took so long that it proves nothing.
async fn is_told(server: &RedisServer, way: &str) -> bool {
    let (one, two) = (open(&server.url()).await, open(&server.url()).await);
    server.command(&["FLUSHALL"]);
    let held = claim("busy", Mode::Exclusive);
    let last = granted(&one, &held).await.token;
    let mut wish = waiting("busy", Mode::Exclusive);
    wish.reserve = 5;
    let subscription = subscribe(&two, &wish).await;
    busy(&two, &wish).await;
    // The last time it asked counts.
    let before = Moment::now();
    busy(&two, &wish).await;
    let after = Moment::now();
    if way == "ahead" {
        let ahead = server_micros(server) + 800_000;
        server.command(&["SET", TOKEN, &ahead.to_string()]);
    }
    match way {
        "short" => assert_eq!(release(&one, &held).await, Ok(true)),
        _ => one.withdraw(&held.name, held.id).await.expect("withdraws"),
    }
    let direct = hinted(&subscription).await.expect("a grant");
    let in_the_hash = server.strings(&["EXISTS", HOLDERS]) == ["0"];
    let short = left(server, "busy");
    // A renewal confirms it, wherever its record is.
    let renewed = renew(&two, &wish).await;
    if Moment::now().since(after) > Duration::from_millis(700) {
        return false;
    }
    assert!(before <= direct.sent && direct.sent <= after, "{way}");
    assert!(direct.grant.token > last && direct.grant.tokens == 5);
    assert_eq!(subscription.granted(), None, "taken once");
    assert_eq!(in_the_hash, way != "ahead");
    assert!(short <= GRANT_LEASE, "{way}");
    assert_eq!(renewed, Renewed::Renewed);
    assert!(left(server, "busy") > WHOLE, "{way}");
    assert!(in_the_hash || left(server, HOLDERS) > WHOLE, "{way}");
    assert_eq!(granted(&two, &wish).await, direct.grant, "the same, asked");
    assert_eq!(release(&two, &wish).await, Ok(true));
    assert_eq!(renew(&two, &wish).await, Renewed::NotHeld, "late");
    assert_eq!(server.keys(), [TOKEN]);
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_release_queued_is_granted_in_the_same_way() {
    let server = RedisServer::start();
    let (one, two) = (open(&server.url()).await, open(&server.url()).await);
    let (held, wish) = (
        claim("busy", Mode::Exclusive),
        waiting("busy", Mode::Exclusive),
    );
    granted(&one, &held).await;
    busy(&two, &wish).await;
    let next = waiting("busy", Mode::Exclusive);
    let subscription = subscribe(&one, &next).await;
    let before = Moment::now();
    let requeue = Release::new(held.name.clone(), held.id).with_requeue(Some(next.clone()));
    let released = one.release(&requeue).await.expect("releases");
    assert!(released.was_held && released.regrant.is_none());
    let after = Moment::now();
    assert_eq!(release(&two, &wish).await, Ok(true), "it was not confirmed");
    let direct = hinted(&subscription).await.expect("a grant");
    assert!(before <= direct.sent && direct.sent <= after);
    assert_eq!(granted(&one, &next).await, direct.grant);
    assert_eq!(release(&one, &next).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_but_exclusive_claims_are_told_to_ask() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let permits = Mode::Permit { limit: 1, count: 1 };
    for mode in [Mode::Fair, Mode::Read, Mode::Write, permits] {
        let held = claim("busy", Mode::Exclusive);
        granted(&store, &held).await;
        let wish = waiting("busy", mode);
        let subscription = subscribe(&store, &wish).await;
        busy(&store, &wish).await;
        assert_eq!(release(&store, &held).await, Ok(true));
        assert_eq!(hinted(&subscription).await, None, "{mode}");
        granted(&store, &wish).await;
        assert_eq!(release(&store, &wish).await, Ok(true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_grants_of_a_claim_the_second_counts() {
    let server = RedisServer::start();
    let (one, two) = (open(&server.url()).await, open(&server.url()).await);
    let (held, wish) = (
        claim("busy", Mode::Exclusive),
        waiting("busy", Mode::Exclusive),
    );
    granted(&one, &held).await;
    let subscription = subscribe(&two, &wish).await;
    busy(&two, &wish).await;
    let first = Moment::now();
    assert_eq!(release(&one, &held).await, Ok(true));
    // Nobody looks at the first, and so it lapses.
    let other = claim("busy", Mode::Exclusive);
    until("it lapsed", async || {
        matches!(one.try_acquire(&other).await, Ok(Attempt::Granted(_)))
    })
    .await;
    busy(&two, &wish).await;
    assert_eq!(release(&one, &other).await, Ok(true));
    until("the second came", async || {
        let direct = subscription.granted();
        direct.is_some_and(|direct| direct.sent > first)
    })
    .await;
    assert_eq!(release(&two, &wish).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_costs_one_request() {
    const ROUNDS: u64 = 100;
    let server = RedisServer::start();
    let keepers = [keeper(&server.url()).await, keeper(&server.url()).await];
    let calls = || server.calls_of("evalsha") + server.calls_of("eval");
    let before = calls();
    let mut running = tokio::task::JoinSet::new();
    for keeper in &keepers {
        for _ in 0..4 {
            let lock = busy_lock(keeper);
            running.spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().await.expect("acquires");
                    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
                }
            });
        }
    }
    while let Some(done) = running.join_next().await {
        done.expect("no panic");
    }
    let (calls, turns) = (calls() - before, 8 * ROUNDS);
    // And once in a while a waiter asks by itself, or the last of a process finds nobody waiting.
    assert!(calls < turns * 3 / 2, "{calls} requests for {turns} turns");
    only_tokens_are_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_keeps_it_has_the_whole_lease_soon() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server.url()).await, keeper(&server.url()).await);
    // On a machine that stands still for most of a second it is asked for, or lost.
    let mut renewed = false;
    for _ in 0..10 {
        let guard = passed_on(&server, &one, &two).await;
        let (token, is_short) = (guard.token(), guard.deadline().remaining() <= GRANT_LEASE);
        until("it is renewed", async || {
            !guard.is_held() || guard.is_held_for(WHOLE)
        })
        .await;
        if is_short && guard.is_held() {
            assert!(left(&server, "busy") > WHOLE);
            assert_eq!(guard.token(), token);
            assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
            renewed = true;
            break;
        }
        retries::count(TOO_SLOW);
    }
    assert!(renewed, "it never was a short one that was renewed");
    // A holder that cannot wait for that asks for more.
    let guard = passed_on(&server, &two, &one).await;
    guard
        .extend(Duration::from_secs(60))
        .await
        .expect("extends");
    assert!(guard.is_held_for(WHOLE));
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    only_tokens_are_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_broken_before_its_first_renewal_is_lost() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server.url()).await, keeper(&server.url()).await);
    let guard = passed_on(&server, &one, &two).await;
    one.break_lock("busy", "a test").await.expect("breaks");
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    lost.expect("told");
    let next = busy_lock(&one).acquire().await.expect("acquires");
    assert!(next.token() > guard.token());
    assert!(matches!(
        guard.release().await,
        Err(Error::Lost {
            cause: LossCause::Broken(_),
            ..
        })
    ));
    assert!(next.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_grant_at_worst_makes_a_waiter_ask() {
    let server = RedisServer::start();
    let (one, two) = (keeper(&server.url()).await, keeper(&server.url()).await);
    let held = busy_lock(&one).acquire().await.expect("acquires");
    let lock = busy_lock(&two);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    waits(&server, 1).await;
    let claim = server.strings(&["ZRANGE", "lockkeeper_queue:{busy}", "0", "0"]);
    let (claim, now) = (&claim[0], Moment::now());
    let later = (now + SOON).as_nanos();
    let earlier = (now - GRANT_LEASE).as_nanos();
    let messages = [
        String::new(),
        "busy".into(),
        " busy".into(),
        claim.clone(),
        format!("{claim} busy"),
        format!("{claim}/ busy"),
        format!("{claim}/7/1 busy"),
        format!("{claim}/7/9/1 busy"),
        format!("{claim}/7/1/-1 busy"),
        format!("{claim}/7/1/{later} busy"),
        format!("{claim}/7/1/{earlier} busy"),
        format!("{claim}/7/1/{}/ busy", now.as_nanos()),
        format!("{claim}/7/1/{} other", now.as_nanos()),
        format!("{claim}0/7/1/{} busy", now.as_nanos()),
        format!("! {claim}"),
        "\u{fffd}/7/1/1 busy".into(),
    ];
    let channels = server.strings(&["PUBSUB", "CHANNELS", "lockkeeper_wake:*"]);
    for message in &messages {
        for channel in &channels {
            server.command(&["PUBLISH", channel, message]);
        }
    }
    // It asks, and is told to wait.
    let waiter_of = || server.command(&["HGET", "lockkeeper_waiters:{busy}", claim]);
    let then = waiter_of();
    until("it has asked", async || waiter_of() != then).await;
    assert!(!waiter.is_finished() && held.is_held());
    waits(&server, 1).await;
    let last = held.token();
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let guard = waiter.await.expect("finishes").expect("acquires");
    assert!(guard.token() > last && guard.is_held());
}

/// As if the process were stopped, or its network silent, from before the grant until after its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_late_is_not_believed() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let far = format!("redis://127.0.0.1:{}?response_timeout=10s", proxy.port());
    let (one, two) = (keeper(&server.url()).await, keeper(&far).await);
    let held = busy_lock(&one).acquire().await.expect("acquires");
    let lock = busy_lock(&two);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    waits(&server, 1).await;
    proxy.requests(Way::Held);
    proxy.replies(Way::Held);
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let other = tokio::time::timeout(SOON, busy_lock(&one).acquire()).await;
    let other = other.expect("it lapses").expect("acquires");
    assert!(!waiter.is_finished());
    proxy.heal();
    // The old grant is there by then.
    waits(&server, 1).await;
    assert!(!waiter.is_finished() && other.is_held());
    let last = other.token();
    assert_eq!(other.release().await, Ok(ReleaseOutcome::Released));
    let guard = waiter.await.expect("finishes").expect("acquires");
    assert!(guard.token() > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_message_was_lost_is_asked_for() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let far = format!("redis://127.0.0.1:{}", proxy.port());
    let (one, two) = (keeper(&server.url()).await, keeper(&far).await);
    let held = busy_lock(&one).acquire().await.expect("acquires");
    let lock = busy_lock(&two);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    waits(&server, 1).await;
    proxy.replies(Way::Held);
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    // Dies with its connection; the next finds out who holds.
    proxy.cut();
    proxy.heal();
    let guard = tokio::time::timeout(SOON, waiter).await.expect("in time");
    let guard = guard.expect("finishes").expect("acquires");
    assert!(guard.is_held());
    assert_eq!(guard.release().await, Ok(ReleaseOutcome::Released));
    only_tokens_are_left(&server).await;
}

/// Waiters give up, are dropped, and their keepers close, as the grant is on its way to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_as_the_grant_comes_leaves_nothing_behind() {
    let server = RedisServer::start();
    let one = keeper(&server.url()).await;
    for round in 0..60 {
        let two = keeper(&server.url()).await;
        let held = busy_lock(&one).acquire().await.expect("acquires");
        let lock = busy_lock(&two);
        let waiter = tokio::spawn(async move {
            match round % 3 {
                0 => lock.acquire_within(Duration::from_millis(20)).await,
                _ => lock.acquire().await.map(Some),
            }
        });
        if round % 3 != 0 {
            waits(&server, 1).await;
        }
        let pause = Duration::from_micros(19_000 * u64::from(round % 3 == 0) + 100 * round % 2_000);
        let released = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            held.release().await
        });
        tokio::time::sleep(Duration::from_micros(500)).await;
        match round % 3 {
            0 => {}
            1 => waiter.abort(),
            _ => two.close().await,
        }
        assert_eq!(
            released.await.expect("finishes"),
            Ok(ReleaseOutcome::Released)
        );
        // Whatever became of it, the next is not kept waiting for a lease, nor even for a grant's.
        if let Ok(Ok(guard)) = waiter.await {
            drop(guard);
        }
        let next = busy_lock(&one).acquire_within(WHOLE).await;
        drop(next.expect("works").expect("it is free"));
    }
    only_tokens_are_left(&server).await;
}

fn taker(server: &RedisServer) -> Taker {
    let url = server.url();
    let arguments = ["hold", "--store", &url, "--name", "busy", "--lease", "30s"];
    Taker::start(env!("CARGO_BIN_EXE_lock-taker"), &arguments).expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_killed_with_its_grant_costs_the_others_no_lease() {
    let server = RedisServer::start();
    let one = keeper(&server.url()).await;
    let held = busy_lock(&one).acquire().await.expect("acquires");
    let mut victim = taker(&server);
    waits(&server, 1).await;
    // It is made the holder while it stands, and dies without a word.
    victim.stop().expect("stops");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    victim.kill().expect("is killed");
    let next = busy_lock(&one).acquire_within(WHOLE).await;
    drop(next.expect("works").expect("in time"));
    // And after it has seen its grant; unless it was so slow that it has renewed it.
    for _ in 0..10 {
        let held = busy_lock(&one).acquire().await.expect("acquires");
        let mut victim = taker(&server);
        waits(&server, 1).await;
        assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
        victim.expect("held");
        victim.kill().expect("is killed");
        if left(&server, "busy") <= GRANT_LEASE {
            let next = busy_lock(&one).acquire_within(WHOLE).await;
            drop(next.expect("works").expect("in time"));
            return;
        }
        one.break_lock("busy", "renewed").await.expect("breaks");
        retries::count(TOO_SLOW);
    }
    panic!("it always lived for long enough to renew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_stopped_with_its_grant_does_not_believe_in_it() {
    let server = RedisServer::start();
    let one = keeper(&server.url()).await;
    let held = busy_lock(&one).acquire().await.expect("acquires");
    let victim = taker(&server);
    waits(&server, 1).await;
    victim.stop().expect("stops");
    assert_eq!(held.release().await, Ok(ReleaseOutcome::Released));
    let next = busy_lock(&one).acquire_within(WHOLE).await;
    let next = next.expect("works").expect("in time");
    victim.go_on().expect("goes on");
    // The grant is the first that it finds, and then it asks.
    waits(&server, 1).await;
    assert_eq!(victim.line_within(Duration::from_millis(100)), None);
    let last = next.token().get();
    assert_eq!(next.release().await, Ok(ReleaseOutcome::Released));
    let said = victim.expect("held");
    let token: u64 = said
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .expect("a token");
    assert!(token > last);
}
