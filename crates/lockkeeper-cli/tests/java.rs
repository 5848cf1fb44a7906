//! What the command says of holders that are clients of Redisson's. Their part is played by the keys that they write.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::{Done, bare, finish};
use lockkeeper_testkit::servers::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
const JAVA_TOO: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:43";
const WHO: &str = "a Redisson client on an unknown host";

fn on(url: &str, args: &[&str]) -> Command {
    let mut command = bare(args);
    command.env("LOCKKEEPER_STORE", url).stdin(Stdio::null());
    command
}

fn ask(server: &RedisServer, args: &[&str]) -> Done {
    finish(&mut on(&server.url(), args))
}

/// A `lockkeeper watch`, until it is dropped.
struct Watch(Child);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT);
        let _ = self.0.wait();
    }
}

/// An `RLock` of one thread.
fn java_locks(server: &RedisServer, name: &str) {
    server.command(&["HSET", name, JAVA, "1"]);
    server.command(&["PEXPIRE", name, "30000"]);
}

/// An `RPermitExpirableSemaphore` of which a client has some permits, each with this lease in ms.
fn java_has_permits(server: &RedisServer, name: &str, free: u32, taken: u32, lease: u64) {
    server.command(&["SET", name, &free.to_string()]);
    let time = server.strings(&["TIME"]);
    let now: u64 = time[0].parse().expect("seconds");
    for number in 0..taken {
        let id = format!("permit of java {number}");
        assert_eq!(id.len(), 16);
        let ends = (1000 * now + lease).to_string();
        server.command(&["ZADD", &format!("{{{name}}}:timeout"), &ends, &id]);
    }
}

/// The value of a line of `show`.
#[track_caller]
fn line<'a>(shown: &'a str, label: &str) -> &'a str {
    let mut lines = shown.lines().map(str::trim);
    let found = lines.find_map(|line| line.strip_prefix(label));
    found.unwrap_or_else(|| panic!("{label} in {shown}")).trim()
}

#[test]
fn what_is_not_known_of_a_holder_is_said_to_be_unknown() {
    let server = RedisServer::start();
    java_locks(&server, "order:1");
    // An RFencedLock had it before; whether this hold is fenced cannot be told.
    server.command(&["SET", "redisson_lock_token:{order:1}", "5"]);
    let info = ask(&server, &["show", "order:1", "--json"]).code(0).json();
    let list = ask(&server, &["ls", "--json"]).code(0).json();
    for holder in [&info["holders"][0], &list[0]["holders"][0]] {
        assert_eq!(holder["owner"], JAVA);
        assert_eq!(holder["program"], "a Redisson client");
        for unknown in ["host", "pid", "token", "since_unix_ms", "lease_ms", "label"] {
            assert_eq!(
                holder.get(unknown),
                Some(&Value::Null),
                "{unknown} in {holder}"
            );
        }
        assert!(holder["remaining_ms"].as_u64() > Some(0), "{holder}");
    }
    let shown = ask(&server, &["show", "order:1"]).code(0).out();
    assert_eq!(line(&shown, "held by"), WHO);
    assert_eq!(line(&shown, "since"), "unknown");
    assert_eq!(line(&shown, "token"), "unknown");
    assert_eq!(line(&shown, "owner"), JAVA);
    assert_eq!(line(&shown, "last token"), "5");
    let listed = ask(&server, &["ls"]).code(0).out();
    let row = listed.lines().last().expect("a row");
    assert!(row.contains(WHO), "{listed}");
    assert_eq!(row.matches("unknown").count(), 3, "{listed}");
    let refused = ask(&server, &["run", "--no-wait", "order:1", "--", "true"]).code(75);
    refused.says(&format!("it is held by {WHO} for an unknown time (store "));
    let refused = ask(
        &server,
        &["--lang", "zh", "run", "-n", "order:1", "--", "true"],
    )
    .code(75);
    refused.says("，由未知主机上的 Redisson 客户端持有，已持有的时间未知（存储 ");
}

