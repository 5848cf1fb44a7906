//! Language, colours, and the width of a phone.

use crate::browser::{Browser, DESKTOP, Options, PHONE};
use crate::common::Place;
use crate::lab::{ENDED, Lab, Run};

const BACKGROUND: &str = "getComputedStyle(document.body).backgroundColor";

#[test]
fn language_and_colours_are_switched_and_remembered() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/lab/9"));
    browser.until_says("h1", "A lease shorter than the work");
    let light = browser.eval(BACKGROUND);

    browser.click("#language");
    browser.until_says("h1", "租期比业务短");
    browser.until_says("#run", "运行");
    assert_eq!(browser.eval("document.documentElement.lang"), "zh");
    // Nothing is left in the other language; names of commands are no words.
    for selector in [
        ".note",
        ".status",
        "#run-all",
        "header nav",
        ".side h2 .which",
    ] {
        let text = browser.text(selector);
        assert!(
            !text.is_empty() && !text.contains(|c: char| c.is_ascii_lowercase()),
            "{selector}: {text}"
        );
    }
    browser.click("#theme");
    browser.click("#theme");
    browser.until_says("#theme", "深色");
    let dark = browser.eval(BACKGROUND);
    assert_ne!(dark, light);

    browser.reload();
    browser.until_says("h1", "租期比业务短");
    assert_eq!(browser.eval(BACKGROUND), dark);
    // The other view as well.
    browser.open(&lab.url("/#/locks"));
    browser.until_says("h1", "实时锁");
    browser.until_says(".none", "没有被持有");
    browser.click("#language");
    browser.until_says("h1", "Locks, live");
    browser.click("#theme");
    // As the system has it.
    let wish = |theme: &str| {
        let features =
            serde_json::json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        browser.chromium("Emulation.setEmulatedMedia", features);
        browser.eval(BACKGROUND)
    };
    assert_eq!(wish("dark"), dark);
    assert_eq!(wish("light"), light);
    browser.is_content();
}

#[test]
fn a_chinese_browser_is_spoken_to_in_chinese() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&Options {
        languages: "zh-TW,zh,en",
        ..DESKTOP
    });
    browser.open(&lab.url("/"));
    browser.until_says("h1", "看锁如何失守");
    browser.is_content();
}

#[test]
fn nothing_scrolls_sideways_on_a_phone() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let long = "x".repeat(500);
    let _holders = [&long, "y"].map(|name| Run::start(&place, &[], name));
    let browser = Browser::new(&PHONE);
    let fits = |what: &str| {
        let size = browser.eval("[document.documentElement.scrollWidth, innerWidth]");
        assert_eq!(size[1], PHONE.width, "{what}");
        assert_eq!(size[0], size[1], "{what}");
    };
    browser.open(&lab.url("/"));
    browser.until("document.querySelector('#run')");
    fits("the start");
    browser.click("#run");
    browser.until(ENDED);
    fits("a chapter that has run");
    let inside = browser.eval(
        "[...document.querySelectorAll('svg.drawing')].every((e) => e.getBoundingClientRect().right <= innerWidth)",
    );
    assert_eq!(inside, true);
    browser.open(&lab.url("/#/locks"));
    browser.until("document.querySelectorAll('tbody tr').length > 1");
    fits("the locks");
    browser.click("#language");
    browser.until_says("h1", "实时锁");
    fits("the locks, in Chinese");
    browser.is_content();
}
