//! What went wrong with locks on etcd, and what a bad day does: each on real servers.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, Renewed, Store};
use lockkeeper::{Error, Lockkeeper};
use lockkeeper_testkit::servers::etcd::{EtcdCluster, EtcdServer};
use lockkeeper_testkit::servers::proxy::{Proxy, Way};

use super::claims::{claim_for, release, renewal_for, until};
use super::common::{busy, granted, in_the_end, open, soon};

const LEASE: Duration = Duration::from_secs(20);

async fn renewed(store: &dyn Store, claim: &lockkeeper::store::Claim) -> Renewed {
    let renewal = renewal_for(claim.lease, claim);
    let renewed = store.renew(&[renewal]).await.expect("renews");
    renewed[0]
}

/// etcd#14758: a keep-alive said that a lease lives that had just been revoked.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_revoked_is_not_held() {
    let server = EtcdServer::start();
    let store = open(&server.url("x")).await;
    let claims: Vec<_> = ["a", "b"]
        .map(|name| claim_for(LEASE, name, Mode::Exclusive))
        .into();
    for claim in &claims {
        granted(&store, claim).await;
    }
    for lease in server.leases() {
        server.ctl(&["lease", "revoke", &lease]);
    }
    assert_eq!(renewed(&store, &claims[0]).await, Renewed::NotHeld);
    assert!(!release(&store, &claims[1]).await.expect("releases"));
    // A new one is made where the old one is gone.
    granted(&store, &claim_for(LEASE, "a", Mode::Exclusive)).await;
}

/// The keeper is told before it renews.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_whose_lease_is_revoked_is_lost_at_once() {
    let server = EtcdServer::start();
    let keeper = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let lock = keeper.lock("told").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    // It watches its key after a while.
    until("it watches", async || {
        let metrics = server.page("/metrics");
        let watchers = metrics
            .lines()
            .find_map(|line| line.strip_prefix("etcd_debugging_mvcc_watcher_total "));
        watchers.is_some_and(|count| count != "0")
    })
    .await;
    let before = Moment::now();
    for lease in server.leases() {
        server.ctl(&["lease", "revoke", &lease]);
    }
    soon("the loss", guard.lost()).await;
    let took = Moment::now().since(before);
    assert!(
        took < keeper.lease() / 3,
        "only with its next renewal: {took:?}"
    );
}

/// etcd#11456, #9921: a lock was granted to a waiter whose lease had ended in the queue.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_lease_is_revoked_is_not_granted() {
    let server = EtcdServer::start();
    let (holder, waiter) = (open(&server.url("x")).await, open(&server.url("x")).await);
    let holding = claim_for(LEASE, "q", Mode::Exclusive);
    granted(&holder, &holding).await;
    let of_holder = server.leases();
    let waiting = claim_for(LEASE, "q", Mode::Exclusive).with_enqueue(true);
    busy(&waiter, &waiting).await;
    for lease in server
        .leases()
        .iter()
        .filter(|lease| !of_holder.contains(lease))
    {
        server.ctl(&["lease", "revoke", lease]);
    }
    let other = claim_for(LEASE, "q", Mode::Exclusive);
    assert!(release(&holder, &holding).await.expect("releases"));
    granted(&holder, &other).await;
    // It comes to the line anew, behind the other.
    busy(&waiter, &waiting).await;
    assert!(release(&holder, &other).await.expect("releases"));
    in_the_end(&waiter, &waiting).await;
    assert_eq!(renewed(&waiter, &waiting).await, Renewed::Renewed);
}

