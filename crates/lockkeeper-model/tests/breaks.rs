//! The protocol with one rule switched off: a counterexample is found.

use std::time::Duration;

use lockkeeper_model::Scene;
use stateright::{Checker, HasDiscoveries, Model};

fn breaks(scene: Scene, property: &'static str) {
    let scene = Scene {
        expects: &[],
        ..scene
    };
    let checker = scene
        .checker()
        .threads(2)
        .timeout(std::time::Duration::from_secs(40))
        .finish_when(HasDiscoveries::AnyOf([property].into()))
        .spawn_bfs()
        .join();
    println!(
        "{} states {:?}",
        checker.unique_state_count(),
        checker.discoveries().keys()
    );
    let path = checker.assert_any_discovery(property);
    println!("{:?}", path.into_actions());
}

const S1: &str = "S1: valid holds never overlap";
const S2: &str = "S2: tokens grow";
const L4: &str = "L4: no vote is left behind";

#[test]
fn without_a_majority() {
    let mut scene = Scene::calm();
    scene.terms.majority = 1;
    breaks(scene, S1);
}
#[test]
fn without_drift_allowance() {
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
    breaks(
        Scene {
            clean_up: false,
            ..Scene::calm()
        },
        L4,
    );
}
#[test]
fn without_quarantine() {
    let mut scene = Scene {
        crashes: 1,
        rounds: 2,
        ticks: 1,
        ..Scene::calm()
    };
    scene.terms.sit_out = Duration::ZERO;
    breaks(scene, S1);
}
#[test]
fn without_token_refusal() {
    breaks(
        Scene {
            token_refusal: false,
            ..Scene::calm()
        },
        S2,
    );
}
#[test]
fn with_claim_ids_used_again() {
    breaks(
        Scene {
            fresh_ids: false,
            claims: [2, 1],
            repeats: true,
            ..Scene::calm()
        },
        S1,
    );
}
