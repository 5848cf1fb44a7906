//! `lockkeeper lab` and `lockkeeper shop` become `lockkeeper-lab`, or say what gets it.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Place, feed, finish, first_line};

/// What is on the path without it.
const PATH: &str = "/usr/bin:/bin";

/// A program named `lockkeeper-lab` in this folder, which is a shell script.
fn lab_in(folder: &Path, script: &str) {
    std::fs::create_dir_all(folder).expect("a folder");
    let (file, new) = (folder.join("lockkeeper-lab"), folder.join("new"));
    std::fs::write(&new, format!("#!/bin/sh\n{script}\n")).expect("writes");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&new, runs).expect("may be run");
    // By another process: see `Place::copy_of_lockkeeper`.
    let cp = Command::new("cp").arg("-p").args([new, file]).status();
    assert!(cp.is_ok_and(|cp| cp.success()), "cp");
}

#[test]
fn without_it_one_line_says_what_gets_it() {
    let place = Place::new();
    let program = place.copy_of_lockkeeper("lockkeeper");
    for args in [
        &["lab"][..],
        &["lab", "--open"],
        &["lab", "--help"],
        &["lab", "run", "1"],
        &["shop", "serve", "--lock", "none"],
        &["--store", "memory:", "lab", "list"],
    ] {
        let mut command = Command::new(&program);
        finish(command.args(args).env("PATH", PATH))
            .code(127)
            .says("cargo install --locked --path crates/lockkeeper-lab");
    }
    let mut command = Command::new(&program);
    let told = finish(command.args(["--json", "lab", "list"]).env("PATH", PATH)).code(127);
    let told: serde_json::Value = serde_json::from_str(&told.err()).expect("JSON");
    assert_eq!(told["exit_code"], 127);
    // That is true: there is such a folder, with such a program.
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../lockkeeper-lab/Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("the laboratory's manifest");
    assert!(manifest.contains("name = \"lockkeeper-lab\""));
}

#[test]
fn arguments_input_output_and_exit_code_pass_through() {
    let place = Place::new();
    let program = place.copy_of_lockkeeper("lockkeeper");
    let script = "printf '[%s]' \"$@\"; cat; echo oops >&2; exit 42";
    lab_in(&place.path("bin"), script);
    let path = format!("{PATH}:{}", place.path("bin").display());
    for args in [
        &["lab", "run", "--all", "--json"][..],
        &[
            "--json",
            "shop",
            "load",
            "http://127.0.0.1:1",
            "--requests",
            "3",
        ],
        &[
            "--store=memory:",
            "lab",
            "--listen",
            "0",
            "--",
            "-x",
            "two words",
            "",
        ],
        &["lab", "--help"],
        &["shop", "-h"],
    ] {
        let mut command = Command::new(&program);
        let done = feed(command.args(args).env("PATH", &path), "input").code(42);
        let expected: String = args.iter().map(|arg| format!("[{arg}]")).collect();
        assert_eq!(done.out(), expected + "input");
        assert_eq!(done.err(), "oops\n");
    }
    // What is beside comes first.
    lab_in(&place.path(""), "exit 43");
    let mut command = Command::new(&program);
    finish(command.arg("lab").env("PATH", &path)).code(43);
}

#[test]
fn it_is_the_same_process_so_that_signals_reach_it() {
    let place = Place::new();
    let program = place.copy_of_lockkeeper("lockkeeper");
    lab_in(&place.path(""), "echo $$");
    let mut child = Command::new(&program)
        .arg("lab")
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let told = first_line(&mut child);
    assert!(child.wait().is_ok_and(|status| status.success()));
    assert_eq!(told.trim(), child.id().to_string());
}

/// A program that somebody left in a folder must not be run by everybody who is there.
#[test]
fn nothing_is_started_from_the_current_folder() {
    let place = Place::new();
    let program = place.copy_of_lockkeeper("lockkeeper");
    lab_in(&place.path("here"), "exit 44");
    let mut command = Command::new(&program);
    command.arg("lab").current_dir(place.path("here"));
    finish(command.env("PATH", format!(":.:{PATH}"))).code(127);
}

#[test]
fn the_command_is_built_without_laboratory_and_test_kit() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args([
        "tree",
        "--offline",
        "-p",
        "lockkeeper-cli",
        "--prefix",
        "none",
    ]);
    tree.args(["-e", "normal,build"]);
    let tree = finish(tree.current_dir(env!("CARGO_MANIFEST_DIR"))).code(0);
    let packages = tree.out();
    let has = |name: &str| {
        packages
            .lines()
            .any(|line| line.split(' ').next() == Some(name))
    };
    assert!(has("lockkeeper") && has("clap"), "{packages}");
    for heavy in [
        "lockkeeper-lab",
        "lockkeeper-testkit",
        "axum",
        "proptest",
        "rcgen",
        "stateright",
    ] {
        assert!(!has(heavy), "{heavy} in\n{packages}");
    }
}
