//! Labels and those who wait, as the command shows them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use common::{Place, bare, finish, until};
use lockkeeper_testkit::servers::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// What would clear the screen, end a quotation, and turn the direction of what follows.
const HOSTILE: &str = "order\" 2\u{202e}]m";

/// A `lockkeeper run` that waits, until it is dropped.
struct Waits(Child);

impl Waits {
    fn start(place: &Place, args: &[&str]) -> Waits {
        let args = [&["run"], args, &["x", "--", "true"]].concat();
        let mut command = place.lockkeeper(&args);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Waits(command.spawn().expect("starts"))
    }

    fn end(&mut self) {
        let _ = kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGTERM);
        self.0.wait().expect("ends");
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn show_lists_those_who_wait_in_order_with_their_labels() {
    let place = Place::new();
    let holder = place.hold(
        &["--label", "order 1", "--lease", "20s"],
        "x",
        "exec sleep 600",
    );
    let mut waiters = Vec::new();
    for (number, args) in [&["--label", HOSTILE][..], &["--shared"], &["--label", ""]]
        .into_iter()
        .enumerate()
    {
        waiters.push(Waits::start(&place, args));
        until("it waits", || place.show("x")["waiters"] == number + 1);
    }
    let info = place.show("x");
    let held = &info["holders"][0];
    assert_eq!(held["label"], "order 1");
    assert_eq!(held["lease_ms"], 20_000);
    let queue = info["queue"].as_array().expect("a queue");
    let expected = [
        (HOSTILE.into(), "exclusive"),
        ("true".into(), "read"),
        (Value::Null, "exclusive"),
    ];
    assert_eq!(queue.len(), expected.len(), "{info}");
    for ((waiter, run), (label, mode)) in queue.iter().zip(&waiters).zip(expected) {
        assert_eq!(waiter["pid"], run.0.id());
        assert_eq!((&waiter["label"], &waiter["mode"]), (&label, &mode.into()));
        assert!(waiter["since_unix_ms"].is_u64(), "{waiter}");
    }

    let shown = place.done(&["show", "x"]).code(0).out();
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    let has = |start: &str, end: &str| {
        let found = lines.iter().find(|line| line.starts_with(start));
        assert!(
            found.is_some_and(|line| line.contains(end)),
            "{end} in {shown}"
        );
    };
    has("label", "order 1");
    has("lease", " left of 20s");
    has("waiting", "3");
    has("1 ", " \"order\\\" 2\u{fffd}]m\", exclusive, for ");
    has("2 ", " \"true\", read, for ");
    has("3 ", ", exclusive, for ");
    // Refused, a run says which job is in the way; so does a break.
    let refused = place
        .done(&["run", "--no-wait", "x", "--", "true"])
        .code(75);
    assert!(refused.err().contains(" \"order 1\" for "), "{refused:?}");
    drop(waiters);
    let broken = place.done(&["break", "x", "--reason", "r"]).code(0);
    assert!(broken.out().contains(" \"order 1\" ("), "{broken:?}");
    holder.done().code(76);
}

#[test]
fn a_run_without_a_label_shows_its_command() {
    let place = Place::new();
    let _holder = place.hold(&[], "x", "exec sleep 600");
    let label = place.show("x")["holders"][0]["label"].clone();
    let label = label.as_str().expect("a label");
    assert!(label.starts_with("sh -c echo $$ > "), "{label}");
    let listed = place.done(&["ls"]).code(0).out();
    let header = listed.lines().nth(1).expect("a header");
    assert!(header.ends_with("WAITING  LABEL"), "{listed}");
    assert!(listed.contains("sh -c echo $$ > "), "{listed}");
    let list = place.done(&["ls", "--json"]).code(0).json();
    assert_eq!(list[0]["holders"][0]["label"], label);
    // A list counts those who wait.
    assert_eq!(
        (&list[0]["waiters"], &list[0]["queue"]),
        (&json!(0), &Value::Null)
    );
}

#[test]
fn a_label_that_cannot_be_one_is_refused() {
    let long = "x".repeat(257);
    for label in ["two\nlines", &long] {
        let refused = finish(&mut bare(&["run", "--label", label, "x", "--", "true"])).code(2);
        assert!(refused.err().contains("label"), "{refused:?}");
    }
}

#[test]
fn watch_tells_who_begins_to_wait_and_who_gives_up() {
    let place = Place::new();
    let holder = place.hold(&["--label", "order 1"], "x", "exec sleep 600");
    let mut watch = place
        .lockkeeper(&["watch", "x", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut until = |event: &str| -> Value {
        loop {
            let line = lines.next().expect("more to come").expect("text");
            let line: Value = serde_json::from_str(&line).expect("JSON lines");
            if line["event"] == event {
                return line;
            }
        }
    };
    assert_eq!(until("acquired")["holder"]["label"], "order 1");
    let mut second = Waits::start(&place, &["--label", "order 2"]);
    assert_eq!(until("queued")["waiter"]["label"], "order 2");
    let third = Waits::start(&place, &["--label", "order 3"]);
    assert_eq!(until("queued")["waiter"]["pid"], third.0.id());
    second.end();
    assert_eq!(until("left")["waiter"]["label"], "order 2");
    // The one that has its turn is told of as a holder.
    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
    assert_eq!(until("released")["holder"]["label"], "order 1");
    drop(third);
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGINT).expect("there");
    assert_eq!(watch.wait().expect("ends").code(), Some(130));
}

/// On the machine that runs it, everybody sees the arguments of a command. Other machines do not, unless told.
#[test]
fn other_machines_see_the_program_and_no_argument() {
    let server = RedisServer::start();
    let run = |label: &[&str]| {
        let args = [&["run"], label, &["x", "--", "/bin/sleep", "600"]].concat();
        let mut command = bare(&args);
        command.env("LOCKKEEPER_STORE", server.url());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        Waits(command.spawn().expect("starts"))
    };
    let label = || {
        let mut show = bare(&["show", "x", "--json"]);
        let shown = finish(show.env("LOCKKEEPER_STORE", server.url())).code(0);
        shown.json()["holders"][0]["label"].clone()
    };
    let first = run(&[]);
    until("the program is shown", || label() == "sleep");
    drop(first);
    let _second = run(&["--label", "sleep 600"]);
    until("the label is shown", || label() == "sleep 600");
}
