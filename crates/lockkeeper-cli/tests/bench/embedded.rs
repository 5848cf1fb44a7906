//! In this process, and in a SQLite file.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{IN_ONE_PROCESS, bench, check_figure, check_nothing_held, scenarios};

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
    check_nothing_held(&sqlite(folder));
}

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
            &["--scenario", "held", "--locks", "300", "--lease", "5s"],
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
            // Long enough for a pair in most windows also of a busy machine: each takes a while.
            "--seconds",
            "0.5",
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
