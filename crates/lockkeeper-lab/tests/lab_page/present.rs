//! What the page shows is what it knows: where it looks, how old that is, and how it tells one thing from another.

use serde_json::json;

use crate::browser::{Browser, DESKTOP, Options, PHONE};
use crate::common::Place;
use crate::scripted::{
    LAB, LOCKS, begun, caught_up, hold, holder, lock, locks, open, played, queue, tell, timeline,
};

/// What changes with time.
const DRAWN: &str = "document.querySelector('#side-naive .drawing').outerHTML";

/// Waits until the page has counted so many seconds since it heard something.
fn until_old(browser: &Browser, selector: &str) {
    for seconds in [1, 2] {
        browser.until_says(selector, &format!("{seconds} s ago"));
    }
}

#[test]
fn a_chapter_of_which_nothing_is_heard_stands_still() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    tell(&browser, LAB, &begun(9));
    tell(&browser, LAB, &[hold(9), caught_up()]);
    let before = browser.eval(DRAWN);
    // It counts while the server is there.
    browser.until(&format!("{DRAWN} !== {before}"));
    browser.eval("breakOff()");
    browser.until_says(".actions .old", "as of ");
    let frozen = browser.eval(DRAWN);
    until_old(&browser, ".actions .old");
    assert_eq!(browser.eval(DRAWN), frozen);
    assert_eq!(
        browser.count("#side-naive rect.unknown"),
        2,
        "in it, and in its legend"
    );
    assert_eq!(
        browser.eval("document.querySelector('#run').disabled"),
        true
    );
    assert_eq!(browser.count(".state.running"), 0);
    // Heard of again, it goes on.
    tell(&browser, LAB, &[json!({ "kind": "reset" })]);
    tell(&browser, LAB, &begun(9));
    tell(&browser, LAB, &[hold(9), caught_up()]);
    browser.until("document.querySelector('#run').disabled === false");
    assert_eq!(browser.text(".actions .old"), "");
    assert_eq!(browser.count("#side-naive rect.unknown"), 0);
}

#[test]
fn a_store_that_is_not_seen_is_not_counted_on() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/locks");
    let times = "[...document.querySelectorAll('tbody .age, tbody .remaining .left')].map((e) => e.innerText).join()";
    let seen = [locks(&[lock("stock", &[holder("1", "one", "read")], 0)])];
    let dead = "breakOff()".to_owned();
    let away = json!({ "kind": "unavailable", "message": "it is away" });
    for trouble in [dead, format!("tell('{LOCKS}', [{away}])")] {
        tell(&browser, LOCKS, &seen);
        browser.until("document.querySelector('table.locks:not(.old) tbody tr')");
        browser.eval(&trouble);
        browser.until_says(".over", "as of ");
        let frozen = browser.eval(times);
        until_old(&browser, ".over");
        assert_eq!(browser.eval(times), frozen);
        assert_eq!(browser.count("table.old"), 1);
        // The stream of a server that is gone comes back.
        browser.eval("streams.forEach((stream) => { stream.readyState ||= 1 })");
    }
}

fn names(browser: &Browser) -> serde_json::Value {
    browser.eval("[...document.querySelectorAll('tbody td.name')].map((e) => e.innerText)")
}

#[test]
fn the_filter_folds_case_looks_everywhere_and_is_in_the_address() {
    let place = Place::new();
    let (lab, browser) = open(&place, &DESKTOP, "/#/locks");
    let all = [locks(&[
        lock("Nightly-Backup", &[holder("1", "cron", "exclusive")], 3),
        lock("stock", &[holder("2", "Shop", "read")], 4),
    ])];
    tell(&browser, LOCKS, &all);
    let wish = |text: &str| {
        let text = json!(text);
        browser.eval(&format!(
            "(() => {{
                const filter = document.querySelector('#filter');
                filter.value = {text};
                filter.dispatchEvent(new Event('input'));
            }})()"
        ));
    };
    for (text, name) in [
        ("BACKUP", "Nightly-Backup"),
        ("shop[", "stock"),
        ("READ", "stock"),
    ] {
        wish(text);
        assert_eq!(names(&browser), json!([name]), "{text}");
    }
    assert_eq!(browser.text("#summary"), "1 held, 4 waiting (1 hidden)");
    wish("x&y");
    assert_eq!(
        browser.text("#no-match"),
        "No lock matches “x&y” (2 hidden)."
    );
    assert_eq!(browser.eval("location.hash"), "#/locks?q=x%26y");
    browser.open(&lab.url("/#/locks?q=cron"));
    browser.until("document.querySelector('#filter')?.value === 'cron'");
    tell(&browser, LOCKS, &all);
    assert_eq!(names(&browser), json!(["Nightly-Backup"]));
    browser.is_content();
}

