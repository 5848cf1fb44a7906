//! What the command says of holders that are clients of Redisson's. Their part is played by the keys that they write.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use common::{Done, bare, finish};
use lockkeeper_testkit::servers::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

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
