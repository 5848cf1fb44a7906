//! What went wrong with other locks on ZooKeeper, and what a bad day does: each on real servers.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::polling::drop_after;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::wall_clock::WallClock;
use lockkeeper_testkit::servers::zookeeper::{Ensemble, ZooKeeperOptions, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_session::ZooKeeperSession;

use super::claims::{claim_for, release};
use super::common::{busy, granted, in_the_end, open, soon};

const LEASE: Duration = Duration::from_secs(20);

/// A session that ends soon, and answers that are soon missed.
fn short(port: u16) -> String {
    format!("zk://127.0.0.1:{port}/short?session_timeout=3s&timeout=700ms&connect_timeout=3s")
}

/// Waits until somebody who does not queue gets it.
async fn eventually(store: &dyn Store, text: &str) {
    soon("a free lock", async {
        loop {
            let claim = claim_for(Duration::from_secs(2), text, Mode::Exclusive);
            match store.try_acquire(&claim).await {
                Ok(Attempt::Granted(_)) => {
                    assert!(release(store, &claim).await.expect("releases"));
                    return;
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
}

/// curator#600, #855, #982: an acquire whose answer is lost leaves nothing in line, and no permits.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_whose_answer_is_lost_is_taken_back() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let (near, far) = (
        open(&server.url("x")).await,
        open(&format!(
            "zk://127.0.0.1:{}/x?session_timeout=200s&timeout=700ms",
            proxy.port()
        ))
        .await,
    );
    let permits = Mode::Permit { limit: 2, count: 2 };
    for (mode, node) in [
        (Mode::Exclusive, "-lock-"),
        (Mode::Read, "__READ__"),
        (Mode::Write, "__WRIT__"),
        (permits, "-lock-"),
        (permits, "-lease-"),
    ] {
        proxy.lose_replies(node, 1);
        let claim = claim_for(LEASE, "lost", mode);
        let tried = far.try_acquire(&claim).await;
        assert!(
            matches!(tried, Err(Error::OutcomeUnknown { .. })),
            "{mode}: {tried:?}"
        );
        proxy.heal();
        soon("the withdrawal", async {
            while far.withdraw(&claim.name, claim.id).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert!(near.list("").await.expect("lists").is_empty(), "{mode}");
        assert_eq!(server.ephemerals(), 0, "{mode}, {node}");
    }
}

/// The reason is told once, though it has passed from the connection to the caller.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_named_in_an_error_without_repetition() {
    let mut server = ZooKeeperServer::start();
    let store = open(&short(server.port())).await;
    let address = format!("127.0.0.1:{}", server.port());
    server.kill();
    soon("an error that names the server", async {
        loop {
            let claim = claim_for(Duration::from_secs(2), "a", Mode::Exclusive);
            let tried = store.try_acquire(&claim).await;
            let text = tried.expect_err("nobody is there").to_string();
            assert!(text.matches("is unavailable").count() <= 1, "{text}");
            if text.contains(&format!("{address} cannot be reached")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// curator#1193: a release whose answer is lost is a release.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_lost_frees_the_lock() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!(
        "zk://127.0.0.1:{}/x?session_timeout=200s&timeout=700ms",
        proxy.port()
    );
    let (near, far) = (open(&server.url("x")).await, open(&url).await);
    let permits = Mode::Permit { limit: 2, count: 2 };
    for (mode, node) in [(Mode::Exclusive, "-lock-"), (permits, "-lease-")] {
        let claim = claim_for(LEASE, "lost", mode);
        let tried = soon("a connection", async {
            loop {
                match far.try_acquire(&claim).await {
                    Err(error) if error.is_transient() => {}
                    tried => return tried,
                }
            }
        })
        .await;
        assert!(matches!(tried, Ok(Attempt::Granted(_))), "{tried:?}");
        proxy.lose_replies(node, 1);
        let released = release(&far, &claim).await;
        assert!(
            matches!(released, Err(Error::OutcomeUnknown { .. })),
            "{released:?}"
        );
        proxy.heal();
        eventually(&near, "lost").await;
        eventually(&far, "lost").await;
    }
    assert_eq!(server.ephemerals(), 0);
}

/// The server's clock is set while one holds and one waits. Sessions and tokens go by other clocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_ends_no_hold_and_takes_no_token_back() {
    const DAY: Duration = Duration::from_secs(86_400);
    let clock = WallClock::new();
    let server = ZooKeeperServer::start_with(ZooKeeperOptions {
        environment: clock.environment(),
        ..ZooKeeperOptions::default()
    });
    let (one, two) = (open(&server.url("x")).await, open(&server.url("x")).await);
    let mut last = 0;
    for (set, days) in [
        (WallClock::ahead as fn(&WallClock, Duration), 1),
        (WallClock::behind, -1),
    ] {
        let claim = claim_for(LEASE, "a", Mode::Exclusive);
        let token = in_the_end(&one, &claim).await.token.get();
        assert!(token > last, "{token} after {last}");
        let next = claim_for(LEASE, "a", Mode::Exclusive).with_enqueue(true);
        busy(&two, &next).await;
        set(&clock, DAY);
        // The server has the new time: what is made now is of another day.
        let other = claim_for(LEASE, "other", Mode::Exclusive);
        granted(&one, &other).await;
        let seen = one.inspect(&other.name).await.expect("answers");
        let since = seen.expect("it is held").holders[0].since.expect("known");
        let now = std::time::SystemTime::now();
        let moved = match days {
            1 => since.duration_since(now),
            _ => now.duration_since(since),
        };
        assert!(
            moved.is_ok_and(|moved| moved > DAY / 2),
            "{days}: {since:?}"
        );
        assert!(release(&one, &other).await.expect("releases"));
        // It looks at its sessions ten times.
        tokio::time::sleep(Duration::from_secs(1)).await;
        busy(&two, &next).await;
        assert!(release(&one, &claim).await.expect("releases"), "it held");
        last = in_the_end(&two, &next).await.token.get();
        assert!(last > token, "{last} after {token}");
        assert!(release(&two, &next).await.expect("releases"));
    }
}

/// Nodes of somebody else below a lock: none of them is a contender, and all of them stay.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_no_contenders_do_not_matter() {
    let server = ZooKeeperServer::start();
    let store = open(&server.url("x")).await;
    let hand = ZooKeeperSession::open(server.port(), Duration::from_secs(200));
    let others = [
        "0",
        "config",
        "lock-",
        "_c_x-lock-first",
        "12345__other__0000000000",
    ];
    for other in others {
        hand.folders(&format!("/x/a/{other}"));
    }
    let permits = Mode::Permit { limit: 1, count: 1 };
    for mode in [Mode::Exclusive, Mode::Write, Mode::Read, permits] {
        let claim = claim_for(LEASE, "a", mode);
        granted(&store, &claim).await;
        let seen = store.inspect(&claim.name).await.expect("answers");
        let seen = seen.expect("it is held");
        assert_eq!((seen.holders.len(), seen.waiters), (1, 0), "{mode}");
        assert!(release(&store, &claim).await.expect("releases"));
    }
    let left = hand.children("/x/a");
    assert!(
        others
            .iter()
            .all(|other| left.iter().any(|node| node == other))
    );
}

/// curator#985, #1121: the holder is told before anybody else gets the lock, and takes nothing of its old session for its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_is_told_before_another_holds() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let connect = async |port| {
        let keeper = Lockkeeper::connect(&short(port)).await;
        keeper.expect("connects")
    };
    let (far, near) = (connect(proxy.port()).await, connect(server.port()).await);
    let guard = far
        .lock("a")
        .expect("a lock")
        .acquire()
        .await
        .expect("acquires");
    let other = near.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move {
        let guard = other.acquire().await.expect("acquires");
        (Moment::now(), guard)
    });
    proxy.black_hole();
    soon("the loss", guard.lost()).await;
    let lost = Moment::now();
    let (won, next) = soon("the lock", waiting).await.expect("no panic");
    assert!(lost <= won, "told {:?} late", lost.since(won));
    assert!(!guard.is_held() && next.is_held());
    assert!(next.token() > guard.token());
    proxy.heal();
    // Back in another session, it does not hold, and can wait again.
    let again = far.lock("a").expect("a lock");
    assert!(
        soon("an answer", async {
            loop {
                match again.try_acquire().await {
                    Ok(tried) => return tried.is_none(),
                    Err(error) => assert!(error.is_transient(), "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
    );
    next.release().await.expect("releases");
    let back = soon("the lock", again.acquire()).await.expect("acquires");
    back.release().await.expect("releases");
}

/// kazoo#282: who waits while the server is restarted gets the lock all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_over_a_restart_of_the_server() {
    let mut server = ZooKeeperServer::start();
    let url = format!("{}&timeout=700ms", server.url("x"));
    let keeper = Lockkeeper::connect(&url).await.expect("connects");
    let other = Lockkeeper::connect(&url).await.expect("connects");
    let guard = keeper
        .lock("a")
        .expect("a lock")
        .acquire()
        .await
        .expect("acquires");
    let lock = other.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    soon("a waiter", async {
        while keeper
            .inspect("a")
            .await
            .expect("answers")
            .is_none_or(|info| info.waiters == 0)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let server = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    let server = server.await.expect("no panic");
    assert!(guard.is_held());
    drop(guard);
    let next = soon("the lock", waiting)
        .await
        .expect("no panic")
        .expect("acquires");
    next.release().await.expect("releases");
    drop(server);
}

/// curator#855, #982: futures that are dropped anywhere leave no node, also with permits.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_what_is_dropped() {
    let server = ZooKeeperServer::start();
    let keeper = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let other = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let (lock, held) = (
        keeper.lock("a").expect("a lock"),
        other.lock("a").expect("a lock"),
    );
    let (pool, taken) = (
        keeper.semaphore("p", 2).expect("permits"),
        other.semaphore("p", 2).expect("permits"),
    );
    for polls in 0..10 {
        let guards = (
            held.acquire().await.expect("acquires"),
            taken.acquire(2).await.expect("acquires"),
        );
        drop(drop_after(polls, lock.acquire()).await);
        drop(drop_after(polls, pool.acquire(1)).await);
        drop(guards);
        drop(drop_after(polls, lock.acquire()).await);
        drop(drop_after(polls, pool.acquire(2)).await);
    }
    soon("no node", async {
        while server.ephemerals() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    drop((lock, pool, keeper));
    drop((held, taken, other));
    soon("no session", async {
        while server.sessions() > 0 || server.watches() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// curator#701: folders are swept while they are used.
#[tokio::test(flavor = "multi_thread")]
async fn folders_may_be_swept_at_any_time() {
    let server = ZooKeeperServer::start_with(ZooKeeperOptions {
        properties: vec![("znode.container.checkIntervalMs".into(), "20".into())],
        ..ZooKeeperOptions::default()
    });
    let mut tasks = Vec::new();
    for number in 0..4u64 {
        let keeper = Lockkeeper::connect(&server.url("x"))
            .await
            .expect("connects");
        tasks.push(tokio::spawn(async move {
            let end = Moment::now() + Duration::from_secs(3);
            let mut rounds = 0u64;
            while Moment::now() < end {
                let lock = keeper
                    .lock(&format!("deep/{}", rounds % 3))
                    .expect("a lock");
                lock.acquire()
                    .await
                    .expect("acquires")
                    .release()
                    .await
                    .expect("releases");
                let pool = keeper.semaphore("pool", 2).expect("permits");
                pool.acquire(1)
                    .await
                    .expect("acquires")
                    .release()
                    .await
                    .expect("releases");
                tokio::time::sleep(Duration::from_millis(7 * number)).await;
                rounds += 1;
            }
            rounds
        }));
    }
    for task in tasks {
        assert!(soon("the end", task).await.expect("no panic") > 0);
    }
}

/// The leader is killed while one holds and one waits: the hold goes on, tokens grow, nobody overlaps.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_takes_no_lock_along() {
    let mut servers = Ensemble::start();
    let url = format!("{}&timeout=700ms", servers.url("x"));
    let one = Lockkeeper::connect(&url).await.expect("connects");
    let two = Lockkeeper::connect(&url).await.expect("connects");
    let guard = one
        .lock("a")
        .expect("a lock")
        .acquire()
        .await
        .expect("acquires");
    let lock = two.lock("a").expect("a lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    let killed = tokio::task::spawn_blocking(move || {
        let leader = servers.leader();
        servers.servers()[leader].kill();
        servers.leader();
        servers
    });
    let mut servers = killed.await.expect("no panic");
    assert!(guard.is_held(), "its session goes on with the new leader");
    assert!(!waiting.is_finished());
    let before = guard.token();
    drop(guard);
    let next = soon("the lock", waiting)
        .await
        .expect("no panic")
        .expect("acquires");
    assert!(next.token() > before);
    let before = next.token();
    next.release().await.expect("releases");
    // Made in the new epoch.
    let lock = one.lock("a").expect("a lock");
    let last = soon("the lock", lock.acquire()).await.expect("acquires");
    assert!(last.token() > before);
    drop(last);
    let down = servers
        .servers()
        .iter_mut()
        .find(|server| server.pid().is_none());
    down.expect("one is down").relaunch();
}

/// The servers come back with the data of before: tokens go on above what they were.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_over_a_restored_backup() {
    let mut server = ZooKeeperServer::start();
    let token = async |server: &ZooKeeperServer| {
        let store = open(&server.url("x")).await;
        let claim = claim_for(LEASE, "a", Mode::Exclusive);
        let Ok(Attempt::Granted(grant)) = store.try_acquire(&claim).await else {
            panic!("it is free");
        };
        assert!(release(&store, &claim).await.expect("releases"));
        grant.token
    };
    token(&server).await;
    let backup = tempfile::tempdir().expect("a folder");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let done = std::process::Command::new("cp")
            .arg("-a")
            .arg(from.join("."))
            .arg(to)
            .status();
        assert!(done.expect("copies").success());
    };
    server.kill();
    copy(&server.data(), backup.path());
    let backed_up = Moment::now();
    server.restart();
    let mut last = token(&server).await;
    for _ in 0..50 {
        last = last.max(token(&server).await);
    }
    // Tokens may be a second behind the clock: data that is younger says nothing of what was lost.
    let old_enough = backed_up + Duration::from_secs(2);
    tokio::time::sleep(old_enough.remaining()).await;
    server.kill();
    std::fs::remove_dir_all(server.data()).expect("removes");
    std::fs::create_dir_all(server.data()).expect("a folder");
    copy(backup.path(), &server.data());
    server.restart();
    assert!(token(&server).await > last);
}

/// Answers come all the time, but each request waits behind others for longer than an answer may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_line_of_requests_is_no_silence() {
    let server = ZooKeeperServer::start();
    let proxy = Proxy::to(server.port());
    let port = proxy.port();
    let store = open(&format!(
        "zk://127.0.0.1:{port}/x?session_timeout=200s&timeout=3s"
    ))
    .await;
    let store = Arc::new(store);
    proxy.requests(Way::Slow(Duration::from_millis(1_200)));
    proxy.replies(Way::Slow(Duration::from_millis(1_200)));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let name = claim_for(LEASE, &format!("n{number}"), Mode::Exclusive).name;
            for _ in 0..3 {
                store.inspect(&name).await.expect("the connection is good");
                tokio::time::sleep(Duration::from_millis(250 * number)).await;
            }
        }));
    }
    for task in tasks {
        soon("the end", task).await.expect("no panic");
    }
}

/// A keeper that outlives its store's server: every verb ends, with an error that says so.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_server_every_verb_ends() {
    let mut server = ZooKeeperServer::start();
    let store = Arc::new(open(&short(server.port())).await);
    server.kill();
    let claim = claim_for(Duration::from_secs(2), "a", Mode::Exclusive);
    let tried = soon("an answer", store.try_acquire(&claim)).await;
    assert!(tried.is_err_and(|error| error.is_transient()));
    let listed = soon("an answer", store.list("")).await;
    assert!(listed.is_err_and(|error| error.is_transient()));
}

/// curator#855: two who want three of four do not take two each and wait for one another.
#[tokio::test(flavor = "multi_thread")]
async fn two_who_want_three_of_four_take_turns() {
    let server = ZooKeeperServer::start();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let keeper = Lockkeeper::connect(&server.url("x"))
            .await
            .expect("connects");
        tasks.push(tokio::spawn(async move {
            let pool = keeper.semaphore("p", 4).expect("permits");
            for _ in 0..20 {
                let permits = pool.acquire(3).await.expect("acquires");
                permits.release().await.expect("releases");
            }
        }));
    }
    for task in tasks {
        soon("the end", task).await.expect("no panic");
    }
    assert_eq!(server.ephemerals(), 0);
}