#[test]
fn the_address_and_the_title_tell_what_is_looked_at() {
    let place = Place::new();
    let low = Options {
        height: 500,
        ..DESKTOP
    };
    let (lab, browser) = open(&place, &low, "/#/lab/1");
    tell(
        &browser,
        LAB,
        &played(9, timeline([(0, 600_000), (400_000, 900_000)])),
    );
    tell(&browser, LAB, &[caught_up()]);
    browser.until_says("#run", "Run");
    browser.eval("location.hash = '#/lab/9'");
    browser.until_says(".above", "Chapter 9");
    assert_eq!(browser.eval("scrollY"), 0, "the header stays in view");
    assert_eq!(
        browser.eval("document.title"),
        "9 ✓ A lease shorter than the work, no renewal – Lockkeeper"
    );
    tell(&browser, LAB, &begun(9));
    browser.until("document.title.startsWith('9 ▶')");
    tell(&browser, LAB, &[queue(None)]);
    for (at, words) in [("999", "no chapter “999”"), ("x", "no chapter “x”")] {
        browser.open(&lab.url(&format!("/#/lab/{at}")));
        browser.until_says("article h1", words);
    }
    browser.open(&lab.url("/#/locks"));
    browser.until("document.title === 'Live locks – Lockkeeper'");
    browser.is_content();
}

#[test]
fn a_time_is_the_same_in_all_places() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    // Less than half a millisecond is not nothing.
    tell(
        &browser,
        LAB,
        &played(9, timeline([(0, 600_300), (600_000, 900_000)])),
    );
    tell(&browser, LAB, &[caught_up()]);
    browser.until("document.querySelector('#side-naive .drawing .bar.overlap')");
    browser.eval("document.querySelector('#side-naive .drawing .bar.overlap').dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))");
    browser.until_says("#side-naive .tip", "for 1 ms");
}

#[test]
fn names_keep_their_lines_beside_tokens_and_a_tablet_has_cards() {
    let place = Place::new();
    for (width, cards) in [(800, true), (1024, false)] {
        let tablet = Options { width, ..DESKTOP };
        let (_lab, browser) = open(&place, &tablet, "/#/locks");
        let held = [holder("1", "nightly-backup", "exclusive")];
        tell(
            &browser,
            LOCKS,
            &[locks(&[lock("nightly-backup", &held, 0)])],
        );
        browser.until("document.querySelector('tbody tr')");
        let display = browser.eval("getComputedStyle(document.querySelector('tbody tr')).display");
        assert_eq!(display == "grid", cards, "{width}");
        let lines = browser.eval(
            "document.querySelector('td.name bdi').getBoundingClientRect().height
                / parseFloat(getComputedStyle(document.querySelector('td.name')).lineHeight)",
        );
        assert!(lines.as_f64().expect("a number") < 1.5, "{width}: {lines}");
        // A column of dashes takes no room.
        assert_eq!(
            browser.eval("document.querySelector('td.depth').offsetWidth"),
            0,
            "{width}"
        );
        let token = browser.text("td.token");
        assert_eq!(
            token,
            if cards {
                "1794896534598744"
            } else {
                "…598744"
            }
        );
        assert_eq!(
            browser.eval("document.querySelector('td.token .short').title"),
            "1794896534598744"
        );
    }
}

#[test]
fn two_holders_and_a_pause_are_told_apart_without_colours() {
    let place = Place::new();
    for options in [&DESKTOP, &PHONE] {
        let (_lab, browser) = open(&place, options, "/#/lab/9");
        tell(
            &browser,
            LAB,
            &played(9, timeline([(0, 600_000), (200_000, 900_000)])),
        );
        tell(&browser, LAB, &[caught_up()]);
        browser.until("document.querySelector('#side-naive .drawing .bar.overlap')");
        let turned = browser.eval(
            "['overlap', 'band', 'paused', 'waits'].map((name) =>
                document.querySelector(`#side-naive pattern[id$=-${name}]`).getAttribute('patternTransform'))",
        );
        assert_eq!(turned[0], turned[1]);
        assert!(turned[0] != turned[2] && turned[0] != turned[3], "{turned}");
        let outline =
            "getComputedStyle(document.querySelector('#side-naive .drawing .bar.overlap')).stroke";
        assert_ne!(browser.eval(outline), "none");
        assert_eq!(
            browser.eval("document.querySelector('#side-naive .two')?.textContent"),
            "2 holders"
        );
    }
}
