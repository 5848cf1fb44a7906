//! A question to several nodes, whose answers are counted as they come.
//!
//! The task that reads an answer counts it. So a task that asks is woken once, when the answers decide, and nobody has to stay
//! for those that come later. Dropped, it leaves the counting to go on.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use ::redis::Value;
use tokio::sync::Notify;

use super::Inner;
use super::holds::NodeSet;
use super::node::{Node, Silence};
use crate::clock::Moment;
use crate::store::common::AbortOnDrop;
use crate::store::redis::fault::Fault;
use crate::store::redis::node::{Call, Ticket};

/// What answers come to.
pub(super) trait Count: Send + 'static {
    type Outcome: Send;

    /// Takes one node's answer. The outcome, if it is known by this.
    fn take(
        &mut self,
        inner: &Inner,
        node: usize,
        answer: Result<Value, Silence>,
        silent: &mut Silent,
    ) -> Option<Self::Outcome>;

    /// Those that have not answered are not waited for any longer.
    fn close(&mut self) -> Option<Self::Outcome>;

    /// The same, whether or not the outcome was known before.
    fn overdue(&mut self) {}
}

/// Why which nodes said nothing.
#[derive(Debug, Default)]
pub(super) struct Silent(Vec<Option<String>>);

impl Silent {
    pub fn note(&mut self, node: usize, reason: String) {
        if self.0.len() <= node {
            self.0.resize(node + 1, None);
        }
        self.0[node] = Some(reason);
    }

    pub fn reasons(&self) -> &[Option<String>] {
        &self.0
    }
}

/// A question that nodes were asked.
pub(super) struct Question<C: Count> {
    inner: Arc<Inner>,
    state: Mutex<State<C>>,
}

struct State<C: Count> {
    count: C,
    silent: Silent,
    /// The nodes that have not answered yet.
    pending: NodeSet,
    decided: bool,
    outcome: Option<C::Outcome>,
    caller: Option<Waker>,
}

impl<C: Count> Question<C> {
    /// Asks these nodes what `call` says, unless the outcome is known anyway: then they are told.
    pub fn put(
        inner: &Arc<Inner>,
        count: C,
        known: Option<C::Outcome>,
        silent: Silent,
        tickets: Vec<(usize, Ticket)>,
        mut call: impl FnMut(&Node, &Ticket) -> Arc<Call>,
    ) -> Arc<Question<C>> {
        let mut pending = NodeSet::default();
        tickets.iter().for_each(|(number, _)| pending.add(*number));
        let question = Arc::new(Question {
            inner: inner.clone(),
            state: Mutex::new(State {
                count,
                silent,
                pending,
                decided: known.is_some(),
                outcome: known,
                caller: None,
            }),
        });
        let late = Arc::downgrade(&question);
        inner.lates.add(Moment::now() + inner.node_timeout, late);
        for (number, ticket) in tickets {
            let node = &inner.nodes[number];
            let call = call(node, &ticket);
            let sent = Sent {
                question: Some(question.clone()),
                number,
                connection: ticket.number,
            };
            node.sending();
            node.link.tell(ticket, call, |answer| sent.answered(answer));
        }
        question
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the outcome, and answers why which nodes said nothing until then.
    pub async fn outcome(&self) -> (C::Outcome, Silent) {
        poll_fn(|context| {
            let mut state = self.state();
            match state.outcome.take() {
                Some(outcome) => Poll::Ready((outcome, std::mem::take(&mut state.silent))),
                None => {
                    state.caller = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn answered(&self, number: usize, answer: Result<Value, Silence>) {
        let mut state = self.state();
        state.pending.remove(number);
        let State { count, silent, .. } = &mut *state;
        let outcome = count.take(&self.inner, number, answer, silent);
        let caller = state.decide(outcome);
        drop(state);
        caller.into_iter().for_each(Waker::wake);
    }

    /// A node that has not answered by now is behind.
    fn overdue(&self) {
        let mut state = self.state();
        let State {
            pending, silent, ..
        } = &mut *state;
        for (number, node) in self.inner.nodes.iter().enumerate() {
            if pending.has(number) {
                node.overdue();
                silent.note(number, self.inner.no_answer());
            }
        }
        state.count.overdue();
        if !state.decided {
            let outcome = state.count.close();
            let caller = state.decide(outcome);
            drop(state);
            caller.into_iter().for_each(Waker::wake);
        }
    }
}

impl<C: Count> State<C> {
    /// Once: what comes later changes nothing for who asked. Answers whom to wake.
    fn decide(&mut self, outcome: Option<C::Outcome>) -> Option<Waker> {
        if self.decided || outcome.is_none() {
            return None;
        }
        self.decided = true;
        self.outcome = outcome;
        self.caller.take()
    }
}

/// A request under way to one node. Dropped, it was lost.
struct Sent<C: Count> {
    question: Option<Arc<Question<C>>>,
    number: usize,
    connection: u64,
}

impl<C: Count> Sent<C> {
    fn answered(mut self, answer: Result<Value, Fault>) {
        self.take(answer);
    }

    fn take(&mut self, answer: Result<Value, Fault>) {
        let Some(question) = self.question.take() else {
            return;
        };
        let node = &question.inner.nodes[self.number];
        node.sent(self.connection, &answer);
        question.answered(self.number, answer.map_err(Silence::from));
    }
}

impl<C: Count> Drop for Sent<C> {
    fn drop(&mut self) {
        self.take(Err(Fault::Lost(
            "the connection is no longer needed".into(),
        )));
    }
}

/// A question whose time is up.
trait Late: Send + Sync {
    fn late(self: Arc<Self>);
}

impl<C: Count> Late for Question<C> {
    fn late(self: Arc<Self>) {
        if self.state().pending != NodeSet::default() {
            self.overdue();
        }
    }
}

/// Questions in the order in which their time is up: one timer does for all.
#[derive(Default)]
pub(super) struct Lates {
    waiting: Mutex<VecDeque<(Moment, Weak<dyn Late>)>>,
    more: Notify,
}

impl Lates {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Moment, Weak<dyn Late>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, due: Moment, question: Weak<dyn Late>) {
        let mut waiting = self.waiting();
        waiting.push_back((due, question));
        if waiting.len() == 1 {
            self.more.notify_one();
        }
    }

    /// Looks after them for as long as the answer is there. `step`: how long answers may take to be read.
    pub fn watch(self: &Arc<Self>, step: Duration) -> AbortOnDrop {
        let lates = self.clone();
        let task = tokio::spawn(async move {
            loop {
                let next = lates.waiting().front().map(|(due, _)| *due);
                let Some(due) = next else {
                    lates.more.notified().await;
                    continue;
                };
                // In two steps: if it was this process that stood still, the answers are there and only have to be read.
                tokio::time::sleep(due.remaining()).await;
                let now = Moment::now();
                tokio::time::sleep(step).await;
                lates.end(now);
            }
        });
        AbortOnDrop::of(&task)
    }

    fn end(&self, now: Moment) {
        loop {
            let mut waiting = self.waiting();
            let question = match waiting.front() {
                Some((due, _)) if *due <= now => waiting.pop_front(),
                _ => return,
            };
            drop(waiting);
            if let Some(question) = question.and_then(|(_, question)| question.upgrade()) {
                question.late();
            }
        }
    }
}
