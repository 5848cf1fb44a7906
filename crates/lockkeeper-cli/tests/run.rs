//! `lockkeeper run` when all goes well, and when it is used wrongly.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use common::{Done, Place, bare, eventually, feed, finish};
use lockkeeper_testkit::servers::redis::RedisServer;

#[test]
fn the_exit_code_is_the_commands() {
    let place = Place::new();
    for code in [0, 1, 42, 255] {
        let script = format!("exit {code}");
        let done = place
            .done(&["run", "x", "--", "sh", "-c", &script])
            .code(code);
        assert_eq!(done.err(), "", "nothing to say about an ordinary run");
    }
    place
        .done(&["run", "x", "--", "sh", "-c", "kill -TERM $$"])
        .code(143);
    place
        .done(&["run", "x", "--", "sh", "-c", "kill -KILL $$"])
        .code(137);
}

#[test]
fn the_command_knows_its_lock_and_its_store() {
    let place = Place::new();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let done = place
            .done(&["run", "a name", "--lease", "20s", "--", "env"])
            .code(0);
        let out = done.out();
        let get = |name: &str| {
            let line = out.lines().find_map(|l| l.strip_prefix(name));
            line.and_then(|l| l.strip_prefix('=')).map(str::to_owned)
        };
        assert_eq!(get("LOCKKEEPER_NAME").as_deref(), Some("a name"));
        assert_eq!(get("LOCKKEEPER_STORE"), Some(place.url()));
        let owner = get("LOCKKEEPER_OWNER").expect("an owner");
        assert!(owner.contains(':'), "{owner}");
        let deadline: u128 = get("LOCKKEEPER_DEADLINE_MS")
            .and_then(|ms| ms.parse().ok())
            .expect("a deadline");
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970");
        assert!(deadline < now.as_millis() + 20_000);
        assert!(deadline > now.as_millis() - 60_000);
        let token: u64 = get("LOCKKEEPER_TOKEN")
            .and_then(|t| t.parse().ok())
            .expect("a token");
        tokens.push(token);
    }
    assert!(tokens[0] < tokens[1], "tokens grow: {tokens:?}");
}

