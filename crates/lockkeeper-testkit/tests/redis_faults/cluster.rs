//! Slots that move and masters that are replaced in a cluster, while many processes take locks there.

use std::time::Duration;

use lockkeeper_testkit::servers::redis_cluster::{ClusterOptions, RedisCluster};

use crate::crew::left_on;
use crate::crews::Crews;

/// All names are in one slot, so that whatever happens to it happens to all.
const TAG: &str = "{slot}";

/// A cluster whose replicas take over soon, but not because the machine was busy for a moment.
fn cluster() -> RedisCluster {
    RedisCluster::start_with(ClusterOptions {
        node_timeout: Duration::from_secs(4),
        ..ClusterOptions::default()
    })
}

fn leftovers(cluster: &RedisCluster) -> Vec<String> {
    cluster.each(left_on).concat()
}

#[test]
fn a_slot_moves_and_a_replica_takes_over_in_agreement_under_load() {
    let cluster = cluster();
    let mut crews = Crews::start(&cluster.url(), TAG, 1);
    let home = cluster.master_of(TAG);
    for _ in 0..4 {
        let kinds = ["MOVED", "ASK", "TRYAGAIN"];
        let before = kinds.map(|kind| cluster.errors(kind));
        let migration = cluster.begin_migration(TAG);
        migration.move_keys(1);
        std::thread::sleep(Duration::from_millis(60));
        while migration.move_keys(100) > 0 {}
        std::thread::sleep(Duration::from_millis(60));
        let to = migration.finish();
        assert_eq!(cluster.master_of(TAG), to);
        crews.healed();
        crews.work(15);
        for (kind, before) in kinds.into_iter().zip(before) {
            if cluster.errors(kind) > before {
                crews.bitten(kind);
            }
        }
    }
    assert_eq!(cluster.master_of(TAG), home, "there and back");
    let old = cluster.master_of(TAG);
    let new = cluster.fail_over(TAG);
    cluster.wait_until_ok();
    crews.healed();
    crews.work(20);
    assert_ne!(old, new);
    crews.bitten("fail-over");
    for fault in ["MOVED", "ASK", "TRYAGAIN"] {
        crews.expect(fault);
    }
    crews.finish(false, || leftovers(&cluster));
}

#[test]
fn a_master_is_killed_under_load() {
    let cluster = cluster();
    let mut crews = Crews::start(&cluster.url(), TAG, 1);
    let old = cluster.kill_master_of(TAG);
    crews.bites("killed");
    let new = cluster.successor_of(TAG, old);
    assert_ne!(old, new);
    crews.trusting_work(30);
    // The others are granted nothing before there is a replica again.
    cluster.revive(old);
    cluster.wait_until_ok();
    crews.healed();
    crews.work(50);
    crews.finish(true, || leftovers(&cluster));
}
