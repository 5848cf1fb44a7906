//! What `cargo xtask` starts hears every signal, whatever xtask was started to ignore.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn programs_hear_the_signals_that_xtask_was_started_to_ignore() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = |name: &str, line: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("sets");
        path
    };
    // It prints what it ignores.
    let cargo = script("cargo", "exec grep SigIgn: /proc/self/status");
    // `screenshots` starts cargo only where it finds these, and not every machine has them.
    script("fc-list", "echo a font");
    script("pngquant", "exit 1");
    let path = std::env::var("PATH").expect("a path");
    let path = format!("{}:{path}", folder.path().display());
    let ignored_by = |trap: &str| {
        let output = Command::new("sh")
            .args(["-c", &format!("{trap}; exec \"$0\" screenshots")])
            .arg(env!("CARGO_BIN_EXE_xtask"))
            .env("CARGO", &cargo)
            .env("PATH", &path)
            .output()
            .expect("starts");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let mask = said.trim().strip_prefix("SigIgn:").expect("a mask").trim();
        // From 32 on are those that the C library keeps to itself.
        u64::from_str_radix(mask, 16).expect("a mask") & 0x7fff_ffff
    };
    for trap in ["HUP", "INT QUIT", "TERM USR1 TSTP TTOU PIPE XFSZ"] {
        let ignored = ignored_by(&format!("trap '' {trap}"));
        assert_eq!(ignored, 0, "{trap}: {ignored:b}");
    }
}
