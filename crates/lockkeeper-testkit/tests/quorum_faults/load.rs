//! Many processes on one lock while nodes, the network or a process fail. Every rule holds.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper_testkit::checker::FaultKind;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::servers::proxy;
use lockkeeper_testkit::servers::redis::RedisOptions;

use crate::world::{LEASE, LINGER, Watcher, World, at_once, demands, in_both_dialects};

fn other(name: &str) -> FaultKind {
    FaultKind::Other(name.into())
}

/// Longer than a lease.
const LONG: Duration = Duration::from_millis(1_700);

#[test]
fn one_of_three_is_down_and_comes_back_empty() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        world.busy(3, 40);
        world.nodes.server(2).kill();
        world.bitten("down");
        world.work(60);
        world.nodes.server(2).restart_empty();
        world.healed();
        world.nodes.wait_out_quarantine(LEASE);
        // It is used again: what is granted from now on is also there.
        world.until("it has a token", || has_token(&world, 2));
        // And the others are no longer needed both.
        world.nodes.server(0).kill();
        world.bitten("another down");
        world.work(60);
        world.nodes.server(0).restart_empty();
        world.healed();
        world.work(20);
        let demands = demands().fault(other("down"), 1);
        world.passes(&demands.fault(other("another down"), 1));
    });
}

fn has_token(world: &World, node: usize) -> bool {
    let keys = world.nodes.servers()[node].keys();
    keys.iter().any(|key| key.contains("_token:"))
}

/// It answers, and is of no use: one of three, in one way after the other.
#[test]
fn one_of_three_is_sick() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        world.busy(3, 40);
        let sicknesses = [
            ("a replica", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
            (
                "no permission",
                "ACL SETUSER default -info",
                "ACL SETUSER default +info",
            ),
            (
                "another max_lease",
                "SET lockkeeper_quorum 86400000",
                "DEL lockkeeper_quorum",
            ),
        ];
        let mut demands = demands();
        for (number, (name, sick, well)) in sicknesses.into_iter().enumerate() {
            let node = &world.nodes.servers()[number];
            let tell = |words: &str| {
                let words: Vec<&str> = words.split(' ').collect();
                node.command(&words);
                // Clients come anew, and look at it.
                node.command(&["CLIENT", "KILL", "SKIPME", "yes"]);
            };
            tell(sick);
            world.bitten(name);
            world.work(40);
            tell(well);
            world.healed();
            // Those that are well cannot do without it while another is sick: it votes again.
            demands = demands.fault(other(name), 1);
        }
        world.work(40);
        world.passes(&demands);
    });
}

/// Stopped, not killed: connections stay and nobody says that anything is wrong.
#[test]
fn two_of_five_are_stalled() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        world.busy(3, 40);
        for node in &world.nodes.servers()[3..] {
            node.pause();
        }
        world.bitten("stalled");
        world.work(80);
        for node in &world.nodes.servers()[3..] {
            node.resume();
        }
        world.healed();
        world.work(40);
        world.passes(&demands().fault(other("stalled"), 1));
    });
}

/// Most of them, for longer than a lease: nothing is granted, and nothing that was granted late is believed in.
#[test]
fn three_of_five_are_stalled_longer_than_a_lease() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        world.busy(3, 50);
        for node in &world.nodes.servers()[..3] {
            node.pause();
        }
        world.bites("stalled", LONG);
        for node in &world.nodes.servers()[..3] {
            node.resume();
        }
        world.healed();
        world.work(60);
        world.passes(&demands().fault(other("stalled"), 1));
    });
}

