//! Every command that the README shows does what it says.

use std::process::{Command, Stdio};

/// The lines of the README's shell blocks.
fn commands() -> Vec<String> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = std::fs::read_to_string(readme).expect("the README");
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        match line {
            "```sh" => inside = true,
            _ if line.starts_with("```") => inside = false,
            _ if inside => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}

#[test]
fn the_readme_shows_commands_that_work() {
    let home = tempfile::tempdir().expect("a folder");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_lockkeeper"));
    let folder = program.parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut ran = 0;
    for line in commands() {
        // This is what the first command runs; the second runs this test.
        let line = line.replace("cargo run --release --", "lockkeeper");
        if !line.starts_with("lockkeeper ") {
            assert_eq!(line, "cargo xtask test");
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &line])
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("HOME", home.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("LOCKKEEPER_STORE")
            .stdin(Stdio::null())
            .output()
            .expect("sh");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}\n{errors}");
        if line.contains("echo") {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                said.starts_with("I hold the lock") || said.starts_with("token "),
                "{said}"
            );
        }
        ran += 1;
    }
    assert!(ran >= 8, "only {ran} commands found");
    // The default store is where the README says.
    let store = if cfg!(target_os = "macos") {
        "Library/Application Support/lockkeeper/locks.db"
    } else {
        ".local/state/lockkeeper/locks.db"
    };
    assert!(home.path().join(store).exists());
}