/// A waiter on Redis is granted a second by the release. Its command starts with the whole lease all the same.
#[test]
fn who_waited_begins_with_the_whole_lease() {
    let server = RedisServer::start();
    let run = |args: &[&str]| {
        let mut run = bare(&[&["run", "x", "--lease", "300s", "--"], args].concat());
        run.env("LOCKKEEPER_STORE", server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        run.spawn().expect("lockkeeper starts")
    };
    let mut first = run(&["cat"]);
    eventually("it holds", || {
        (server.strings(&["EXISTS", "x"]) == ["1"]).then_some(())
    });
    let second = run(&["sh", "-c", "echo $LOCKKEEPER_DEADLINE_MS"]);
    eventually("it waits", || {
        (server.strings(&["ZCARD", "lockkeeper_queue:{x}"]) == ["1"]).then_some(())
    });
    drop(first.stdin.take());
    assert!(first.wait().expect("it ends").success());
    let done = Done(second.wait_with_output().expect("it ends")).code(0);
    let deadline: u128 = done.out().trim().parse().expect("a deadline");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    assert!(deadline > now.as_millis() + 60_000);
}

#[test]
fn standard_input_and_output_are_the_commands() {
    let place = Place::new();
    let done = feed(
        &mut place.lockkeeper(&["run", "x", "--", "cat"]),
        "one\ntwo\n",
    )
    .code(0);
    assert_eq!(done.out(), "one\ntwo\n");
}

#[test]
fn a_shell_is_used_only_when_asked_for() {
    let place = Place::new();
    let plain = place
        .done(&["run", "x", "--", "echo", "$LOCKKEEPER_NAME", "|", "cat"])
        .code(0);
    assert_eq!(plain.out(), "$LOCKKEEPER_NAME | cat\n");
    let shell = place
        .done(&[
            "run",
            "-c",
            "x",
            "--",
            "echo $LOCKKEEPER_NAME",
            "|",
            "tr x y",
        ])
        .code(0);
    assert_eq!(shell.out(), "y\n");
    // Options after the name are still ours; what follows the two dashes is not.
    let late = place
        .done(&["run", "x", "-c", "--", "echo", "--json", "-c"])
        .code(0);
    assert_eq!(late.out(), "--json -c\n");
}

#[test]
fn busy_is_told_apart_and_waiting_has_a_bound() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    place
        .done(&["run", "--no-wait", "x", "--", "echo"])
        .code(75)
        .says("not free; it is held by lockkeeper[");
    place
        .done(&["run", "--wait", "100ms", "x", "--", "echo"])
        .code(75)
        .says("within 100ms; it is held by lockkeeper[");
    place
        .done(&["run", "--no-wait", "-E", "9", "x", "--", "echo"])
        .code(9)
        .says(&format!("(store {})", place.url()));
    for quiet in [
        &["run", "-qn", "x", "--", "echo"][..],
        &["run", "--quiet", "-w", "0.1", "x", "--", "echo"],
    ] {
        let done = place.done(quiet).code(75);
        assert_eq!((done.out().as_str(), done.err().as_str()), ("", ""));
    }
    // An error is told all the same.
    place
        .done(&["run", "-q", "--store", "nonsense", "x", "--", "echo"])
        .code(2)
        .says("scheme");
    let told = place
        .done(&["run", "-qn", "--json", "x", "--", "echo"])
        .code(75);
    assert!(told.err().contains("is not free"), "{told:?}");
    place.done(&["run", "--no-wait", "y", "--", "true"]).code(0);
    let waiter = place
        .lockkeeper(&["run", "--wait", "5m", "x", "--", "echo", "mine"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    common::until("it waits", || place.show("x")["waiters"] == 1);
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    holder.done().code(143);
    let waiter = common::Done(waiter.wait_with_output().expect("ends")).code(0);
    assert_eq!(waiter.out(), "mine\n");
}

#[test]
fn sharing_and_permits() {
    let place = Place::new();
    let reader = place.hold(&["--shared"], "book", "exec sleep 600");
    place
        .done(&["run", "--no-wait", "--shared", "book", "--", "true"])
        .code(0);
    place
        .done(&["run", "--no-wait", "book", "--", "true"])
        .code(75);
    reader.signal(nix::sys::signal::Signal::SIGTERM);
    reader.done().code(143);
    place
        .done(&["run", "--no-wait", "book", "--", "true"])
        .code(0);

    let one = place.hold(&["--permits", "2"], "pool", "exec sleep 600");
    place
        .done(&["run", "--no-wait", "--permits", "2", "pool", "--", "true"])
        .code(0);
    let info = place.show("pool");
    assert_eq!(info["holders"][0]["permits"], serde_json::json!([1, 2]));
    place
        .done(&["run", "--no-wait", "--permits", "1", "pool", "--", "true"])
        .code(75);
    one.signal(nix::sys::signal::Signal::SIGTERM);
    one.done().code(143);
}

#[test]
fn what_cannot_be_run_leaves_the_lock_free() {
    let place = Place::new();
    place
        .done(&["run", "x", "--", "no-such-command"])
        .code(127)
        .says("no-such-command");
    let file = place.path("plain");
    std::fs::write(&file, "text").expect("writes");
    place
        .done(&["run", "x", "--", file.to_str().expect("text")])
        .code(126)
        .says("cannot run");
    place
        .done(&["run", "x", "--", "echo hello"])
        .code(127)
        .says("--shell");
    assert_eq!(place.show("x")["held"], false);
    place.done(&["run", "--no-wait", "x", "--", "true"]).code(0);
}

#[test]
fn nothing_is_left_but_the_database() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "while [ ! -e go ]; do sleep 0.1; done");
    // More than once: a command that ends may only just be in time.
    for _ in 0..5 {
        place.done(&["ls"]).code(0);
        place
            .done(&["run", "--no-wait", "x", "--", "true"])
            .code(75);
        place.done(&["run", "y", "--", "true"]).code(0);
    }
    let keepers = std::fs::read_dir(place.path("locks.db-keepers")).expect("reads");
    assert_eq!(keepers.count(), 2, "those of the one that still runs");
    std::fs::write(place.path("go"), "").expect("writes");
    holder.done().code(0);
    let left = std::fs::read_dir(place.path("")).expect("reads");
    let left = left.map(|entry| entry.expect("reads").file_name());
    let mut left: Vec<_> = left.filter(|name| name != "go").collect();
    left.sort();
    assert_eq!(left, ["locks.db", "pid-x"].map(std::ffi::OsString::from));
}