/// An acquire whose answer is lost leaves nothing in line.
#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_whose_answer_is_lost_is_taken_back() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port());
    let near = open(&server.url("x")).await;
    let url = format!("etcd://127.0.0.1:{}/x?timeout=700ms", proxy.port());
    let far = open(&url).await;
    let permits = Mode::Permit { limit: 2, count: 2 };
    for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits] {
        // It has a lease and knows the base, so that the next request is the one.
        let first = claim_for(LEASE, "first", mode);
        granted(&far, &first).await;
        assert!(release(&far, &first).await.expect("releases"));
        proxy.replies(Way::Held);
        let claim = claim_for(LEASE, "lost", mode);
        let tried = far.try_acquire(&claim).await;
        assert!(
            matches!(tried, Err(Error::OutcomeUnknown { .. })),
            "{mode}: {tried:?}"
        );
        // It was done.
        assert_eq!(server.keys("x/lost/").len(), 1, "{mode}");
        busy(&near, &claim_for(LEASE, "lost", Mode::Exclusive)).await;
        proxy.cut();
        proxy.heal();
        soon("the withdrawal", async {
            while far.withdraw(&claim.name, claim.id).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert!(server.keys("x/lost/").is_empty(), "{mode}");
        let again = claim_for(LEASE, "lost", mode);
        granted(&far, &again).await;
        assert!(release(&far, &again).await.expect("releases"));
    }
}

/// A release whose answer is lost has happened, and says so when it is repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_answer_is_lost_says_that_it_held() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/x?timeout=700ms", proxy.port());
    let far = open(&url).await;
    let claim = claim_for(LEASE, "lost", Mode::Exclusive);
    granted(&far, &claim).await;
    proxy.replies(Way::Held);
    let released = release(&far, &claim).await;
    assert!(
        matches!(released, Err(Error::OutcomeUnknown { .. })),
        "{released:?}"
    );
    assert!(server.keys("x/lost/").is_empty());
    proxy.cut();
    proxy.heal();
    soon("an answer", async {
        loop {
            match release(&far, &claim).await {
                Ok(was_held) => return assert!(was_held),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
}

/// A claim that is taken back may reach the members later than that: here its own request comes again. It finds the doubt key
/// changed, and does nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_comes_after_its_withdrawal_does_nothing() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/x?timeout=700ms", proxy.port());
    let (near, far) = (open(&server.url("x")).await, open(&url).await);
    let first = claim_for(LEASE, "first", Mode::Exclusive);
    granted(&far, &first).await;
    let lease = server.leases().pop().expect("a lease");
    proxy.requests(Way::Held);
    let claim = claim_for(LEASE, "late", Mode::Exclusive);
    let tried = far.try_acquire(&claim).await;
    assert!(
        matches!(tried, Err(Error::OutcomeUnknown { .. })),
        "{tried:?}"
    );
    assert!(server.keys("x/late/").is_empty(), "it is on its way");
    proxy.cut();
    proxy.heal();
    soon("the withdrawal", async {
        while far.withdraw(&claim.name, claim.id).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let doubt = format!("x/.lockkeeper/doubt/{}", lease.trim_start_matches('0'));
    assert_eq!(server.keys(&doubt), [doubt.as_str()], "it is marked");
    // What it compared: that nobody had written this key.
    let key = format!("x/late/write/{lease}-late");
    let txn = format!("mod(\"{doubt}\") = \"0\"\n\nput {key} v\n\n\n");
    let mut late = server
        .command(&["txn"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    let mut ask = late.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut ask, txn.as_bytes()).expect("asks");
    drop(ask);
    let said = late.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.starts_with("FAILURE"), "{said}");
    granted(&near, &claim_for(LEASE, "late", Mode::Exclusive)).await;
    // The keeper goes on under the same lease.
    granted(&far, &claim_for(LEASE, "other", Mode::Exclusive)).await;
    assert_eq!(renewed(&far, &first).await, Renewed::Renewed);
}

/// etcd#10811: a holder that is cut off is told before the members end its lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_cut_off_is_told_before_another_gets_in() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/x", proxy.port());
    let far = Lockkeeper::builder()
        .url(&url)
        .lease(Duration::from_secs(3));
    let far = far.connect().await.expect("connects");
    let near = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let lock = far.lock("cut").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let token = guard.token();
    proxy.black_hole();
    let other = near.lock("cut").expect("a lock");
    let next = tokio::spawn(async move {
        let guard = other.acquire().await.expect("acquires");
        (Moment::now(), guard.token(), guard)
    });
    let lost = soon("the loss", async {
        guard.lost().await;
        Moment::now()
    });
    let lost = lost.await;
    let (got, next_token, _next) = soon("the next", next).await.expect("ends");
    assert!(lost <= got, "two held for {:?}", lost.since(got));
    assert!(next_token > token);
}

/// etcd#7472, #13156: a stream of keep-alives ended for good after an error.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_go_on_after_a_restart() {
    let mut server = EtcdServer::start();
    let keeper = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let lock = keeper.lock("kept").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    for _ in 0..2 {
        server.restart();
        soon("a renewal", async {
            while guard.extend(LEASE).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert!(guard.is_held());
    }
    guard.release().await.expect("releases");
}

/// A waiter is woken also if its watch broke while it waited, and what it would have told was compacted.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_watch_breaks_is_woken_after_a_compaction() {
    let server = EtcdServer::start();
    let proxy = Proxy::to(server.port());
    let url = format!("etcd://127.0.0.1:{}/x", proxy.port());
    let (near, far) = (open(&server.url("x")).await, open(&url).await);
    let holding = claim_for(LEASE, "w", Mode::Exclusive);
    granted(&near, &holding).await;
    let waiting = claim_for(LEASE, "w", Mode::Exclusive).with_enqueue(true);
    let interest = lockkeeper::store::Interest::Claim(waiting.name.clone(), waiting.id);
    let subscription = far.subscribe(interest).await.expect("subscribes");
    busy(&far, &waiting).await;
    proxy.refuse();
    proxy.cut();
    assert!(release(&near, &holding).await.expect("releases"));
    for number in 0..20 {
        server.ctl(&["put", "other", &number.to_string()]);
    }
    let revision = server.revision();
    server.ctl(&["compact", &revision.to_string()]);
    proxy.heal();
    // Losing the connection is a hint, too; the grant comes with the one that follows.
    soon("the grant", async {
        loop {
            subscription.hint().await;
            if subscription.granted().is_some() {
                return;
            }
        }
    })
    .await;
    granted(&far, &waiting).await;
}

/// jetcd#291: a waiter that gave up got the lock, and nobody used it.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_gives_up_is_passed_over() {
    let server = EtcdServer::start();
    let keeper = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let other = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let guard = keeper
        .lock("l")
        .expect("a lock")
        .acquire()
        .await
        .expect("acquires");
    let lock = other.lock("l").expect("a lock");
    let impatient = lock.acquire_within(Duration::from_millis(300)).await;
    assert!(impatient.expect("waits").is_none());
    until("it has left", async || server.keys("x/l/").len() == 1).await;
    guard.release().await.expect("releases");
    let third = Lockkeeper::connect(&server.url("x"))
        .await
        .expect("connects");
    let lock = third.lock("l").expect("a lock");
    let guard = soon("the lock", lock.acquire()).await;
    guard.expect("acquires").release().await.expect("releases");
}

/// etcd#17470: a session lived on after its client.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_is_gone_leaves_nothing() {
    let server = EtcdServer::start();
    let store = open(&server.url("x")).await;
    granted(&store, &claim_for(LEASE, "left", Mode::Exclusive)).await;
    assert_eq!(server.leases().len(), 1);
    drop(store);
    until("its lease is revoked", async || server.leases().is_empty()).await;
    assert!(server.keys("x/left/").is_empty());
}

/// 128 parts are the most that a transaction has.
#[tokio::test(flavor = "multi_thread")]
async fn many_holds_are_renewed_and_the_one_that_is_gone_is_found() {
    let server = EtcdServer::start();
    let store = open(&server.url("x")).await;
    let claims: Vec<_> = (0..300)
        .map(|number| claim_for(LEASE, &format!("n{number}"), Mode::Exclusive))
        .collect();
    for claim in &claims {
        granted(&store, claim).await;
    }
    server.ctl(&["del", "--prefix", "x/n177/"]);
    let renewals: Vec<_> = claims
        .iter()
        .map(|claim| renewal_for(LEASE, claim))
        .collect();
    let renewed = store.renew(&renewals).await.expect("renews");
    for (number, renewed) in renewed.iter().enumerate() {
        let expected = match number {
            177 => Renewed::NotHeld,
            _ => Renewed::Renewed,
        };
        assert_eq!(*renewed, expected, "{number}");
    }
}

/// etcd#10756: many guards of one session, and a counter that was wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_tasks_of_two_keepers_lose_no_update() {
    let server = EtcdServer::start();
    let counter = Arc::new(std::sync::Mutex::new((0, false)));
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let keeper = Lockkeeper::connect(&server.url("x"))
            .await
            .expect("connects");
        for _ in 0..500 {
            let (keeper, counter) = (keeper.clone(), counter.clone());
            tasks.push(tokio::spawn(async move {
                let guard = keeper.lock("count").expect("a lock").acquire().await;
                let guard = guard.expect("acquires");
                {
                    let mut counter = counter.lock().expect("the counter");
                    assert!(!std::mem::replace(&mut counter.1, true), "two at once");
                }
                tokio::task::yield_now().await;
                {
                    let mut counter = counter.lock().expect("the counter");
                    counter.0 += 1;
                    counter.1 = false;
                }
                guard.release().await.expect("releases");
            }));
        }
    }
    for task in tasks {
        soon("a task", task).await.expect("ends");
    }
    assert_eq!(counter.lock().expect("the counter").0, 1_000);
}

