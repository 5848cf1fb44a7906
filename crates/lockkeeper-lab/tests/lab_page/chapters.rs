//! Chapters that are run from the page.

use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::browser::{Browser, DESKTOP, ENTER, RIGHT, TAB};
use crate::common::{Place, alive, until};
use crate::lab::{ENDED, Lab};

/// Writes down all that the status says from now on: a busy machine shows what passes to nobody who looks now and then.
const LISTEN: &str = "(() => {
    const status = document.querySelector('#status');
    window.said = [];
    new MutationObserver(() => said.push(status.innerText)).observe(status, { childList: true, characterData: true, subtree: true });
})()";
const HOLDS: &str = "document.querySelectorAll('#side-naive .bar.holds').length > 0";
const OVERLAP: &str = "#side-naive .bar.overlap";

fn open(place: &Place) -> (Lab, Browser) {
    let lab = Lab::start(&mut place.lab(&[]));
    let browser = Browser::new(&DESKTOP);
    (lab, browser)
}

/// Shows a chapter.
fn turn_to(browser: &Browser, lab: &Lab, chapter: u8) {
    browser.open(&lab.url(&format!("/#/lab/{chapter}")));
    let there = format!("document.querySelector('article[data-chapter=\"{chapter}\"] #run')");
    browser.until(&format!("{there}?.innerText === 'Run'"));
}

/// Opens the page and runs a chapter on it, as far as its first hold.
fn at_work(place: &Place) -> (Lab, Browser) {
    let (lab, browser) = open(place);
    turn_to(&browser, &lab, 9);
    browser.click("#run");
    browser.until(HOLDS);
    (lab, browser)
}

/// The processes that a chapter runs with.
fn processes(lab: &Lab) -> Vec<Pid> {
    let processes = lab.descendants();
    assert!(
        processes.len() >= 3,
        "two actors and a server: {processes:?}"
    );
    processes
}

fn until_gone(processes: &[Pid]) {
    until("its processes are gone", || {
        !processes.iter().any(|pid| alive(pid.as_raw()))
    });
}

/// How wide what is drawn of a kind is, in all.
fn width(browser: &Browser, selector: &str) -> f64 {
    let script = format!(
        "[...document.querySelectorAll('{selector}')].reduce((sum, e) => sum + e.getBoundingClientRect().width, 0)"
    );
    browser.eval(&script).as_f64().expect("a number")
}

#[test]
fn chapters_1_9_and_15_are_run_from_the_page() {
    let place = Place::new();
    let (lab, browser) = open(&place);
    for (chapter, naive_lock) in [(1, "no lock at all"), (9, "not renewed"), (15, "no token")] {
        turn_to(&browser, &lab, chapter);
        assert!(browser.text("#side-naive h2").contains(naive_lock));
        browser.eval(LISTEN);
        browser.click("#run");
        browser.until(ENDED);
        let said = browser.eval("said.join()").to_string();
        for words in ["Running, with the naive lock", "Running, with ours"] {
            assert!(said.contains(words), "{said}");
        }
        // What is drawn is of this run: two lanes, an overlap in both of them, and red as well as hatched.
        assert_eq!(browser.count("#side-naive .row"), 2, "chapter {chapter}");
        assert!(browser.count(OVERLAP) >= 2, "chapter {chapter}");
        assert!(width(&browser, OVERLAP) > 4.0, "chapter {chapter}");
        assert_eq!(browser.count("#side-ours .bar.overlap"), 0);
        assert!(browser.count("#side-ours .bar.holds") >= 2);
        let verdict = browser.text("#verdict");
        assert_eq!(verdict, "The naive lock failed and ours held, in this run.");
        assert!(browser.text("#side-naive .badge").contains("failed"));
        assert!(browser.text("#side-naive .found").contains("both believed"));
        assert!(browser.text("#side-ours .badge").contains("held"));
        // The numbers are those of both sides.
        let overlap = browser.text("[data-figure=overlap_ms]");
        let cells: Vec<&str> = overlap.split('\t').collect();
        assert_eq!(cells[2], "0 ms", "{overlap}");
        assert_ne!(cells[1], "0 ms", "{overlap}");
        let selector = format!(".chapters a[href='#/lab/{chapter}'] .state.good");
        assert_eq!(browser.count(&selector), 1);
    }
    // The fence has refused, and it shows.
    assert!(
        browser
            .text("#side-ours .legend")
            .contains("refused by the fence")
    );
    assert!(browser.text("#side-ours .legend").contains("paused"));
    browser.is_content();
}

