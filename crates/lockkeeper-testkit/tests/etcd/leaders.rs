//! A leader that others have replaced and that does not know it.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::{Guard, Lockkeeper};
use lockkeeper_testkit::servers::disk::Disk;
use lockkeeper_testkit::servers::etcd::EtcdCluster;

use super::claims::until;
use super::common::soon;

const LEASE: Duration = Duration::from_secs(3);

/// A keeper that knows one member only holds a lock there.
async fn holds_at(cluster: &EtcdCluster, member: usize, name: &str) -> (Lockkeeper, Guard) {
    let url = cluster.all()[member].url("x");
    let keeper = Lockkeeper::builder().url(&url).lease(LEASE).connect().await;
    let keeper = keeper.expect("connects");
    let lock = keeper.lock(name).expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    (keeper, guard)
}

/// Waits for the lock at the others, and for the loss at the holder: that comes first.
async fn is_lost_before_another_gets_it(cluster: &EtcdCluster, name: &str, guard: Guard) {
    let others: Vec<String> = cluster.all()[1..].iter().map(|one| one.host()).collect();
    let url = format!("etcd://{}/x", others.join(","));
    let near = soon("a connection", async {
        loop {
            // They elect one of them.
            match Lockkeeper::connect(&url).await {
                Ok(keeper) => return keeper,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let near = near.await;
    let lock = near.lock(name).expect("a lock");
    let token = guard.token();
    let next = tokio::spawn(async move {
        loop {
            if let Ok(guard) = lock.acquire().await {
                return (Moment::now(), guard);
            }
        }
    });
    let lost = soon("the loss", async {
        guard.lost().await;
        Moment::now()
    });
    let lost = lost.await;
    let (got, next) = soon("the next", next).await.expect("ends");
    assert!(lost <= got, "two held for {:?}", lost.since(got));
    assert!(next.token() > token);
    assert!(!guard.is_held());
    next.release().await.expect("releases");
}

/// A leader that stands still wakes up and goes on as it was: it does not know that it was replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_renews_nothing() {
    let cluster = EtcdCluster::start();
    cluster.elect(0);
    let (_keeper, guard) = holds_at(&cluster, 0, "stopped").await;
    cluster.all()[0].pause();
    is_lost_before_another_gets_it(&cluster, "stopped", guard).await;
    cluster.all()[0].resume();
}

/// etcd#15247, #12528: a leader whose disk stands still goes on answering for leases after the others have ended them. Here it
/// believes to lead after somebody else has the lock.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it mounts a disk, which takes root: `cargo xtask nightly` runs it"]
async fn a_leader_whose_disk_stands_still_renews_nothing() {
    let disk = Disk::new();
    let cluster = EtcdCluster::start_on(Some(disk.path()));
    cluster.elect(0);
    let (keeper, guard) = holds_at(&cluster, 0, "frozen").await;
    disk.freeze();
    // Something has to be written for it to stand still.
    let mut write = cluster.all()[0].command(&["put", "x", "y"]);
    let mut write = write.spawn().expect("starts");
    is_lost_before_another_gets_it(&cluster, "frozen", guard).await;
    // The fault bit.
    assert!(cluster.all()[0].leads(), "it knows that it was replaced");
    let lock = keeper.lock("other").expect("a lock");
    assert!(!matches!(lock.try_acquire().await, Ok(Some(_))));
    disk.thaw();
    write.wait().expect("it ends");
    until("it grants again", async || {
        matches!(lock.try_acquire().await, Ok(Some(_)))
    })
    .await;
    drop(cluster);
}
