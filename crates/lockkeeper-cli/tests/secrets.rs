//! A password is never shown, and not accepted where others could see it.

mod common;

use common::{Place, bare, finish};
#[cfg(target_os = "linux")]
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

const CANARY: &str = "c4n4ry-pa55";

#[test]
fn a_password_in_an_argument_is_refused_with_advice() {
    let url = format!("redis://me:{CANARY}@localhost/0");
    for args in [
        &["run", "--store", &url, "x", "--", "true"][..],
        &["--store", &url, "ls"],
        &["show", "x", "--store", &url],
        &["watch", "x", "--store", &url],
        &["break", "x", "--reason", "r", "--store", &url, "--json"],
    ] {
        let done = finish(&mut bare(args)).code(2);
        assert!(done.err().contains("LOCKKEEPER_STORE"), "{done:?}");
        assert!(!format!("{done:?}").contains(CANARY), "{done:?}");
    }
}

#[test]
fn a_password_in_the_environment_is_never_shown() {
    for url in [
        format!("redis://me:{CANARY}@localhost/0"),
        format!("gopher://:{CANARY}@localhost"),
        format!("//me:{CANARY}@localhost"),
        format!("redis://me:{CANARY}@localhost/0\n"),
        // With a slip of the pen.
        format!("redis:/:{CANARY}@localhost/0"),
        format!("redis:///:{CANARY}@localhost"),
        format!("postgres:me:{CANARY}@localhost/locks"),
        format!("redis://localhost?password={CANARY}"),
    ] {
        for args in [
            &["run", "x", "--", "env"][..],
            &["run", "--json", "x", "--", "env"],
            &["ls"],
            &["show", "x", "--json"],
            &["watch", "x"],
            &["break", "x", "--reason", "r"],
            &["stores"],
            &["run", "--help"],
            &["--help"],
            &["man"],
            &["completions", "bash"],
            &["nonsense"],
        ] {
            let done = finish(bare(args).env("LOCKKEEPER_STORE", &url));
            assert!(!format!("{done:?}").contains(CANARY), "{args:?}: {done:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_guardian_does_not_know_the_store() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    for file in ["environ", "cmdline"] {
        let text = std::fs::read(format!("/proc/{}/{file}", holder.guardian)).expect("reads");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!text.contains("LOCKKEEPER_STORE="), "{file}");
        assert!(!text.contains("sqlite:"), "{file}");
    }
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    holder.done().code(143);
}

/// Everything that a program can read of the processes around it: all environments and arguments, of its ancestors and of
/// all others, and what `ps` makes of them.
#[cfg(target_os = "linux")]
const SPY: &str = r#"
    at=$$
    while [ "$at" -gt 1 ]; do
        for file in environ cmdline; do
            echo "$file of $at:"; tr '\0' '\n' < "/proc/$at/$file"
        done
        at=$(sed 's/.*) //' "/proc/$at/stat" | cut -d ' ' -f 2)
    done
    for process in /proc/[0-9]*; do
        tr '\0' '\n' < "$process/environ"; tr '\0' '\n' < "$process/cmdline"
    done
    ps eww; ps auxeww
    cat /proc/$PPID/mem /proc/$PPID/maps
"#;

#[test]
#[cfg(target_os = "linux")]
fn the_command_finds_no_password_in_any_process() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;

    // Another than that of the tests beside this one, whose processes are looked at as well.
    const CANARY: &str = "c4n4ry-0f-run";
    let server = RedisServer::start_with(RedisOptions {
        password: Some(CANARY.into()),
        ..RedisOptions::default()
    });
    let place = Place::new();
    // Where an ordinary user finds it, too.
    let open = |path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o755));
    open(place.path("")).expect("sets");
    let program = place.copy_of_lockkeeper("lockkeeper");
    let url = format!("redis://:{CANARY}@127.0.0.1:{}", server.port());
    let mut run = std::process::Command::new(&program);
    run.args(["run", "x", "--", "sh", "-c", SPY]);
    // The superuser may read everything, so this is for somebody else.
    if nix::unistd::geteuid().is_root() {
        run.uid(65_534).gid(65_534);
    }
    // Not of this test: its environment is its own.
    run.env_clear()
        .env("PATH", std::env::var_os("PATH").expect("a path"));
    run.env("LOCKKEEPER_STORE", &url)
        .env("ORDINARY", "can-be-read");
    let seen = finish(run.current_dir("/"));
    let (out, err) = (seen.out(), seen.err());
    // It can read what is there to be read: of itself, and of the guardian.
    assert!(out.contains("ORDINARY=can-be-read"), "{seen:?}");
    assert!(
        out.contains("__guardian") && out.contains("lockkeeper"),
        "{seen:?}"
    );
    assert!(!out.contains(CANARY) && !err.contains(CANARY), "{out}{err}");
    // Neither from its memory.
    assert!(err.contains("/mem: Permission denied"), "{err}");
}
