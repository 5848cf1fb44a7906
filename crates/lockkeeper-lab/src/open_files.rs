//! How many files, and so connections, this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as this process may take, but not more than anything here needs.
const ENOUGH: u64 = 65_536;

/// Takes what this process may have, which is often more than it starts with, and answers how many files that is.
pub fn most() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    let before = limit.current.unwrap_or(ENOUGH);
    let raised = Rlimit {
        current: Some(most),
        maximum: limit.maximum,
    };
    let now = if before < most && setrlimit(Resource::Nofile, raised).is_ok() {
        most
    } else {
        before
    };
    usize::try_from(now).unwrap_or(usize::MAX)
}
