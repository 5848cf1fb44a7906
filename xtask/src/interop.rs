//! `cargo xtask interop`: Lockkeeper beside clients of other projects, installed from their registries, and beside itself
//! as it was.

mod curator;
mod old;
mod plain;
mod redisson;
mod sql;

/// Runs the tests with one group of peers.
pub fn run(peers: &str) -> Result<(), String> {
    match peers {
        "curator" => curator::run(),
        "old" => old::run(),
        "plain" => plain::run(),
        "redisson" => redisson::run(),
        "sql" => sql::run(),
        other => Err(format!(
            "{other:?} is no group of peers; there are: redisson, plain, curator, old, sql"
        )),
    }
}
