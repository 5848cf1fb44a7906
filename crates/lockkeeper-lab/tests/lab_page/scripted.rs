//! A page that is told by the test what it else hears from the server: messages stand still, and come in any order.

use std::process::Command;

use serde_json::{Value, json};

use crate::browser::{Browser, Options};
use crate::common::Place;
use crate::lab::Lab;

/// Streams that the test writes, and a server that only takes note of what is asked.
const SCRIPT: &str = "
    window.streams = [];
    window.asked = [];
    window.EventSource = class {
        static CLOSED = 2;
        constructor(path) {
            this.path = path;
            this.readyState = 0;
            streams.push(this);
        }
        close() {
            this.readyState = 2;
        }
    };
    const open = (path) => streams.filter((stream) => stream.path === path && stream.readyState !== 2);
    window.tell = (path, messages) => {
        for (const stream of open(path)) {
            stream.readyState = 1;
            stream.onopen();
            for (const message of messages) stream.onmessage({ data: JSON.stringify(message) });
        }
    };
    window.breakOff = () => {
        for (const stream of streams.filter((stream) => stream.readyState === 1)) {
            stream.readyState = 0;
            stream.onerror();
        }
    };
    const real = window.fetch;
    window.fetch = (path, options) => {
        if (options?.method !== 'POST') return real(path, options);
        asked.push(path);
        return Promise.resolve(new Response(null, { status: 204 }));
    };
";

pub const LAB: &str = "/api/lab/events";
pub const LOCKS: &str = "/api/locks/events";

/// Opens the page at a place, with streams that nothing has come through.
pub fn open(place: &Place, options: &Options, at: &str) -> (Lab, Browser) {
    open_of(&mut place.lab(&[]), options, at)
}

/// The same of the laboratory that this command starts.
pub fn open_of(command: &mut Command, options: &Options, at: &str) -> (Lab, Browser) {
    let lab = Lab::start(command);
    let browser = Browser::new(options);
    let source = json!({ "source": SCRIPT });
    browser.chromium("Page.addScriptToEvaluateOnNewDocument", source);
    browser.open(&lab.url(at));
    browser.until("window.streams?.length > 0");
    (lab, browser)
}

/// Messages come through the stream of this path.
pub fn tell(browser: &Browser, path: &str, messages: &[Value]) {
    browser.eval(&format!("tell('{path}', {})", Value::from(messages)));
}

/// What is told first: nothing has run, or this chapter runs.
pub fn queue(running: Option<u8>) -> Value {
    json!({ "kind": "queue", "running": running, "queued": [] })
}

pub fn caught_up() -> Value {
    json!({ "kind": "caught_up", "side_us": 0 })
}

/// Something that happened in a chapter.
pub fn told(chapter: u8, update: &str, more: Value) -> Value {
    let mut news = more;
    news["update"] = update.into();
    json!({ "kind": "told", "chapter": chapter, "update": news })
}

/// A chapter begins, with A in its lane.
pub fn begun(chapter: u8) -> [Value; 4] {
    let text = json!({ "en": "a lock", "zh": "锁" });
    [
        queue(Some(chapter)),
        told(chapter, "chapter_started", json!({})),
        told(
            chapter,
            "side_started",
            json!({ "side": "naive", "lock": text }),
        ),
        told(
            chapter,
            "lane",
            json!({ "id": 0, "name": "A", "server": false }),
        ),
    ]
}

/// A hold of A's that goes on.
pub fn hold(chapter: u8) -> Value {
    let span = json!({
        "id": 0, "lane": 0, "doing": "holds", "from": 0, "to": null, "token": 7, "until": null,
    });
    told(chapter, "span", span)
}

/// A lane of a whole timeline.
pub fn lane(id: u8, name: &str) -> Value {
    json!({ "id": id, "name": name, "server": false })
}

/// A whole run of a chapter, in which this is the timeline of the naive side.
pub fn played(chapter: u8, timeline: Value) -> [Value; 6] {
    let [running, started, side, lane] = begun(chapter);
    let verdict = json!({ "held": false, "found": [{ "en": "It failed.", "zh": "失守。" }] });
    let ended = json!({ "side": "naive", "verdict": verdict, "timeline": timeline });
    let end =
        json!({ "chapter": chapter, "naive_failed": true, "ours_held": true, "seconds": 7.8 });
    let _ = running;
    [
        started,
        side,
        lane,
        told(chapter, "side_ended", ended),
        told(chapter, "chapter_ended", end),
        queue(None),
    ]
}

/// Two lanes with a hold each.
pub fn timeline(holds: [(u64, u64); 2]) -> Value {
    let span = |(lane, (from, to)): (usize, (u64, u64))| {
        json!({
            "id": lane, "lane": lane, "doing": "holds", "from": from, "to": to, "token": null, "until": null,
        })
    };
    let spans: Vec<Value> = holds.into_iter().enumerate().map(span).collect();
    let (from, to) = (holds[0].0.max(holds[1].0), holds[0].1.min(holds[1].1));
    json!({
        "lanes": [lane(0, "A"), lane(1, "B")], "spans": spans, "marks": [], "steps": [],
        "overlaps": [{ "lanes": [0, 1], "from": from, "to": to }], "end": holds[1].1,
    })
}

/// A holder of a lock, as the server tells it.
pub fn holder(claim: &str, program: &str, mode: &str) -> Value {
    json!({
        "claim": claim, "program": program, "pid": 1, "host": "vm", "mode": mode, "token": 1_794_896_534_598_744_u64,
        "label": null, "age_ms": 1_000, "ttl_ms": 30_000, "remaining_ms": 29_000, "depth": null,
    })
}

pub fn lock(name: &str, holders: &[Value], waiters: usize) -> Value {
    json!({ "name": name, "holders": holders, "waiters": waiters, "queue": [] })
}

pub fn locks(locks: &[Value]) -> Value {
    let none = json!({ "ends_ms": [500], "counts": [0, 0] });
    json!({
        "kind": "locks", "at_unix_ms": 1_794_896_398_000_u64, "every_ms": 250, "more": 0, "held": none,
        "waited": none, "locks": locks,
    })
}
