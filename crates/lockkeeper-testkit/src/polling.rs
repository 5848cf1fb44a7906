//! Futures by hand: to be dropped half-way, or run without a runtime.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Polls a future once, without a waker.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The output of a future that never waits, such as any of a store in memory.
///
/// # Panics
/// When it does wait.
pub fn ready<F: Future>(future: F) -> F::Output {
    match poll_once(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// Polls a future this many times, a little apart, and then drops it: what a cancelled caller does. Answers
/// its output if it was faster.
pub async fn drop_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Poll::Ready(output) = poll_once(future.as_mut()) {
            return Some(output);
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    None
}
