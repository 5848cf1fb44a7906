//! The verbs that look at locks and manage them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Done, Place, bare, finish, until_in};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

#[test]
fn ls_and_show_tell_who_holds() {
    let place = Place::new();
    assert!(place.done(&["ls"]).code(0).out().contains("no lock"));
    assert_eq!(
        place.done(&["ls", "--json"]).code(0).json(),
        serde_json::json!([])
    );
    let unknown = place.done(&["show", "app/x"]).code(0);
    assert!(unknown.out().contains("free"), "{unknown:?}");
    assert_eq!(place.show("app/x")["known"], false);

    let holder = place.hold(&[], "app/x", "exec sleep 600");
    let listed = place.done(&["ls", "app/"]).code(0).out();
    assert!(
        listed.starts_with(&format!("store {}\nNAME", place.url())),
        "{listed}"
    );
    assert!(
        listed.contains("app/x") && listed.contains("exclusive"),
        "{listed}"
    );
    assert!(
        place
            .done(&["ls", "other"])
            .code(0)
            .out()
            .contains("no lock")
    );
    let shown = place.done(&["show", "app/x"]).code(0).out();
    assert!(
        shown.contains("held by") && shown.contains("lockkeeper["),
        "{shown}"
    );
    let info = place.show("app/x");
    assert_eq!(info["held"], true);
    assert_eq!(info["holders"][0]["pid"], holder.lockkeeper.id());
    assert!(info["holders"][0]["remaining_ms"].as_u64() > Some(0));
    let list = place.done(&["--json", "ls"]).code(0).json();
    assert_eq!(list[0]["holders"][0]["owner"], info["holders"][0]["owner"]);

    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
    let shown = place.done(&["show", "app/x"]).code(0).out();
    assert!(shown.contains("free"), "{shown}");
}

