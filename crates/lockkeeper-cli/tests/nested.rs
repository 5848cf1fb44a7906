//! `lockkeeper` inside the command of `lockkeeper run`.

mod common;

use std::process::Command;

use common::{Done, Place, bare, finish};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

/// Runs a shell script under a lock; `$L` is lockkeeper.
fn inside(place: &Place, url: Option<&str>, script: &str) -> Done {
    let mut run = bare(&["run", "outer", "--", "sh", "-c", script]);
    run.current_dir(place.path(""));
    run.env("L", env!("CARGO_BIN_EXE_lockkeeper"));
    run.env_remove("LOCKKEEPER_STORE")
        .envs(url.map(|url| ("LOCKKEEPER_STORE", url)));
    run.env("XDG_STATE_HOME", place.path("state"));
    finish(&mut run)
}

/// A script that another cannot run at the same time, though it has another folder and home.
const ELSEWHERE: &str =
    "cd / && HOME=/nowhere XDG_STATE_HOME=/nowhere $L run --no-wait inner -- $L show --json inner";

#[test]
fn an_inner_run_uses_the_store_of_the_outer_one() {
    let place = Place::new();
    let server = RedisServer::start();
    let redis = server.url();
    for url in [Some("sqlite:locks.db"), None, Some(&redis[..])] {
        let done = inside(&place, url, ELSEWHERE).code(0);
        assert!(
            done.out().contains(r#""mode":"exclusive""#),
            "{url:?}: {done:?}"
        );
        // What the inner one took was seen from outside, in the store of the outer one.
        let look = "$L ls --json";
        let seen = inside(&place, url, look).code(0);
        assert!(
            seen.out().contains(r#""name":"outer""#),
            "{url:?}: {seen:?}"
        );
    }
    assert!(place.path("locks.db").exists());
    assert!(place.path("state/lockkeeper/locks.db").exists());
}

#[test]
fn an_inner_run_refuses_a_store_that_was_not_handed_down() {
    let password = "c4n4ry-n3st3d";
    let server = RedisServer::start_with(RedisOptions {
        password: Some(password.into()),
        ..RedisOptions::default()
    });
    let place = Place::new();
    let url = format!("redis://:{password}@127.0.0.1:{}", server.port());
    for verb in [
        "run --no-wait inner -- true",
        "ls",
        "show outer",
        "break outer --reason test",
    ] {
        let done = inside(&place, Some(&url), &format!("$L {verb}")).code(2);
        let err = done.err();
        assert!(
            err.contains("LOCKKEEPER_STORE or --store") && err.contains("password_file"),
            "{done:?}"
        );
        assert!(!err.contains(password));
    }
    assert!(!place.path("state").exists(), "no other store was made");
    inside(
        &place,
        Some(&url),
        "$L stores > /dev/null && $L run --store sqlite:own.db inner -- true",
    )
    .code(0);

    // A password in a file is one that the inner one finds, from any folder.
    std::fs::write(place.path("password"), password).expect("writes");
    let url = format!("redis://127.0.0.1:{}?password_file=password", server.port());
    let done = inside(&place, Some(&url), ELSEWHERE).code(0);
    assert!(done.out().contains(r#""mode":"exclusive""#), "{done:?}");
}

#[test]
fn an_inner_run_does_not_wait_for_its_own_parent() {
    let place = Place::new();
    let url = place.url();
    let says = "give the inner lock another name";
    for script in [
        "$L run outer -- true",
        "$L run --shared outer -- true",
        "$L run --permits 2 outer -- true",
    ] {
        inside(&place, Some(&url), script).code(2).says(says);
    }
    inside(&place, Some(&url), "$L run --no-wait outer -- true").code(75);
    inside(&place, Some(&url), "$L run --wait 1500ms outer -- true").code(75);
    // Readers hold it together.
    let mut run: Command = place.lockkeeper(&[
        "run",
        "--shared",
        "r",
        "--",
        "sh",
        "-c",
        "$L run --shared r -- echo both",
    ]);
    let done = finish(run.env("L", env!("CARGO_BIN_EXE_lockkeeper"))).code(0);
    assert_eq!(done.out(), "both\n");
}
