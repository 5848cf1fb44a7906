//! What the page does with clicks, keys and bad news, before any lock is looked at.

use serde_json::json;

use crate::browser::{Browser, DESKTOP, ENTER, TAB};
use crate::common::{Place, until};
use crate::lab::Lab;
use crate::scripted::{
    LAB, LOCKS, begun, caught_up, hold, holder, lock, locks, open, open_of, played, queue, tell,
    timeline,
};

#[test]
fn chapters_that_cannot_run_keep_their_titles_readable() {
    let place = Place::new();
    let mut command = place.lab(&[]);
    let lab = Lab::start(command.env("PATH", place.path("nothing")));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/lab/1"));
    browser.until("document.querySelectorAll('.chapters .state.missing').length > 10");
    let covered = browser.eval(
        "[...document.querySelectorAll('.chapters a')].filter((a) => {
            const [title, state] = ['.title', '.state'].map((part) => a.querySelector(part).getBoundingClientRect());
            return state.left < title.right || state.height > title.height;
        }).length",
    );
    assert_eq!(covered, 0);
}

#[test]
fn a_double_click_runs_and_does_not_cancel() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    tell(
        &browser,
        LAB,
        &[json!({ "kind": "reset" }), queue(None), caught_up()],
    );
    browser.until_says("#run", "Run");
    for (button, run, cancel) in [
        ("#run", "/api/lab/9/run", "/api/lab/9/cancel"),
        ("#run-all", "/api/lab/run", "/api/lab/cancel"),
    ] {
        browser.eval("void asked.splice(0)");
        let begun = serde_json::Value::from(begun(9).to_vec());
        let asked = browser.eval(&format!(
            "(async () => {{
                document.querySelector('{button}').click();
                tell('{LAB}', {begun});
                await new Promise(requestAnimationFrame);
                if (!document.querySelector('{button}').innerText.startsWith('Cancel')) return 'not told';
                document.querySelector('{button}').click();
                return asked;
            }})()"
        ));
        assert_eq!(asked, json!([run]));
        // Later it cancels.
        browser.until(&format!(
            "(document.querySelector('{button}').click(), asked.includes('{cancel}'))"
        ));
        tell(&browser, LAB, &[queue(None)]);
        browser.until(&format!("!document.querySelector('{button}').ariaDisabled"));
    }
}

#[test]
fn the_last_run_is_shown_until_the_next_has_something() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    let bars = "document.querySelectorAll('#side-naive .drawing .bar.holds').length";
    tell(
        &browser,
        LAB,
        &played(9, timeline([(0, 600_000), (400_000, 900_000)])),
    );
    tell(&browser, LAB, &[caught_up()]);
    browser.until(&format!("{bars} === 2"));
    tell(&browser, LAB, &begun(9));
    browser.until_says("#status", "Running");
    assert_eq!(browser.eval(bars), 2);
    assert_eq!(
        browser.eval("document.querySelector('#verdict').hidden"),
        true,
        "it is not this run's"
    );
    // Cancelled before anything came of it, it leaves what there was.
    tell(
        &browser,
        LAB,
        &[json!({ "kind": "cancelled", "chapter": 9 }), queue(None)],
    );
    browser.until_says("#status", "Cancelled");
    assert_eq!(browser.eval(bars), 2);
    tell(&browser, LAB, &begun(9));
    tell(&browser, LAB, &[hold(9)]);
    browser.until(&format!("{bars} === 1"));
}

#[test]
fn nothing_moves_where_motion_is_not_wanted() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    let wish = json!({ "features": [{ "name": "prefers-reduced-motion", "value": "reduce" }] });
    browser.chromium("Emulation.setEmulatedMedia", wish);
    tell(&browser, LAB, &begun(9));
    tell(&browser, LAB, &[caught_up()]);
    browser.until("document.querySelector('.state.running') !== null");
    let moves = browser.eval(
        "getComputedStyle(document.querySelector('.state.running'), '::before').animationName",
    );
    assert_eq!(moves, "none");
}

