//! What is too large, what is empty, and what somebody deletes by hand.

use std::time::Duration;

use lockkeeper::store::{Break, BreakOutcome, BreakTarget, Interest, Mode, Renewed, Store};
use lockkeeper::{Error, Lockkeeper, Name};
use lockkeeper_testkit::servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lockkeeper_testkit::servers::zookeeper_session::ZooKeeperSession;

use super::claims::{break_all, break_of, claim_for, release, renewal_for};
use super::common::{busy, granted, in_the_end, open, soon};

const LEASE: Duration = Duration::from_secs(60);

async fn no_node(server: &ZooKeeperServer) {
    soon("no node", async {
        while server.ephemerals() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A server ends the connection of a client that sends it more than `jute.maxbuffer`: none does.
#[tokio::test(flavor = "multi_thread")]
async fn more_permits_than_a_request_takes_are_refused_and_told() {
    let server = ZooKeeperServer::start();
    let store = open(&server.url("x")).await;
    let many = Mode::Permit {
        limit: 100_000,
        count: 20_000,
    };
    for enqueue in [false, true] {
        let claim = claim_for(LEASE, "pool", many).with_enqueue(enqueue);
        let tried = soon("an answer", store.try_acquire(&claim)).await;
        let Err(Error::Refused { reason, .. }) = &tried else {
            panic!("{tried:?}");
        };
        assert!(reason.contains("20000 permits"), "{reason}");
    }
    no_node(&server).await;
    // Many holds with many nodes are renewed in as many requests as it takes, also with a lease that has to be written.
    let some = Mode::Permit {
        limit: 100_000,
        count: 500,
    };
    let claims: Vec<_> = (0..10).map(|_| claim_for(LEASE, "pool", some)).collect();
    for claim in &claims {
        granted(&store, claim).await;
    }
    let longer = LEASE + Duration::from_secs(10);
    let renewals: Vec<_> = claims
        .iter()
        .map(|claim| renewal_for(longer, claim))
        .collect();
    let renewed = soon("an answer", store.renew(&renewals)).await;
    assert_eq!(renewed.expect("answers"), [Renewed::Renewed; 10]);
    let ended = soon("an answer", break_all(&store, &claims[0])).await;
    assert_eq!(ended.len(), 10);
    no_node(&server).await;
}

/// An administrator has lowered `jute.maxbuffer`: the server ends the connection instead of answering a long renewal.
#[tokio::test(flavor = "multi_thread")]
async fn holds_are_renewed_where_requests_have_to_be_short() {
    let server = ZooKeeperServer::start_with(ZooKeeperOptions {
        properties: vec![("jute.maxbuffer".into(), "12000".into())],
        ..ZooKeeperOptions::default()
    });
    let store = open(&server.url("x")).await;
    let claims: Vec<_> = (0..300)
        .map(|number| claim_for(LEASE, &format!("n{number}"), Mode::Exclusive))
        .collect();
    for claim in &claims {
        granted(&store, claim).await;
    }
    let renewals: Vec<_> = claims
        .iter()
        .map(|claim| renewal_for(LEASE, claim))
        .collect();
    let renewed = soon("an answer", store.renew(&renewals)).await;
    let renewed = renewed.expect("answers");
    assert!(
        renewed.iter().all(|one| *one == Renewed::Renewed),
        "{renewed:?}"
    );
}

/// A claim for no permits has no node, so there is nothing to hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_for_no_permits_is_refused() {
    let server = ZooKeeperServer::start();
    let store = open(&server.url("x")).await;
    let claim = claim_for(LEASE, "pool", Mode::Permit { limit: 2, count: 0 });
    let tried = store.try_acquire(&claim).await;
    assert!(
        matches!(tried, Err(Error::InvalidArgument { .. })),
        "{tried:?}"
    );
    no_node(&server).await;
}

/// Somebody deletes one of the nodes of a hold or of a waiter. The others go, too, and the keeper is told.
#[tokio::test(flavor = "multi_thread")]
async fn where_one_node_is_deleted_by_hand_none_is_left() {
    let server = ZooKeeperServer::start();
    let hand = ZooKeeperSession::open(server.port(), Duration::from_secs(200));
    let url = format!("{}&also=rw,kazoo", server.url("x"));
    for which in 0..3 {
        let keeper = Lockkeeper::connect(&url).await.expect("connects");
        let lock = keeper.lock("a").expect("a lock");
        let guard = lock.acquire().await.expect("acquires");
        let nodes = hand.children("/x/a");
        assert_eq!(nodes.len(), 3);
        // Not before it is watched.
        soon("watches", async {
            while server.watches() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        hand.delete(&format!("/x/a/{}", nodes[which]))
            .expect("deletes");
        soon("the loss", guard.lost()).await;
        no_node(&server).await;
    }
    // Straight to the store: whichever verb finds it out.
    let store = open(&url).await;
    let gone = async |wait: bool| {
        let holder = claim_for(LEASE, "a", Mode::Exclusive);
        let claim = claim_for(LEASE, "a", Mode::Exclusive).with_enqueue(true);
        if wait {
            granted(&store, &holder).await;
            let _ = store.try_acquire(&claim).await;
        } else {
            granted(&store, &claim).await;
        }
        let uuid = super::common::node_uuid(claim.id);
        let nodes = hand.children("/x/a");
        let mine = nodes.iter().find(|node| node.contains(&uuid.to_string()));
        hand.delete(&format!("/x/a/{}", mine.expect("its node")))
            .expect("deletes");
        (holder, claim)
    };
    for wait in [false, true] {
        let (holder, claim) = gone(wait).await;
        let _ = store.try_acquire(&claim).await;
        let _ = release(&store, &holder).await;
        store
            .withdraw(&claim.name, claim.id)
            .await
            .expect("withdraws");
        no_node(&server).await;
    }
}

/// Curator's way to ask a holder to let go is to write that into its node. Ours goes on, and so does the line.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_to_let_go_in_a_node_is_not_obeyed() {
    let server = ZooKeeperServer::start();
    let hand = ZooKeeperSession::open(server.port(), Duration::from_secs(200));
    let (store, other) = (open(&server.url("x")).await, open(&server.url("x")).await);
    let permit = Mode::Permit { limit: 1, count: 1 };
    for (name, mode, next) in [
        ("lock", Mode::Exclusive, Mode::Exclusive),
        ("writer", Mode::Write, Mode::Read),
        ("reader", Mode::Read, Mode::Write),
        ("permit", permit, permit),
    ] {
        let held = claim_for(LEASE, name, mode);
        let grant = granted(&store, &held).await;
        let waiting = claim_for(LEASE, name, next).with_enqueue(true);
        busy(&other, &waiting).await;
        let mut asked = 0;
        for folder in ["", "/locks", "/leases"] {
            let folder = format!("/x/{name}{folder}");
            for node in hand.children(&folder) {
                let asks = node.starts_with("_c_");
                if asks {
                    hand.set_data(&format!("{folder}/{node}"), b"__REVOKE__")
                        .expect("writes");
                }
                asked += usize::from(asks);
            }
        }
        assert_eq!(asked, 2, "{name}");
        let renewed = store.renew(&[renewal_for(LEASE, &held)]).await;
        assert_eq!(renewed.expect("answers"), [Renewed::Renewed], "{name}");
        busy(&other, &waiting).await;
        assert!(release(&store, &held).await.expect("releases"), "{name}");
        let after = in_the_end(&other, &waiting).await;
        assert!(after.token > grant.token, "{name}");
        assert!(release(&other, &waiting).await.expect("releases"), "{name}");
    }
    no_node(&server).await;
}

/// The first thing that happens below a chroot is a break.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_with_native_tokens_can_be_broken() {
    let server = ZooKeeperServer::start();
    let native = format!("{}&tokens=native", server.url("n"));
    let store = open(&native).await;
    let claim = claim_for(LEASE, "a", Mode::Exclusive);
    let empty = Break::new(
        Name::new("b").expect("a name"),
        BreakTarget::All,
        "nobody",
        claim.not_after,
    );
    let broken = store.break_lock(&empty).await;
    assert!(
        matches!(&broken, Ok(BreakOutcome::Ended(ended)) if ended.is_empty()),
        "{broken:?}"
    );
    let hints = store
        .subscribe(Interest::Keeper(claim.id.keeper))
        .await
        .expect("subscribes");
    let grant = granted(&store, &claim).await;
    let broken = store.break_lock(&break_of(&claim)).await;
    assert!(
        matches!(&broken, Ok(BreakOutcome::Ended(ended)) if ended.len() == 1),
        "{broken:?}"
    );
    soon("the keeper is told", hints.hint()).await;
    let info = store.inspect(&claim.name).await.expect("answers");
    assert_eq!(
        info.expect("a record").broken.expect("a break").reason,
        "a test"
    );
    let next = claim_for(LEASE, "a", Mode::Exclusive);
    assert!(granted(&store, &next).await.token > grant.token);
    assert!(release(&store, &next).await.expect("releases"));
    // Others count from the clock below the same chroot.
    let usual = open(&server.url("n")).await;
    let claim = claim_for(LEASE, "a", Mode::Exclusive);
    assert!(granted(&usual, &claim).await.token > grant.token);
}
