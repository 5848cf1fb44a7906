//! Gathers what is asked while a transaction is under way, and does it in the next.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::engine::{Engine, Fault, Op, Reply};
use crate::Error;

/// How many steps a transaction has at most.
const MOST: usize = 64;
/// How often a step is tried that others were in the way of.
const TRIES: usize = 8;

/// One step, and where its reply goes.
#[derive(Debug)]
pub(super) struct Asked {
    op: Op,
    reply: oneshot::Sender<Result<Reply, Error>>,
}

impl Asked {
    pub fn new(op: Op) -> (Asked, oneshot::Receiver<Result<Reply, Error>>) {
        let (reply, answer) = oneshot::channel();
        (Asked { op, reply }, answer)
    }
}

/// Does what is asked, in the order it came except that a transaction is either durable or not. Ends when nobody can ask.
pub(super) async fn drive<E: Engine>(engine: Arc<E>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match asked.recv().await {
                Some(one) => waiting.push_back(one),
                None => return,
            }
        }
        while let Ok(one) = asked.try_recv() {
            waiting.push_back(one);
        }
        let batch = next(&mut waiting);
        if !batch.is_empty() {
            run(&*engine, batch).await;
        }
    }
}

/// Takes the next batch: what goes with the oldest step, sorted by name so that transactions lock rows in one order.
fn next(waiting: &mut VecDeque<Asked>) -> Vec<Asked> {
    // A step whose caller is gone was never sent: it does not happen.
    waiting.retain(|one| !one.reply.is_closed());
    let durable = waiting.iter().find_map(|one| one.op.is_durable());
    let mut batch = Vec::new();
    let mut rest = VecDeque::new();
    for one in waiting.drain(..) {
        let fits = one.op.is_durable().is_none_or(|is| Some(is) == durable);
        match fits && batch.len() < MOST {
            true => batch.push(one),
            false => rest.push_back(one),
        }
    }
    *waiting = rest;
    batch.sort_by(|one, other| one.op.name().cmp(other.op.name()));
    batch
}

async fn run<E: Engine>(engine: &E, batch: Vec<Asked>) {
    let (ops, callers): (Vec<Op>, Vec<_>) =
        batch.into_iter().map(|one| (one.op, one.reply)).unzip();
    match transact(engine, &ops).await {
        Ok(replies) => {
            for (caller, reply) in callers.into_iter().zip(replies) {
                let _ = caller.send(Ok(reply));
            }
        }
        Err(Fault::Undone(_)) => {
            for (op, caller) in ops.into_iter().zip(callers) {
                let _ = caller.send(alone(engine, op).await);
            }
        }
        Err(fault) => {
            for (op, caller) in ops.iter().zip(callers) {
                let _ = caller.send(Err(explain(engine, op, fault.clone())));
            }
        }
    }
}

/// Does one step in a transaction of its own.
async fn alone<E: Engine>(engine: &E, op: Op) -> Result<Reply, Error> {
    let ops = [op];
    let mut tries = 0;
    loop {
        tries += 1;
        match transact(engine, &ops).await {
            Ok(replies) => {
                let missing = || engine.kind().unavailable("an answer is missing");
                return replies.into_iter().next().ok_or_else(missing);
            }
            Err(Fault::Undone(_)) if tries < TRIES => {}
            Err(fault) => return Err(explain(engine, &ops[0], fault)),
        }
    }
}

async fn transact<E: Engine>(engine: &E, ops: &[Op]) -> Result<Vec<Reply>, Fault> {
    let durable = ops.iter().any(|op| op.is_durable() == Some(true));
    let replies = engine.run(ops, durable).await?;
    match replies.len() == ops.len() {
        true => Ok(replies),
        false => Err(Fault::Unknown("the answers do not fit the requests".into())),
    }
}

fn explain<E: Engine>(engine: &E, op: &Op, fault: Fault) -> Error {
    match fault {
        Fault::Undone(error) | Fault::Failed(error) => error,
        // What changes nothing is not in doubt.
        Fault::Unknown(reason) if op.is_durable().is_none() => engine.kind().unavailable(reason),
        Fault::Unknown(reason) => Error::outcome_unknown(engine.kind().store, reason),
    }
}
