//! Aborts a task when its owner is dropped.

use tokio::task::{AbortHandle, JoinHandle};

/// Aborts a task when it is dropped.
///
/// A [`Subscription`](crate::store::Subscription) keeps one, so that the task which feeds it ends with it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use lockkeeper::store::Subscription;
/// use lockkeeper::store::common::AbortOnDrop;
/// use tokio::sync::Notify;
///
/// let hints = Arc::new(Notify::new());
/// let hint = hints.clone();
/// let task = tokio::spawn(async move { hint.notify_one() });
/// let subscription = Subscription::new(hints, AbortOnDrop::of(&task));
/// subscription.hint().await;
/// # });
/// ```
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
