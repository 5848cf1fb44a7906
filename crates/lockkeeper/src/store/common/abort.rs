//! Tasks that end with what they are for.

use tokio::task::{AbortHandle, JoinHandle};

/// Aborts a task when it is dropped.
///
/// A [`Subscription`](crate::store::Subscription) keeps one, so that the task which feeds it ends with it.
#[derive(Debug)]
pub struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    /// Ties a task to the value that is returned.
    pub fn of<T>(task: &JoinHandle<T>) -> AbortOnDrop {
        AbortOnDrop(task.abort_handle())
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
