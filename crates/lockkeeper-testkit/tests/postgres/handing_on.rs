//! A lock that is handed on by a client that is stopped meanwhile, or to one that has just connected again.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::clock::Moment;
use lockkeeper::store::postgres::PostgresStore;
use lockkeeper::store::{Attempt, Claim, Interest, Mode, Store, Subscription};
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::proxy::Proxy;

use crate::claims::{claim_for, release, until};
use crate::common::open;

const LEASE: Duration = Duration::from_secs(30);

fn claim(text: &str) -> Claim {
    claim_for(LEASE, text, Mode::Exclusive).with_not_after(Moment::NEVER)
}

async fn granted(store: &PostgresStore, claim: &Claim) -> bool {
    matches!(store.try_acquire(claim).await, Ok(Attempt::Granted(_)))
}

/// A store that can be stopped by a proxy, and one that cannot, on tables of their own.
async fn stores() -> (Proxy, Arc<PostgresStore>, PostgresStore) {
    let server = PostgresServer::shared();
    let proxy = Proxy::to(server.port());
    let schema = PostgresServer::fresh_schema();
    let url = |port: u16| {
        format!(
            "postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}&response_timeout=10s"
        )
    };
    let stopped = open(&url(proxy.port())).await;
    let straight = open(&url(server.port())).await;
    (proxy, Arc::new(stopped), straight)
}

async fn queues(store: &PostgresStore, claim: &Claim) -> Subscription {
    let interest = Interest::Claim(claim.name.clone(), claim.id);
    let subscription = store.subscribe(interest).await.expect("subscribes");
    assert!(!granted(store, claim).await);
    subscription
}

async fn hinted(subscription: &Subscription) {
    let hint = tokio::time::timeout(LEASE, subscription.hint()).await;
    hint.expect("the grant is told");
}

/// The releaser has loaded the name and is stopped. The waiter asks again, which changes nothing that the releaser has seen. Then the
/// releaser grants, by the time of its load: the waiter must not count from its own request, which is younger.
#[tokio::test]
async fn nobody_believes_in_a_grant_for_longer_than_the_server() {
    let (proxy, stopped, straight) = stores().await;
    let held = claim("held");
    assert!(granted(&stopped, &held).await);
    let waits = claim("held").with_enqueue(true);
    let subscription = queues(&straight, &waits).await;
    proxy.hold_after("EXECUTE lk_save(", 0);
    let releasing = tokio::spawn({
        let (stopped, held) = (stopped.clone(), held.clone());
        async move { release(&*stopped, &held).await }
    });
    until("the releaser is stopped", async || proxy.stopped() == 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!granted(&straight, &waits).await);
    proxy.heal();
    hinted(&subscription).await;
    let believed = match subscription.granted() {
        Some(brought) => brought.sent + brought.lease.min(waits.lease),
        None => {
            let sent = Moment::now();
            assert!(granted(&straight, &waits).await);
            sent + waits.lease
        }
    };
    let info = straight.inspect(&waits.name).await.expect("looks");
    let holder = &info.expect("it is held").holders[0];
    assert_eq!(holder.claim, waits.id);
    let ends = Moment::now() + holder.remaining.expect("it has an end");
    assert!(believed <= ends, "for {:?} too long", believed.since(ends));
    assert_eq!(releasing.await.expect("no panic"), Ok(true));
}

/// A releaser that was stopped for longer than a grant lasts grants anew: the waiter keeps its turn.
#[tokio::test]
async fn a_grant_that_is_over_before_it_is_made_costs_no_turn() {
    for _ in 0..5 {
        let (proxy, stopped, straight) = stores().await;
        let held = claim("held");
        assert!(granted(&stopped, &held).await);
        let (first, second) = (
            claim("held").with_enqueue(true),
            claim("held").with_enqueue(true),
        );
        let subscription = queues(&straight, &first).await;
        let _behind = queues(&straight, &second).await;
        proxy.hold_after("EXECUTE lk_save(", 0);
        let releasing = tokio::spawn(async move { release(&*stopped, &held).await });
        until("the releaser is stopped", async || proxy.stopped() == 1).await;
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert!(!granted(&straight, &first).await);
        let began = Moment::now();
        proxy.heal();
        hinted(&subscription).await;
        let is_first = granted(&straight, &first).await;
        // A machine that was too busy for the time of a grant has shown nothing.
        if Moment::now().since(began) < Duration::from_millis(700) {
            assert!(is_first, "the first waiter lost its turn");
            assert_eq!(releasing.await.expect("no panic"), Ok(true));
            return;
        }
        let _ = releasing.await;
    }
}

/// Somebody begins to wait while the connection is made anew: the new connection listens for it as well.
#[tokio::test]
async fn a_waiter_that_comes_while_the_connection_is_made_is_told() {
    let (proxy, store, straight) = stores().await;
    let (one, two) = (claim("one"), claim("two"));
    assert!(granted(&straight, &one).await && granted(&straight, &two).await);
    let early = claim("one").with_enqueue(true);
    let _early = queues(&store, &early).await;
    proxy.hold_after("LISTEN \"lk_", 0);
    proxy.cut();
    until("the new connection is stopped", async || {
        proxy.stopped() == 1
    })
    .await;
    let late = claim("two").with_enqueue(true);
    let interest = Interest::Claim(late.name.clone(), late.id);
    let subscribing = tokio::spawn({
        let store = store.clone();
        async move { store.subscribe(interest).await }
    });
    // It may answer now or once the server does.
    tokio::time::sleep(Duration::from_millis(100)).await;
    proxy.heal();
    let subscribed = subscribing.await.expect("no panic").expect("subscribes");
    until("it waits", async || {
        let attempt = store.try_acquire(&late).await;
        matches!(attempt, Ok(Attempt::Busy { .. }))
    })
    .await;
    // Hints of the new connection come first.
    while tokio::time::timeout(Duration::from_secs(1), subscribed.hint())
        .await
        .is_ok()
    {}
    assert_eq!(release(&straight, &two).await, Ok(true));
    hinted(&subscribed).await;
}

/// The queue of notifications is full: nothing that brings one can be committed. A lock is released and handed on all the same, and the
/// waiter finds out by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_on_though_no_notification_can_be_sent() {
    let server = PostgresServer::start();
    // It takes 8 GB to fill the queue of this version. So there is a function that says what the server then says.
    server.sql(
        "CREATE USER app; GRANT CREATE ON DATABASE postgres TO app; CREATE SCHEMA filled; GRANT USAGE ON SCHEMA filled TO app; \
         CREATE FUNCTION filled.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$; \
         ALTER ROLE app SET search_path = filled, pg_catalog, public",
    );
    let keeper = async || {
        let connected = Lockkeeper::connect(&server.url_of("app")).await;
        connected.expect("connects")
    };
    let (holder, waiter) = (keeper().await, keeper().await);
    let guard = holder.lock("x").expect("a lock");
    let guard = guard.acquire().await.expect("acquires");
    let waits = waiter.lock("x").expect("a lock");
    let waits = tokio::spawn(async move { waits.acquire().await.map(drop) });
    until("it waits", async || {
        let info = holder.inspect("x").await.expect("looks");
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
    guard.release().await.expect("releases");
    waits.await.expect("no panic").expect("acquires");
}

/// A renewal that is late once the server has said that the hold is over is answered at once, and not asked for again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_becomes_late_on_its_way_is_told_so() {
    let (proxy, store, _) = stores().await;
    crate::late::renewals_become_late(&*store, &proxy).await;
}
