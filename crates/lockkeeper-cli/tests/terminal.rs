//! `lockkeeper run` on a terminal, which `script` provides.
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use common::{Place, for_ever};

/// A shell script that runs on a terminal of its own.
struct Session {
    script: Child,
    shown: Arc<Mutex<String>>,
}

impl Session {
    /// `$L` is lockkeeper.
    fn start(place: &Place, text: &str) -> Session {
        let file = place.path("session.sh");
        std::fs::write(&file, text).expect("writes");
        let mut command = std::process::Command::new("script");
        command
            // `exec`, or a shell of `script` stays above ours and dies of the Ctrl-C that ours handles.
            .args(["-qec", &format!("exec sh {}", file.display()), "/dev/null"])
            .env("LOCKKEEPER_STORE", place.url())
            .env("L", env!("CARGO_BIN_EXE_lockkeeper"))
            .env("LC_ALL", "C")
            .current_dir(place.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut script = command.spawn().expect("script, of Debian's bsdutils");
        let mut out = script.stdout.take().expect("a pipe");
        let shown = Arc::new(Mutex::new(String::new()));
        let keep = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(n @ 1..) = out.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                keep.lock().expect("no panic").push_str(&text);
            }
        });
        Session { script, shown }
    }

    fn keys(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().expect("a pipe");
        stdin.write_all(keys.as_bytes()).expect("it reads");
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        let look = || self.shown.lock().expect("no panic").contains(text);
        if std::panic::catch_unwind(|| common::until(text, look)).is_err() {
            panic!(
                "{text:?} is not in {:?}",
                self.shown.lock().expect("no panic")
            );
        }
    }

    #[track_caller]
    fn ends(mut self, code: i32) {
        let status = common::eventually("the session ends", || {
            self.script.try_wait().expect("a child")
        });
        assert_eq!(status.code(), Some(code), "{:?}", self.shown);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn the_command_reads_keys_and_the_terminal_comes_back() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "$L run x -- sh -c 'echo now-a; read a; echo \"got:$a\"; exit 4'; echo code:$?
         $L run y -- true
         echo now-b; read b; echo \"back:$b\"; exit 3",
    );
    session.shows("now-a");
    session.keys("one\n");
    session.shows("got:one");
    session.shows("code:4");
    session.shows("now-b");
    session.keys("two\n");
    session.shows("back:two");
    session.ends(3);
}

#[test]
fn who_holds_the_lock_is_told_in_chinese_too() {
    let place = Place::new();
    let holder = place.hold(&[], "x", &for_ever(":"));
    let script = "$L run --lang zh x -- echo mine";
    let session = Session::start(&place, script);
    session.shows("正在等待 x，它由 ");
    session.shows("持有，已持有 ");
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    holder.done().code(143);
    session.shows("mine");
    session.ends(0);
}

#[test]
fn ctrl_c_reaches_the_command_alone() {
    let place = Place::new();
    let inner = for_ever("trap \"echo inner-int; exit 5\" INT; echo ready");
    let mut session = Session::start(
        &place,
        &format!(
            "trap 'echo outer-int' INT
             $L run x -- sh -c '{inner}'
             echo code:$?"
        ),
    );
    session.shows("ready");
    session.keys("\x03");
    session.shows("inner-int");
    session.shows("code:5");
    assert!(
        !session
            .shown
            .lock()
            .expect("no panic")
            .contains("outer-int")
    );
    session.ends(0);
}

#[test]
fn ctrl_z_does_not_suspend_a_holder() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "$L run x -- sh -c 'echo ready; read a; echo \"got:$a\"'; echo code:$?",
    );
    session.shows("ready");
    session.keys("\x1a");
    session.shows("continued it");
    session.keys("still here\n");
    session.shows("got:still here");
    session.shows("code:0");
    session.ends(0);
}

#[test]
fn a_command_in_the_background_reads_keys_once_in_the_foreground() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "set -m
         $L run x -- sh -c 'read a; echo \"got:$a\"; exit 8' &
         while [ ! -e go ]; do sleep 0.1; done; fg; echo code:$?; read b; echo \"back:$b\"",
    );
    session.shows("waits for the terminal");
    std::fs::write(place.path("go"), "").expect("writes");
    session.keys("one\n");
    session.shows("got:one");
    session.shows("code:8");
    session.keys("two\n");
    session.shows("back:two");
    session.ends(0);
}

