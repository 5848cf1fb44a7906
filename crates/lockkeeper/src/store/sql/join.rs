//! Several futures at once.

use std::future::{Future, poll_fn};
use std::task::Poll;

/// Runs all until each has its output.
pub(super) async fn all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|f| Some(Box::pin(f))).collect();
    let mut outputs: Vec<Option<T>> = running.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (slot, output) in running.iter_mut().zip(&mut outputs) {
            if let Some(future) = slot
                && let Poll::Ready(done) = future.as_mut().poll(cx)
            {
                *output = Some(done);
                *slot = None;
            }
        }
        match running.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
