//! Tasks that end with what they are for.

use tokio::task::{AbortHandle, JoinHandle};

/// Ends a task when it is dropped.
#[derive(Debug)]
pub(super) struct Ends(AbortHandle);

impl Ends {
    pub(super) fn of<T>(task: &JoinHandle<T>) -> Ends {
        Ends(task.abort_handle())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}
