//! One holder that something happens to, with others working on. Two may *believe* to hold; the fence tells them apart.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{Demands, FaultKind};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::redis::RedisOptions;
use lockkeeper_testkit::servers::wall_clock::WallClock;

use crate::crews;
use crate::victim::*;
use crate::world::{LEASE, World, in_both_dialects};

#[test]
fn a_stopped_holder_is_fenced_off_and_never_believes_again() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        oversleeps(&mut world);
        let demands = refused().fault(FaultKind::HolderStopped, 1);
        world.passes(&demands);
    });
}

#[test]
fn a_holder_cut_off_is_told_in_time_and_fenced_off() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        world.busy(2, 30);
        let mut victim = victim(&world, &world.proxied(), "1s", &[]);
        world.proxy.black_hole();
        victim.expect("lost");
        world.work(60);
        assert!(world.proxy.stopped() > 0, "it asked nothing meanwhile");
        world.bitten("cut off");
        let healed = Moment::now();
        world.proxy.heal();
        world.proxy.cut();
        world.healed();
        world.until("it connects again", || world.proxy.connections() > 0);
        is_fenced_off(&mut victim, healed);
        frees_nothing(&mut victim);
        world.work(30);
        let demands = refused().fault(FaultKind::Other("cut off".into()), 1);
        world.passes(&demands);
    });
}

/// Its release says that it was no longer the only one.
fn is_shown_unsafe_but_fenced(world: &mut World, victim: &mut Taker) {
    told(victim, "release", "not-held");
    assert!(victim.wait().expect("ends"));
    world.work(60);
    shown_unsafe_but_fenced(&world.finish());
}

/// The victim believes while others work, and only the fence keeps it out.
fn believes_in_vain(world: &World, victim: &mut Taker) {
    world.work(60);
    told(victim, "is-held", "is-held true");
    told(victim, "write", "refused");
}

#[test]
fn data_lost_in_a_restart_lets_a_second_holder_in_and_tokens_still_grow() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        world.busy(2, 30);
        let mut victim = crews::victim(&world, &world.proxied());
        // It does not reach the server that forgot it. If it did, it would be told at once.
        world.proxy.refuse();
        world.server.restart_empty();
        world.healed();
        believes_in_vain(&world, &mut victim);
        world.proxy.heal();
        victim.expect("lost");
        is_shown_unsafe_but_fenced(&mut world, &mut victim);
    });
}

fn with_clock(query: &'static str) -> (World, WallClock) {
    let clock = WallClock::new();
    let options = RedisOptions {
        environment: clock.environment(),
        ..RedisOptions::default()
    };
    (World::with(query, options), clock)
}

#[test]
fn a_clock_set_forward_lets_a_second_holder_in_and_tokens_still_grow() {
    in_both_dialects(|query| {
        let (mut world, clock) = with_clock(query);
        let url = world.url();
        world.busy(2, 30);
        let mut victim = crews::victim(&world, &url);
        clock.ahead(Duration::from_secs(180));
        world.healed();
        believes_in_vain(&world, &mut victim);
        is_shown_unsafe_but_fenced(&mut world, &mut victim);
    });
}

/// Nobody gets in early, and work goes on: renewals and releases do not care what time it is.
#[test]
fn a_clock_set_back_keeps_every_rule() {
    in_both_dialects(|query| {
        let (mut world, clock) = with_clock(query);
        let url = world.url();
        world.busy(2, 30);
        let mut victim = victim(&world, &url, "1s", &[]);
        clock.behind(Duration::from_secs(3600));
        world.bitten("set back");
        world.healed();
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
