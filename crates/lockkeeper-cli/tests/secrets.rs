//! A password is never shown, and not accepted where others could see it.

mod common;

use common::{Place, bare, finish};

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
fn neither_command_nor_guardian_knows_the_store() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    for pid in [holder.command, holder.guardian] {
        let read = |file| std::fs::read(format!("/proc/{pid}/{file}")).expect("reads");
        for file in ["environ", "cmdline"] {
            let text = String::from_utf8_lossy(&read(file)).into_owned();
            assert!(!text.contains("LOCKKEEPER_STORE="), "{pid} {file}");
            assert!(!text.contains("sqlite:"), "{pid} {file}");
        }
    }
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    holder.done().code(143);
}