/// A hold that is extended beyond its lease of etcd's gets a longer one, and keeps its place and its token.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_is_extended_gets_a_longer_lease() {
    let server = EtcdServer::start();
    let (store, other) = (open(&server.url("x")).await, open(&server.url("x")).await);
    let claim = claim_for(Duration::from_secs(2), "long", Mode::Exclusive);
    let grant = granted(&store, &claim).await;
    let waiting = claim_for(LEASE, "long", Mode::Exclusive).with_enqueue(true);
    busy(&other, &waiting).await;
    let before = server.leases();
    let mut renewal = renewal_for(LEASE, &claim);
    assert_eq!(
        store.renew(&[renewal.clone()]).await,
        Ok(vec![Renewed::Renewed])
    );
    for lease in before {
        // Its own is gone from the members' sight only by time; what it holds now does not hang on it.
        let left = server.ctl(&["lease", "timetolive", "--keys", &lease]);
        assert!(
            !left.contains("long/write") || left.contains("granted with TTL(20s)"),
            "{left}"
        );
    }
    renewal.lease = Duration::ZERO;
    assert_eq!(store.renew(&[renewal]).await, Ok(vec![Renewed::Renewed]));
    let again = claim.clone().with_not_after(Moment::now() + LEASE);
    assert_eq!(granted(&store, &again).await, grant);
    busy(&other, &waiting).await;
}

