//! Each naive quorum lock in the scene that shows its mistake; the recipe without a mistake and ours in the same scene.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::{FaultKind, Rule};
use lockkeeper_testkit::naive::{QUORUM_MISTAKES, QuorumMistake};
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::proxy;

use crate::world::{LINGER, World, at_once, demands, judged};

/// By then a mistake is caught.
const QUICKLY: Duration = Duration::from_secs(120);

/// The longest lease in the scene, and what is done to five nodes.
struct Scene {
    max_lease: Duration,
    query: &'static str,
    run: fn(&mut World),
}

/// Runs a scene with a naive lock, which has to be caught by its rule, and with those that have to pass it.
fn caught(mistake: QuorumMistake, fault: &str, scene: Scene) {
    let mut all = QUORUM_MISTAKES.iter();
    let (_, name, rule) = all.find(|(of, ..)| *of == mistake).expect("it is listed");
    at_once([*name, "right", "ours"], |lock| {
        let started = Moment::now();
        let mut world = World::new(5, scene.max_lease, scene.query);
        world.lock = lock.to_owned();
        let url = world.url();
        world.load(2, &url);
        world.goes_on(60);
        (scene.run)(&mut world);
        world.goes_on(80);
        let events = world.finish();
        print!("{lock}: ");
        let demands = demands().fault(FaultKind::Other(fault.to_owned()), 1);
        let verdict = judged(&events, &demands);
        let took = Moment::now().since(started);
        assert!(took < QUICKLY, "{lock} took {took:?}");
        match lock == *name {
            // What is left behind is seen even where a busy machine let nobody wait for it for long.
            true => assert!(
                verdict.breaks(*rule)
                    || mistake == QuorumMistake::NotCleanedUp && verdict.breaks(Rule::L4),
                "{lock} was not caught: {verdict}"
            ),
            false => drop(verdict.expect_valid()),
        }
    });
}

impl World {
    /// Work enough for a run that proves something, unless the lock with its mistake is in the way.
    fn goes_on(&self, more: u64) {
        let end = Moment::now() + LINGER * 2;
        let enough = self.written() + more;
        self.until("the load works", || {
            let is_right = ["right", "ours"].contains(&self.lock.as_str());
            self.written() >= enough || !is_right && Moment::now() > end
        });
    }

    /// Stops both processes of the load.
    fn all_stop(&mut self) {
        for number in 0..2 {
            self.stop_load(number);
        }
    }

    fn all_go_on(&mut self) {
        for number in 0..2 {
            self.taker(number).go_on().expect("goes on");
        }
    }
}

/// Lets go, whatever comes of it.
fn leave(mut taker: Taker) {
    if taker.tell("release").is_ok() {
        taker.expect_one(&["released", "not-held", "release-unknown", "nothing is held"]);
    }
    assert!(taker.wait().expect("ends"));
}

/// Two that reach different nodes of the five. Only one of them reaches a majority.
#[test]
fn half_a_quorum() {
    caught(
        QuorumMistake::Half,
        "split",
        Scene {
            max_lease: Duration::from_secs(2),
            query: "",
            run: |world| {
                let (few, most) = (world.way(), world.way());
                few.only(&[0, 1]);
                most.only(&[2, 3, 4]);
                let most = world.holder("most", &most.url(), "2s", &[]);
                most.expect("held");
                // Long enough to meet a moment when the load has neither of its two nodes.
                let patience = match world.lock.as_str() {
                    "half-a-quorum" => "20s",
                    _ => "2s",
                };
                let brief = ["--patience", patience];
                let few = world.holder("few", &few.url(), "2s", &brief);
                let got = few.expect_one(&["held", "busy", "failed"]);
                world.bitten("split");
                assert_eq!(
                    got.starts_with("held"),
                    world.lock == "half-a-quorum",
                    "{got}"
                );
                std::thread::sleep(Duration::from_millis(300));
                leave(few);
                leave(most);
            },
        },
    );
}

/// Answers that take most of the lease to come.
#[test]
fn elapsed_ignored() {
    caught(
        QuorumMistake::ElapsedIgnored,
        "slow",
        Scene {
            max_lease: Duration::from_secs(2),
            // More patient than the round is slow.
            query: "&node_timeout=1900ms&response_timeout=5s",
            run: |world| {
                let way = world.way();
                // Connected before it becomes slow, so that only the answer to the claim is late.
                let fixed = ["--fixed", "yes"];
                let mut victim = world.holder("victim", &way.url(), "2s", &fixed);
                victim.expect("held");
                victim.tell("release").expect("listens");
                victim.expect_one(&["released", "not-held"]);
                // Nobody is quicker than it for the time of the slow round.
                world.all_stop();
                let late = proxy::Way::Slow(Duration::from_millis(600));
                way.proxies.iter().for_each(|proxy| proxy.replies(late));
                victim.tell("acquire").expect("listens");
                victim.expect("held");
                way.heal();
                world.bitten("slow");
                world.all_go_on();
                std::thread::sleep(Duration::from_secs(3));
                leave(victim);
            },
        },
    );
}

/// Held on the first three; the third forgets it; and another reaches the last three.
#[test]
fn restarted_at_once() {
    caught(
        QuorumMistake::RestartedAtOnce,
        "restart",
        Scene {
            max_lease: Duration::from_secs(5),
            query: "",
            run: |world| {
                let (first, last) = (world.way(), world.way());
                first.only(&[0, 1, 2]);
                last.only(&[2, 3, 4]);
                let victim = world.holder("victim", &first.url(), "5s", &["--fixed", "yes"]);
                victim.expect("held");
                world.nodes.server(2).restart_empty();
                world.bitten("restart");
                let brief = ["--patience", "1s"];
                let other = world.holder("other", &last.url(), "2s", &brief);
                let got = other.expect_one(&["held", "busy", "failed"]);
                let let_in = got.starts_with("held");
                // Of the naive ones, the load may have been quicker, which is as bad.
                assert!(!let_in || world.lock == "restarted-at-once", "{got}");
                leave(other);
                // Until then it is told nothing, and has lost nothing.
                victim.expect("lost");
                leave(victim);
            },
        },
    );
}

/// Two that reach two nodes each, in vain.
#[test]
fn not_cleaned_up() {
    let lease = LINGER * 2;
    caught(
        QuorumMistake::NotCleanedUp,
        "split",
        Scene {
            max_lease: lease,
            query: "",
            run: |world| {
                let ways = [world.way(), world.way()];
                ways[0].only(&[0, 1]);
                ways[1].only(&[2, 3]);
                let lease = format!("{}s", (LINGER * 2).as_secs());
                for (number, way) in ways.iter().enumerate() {
                    let process = format!("vain{number}");
                    let brief = ["--patience", "700ms"];
                    let vain = world.holder(&process, &way.url(), &lease, &brief);
                    let got = vain.expect_one(&["held", "busy", "failed"]);
                    assert!(!got.starts_with("held"), "{got}");
                    leave(vain);
                }
                world.bitten("split");
                world.healed();
            },
        },
    );
}

/// Every mistake has a scene.
#[test]
fn every_mistake_has_its_test() {
    let source = include_str!("naive.rs");
    for (_, name, _) in QUORUM_MISTAKES {
        let test = format!("fn {}()", name.replace('-', "_"));
        assert!(source.contains(&test), "no test for {name}");
        assert!(QuorumMistake::named(name).is_some());
    }
}
