//! One holder that something happens to, with others working on. Two may *believe* to hold; the fence tells them apart.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, FaultKind};
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::servers::redis::RedisOptions;
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::victim::*;
use crate::world::{LEASE, World, at_once, demands, in_both_dialects};

/// For so long.
#[track_caller]
fn nobody_else_works(world: &World, time: Duration) {
    let before = world.written();
    std::thread::sleep(time);
    assert_eq!(world.written(), before, "somebody else was let in");
}

#[test]
fn a_stopped_holder_is_fenced_off_and_never_believes_again() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        oversleeps(&mut world);
        let demands = refused().fault(FaultKind::HolderStopped, 1);
        world.passes(&demands);
    });
}

/// From a majority: what it has left is no lock.
#[test]
fn a_holder_cut_off_is_told_in_time_and_fenced_off() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        world.busy(2, 30);
        let way = world.way();
        let mut victim = victim(&world, &way.url(), "1s", &[]);
        for proxy in &way.proxies[1..4] {
            proxy.black_hole();
        }
        victim.expect("lost");
        world.work(60);
        world.bitten("cut off");
        let healed = Moment::now();
        way.heal();
        way.cut();
        world.healed();
        is_fenced_off(&mut victim, healed);
        frees_nothing(&mut victim);
        world.work(30);
        let demands = refused().fault(FaultKind::Other("cut off".into()), 1);
        world.passes(&demands);
    });
}

/// Cut off from a minority, it goes on; the watchdog does its work for as long as the work takes.
#[test]
fn work_longer_than_the_lease_goes_on_with_most_nodes() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        world.busy(2, 50);
        let way = world.way();
        let mut victim = victim(&world, &way.url(), "1s", &[]);
        // More than a bare majority: what it has on those two, it can miss.
        world.until("it is on every node", || world.all_agree());
        way.proxies[0].black_hole();
        way.proxies[4].refuse();
        world.bitten("two gone");
        nobody_else_works(&world, LEASE * 4);
        ends_well(&mut victim);
        way.heal();
        world.healed();
        world.work(60);
        let demands = demands().linger(LEASE * 10);
        let demands = demands.fault(FaultKind::Other("two gone".into()), 1);
        world.passes(&demands);
    });
}

/// Renewal brings the hold back to a node that lost it, so that others may go afterwards.
#[test]
fn a_hold_is_taken_back_to_a_node_that_forgot_it() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE * 3, query);
        let url = world.url();
        world.busy(2, 50);
        let mut victim = victim(&world, &url, "3s", &[]);
        world.until("it is on every node", || world.all_agree());
        world.nodes.server(2).restart_empty();
        world.bitten("restart");
        assert!(!world.all_agree());
        world.until("it is there again", || world.all_agree());
        world.nodes.server(0).kill();
        world.bitten("another down");
        nobody_else_works(&world, LEASE * 4);
        ends_well(&mut victim);
        world.nodes.server(0).restart_empty();
        world.healed();
        world.work(60);
        let demands = demands().fault(FaultKind::Other("restart".into()), 1);
        world.passes(&demands);
    });
}

/// The next one has the lock at most a lease and half a second later, and a wide margin for a busy machine.
#[test]
fn a_killed_holder_is_followed_after_its_lease() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE * 2, query);
        let url = world.url();
        let mut victim = victim(&world, &url, "2s", &[]);
        let mut next = world.holder("next", &url, "2s", &[]);
        world.until("it waits", || waits(&world));
        let process = "victim".into();
        world.driver.fault(Fault::Killed { process });
        let killed = Moment::now();
        victim.kill().expect("is killed");
        next.expect("held");
        let took = Moment::now().since(killed);
        let target = LEASE * 2 + Duration::from_millis(500);
        println!("the next grant came after {took:?}, where {target:?} is the target");
        assert!(took < target + Duration::from_secs(3), "{took:?}");
        told(&mut next, "release", "released");
        assert!(next.wait().expect("ends"));
        world.load(2, &url);
        world.work(120);
        let demands = demands().fault(FaultKind::HolderKilled, 1);
        world.passes(&demands);
    });
}

/// Whether somebody listens for a release on most nodes; who polls is given a moment.
fn waits(world: &World) -> bool {
    let listens = |patterns: Vec<String>| patterns != ["0"];
    let nodes = world.nodes.servers().iter();
    let listening = nodes.filter(|node| {
        listens(node.strings(&["PUBSUB", "NUMPAT"]))
            || !node.strings(&["PUBSUB", "CHANNELS"]).is_empty()
    });
    if world.url().contains("plain") {
        std::thread::sleep(Duration::from_millis(300));
        return true;
    }
    listening.count() >= 3
}