#[test]
fn wrong_usage_is_two() {
    let place = Place::new();
    for args in [
        &["run"][..],
        &["run", "x"],
        &["run", "x", "true"],
        &["run", "x", "--"],
        &["run", "--wait", "1s", "--no-wait", "x", "--", "true"],
        &["run", "--shared", "--permits", "2", "x", "--", "true"],
        &["run", "--permits", "0", "x", "--", "true"],
        &["run", "--lease", "30", "x", "--", "true"],
        &["run", "--lease", "1ms", "x", "--", "true"],
        &["run", "--lease", "100d", "x", "--", "true"],
        &["run", "-E", "256", "x", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["show", ""],
        &["break", "x"],
        &["break", "x", "--reason", " "],
        &["nonsense"],
    ] {
        let done = place.done(args).code(2);
        assert!(!done.err().is_empty(), "{args:?}");
        assert_eq!(done.out(), "", "{args:?}");
    }
    let long = "n".repeat(100_000);
    place
        .done(&["run", &long, "--", "true"])
        .code(2)
        .says("limit");
}

#[test]
fn wrong_usage_is_told_what_to_write() {
    let place = Place::new();
    for (args, words) in [
        (&["run", "x", "echo", "hi"][..], "run NAME -- echo"),
        (&["run", "--no-wait", "x", "ls", "-l"], "run NAME -- ls"),
        (
            &["run", "--lease", "25h", "x", "--", "true"],
            "25h is outside 100ms to 24h",
        ),
        (&["run", "--wait", "-1s", "x", "--", "true"], "duration"),
        (&["run", "--timeout", "1s", "x", "--", "true"], "is --wait"),
        (
            &["--store", "sqlite:~/x.db", "run", "x", "--", "true"],
            "~ is not expanded",
        ),
    ] {
        let done = place.done(args).code(2);
        assert!(done.err().contains(words), "{done:?}");
    }
    // Where it would not help it is not said.
    for args in [
        &["show", "run", "x"][..],
        &["run", "x", "--nonsense", "--", "true"],
        &["run", "x"],
    ] {
        let done = place.done(args).code(2);
        assert!(!done.err().contains("before the command"), "{done:?}");
    }
    assert!(!place.path("~").exists());
}

#[test]
fn odd_names_work_exactly() {
    let place = Place::new();
    for name in [
        "naïve ✓",
        "'; DROP TABLE x; --",
        "{a}{b}",
        "../../etc",
        "%s",
        "-",
    ] {
        let script = "printf %s \"$LOCKKEEPER_NAME\"";
        let done = place.done(&["run", name, "--", "sh", "-c", script]).code(0);
        assert_eq!(done.out(), name);
    }
}

#[test]
fn stores_that_cannot_be_used() {
    let place = Place::new();
    for (url, code) in [
        ("nonsense", 2),
        ("", 2),
        ("gopher://host", 2),
        ("sqlite:", 2),
        ("sqlite:/dev/null/locks.db", 69),
    ] {
        let done = finish(&mut bare(&["run", "--store", url, "x", "--", "true"])).code(code);
        done.says("store");
    }
    let foreign = place.path("foreign.db");
    std::fs::write(
        &foreign,
        "not a database, but long enough to be read as one".repeat(100),
    )
    .expect("writes");
    let url = format!("sqlite:{}", foreign.display());
    finish(&mut bare(&["run", "--store", &url, "x", "--", "true"]))
        .code(69)
        .says("store");
}

#[test]
fn json_tells_everything_on_standard_error() {
    let place = Place::new();
    let report = |args: &[&str], code: i32| -> serde_json::Value {
        let done = place.done(args).code(code);
        assert_eq!(done.err().lines().count(), 1, "{done:?}");
        serde_json::from_str(&done.err()).expect("JSON")
    };
    let fine = report(
        &["run", "--json", "x", "--", "sh", "-c", "echo out; exit 3"],
        3,
    );
    assert_eq!(fine["name"], "x");
    assert_eq!(fine["outcome"], "finished");
    assert_eq!(fine["exit_code"], 3);
    assert_eq!(fine["command"]["exited"], 3);
    assert!(fine["token"].as_u64().is_some());
    let killed = report(
        &["--json", "run", "x", "--", "sh", "-c", "kill -HUP $$"],
        129,
    );
    assert_eq!(killed["command"]["signal"], "SIGHUP");
    let missing = report(&["run", "--json", "x", "--", "no-such-command"], 127);
    assert_eq!(missing["outcome"], "failed");
    let holder = place.hold(&[], "x", "exec sleep 600");
    let busy = report(&["run", "--json", "--no-wait", "x", "--", "true"], 75);
    assert_eq!(busy["outcome"], "not acquired");
    holder.signal(nix::sys::signal::Signal::SIGKILL);
    holder.done();
}

#[test]
fn many_at_once_lose_no_update() {
    const MANY: usize = 20;
    let place = Place::new();
    let file = place.path("count");
    std::fs::write(&file, "0").expect("writes");
    // Reads, waits and writes: without a lock most of it would be lost.
    let script =
        "n=$(cat count); sleep 0.01; echo $((n + 1)) > count; echo $LOCKKEEPER_TOKEN >> tokens";
    let runs: Vec<_> = (0..MANY)
        .map(|_| {
            place
                .lockkeeper(&["run", "-c", "x", "--", script])
                .stdin(Stdio::null())
                .spawn()
                .expect("starts")
        })
        .collect();
    for mut run in runs {
        assert!(run.wait().expect("ends").success());
    }
    let count = std::fs::read_to_string(&file).expect("reads");
    assert_eq!(count.trim(), MANY.to_string());
    let tokens = std::fs::read_to_string(place.path("tokens")).expect("reads");
    let tokens: Vec<u64> = tokens
        .lines()
        .map(|t| t.parse().expect("a token"))
        .collect();
    assert_eq!(tokens.len(), MANY);
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens grow: {tokens:?}");
}

/// What a server says is told, without what could play tricks on a terminal.
#[test]
fn a_server_cannot_write_to_the_terminal() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let store = format!("redis://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 4096];
            while stream.read(&mut asked).is_ok_and(|many| many > 0) {
                let said = "-ERR \x1b]0;owned\x07 \u{9b}2J no\r\n".repeat(9);
                let _ = stream.write_all(said.as_bytes());
            }
        }
    });
    let place = Place::new();
    for verb in [
        &["run", "x", "--", "true"][..],
        &["run", "--json", "x", "--", "true"],
        &["ls"],
        &["ls", "--json"],
        &["show", "x"],
    ] {
        let args = [&["--store", &store], verb].concat();
        let done = place.done(&args).code(69);
        let text = done.err();
        assert!(text.contains("owned"), "{text:?}");
        assert!(!text.trim_end().contains(char::is_control), "{text:?}");
    }
}

