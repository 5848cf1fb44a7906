//! Clients and a store over a bad network, on a simulated clock: every seed keeps the rules, and every
//! deliberately broken lock is caught.

mod broken;
mod client;
mod world;

use std::time::Duration;

use broken::Bug;
use lockkeeper_testkit::checker::{Demands, FaultKind, Stats, Verdict, check};
use proptest::prelude::*;
use world::{Modes, Plan, run};

const LEASE: Duration = Duration::from_secs(1);

/// Several clients that always want the lock.
fn crowded() -> Plan {
    Plan {
        clients: 5,
        modes: Modes::Exclusive,
        lease: LEASE,
        time: Duration::from_secs(120),
        rest: Duration::from_millis(200),
        longest_delay: LEASE * 3,
        trouble: 0.06,
        crashes: true,
        breaks: false,
        waiting: true,
    }
}

/// Few clients that seldom want it and do not wait: a client that is told busy can tell that it should be free.
fn sparse() -> Plan {
    Plan {
        clients: 2,
        time: Duration::from_secs(1_200),
        rest: Duration::from_secs(30),
        longest_delay: Duration::from_secs(60),
        waiting: false,
        crashes: false,
        ..crowded()
    }
}

/// How long something that ended may keep the lock from others: a request arrives within half a second or
/// not at all, then waits in the queue, is granted unconfirmed, or holds for a lease; and the answer that
/// tells of it is late as well.
fn demands(plan: &Plan) -> Demands {
    let queue = lockkeeper::store::QUEUE_TTL + lockkeeper::store::GRANT_LEASE;
    let linger = plan.lease * 2 + Duration::from_secs(2);
    Demands::none().linger(match plan.waiting {
        true => linger + queue + plan.longest_delay,
        false => linger,
    })
}

fn plans() -> impl Strategy<Value = Plan> {
    let modes = prop_oneof![
        Just(Modes::Exclusive),
        Just(Modes::ReadWrite),
        Just(Modes::Permits)
    ];
    let seldom = any::<bool>();
    (modes, 2..7usize, 0.0..0.15f64, any::<bool>(), seldom).prop_map(
        |(modes, clients, trouble, breaks, seldom)| {
            let plan = if seldom { sparse() } else { crowded() };
            Plan {
                modes,
                clients,
                trouble,
                breaks,
                ..plan
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(500), failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_seed_keeps_the_rules(seed in any::<u64>(), plan in plans()) {
        let verdict = check(&run(seed, &plan, None), &demands(&plan));
        prop_assert!(matches!(verdict, Verdict::Valid(_)), "seed {seed}: {verdict}");
    }
}

/// The runs above mean something: together they saw many grants, contention and every fault.
#[test]
fn the_simulated_world_is_a_bad_one() {
    let mut all = Stats::default();
    for seed in 0..20 {
        let plan = Plan {
            breaks: seed % 2 == 0,
            ..crowded()
        };
        let stats = check(&run(seed, &plan, None), &Demands::none()).expect_valid();
        all.grants += stats.grants;
        all.contended += stats.contended;
        for (kind, count) in stats.faults {
            *all.faults.entry(kind).or_default() += count;
        }
    }
    println!("{all}");
    assert!(all.grants > 500 && all.contended > 200, "{all}");
    for kind in [
        FaultKind::HoldExpired,
        FaultKind::RequestLost,
        FaultKind::ReplyLost,
        FaultKind::Delayed,
        FaultKind::Repeated,
        FaultKind::Broken,
    ] {
        let seen = all.faults.get(&kind).copied().unwrap_or(0);
        assert!(seen >= 5, "{kind:?} was seen {seen} times");
    }
}

/// How many seeds a broken lock may survive.
const SEEDS: u64 = 60;

#[test]
fn every_broken_lock_is_caught() {
    for (bug, rule) in Bug::ALL {
        let plan = match bug {
            Bug::NoNotAfter => sparse(),
            // A holder that obeys its own deadline is fooled only when its hold is ended before that.
            Bug::RenewalUnchecked => Plan {
                breaks: true,
                ..crowded()
            },
            _ => crowded(),
        };
        let caught = (0..SEEDS).find(|seed| {
            let verdict = check(&run(*seed, &plan, Some(*bug)), &demands(&plan));
            verdict.breaks(*rule)
        });
        println!("{bug:?} was caught by {rule:?} with seed {caught:?}");
        assert!(caught.is_some(), "{bug:?} went unseen for {SEEDS} seeds");
    }
}