/// Held on A, B and C of five; C restarts empty. A client that reaches C, D and E must not get it, because C sits out; with
/// quarantine switched off it does, and only the fence is left.
#[test]
fn a_node_that_forgot_the_lock_does_not_give_it_to_another() {
    let lease = LEASE * 6;
    let quarantine = ["", "&dialect=plain"].map(|query| (query, true));
    let none = ["", "&dialect=plain"].map(|query| (query, false));
    at_once(
        [quarantine[0], quarantine[1], none[0], none[1]],
        |(query, quarantine)| {
            let query = match quarantine {
                true => query.to_owned(),
                false => format!("{query}&quarantine=off"),
            };
            let mut world = World::new(5, lease, &query);
            world.busy(2, 50);
            let (first, last) = (world.way(), world.way());
            first.only(&[0, 1, 2]);
            last.only(&[2, 3, 4]);
            // Not renewed, so that it believes until the end whatever is done to its nodes.
            let mut victim = victim(&world, &first.url(), "6s", &["--fixed", "yes"]);
            let held = Moment::now();
            // The load would be let in as well. What it has tried in vain is over soon.
            for number in 0..2 {
                world.stop_load(number);
            }
            world.until("three nodes have it", || world.nodes.count_key("a") == 3);
            world.nodes.server(2).restart_empty();
            world.bitten("restart");
            let brief = ["--patience", "2s"];
            let mut other = world.holder("other", &last.url(), "1s", &brief);
            let got = other.expect_one(&["held", "busy", "failed"]);
            assert!(Moment::now().since(held) < lease, "too slow to tell");
            assert_eq!(got.starts_with("held"), !quarantine, "{got}");
            told(&mut victim, "is-held", "is-held true");
            if !quarantine {
                told(&mut other, "read", "read");
                told(&mut other, "write", "accepted");
                told(&mut victim, "write", "refused");
                told(&mut other, "release", "released");
            }
            victim.expect("lost");
            if quarantine {
                // The lock is over, and C is old enough in time.
                world.until("it is let in", || {
                    other.tell("acquire").expect("listens");
                    let got = other.expect_one(&["held", "busy", "failed"]);
                    got.starts_with("held")
                });
                told(&mut other, "release", "released");
            }
            assert!(other.wait().expect("ends"));
            frees_nothing(&mut victim);
            for number in 0..2 {
                world.taker(number).go_on().expect("goes on");
            }
            world.healed();
            world.work(60);
            match quarantine {
                false => shown_unsafe_but_fenced(&world.finish()),
                true => {
                    let demands = demands().linger(lease * 2);
                    let demands = demands.fault(FaultKind::Other("restart".into()), 1);
                    world.passes(&demands);
                }
            }
        },
    );
}

fn with_clocks(query: &str) -> (World, Vec<WallClock>) {
    let clocks: Vec<WallClock> = (0..5).map(|_| WallClock::new()).collect();
    let options = clocks.iter().map(|clock| RedisOptions {
        environment: clock.environment(),
        ..RedisOptions::default()
    });
    let world = World::with(options.collect(), LEASE * 4, query);
    (world, clocks)
}

/// Two of five are set ahead of a lease that all five had: the other three say no.
#[test]
fn clocks_of_a_minority_set_forward_let_nobody_in() {
    in_both_dialects(|query| {
        let (mut world, clocks) = with_clocks(query);
        let url = world.url();
        world.busy(2, 50);
        let mut victim = victim(&world, &url, "4s", &[]);
        world.until("it is on every node", || world.all_agree());
        for clock in &clocks[..2] {
            clock.ahead(Duration::from_secs(90));
        }
        world.bitten("set forward");
        nobody_else_works(&world, LEASE * 5);
        ends_well(&mut victim);
        world.healed();
        world.work(60);
        let demands = demands().linger(LEASE * 10);
        let demands = demands.fault(FaultKind::Other("set forward".into()), 1);
        world.passes(&demands);
    });
}

/// Three of five: more than a quorum can bear. Two may hold, and the fence keeps them apart.
#[test]
fn clocks_of_a_majority_set_forward_let_a_second_holder_in_and_tokens_still_grow() {
    in_both_dialects(|query| {
        let (mut world, clocks) = with_clocks(query);
        world.busy(2, 50);
        let way = world.way();
        let mut victim = victim(&world, &way.url(), "4s", &["--fixed", "yes"]);
        for clock in &clocks[..3] {
            clock.ahead(Duration::from_secs(90));
        }
        world.healed();
        world.work(3);
        told(&mut victim, "is-held", "is-held true");
        told(&mut victim, "write", "refused");
        frees_nothing(&mut victim);
        world.work(60);
        shown_unsafe_but_fenced(&world.finish());
    });
}

/// Of a minority, that is: nobody gets in early, and work goes on.
#[test]
fn clocks_set_back_keep_every_rule() {
    in_both_dialects(|query| {
        let (mut world, clocks) = with_clocks(query);
        let url = world.url();
        world.busy(2, 30);
        let mut victim = victim(&world, &url, "1s", &[]);
        for clock in &clocks[..2] {
            clock.behind(Duration::from_secs(3600));
        }
        world.bitten("set back");
        // Renewed by the clock as it is now.
        std::thread::sleep(LEASE * 2);
        ends_well(&mut victim);
        world.healed();
        world.work(80);
        let demands = Demands::default().recovery(Duration::from_secs(15));
        let demands = demands.fault(FaultKind::Other("set back".into()), 1);
        world.passes(&demands);
    });
}
