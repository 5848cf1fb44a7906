//! Those who wait for a lock, labels, and how much of a lease is left.

use std::thread::JoinHandle;

use lockkeeper::blocking::Lockkeeper;
use lockkeeper_lab::chapters::Stage;
use lockkeeper_lab::page::{PageOptions, serve};
use serde_json::json;
use tokio::sync::oneshot;

use crate::browser::{Browser, DESKTOP, PHONE};
use crate::common::{Place, until};
use crate::lab::{Lab, Run};
use crate::locks::HOSTILE;

/// A page of this process, on a store of this process.
struct Page {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl Page {
    fn open(store: &str) -> Page {
        let (stop, stopped) = oneshot::channel();
        let (opened, address) = std::sync::mpsc::channel();
        let options = PageOptions {
            listen: Some(([127, 0, 0, 1], 0).into()),
            store: Some(store.to_owned()),
            stage: Stage::here().expect("a stage"),
        };
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            let told = |page: &lockkeeper_lab::page::Opened| {
                opened.send(page.url.clone()).expect("it is waited for");
                Ok(())
            };
            let served = serve(options, told, async { drop(stopped.await) });
            runtime.block_on(served).expect("the page is served");
        });
        Page {
            url: address.recv().expect("it listens"),
            stop: Some(stop),
            serving: Some(serving),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

#[test]
fn those_who_wait_are_listed_in_order_and_their_labels_are_text() {
    let store = "memory:those-who-wait";
    let page = Page::open(store);
    let keeper = Lockkeeper::connect(store).expect("a store");
    let stock = keeper.lock("stock").expect("a name");
    let held = stock.label(HOSTILE).expect("a label").acquire();
    let held = held.expect("free");
    // As long as a label can be, of what takes the most room.
    let unseen = "\u{200b}".repeat(85);
    let mut waiting = Vec::new();
    for label in ["order 2", HOSTILE, &unseen] {
        let (of, label) = (keeper.clone(), label.to_owned());
        waiting.push(std::thread::spawn(move || {
            let lock = of.lock("stock").and_then(|lock| lock.label(&label));
            lock.expect("a lock").acquire().expect("acquired").release()
        }));
        let number = waiting.len();
        until("it waits", || {
            let info = keeper.inspect("stock").expect("works").expect("held");
            info.waiters == number
        });
    }
    let me = format!("[{}]", std::process::id());
    for options in [&PHONE, &DESKTOP] {
        let browser = Browser::new(options);
        browser.open(&format!("{}/#/locks", page.url));
        browser.until("document.querySelectorAll('.waiting li').length === 3");
        let shown =
            browser.eval("[...document.querySelectorAll('.waiting li')].map((e) => e.innerText)");
        let shown: Vec<&str> = shown
            .as_array()
            .expect("texts")
            .iter()
            .flat_map(|t| t.as_str())
            .collect();
        let text = "<script>alert(2)</script>⟨U+202E⟩gnp.exe";
        for (shown, label) in shown.iter().zip(["order 2", text, "⟨U+200B⟩"]) {
            for part in [label, &me, "exclusive", "for "] {
                assert!(shown.contains(part), "{part:?} in {shown:?}");
            }
        }
        assert!(browser.text("tbody .holder").contains(text));
        assert_eq!(browser.text("tbody .waiters"), "3");
        assert_eq!(browser.count("tbody img, tbody script"), 0);
        let size = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
        assert_eq!(size[0], size[1], "nothing scrolls sideways");
        browser.is_content();
    }
    held.release().expect("released");
    for waiter in waiting {
        waiter.join().expect("no panic").expect("released");
    }
}

/// What the page says of leases is about what the server sends, so it is sent leases that stand still.
#[test]
fn the_meter_shows_how_much_of_the_whole_lease_is_left() {
    let page = Page::open("memory:leases");
    let browser = Browser::new(&DESKTOP);
    browser.open(&format!("{}/#/lab", page.url));
    browser.until("document.querySelector('nav a') !== null");
    let hour = 3_600_000;
    let lock = |name: &str, ttl: Option<u64>, left: u64| {
        let holder = json!({
            "claim": name, "program": "p", "pid": 1, "host": "h", "mode": "exclusive", "token": 1,
            "label": null, "age_ms": 0, "ttl_ms": ttl, "remaining_ms": left, "depth": null,
        });
        json!({ "name": name, "holders": [holder], "waiters": 0, "queue": [] })
    };
    let none = json!({ "ends_ms": [500], "counts": [0, 0] });
    let news = json!({
        "kind": "locks", "at_unix_ms": 0, "every_ms": 250, "more": 0, "held": none, "waited": none,
        "locks": [
            lock("renewed", Some(hour), hour * 2 / 3),
            lock("late", Some(hour), hour * 2 / 5),
            lock("ends", Some(hour), hour / 20),
            lock("unknown", None, hour),
        ],
    });
    browser.eval(&format!(
        "(() => {{
            const Streams = EventSource;
            window.EventSource = class extends Streams {{
                constructor(path) {{
                    const locks = path.includes('locks');
                    super(locks ? '/nothing' : path);
                    if (locks) setTimeout(() => this.onmessage({{ data: JSON.stringify({news}) }}), 0);
                }}
            }};
            location.hash = '#/locks';
        }})()"
    ));
    browser.until("document.querySelectorAll('tbody tr').length === 4");
    let seen = browser.eval(
        "[...document.querySelectorAll('tbody .remaining')].map((cell) => [
            cell.dataset.lease ?? '',
            cell.querySelector('.state-of-lease').textContent,
            cell.querySelector('.meter').hidden ? '' : cell.querySelector('.meter span').style.width.slice(0, 2),
        ])",
    );
    let expected = json!([
        ["", "", "66"],
        ["overdue", "not renewed", "39"],
        ["ending", "about to end", "4."],
        ["", "", ""],
    ]);
    assert_eq!(seen, expected);
    let colours = browser.eval(
        "[...document.querySelectorAll('.meter span')].map((e) => getComputedStyle(e).backgroundColor)",
    );
    let colours = colours.as_array().expect("colours");
    assert!(colours[0] != colours[1] && colours[1] != colours[2] && colours[0] != colours[2]);
}

/// As a user meets it: commands that hold and wait.
#[test]
fn commands_that_wait_are_listed_with_their_labels() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/locks"));
    let holder = Run::start(&place, &["--label", "first"], "x");
    browser.until_says("tbody .holder", "first");
    let waiter = Run::start(&place, &["--label", "second"], "x");
    browser.until_says(".waiting li", "second");
    assert!(
        browser
            .text(".waiting li")
            .contains(&format!("[{}]", waiter.id()))
    );
    drop(holder);
    browser.until_says("tbody .holder", "second");
    browser.until("document.querySelector('.waiting') === null");
    browser.is_content();
}
