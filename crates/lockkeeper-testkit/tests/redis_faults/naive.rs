//! Each naive lock in the scene that shows its mistake, and ours in the same scene.
//!
//! A harness that has never been red proves nothing: the checker that passes ours flags every one of these.

use std::time::Duration;

use lockkeeper_testkit::checker::FaultKind::*;
use lockkeeper_testkit::checker::{Demands, FaultKind, Verdict};
use lockkeeper_testkit::history::{Event, Fault};
use lockkeeper_testkit::naive::{MISTAKES, Mistake};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::retries;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::world::{LEASE, World, at_once, demands, judged};

/// What is in every request about the lock: its name.
const ABOUT_THE_LOCK: &str = "$1\r\na\r\n";

/// Runs a scene with a naive lock, which has to be caught by its rule, and with ours, which has to pass and to have
/// seen the fault.
fn caught<const N: usize>(mistake: Mistake, faults: [FaultKind; N], scene: fn(&mut World)) {
    let mut all = MISTAKES.iter();
    let (_, name, rule) = all.find(|(of, ..)| *of == mistake).expect("it is listed");
    at_once([*name, "ours"], |lock| {
        let faults = faults.iter().map(|fault| (fault.clone(), 1));
        let demands = Demands {
            faults: faults.collect(),
            ..demands()
        };
        let mut verdict = judge(lock, scene, &demands);
        // On a busy machine the fault may come too late to bite: that says nothing of the lock. A naive lock may also
        // stumble over another of its races first.
        for _ in 0..2 {
            let conclusive = match lock {
                "ours" => !matches!(verdict, Verdict::Invalid(_)),
                _ => verdict.breaks(*rule),
            };
            if conclusive {
                break;
            }
            println!("{lock}: {verdict}; once more");
            retries::count("a history proved nothing");
            verdict = judge(lock, scene, &demands);
        }
        match lock {
            "ours" => drop(verdict.expect_valid()),
            _ => assert!(verdict.breaks(*rule), "{lock} was not caught: {verdict}"),
        }
    });
}

fn judge(lock: &str, scene: fn(&mut World), demands: &Demands) -> Verdict {
    let mut world = World::of(lock);
    scene(&mut world);
    let events: Vec<Event> = world.finish();
    print!("{lock}: ");
    judged(&events, demands)
}

impl World {
    fn is_ours(&self) -> bool {
        self.lock == "ours"
    }

