//! What the tests need beyond Rust, and how it gets onto a Debian machine.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::tools::succeed;

/// A command the build or the tests call, and the Debian package that has it.
const NEEDED: &[(&str, &str)] = &[
    // The embedded SQLite is compiled from C.
    ("cc", "build-essential"),
    // Gives the tests of interactive use a terminal.
    ("script", "bsdutils"),
    // Tells the tests which processes still run.
    ("ps", "procps"),
    // The Redis store is tested on real servers.
    ("redis-server", "redis-server"),
    // The PostgreSQL store is tested on real servers, and behind a pooler.
    ("pg_lsclusters", "postgresql"),
    ("pgbouncer", "pgbouncer"),
    // The MySQL store is tested on real servers.
    ("mariadbd", "mariadb-server"),
    ("mariadb", "mariadb-client"),
    // The ZooKeeper store is tested on real servers. The package has no other command, and brings Java.
    ("zooinspector", "zookeeper"),
    // The etcd store is tested on real servers, and beside their own client.
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    // The laboratory's page is tested in a real browser.
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
];

/// Makes sure that everything needed is there: installs it where that is possible without asking anyone,
/// and otherwise says what to install.
pub fn ensure() -> Result<(), String> {
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|(command, _)| !on_path(command))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let commands: Vec<_> = missing.iter().map(|(command, _)| *command).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    println!("missing: {}", commands.join(", "));
    if let Some(mut apt_get) = apt_get() {
        // The lists may be stale or absent; a failed update shows in the install that follows.
        let _ = succeed(apt_get.args(["update", "-qq"]));
        if let Some(mut apt_get) = self::apt_get() {
            apt_get.args(["install", "-y", "-qq", "--no-install-recommends"]);
            if let Err(reason) = succeed(apt_get.args(&packages)) {
                println!("{reason}");
            }
        }
    }
    if commands.iter().all(|command| on_path(command)) {
        return Ok(());
    }
    Err(format!(
        "the tests need {}, which could not be installed from here; on Debian run: apt-get install {}",
        commands.join(", "),
        packages.join(" ")
    ))
}

/// `apt-get`, with the rights to install; `None` when there is none or it would ask for a password.
fn apt_get() -> Option<Command> {
    if !on_path("apt-get") {
        return None;
    }
    let mut command = if says("id", &["-u"]).is_some_and(|id| id.trim() == "0") {
        Command::new("env")
    } else if says("sudo", &["-n", "true"]).is_some() {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "env"]);
        sudo
    } else {
        return None;
    };
    // After sudo, which passes no variable of ours on.
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    // Another apt-get may be at work.
    command.args(["-o", "DPkg::Lock::Timeout=300"]);
    command.args(["-o", "Acquire::Retries=3"]);
    Some(command)
}

/// What a command that succeeds prints.
pub fn says(command: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(command)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a command can be found.
pub fn on_path(command: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join(command).is_file())
    })
}
