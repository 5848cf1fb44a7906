//! Many processes on one lock while the server, the network or a process fails. Every rule holds.

use std::time::Duration;

use lockkeeper::Error;
use lockkeeper_testkit::checker::FaultKind;
use lockkeeper_testkit::history::{Answer, Fault, What};
use lockkeeper_testkit::servers::proxy::Way;
use lockkeeper_testkit::servers::redis::RedisOptions;

use crate::world::{PLAIN, REDISSON, Watcher, World, at_once, demands, in_both_dialects, judged};

fn other(name: &str) -> FaultKind {
    FaultKind::Other(name.into())
}

/// Longer than a lease.
const LONG: Duration = Duration::from_millis(1_700);

/// So long that what a lease of a second granted before is late afterwards, beyond all doubt.
const LONGER: Duration = Duration::from_millis(2_700);
const LATE: Duration = Duration::from_millis(1_200);

#[test]
fn holders_killed() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        world.busy(3, 30);
        world.kill_holders();
        let demands = demands().fault(FaultKind::HolderKilled, 1);
        world.passes(&demands);
    });
}

#[test]
fn holders_stopped() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        world.busy(3, 30);
        world.stop_holders();
        let demands = demands()
            .fault(FaultKind::HolderStopped, 1)
            .fault(FaultKind::HoldExpired, 1);
        world.passes(&demands);
    });
}

#[test]
fn server_killed_and_restarted_with_its_data() {
    in_both_dialects(|query| {
        let durable = RedisOptions {
            durable: true,
            ..RedisOptions::default()
        };
        let mut world = World::with(query, durable);
        let url = world.url();
        world.load(3, &url);
        for down in [Duration::ZERO, LONG] {
            world.work(50);
            world.server.kill();
            match down.is_zero() {
                true => world.bitten("restart"),
                false => world.bites("down", down),
            }
            world.server.restart();
            world.healed();
        }
        world.work(50);
        let demands = demands().fault(other("restart"), 1).fault(other("down"), 1);
        world.passes(&demands);
    });
}

#[test]
fn server_stalled_longer_than_a_lease() {
    // One gives up on the answer, the other gets it when its lease is over.
    let patient = "?response_timeout=5s";
    at_once([REDISSON, PLAIN, patient], |query| {
        let mut world = World::new(query);
        if query == patient {
            world.patience = "1m";
        }
        world.busy(3, 50);
        world.server.pause();
        world.bites("paused", LONGER);
        world.server.resume();
        world.healed();
        world.work(50);
        // It blocks this thread for as long as the server.
        let before = world.written();
        let slept = std::time::Instant::now();
        world.server.command(&["DEBUG", "SLEEP", "2.7"]);
        assert!(slept.elapsed() >= LONGER);
        // Only what was granted before was written.
        assert!(world.written() <= before + 20, "work went on");
        world.bitten("asleep");
        world.healed();
        world.work(50);
        let events = world.finish();
        let demands = demands().fault(other("paused"), 1);
        let demands = demands.fault(other("asleep"), 1);
        judged(&events, &demands).expect_valid();
        let too_late = events.iter().any(|event| match event.what {
            What::Ok {
                answer: Answer::Granted { deadline, .. },
                ..
            // It was ready long ago, and not only written down late.
            } => event.at.saturating_sub(deadline) > LATE.as_nanos() as u64,
            _ => false,
        });
        assert!(!too_late, "a grant was accepted after its lease");
    });
}

#[test]
fn connections_black_holed_cut_and_refused() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        let url = world.proxied();
        world.load(3, &url);
        let mut demands = demands();
        for name in ["silence", "requests", "replies", "refusal"] {
            world.work(30);
            match name {
                "silence" => world.proxy.black_hole(),
                "requests" => world.proxy.requests(Way::Dropped),
                "replies" => world.proxy.replies(Way::Dropped),
                _ => world.proxy.refuse(),
            }
            world.bites(name, LONG);
            world.proxy.heal();
            // What is left of the dead connections would only confuse: TCP would lose it too.
            world.proxy.cut();
            world.healed();
            demands = demands.fault(other(name), 1);
        }
        world.work(30);
        world.passes(&demands);
    });
}

#[test]
fn slow_and_cut_connections() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        let url = world.proxied();
        world.load(3, &url);
        world.work(20);
        for millis in [5, 40] {
            let slow = Way::Slow(Duration::from_millis(millis));
            world.proxy.requests(slow);
            world.proxy.replies(slow);
            world.driver.fault(Fault::Delayed);
            world.work(20);
        }
        world.proxy.heal();
        for _ in 0..5 {
            world.proxy.cut();
            world.bitten("cut");
            world.work(20);
        }
        world.healed();
        world.work(20);
        let demands = demands().fault(FaultKind::Delayed, 2);
        world.passes(&demands.fault(other("cut"), 5));
    });
}

#[test]
fn replies_lost_after_the_server_did_it() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        let url = world.proxied();
        world.load(3, &url);
        world.work(30);
        for round in 1..=8 {
            // Every request about the lock has its token's key in it, or its name alone.
            world.proxy.lose_replies("$1\r\na\r\n", 1);
            world.until("a reply is lost", || world.proxy.lost_replies() >= round);
            world.driver.fault(Fault::ReplyLost);
            world.work(10);
        }
        world.healed();
        world.work(30);
        let demands = demands().fault(FaultKind::ReplyLost, 8);
        let stats = world.passes(&demands);
        assert!(stats.unknown >= 1, "nobody was in doubt");
    });
}

#[test]
fn script_cache_flushed() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        let url = world.url();
        world.load(3, &url);
        for _ in 0..40 {
            world.work(5);
            world.server.command(&["SCRIPT", "FLUSH"]);
            world.bitten("flush");
        }
        world.healed();
        world.work(10);
        let stats = world.passes(&demands().fault(other("flush"), 40));
        assert_eq!(stats.unknown, 0, "a flush cost somebody an answer");
    });
}

#[test]
fn memory_full() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        let url = world.url();
        world.busy(3, 50);
        let set = |value| world.server.command(&["CONFIG", "SET", "maxmemory", value]);
        set("1mb");
        let error = Watcher::new(&url).take("b").expect_err("there is no room");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("raise `maxmemory`"), "{error}");
        world.bitten("full");
        // A release that finds a waiter goes on working: it frees memory before it uses some.
        std::thread::sleep(LONG);
        set("0");
        world.healed();
        world.work(50);
        world.passes(&demands().fault(other("full"), 1));
    });
}

/// What time clients think it is does not matter to anyone.
#[test]
fn clients_whose_clocks_are_wrong() {
    in_both_dialects(|query| {
        let mut world = World::new(query);
        world.set_clocks_wrong();
        world.passes(&demands().fault(other("clocks"), 1));
    });
}
