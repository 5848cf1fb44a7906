//! Without a majority there is no lock, and a client that asks is told so, soon.

use std::time::Duration;

use lockkeeper::Error;
use lockkeeper::clock::Moment;

use crate::world::{LEASE, Watcher, World, in_both_dialects, left_on};

/// Far more than the time-out of a node, and far less than a wait for one that hangs.
const SOON: Duration = Duration::from_secs(10);

/// It fails within a bound, and names every node that is missing.
fn fails_clearly(world: &World, watcher: &Watcher, missing: &[usize]) {
    let asked = Moment::now();
    let error = watcher.take("b").expect_err("there is no majority");
    let took = Moment::now().since(asked);
    assert!(took < SOON, "{took:?}");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    for node in missing {
        let address = format!("127.0.0.1:{}", world.nodes.servers()[*node].port());
        assert!(text.contains(&address), "{address} is not in {text:?}");
    }
    println!("after {took:?}: {text}");
}

#[test]
fn two_of_three_down_is_said_at_once_and_heals() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        let watcher = Watcher::new(&world.url());
        assert!(watcher.take("b").expect("answers").is_some());
        world.nodes.server(0).kill();
        drop(watcher.take("c").expect("answers").expect("two are enough"));
        world.nodes.server(1).kill();
        fails_clearly(&world, &watcher, &[0, 1]);
        // A client that comes now is told as well, by a process that has never seen them.
        let late = world.holder("late", &world.url(), "1s", &["--patience", "2s"]);
        let said = late.expect_one(&["failed", "busy", "held", "never"]);
        assert!(said.starts_with("failed"), "{said}");
        drop(late);
        world.nodes.server(0).restart_empty();
        world.until("it works again", || {
            watcher.take("b").is_ok_and(|guard| guard.is_some())
        });
        world.nodes.server(1).restart_empty();
        drop(watcher);
        nothing_is_left(&world);
    });
}

#[test]
fn two_of_three_stalled_is_said_soon_and_heals() {
    in_both_dialects(|query| {
        let world = World::new(3, LEASE, query);
        let watcher = Watcher::new(&world.url());
        assert!(watcher.take("b").expect("answers").is_some());
        for node in &world.nodes.servers()[..2] {
            node.pause();
        }
        fails_clearly(&world, &watcher, &[0, 1]);
        for node in &world.nodes.servers()[..2] {
            node.resume();
        }
        world.until("it works again", || {
            watcher.take("b").is_ok_and(|guard| guard.is_some())
        });
        drop(watcher);
        nothing_is_left(&world);
    });
}

fn nothing_is_left(world: &World) {
    let left = || -> Vec<String> {
        let nodes = world.nodes.servers().iter();
        nodes.flat_map(left_on).collect()
    };
    let end = Moment::now() + Duration::from_secs(20);
    while !left().is_empty() {
        assert!(Moment::now() < end, "left behind: {:?}", left());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Nobody has to do anything, and a client that asks is told which nodes are waited for.
#[test]
fn nodes_that_sit_out_are_named_and_vote_again_by_themselves() {
    in_both_dialects(|query| {
        let max_lease = LEASE * 4;
        let mut world = World::new(3, max_lease, query);
        let watcher = Watcher::new(&world.url());
        assert!(watcher.take("b").expect("answers").is_some());
        for node in [0, 1] {
            world.nodes.server(node).restart_empty();
        }
        // Connected again, and no longer just down.
        let mut text = String::new();
        world.until("it says who sits out", || {
            text = match watcher.take("b") {
                Err(error) => error.to_string(),
                Ok(granted) => panic!("two nodes sit out, and it says {granted:?}"),
            };
            text.matches("sits out").count() == 2
        });
        println!("{text}");
        for node in [0, 1] {
            let address = format!("127.0.0.1:{}", world.nodes.servers()[node].port());
            assert!(text.contains(&address), "{address} is not in {text:?}");
        }
        world.nodes.wait_out_quarantine(max_lease);
        world.until("it works again", || {
            watcher.take("b").is_ok_and(|guard| guard.is_some())
        });
        drop(watcher);
        nothing_is_left(&world);
    });
}
