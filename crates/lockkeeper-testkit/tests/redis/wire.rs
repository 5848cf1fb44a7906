//! The Redis store beside clients of Redisson's. Their part is played by the commands that their scripts run.

use std::time::Duration;

use crate::common::*;
use lockkeeper::clock::Moment;
use lockkeeper::store::LatchOp::{CountDown, Read, Set};
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{Attempt, Claim, Interest, LatchOp, LatchRequest, LatchState, Mode, Store};
use lockkeeper::{HandOff, Lockkeeper};
use lockkeeper_testkit::servers::redis::RedisServer;

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
const JAVA_TOO: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:43";
const SOON: Duration = Duration::from_secs(10);

fn java_locks(server: &RedisServer, key: &str) {
    server.command(&["HINCRBY", key, JAVA, "1"]);
    server.command(&["PEXPIRE", key, "30000"]);
}

fn java_unlocks(server: &RedisServer, key: &str, channel: &str) {
    server.command(&["DEL", key]);
    server.command(&["PUBLISH", channel, "0"]);
}

/// The listeners had their chance, and nothing is left of that.
async fn stood_back(server: &RedisServer, token: &str) {
    until("only its token is left", async || server.keys() == [token]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_what_redisson_writes() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let held = claim("order:42", Mode::Exclusive);
    let grant = granted(&store, &held).await;
    let id = held.id.to_string();
    assert_eq!(server.strings(&["HGET", "order:42", &id]), ["1 30000"]);
    // And a field of ours, which no client of Redisson's asks for: no number, so that those who add up skip it.
    let mut fields = server.strings(&["HKEYS", "order:42"]);
    fields.sort();
    assert_eq!(fields, [id.clone(), format!("lockkeeper:{id}")]);
    let record = server.strings(&["HGET", "order:42", &fields[1]]).concat();
    assert!(record.parse::<f64>().is_err(), "{record}");
    let ttl: u64 = server.strings(&["PTTL", "order:42"])[0]
        .parse()
        .expect("a number");
    assert!((20_000..=30_000).contains(&ttl), "{ttl}");
    // Written in full, or Redisson's INCR fails on it.
    let token = server.strings(&["GET", "redisson_lock_token:{order:42}"]);
    assert_eq!(token, [grant.token.to_string()]);
    assert_eq!(
        server.strings(&["PTTL", "redisson_lock_token:{order:42}"]),
        ["-1"]
    );
    let after = server.strings(&["INCR", "redisson_lock_token:{order:42}"]);
    assert_eq!(after, [(grant.token.get() + 1).to_string()]);
    let mut listener = server.listen("redisson_lock__channel:{order:42}");
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    stood_back(&server, "redisson_lock_token:{order:42}").await;
    // Above what Redisson counted.
    let next = granted(&store, &claim("order:42", Mode::Exclusive)).await;
    assert!(next.token.get() > grant.token.get() + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn braces_in_names_are_where_redisson_has_them() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let held = claim("{user}:7", Mode::Exclusive);
    granted(&store, &held).await;
    assert!(
        server
            .keys()
            .contains(&"redisson_lock_token:{user}:7".to_owned())
    );
    let mut listener = server.listen("redisson_lock__channel:{user}:7");
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_java_holder_excludes_and_its_unlock_wakes() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for round in 0..5 {
        let key = format!("java {round}");
        java_locks(&server, &key);
        for mode in [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write] {
            let free_in = busy(&store, &claim(&key, mode)).await;
            assert!(free_in.is_some_and(|free_in| free_in <= LEASE));
        }
        let info = store.inspect(&name(&key)).await.expect("answers");
        let info = info.expect("it is held");
        assert_eq!(info.holders[0].claim.to_string(), JAVA);
        let wish = waiting(&key, Mode::Exclusive);
        let subscription = subscribe(&store, &wish).await;
        busy(&store, &wish).await;
        // Once for the new subscription, in case the unlock came before it.
        tokio::time::timeout(SOON, subscription.hint())
            .await
            .expect("a hint");
        busy(&store, &wish).await;
        let channel = format!("redisson_lock__channel:{{{key}}}");
        java_unlocks(&server, &key, &channel);
        tokio::time::timeout(SOON, subscription.hint())
            .await
            .expect("a hint");
        granted(&store, &wish).await;
        assert_eq!(release(&store, &wish).await, Ok(true));
        drop(subscription);
        // Nobody listens any more.
        until("the patterns are gone", async || {
            server.strings(&["PUBSUB", "NUMPAT"]) == ["0"]
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_waits_for_a_java_holder_without_polling_long() {
    let server = RedisServer::start();
    let keeper = Lockkeeper::connect(&server.url()).await.expect("connects");
    let mut took = Vec::new();
    for _ in 0..5 {
        java_locks(&server, "shared");
        let lock = keeper.lock("shared").expect("a lock");
        let waiter =
            tokio::spawn(async move { lock.acquire().await.map(|guard| (guard, Moment::now())) });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!waiter.is_finished());
        let unlocked = Moment::now();
        java_unlocks(&server, "shared", "redisson_lock__channel:{shared}");
        let (guard, at) = waiter.await.expect("finishes").expect("acquires");
        took.push(at.since(unlocked));
        guard.release().await.expect("releases");
    }
    took.sort();
    // Far below the cap of a waiter's sleep: the message did it. A busy machine is late now and then.
    assert!(took[2] < Duration::from_millis(400), "woken after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_java_forced_open_is_not_held() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for mode in [
        Mode::Exclusive,
        Mode::Read,
        Mode::Write,
        Mode::Permit { limit: 2, count: 1 },
    ] {
        let held = claim("forced", mode);
        granted(&store, &held).await;
        server.command(&["DEL", "forced", "{forced}:timeout"]);
        java_locks(&server, "forced");
        assert_eq!(release(&store, &held).await, Ok(false), "{mode}");
        assert_eq!(server.strings(&["HGETALL", "forced"]), [JAVA, "1"]);
        server.command(&["DEL", "forced"]);
        let next = claim("forced", mode);
        granted(&store, &next).await;
        assert_eq!(release(&store, &next).await, Ok(true), "{mode}");
    }
    assert_eq!(server.keys(), ["redisson_lock_token:{forced}"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn java_waiters_are_not_starved_by_direct_grants() {
    let server = RedisServer::start();
    let mut listener = server.listen("redisson_lock__channel:{busy}");
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let keeper = Lockkeeper::builder()
            .url(&server.url())
            .hand_off(HandOff::OFF)
            .connect()
            .await
            .expect("connects");
        tasks.push(tokio::spawn(async move {
            let lock = keeper.lock("busy").expect("a lock");
            let end = Moment::now() + Duration::from_secs(2);
            let mut pairs = 0;
            while Moment::now() < end {
                let guard = lock.acquire().await.expect("acquires");
                pairs += 1;
                guard.release().await.expect("releases");
            }
            pairs
        }));
    }
    // As a Java client does: hear of a release, try, hold for a moment, release.
    let server = std::sync::Arc::new(server);
    let java = {
        let server = server.clone();
        tokio::task::spawn_blocking(move || {
            let end = Moment::now() + Duration::from_secs(2);
            let mut pairs = 0;
            while Moment::now() < end {
                let _ = listener.next(Duration::from_millis(300));
                if server.strings(&["HSETNX", "busy", JAVA, "1"]) != ["1"] {
                    continue;
                }
                // Not alone in it: one of ours was there first.
                if server.strings(&["HLEN", "busy"]) != ["1"] {
                    server.command(&["HDEL", "busy", JAVA]);
                    continue;
                }
                server.command(&["PEXPIRE", "busy", "30000"]);
                pairs += 1;
                java_unlocks(&server, "busy", "redisson_lock__channel:{busy}");
            }
            pairs
        })
    };
    let java: u32 = java.await.expect("finishes");
    let mut ours: u32 = 0;
    for task in tasks {
        let pairs: u32 = task.await.expect("finishes");
        assert!(pairs > 10, "one of ours had only {pairs} turns");
        ours += pairs;
    }
    assert!(java >= 5, "Java had {java} turns, ours {ours}");
}

/// Releases `held` while `wish` waits. Whether it went to Redisson's clients instead of being granted.
async fn left_to_java(
    server: &RedisServer,
    store: &RedisStore,
    held: &Claim,
    wish: &Claim,
) -> bool {
    busy(store, wish).await;
    assert_eq!(release(store, held).await, Ok(true));
    let ours = server.strings(&["HEXISTS", "turns", &wish.id.to_string()]);
    ours == ["0"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sides_take_turns_while_java_uses_them() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let _java_waits = server.listen("redisson_lock__channel:{turns}");
    let mut held = waiting("turns", Mode::Exclusive);
    let mut subscription = subscribe(&store, &held).await;
    granted(&store, &held).await;
    for round in 0..5 {
        // Ours go on among themselves for a few grants, and no longer.
        let mut grants = 0;
        let wish = loop {
            let wish = waiting("turns", Mode::Exclusive);
            let next = subscribe(&store, &wish).await;
            let left = left_to_java(&server, &store, &held, &wish).await;
            subscription = next;
            if left {
                break wish;
            }
            granted(&store, &wish).await;
            held = wish;
            grants += 1;
            assert!(grants < 10, "Java has no turn in round {round}");
        };
        // Java takes what it was left, and ours sees it.
        java_locks(&server, "turns");
        busy(&store, &wish).await;
        java_unlocks(&server, "turns", "redisson_lock__channel:{turns}");
        // Ours goes on afterwards.
        until("ours has its turn", async || {
            let answer = store.try_acquire(&wish).await.expect("answers");
            matches!(answer, Attempt::Granted(_))
        })
        .await;
        held = wish;
    }
    drop(subscription);
    assert_eq!(release(&store, &held).await, Ok(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_has_its_turn_where_nobody_of_ours_waits() {
    for (mode, channel) in [
        (Mode::Exclusive, "redisson_lock__channel:{turns}"),
        (Mode::Write, "redisson_rwlock:{turns}"),
    ] {
        let server = RedisServer::start();
        let store = open(&server.url()).await;
        let at_once = async || {
            for _ in 0..20 {
                let held = claim("turns", mode);
                granted(&store, &held).await;
                assert_eq!(release(&store, &held).await, Ok(true));
            }
        };
        at_once().await;
        // One of ours listens, which are those that listen by patterns.
        let ours = server.listen_by("PSUBSCRIBE", channel);
        at_once().await;
        drop(ours);
        let java = server.listen(channel);
        let left_to_java = async || {
            let held = claim("turns", mode);
            match store.try_acquire(&held).await.expect("answers") {
                Attempt::Granted(_) => {
                    assert_eq!(release(&store, &held).await, Ok(true));
                    false
                }
                Attempt::Busy { free_in } => {
                    assert!(free_in.is_some_and(|free_in| free_in <= SOON));
                    true
                }
                other => panic!("{other:?}"),
            }
        };
        // It does not come: the next turn is a while later, and ours go on in between.
        for _ in 0..3 {
            until("it is left to Java", &left_to_java).await;
            until("ours goes on", async || !left_to_java().await).await;
        }
        drop(java);
        until("nobody listens", async || {
            server.strings(&["PUBSUB", "NUMSUB", channel])[1] == "0"
        })
        .await;
        until("ours goes on", async || !left_to_java().await).await;
        at_once().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_waiters_of_both_kinds_form_one_line() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let (queue, timeouts) = ("redisson_lock_queue:{line}", "redisson_lock_timeout:{line}");
    let far = "99999999999999";
    java_locks(&server, "line");
    // A Java client waits, then ours, then another Java client.
    server.command(&["RPUSH", queue, JAVA_TOO]);
    server.command(&["ZADD", timeouts, far, JAVA_TOO]);
    let wish = waiting("line", Mode::Fair);
    let subscription = subscribe(&store, &wish).await;
    busy(&store, &wish).await;
    let id = wish.id.to_string();
    assert_eq!(
        server.strings(&["LRANGE", queue, "0", "-1"]),
        [JAVA_TOO, &id]
    );
    let score: f64 = server.strings(&["ZSCORE", timeouts, &id])[0]
        .parse()
        .expect("a number");
    assert!(score > 99999999999999.0, "after the one before it: {score}");
    // Dead, it would be known as one of ours for as long as it is in Redisson's line.
    let known: u64 = server.strings(&["PTTL", "lockkeeper_waiters:{line}"])[0]
        .parse()
        .expect("a number");
    assert!(known > 300_000, "{known}");
    let info = store.inspect(&name("line")).await.expect("answers");
    assert_eq!(info.expect("it is held").waiters, 2);
    // The holder leaves; the Java client is first and takes it, as its script does.
    server.command(&["DEL", "line"]);
    busy(&store, &wish).await;
    server.command(&["LPOP", queue]);
    server.command(&["ZREM", timeouts, JAVA_TOO]);
    server.command(&["HSET", "line", JAVA_TOO, "1"]);
    busy(&store, &wish).await;
    // It unlocks, and tells the head of the line, which is ours.
    until("it listens", async || {
        let _ = tokio::time::timeout(Duration::from_millis(50), subscription.hint()).await;
        let channel = format!("redisson_lock__channel:{{line}}:{id}");
        server.strings(&["PUBSUB", "NUMSUB", &channel])[1] == "1"
    })
    .await;
    server.command(&["DEL", "line"]);
    let heard = server.strings(&[
        "PUBLISH",
        &format!("redisson_lock__channel:{{line}}:{id}"),
        "0",
    ]);
    assert_eq!(heard, ["1"]);
    tokio::time::timeout(SOON, subscription.hint())
        .await
        .expect("a hint");
    granted(&store, &wish).await;
    // With ours holding, a Java client queues; our release tells it.
    server.command(&["RPUSH", queue, JAVA]);
    server.command(&["ZADD", timeouts, far, JAVA]);
    let mut listener = server.listen(&format!("redisson_lock__channel:{{line}}:{JAVA}"));
    assert_eq!(release(&store, &wish).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    busy(&store, &claim("line", Mode::Fair)).await;
    // It died: once its time is over, it is in nobody's way.
    server.command(&["ZADD", timeouts, "1", JAVA]);
    let next = claim("line", Mode::Fair);
    granted(&store, &next).await;
    assert_eq!(release(&store, &next).await, Ok(true));
    assert_eq!(server.keys(), ["redisson_lock_token:{line}"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_are_what_redisson_writes() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let java_timeout = format!("{{book}}:{JAVA}:rwlock_timeout:1");
    let reader = claim("book", Mode::Read);
    granted(&store, &reader).await;
    let id = reader.id.to_string();
    assert_eq!(server.strings(&["HGET", "book", "mode"]), ["read"]);
    assert_eq!(server.strings(&["HGET", "book", &id]), ["1"]);
    let timeout = format!("{{book}}:{id}:rwlock_timeout:1");
    assert_eq!(server.strings(&["GET", &timeout]), ["1"]);
    // A Java reader joins, and ours leaves.
    server.command(&["HINCRBY", "book", JAVA, "1"]);
    server.command(&["SET", &java_timeout, "1", "PX", "30000"]);
    assert_eq!(release(&store, &reader).await, Ok(true));
    assert_eq!(
        server.strings(&["HGETALL", "book"]),
        ["mode", "read", JAVA, "1"]
    );
    let other = claim("book", Mode::Read);
    granted(&store, &other).await;
    busy(&store, &claim("book", Mode::Write)).await;
    assert_eq!(release(&store, &other).await, Ok(true));
    // The Java reader crashed: its timeout is gone, and the key lives on for whatever reason.
    server.command(&["DEL", &java_timeout]);
    let writer = claim("book", Mode::Write);
    granted(&store, &writer).await;
    let field = format!("{}:write", writer.id);
    assert_eq!(
        server.strings(&["HGETALL", "book"]),
        ["mode", "write", &field, "1"]
    );
    let mut listener = server.listen("redisson_rwlock:{book}");
    assert_eq!(release(&store, &writer).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("1"));
    stood_back(&server, "redisson_lock_token:{book}").await;
    let reader = claim("book", Mode::Read);
    granted(&store, &reader).await;
    assert_eq!(release(&store, &reader).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    stood_back(&server, "redisson_lock_token:{book}").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_becomes_a_reader_lets_java_readers_in() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let writer = claim("down", Mode::Write);
    granted(&store, &writer).await;
    let reader = claim("down", Mode::Read)
        .with_id(lockkeeper::store::ClaimId {
            number: writer.id.number + 1_000_000,
            ..writer.id
        })
        .with_beside(Some(writer.id))
        .with_label(None);
    granted(&store, &reader).await;
    assert_eq!(server.strings(&["HGET", "down", "mode"]), ["write"]);
    let mut listener = server.listen("redisson_rwlock:{down}");
    assert_eq!(release(&store, &writer).await, Ok(true));
    // Redisson itself forgets to tell.
    assert_eq!(listener.next(SOON).as_deref(), Some("1"));
    assert_eq!(server.strings(&["HGET", "down", "mode"]), ["read"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_shared_with_java() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let permit = |count| Mode::Permit { limit: 3, count };
    // trySetPermits(3)
    server.command(&["SET", "pool", "3"]);
    let two = claim("pool", permit(2));
    granted(&store, &two).await;
    assert_eq!(server.strings(&["GET", "pool"]), ["1"]);
    assert_eq!(server.strings(&["ZCARD", "{pool}:timeout"]), ["2"]);
    // A Java client takes the last one.
    server.command(&["DECRBY", "pool", "1"]);
    server.command(&[
        "ZADD",
        "{pool}:timeout",
        "99999999999999",
        "0123456789abcdef",
    ]);
    let wish = waiting("pool", permit(1));
    let subscription = subscribe(&store, &wish).await;
    busy(&store, &wish).await;
    tokio::time::timeout(SOON, subscription.hint())
        .await
        .expect("a hint");
    busy(&store, &wish).await;
    // It releases it.
    server.command(&["ZREM", "{pool}:timeout", "0123456789abcdef"]);
    server.command(&["INCRBY", "pool", "1"]);
    server.command(&["PUBLISH", "redisson_sc:{pool}", "1"]);
    tokio::time::timeout(SOON, subscription.hint())
        .await
        .expect("a hint");
    granted(&store, &wish).await;
    busy(&store, &claim("pool", Mode::Exclusive)).await;
    let mut listener = server.listen("redisson_sc:{pool}");
    assert_eq!(release(&store, &two).await, Ok(true));
    assert_eq!(listener.next(SOON).as_deref(), Some("2"));
    assert_eq!(release(&store, &wish).await, Ok(true));
    // The number of permits was Java's to set, and stays.
    assert_eq!(server.strings(&["GET", "pool"]), ["3"]);
    assert_eq!(server.keys(), ["pool", "redisson_lock_token:{pool}"]);
    // Where nobody set it, nothing stays.
    let own = claim("own", permit(1));
    granted(&store, &own).await;
    assert_eq!(server.strings(&["GET", "own"]), ["2"]);
    assert_eq!(release(&store, &own).await, Ok(true));
    assert!(!server.keys().contains(&"own".to_owned()));
}

async fn latch(store: &RedisStore, text: &str, op: LatchOp) -> LatchState {
    let request = LatchRequest::new(
        name(text),
        claim(text, Mode::Exclusive).id,
        op,
        Moment::now() + LEASE,
    );
    store.latch(&request).await.expect("answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_was_aside_is_left_to_java_at_its_name() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let _java_waits = server.listen("redisson_lock__channel:{both}");
    for _ in 0..20 {
        // The latch has the name, and the lock is aside for as long.
        latch(&store, "both", Set(1)).await;
        let held = claim("both", Mode::Exclusive);
        until("ours has it", async || {
            let answer = store.try_acquire(&held).await.expect("answers");
            matches!(answer, Attempt::Granted(_))
        })
        .await;
        assert_eq!(server.strings(&["TYPE", "both"]), ["string"]);
        assert_eq!(release(&store, &held).await, Ok(true));
        latch(&store, "both", CountDown).await;
        let next = claim("both", Mode::Exclusive);
        if let Ok(Attempt::Granted(_)) = store.try_acquire(&next).await {
            let id = next.id.to_string();
            assert_eq!(server.strings(&["HGET", "both", &id]), ["1 30000"]);
            assert_eq!(release(&store, &next).await, Ok(true));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_is_shared_with_java() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let channel = "redisson_countdownlatch__channel__{gate}";
    let mut listener = server.listen(channel);
    assert!(latch(&store, "gate", Set(3)).await.changed);
    assert_eq!(listener.next(SOON).as_deref(), Some("1"));
    assert_eq!(server.strings(&["GET", "gate"]), ["3"]);
    server.command(&["DECR", "gate"]);
    assert_eq!(latch(&store, "gate", CountDown).await.count, 1);
    let interest = Interest::Latch(name("gate"));
    let subscription = store.subscribe(interest).await.expect("subscribes");
    // A Java client opens it.
    server.command(&["DEL", "gate"]);
    server.command(&["PUBLISH", channel, "0"]);
    tokio::time::timeout(SOON, subscription.hint())
        .await
        .expect("a hint");
    assert_eq!(latch(&store, "gate", Read).await.count, 0);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    // trySetCount(1) in Java, opened by ours.
    server.command(&["SET", "gate", "1"]);
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    assert_eq!(latch(&store, "gate", CountDown).await.count, 0);
    assert_eq!(listener.next(SOON).as_deref(), Some("0"));
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_lock_is_what_its_peers_write() {
    let server = RedisServer::start();
    let store = open(&format!("{}?dialect=plain", server.url())).await;
    // A peer holds.
    server.command(&["SET", "job", "random-value", "NX", "PX", "30000"]);
    let free_in = busy(&store, &claim("job", Mode::Exclusive)).await;
    assert!(free_in.is_some_and(|free_in| free_in <= LEASE));
    let info = store.inspect(&name("job")).await.expect("answers");
    assert_eq!(info.expect("it is held").holders.len(), 1);
    server.command(&["DEL", "job"]);
    let held = claim("job", Mode::Exclusive);
    granted(&store, &held).await;
    // A peer cannot take it, nor release it by its own value.
    assert_eq!(
        server.command(&["SET", "job", "v", "NX", "PX", "1"]),
        "$-1\r\n"
    );
    assert_eq!(server.strings(&["TYPE", "job"]), ["string"]);
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(server.keys(), ["lockkeeper_token:{job}"]);
    for mode in [Mode::Fair, Mode::Read, Mode::Permit { limit: 1, count: 1 }] {
        let error = store.try_acquire(&claim("job", mode)).await;
        assert!(matches!(error, Err(lockkeeper::Error::Unsupported { .. })));
    }
}
