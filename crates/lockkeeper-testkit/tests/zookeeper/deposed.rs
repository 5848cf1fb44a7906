//! A leader whose followers have elected another, and that does not know it: it answers reads, and even `sync`. Nobody may act upon
//! what it says of the past.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::zookeeper::ZooKeeperStore;
use lockkeeper::store::{BreakOutcome, LatchOp, LatchRequest, LatchState, Mode, Store};
use lockkeeper::{Error, Name};
use lockkeeper_testkit::servers::zookeeper::Ensemble;
use lockkeeper_testkit::servers::zookeeper_session::{NO_NODE, ZooKeeperSession};

use super::claims::{break_of, claim_for};
use super::common::{granted, open, soon};
use super::parted::{patient, started};

/// The server that goes on leading alone.
const OLD: usize = 2;
/// No session ends meanwhile: its end is a transaction, and behind one that nobody commits even `sync` is not answered.
const SESSION: Duration = Duration::from_secs(200);

/// Two servers with a leader of their own, and the old leader without them.
struct Scene {
    servers: Ensemble,
    /// At the new leader.
    near: ZooKeeperStore,
    /// At the old leader.
    far: ZooKeeperStore,
    /// At the old leader, and believes what it says.
    naive: ZooKeeperSession,
}

impl Scene {
    async fn begin() -> Scene {
        let servers = started([patient(6), patient(6), patient(90)], Some(OLD)).await;
        let store = async |server: usize| {
            let port = servers.all()[server].port();
            open(&format!(
                "zk://127.0.0.1:{port}/x?session_timeout=200s&timeout=2s&connect_timeout=2s"
            ))
            .await
        };
        let far = store(OLD).await;
        let naive = ZooKeeperSession::open(servers.all()[OLD].port(), SESSION);
        servers.cut_off(OLD);
        soon("another leader", async {
            while !servers.leads(0) && !servers.leads(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let new = usize::from(!servers.leads(0));
        Scene {
            near: store(new).await,
            far,
            naive,
            servers,
        }
    }

    /// The old leader knows nothing of what was done since.
    fn is_of_the_past(&self, path: &str) {
        assert!(self.servers.leads(OLD), "it has stepped down");
        let read = self.naive.data(path).map(|_| ());
        assert_eq!(read, Err(NO_NODE), "it knows {path}");
    }
}

fn latch(op: LatchOp) -> LatchRequest {
    let id = claim_for(SESSION, "ready", Mode::Exclusive).id;
    let name = Name::new("ready").expect("a name");
    LatchRequest::new(name, id, op, Moment::now() + Duration::from_secs(60))
}

#[track_caller]
fn unknown_or(told: &Result<LatchState, Error>, is_right: impl Fn(&LatchState) -> bool) {
    match told {
        Ok(state) => assert!(is_right(state), "it said {state:?}"),
        Err(error) => assert!(error.is_transient(), "{error}"),
    }
}

/// Nobody is let through a latch that was closed since, and no count is thrown away because it seems to be open.
#[tokio::test(flavor = "multi_thread")]
async fn a_latch_that_a_deposed_leader_takes_for_open_lets_nobody_through() {
    let scene = Scene::begin().await;
    let set = scene.near.latch(&latch(LatchOp::Set(2))).await;
    assert_eq!(set.expect("is set").count, 2);
    let (read, down) = (latch(LatchOp::Read), latch(LatchOp::CountDown));
    let (read, down) = tokio::join!(scene.far.latch(&read), scene.far.latch(&down));
    scene.is_of_the_past("/x/.latches/ready");
    unknown_or(&read, |state| state.count > 0);
    unknown_or(&down, |state| state.changed);
    let count = scene.near.latch(&latch(LatchOp::Read)).await;
    assert_eq!(count.expect("is read").count, 2);
}

/// Nobody is told that nobody holds what was taken since.
#[tokio::test(flavor = "multi_thread")]
async fn a_break_at_a_deposed_leader_does_not_say_that_nobody_holds() {
    let scene = Scene::begin().await;
    let claim = claim_for(Duration::from_secs(100), "a", Mode::Exclusive);
    granted(&scene.near, &claim).await;
    let broken = scene.far.break_lock(&break_of(&claim)).await;
    scene.is_of_the_past("/x/a");
    match &broken {
        Ok(BreakOutcome::Ended(ended)) => assert!(!ended.is_empty(), "it said that nobody holds"),
        Ok(BreakOutcome::TooLate) => {}
        Ok(other) => panic!("{other:?}"),
        Err(error) => assert!(error.is_transient(), "{error}"),
    }
}
