//! The protocol as it is: nothing is found, and the interesting happens.

use lockkeeper_model::{Expect, Scene};
use stateright::{Checker, Model};

fn holds(scene: Scene) {
    let started = std::time::Instant::now();
    let checker = scene
        .checker()
        .threads(2)
        .timeout(std::time::Duration::from_secs(40))
        .spawn_bfs()
        .join();
    println!(
        "{} states of {} in {:?} depth {}",
        checker.unique_state_count(),
        checker.state_count(),
        started.elapsed(),
        checker.max_depth()
    );
    checker.assert_properties();
}

#[test]
fn over_a_bad_network() {
    holds(Scene {
        repeats: true,
        claims: [2, 1],
        ticks: 2,
        ..Scene::calm()
    });
}
#[test]
fn rounds() {
    holds(Scene {
        repeats: true,
        rounds: 2,
        ticks: 1,
        ..Scene::calm()
    });
}
#[test]
fn drift() {
    holds(Scene {
        drifts: 1,
        ticks: 4,
        ..Scene::calm()
    });
}
#[test]
fn crash() {
    holds(Scene {
        crashes: 1,
        ticks: 6,
        expects: &[Expect::Grant, Expect::SecondGrant, Expect::VoteAfterCrash],
        ..Scene::calm()
    });
}
#[test]
fn renew() {
    holds(Scene {
        renewals: 1,
        ticks: 3,
        expects: &[
            Expect::Grant,
            Expect::SecondGrant,
            Expect::Renewal,
            Expect::ReAdd,
        ],
        ..Scene::calm()
    });
}
#[test]
fn steps() {
    holds(Scene {
        steps: 1,
        ticks: 3,
        ..Scene::calm()
    });
}
