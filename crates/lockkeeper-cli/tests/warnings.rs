//! What is wrong with how a store is set up is told, on standard error, and nothing else is told with it.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use common::{Done, bare, finish, first_line, until};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use serde_json::Value;

/// A server that removes keys when its memory is full.
fn evicting() -> RedisServer {
    let server = RedisServer::start();
    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server
}

fn on(url: &str, args: &[&str]) -> Done {
    finish(bare(args).env("LOCKKEEPER_STORE", url))
}

#[test]
fn a_server_that_evicts_locks_is_warned_about_beside_the_commands_output() {
    let server = evicting();
    let done = on(&server.url(), &["run", "x", "--", "echo", "mine"]).code(0);
    assert_eq!(done.out(), "mine\n");
    let done = done.says("set `maxmemory-policy noeviction`");
    let err = done.err();
    assert!(err.starts_with("lockkeeper: warning: "), "{err}");
    let server_and_policy = format!("(server 127.0.0.1:{}, policy allkeys-lru)", server.port());
    assert!(err.contains(&server_and_policy), "{err}");
    // Every other verb, too.
    on(&server.url(), &["ls"]).code(0).says("noeviction");
    // A server that keeps what it has is not worth a word.
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let done = on(&server.url(), &["run", "x", "--", "echo", "mine"]).code(0);
    assert_eq!((done.out().as_str(), done.err().as_str()), ("mine\n", ""));
}

/// Token keys of names that were locked once, and what `more` says of each.
fn fill(server: &RedisServer, keys: &str, more: &str) {
    let script = format!(
        "for i = 1, 150000 do redis.call('SET', '{keys}{{order ' .. i .. '}}', i {more}) end"
    );
    assert_eq!(server.command(&["EVAL", &script, "0"]), "$-1\r\n");
}

#[test]
fn a_server_that_fills_with_token_keys_is_warned_about() {
    let server = RedisServer::start();
    let run = |url: &str| {
        let done = on(url, &["run", "x", "--", "echo", "mine"]).code(0);
        assert_eq!(done.out(), "mine\n");
        done.err()
    };
    let url = server.url();
    assert_eq!(run(&url), "");
    fill(&server, "redisson_lock_token:", "");
    let err = run(&url);
    assert!(
        err.starts_with("lockkeeper: warning: token keys fill"),
        "{err}"
    );
    assert!(err.contains("token_retention=30d"), "{err}");
    // About how many, of all that there are.
    assert!(err.contains("about 150001, keys 150001"), "{err}");
    // By those who said so, and by those whose keys end anyway.
    for option in [
        "token_retention=30d",
        "token_retention=forever",
        "dialect=plain",
    ] {
        assert_eq!(run(&format!("{url}?{option}")), "");
    }
    // Another's, in a database of their own, and by somebody who may not look.
    assert_eq!(run(&format!("{url}?prefix=app:")), "");
    assert_eq!(run(&url.replace("/0", "/1")), "");
    let user = [
        "ACL", "SETUSER", "locks", "on", ">pw", "~*", "&*", "+@all", "-scan",
    ];
    assert_eq!(server.command(&user), "+OK\r\n");
    assert_eq!(
        run(&format!("redis://locks:pw@127.0.0.1:{}", server.port())),
        ""
    );
    // Those that end, and other keys, are none of them.
    server.command(&["FLUSHALL"]);
    fill(&server, "redisson_lock_token:", ", 'PX', 86400000");
    fill(&server, "app:", "");
    assert_eq!(run(&url), "");
}

#[test]
fn nodes_that_fill_with_token_keys_are_warned_about() {
    let nodes = Independent::start(3);
    fill(&nodes.servers()[1], "redisson_lock_token:", "");
    let done = on(&nodes.url_at_once("5s"), &["run", "x", "--", "true"]).code(0);
    let err = done.err();
    let told: Vec<&str> = err
        .lines()
        .filter(|line| line.contains("token keys"))
        .collect();
    let node = format!("server 127.0.0.1:{}", nodes.servers()[1].port());
    assert!(told.len() == 1 && told[0].contains(&node), "{err}");
}