/// Tokens grow although a restored copy set revisions back, and no header says that it did.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_over_a_restore() {
    let mut server = EtcdServer::start();
    let store = open(&server.url("x")).await;
    let claim = claim_for(LEASE, "t", Mode::Exclusive);
    granted(&store, &claim).await;
    assert!(release(&store, &claim).await.expect("releases"));
    let copy = server.folder().join("copy");
    server.ctl(&["snapshot", "save", &copy.display().to_string()]);
    let mut last = None;
    for _ in 0..50 {
        let claim = claim_for(LEASE, "t", Mode::Exclusive);
        last = Some(granted(&store, &claim).await.token);
        assert!(release(&store, &claim).await.expect("releases"));
    }
    let before = server.revision();
    server.restart_from(&copy);
    assert!(server.revision() < before);
    let fresh = open(&server.url("x")).await;
    for store in [&store, &fresh] {
        let claim = claim_for(LEASE, "t", Mode::Exclusive);
        let token = in_the_end(store, &claim).await.token;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        assert!(release(store, &claim).await.expect("releases"));
    }
}

/// Of three members, the one that the keeper speaks to is killed, and then the leader.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_goes_on_when_members_are_killed() {
    let mut cluster = EtcdCluster::start();
    let keeper = Lockkeeper::connect(&cluster.url("x"))
        .await
        .expect("connects");
    let lock = keeper.lock("kept").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let mut last = guard.token();
    for round in 0..2 {
        let victim = match round {
            0 => 0,
            _ => cluster.leader(),
        };
        cluster.members()[victim].kill();
        soon("a renewal", async {
            while guard.extend(LEASE).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let other = keeper.lock(&format!("other{round}")).expect("a lock");
        let next = soon("another lock", async {
            loop {
                match other.acquire().await {
                    Ok(guard) => return guard,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        });
        let next = next.await;
        assert!(next.token() > last);
        last = next.token();
        cluster.members()[victim].relaunch();
        cluster.wait_until_all_serve();
    }
    assert!(guard.is_held());
    guard.release().await.expect("releases");
}

/// Without a majority nothing is granted and nothing renewed; the hold is told to be lost in time.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_leader_nothing_is_granted_and_a_hold_is_lost_in_time() {
    let mut cluster = EtcdCluster::start();
    let lease = Duration::from_secs(3);
    let keeper = Lockkeeper::builder().url(&cluster.url("x")).lease(lease);
    let keeper = keeper.connect().await.expect("connects");
    let guard = keeper
        .lock("kept")
        .expect("a lock")
        .acquire()
        .await
        .expect("acquires");
    let token = guard.token();
    let before = Moment::now();
    for member in [1, 2] {
        cluster.members()[member].kill();
    }
    soon("the loss", guard.lost()).await;
    assert!(Moment::now().since(before) < Duration::from_secs(60));
    let store = keeper.lock("other").expect("a lock").try_acquire().await;
    assert!(!matches!(store, Ok(Some(_))), "{store:?}");
    for member in [1, 2] {
        cluster.members()[member].relaunch();
    }
    cluster.wait_until_all_serve();
    let next = soon("the lock", async {
        loop {
            match keeper.lock("kept").expect("a lock").acquire().await {
                Ok(guard) => return guard,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    assert!(next.await.token() > token);
}
