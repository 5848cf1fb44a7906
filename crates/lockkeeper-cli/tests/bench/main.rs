//! `lockkeeper bench` from outside: every scenario runs, reports what it promises and leaves nothing behind.
//! How fast it is depends on the machine and is no test.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod embedded;
mod networks;
mod servers;

use std::process::{Command, Stdio};

use serde_json::Value;

const IN_ONE_PROCESS: [&str; 6] = [
    "--scenario",
    "serial",
    "--scenario",
    "parallel",
    "--scenario",
    "contended",
];

fn bench(store: &str, args: &[&str]) -> Value {
    // In five windows, of which one must see a pair, also where a busy machine lets us run only now and then.
    let seconds = "0.5";
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["bench", "--json"])
        // Not an argument: it may have a password.
        .env("LOCKKEEPER_STORE", store)
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
    // No progress bar where nobody looks at a terminal: only what the store has to warn of.
    let warnings: Vec<&str> = errors.lines().collect();
    if store.contains("quarantine=off") {
        assert!(
            matches!(warnings[..], [one] if one.starts_with(r#"{"warning":"quarantine=off: "#)),
            "{errors}"
        )
    } else {
        assert_eq!(errors, "")
    }
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
    // The median of the windows, as is the ratio below: 0 where a busy machine let most of them pass without a pair.
    assert!(number("/pairs_per_second") >= 0.0);
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
    assert!(number("/reference/ratio") >= 0.0);
    assert!(figure["reference"]["what"].is_string());
}

fn check_nothing_held(store: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_lockkeeper"))
        .args(["ls", "--json"])
        .env("LOCKKEEPER_STORE", store)
        .output()
        .unwrap();
    let locks: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(locks, Value::Array(Vec::new()));
}