#[test]
fn a_request_that_reaches_nobody_is_not_called_refused() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/lab/1"));
    browser.until("document.querySelector('#run')?.disabled === false");
    drop(lab);
    browser.until_says(".notice", "does not answer");
    let seen = "void (window.notices = new Set(), new MutationObserver(() => notices.add(document.querySelector('.notice').innerText))
        .observe(document.querySelector('.notice'), { childList: true, characterData: true, subtree: true, attributes: true }))";
    for (word, language) in [("does not answer", "en"), ("没有响应", "zh")] {
        browser.eval(seen);
        browser.eval(
            "(async () => {
                const real = window.fetch;
                window.failed = 0;
                window.fetch = async (...all) => {
                    try { return await real(...all) } finally { window.failed += 1 }
                };
            })()",
        );
        browser.click("#run");
        browser.until("failed > 0");
        browser.until_says(".notice", word);
        let notices = browser.eval("[...notices].join()").to_string();
        assert!(
            !notices.contains("fetch") && !notices.contains("refused"),
            "{language}: {notices}"
        );
        assert!(!notices.contains("拒绝"), "{language}: {notices}");
        if language == "en" {
            browser.click("#language");
            browser.until_says(".notice", "没有响应");
        }
    }
}

#[test]
fn an_empty_view_names_the_store_that_it_shows() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/locks");
    tell(&browser, LOCKS, &[locks(&[])]);
    browser.until_says(".none", "No lock is held");
    let hint = browser.text(".none code");
    let command = format!(
        "LOCKKEEPER_STORE='{}' lockkeeper run hello -- sleep 30",
        place.url()
    );
    assert_eq!(hint, command);
}

/// A lock of Java's without a fence is a key like any other there.
#[test]
fn a_view_of_redis_says_what_it_does_not_list() {
    let place = Place::new();
    let mut command = place.lab(&[]);
    // What the store says is told by the test.
    command.env("LOCKKEEPER_STORE", "redis://127.0.0.1:1/0");
    let (_lab, browser) = open_of(&mut command, &DESKTOP, "/#/locks");
    tell(&browser, LOCKS, &[locks(&[])]);
    browser.until_says(".none", "No lock is found.");
    browser.until_says(
        "#unlisted",
        "such as Java’s RLock: lockkeeper show NAME shows it",
    );
}

#[test]
fn the_skip_link_leads_to_the_chapter() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    tell(&browser, LAB, &[queue(None), caught_up()]);
    browser.until_says("#run", "Run");
    browser.press(TAB);
    assert_eq!(browser.eval("document.activeElement.className"), "skip");
    browser.press(ENTER);
    browser.press(TAB);
    assert_eq!(browser.eval("document.activeElement.id"), "run");
}

#[test]
fn those_who_wait_for_a_lock_are_counted_once() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/locks");
    let readers = [holder("1", "one", "read"), holder("2", "two", "read")];
    tell(&browser, LOCKS, &[locks(&[lock("stock", &readers, 2)])]);
    until("both are shown", || browser.count("tbody .waiters") == 2);
    let counts =
        browser.eval("[...document.querySelectorAll('tbody .waiters')].map((e) => e.innerText)");
    assert_eq!(counts, json!(["2", ""]));
    let weights = browser.eval(
        "new Set([...document.querySelectorAll('th')].map((e) => getComputedStyle(e).fontWeight)).size",
    );
    assert_eq!(weights, 1, "all headers look alike");
}

#[test]
fn the_verdict_is_announced() {
    let place = Place::new();
    let (_lab, browser) = open(&place, &DESKTOP, "/#/lab/9");
    tell(
        &browser,
        LAB,
        &played(9, timeline([(0, 600_000), (400_000, 900_000)])),
    );
    tell(&browser, LAB, &[caught_up()]);
    browser.until_says("#status", "Ended in 7.8 s.");
    let said = browser.text("#status[role=status]");
    assert!(
        said.contains("The naive lock failed and ours held, in this run."),
        "{said}"
    );
}
