//! A task's share of its thread.
//!
//! Tokio gives a task a budget. Once that is used up, nothing of tokio's is ready for the task until it has yielded, and
//! it is woken for that only when its thread is back at the runtime. A thread that blocks inside a task until we answer,
//! with another executor's `block_on`, is never back. So what we wait for is [`unconstrained`], and we yield by ourselves.
//!
//! [`unconstrained`]: tokio::task::unconstrained

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::task::coop::consume_budget;

/// Uses some of the calling task's budget. Where there is none left, lets other tasks run once, if they can.
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
