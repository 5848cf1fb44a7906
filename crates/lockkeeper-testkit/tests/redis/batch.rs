//! Many verbs at once share a script: each still has its own outcome.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Attempt, Claim, Mode, Renewed, Store};
use lockkeeper::{Error, Name};
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use tokio::task::JoinHandle;

pub type Try = JoinHandle<Result<Attempt, Error>>;

fn dialects(server: &RedisServer) -> [String; 2] {
    ["redisson", "plain"].map(|dialect| format!("{}?dialect={dialect}", server.url()))
}

/// Polls it once, so that it asks before this returns; the answer is waited for elsewhere.
async fn asked<T: Send + 'static>(
    request: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let mut request = Box::pin(request);
    let asked = poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
    tokio::spawn(async move {
        match asked {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => request.await,
        }
    })
}

async fn start(store: &Arc<RedisStore>, claim: &Claim) -> Try {
    let (store, claim) = (store.clone(), claim.clone());
    asked(async move { store.try_acquire(&claim).await }).await
}

/// Lets go of each on a server that does not answer for a moment, as [`together`] tries.
async fn let_go_together<'a>(
    server: &RedisServer,
    store: &Arc<RedisStore>,
    held: impl IntoIterator<Item = &'a Claim>,
) -> Vec<Result<bool, Error>> {
    server.pause();
    let mut asking = Vec::new();
    for one in held {
        let (store, one) = (store.clone(), one.clone());
        asking.push(asked(async move { release(&store, &one).await }).await);
    }
    server.resume();
    let mut outcomes = Vec::new();
    for one in asking {
        outcomes.push(one.await.expect("no panic"));
    }
    outcomes
}

/// Polls each once, and leaves it alone; returns when the server has done what they ask.
async fn ask_and_leave<F: Future + Unpin>(server: &RedisServer, asking: &mut [F], names: &[&str]) {
    server.pause();
    for one in asking {
        let asked = poll_fn(|context| Poll::Ready(Pin::new(&mut *one).poll(context))).await;
        assert!(asked.is_pending());
    }
    server.resume();
    until_held(server, names).await;
}

async fn until_held(server: &RedisServer, names: &[&str]) {
    let exist = [&["EXISTS"], names].concat();
    let all = format!(":{}\r\n", names.len());
    until("they are held", async || server.command(&exist) == all).await;
}

/// Tries each on a server that does not answer for a moment: they collect, and then go out together.
pub async fn together(server: &RedisServer, store: &Arc<RedisStore>, claims: &[Claim]) -> Vec<Try> {
    server.pause();
    let mut tries = Vec::new();
    for claim in claims {
        tries.push(start(store, claim).await);
    }
    tries
}

pub fn claims(prefix: &str, count: usize) -> Vec<Claim> {
    (0..count)
        .map(|number| claim(&format!("{prefix}:{number}"), Mode::Exclusive))
        .collect()
}

fn calls(server: &RedisServer) -> u64 {
    server.calls_of("evalsha") + server.calls_of("eval")
}

fn is_granted(outcome: &Result<Attempt, Error>) -> bool {
    matches!(outcome, Ok(Attempt::Granted(_)))
}

