//! The protocol as it is, in every order in which things can happen: nothing is found, and what should happen does.

use lockkeeper_model::{Expect, Scene};
use stateright::{Checker, Model};

fn holds(scene: Scene) {
    let checker = scene.checker().threads(2).spawn_bfs().join();
    assert!(checker.is_done());
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn over_a_network_that_delays_repeats_and_loses() {
    holds(Scene::calm());
}

#[test]
fn claims_of_one_client_that_follow_each_other() {
    holds(Scene {
        claims: [2, 1],
        ticks: 1,
        ..Scene::calm()
    });
}

#[test]
fn rounds_of_one_claim_that_follow_each_other() {
    holds(Scene {
        rounds: [2, 1],
        ticks: 2,
        expects: &[Expect::SecondGrant, Expect::SecondRound],
        ..Scene::calm()
    });
}

#[test]
fn clocks_that_run_differently() {
    holds(Scene {
        drifts: 1,
        ticks: 2,
        ..Scene::calm()
    });
}

#[test]
fn nodes_that_crash_and_come_back_empty() {
    holds(Scene {
        crashes: 2,
        ticks: 4,
        expects: &[Expect::Grant, Expect::SecondGrant, Expect::VoteAfterCrash],
        ..Scene::calm()
    });
}

#[test]
fn holds_that_are_renewed_and_nodes_that_are_re_added() {
    holds(Scene {
        renewals: 1,
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
fn holds_that_are_renewed_while_a_node_crashes() {
    holds(Scene {
        renewals: 1,
        crashes: 1,
        ticks: 2,
        expects: &[Expect::SecondGrant, Expect::Renewal, Expect::ReAdd],
        ..Scene::calm()
    });
}

#[test]
fn clocks_that_are_set() {
    holds(Scene {
        steps: 1,
        ticks: 2,
        ..Scene::calm()
    });
}

#[test]
fn nodes_that_forget_tokens_after_a_while() {
    holds(Scene {
        expects: &[Expect::SecondGrant, Expect::VoteAfterForgetting],
        ..Scene::forgetful(1, 1)
    });
}

#[test]
#[ignore = "takes a minute: `cargo xtask nightly` runs it"]
fn nodes_that_forget_tokens_and_clocks_that_are_set() {
    holds(Scene {
        steps: 1,
        repeats: false,
        expects: &[Expect::SecondGrant, Expect::VoteAfterForgetting],
        ..Scene::forgetful(0, 2)
    });
}
