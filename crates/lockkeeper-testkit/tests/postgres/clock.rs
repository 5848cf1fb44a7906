//! What a server's clock that is set back may do to a lock.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Renewal, Renewed, Store};
use lockkeeper_testkit::servers::postgres::{PostgresOptions, PostgresServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::claims::{claim_for, until};
use crate::common::open;

const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

fn with_clock() -> (WallClock, PostgresServer) {
    let wall = WallClock::new();
    let server = PostgresServer::start_with(PostgresOptions {
        environment: wall.environment(),
        ..PostgresOptions::default()
    });
    (wall, server)
}

/// A rival cuts a lease that ends later than its length allows. The length is that of the longest renewal, also if that one did not
/// move the end.
#[tokio::test]
async fn a_longer_renewal_counts_after_the_clock_was_set_back() {
    let (wall, server) = with_clock();
    let (store, rival) = (open(&server.url()).await, open(&server.url()).await);
    for (name, mode) in [("lock", Mode::Exclusive), ("book", Mode::Read)] {
        let held = claim_for(SHORT, name, mode);
        let attempt = store.try_acquire(&held).await;
        assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
        wall.behind(HOUR);
        let longer = Renewal::new(held.name.clone(), held.id, LONG, Moment::now() + LONG);
        let renewed = store.renew(&[longer]).await;
        assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
        let sent = Moment::now();
        let other = claim_for(LONG, name, Mode::Exclusive);
        let attempt = rival.try_acquire(&other).await;
        assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
        let info = rival.inspect(&held.name).await.expect("looks");
        let holder = &info.expect("it is held").holders[0];
        let end = Moment::now() + holder.remaining.expect("it has an end");
        assert!(end >= sent + LONG, "{name}: {holder:?}");
        wall.ahead(Duration::ZERO);
    }
}

/// A server that sits out does so for the longest lease, and not for as long as its clock went back.
#[tokio::test]
async fn a_server_whose_clock_was_set_back_sits_out_no_longer() {
    let (wall, mut server) = with_clock();
    let store = open(&server.url()).await;
    server.stop_at_once();
    server.restart();
    let wants = claim_for(LONG, "wants", Mode::Exclusive).with_not_after(Moment::NEVER);
    until("it sits out", async || {
        let attempt = store.try_acquire(&wants).await;
        matches!(attempt, Ok(Attempt::Busy { .. }))
    })
    .await;
    assert!(store.health().ready_in > LONG / 3);
    wall.behind(HOUR);
    until("it sits out for the longest lease", async || {
        let attempt = store.try_acquire(&wants).await;
        let ready_in = store.health().ready_in;
        matches!(attempt, Ok(Attempt::Busy { .. })) && (LONG / 3..LONG + SHORT).contains(&ready_in)
    })
    .await;
}
