//! A task's share of its thread.
//!
//! Tokio gives a task a budget. Once it is used up, nothing of tokio's is ready for the task until it has yielded, and the task is
//! woken only when its thread is back in the runtime. A thread that blocks inside a task, in another executor's `block_on`, never
//! is. So an acquire runs [`unconstrained`], and yields by itself.
//!
//! [`unconstrained`]: tokio::task::unconstrained

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::task::coop::consume_budget;

/// Consumes a unit of the calling task's budget. Yields once if there is none left.
pub(super) async fn consume() {
    let mut share = pin!(consume_budget());
    let mut yielded = false;
    poll_fn(|context| {
        if yielded || share.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
