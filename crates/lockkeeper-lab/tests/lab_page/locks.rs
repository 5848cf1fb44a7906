//! The view of a store's locks.

use std::io::Read;
use std::time::Duration;

use crate::browser::{Browser, DESKTOP, PHONE};
use crate::common::{Place, until};
use crate::http::{ask, send};
use crate::lab::{Lab, Run};
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;
use lockkeeper_testkit::servers::zookeeper_session::{Node, ZooKeeperSession};

/// Markup, a script, quotes, and a sign that turns the direction of what follows.
pub const HOSTILE: &str =
    "<img src=x onerror=alert(1)>\"'</td><script>alert(2)</script>\u{202e}gnp.exe";

#[test]
fn a_lock_is_shown_while_a_process_holds_it_and_its_name_is_text() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/locks"));
    browser.until_says(".none", "No lock is held");

    let holder = Run::start(&place, &["--lease", "10s"], HOSTILE);
    browser.until_says("tbody .name", "<img src=x onerror=alert(1)>");
    let name = browser.text("tbody .name");
    assert!(
        name.contains("<script>alert(2)</script>⟨U+202E⟩gnp.exe"),
        "{name}"
    );
    assert_eq!(browser.count("tbody img, tbody script"), 0);
    let pid = holder.id();
    assert!(browser.text("tbody .holder").contains(&format!("[{pid}]")));
    assert_eq!(browser.text("tbody .mode"), "exclusive");
    assert_eq!(browser.text("tbody .waiters"), "0");

    // The lease counts down, and is renewed.
    let left = || -> f64 {
        let text = browser.text("tbody .remaining .left");
        text.trim_end_matches(" s").parse().expect("seconds")
    };
    let first = left();
    assert!(first <= 10.0, "{first}");
    // Renewed at any time: what was seen last is what counts.
    let mut last = first;
    until("the lease counts down", || {
        let before = std::mem::replace(&mut last, left());
        last < before
    });
    until("the lease is renewed", || {
        let before = std::mem::replace(&mut last, left());
        last > before + 0.5
    });

    // Somebody waits, and has its turn when the holder lets go.
    let waiter = Run::start(&place, &[], HOSTILE);
    let waiting = waiter.id();
    browser.until_says("tbody .waiters", "1");
    drop(holder);
    browser.until_says("tbody .holder", &format!("[{waiting}]"));
    browser.until_says(".histogram:nth-child(1)", "1 counted");
    browser.until_says(".histogram:nth-child(2)", "1 counted");

    drop(waiter);
    browser.until_says(".none", "No lock is held");
    browser.is_content();
}

/// A fenced lock of a Java client is listed, and most of it is not known.
#[test]
fn what_is_not_known_of_a_holder_is_said_to_be_unknown() {
    let server = RedisServer::start();
    let java = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
    server.command(&["HSET", "order", java, "1"]);
    server.command(&["PEXPIRE", "order", "60000"]);
    server.command(&["SET", "redisson_lock_token:{order}", "5"]);
    let place = Place::new();
    let mut command = place.lab(&[]);
    command.env("LOCKKEEPER_STORE", server.url());
    let lab = Lab::start(&mut command);
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/locks"));
    browser.until_says("tbody .name", "order");
    let holder = browser.text("tbody .holder");
    assert_eq!(holder, "a Redisson client on an unknown host");
    for unknown in ["age", "token"] {
        let cell = browser.text(&format!("tbody .{unknown}"));
        assert_eq!(cell, "not known", "{unknown}");
    }
    assert!(browser.text("tbody .remaining .left").ends_with(" s"));
    browser.is_content();
}

/// A lock of ours on ZooKeeper, and one of a Java client, whose node says where that is.
#[test]
fn locks_on_zookeeper_are_shown() {
    let server = ZooKeeperServer::start();
    let java = ZooKeeperSession::open(server.port(), Duration::from_secs(60));
    java.folders("/locks/order");
    let node = "/locks/order/_c_5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01-lock-";
    let node = java.create(node, b"10.0.0.7", Node::Sequential);
    node.expect("creates");
    let store = format!("zk://127.0.0.1:{}/locks", server.port());
    let place = Place::new();
    let mut command = place.lab(&[]);
    command.env("LOCKKEEPER_STORE", &store);
    let lab = Lab::start(&mut command);
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/locks"));
    browser.until_says("tbody .name", "order");
    browser.until_says("tbody .holder", "10.0.0.7");
    java.close();
    browser.until_says(".none", "No lock is held");
    let holder = Run::start(&place, &["--store", &store, "--lease", "5s"], "ours");
    browser.until_says("tbody .name", "ours");
    let pid = holder.id();
    browser.until_says("tbody .holder", &format!("[{pid}]"));
    drop(holder);
    browser.until_says(".none", "No lock is held");
    browser.is_content();
}