#[test]
fn programs_read_the_same_as_json() {
    let server = evicting();
    let one = |text: String| -> Value {
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let warns = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.contains("noeviction"))
    };
    let done = on(&server.url(), &["run", "--json", "x", "--", "echo", "mine"]).code(0);
    assert_eq!(done.out(), "mine\n");
    let report = one(done.err());
    assert!(warns(&report["notes"][0]), "{report}");
    let done = on(&server.url(), &["ls", "--json"]).code(0);
    done.json();
    let warning = one(done.err());
    assert!(warns(&warning["warning"]), "{warning}");
}

#[test]
fn an_even_number_of_nodes_and_no_quarantine_are_warned_about() {
    let nodes = Independent::start(4);
    let done = on(
        &nodes.url_at_once("5s"),
        &["run", "x", "--", "echo", "mine"],
    );
    let done = done.code(0);
    assert_eq!(done.out(), "mine\n");
    let err = done.err();
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(lines[0].starts_with("lockkeeper: warning: an even number of nodes"));
    assert!(lines[0].ends_with("(nodes 4)"), "{err}");
    assert!(lines[1].starts_with("lockkeeper: warning: quarantine=off: "));
}

/// Also where the store cannot be reached then: it may be the reason.
#[test]
fn what_others_can_read_or_forge_is_warned_about_and_no_password_is_shown() {
    for (url, word) in [
        // An address for documentation: nobody is there.
        (
            "redis://me:c4n4ry-pa55@192.0.2.1:6379/0?connect_timeout=10ms",
            "warning: the password crosses the network in plain text",
        ),
        (
            "rediss://me:c4n4ry-pa55@127.0.0.1:1/0?insecure=yes",
            "warning: insecure=yes",
        ),
    ] {
        let done = on(url, &["run", "--no-wait", "x", "--", "true"]).code(69);
        let err = done.err();
        assert!(err.contains(word), "{err}");
        assert_eq!(err.lines().count(), 2, "{err}");
        assert!(!err.contains("c4n4ry"), "{err}");
    }
}

#[test]
fn a_password_file_that_everybody_can_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "c4n4ry-pa55\n").expect("writes");
    let url = format!("redis://127.0.0.1:1/0?password_file={}", file.display());
    for (mode, lines) in [(0o644, 2), (0o640, 1), (0o600, 1)] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("sets");
        let err = on(&url, &["run", "--no-wait", "x", "--", "true"])
            .code(69)
            .err();
        assert_eq!(err.lines().count(), lines, "{err}");
        assert_eq!(err.contains("chmod o-r"), mode == 0o644, "{err}");
        assert!(!err.contains("c4n4ry"), "{err}");
    }
}

/// How the lock fares `run` tells by itself.
#[test]
fn trouble_with_the_server_is_not_told_twice() {
    let mut server = RedisServer::start();
    let script = "echo up; exec sleep 600";
    let mut run = bare(&["run", "--lease", "2s", "x", "--", "sh", "-c", script])
        .env("LOCKKEEPER_STORE", server.url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lockkeeper starts");
    assert_eq!(first_line(&mut run), "up\n");
    server.kill();
    let done = Done(run.wait_with_output().expect("it ends")).code(76);
    assert!(!done.err().contains("warning"), "{done:?}");
    assert!(done.err().contains("was lost"), "{done:?}");
}

/// Nobody has to guess whether it is the lock or the server that keeps a command from its start.
#[test]
fn who_waits_is_told_that_it_waits_for_the_server() {
    let mut server = RedisServer::start();
    // Held by a client of Redisson's, for as long as the server keeps it.
    server.command(&["HSET", "x", "somebody:1", "1"]);
    let mut run = bare(&["run", "x", "--", "echo", "mine"])
        .env("LOCKKEEPER_STORE", server.url())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("lockkeeper starts");
    until("it waits", || {
        let waits = server.keys().iter().any(|key| key.contains("queue"));
        assert!(run.try_wait().expect("a state").is_none(), "it waits");
        waits
    });
    server.kill();
    let mut told = BufReader::new(run.stderr.take().expect("piped"));
    let mut line = String::new();
    told.read_line(&mut line).expect("it is told");
    let address = format!("127.0.0.1:{}", server.port());
    assert!(
        line.starts_with("lockkeeper: still waiting for x: ") && line.contains(&address),
        "{line}"
    );
    server.restart_empty();
    // Once for as long as it lasts.
    let mut rest = String::new();
    told.read_to_string(&mut rest).expect("it ends");
    assert_eq!(rest, "");
    let done = run.wait_with_output().expect("it ends");
    assert!(done.status.success());
    assert_eq!(done.stdout, b"mine\n");
}
