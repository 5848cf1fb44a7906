//! Real servers for tests: started on free ports, in folders of their own, and gone with the test.

pub mod certificates;
mod leash;
pub mod redis;
pub mod replicated;

use std::time::{Duration, Instant};

/// Waits for something that a server has to reach by itself.
///
/// # Panics
/// When it does not, for half a minute.
pub fn wait_for(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
