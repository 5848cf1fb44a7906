//! Several answers, as they come.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

type Request<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Requests under way, each to one node.
pub(super) struct Gather<T> {
    under_way: Vec<(usize, Request<T>)>,
    answered: VecDeque<(usize, T)>,
}

impl<T> Gather<T> {
    pub fn new() -> Gather<T> {
        Gather {
            under_way: Vec::new(),
            answered: VecDeque::new(),
        }
    }

    pub fn add(&mut self, node: usize, request: impl Future<Output = T> + Send + 'static) {
        self.under_way.push((node, Box::pin(request)));
    }

    /// Whether every answer was taken.
    pub fn is_done(&self) -> bool {
        self.under_way.is_empty() && self.answered.is_empty()
    }

    /// The nodes that have not answered yet.
    pub fn pending(&self) -> impl Iterator<Item = usize> {
        self.under_way.iter().map(|(node, _)| *node)
    }

    /// A request is sent when it is polled first: all are before any answer is looked at.
    fn poll_all(&mut self, context: &mut Context<'_>) {
        let answered = &mut self.answered;
        self.under_way.retain_mut(|(node, request)| {
            let polled = request.as_mut().poll(context);
            polled
                .map(|answer| answered.push_back((*node, answer)))
                .is_pending()
        });
    }

    /// The next answer; `None` when there are no more, or `until` ends first.
    pub async fn next(
        &mut self,
        mut until: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Option<(usize, T)> {
        poll_fn(|context| {
            if self.answered.is_empty() {
                self.poll_all(context);
            }
            match self.answered.pop_front() {
                Some(answer) => Poll::Ready(Some(answer)),
                None if self.under_way.is_empty() => Poll::Ready(None),
                None => until.as_mut().poll(context).map(|()| None),
            }
        })
        .await
    }

    /// As [`next`](Gather::next), for as long as it takes.
    pub async fn next_at_last(&mut self) -> Option<(usize, T)> {
        self.next(std::pin::pin!(std::future::pending())).await
    }
}