#[test]
fn a_command_that_is_ended_leaves_the_terminal_usable() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "$L run x --ttl 2s -- sh -c 'stty -echo -icanon; echo ready; while :; do sleep 0.1; done'
         echo code:$?; stty -a; read a; echo \"back:$a\"",
    );
    session.shows("ready");
    place.done(&["break", "x", "--reason", "test"]).code(0);
    session.shows("code:76");
    session.shows(" icanon");
    session.keys("yes\n");
    session.shows("back:yes");
    session.ends(0);
}

#[test]
fn ctrl_c_while_waiting_ends_it() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    let mut session = Session::start(&place, "trap : INT; $L run x -- true; echo code:$?");
    common::until("it waits", || place.show("x")["waiters"] == 1);
    session.shows("waiting for x, held by ");
    session.keys("\x03");
    session.shows("code:130");
    session.ends(0);
    assert_eq!(place.show("x")["waiters"], 0);
    holder.signal(nix::sys::signal::Signal::SIGTERM);
    holder.done().code(143);
}

#[test]
fn a_terminal_of_unknown_width_shows_whole_rows() {
    let place = Place::new();
    let session = Session::start(&place, "stty cols 0; exec $L stores");
    session.shows("a dead holder frees at once");
    session.ends(0);
}

/// As a pager does, of the same pipeline: the command must not have the terminal alone.
#[test]
fn a_reader_behind_the_command_reads_keys() {
    let place = Place::new();
    let reader = "while [ ! -e began ]; do sleep 0.1; done; echo reads; read a < /dev/tty; echo \"key:$a\"; touch go; cat";
    let command = "touch began; while [ ! -e go ]; do sleep 0.1; done; echo done";
    let mut session = Session::start(
        &place,
        &format!(
            "set -m
             $L run x -- sh -c '{command}' | sh -c '{reader}'; echo code:$?; read b; echo \"back:$b\""
        ),
    );
    session.shows("reads");
    session.keys("one\n");
    session.shows("key:one");
    session.shows("done");
    session.shows("code:0");
    session.keys("two\n");
    session.shows("back:two");
    session.ends(0);
}

#[test]
fn ctrl_c_ends_a_pipeline() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "trap : INT; set -m
         $L run x -- sh -c 'echo ready; exec sleep 600' | cat; echo ended; read b; echo \"back:$b\"",
    );
    session.shows("ready");
    session.keys("\x03");
    session.shows("ended");
    session.keys("one\n");
    session.shows("back:one");
    session.ends(0);
    assert_eq!(place.show("x")["holders"], serde_json::json!([]));
}

#[test]
fn ctrl_z_does_not_stop_a_pipeline_for_ever() {
    let place = Place::new();
    let mut session = Session::start(
        &place,
        "set -m
         $L run x -- sh -c 'echo ready; while [ ! -e go ]; do sleep 0.1; done; echo went on' | cat; echo ended",
    );
    session.shows("ready");
    session.keys("\x1a");
    session.shows("not stopping");
    std::fs::write(place.path("go"), "").expect("writes");
    session.shows("went on");
    session.shows("ended");
    session.ends(0);
}

#[test]
fn the_list_of_locks_fits_eighty_columns() {
    let place = Place::new();
    let holder = place.hold(
        &["--label", "backup.sh --all of the night"],
        "nightly-backup",
        "exec sleep 600",
    );
    let plain = place.hold(&["--label", ""], "report", "exec sleep 600");
    let session = Session::start(&place, "stty rows 24 cols 80; $L ls; echo end");
    session.shows("end");
    let shown = session.shown.lock().expect("no panic").clone();
    let row = |name: &str| {
        shown
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("{shown}"))
            .to_owned()
    };
    let (labelled, bare) = (row("nightly-backup "), row("report "));
    assert!(
        labelled.contains("backup") && labelled.contains(&format!("[{}]", holder.pid())),
        "{shown}"
    );
    assert!(bare.contains("lockkeeper["), "{shown}");
    // The store's path may be longer.
    for line in shown.lines().filter(|line| !line.starts_with("store ")) {
        assert!(line.trim_end().chars().count() <= 80, "{line:?} in {shown}");
    }
    assert!(shown.contains(&format!("store {}", place.url())), "{shown}");
    session.ends(0);
    for holder in [holder, plain] {
        holder.signal(nix::sys::signal::Signal::SIGTERM);
        holder.done().code(143);
    }
    let free = place.done(&["ls"]).code(0).out();
    assert_eq!(
        free,
        format!("no lock is held or waited for in {}\n", place.url())
    );
}