    /// Load at work for a while, if the lock still lets it.
    fn goes_on(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Work enough for a run that proves something, unless the lock is stuck.
    fn enough(&self) {
        if self.is_ours() || self.lock == "right" {
            self.work(60);
        }
    }

    fn stopped(&self, victim: &Taker) {
        victim.stop().expect("is stopped");
        let process = "victim".into();
        self.driver.fault(Fault::Stopped { process });
    }

    /// A process beside the load that holds, and is told what to do.
    fn victim(&self, url: &str, more: &[&str]) -> Taker {
        let victim = self.holder("victim", url, "1s", more);
        victim.expect("held");
        victim
    }
}

fn tell(taker: &mut Taker, line: &str) {
    taker.tell(line).expect("listens");
}

/// Lets go, whatever comes of it.
fn leave(mut taker: Taker) {
    tell(&mut taker, "release");
    taker.expect_one(&["released", "still-held", "not-held", "release-unknown"]);
    assert!(taker.wait().expect("ends"));
}

#[test]
fn no_expiry() {
    caught(Mistake::NoExpiry, [HolderKilled], |world| {
        world.busy(2, 50);
        let mut victim = world.victim(&world.url(), &[]);
        let process = "victim".into();
        world.driver.fault(Fault::Killed { process });
        victim.kill().expect("is killed");
        // Longer than it may linger, and for those who wait to ask once more.
        world.goes_on(Duration::from_millis(5_500));
        world.enough();
    });
}

/// A process that took the lock, and whose next request is on its way.
fn takes_with_one_request(world: &World) -> Taker {
    let victim = world.victim(&world.proxied(), &[]);
    world.proxy.hold_after(ABOUT_THE_LOCK, 0);
    world.until("it asks something", || world.proxy.stopped() > 0);
    victim
}

/// A process whose `SETNX` succeeded, and whose `PEXPIRE` is on its way.
fn takes_with_two(world: &World) -> Taker {
    world.proxy.hold_after("PEXPIRE", 0);
    let victim = world.holder("victim", &world.proxied(), "1s", &[]);
    world.until("it asks something", || world.proxy.stopped() > 0);
    victim
}

#[test]
fn expire_later() {
    caught(Mistake::ExpireLater, [HolderKilled], |world| {
        world.busy(2, 50);
        let mut victim = match world.is_ours() {
            true => takes_with_one_request(world),
            false => takes_with_two(world),
        };
        world.driver.fault(Fault::Killed {
            process: "victim".into(),
        });
        victim.kill().expect("is killed");
        // What was on its way is lost.
        world.proxy.cut();
        world.proxy.heal();
        world.goes_on(Duration::from_millis(5_500));
        world.enough();
    });
}

/// It slept through the end of its lease, and wakes up while somebody else holds.
fn oversleeps(world: &mut World) -> (Taker, Taker) {
    world.busy(2, 50);
    let victim = world.victim(&world.url(), &[]);
    world.stopped(&victim);
    let next = world.holder("next", &world.url(), "1s", &[]);
    next.expect("held");
    victim.go_on().expect("goes on");
    (victim, next)
}

/// Its release comes while somebody else holds.
fn releases_late(world: &mut World) {
    let (victim, next) = oversleeps(world);
    leave(victim);
    world.goes_on(Duration::from_millis(200));
    leave(next);
    world.enough();
}

#[test]
fn del_by_anyone() {
    caught(
        Mistake::DelByAnyone,
        [HolderStopped, HoldExpired],
        releases_late,
    );
}

#[test]
fn shared_owner() {
    caught(
        Mistake::SharedOwner,
        [HolderStopped, HoldExpired],
        releases_late,
    );
}

#[test]
fn get_then_del() {
    caught(Mistake::GetThenDel, [], |world| {
        world.busy(2, 50);
        let mut victim = world.victim(&world.proxied(), &["--fixed", "yes"]);
        // Its look passes, and what follows is late. Ours has nothing to pass before.
        let looks = if world.is_ours() { 0 } else { 1 };
        world.proxy.hold_after(ABOUT_THE_LOCK, looks);
        tell(&mut victim, "release");
        world.until("it is held up", || world.proxy.stopped() > 0);
        let next = world.holder("next", &world.url(), "1s", &[]);
        next.expect("held");
        world.proxy.heal();
        victim.expect_one(&["released", "not-held", "release-unknown"]);
        world.goes_on(Duration::from_millis(200));
        leave(next);
        assert!(victim.wait().expect("ends"));
        world.enough();
    });
}

#[test]
fn deadline_from_reply() {
    caught(Mistake::DeadlineFromReply, [HoldExpired], |world| {
        world.busy(2, 50);
        world.proxy.replies(Way::Slow(LEASE * 3 / 10));
        let victim = world.holder("victim", &world.proxied(), "2s", &["--fixed", "yes"]);
        // Slow enough that what it believes is longer than what it has.
        victim.expect("held");
        world.proxy.heal();
        world.goes_on(Duration::from_millis(2_500));
        leave(victim);
        world.enough();
    });
}

#[test]
fn wall_clock_deadline() {
    caught(Mistake::WallClockDeadline, [HoldExpired], |world| {
        world.busy(2, 50);
        let clock = WallClock::new();
        let (url, environment) = (world.url(), clock.environment());
        // Long enough for the clock to be set before it ends, however busy the machine is.
        let lease = Duration::from_secs(3);
        let victim = world.holder_in("victim", &url, "3s", &["--fixed", "yes"], environment);
        victim.expect("held");
        clock.behind(Duration::from_secs(3600));
        world.goes_on(lease + LEASE);
        leave(victim);
        world.enough();
    });
}

/// Its renewal comes while somebody else holds.
fn renews_late(world: &mut World) {
    let (victim, next) = oversleeps(world);
    world.goes_on(LEASE);
    leave(next);
    world.goes_on(LEASE);
    leave(victim);
    world.enough();
}

#[test]
fn renew_anyones() {
    caught(
        Mistake::RenewAnyones,
        [HolderStopped, HoldExpired],
        renews_late,
    );
}

#[test]
fn renew_recreates() {
    caught(
        Mistake::RenewRecreates,
        [HolderStopped, HoldExpired],
        |world| {
            world.busy(1, 50);
            let victim = world.victim(&world.url(), &[]);
            world.stopped(&victim);
            world.until("its lease is over", || {
                let left = world.server.strings(&["PTTL", "a"]);
                left == ["-2"] || world.written() > 60
            });
            world.goes_on(LEASE);
            // Nobody is in its way when it wakes up.
            let load = world.taker(0);
            load.stop().expect("is stopped");
            world.driver.fault(Fault::Stopped {
                process: "load1".into(),
            });
            std::thread::sleep(LEASE * 2);
            victim.go_on().expect("goes on");
            std::thread::sleep(LEASE);
            let load = world.taker(0);
            load.go_on().expect("goes on");
            leave(victim);
            world.enough();
        },
    );
}

#[test]
fn swallow_errors() {
    caught(Mistake::SwallowErrors, [HoldExpired], |world| {
        world.busy(2, 50);
        let victim = world.victim(&world.proxied(), &[]);
        world.proxy.black_hole();
        world.goes_on(LEASE * 3);
        world.proxy.heal();
        world.proxy.cut();
        leave(victim);
        world.enough();
    });
}

#[test]
fn unfenced() {
    caught(Mistake::Unfenced, [HolderStopped, WriteRefused], |world| {
        world.busy(2, 50);
        let mut victim = world.victim(&world.url(), &[]);
        tell(&mut victim, "read");
        victim.expect("read");
        world.stopped(&victim);
        world.work(10);
        victim.go_on().expect("goes on");
        tell(&mut victim, "write");
        victim.expect_one(&["accepted", "refused"]);
        leave(victim);
        world.enough();
    });
}

#[test]
fn reentry_off_by_one() {
    caught(Mistake::ReentryOffByOne, [], |world| {
        world.busy(2, 50);
        let mut victim = world.victim(&world.url(), &[]);
        tell(&mut victim, "again");
        victim.expect("again 2");
        tell(&mut victim, "leave");
        victim.expect_one(&["still-held", "released"]);
        world.goes_on(Duration::from_millis(300));
        leave(victim);
        world.enough();
    });
}

#[test]
fn fence_restarts() {
    caught(Mistake::FenceRestarts, [], |world| {
        // Every release is enough.
        let url = world.url();
        world.load(2, &url);
        world.goes_on(Duration::from_millis(500));
        world.enough();
        world.enough();
    });
}

#[test]
fn claim_reused() {
    caught(Mistake::ClaimReused, [], |world| {
        // One task a process: what confuses it is its own late release.
        world.tasks = 1;
        world.busy(3, 50);
        let mut victim = world.victim(&world.proxied(), &["--fixed", "yes"]);
        world.proxy.hold_after(ABOUT_THE_LOCK, 0);
        tell(&mut victim, "release");
        // It gives up on the answer, and takes the lock again: over a connection of its own.
        victim.expect("release-unknown");
        tell(&mut victim, "acquire");
        victim.expect("held");
        // Now the release arrives.
        world.proxy.heal();
        world.goes_on(Duration::from_millis(400));
        leave(victim);
        world.enough();
    });
}

#[test]
fn pushed_from_arrival() {
    caught(Mistake::PushedFromArrival, [], |world| {
        let (url, proxied) = (world.url(), world.proxied());
        let fixed = ["--fixed", "yes"];
        world.busy(1, 50);
        let first = world.victim(&url, &fixed);
        let second = world.holder("second", &proxied, "1s", &fixed);
        world.goes_on(Duration::from_millis(150));
        world.proxy.replies(Way::Held);
        leave(first);
        // The news that it holds is as old as most of a lease when it comes.
        world.goes_on(LEASE * 8 / 10);
        world.proxy.heal();
        second.expect_one(&["held", "failed"]);
        world.goes_on(LEASE);
        leave(second);
        world.enough();
    });
}

/// A replica that hears nothing, in front of which the master dies. Ours asks for a replica to confirm.
#[test]
fn wait_ignored() {
    at_once(["wait-ignored", "wait-heeded", "ours"], |lock| {
        let mut world = match lock {
            "ours" => World::new("?replicas=1"),
            lock => World::of(lock),
        };
        let link = Proxy::to(world.server.port());
        let replica = RedisServer::start_with(RedisOptions {
            lines: vec![format!("replicaof 127.0.0.1 {}", link.port())],
            ..RedisOptions::default()
        });
        world.until("the replica is in sync", || {
            let info = replica.command(&["INFO", "replication"]);
            info.contains("master_link_status:up")
        });
        let url = world.proxied();
        world.load(2, &url);
        world.work(60);
        link.black_hole();
        let patience = if lock == "wait-ignored" { "30s" } else { "1s" };
        let mut victim = world.holder("victim", &url, "3s", &["--patience", patience]);
        let held = victim
            .expect_one(&["held", "busy", "failed"])
            .starts_with("held");
        assert_eq!(held, lock == "wait-ignored", "{lock}");
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        world.server.kill();
        world.proxy.point_to(replica.port());
        world.proxy.cut();
        world.driver.fault(Fault::Other("fail-over".into()));
        // The new master asks nobody's replica: one that follows it now confirms.
        let _second = RedisServer::start_with(RedisOptions {
            lines: vec![format!("replicaof 127.0.0.1 {}", replica.port())],
            ..RedisOptions::default()
        });
        world.work(60);
        victim.kill().expect("is killed");
        world.driver.fault(Fault::Killed {
            process: "victim".into(),
        });
        world.server.restart();
        let events = world.finish();
        print!("{lock}: ");
        // While the replica is silent nobody gets the lock: that is the price, not a fault.
        let demands = Demands {
            linger: None,
            ..demands()
        };
        let verdict = judged(&events, &demands);
        match lock {
            "wait-heeded" | "ours" => drop(verdict.expect_valid()),
            _ => {
                let rule = MISTAKES.iter().find(|(_, name, _)| *name == lock);
                let (.., rule) = rule.expect("it is listed");
                assert!(verdict.breaks(*rule), "{verdict}");
            }
        }
    });
}

/// The recipe without a mistake passes: what is flagged is the mistake and nothing else.
#[test]
fn the_recipe_done_right_passes() {
    at_once([releases_late as fn(&mut World), renews_late], |scene| {
        judge("right", scene, &demands()).expect_valid();
    });
}

/// Every mistake has a scene.
#[test]
fn every_mistake_has_its_test() {
    let source = include_str!("naive.rs");
    for (_, name, _) in MISTAKES {
        let test = format!("fn {}()", name.replace('-', "_"));
        assert!(source.contains(&test), "no test for {name}");
        assert!(Mistake::named(name).is_some());
    }
}