#[test]
fn what_never_ends_is_not_said_to_end_now() {
    let server = RedisServer::start();
    // As redis-py writes a lock without a time-out.
    server.command(&["SET", "job", "d1e8a7c29f0b11ee8c990242ac120002"]);
    let plain = format!("{}?dialect=plain", server.url());
    let info = finish(&mut on(&plain, &["show", "job", "--json"]))
        .code(0)
        .json();
    let holder = &info["holders"][0];
    assert_eq!(holder["program"], "another client");
    for unknown in ["remaining_ms", "owner", "host", "token"] {
        assert_eq!(
            holder.get(unknown),
            Some(&Value::Null),
            "{unknown} in {holder}"
        );
    }
    let shown = finish(&mut on(&plain, &["show", "job"])).code(0).out();
    assert_eq!(line(&shown, "lease"), "no end, or unknown");
    assert_eq!(line(&shown, "owner"), "unknown");
}

#[test]
fn watch_tells_of_javas_holders() {
    let server = RedisServer::start();
    java_locks(&server, "x");
    let mut command = on(&server.url(), &["watch", "x"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watch = Watch(command.spawn().expect("starts"));
    let mut lines = BufReader::new(watch.0.stdout.take().expect("a pipe")).lines();
    let mut next = || lines.next().expect("more to come").expect("text");
    let first = next();
    let acquired = format!("acquired by {WHO}, exclusive, token unknown");
    assert!(first.ends_with(&acquired), "{first}");
    server.command(&["DEL", "x"]);
    let second = next();
    let released = format!("released by {WHO} after an unknown time");
    assert!(second.ends_with(&released), "{second}");
}

#[test]
fn a_break_of_a_lock_of_java_says_whom_it_broke() {
    let server = RedisServer::start();
    let broken = ["break", "br:2", "--reason", "java is stuck"];
    java_locks(&server, "br:2");
    let named = ask(&server, &[&broken[..], &["--claim", JAVA_TOO]].concat()).code(77);
    named.says(&format!("br:2 is held by {WHO} (exclusive), owner {JAVA}"));
    let done = ask(&server, &broken).code(0);
    assert_eq!(done.out(), format!("took br:2 from {WHO} (exclusive)\n"));
    assert_eq!(server.strings(&["EXISTS", "br:2"]), ["0"]);
    java_locks(&server, "br:2");
    let done = ask(&server, &[&broken[..], &["--json"]].concat())
        .code(0)
        .json();
    assert_eq!(done["broken"].as_array().map(Vec::len), Some(1), "{done}");
    let holder = &done["broken"][0];
    assert_eq!(holder["owner"], JAVA);
    for unknown in ["host", "pid", "token", "since_unix_ms"] {
        assert_eq!(
            holder.get(unknown),
            Some(&Value::Null),
            "{unknown} in {holder}"
        );
    }
    let info = ask(&server, &["show", "br:2", "--json"]).code(0).json();
    assert_eq!(info["broken"]["reason"], "java is stuck");
}

#[test]
fn permits_of_java_are_counted_and_broken() {
    let server = RedisServer::start();
    java_has_permits(&server, "sem:2", 2, 1, 30_000);
    let info = ask(&server, &["show", "sem:2", "--json"]).code(0).json();
    assert_eq!(
        (&info["held"], &info["known"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(info["free_permits"], 2);
    let holder = &info["holders"][0];
    assert_eq!(
        (&holder["mode"], &holder["permits"]),
        (&json!("permit"), &json!([1, 3]))
    );
    assert_eq!(holder.get("owner"), Some(&Value::Null));
    let left = holder["remaining_ms"].as_u64();
    assert!(left > Some(0) && left <= Some(30_000), "{holder}");
    let shown = ask(&server, &["show", "sem:2"]).code(0).out();
    assert_eq!(line(&shown, "held by"), WHO);
    assert_eq!(line(&shown, "mode"), "1 of 3 permits");
    assert_eq!(line(&shown, "owner"), "unknown");
    assert_eq!(line(&shown, "permits"), "2 free");

    // One claim cannot be named; they are named instead.
    let broken = ["break", "sem:2", "--reason", "r"];
    let named = ask(&server, &[&broken[..], &["--claim", JAVA]].concat()).code(77);
    named.says(&format!("sem:2 is held by {WHO} (1 of 3 permits)"));
    let done = ask(&server, &broken).code(0);
    assert_eq!(
        done.out(),
        format!("took sem:2 from {WHO} (1 of 3 permits)\n")
    );
    assert_eq!(server.strings(&["GET", "sem:2"]), ["3"]);
    assert_eq!(server.strings(&["EXISTS", "{sem:2}:timeout"]), ["0"]);

    // Two that were taken for good.
    java_has_permits(&server, "sem:4", 3, 2, 922_337_203_685_477);
    let shown = ask(&server, &["show", "sem:4"]).code(0).out();
    assert_eq!(
        line(&shown, "held by"),
        "Redisson clients on an unknown host"
    );
    assert_eq!(line(&shown, "mode"), "2 of 5 permits");
    assert_eq!(line(&shown, "lease"), "no end, or unknown");
}

/// An `RSemaphore` is a number alone.
#[test]
fn a_semaphore_without_a_record_says_that_its_holders_are_unknown() {
    let server = RedisServer::start();
    server.command(&["SET", "sem:3", "2"]);
    let info = ask(&server, &["show", "sem:3", "--json"]).code(0).json();
    assert_eq!(info["free_permits"], 2);
    assert_eq!(info.get("held"), Some(&Value::Null), "{info}");
    assert_eq!(
        (&info["known"], &info["holders"]),
        (&json!(true), &json!([]))
    );
    let shown = ask(&server, &["show", "sem:3"]).code(0).out();
    assert_eq!(line(&shown, "state"), "unknown");
    let permits = line(&shown, "permits");
    assert!(permits.starts_with("2 free"), "{shown}");
    assert!(permits.contains("no record"), "{shown}");
    let broken = ["break", "sem:3", "--reason", "r"];
    let done = ask(&server, &broken).code(0).out();
    assert!(done.starts_with("nothing was broken: "), "{done}");
    assert!(
        done.contains("2 free permits") && done.contains("no record"),
        "{done}"
    );
    let done = ask(&server, &[&broken[..], &["--json"]].concat())
        .code(0)
        .json();
    assert_eq!(
        (&done["broken"], &done["free_permits"]),
        (&json!([]), &json!(2))
    );
    assert_eq!(server.strings(&["GET", "sem:3"]), ["2"]);
    let info = ask(&server, &["show", "sem:3", "--json"]).code(0).json();
    assert_eq!(info["broken"], Value::Null);
    assert_eq!(server.keys(), ["sem:3"]);
}

#[test]
fn a_list_says_what_it_cannot_find() {
    let server = RedisServer::start();
    java_locks(&server, "order:1");
    let url = server.url();
    for url in [url.clone(), format!("{url}?dialect=plain")] {
        let listed = finish(&mut on(&url, &["ls"])).code(0).out();
        assert!(
            listed.starts_with(&format!("found no lock in {url}")),
            "{listed}"
        );
        assert!(listed.contains("show NAME"), "{listed}");
        assert!(!listed.contains("no lock is held"), "{listed}");
        let listed = finish(&mut on(&url, &["ls", "--json"])).code(0).json();
        assert_eq!(listed, json!([]));
    }
    // A list that finds some says so as well: who sees one lock of Java's would believe that there are no others.
    let held = ["run", "ours", "--", env!("CARGO_BIN_EXE_lockkeeper"), "ls"];
    let listed = finish(&mut on(&url, &held)).code(0).out();
    let said = format!("store {url}; not listed is what other clients hold without a fence");
    assert!(listed.starts_with(&said), "{listed}");
}