pub async fn all_are_granted(tries: Vec<Try>) {
    for outcome in tries {
        let outcome = outcome.await.expect("no panic");
        assert!(is_granted(&outcome), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_verbs_take_few_scripts() {
    let server = RedisServer::start();
    for url in dialects(&server) {
        // So many take a busy machine a while to ask, and the server is silent meanwhile.
        let url = format!("{url}&response_timeout=10s");
        let store = Arc::new(open(&url).await);
        let wishes = claims("many", 5_000);
        let before = calls(&server);
        let tries = together(&server, &store, &wishes).await;
        server.resume();
        all_are_granted(tries).await;
        let used = calls(&server) - before;
        assert!(used < 1_000, "5000 tries took {used} scripts");
        let releases: Vec<_> = wishes
            .into_iter()
            .map(|held| {
                let store = store.clone();
                tokio::spawn(async move { release(&store, &held).await })
            })
            .collect();
        for released in releases {
            assert_eq!(released.await.expect("no panic"), Ok(true));
        }
        // The scripts are there after a flush as well.
        server.command(&["SCRIPT", "FLUSH"]);
        let tries = together(&server, &store, &claims("many", 50)).await;
        server.resume();
        all_are_granted(tries).await;
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_one_is_its_own() {
    let server = RedisServer::start();
    // A fence that is no string: only the script of that name can find out.
    server.command(&["RPUSH", "redisson_lock_token:{one:20}", "x"]);
    server.command(&["RPUSH", "lockkeeper_token:{one:20}", "x"]);
    for url in dialects(&server) {
        let store = Arc::new(open(&url).await);
        let tries = together(&server, &store, &claims("one", 40)).await;
        server.resume();
        for (number, outcome) in tries.into_iter().enumerate() {
            let outcome = outcome.await.expect("no panic");
            if number == 20 {
                let error = outcome.expect_err("its fence is a list");
                assert!(matches!(error, Error::Refused { .. }), "{error:?}");
                assert!(error.to_string().contains("something else"), "{error}");
            } else {
                assert!(is_granted(&outcome), "{number}: {outcome:?}");
            }
        }
        server.command(&["DEL", "one:20"]);
        for number in (0..40).filter(|number| *number != 20) {
            server.command(&["DEL", &format!("one:{number}")]);
        }
    }
}

/// Plain tries and releases of one script share their calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_many_share_is_as_if_each_came_alone() {
    share("30d", "mget").await;
    share("forever", "mset").await;
}

/// With token keys that stay for so long; `verb` is what tries share.
async fn share(retention: &str, verb: &str) {
    let server = RedisServer::start();
    let option = format!("dialect=plain&token_retention={retention}");
    let store = Arc::new(open(&format!("{}?{option}", server.url())).await);
    let fence = |number: usize| format!("lockkeeper_token:{{as:{number}}}");
    let last = |number: usize| -> u64 {
        let last = server.strings(&["GET", &fence(number)]);
        last[0].parse().expect("a token")
    };
    let all = async |tries: Vec<Try>| {
        let mut outcomes = Vec::new();
        for one in tries {
            outcomes.push(one.await.expect("no panic"));
        }
        outcomes
    };
    let token = |outcome: &Result<Attempt, Error>| match outcome {
        Ok(Attempt::Granted(grant)) => grant.token.get(),
        other => panic!("{other:?}"),
    };
    // From now on every name has a fence, and the server's clock is known.
    let mut held = claims("as", 40);
    let tries = together(&server, &store, &held).await;
    server.resume();
    all_are_granted(tries).await;
    // Where the server answers late, nothing is shared.
    let mut shared = 0;
    for round in 0.. {
        if round >= 3 && shared > 0 {
            break;
        }
        assert!(round < 50, "nothing was shared");
        let before: Vec<u64> = (0..40).map(last).collect();
        // What releases see: a hold that is gone, one that is another's, and a key of another kind.
        server.command(&["DEL", "as:10"]);
        server.command(&["SET", "as:11", "another's"]);
        server.command(&["DEL", "as:12"]);
        server.command(&["RPUSH", "as:12", "x"]);
        let released = let_go_together(&server, &store, &held).await;
        for (number, released) in released.into_iter().enumerate() {
            match number {
                10 | 11 => assert_eq!(released, Ok(false), "{number}"),
                12 => assert!(released.is_err(), "{released:?}"),
                _ => assert_eq!(released, Ok(true), "{number}"),
            }
        }
        assert_eq!(server.strings(&["GET", "as:11"]), ["another's"]);
        server.command(&["DEL", "as:12"]);
        // What tries see: a name that is held, a fence that is ahead of the clock, and none at all.
        let ahead = before[20] + 3_600_000_000;
        server.command(&["SET", &fence(20), &ahead.to_string()]);
        server.command(&["DEL", &fence(21)]);
        let mut wishes = claims("as", 40);
        // And several for one name.
        wishes.extend((0..4).map(|_| claim("as:30", Mode::Exclusive)));
        shared = server.calls_of(verb);
        let tries = together(&server, &store, &wishes).await;
        server.resume();
        let outcomes = all(tries).await;
        shared = server.calls_of(verb) - shared;
        let winners = outcomes.iter().zip(&wishes);
        let winners = winners.filter(|(outcome, _)| is_granted(outcome));
        let (tokens, winners): (Vec<_>, Vec<_>) = winners
            .map(|(outcome, wish)| (token(outcome), wish.clone()))
            .unzip();
        assert_eq!(winners.len(), 39, "round {round}: {outcomes:?}");
        assert!(matches!(outcomes[11], Ok(Attempt::Busy { .. })));
        assert_eq!(token(&outcomes[20]), ahead + 1);
        for (token, winner) in tokens.iter().zip(&winners) {
            let number = winner.name.as_str()[3..]
                .parse::<usize>()
                .expect("a number");
            assert!(*token > before[number] || number == 21, "{number}");
            // The next holder is above it, whichever of them moved the fence.
            assert!(last(number) >= *token, "{number}: {token} {}", last(number));
            let value = server.strings(&["GET", winner.name.as_str()]);
            assert!(value[0].starts_with(&winner.id.to_string()), "{value:?}");
        }
        // The fence of the name that was held did not fall behind.
        assert!(last(11) >= before[11]);
        server.command(&["SET", &fence(20), &before[20].to_string()]);
        server.command(&["DEL", "as:11"]);
        held = claims("as", 40);
        for one in &held {
            if let Some(winner) = winners.iter().find(|winner| winner.name == one.name) {
                assert_eq!(release(&store, winner).await, Ok(true));
            }
            granted(&store, one).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_suffers_for_a_name_that_the_acl_forbids() {
    let server = RedisServer::start();
    server.command(&[
        "ACL", "SETUSER", "poor", "on", ">pw", "+@all", "&*", "~*app:*",
    ]);
    for dialect in ["redisson", "plain"] {
        let port = server.port();
        let url = format!("redis://poor:pw@127.0.0.1:{port}?dialect={dialect}");
        let store = Arc::new(open(&url).await);
        let mut wishes = claims("app", 40);
        wishes[20].name = Name::new("forbidden").expect("a name");
        let tries = together(&server, &store, &wishes).await;
        server.resume();
        for (number, outcome) in tries.into_iter().enumerate() {
            let outcome = outcome.await.expect("no panic");
            match number {
                20 => {
                    let error = outcome.expect_err("forbidden");
                    assert!(error.to_string().contains("ACL"), "{error}");
                }
                _ => assert!(is_granted(&outcome), "{number}: {outcome:?}"),
            }
        }
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_waiting_leaves_the_others_alone() {
    let server = RedisServer::start();
    for url in dialects(&server) {
        let store = Arc::new(open(&url).await);
        let wishes = claims("left", 80);
        let tries = together(&server, &store, &wishes).await;
        // Among them those that are under way already.
        for gone in tries.iter().step_by(2) {
            gone.abort();
        }
        until("they have gone", async || {
            tries.iter().step_by(2).all(|gone| gone.is_finished())
        })
        .await;
        server.resume();
        for (number, outcome) in tries.into_iter().enumerate() {
            match outcome.await {
                Ok(outcome) => assert!(is_granted(&outcome), "{number}: {outcome:?}"),
                Err(error) => assert!(error.is_cancelled() && number % 2 == 0),
            }
        }
        // The connection is as good as before.
        for held in wishes.iter().skip(1).step_by(2) {
            assert_eq!(release(&store, held).await, Ok(true));
        }
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_leaves_each_in_doubt_or_undone() {
    for dialect in ["redisson", "plain"] {
        let mut server = RedisServer::start_with(RedisOptions {
            durable: true,
            ..RedisOptions::default()
        });
        let url = format!("{}?dialect={dialect}&response_timeout=1s", server.url());
        let store = Arc::new(open(&url).await);
        let tries = together(&server, &store, &claims("dead", 80)).await;
        let before = Moment::now();
        server.kill();
        for outcome in tries {
            let outcome = outcome.await.expect("no panic");
            let error = outcome.expect_err("nobody answers");
            assert!(error.is_transient(), "{error:?}");
        }
        assert!(Moment::now().since(before) < Duration::from_secs(10));
        server.restart();
        let mut number = 0;
        until("the store works again", async || {
            // Another name each time: the last try may have been done after all.
            number += 1;
            let wish = claim(&format!("alive:{number}"), Mode::Exclusive);
            is_granted(&store.try_acquire(&wish).await)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_task_asks_for_is_done_in_that_order() {
    let server = RedisServer::start();
    for url in dialects(&server) {
        let store = Arc::new(open(&url).await);
        // A script that the server does not know yet is sent twice, and so may be late.
        let first = claim("turn", Mode::Exclusive);
        granted(&store, &first).await;
        assert_eq!(release(&store, &first).await, Ok(true));
        let warm = together(&server, &store, &claims("warm", 8)).await;
        server.resume();
        all_are_granted(warm).await;
        for round in 0..10 {
            let held = claim("turn", Mode::Exclusive);
            granted(&store, &held).await;
            let fillers = claims(&format!("filler:{round}"), 2 + round);
            let fillers = together(&server, &store, &fillers).await;
            let next = claim("turn", Mode::Exclusive);
            let both = {
                let (store, next) = (store.clone(), next.clone());
                // Polled in this order, so that the release is asked for first.
                asked(async move {
                    tokio::join!(biased; release(&store, &held), store.try_acquire(&next))
                })
                .await
            };
            server.resume();
            let (released, outcome) = both.await.expect("no panic");
            assert_eq!(released, Ok(true));
            assert!(is_granted(&outcome), "{outcome:?}");
            assert_eq!(release(&store, &next).await, Ok(true));
            all_are_granted(fillers).await;
        }
        server.command(&["FLUSHALL"]);
    }
}

/// A script keeps all other clients of the server waiting, and up to 32 claims share one.
#[tokio::test]
async fn a_thousand_permits_take_few_commands() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let many = Mode::Permit {
        limit: 1_500,
        count: 1_000,
    };
    let held = claim("many", many);
    let used = async || {
        let commands = ["zadd", "zrem", "zscore", "zcard", "zremrangebyscore"];
        let calls = commands.map(|command| server.calls_of(command));
        calls.iter().sum::<u64>()
    };
    let taken = || server.command(&["ZCARD", "{many}:timeout"]);
    granted(&store, &held).await;
    assert_eq!(taken(), ":1000\r\n");
    busy(&store, &claim("many", many)).await;
    for lease in [2 * LEASE, LEASE] {
        let renewal = renewal(&held).with_lease(lease);
        let renewed = store.renew(&[renewal]).await;
        assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
        // The second, shorter one changes nothing and looks at each of them.
        if lease > LEASE {
            let used = used().await;
            assert!(used < 50, "{used} commands");
        }
    }
    let before = used().await;
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(taken(), ":0\r\n");
    let used = used().await - before;
    assert!(used < 50, "{used} commands");
    // Permits that somebody took away are missed.
    let held = claim("many", many);
    granted(&store, &held).await;
    server.command(&["ZREMRANGEBYRANK", "{many}:timeout", "0", "0"]);
    let renewal = renewal(&held).with_lease(2 * LEASE);
    assert_eq!(store.renew(&[renewal]).await, Ok(vec![Renewed::NotHeld]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_many_permits_share_a_script_with_few() {
    let server = RedisServer::start();
    let url = format!("{}?response_timeout=10s", server.url());
    for (count, scripts) in [(1, 1..16), (1_000, 10..40)] {
        let store = Arc::new(open(&url).await);
        let limit = 1_000;
        let mode = Mode::Permit { limit, count };
        let wishes: Vec<Claim> = (0..34)
            .map(|number| claim(&format!("{count}:{number}"), mode))
            .collect();
        let before = calls(&server);
        let tries = together(&server, &store, &wishes).await;
        server.resume();
        all_are_granted(tries).await;
        let used = calls(&server) - before;
        assert!(scripts.contains(&used), "34 of {count} took {used} scripts");
    }
}

/// A caller may poll a future once and then do something else for a while (`select!`, a buffered stream).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_that_are_not_polled_hold_nobody_up() {
    let server = RedisServer::start();
    for url in dialects(&server) {
        let store = Arc::new(open(&url).await);
        granted(&store, &claim("first", Mode::Exclusive)).await;
        let wishes = claims("stalled", 3);
        let mut stalled: Vec<_> = wishes
            .iter()
            .map(|w| Box::pin(store.try_acquire(w)))
            .collect();
        let names = ["stalled:0", "stalled:1", "stalled:2"];
        ask_and_leave(&server, &mut stalled, &names).await;
        let wish = claim("other", Mode::Exclusive);
        let outcome = tokio::time::timeout(Duration::from_secs(3), store.try_acquire(&wish)).await;
        assert!(outcome.is_ok(), "{url}: somebody else's try waits for ever");
        drop(stalled);
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_try_of_a_batch_does_not_come_after_its_withdrawal() {
    let server = RedisServer::start();
    for (dialect, busy) in [("redisson", 2), ("redisson", 3), ("plain", 2), ("plain", 3)] {
        let proxy = Proxy::to(server.port());
        // Replies are held for longer than a busy machine's connection would live by default.
        let options = format!("dialect={dialect}&response_timeout=10s");
        let url = format!("redis://127.0.0.1:{}?{options}", proxy.port());
        let store = Arc::new(open(&url).await);
        // The scripts of withdrawal and of a single try are known, that of the batch is not.
        // And often enough that a busy machine does not look like a far server, where nothing is sent together.
        for _ in 0..20 {
            let warm = claim("warm", Mode::Exclusive);
            granted(&store, &warm).await;
            release(&store, &warm).await.expect("released");
            let withdrawn = store.withdraw(&warm.name, warm.id).await;
            withdrawn.expect("withdrawn");
        }
        proxy.replies(Way::Held);
        let mut fillers = Vec::new();
        for one in claims("filler", busy) {
            fillers.push(start(&store, &one).await);
        }
        let victim = claim("victim", Mode::Exclusive);
        let gone = start(&store, &victim).await;
        let beside = start(&store, &claim("beside", Mode::Exclusive)).await;
        until_held(&server, &["filler:0", "filler:1"]).await;
        proxy.hold_replies_to("victim");
        // Sent alone after all, it has been granted already.
        until("the server was asked", async || {
            proxy.has_passed() || server.command(&["EXISTS", "victim"]) == ":1\r\n"
        })
        .await;
        gone.abort();
        let _ = gone.await;
        let (s, v) = (store.clone(), victim.clone());
        let withdrawn = asked(async move { s.withdraw(&v.name, v.id).await }).await;
        proxy.heal();
        withdrawn.await.expect("no panic").expect("withdrawn");
        // It goes out with the victim, if that does.
        assert!(is_granted(&beside.await.expect("no panic")));
        all_are_granted(fillers).await;
        assert_eq!(
            server.command(&["EXISTS", "victim"]),
            ":0\r\n",
            "{dialect} {busy}: held by nobody"
        );
        server.command(&["FLUSHALL"]);
        server.command(&["SCRIPT", "FLUSH"]);
    }
}

/// Polling for a name that is held is no grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_in_vain_change_nothing() {
    let server = RedisServer::start();
    let store = Arc::new(open(&format!("{}?dialect=plain", server.url())).await);
    let held = claims("held", 10);
    for one in &held {
        granted(&store, one).await;
    }
    let before = store
        .inspect(&held[5].name)
        .await
        .expect("seen")
        .expect("known");
    let tries = together(&server, &store, &claims("held", 10)).await;
    server.resume();
    for one in tries {
        assert!(!is_granted(&one.await.expect("no panic")));
    }
    let after = store
        .inspect(&held[5].name)
        .await
        .expect("seen")
        .expect("known");
    assert_eq!(before.last_token, after.last_token);
}

/// The second finds nothing, as alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_releases_of_one_hold() {
    let server = RedisServer::start();
    for url in dialects(&server) {
        let store = Arc::new(open(&url).await);
        let held = claims("held", 10);
        for one in &held {
            granted(&store, one).await;
        }
        let twice = held.iter().chain(&held[5..6]);
        let released = let_go_together(&server, &store, twice).await;
        let were = released.iter().filter(|one| **one == Ok(true)).count();
        assert_eq!(were, 10, "{url}");
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_futures_that_are_not_polled_hold_nobody_up() {
    let server = RedisServer::start();
    let keeper = lockkeeper::Lockkeeper::connect(&server.url())
        .await
        .expect("connects");
    // Warm: what an answer takes is known.
    for _ in 0..100 {
        let guard = keeper
            .lock("warm")
            .expect("a name")
            .acquire()
            .await
            .expect("held");
        guard.release().await.expect("released");
    }
    let held = keeper
        .lock("held")
        .expect("a name")
        .acquire()
        .await
        .expect("held");
    let locks: Vec<_> = (0..3)
        .map(|n| keeper.lock(&format!("s:{n}")).expect("a name"))
        .collect();
    let mut stalled: Vec<_> = locks
        .iter()
        .map(|lock| Box::pin(async move { lock.acquire().await }))
        .collect();
    ask_and_leave(&server, &mut stalled, &["s:0", "s:1", "s:2"]).await;
    let released = tokio::time::timeout(Duration::from_secs(15), held.release()).await;
    assert!(released.is_ok(), "a release waits for ever");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_mget_and_mset() {
    let server = RedisServer::start();
    for (less, retention) in [("-mget", "forever"), ("-mset", "forever"), ("-mget", "30d")] {
        server.command(&[
            "ACL", "SETUSER", "poor", "on", ">pw", "+@all", "&*", "~*", less,
        ]);
        let option = format!("dialect=plain&token_retention={retention}");
        let url = format!("redis://poor:pw@127.0.0.1:{}?{option}", server.port());
        let store = Arc::new(open(&url).await);
        for _ in 0..3 {
            let wishes = claims("app", 40);
            let tries = together(&server, &store, &wishes).await;
            server.resume();
            all_are_granted(tries).await;
            for released in let_go_together(&server, &store, &wishes).await {
                assert_eq!(released, Ok(true));
            }
        }
    }
}