#[test]
fn nodes_restart_with_their_data() {
    in_both_dialects(|query| {
        let durable = RedisOptions {
            durable: true,
            ..RedisOptions::default()
        };
        let max_lease = LEASE * 2;
        let mut world = World::with(vec![durable; 3], max_lease, query);
        world.busy(3, 40);
        for node in 0..3 {
            world.nodes.server(node).restart();
            world.bitten("restart");
            world.work(20);
            world.nodes.wait_out_quarantine(max_lease);
        }
        // All at once: they sit out, and then it goes on.
        let sit_out = max_lease.mul_f64(1.01) + Duration::from_secs(1);
        let sat_out = (0..10).any(|_| {
            let began = Moment::now();
            world.nodes.restart_all();
            let written = world.written_meanwhile(LONG);
            // On a machine that was too slow for that, they may vote by now.
            let in_time = Moment::now().since(began) < sit_out;
            if in_time {
                assert!(written <= 1, "work goes on: {written} writes");
                world.bitten("all restart");
            }
            world.nodes.wait_out_quarantine(max_lease);
            world.healed();
            world.work(40);
            in_time
        });
        assert!(sat_out, "it never restarts in time");
        let demands = demands().fault(other("restart"), 3);
        world.passes(&demands.fault(other("all restart"), 1));
    });
}

#[test]
fn holders_killed() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        world.busy(3, 30);
        world.kill_holders();
        world.passes(&demands().fault(FaultKind::HolderKilled, 1));
    });
}

#[test]
fn holders_stopped() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        world.busy(3, 30);
        world.stop_holders();
        let demands = demands().fault(FaultKind::HolderStopped, 1);
        world.passes(&demands.fault(FaultKind::HoldExpired, 1));
    });
}

/// Some see the first three, others the last three. Both see a majority, and meet at one node.
#[test]
fn clients_that_see_different_nodes() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        let (first, last) = (world.way(), world.way());
        world.load(1, &first.url());
        world.load(1, &last.url());
        world.work(30);
        first.only(&[0, 1, 2]);
        last.only(&[2, 3, 4]);
        world.bitten("split");
        world.work(100);
        first.heal();
        last.heal();
        world.healed();
        world.work(30);
        world.passes(&demands().fault(other("split"), 1));
    });
}

/// No node can be missed, none is near, and many want the lock: votes are split again and again, but not for ever.
#[test]
fn split_votes_come_to_an_end_also_on_slow_ways() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        // The nodes are in use: their first client had to reach all of them.
        drop(Watcher::new(&world.url()));
        let way = world.way();
        way.only(&[0, 1, 2]);
        for proxy in &way.proxies[..3] {
            // Not slower: it lets one message pass in that time.
            let slow = proxy::Way::Slow(Duration::from_millis(10));
            proxy.requests(slow);
            proxy.replies(slow);
        }
        world.patience = "1m";
        world.load(3, &way.url());
        world.bitten("far away");
        let began = Moment::now();
        for _ in 0..4 {
            world.work(10);
        }
        println!("40 writes in {:?}", Moment::now().since(began));
        way.heal();
        world.healed();
        world.work(80);
        world.passes(&demands().linger(LINGER * 4).fault(other("far away"), 1));
    });
}

/// Requests arrive and answers do not, or the other way round: first from two of five, then from three.
#[test]
fn messages_lost_one_way() {
    in_both_dialects(|query| {
        let mut world = World::new(5, LEASE, query);
        let way = world.way();
        world.load(3, &way.url());
        let mut demands = demands();
        for name in ["requests", "replies"] {
            let lose = |count: usize| {
                for proxy in &way.proxies[..count] {
                    match name {
                        "requests" => proxy.requests(proxy::Way::Dropped),
                        _ => proxy.replies(proxy::Way::Dropped),
                    }
                }
            };
            world.work(30);
            lose(2);
            let few = format!("{name} of two");
            world.bitten(&few);
            world.work(40);
            lose(3);
            let most = format!("{name} of three");
            world.bites(&most, LONG);
            way.heal();
            // What is left of the dead connections would only confuse: TCP would lose it too.
            way.cut();
            world.healed();
            demands = demands.fault(other(&few), 1).fault(other(&most), 1);
        }
        world.work(30);
        world.passes(&demands);
    });
}

