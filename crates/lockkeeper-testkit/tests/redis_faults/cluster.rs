//! Slots that move and masters that are replaced in a cluster, while many processes take locks there.

use std::time::Duration;

use lockkeeper_testkit::retries;
use lockkeeper_testkit::servers::redis_cluster::{ClusterOptions, RedisCluster};

use crate::crew::{Crew, Watcher, left_on};
use crate::crews::{Crews, TRUSTING, believes_in_vain, shown_unsafe, victim};

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
    crews.lose_holders();
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

#[test]
fn a_lock_that_its_replica_had_not_is_granted_again_and_the_fence_holds() {
    for _ in 0..5 {
        if second_holder_is_fenced_off() {
            return;
        }
        retries::count("a victim heard of the new master too soon");
    }
    panic!("every time the victim heard of the new master before others had its lock");
}

/// False if the others did not get to work while the victims waited for their old master: nobody waits for a response for
/// longer than 10 s, and then they ask which master there is.
fn second_holder_is_fenced_off() -> bool {
    let cluster = cluster();
    let (old, replica) = cluster.pair_of(TAG);
    let mut scenes = TRUSTING.map(|kind| {
        let mut crew = Crew::at(&kind.url(&cluster.url(), TAG, 1));
        let url = crew.url();
        crew.load(2, &url);
        crew.work(30);
        let watcher = Watcher::new(&kind.strict().url(&cluster.url(), TAG, 1));
        watcher.take("b").expect("its replica confirms");
        (crew, watcher, None)
    });
    let rules = ["ACL", "SETUSER", "default", "-psync", "-sync"];
    assert_eq!(cluster.command(old, &rules), "+OK\r\n");
    let cut = cluster.command(old, &["CLIENT", "KILL", "TYPE", "replica"]);
    assert_eq!(cut, ":1\r\n");
    for (crew, watcher, slot) in &mut scenes {
        let error = watcher.take("c").expect_err("nobody confirms");
        let text = error.to_string();
        assert!(text.contains("0 of 1 replicas confirmed"), "{text}");
        // It waits for its master for so long that it does not hear of the other one.
        let url = crew.url().replace("=600ms", "=10s");
        *slot = Some(victim(crew, &url));
    }
    cluster.pause(old);
    let took = cluster.command(replica, &["CLUSTER", "FAILOVER", "TAKEOVER"]);
    assert_eq!(took, "+OK\r\n");
    let mut victims = scenes.iter_mut();
    let believed = victims.all(|(crew, _, slot)| {
        let victim = slot.as_mut().expect("there is one");
        believes_in_vain(crew, victim)
    });
    if !believed {
        return false;
    }
    scenes.iter().for_each(|(crew, _, _)| crew.work(60));
    cluster.resume(old);
    assert_eq!(
        cluster.command(old, &["ACL", "SETUSER", "default", "+@all"]),
        "+OK\r\n"
    );
    cluster.wait_until_ok();
    let scenes = scenes.map(|(crew, _, victim)| (crew, victim.expect("there is one")));
    shown_unsafe(scenes, || leftovers(&cluster));
    true
}
