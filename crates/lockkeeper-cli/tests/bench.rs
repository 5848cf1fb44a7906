//! `lockkeeper bench` from outside: every scenario runs, reports what it promises and leaves nothing behind.
//! How fast it is depends on the machine and is no test.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Stdio};

use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use serde_json::Value;

fn bench(store: &str, args: &[&str]) -> Value {
    // Long enough for a pair in most windows; to a server, on a busy machine, one takes a while.
    let seconds = match store.starts_with("redis") {
        true => "0.5",
        false => "0.05",
    };
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["bench", "--json", "--store", store])
        .args(
            (!args.contains(&"--seconds"))
                .then_some(["--seconds", seconds])
                .into_iter()
                .flatten(),
        )
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // No progress bar where nobody looks at a terminal.
    assert_eq!(errors, "");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["left_behind"], 0);
    report
}

fn scenarios(report: &Value) -> &[Value] {
    report["scenarios"].as_array().unwrap()
}

/// What every scenario of pairs has.
fn check_figure(figure: &Value) {
    let number = |pointer: &str| {
        let found = figure.pointer(pointer).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("no number {pointer} in {figure:#}"))
    };
    assert!(number("/pairs") > 0.0);
    assert!(number("/pairs_per_second") > 0.0);
    for times in ["wait_us", "pair_us"] {
        let [p50, p99, p999, max] =
            ["p50", "p99", "p999", "max"].map(|q| number(&format!("/{times}/{q}")));
        assert!(
            0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= max,
            "{figure:#}"
        );
    }
    assert!(number("/ops_per_acquisition") > 0.0);
    match figure.get("commands") {
        Some(commands) => assert!(commands.as_u64() > Some(0), "{figure:#}"),
        None => assert!(number("/ops/try_acquire") + number("/ops/release") > 0.0),
    }
    let fairness = &figure["fairness"];
    assert_eq!(
        fairness["task_max_min"].is_null(),
        fairness["tasks_with_nothing"].as_u64().unwrap() > 0
    );
    let shares = fairness["pairs_per_process"].as_array().unwrap();
    assert_eq!(shares.len() as f64, number("/processes"));
    assert!(number("/reference/ratio") > 0.0);
    assert!(figure["reference"]["what"].is_string());
}

fn sqlite(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("locks.db").display())
}

/// Only the store's own files are there, and nothing in it is held or waited for.
fn check_left(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(
            !name.to_string_lossy().contains("bench"),
            "{name:?} was left"
        );
    }
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["ls", "--json", "--store", &sqlite(folder)])
        .output()
        .unwrap();
    let locks: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(locks, Value::Array(Vec::new()));
}

const IN_ONE_PROCESS: [&str; 6] = [
    "--scenario",
    "serial",
    "--scenario",
    "parallel",
    "--scenario",
    "contended",
];

#[test]
fn memory_in_one_process() {
    let report = bench("memory:", &IN_ONE_PROCESS);
    assert_eq!(report["store"], "memory");
    let scenarios = scenarios(&report);
    let names: Vec<_> = scenarios
        .iter()
        .map(|s| (&s["scenario"], &s["api"]))
        .collect();
    assert_eq!(
        serde_json::json!(names),
        serde_json::json!([
            ["serial", "async"],
            ["serial", "blocking"],
            ["parallel", "async"],
            ["contended", "async"]
        ])
    );
    scenarios.iter().for_each(check_figure);
    assert_eq!(scenarios[0]["tasks"], 1);
    assert_eq!(scenarios[2]["names"], 64);
    assert_eq!(
        (&scenarios[3]["names"], &scenarios[3]["tasks"]),
        (&1.into(), &64.into())
    );
}

#[test]
fn memory_among_processes_is_skipped_with_a_reason() {
    let report = bench(
        "memory:",
        &["--scenario", "processes", "--scenario", "handoff"],
    );
    for skipped in scenarios(&report) {
        assert!(skipped["skipped"].as_str().unwrap().contains("one process"));
    }
}

