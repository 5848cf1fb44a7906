//! What tests do again by themselves is counted, so that a suite that only passes by retrying is seen.
//!
//! The output of tests that pass is captured. So each retry is a line in the file that [`FILE`] names; `cargo xtask`
//! names one, and its summary counts the lines. Without a file nothing is counted: the laboratory starts servers too.

use std::fs::File;
use std::io::Write;

/// The environment variable that names the file.
pub const FILE: &str = "LOCKKEEPER_RETRIES";

/// Notes that something is done again because of this, such as "a port was taken".
///
/// The text is the same for all of a kind: the summary counts by it.
pub fn count(because: &str) {
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let file = File::options().append(true).create(true).open(path);
    // One write for the line: several processes append to the file. A retry that cannot be noted fails no test.
    let _ = file.and_then(|mut file| file.write_all(format!("{because}\n").as_bytes()));
}