#[test]
fn watch_tells_what_happens() {
    let place = Place::new();
    let mut watch = place
        .lockkeeper(&["watch", "x", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    // The wanted event comes; others, such as of waiters, may come before it.
    let mut until = |event: &str| -> Value {
        loop {
            let line = lines.next().expect("more to come").expect("text");
            let line: Value = serde_json::from_str(&line).expect("JSON lines");
            assert_eq!(line["name"], "x");
            if line["event"] == event {
                return line;
            }
        }
    };
    until("free");
    let holder = place.hold(&[], "x", "exec sleep 600");
    let acquired = until("acquired");
    assert_eq!(acquired["holder"]["pid"], holder.lockkeeper.id());
    let mut waiter = place
        .lockkeeper(&["run", "x", "--", "sleep", "600"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    assert_eq!(until("waiting")["waiters"], 1);
    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
    until("released");
    assert_eq!(until("acquired")["holder"]["pid"], waiter.id());
    place.done(&["break", "x", "--reason", "why not"]).code(0);
    assert_eq!(until("broken")["reason"], "why not");
    kill(Pid::from_raw(waiter.id().cast_signed()), Signal::SIGTERM).expect("there");
    waiter.wait().expect("ends");
    kill(Pid::from_raw(watch.id().cast_signed()), Signal::SIGINT).expect("there");
    assert_eq!(watch.wait().expect("ends").code(), Some(130));
}

#[test]
fn break_says_who_held() {
    let place = Place::new();
    let nobody = place.done(&["break", "x", "--reason", "r"]).code(0);
    assert!(nobody.out().contains("nobody held"), "{nobody:?}");
    let holder = place.hold(&["--lease", "2s"], "x", "exec sleep 600");
    let done = place
        .done(&["break", "x", "--reason", "r", "--json"])
        .code(0)
        .json();
    assert_eq!(done["broken"][0]["pid"], holder.lockkeeper.id());
    assert_eq!(place.show("x")["broken"]["reason"], "r");
    let shows = || place.done(&["show", "x"]).code(0).out();
    assert!(shows().contains(" ago: r"), "{}", shows());
    // The next holder has nothing to do with it.
    let next = place.hold(&[], "x", "exec sleep 600");
    assert!(shows().contains(", before this hold: r"), "{}", shows());
    drop(next);
    holder.done().code(76);
}

#[test]
fn a_break_of_what_nobody_holds_leaves_no_record() {
    let server = RedisServer::start();
    let redis = server.url();
    let plain = format!("{redis}?dialect=plain");
    for place in [Place::new(), Place::on(redis), Place::on(plain)] {
        let done = place.done(&["break", "typo", "--reason", "x"]).code(0);
        assert_eq!(done.out(), "nothing was broken: nobody held typo\n");
        assert_eq!(place.show("typo")["broken"], Value::Null);
        let shown = place.done(&["show", "typo"]).code(0).out();
        assert!(!shown.contains("broken"), "{shown}");
    }
}

#[test]
fn break_ends_the_hold_that_is_named_and_no_other() {
    let place = Place::new();
    let named = |args: &[&str]| place.done(&[&["break", "x", "--reason", "r"], args].concat());
    let readers = ["one", "two"].map(|file| {
        let script = format!("echo $LOCKKEEPER_TOKEN > {file}; exec sleep 600");
        let reader = place.hold(&["--shared"], "x", &script);
        until_in(&place.path(file), "\n");
        reader
    });
    let token = |file: &str| std::fs::read_to_string(place.path(file)).expect("a token");
    let (one, two) = (token("one"), token("two"));
    let (one, two) = (one.trim(), two.trim());
    assert_eq!(place.show("x")["holders"].as_array().map(Vec::len), Some(2));
    let nobodys = (two.parse::<u64>().expect("a number") + 1).to_string();
    // Another holds: nothing is broken, and it is said who.
    let other = named(&["--token", &nobodys]).code(77);
    for token in [one, two] {
        assert!(
            other.err().contains(&format!("token {token}, owner ")),
            "{other:?}"
        );
    }
    let done = named(&["--token", one, "--json"]).code(0).json();
    assert_eq!(done["broken"][0]["pid"], readers[0].lockkeeper.id());
    let [first, second] = readers;
    first.done().code(76);
    let shown = place.show("x");
    assert_eq!(shown["holders"][0]["token"].to_string(), two);
    let owner = shown["holders"][0]["owner"].as_str().expect("an id");
    let done = named(&["--token", one, "--json"]).code(77);
    assert_eq!(done.json()["held_by"][0]["owner"], owner);
    assert_eq!(done.json()["broken"], serde_json::json!([]));
    assert!(done.err().contains("\"exit_code\":77"), "{done:?}");
    named(&["--claim", owner]).code(0);
    second.done().code(76);
    let free = named(&["--claim", owner]).code(0);
    assert!(free.out().contains("nobody held"), "{free:?}");
    named(&["--token", "0"]).code(2);
    named(&["--claim", "nonsense"]).code(2);
    named(&["--claim", owner, "--token", two]).code(2);
}

#[test]
fn stores_lists_what_this_build_has() {
    let text = finish(&mut bare(&["stores"])).code(0).out();
    assert!(text.contains("memory") && text.contains("sqlite"), "{text}");
    let survives = text.lines().find(|line| line.starts_with("holds survive"));
    let survives = survives.expect("a row");
    for word in ["not a reboot", "with data on disk"] {
        assert!(survives.contains(word), "{survives}");
    }
    let json = finish(&mut bare(&["stores", "--json"])).code(0).json();
    let schemes = json.as_array().expect("an array");
    assert!(
        schemes
            .iter()
            .any(|s| s["scheme"] == "sqlite" && s["reach"] == "machine"),
        "{json}"
    );
    // The dialects of Redis differ in what they can do.
    let fair = |dialect: &str| {
        let found = schemes.iter().find(|s| s["dialect"] == dialect);
        found.expect("listed")["fair"].clone()
    };
    assert_eq!(
        (fair("redisson"), fair("plain")),
        (true.into(), false.into())
    );
}

#[test]
fn schema_prints_what_an_administrator_runs() {
    let text = finish(&mut bare(&[
        "schema", "postgres", "--user", "app", "--schema", "my locks",
    ]));
    let text = text.code(0).out();
    for words in [
        "CREATE SCHEMA IF NOT EXISTS \"my locks\"",
        "CREATE UNLOGGED TABLE IF NOT EXISTS \"my locks\".alive",
        "GRANT USAGE ON SCHEMA \"my locks\" TO \"app\"",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let text = finish(&mut bare(&[
        "schema", "mysql", "--user", "app", "--prefix", "own_",
    ]));
    let text = text.code(0).out();
    for words in [
        "CREATE TABLE IF NOT EXISTS own_lock",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON own_waiter TO 'app'@'%'",
    ] {
        assert!(text.contains(words), "{text}");
    }
    finish(&mut bare(&["schema", "oracle"])).code(2);
}

#[test]
fn run_asks_a_quorum_for_no_longer_lease_than_it_grants() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("5s");
    let run = |args: &[&str]| finish(bare(args).env("LOCKKEEPER_STORE", &url));
    let ran = run(&["run", "x", "--", "echo", "ran"]).code(0);
    assert_eq!(ran.out().trim(), "ran");
    // A command that asks for more is told.
    run(&["run", "--lease", "30s", "x", "--", "true"]).code(2);
}

#[test]
fn show_and_stores_tell_how_the_nodes_of_a_quorum_are() {
    let mut nodes = Independent::start(3);
    let url = nodes.url("60s&node_timeout=10s");
    let ask = |args: &[&str]| finish(bare(args).env("LOCKKEEPER_STORE", &url)).code(0);
    // They have just started.
    let shown = ask(&["show", "x"]).out();
    for server in nodes.servers() {
        let line = format!("127.0.0.1:{} sits out for ", server.port());
        assert!(shown.contains(&line), "{shown}");
    }
    let shown = ask(&["show", "x", "--json"]).json();
    assert_eq!(shown["nodes"][0]["state"], "sitting_out", "{shown}");
    assert!(shown["nodes"][0]["ready_in_ms"].as_u64() > Some(30_000));
    nodes.server(1).kill();
    let listed = ask(&["stores"]).out();
    let down = format!("127.0.0.1:{} is down", nodes.servers()[1].port());
    assert!(listed.contains(&down), "{listed}");
    let listed = ask(&["stores", "--json"]).json();
    let all = listed.as_array().expect("an array");
    let used = |scheme: &&Value| scheme["scheme"] == "redlock" && scheme["dialect"] == "redisson";
    let used = all.iter().find(used).expect("it is listed");
    assert_eq!(used["nodes"][1]["state"], "down", "{listed}");
    assert!(used["nodes"][1]["reason"].is_string(), "{listed}");
    nodes.server(0).kill();
    let listed = ask(&["stores"]).out();
    assert!(listed.contains("too few nodes"), "{listed}");
    // And a try says why there is nothing to wait for.
    let tried =
        finish(bare(&["run", "--no-wait", "x", "--", "true"]).env("LOCKKEEPER_STORE", &url));
    assert!(tried.err().contains("redlock"), "{tried:?}");
}

/// A name, and a program's name, that look like others on a terminal: by a right-to-left override, by what is not seen.
const DECEIVING: &str = "a\u{202e}b\u{2066}c\u{200b}d\u{2028}e\u{feff}f\u{85}";

#[test]
fn what_others_named_cannot_deceive_on_a_terminal() {
    let place = Place::new();
    let name = DECEIVING.replace('\u{85}', "");
    let program = place.copy_of_lockkeeper(DECEIVING);
    let mut run = std::process::Command::new(&program);
    run.args(["run", &name, "--", "sh", "-c", "echo held; exec sleep 600"]);
    run.env("LOCKKEEPER_STORE", place.url());
    let mut holder = run.stdout(Stdio::piped()).spawn().expect("starts");
    assert_eq!(common::first_line(&mut holder), "held\n");

    let plain = "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}e\u{fffd}f";
    let deceives = |text: &str| text.contains(|c: char| !c.is_ascii() && DECEIVING.contains(c));
    for args in [
        &["ls"][..],
        &["show", &name],
        &["show", "a\u{202e}b"],
        &["run", "--no-wait", &name, "--", "true"],
        &["run", "free\u{202e}", "--", "no such\u{202e}program"],
        &["ls", "--store", "sqlite:/nowhere\u{202e}/locks.db"],
        &["break", "a\u{202e}b", "--reason", "r"],
    ] {
        let done = place.done(args);
        for text in [done.out(), done.err()] {
            assert!(!deceives(&text), "{args:?}: {text:?}");
        }
    }
    let listed = place.done(&["ls"]).code(0).out();
    assert!(listed.contains(plain), "{listed:?}");
    // For programs it is what it is, and shows as nothing else either.
    let listed = place.done(&["ls", "--json"]).code(0);
    assert!(!deceives(&listed.out()), "{listed:?}");
    assert_eq!(listed.json()[0]["name"], name);
    let named = listed.json()[0]["holders"][0]["program"].clone();
    assert!(
        named
            .as_str()
            .is_some_and(|named| named.contains('\u{202e}')),
        "{named}"
    );
    let tried = place.done(&["run", "--json", "--no-wait", &name, "--", "true"]);
    let told: Value = serde_json::from_str(&tried.err()).expect("JSON");
    assert_eq!(told["name"], name);
    assert!(!deceives(&tried.err()), "{tried:?}");
    let reason = "why\u{202e}not";
    let broken = place.done(&["break", &name, "--reason", reason]).code(0);
    assert!(!deceives(&broken.out()), "{broken:?}");
    assert!(!deceives(&place.done(&["show", &name]).out()));
    assert_eq!(place.show(&name)["broken"]["reason"], reason);
    let _ = holder.wait();
}

#[test]
fn a_sick_node_is_warned_about_and_shown_and_the_others_go_on() {
    let nodes = Independent::start(3);
    let url = nodes.url_at_once("60s&node_timeout=10s");
    let ask = |args: &[&str]| finish(bare(args).env("LOCKKEEPER_STORE", &url)).code(0);
    ask(&["run", "x", "--", "true"]);
    let sick = &nodes.servers()[1];
    sick.command(&["CONFIG", "SET", "requirepass", "rotated"]);
    let node = format!("127.0.0.1:{}", sick.port());
    let ran = ask(&["run", "x", "--", "echo", "ran"]);
    assert_eq!(ran.out(), "ran\n");
    let warned =
        |line: &str| line.contains("warning: a node of the quorum") && line.contains(&node);
    assert_eq!(ran.err().lines().filter(|line| warned(line)).count(), 1);
    assert!(ran.err().contains("asks for a password"), "{ran:?}");
    assert!(!ran.err().contains("rotated"), "{ran:?}");
    let down = format!("{node} is down: the server asks for a password");
    for args in [&["stores"][..], &["show", "x"]] {
        let shown = ask(args).out();
        assert!(shown.contains(&down), "{shown}");
    }
    let shown = ask(&["show", "x", "--json"]).json();
    assert_eq!(shown["nodes"][1]["state"], "down", "{shown}");
    let reason = shown["nodes"][1]["reason"].as_str();
    assert!(reason.is_some_and(|reason| reason.contains("password")));
    sick.command_as("default", "rotated", &["CONFIG", "SET", "requirepass", ""]);
    let shown = ask(&["show", "x"]).out();
    assert!(shown.contains(&format!("{node} is up")), "{shown}");
    // Without a record of the longest lease, and with a node that may have one, nobody votes.
    for server in nodes.servers() {
        server.command(&["DEL", "lockkeeper_quorum"]);
    }
    nodes.servers()[1].pause();
    let url = nodes.url("60s&node_timeout=10s&connect_timeout=500ms");
    let ask = |args: &[&str]| finish(bare(args).env("LOCKKEEPER_STORE", &url));
    let shown = ask(&["show", "x", "--json"]).code(0).json();
    let tried = ask(&["run", "--no-wait", "x", "--", "true"]).code(69);
    nodes.servers()[1].resume();
    assert_eq!(shown["nodes"][0]["state"], "not_voting", "{shown}");
    let err = tried.err();
    assert!(
        err.contains("does not vote") && err.contains(&node),
        "{err}"
    );
}

#[test]
fn completions_and_manual_pages() {
    for shell in ["bash", "zsh", "fish"] {
        let text = finish(&mut bare(&["completions", shell])).code(0).out();
        assert!(text.contains("lockkeeper"));
        assert!(!text.contains("__guardian"), "the hidden verb stays hidden");
        assert!(text.contains("lab") && text.contains("shop"), "{shell}");
    }
    assert!(finish(&mut bare(&["man"])).code(0).out().starts_with(".ie"));
    let place = Place::new();
    place.done(&["man", "pages"]).code(0);
    for page in ["", "-run", "-lab", "-shop"] {
        assert!(place.path(&format!("pages/lockkeeper{page}.1")).exists());
    }
    let run = std::fs::read_to_string(place.path("pages/lockkeeper-run.1")).expect("a page");
    assert!(run.contains(r"<\fINAME\fR> \-\- <\fICMD\fR>..."), "{run}");
}

#[test]
fn help_names_a_store_only_where_one_is_used() {
    let help = |verb: &[&str]| finish(bare(verb).arg("--help")).code(0).out();
    for verb in ["run", "ls", "stores", "bench"] {
        assert!(help(&[verb]).contains("--store"), "{verb}");
    }
    for verb in ["completions", "man"] {
        assert!(!help(&[verb]).contains("--store"), "{verb:?}");
        assert!(help(&[verb]).contains("--json"), "{verb:?}");
    }
    // It may stand there all the same: scripts put it everywhere.
    finish(&mut bare(&["--store", "memory:", "man"])).code(0);
    finish(&mut bare(&["man", "--store", "memory:"])).code(0);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new();
    for args in [
        &["stores"][..],
        &["man"],
        &["ls"],
        &["completions", "bash"],
        &["watch", "x"],
    ] {
        let mut child = place
            .lockkeeper(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        drop(child.stdout.take());
        let done = Done(child.wait_with_output().expect("ends")).code(0);
        assert_eq!(done.err(), "", "{args:?}");
    }
}

#[test]
fn the_default_store_is_in_the_state_folder() {
    let place = Place::new();
    let mut run = bare(&["run", "x", "--", "true"]);
    finish(run.env("XDG_STATE_HOME", place.path("state"))).code(0);
    assert!(place.path("state/lockkeeper/locks.db").exists());
}

#[test]
fn a_service_whose_home_is_not_there_has_its_store_in_its_state_folder() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").expect("it is written");
    std::fs::create_dir(place.path("service")).expect("it is made");
    let mut run = bare(&["run", "x", "--", "true"]);
    run.env_remove("XDG_STATE_HOME")
        .env("HOME", place.path("file/home"))
        .env("STATE_DIRECTORY", place.path("service"));
    finish(&mut run).code(0);
    assert!(place.path("service/lockkeeper/locks.db").exists());
}

#[test]
fn a_store_without_a_scheme_is_answered_with_how_to_write_one() {
    for url in ["localhost", "127.0.0.1:6379"] {
        finish(&mut bare(&["--store", url, "ls"]))
            .code(2)
            .says("write for instance redis://HOST:PORT for a server, or sqlite:PATH for a file");
    }
}
