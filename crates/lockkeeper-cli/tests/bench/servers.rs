//! On Redis: one server, and a quorum.

use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use serde_json::Value;

use crate::{IN_ONE_PROCESS, bench, check_figure, check_nothing_held, scenarios};

/// What a scenario is to reach, by name.
pub fn targets(figure: &Value) -> Vec<&str> {
    let targets = figure["targets"].as_array().unwrap();
    for target in targets {
        assert!(target["met"].is_boolean(), "{target:#}");
    }
    let names = targets.iter().map(|target| target["what"].as_str());
    names.map(Option::unwrap).collect()
}

#[test]
fn redis_beside_the_raw_limit_in_both_dialects() {
    let server = RedisServer::start();
    for (dialect, parallel) in [("redisson", 0.7), ("plain", 0.85)] {
        let store = format!("{}?dialect={dialect}", server.url());
        let report = bench(&store, &IN_ONE_PROCESS);
        assert_eq!(report["store"], "redis");
        let scenarios = scenarios(&report);
        assert_eq!(scenarios.len(), 4);
        scenarios.iter().for_each(check_figure);
        for figure in &scenarios[..3] {
            let beside = figure["reference"]["what"].as_str().unwrap();
            assert!(beside.contains("raw"), "{beside}");
        }
        assert_eq!(scenarios[0]["targets"][0]["at_least"], 0.9);
        assert_eq!(scenarios[2]["targets"][0]["at_least"], parallel);
        assert_eq!(
            targets(&scenarios[3]),
            ["ops_per_acquisition", "wait_us.p99"]
        );
        check_nothing_held(&store);
    }
    // Of the reference nothing is left either.
    let keys = server.keys();
    assert!(!keys.iter().any(|key| key.contains(":raw")), "{keys:?}");
}

#[test]
fn redis_among_processes() {
    let server = RedisServer::start();
    let store = server.url();
    let report = bench(
        &store,
        &["--scenario", "processes", "--scenario", "handoff"],
    );
    let [processes, handoff] = scenarios(&report) else {
        panic!("two scenarios expected: {report:#}");
    };
    check_figure(processes);
    assert_eq!(targets(processes), ["wait_us.p99", "process_max_min"]);
    assert!(handoff["handoff_us"]["p50"].as_f64().unwrap() > 0.0);
    assert_eq!(handoff["targets"][0]["at_most"], 8.0);
    let beside = handoff["reference"]["what"].as_str().unwrap();
    assert!(beside.contains("PING"), "{beside}");
    // Back to back it is quicker, as nobody has to wake: the ratio is not about that one.
    let at_once = &handoff["also"];
    assert!(at_once["what"].as_str().unwrap().contains("PING"));
    assert!(at_once["p50_us"].as_f64().unwrap() > 0.0);
    check_nothing_held(&store);
}

#[test]
fn a_real_hold_stands_beside_itself_without_hand_off() {
    let server = RedisServer::start();
    let report = bench(
        &server.url(),
        &["--scenario", "processes", "--hold", "1ms", "--seconds", "1"],
    );
    assert_eq!(report["hand_off"], true);
    let figure = &scenarios(&report)[0];
    check_figure(figure);
    assert!(figure["reference"]["wait_p99_us"].as_f64().unwrap() > 0.0);
    assert_eq!(targets(figure), ["ratio", "task_max_min"]);
}

#[test]
fn without_hand_off_every_release_goes_to_the_store() {
    let server = RedisServer::start();
    let report = bench(&server.url(), &["--scenario", "contended", "--no-handoff"]);
    assert_eq!(report["hand_off"], false);
    let figure = &scenarios(&report)[0];
    check_figure(figure);
    assert_eq!(targets(figure), ["ops_per_acquisition"]);
    assert!(figure["ops_per_acquisition"].as_f64().unwrap() >= 1.0);
}

#[test]
fn all_waiters_of_a_crowd_finish() {
    let server = RedisServer::start();
    let report = bench(
        &server.url(),
        &["--scenario", "waiters", "--waiters", "1000"],
    );
    let waiters = &scenarios(&report)[0];
    for (crowd, count) in waiters["crowds"]
        .as_array()
        .unwrap()
        .iter()
        .zip([100, 1000])
    {
        assert_eq!(crowd["waiters"], count);
        assert_eq!(crowd["finished"], count, "{waiters:#}");
        assert!(crowd["commands_per_release"].as_f64().unwrap() > 0.0);
    }
    let report = bench("memory:", &["--scenario", "waiters"]);
    assert!(scenarios(&report)[0]["skipped"].is_string());
}

#[test]
fn a_quorum_stands_beside_one_of_its_nodes_and_beside_itself_stalled() {
    let nodes = Independent::start(5);
    let store = nodes.url_at_once("30s");
    let report = bench(
        &store,
        &[
            "--scenario",
            "serial",
            "--scenario",
            "contended",
            "--scenario",
            "stalled",
            "--seconds",
            "1",
        ],
    );
    let [serial, contended, stalled] = scenarios(&report) else {
        panic!("three scenarios expected: {report:#}");
    };
    [serial, contended, stalled]
        .into_iter()
        .for_each(check_figure);
    assert!(serial["reference"]["wait_p50_us"].as_f64().unwrap() > 0.0);
    assert_eq!(targets(serial), ["wait p50 ratio"]);
    assert!(contended["also"]["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(targets(contended), ["ops_per_acquisition", "wait_us.p99"]);
    assert!(stalled["reference"]["wait_p99_us"].as_f64().unwrap() > 0.0);
    assert!(stalled["release_us"]["p99"].as_f64().unwrap() > 0.0);
    assert_eq!(targets(stalled), ["wait p99 ratio", "release p99 ratio"]);
    // All nodes go on.
    for node in nodes.servers() {
        assert_eq!(node.command(&["PING"]), "+PONG\r\n");
    }
    check_nothing_held(&store);
    let report = bench("memory:", &["--scenario", "stalled"]);
    assert!(scenarios(&report)[0]["skipped"].is_string());
}
