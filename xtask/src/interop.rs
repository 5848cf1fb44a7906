//! `cargo xtask interop`: Lockkeeper beside clients of other projects, installed from their registries.

mod plain;

/// Runs the tests with one group of peers.
pub fn run(peers: &str) -> Result<(), String> {
    match peers {
        "plain" => plain::run(),
        other => Err(format!("{other:?} is no group of peers; there is: plain")),
    }
}
