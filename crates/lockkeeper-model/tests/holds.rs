//! The protocol as it is: nothing is found, and the interesting happens.

use lockkeeper_model::{Expect, Scene};
use stateright::{Checker, Model};

fn holds(scene: Scene) {
    let started = std::time::Instant::now();
    let checker = scene.checker().threads(2).spawn_bfs().join();
    println!(
        "{} states in {:?}",
        checker.unique_state_count(),
        started.elapsed()
    );
    checker.assert_properties();
}

#[test]
fn over_a_bad_network() {
    holds(Scene::calm());
}