#[test]
fn a_chapter_is_run_and_read_by_keyboard_alone() {
    let place = Place::new();
    let (lab, browser) = open(&place);
    turn_to(&browser, &lab, 1);
    let focused = |selector: &str| {
        let script = format!("document.activeElement.matches('{selector}')");
        browser.eval(&script) == true
    };
    let tab_to = |selector: &str| {
        for _ in 0..60 {
            if focused(selector) {
                return;
            }
            browser.press(TAB);
        }
        panic!("{selector} cannot be reached");
    };
    tab_to("#run");
    // What has the focus can be seen to have it.
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.eval(outline), "solid");
    browser.press(ENTER);
    browser.until(ENDED);
    tab_to("#side-naive .stage");
    browser.press(RIGHT);
    let tip = "#side-naive .tip";
    until("something is explained", || !browser.text(tip).is_empty());
    let first = browser.text(tip);
    let mut told = vec![first];
    for _ in 0..20 {
        browser.press(RIGHT);
        told.push(browser.text(tip));
    }
    let all = told.join("\n");
    for words in [
        "A: reads the stock",
        "A and B both believed",
        "B: sells one",
        "left in stock",
    ] {
        assert!(all.contains(words), "{words:?} in {all}");
    }
    assert_eq!(
        browser.text(tip).lines().next().map(str::to_owned),
        browser
            .text("#side-naive .unseen[role=status]")
            .split(". ")
            .next()
            .map(str::to_owned),
        "what is seen is said"
    );
    // Zoomed in, bars are wider; 0 shows all again.
    let before = width(&browser, "#side-naive .bar.holds");
    browser.press('+');
    browser.press('+');
    assert!(width(&browser, "#side-naive .bar.holds") > before * 1.5);
    browser.press('0');
    assert!((width(&browser, "#side-naive .bar.holds") - before).abs() < 2.0);
    browser.is_content();
}

#[test]
fn a_run_goes_on_when_the_page_is_reloaded_and_ends_when_it_is_cancelled() {
    let place = Place::new();
    let (lab, browser) = at_work(&place);
    browser.reload();
    // What has happened so far is there again, and it goes on.
    browser.until(HOLDS);
    browser.until(ENDED);
    let once = browser.text("[data-figure=overlap_ms]");
    browser.reload();
    browser.until(ENDED);
    assert_eq!(browser.text("[data-figure=overlap_ms]"), once);

    // Others wait in the queue, and go with it.
    browser.click("#run-all");
    browser.until_says("#run-all", "Cancel all");
    browser.until("document.querySelectorAll('.state.running').length === 1");
    browser.until("document.querySelectorAll('.state.queued').length > 2");
    browser.until_says("#status", "In the queue");
    let processes = lab.descendants();
    // For a moment a click would be the second of a double click.
    browser.until("!document.querySelector('#run-all').ariaDisabled");
    browser.click("#run-all");
    browser.until_says("#run-all", "Run all");
    assert_eq!(browser.count(".state.queued"), 0);
    until_gone(&processes);
    browser.is_content();
}

#[test]
fn ctrl_c_leaves_no_process() {
    let place = Place::new();
    let (lab, browser) = at_work(&place);
    let processes = processes(&lab);
    let status = lab.interrupt();
    assert!(status.success(), "{status}");
    until_gone(&processes);
    browser.until_says(".notice", "does not answer");
}

#[test]
fn a_killed_laboratory_leaves_no_process_either() {
    let place = Place::new();
    let (lab, _browser) = at_work(&place);
    let processes = processes(&lab);
    kill(lab.pid(), Signal::SIGKILL).expect("it runs");
    until_gone(&processes);
}

#[test]
fn a_chapter_that_cannot_run_says_what_to_install() {
    let place = Place::new();
    let mut command = place.lab(&[]);
    let lab = Lab::start(command.env("PATH", place.path("nothing")));
    let browser = Browser::new(&DESKTOP);
    browser.open(&lab.url("/#/lab/9"));
    browser.until_says("article .lacks", "install redis-server");
    assert_eq!(
        browser.eval("document.querySelector('#run').disabled"),
        true
    );
    // Asked for all the same, it says so, and the others run.
    browser.click("#run-all");
    browser.until("document.querySelectorAll('.state.good').length > 0");
    browser.until_says("#status", "cannot run here");
    browser.click("#run-all");
    browser.until_says("#run-all", "Run all");
    browser.is_content();
}