#[test]
fn sqlite_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(&sqlite(folder.path()), &IN_ONE_PROCESS);
    let scenarios = scenarios(&report);
    assert_eq!(scenarios.len(), 4);
    scenarios.iter().for_each(check_figure);
    for serial in &scenarios[..2] {
        assert!(serial["also"]["ratio"].as_f64().unwrap() > 0.0);
    }
    for (figure, limit) in [(&scenarios[1], 0.7), (&scenarios[3], 0.5)] {
        assert_eq!(figure["targets"][0]["at_least"], limit);
        assert!(figure["targets"][0]["met"].is_boolean());
    }
    check_left(folder.path());
}

#[test]
fn sqlite_among_processes() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(
        &sqlite(folder.path()),
        &["--scenario", "processes", "--scenario", "handoff"],
    );
    let [processes, handoff] = scenarios(&report) else {
        panic!("two scenarios expected: {report:#}");
    };
    check_figure(processes);
    assert_eq!(
        (&processes["processes"], &processes["tasks"]),
        (&4.into(), &64.into())
    );
    assert_eq!(processes["targets"][0]["what"], "process_max_min");
    check_figure(handoff);
    assert_eq!(handoff["processes"], 2);
    assert!(handoff["handoff_us"]["p50"].as_f64().unwrap() > 0.0);
    assert!(handoff["reference"]["p50_us"].as_f64().unwrap() > 0.0);
    check_left(folder.path());
}

#[test]
fn many_locks_are_held_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    for store in ["memory:", &sqlite(folder.path())] {
        let report = bench(
            store,
            &["--scenario", "held", "--locks", "300", "--lease", "1500ms"],
        );
        let held = &scenarios(&report)[0];
        assert_eq!(
            (&held["locks"], &held["lost"]),
            (&300.into(), &0.into()),
            "{held:#}"
        );
        assert!(held["renewals"].as_u64().unwrap() >= 300, "{held:#}");
        assert!(
            held["renewals_per_request"].as_f64().unwrap() > 1.0,
            "{held:#}"
        );
        for number in ["cpu_seconds", "cpu_share", "cpu_micros_per_renewal"] {
            assert!(held[number].as_f64().unwrap() >= 0.0, "{held:#}");
        }
        assert!(held.get("memory_bytes_per_lock").is_some());
    }
    check_left(folder.path());
}

#[test]
fn a_real_hold_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let report = bench(
        &sqlite(folder.path()),
        &[
            "--scenario",
            "contended",
            "--scenario",
            "processes",
            "--hold",
            "1ms",
            "--blocking",
        ],
    );
    assert_eq!(report["hold_ms"], 1.0);
    for figure in scenarios(&report) {
        check_figure(figure);
        assert_eq!(figure["api"], "blocking");
        assert!(figure["pair_us"]["p50"].as_f64().unwrap() >= 1000.0);
    }
    check_left(folder.path());
}

#[test]
fn people_get_tables() {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["bench", "--seconds", "0.05", "--store", "memory:"])
        .args(["--scenario", "serial", "--scenario", "handoff"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "PAIRS/S",
        "serial (blocking)",
        "tokio::sync::Mutex",
        "handoff: skipped",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args([
            "bench",
            "--seconds",
            "60",
            "--store",
            &sqlite(folder.path()),
        ])
        .args(["--scenario", "serial"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Under way once the reference has its folder.
    let made = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.unwrap().file_name();
        name.to_string_lossy().starts_with(".lockkeeper-bench-")
    };
    while !std::fs::read_dir(folder.path()).unwrap().any(made) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    check_left(folder.path());
}

/// What a scenario is to reach, by name.
fn targets(figure: &Value) -> Vec<&str> {
    let targets = figure["targets"].as_array().unwrap();
    for target in targets {
        assert!(target["met"].is_boolean(), "{target:#}");
    }
    let names = targets.iter().map(|target| target["what"].as_str());
    names.map(Option::unwrap).collect()
}

fn check_nothing_held(store: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["ls", "--json", "--store", store])
        .output()
        .unwrap();
    let locks: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(locks, Value::Array(Vec::new()));
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
