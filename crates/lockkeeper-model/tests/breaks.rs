//! The protocol with one rule switched off: a history that breaks a promise is found.

use std::time::Duration;

use lockkeeper_model::Scene;
use stateright::{Checker, HasDiscoveries, Model};

const S1: &str = "S1: valid holds never overlap";
const S2: &str = "S2: tokens grow";
const L4: &str = "L4: no vote is left behind";

fn breaks(scene: Scene, property: &'static str) {
    let scene = Scene {
        expects: &[],
        ..scene
    };
    let checker = scene
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    let path = checker.assert_any_discovery(property);
    println!("{property}, broken by {:#?}", path.into_actions());
}

#[test]
fn without_a_majority() {
    let mut scene = Scene::calm();
    scene.terms.majority = 1;
    breaks(scene, S1);
}

#[test]
fn without_the_allowance_for_drift() {
    let mut scene = Scene {
        drifts: 1,
        ticks: 2,
        ..Scene::calm()
    };
    scene.terms.drift_percent = 0;
    scene.terms.drift_least = Duration::ZERO;
    breaks(scene, S1);
}

#[test]
fn without_clean_up() {
    let scene = Scene {
        clean_up: false,
        ..Scene::calm()
    };
    breaks(scene, L4);
}

#[test]
fn without_quarantine() {
    let mut scene = Scene {
        crashes: 1,
        rounds: [2, 2],
        ticks: 1,
        ..Scene::calm()
    };
    scene.terms.sit_out = Duration::ZERO;
    breaks(scene, S1);
}

#[test]
fn without_refusing_tokens() {
    let scene = Scene {
        token_refusal: false,
        ..Scene::calm()
    };
    breaks(scene, S2);
}

#[test]
fn with_ids_that_are_used_again() {
    let scene = Scene {
        fresh_ids: false,
        claims: [2, 1],
        ticks: 2,
        ..Scene::calm()
    };
    breaks(scene, S1);
}

#[test]
fn without_refusing_old_tokens_where_nodes_forget_them() {
    let mut scene = Scene {
        steps: 1,
        ticks: 2,
        ..Scene::forgetful(1, 3)
    };
    scene.terms.lag = Duration::MAX;
    breaks(scene, S2);
}