#[test]
fn a_store_that_is_gone_is_said_to_be_and_its_password_is_not() {
    let place = Place::new();
    let mut command = place.lab(&[]);
    // Nobody listens there.
    command.env("LOCKKEEPER_STORE", "redis://user:canary@127.0.0.1:1/0");
    let lab = Lab::start(&mut command);
    let mut stream = send(lab.port, "GET", "/api/locks/events", &[], "");
    let mut told = String::new();
    let mut buffer = [0; 4_096];
    while !told.contains("unavailable") {
        let read = stream.read(&mut buffer).expect("an event in time");
        assert_ne!(read, 0, "it ended: {told}");
        told += &String::from_utf8_lossy(&buffer[..read]);
    }
    let answer = ask(lab.port, "GET", "/api/lab", &[], "");
    let about = answer.text();
    assert!(about.contains("redis://user:***@127.0.0.1:1/0"), "{about}");
    assert!(
        !about.contains("canary") && !told.contains("canary"),
        "{about} {told}"
    );
}

/// Names that are alike, or would be if they were shown carelessly, and what is to be seen of each.
const ALIKE: [(&str, &str); 9] = [
    ("pay 1", "pay 1"),
    ("pay  1", "pay  1"),
    ("pay\u{a0}1", "pay⟨U+00A0⟩1"),
    ("pay\u{200b} 1", "pay⟨U+200B⟩ 1"),
    ("pay\u{fe0f} 1", "pay⟨U+FE0F⟩ 1"),
    ("pay\u{3164}1", "pay⟨U+3164⟩1"),
    ("__proto__", "__proto__"),
    ("{\"kind\": \"reset\"}", "{\"kind\": \"reset\"}"),
    (
        "a\u{301}\u{301}\u{301}\u{301}",
        "a\u{301}\u{301}\u{301}⟨U+0301⟩",
    ),
];

#[test]
fn names_that_deceive_are_seen_for_what_they_are() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let keeper = lockkeeper::blocking::Lockkeeper::connect(&place.url()).expect("a store");
    // As long as a name can be, of what takes the most room.
    let arabic = "\u{627}".repeat(256);
    let unseen = "\u{200b}".repeat(170);
    let names = ALIKE.iter().map(|(name, _)| *name);
    let locks: Vec<_> = names
        .chain([&*arabic, &unseen])
        .map(|name| keeper.lock(name).expect("a name"))
        .collect();
    let _holds: Vec<_> = locks
        .iter()
        .map(|lock| lock.acquire().expect("free"))
        .collect();
    for options in [&PHONE, &DESKTOP] {
        let browser = Browser::new(options);
        browser.open(&lab.url("/#/locks"));
        let all = format!(
            "document.querySelectorAll('tbody tr').length === {}",
            locks.len()
        );
        browser.until(&all);
        let shown =
            browser.eval("[...document.querySelectorAll('tbody .name')].map((e) => e.innerText)");
        let shown = shown.as_array().expect("names");
        for (name, seen) in ALIKE {
            assert!(
                shown.iter().any(|shown| shown == seen),
                "{name:?} as {seen:?} in {shown:?}"
            );
        }
        let size = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
        assert_eq!(size[0], size[1], "nothing scrolls sideways");
        browser.is_content();
    }
}

#[test]
fn a_store_that_is_replaced_is_looked_at_again() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let first = Run::start(&place, &[], "before");
    let mut stream = send(lab.port, "GET", "/api/locks/events", &[], "");
    let mut until_told = |text: &str| {
        let mut told = String::new();
        let mut buffer = [0; 4_096];
        while !told.contains(text) {
            let read = stream.read(&mut buffer).expect("an event in time");
            assert_ne!(read, 0, "it ended: {told}");
            told += &String::from_utf8_lossy(&buffer[..read]);
        }
    };
    until_told("\"before\"");
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(place.path(&format!("locks.db{end}"))).expect("it is there");
    }
    until_told("deleted or replaced");
    let _second = Run::start(&place, &[], "after");
    until_told("\"after\"");
    drop(first);
}

/// A stream that the server refuses is tried again after a pause, in which the reader may have gone elsewhere.
#[test]
fn a_view_that_was_left_opens_no_stream_any_more() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/lab"));
    browser.until("document.querySelector('nav a') !== null");
    browser.eval(
        "(() => {
            const Streams = EventSource;
            window.locks = [];
            window.EventSource = class extends Streams {
                constructor(path) {
                    const locks = path.includes('locks');
                    super(locks ? '/nothing' : path);
                    if (locks) window.locks.push(this);
                }
            };
            location.hash = '#/locks';
        })()",
    );
    let refused = "locks.length > 0 && locks.at(-1).readyState === EventSource.CLOSED";
    browser.until(refused);
    // It is tried again for as long as somebody looks.
    browser.until("locks.length > 1");
    browser.until(refused);
    browser.eval("location.hash = '#/lab'");
    browser.until("document.querySelector('nav [aria-current=page]')?.hash === '#/lab'");
    let opened = browser.eval("locks.length");
    // Later than whatever was due when the view was left.
    browser.eval("void setTimeout(() => { window.later = true }, 4000)");
    browser.until("window.later === true");
    assert_eq!(browser.eval("locks.length"), opened);
}