#[test]
fn open_starts_a_browser_with_the_address() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let (opener, told) = (place.path("xdg-open"), place.path("told"));
    let script = format!(
        "#!/bin/sh\necho \"$1\" > '{0}.new'; mv '{0}.new' '{0}'\n",
        told.display()
    );
    std::fs::write(&opener, script).expect("a script");
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).expect("it runs");
    let path = std::env::var("PATH").expect("PATH");
    let path = format!("{}:{path}", opener.parent().expect("a folder").display());
    let lab = Lab::start(place.lab(&["lab", "--open"]).env("PATH", path));
    until("the browser is told", || told.exists());
    let url = std::fs::read_to_string(&told).expect("an address");
    assert_eq!(url.trim(), lab.url(""));
}

#[test]
fn without_listen_a_taken_port_is_no_obstacle() {
    let place = Place::new();
    let start = || {
        let mut command: Command = place.lab(&["lab"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Started::new(&mut command)
    };
    let (one, other) = (start(), start());
    assert_ne!(one.line, other.line);
    for started in [&one, &other] {
        assert!(
            started.line.contains("http://127.0.0.1:"),
            "{}",
            started.line
        );
    }
}

/// A page with the usual address.
struct Started {
    child: std::process::Child,
    line: String,
}

impl Started {
    fn new(command: &mut Command) -> Started {
        use std::io::BufRead;
        let mut child = command.spawn().expect("lockkeeper starts");
        let output = child.stdout.take().expect("a pipe");
        let mut line = String::new();
        let read = std::io::BufReader::new(output).read_line(&mut line);
        read.expect("a line");
        Started { child, line }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_refusal_names_the_token_that_was_shown_and_the_one_that_was_seen() {
    let place = Place::new();
    let (lab, browser) = open(&place);
    turn_to(&browser, &lab, 15);
    browser.click("#run");
    browser.until(ENDED);
    let tip = "#side-ours .tip";
    browser.eval("document.querySelector('#side-ours .stage').focus()");
    let mut tokens = std::collections::BTreeMap::new();
    let refusal = loop {
        browser.press(RIGHT);
        until("something is explained", || !browser.text(tip).is_empty());
        let told = browser.text(tip);
        if told.contains("refused by the fence") {
            break told;
        }
        let token = told.lines().find_map(|line| line.strip_prefix("token "));
        if let Some(token) = token {
            tokens.insert(told[..1].to_owned(), token.to_owned());
        }
    };
    let (a, b) = (&tokens["A"], &tokens["B"]);
    assert_ne!(a, b);
    for words in [
        format!("A showed token {a}"),
        format!("the stock had seen token {b}, of B"),
    ] {
        assert!(refusal.contains(&words), "{words:?} in {refusal}");
    }
    // B's bar can be read beside it.
    let lowest = browser.eval(
        "document.querySelector('#side-ours .tip').getBoundingClientRect().bottom
            - document.querySelectorAll('#side-ours .row')[1].getBoundingClientRect().top",
    );
    assert!(lowest.as_f64().expect("a number") <= 0.0, "{lowest}");
    browser.is_content();
}

#[test]
fn what_a_killed_laboratory_left_is_swept_by_the_next() {
    let place = Place::new();
    let temporary = place.path("tmp");
    let used = temporary.join("lockkeeper-lab-used");
    let other = place.path("other");
    for folder in [&used, &other] {
        std::fs::create_dir_all(folder).expect("makes");
        std::fs::write(folder.join(".owner"), "").expect("writes");
    }
    let link = temporary.join("lockkeeper-lab-link");
    std::os::unix::fs::symlink(&other, &link).expect("links");
    let owner = std::fs::File::open(used.join(".owner")).expect("it is there");
    rustix::fs::flock(&owner, rustix::fs::FlockOperation::LockExclusive).expect("locks");
    let start = || Lab::start(place.lab(&[]).env("TMPDIR", &temporary));
    let left = || {
        let entries = std::fs::read_dir(&temporary).expect("it is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        let mut names: Vec<String> = names
            .filter(|name| name.starts_with("lockkeeper-lab-"))
            .collect();
        names.sort();
        names
    };
    let lab = start();
    let origin = lab.url("");
    let run = crate::http::ask(
        lab.port,
        "POST",
        "/api/lab/1/run",
        &[("Origin", &origin)],
        "",
    );
    assert_eq!(run.status, 204);
    until("a scene has its folder", || left().len() == 3);
    until("its actors are there", || lab.descendants().len() >= 2);
    let processes = lab.descendants();
    kill(lab.pid(), Signal::SIGKILL).expect("it runs");
    until_gone(&processes);
    drop(lab);
    assert_eq!(left().len(), 3, "nobody was there to remove it");
    let _next = start();
    assert_eq!(left(), ["lockkeeper-lab-link", "lockkeeper-lab-used"]);
    assert!(other.join(".owner").exists() && used.join(".owner").exists());
}