/// From one node, from two, and from a majority at once: a claim that is in doubt everywhere is given back everywhere.
#[test]
fn replies_lost_after_the_nodes_did_it() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        let way = world.way();
        world.load(3, &way.url());
        world.work(30);
        let mut lost = 0;
        for nodes in [1, 2, 3, 1, 2, 3] {
            let proxies = &way.proxies[..nodes];
            for proxy in proxies {
                proxy.lose_replies("$1\r\na\r\n", 1);
            }
            lost += nodes;
            let all = || -> usize { way.proxies.iter().map(|proxy| proxy.lost_replies()).sum() };
            world.until("replies are lost", || lost == all());
            world.driver.fault(Fault::ReplyLost);
            world.work(15);
        }
        world.healed();
        world.work(30);
        world.passes(&demands().fault(FaultKind::ReplyLost, 6));
    });
}

/// What was asked for arrives when nobody waits for it any more: on one node, on two, and on all.
#[test]
fn requests_that_arrive_late() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        let way = world.way();
        world.load(3, &way.url());
        world.work(30);
        for nodes in [1, 2, 3, 1, 2, 3] {
            let before = way.stopped();
            for proxy in &way.proxies[..nodes] {
                proxy.requests(proxy::Way::Held);
            }
            world.until("something is late", || way.stopped() > before);
            std::thread::sleep(LONG);
            way.heal();
            world.driver.fault(Fault::Delayed);
            world.healed();
            world.work(15);
        }
        world.passes(&demands().fault(FaultKind::Delayed, 6));
    });
}

#[test]
fn slow_and_cut_connections() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        let way = world.way();
        world.load(3, &way.url());
        world.work(20);
        for (node, millis) in [(0, 60), (1, 5), (2, 20)] {
            let slow = proxy::Way::Slow(Duration::from_millis(millis));
            way.proxies[node].requests(slow);
            way.proxies[node].replies(slow);
            world.driver.fault(Fault::Delayed);
            world.work(15);
        }
        way.heal();
        for _ in 0..5 {
            way.cut();
            world.bitten("cut");
            world.work(15);
        }
        world.healed();
        world.work(20);
        let demands = demands().fault(FaultKind::Delayed, 3);
        world.passes(&demands.fault(other("cut"), 5));
    });
}

#[test]
fn memory_full_on_a_minority() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        let url = world.url();
        world.busy(3, 40);
        let set = |node: usize, value| {
            let node = &world.nodes.servers()[node];
            node.command(&["CONFIG", "SET", "maxmemory", value]);
        };
        // A client that connects to a node that is full is told so as well.
        let watcher = Watcher::new(&url);
        set(2, "1mb");
        world.bitten("full");
        world.work(60);
        // On two of three, nobody gets a new lock, and is told why.
        set(1, "1mb");
        let error = watcher.take("b").expect_err("there is no room");
        let text = error.to_string();
        assert!(text.contains("maxmemory"), "{text}");
        for node in [1, 2] {
            let port = world.nodes.servers()[node].port();
            assert!(text.contains(&port.to_string()), "{text}");
            set(node, "0");
        }
        drop(watcher);
        world.healed();
        world.work(40);
        world.passes(&demands().fault(other("full"), 1));
    });
}

#[test]
fn script_caches_flushed() {
    at_once(["", "&dialect=plain"], |query| {
        let mut world = World::new(3, LEASE, query);
        let url = world.url();
        world.load(3, &url);
        for round in 0..30 {
            world.work(5);
            world.nodes.servers()[round % 3].command(&["SCRIPT", "FLUSH"]);
            world.bitten("flush");
        }
        world.healed();
        world.work(10);
        let stats = world.passes(&demands().fault(other("flush"), 30));
        assert_eq!(stats.unknown, 0, "a flush cost somebody an answer");
    });
}

/// Tokens begin as the time of a client, and nodes have the last word.
#[test]
fn clients_whose_clocks_are_wrong() {
    in_both_dialects(|query| {
        let mut world = World::new(3, LEASE, query);
        world.set_clocks_wrong();
        world.passes(&demands().fault(other("clocks"), 1));
    });
}
