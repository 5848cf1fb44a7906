//! The project's machinery: `cargo xtask test`, and what it leaves out.

mod bench;
mod interop;
mod interrupts;
mod languages;
mod nightly;
mod package;
mod packages;
mod peers;
mod programs;
mod running;
mod steps;
mod test;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--quick]    everything the project checks about itself; --quick leaves out
                    single-feature builds, examples and rustdoc
  nightly [HISTORIES]
                    the tests that `test` ignores, `package`, the fuzz targets, and
                    histories of each store with faults by chance (default 200)
  package           packs the crates that are published, and builds what is packed
  fuzz [SECONDS]    runs each fuzz target for SECONDS (default 30)
  deny              licences, advisories and sources of all dependencies (cargo-deny)
  screenshots       pictures of the laboratory's page: writes docs/lab/
  interop redisson  Redis locks shared with Java's Redisson, from its registry
  interop curator   ZooKeeper locks shared with Curator, kazoo and go-zookeeper, on the system's
                    server and on ZooKeeper 3.9; all are installed from their registries
  interop plain     the plain dialect of Redis with redis-py, redsync and redlock,
                    which are installed from their registries
  interop sql       the SQL stores on PostgreSQL 18, MySQL 8.0 and MariaDB 11.4, whose programs
                    come from Maven Central
  interop old       stores shared with the command of an earlier commit, which is built first
  bench peers [redis|zookeeper] [--quick]
                    Lockkeeper on Redis and on ZooKeeper beside other libraries: writes
                    docs/benchmarks/, and the data below target/bench/; --quick only sees
                    whether it works, in a minute";

fn main() -> ExitCode {
    interrupts::hear();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["test"] => test::run(false),
        ["test", "--quick"] => test::run(true),
        ["nightly"] => nightly::run(200),
        ["nightly", histories] => match histories.parse() {
            Ok(histories) => nightly::run(histories),
            Err(_) => Err(format!("{histories:?} is not a whole number of histories")),
        },
        ["package"] => package::run(),
        ["fuzz"] => tools::fuzz(30),
        ["fuzz", seconds] => match seconds.parse() {
            Ok(seconds) => tools::fuzz(seconds),
            Err(_) => Err(format!("{seconds:?} is not a whole number of seconds")),
        },
        ["deny"] => tools::deny(),
        ["screenshots"] => tools::screenshots(),
        ["bench", "peers", "--quick"] => bench::run(None, true),
        ["bench", "peers", on, "--quick"] => bench::run(Some(on), true),
        ["bench", "peers"] => bench::run(None, false),
        ["bench", "peers", on] => bench::run(Some(on), false),
        ["interop", peers] => interop::run(peers),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