/// As in a script that has called flock(1) so far.
#[test]
fn the_options_of_flock_are_understood() {
    let place = Place::new();
    for args in [
        &["run", "-n", "x", "--", "echo", "hi"][..],
        &["run", "-w", "3", "x", "--", "echo", "hi"],
        &["run", "--wait", "0.5", "x", "--", "echo", "hi"],
        &["run", "-s", "-w", "3", "x", "--", "echo", "hi"],
        &["run", "-x", "-E", "9", "x", "--", "echo", "hi"],
        &[
            "run",
            "-e",
            "--nonblock",
            "--conflict-exit-code",
            "9",
            "x",
            "--",
            "echo",
            "hi",
        ],
        &["run", "-n", "x", "-c", "echo hi"],
        &["run", "x", "--command", "echo hi"],
    ] {
        assert_eq!(place.done(args).code(0).out(), "hi\n", "{args:?}");
    }
    place.done(&["run", "-s", "-x", "x", "--", "true"]).code(2);
    place.done(&["run", "x", "-c", "--help"]).code(0);
    let reader = place.hold(&["-s"], "x", "exec sleep 600");
    place.done(&["run", "-sn", "x", "--", "true"]).code(0);
    place.done(&["run", "-xn", "x", "-c", "true"]).code(75);
    reader.signal(nix::sys::signal::Signal::SIGTERM);
    reader.done().code(143);
}

/// Or it would not be stopped for using a terminal that it does not have.
#[test]
#[cfg(target_os = "linux")]
fn the_command_blocks_no_signal() {
    let place = Place::new();
    let status = place.done(&["run", "x", "--", "grep", "SigBlk", "/proc/self/status"]);
    assert_eq!(status.code(0).out(), "SigBlk:\t0000000000000000\n");
}

#[test]
fn a_store_that_is_not_up_yet_is_waited_for() {
    let mut server = RedisServer::start();
    let url = server.url();
    server.kill();
    let waits = |wait: &str| {
        let mut run = bare(&["run", "--wait", wait, "x", "--", "echo", "mine"]);
        run.env("LOCKKEEPER_STORE", &url).stdin(Stdio::null());
        run
    };
    let start = std::time::Instant::now();
    let in_vain = finish(&mut waits("500ms")).code(69);
    assert!(start.elapsed() >= std::time::Duration::from_millis(500));
    assert!(
        in_vain.err().contains("waiting for the store: "),
        "{in_vain:?}"
    );
    finish(bare(&["run", "x", "--", "true"]).env("LOCKKEEPER_STORE", &url)).code(69);
    let mut run = waits("10m")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut told = String::new();
    let mut errors = BufReader::new(run.stderr.take().expect("a pipe"));
    errors.read_line(&mut told).expect("a line");
    assert!(told.contains("waiting for the store: "), "{told}");
    server.restart();
    let ended = run.wait_with_output().expect("ends");
    assert_eq!(
        (ended.status.code(), &ended.stdout[..]),
        (Some(0), &b"mine\n"[..])
    );
}
