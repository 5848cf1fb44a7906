//! Gathers what is asked while a transaction is under way, and does it in the next.
//!
//! A transaction that others are in the way of is done again step by step, and none of these waits for a row. A step that finds its
//! row kept by somebody is put aside with all that is asked of the same name, and is tried again now and then: a row that a user's
//! transaction keeps for seconds delays no other name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::engine::{Engine, Fault, Op, Reply};
use crate::Error;
use crate::clock::Moment;

/// How many steps a transaction has at most.
const MOST: usize = 64;
/// How often a step is tried that was put aside. A server that takes long to say no is asked less often, but not much less.
const RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_millis(500);
/// How long a step is put aside at most.
const PATIENCE: Duration = Duration::from_secs(8);
/// For how long no transaction with others has a step on a name whose row was kept.
const WARY: Duration = Duration::from_secs(2);

/// One step, and where its reply goes.
#[derive(Debug)]
pub(super) struct Asked {
    op: Op,
    reply: oneshot::Sender<Result<Reply, Error>>,
    asked: Moment,
}

impl Asked {
    pub fn new(op: Op) -> (Asked, oneshot::Receiver<Result<Reply, Error>>) {
        let (reply, answer) = oneshot::channel();
        let asked = Moment::now();
        (Asked { op, reply, asked }, answer)
    }

    fn answer(self, answer: Result<Reply, Error>) {
        let _ = self.reply.send(answer);
    }

    /// Whether it is tried again when its row is kept. A renewal is not: others are asked together with it, and their caller
    /// waits for the answer to all. Nor is what nobody waits for.
    fn can_wait(&self) -> bool {
        !self.op.name().is_empty()
            && !matches!(self.op, Op::Prolong { .. })
            && Moment::now().since(self.asked) < PATIENCE
    }
}

/// Does what is asked, in the order it came except for steps that others are in the way of. Ends when nobody can ask.
pub(super) async fn drive<E: Engine>(engine: Arc<E>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let mut waiting = VecDeque::new();
    let mut aside = Aside::default();
    loop {
        if waiting.is_empty() {
            let next = tokio::select! {
                biased;
                next = asked.recv() => next,
                () = aside.due() => {
                    aside.try_again(&*engine).await;
                    continue;
                }
            };
            match next {
                Some(one) => waiting.push_back(one),
                None => return,
            }
        }
        while let Ok(one) = asked.try_recv() {
            waiting.push_back(one);
        }
        // A step whose caller is gone was never sent: it does not happen.
        waiting.retain(|one| !one.reply.is_closed());
        aside.take_from(&mut waiting);
        let batch = next(&mut waiting, engine.chooses_durability());
        if !batch.is_empty() {
            run(&*engine, batch, &mut aside).await;
        }
        if aside.is_due() {
            aside.try_again(&*engine).await;
        }
    }
}

/// Takes the next batch: what goes with the oldest step, sorted by name so that transactions lock rows in one order.
///
/// What reads goes apart from what changes something. An answer may be long, and nothing ends a server that waits to send it to a client
/// which is stopped: the rows of its transaction would stay locked.
fn next(waiting: &mut VecDeque<Asked>, split: bool) -> Vec<Asked> {
    let kind = |op: &Op| op.is_durable().map(|durable| split && durable);
    let alone = |one: &Asked| one.op.goes_alone();
    if waiting.front().is_some_and(alone) {
        return waiting.pop_front().into_iter().collect();
    }
    let first = waiting.front().map(|one| kind(&one.op));
    let mut batch = Vec::new();
    let mut rest = VecDeque::new();
    for one in waiting.drain(..) {
        let fits = Some(kind(&one.op)) == first && !alone(&one);
        if fits && batch.len() < MOST {
            batch.push(one);
        } else {
            rest.push_back(one);
        }
    }
    *waiting = rest;
    batch.sort_by(|one, other| one.op.name().cmp(other.op.name()));
    batch
}

async fn run<E: Engine>(engine: &E, batch: Vec<Asked>, aside: &mut Aside) {
    let (ops, callers): (Vec<Op>, Vec<_>) = batch
        .into_iter()
        .map(|one| (one.op, (one.reply, one.asked)))
        .unzip();
    let durable = ops.iter().any(|op| op.is_durable() == Some(true));
    let done = fit(engine.run(&ops, durable).await, ops.len());
    let asked = ops.into_iter().zip(callers);
    let asked = asked.map(|(op, (reply, asked))| Asked { op, reply, asked });
    match done {
        Ok(replies) => {
            for (one, reply) in asked.zip(replies) {
                one.answer(Ok(reply));
            }
        }
        Err(Fault::Undone(_)) => {
            for one in asked {
                aside.try_alone(engine, one).await;
            }
        }
        Err(fault) => {
            for one in asked {
                let error = explain(engine, &one.op, fault.clone());
                one.answer(Err(error));
            }
        }
    }
}

/// The steps that others are in the way of.
#[derive(Debug, Default)]
struct Aside {
    steps: VecDeque<Asked>,
    /// The names whose rows were kept, and until when that counts.
    kept: HashMap<String, Moment>,
    /// When they are tried again.
    next: Option<Moment>,
}

impl Aside {
    /// Puts aside what is asked of a name whose row was kept.
    fn take_from(&mut self, waiting: &mut VecDeque<Asked>) {
        if self.kept.is_empty() {
            return;
        }
        let now = Moment::now();
        self.kept.retain(|_, until| *until > now);
        for one in std::mem::take(waiting) {
            // What only reads waits for no row.
            if one.op.is_durable().is_some() && self.kept.contains_key(one.op.name()) {
                // At once, if nothing of the name waits: the row may be free by now.
                if !self
                    .steps
                    .iter()
                    .any(|step| step.op.name() == one.op.name())
                {
                    self.next = Some(now);
                }
                self.steps.push_back(one);
            } else {
                waiting.push_back(one);
            }
        }
    }

    fn is_due(&self) -> bool {
        self.next.is_some_and(|next| next <= Moment::now())
    }

    /// Waits until it is time to try again.
    async fn due(&self) {
        match self.next {
            Some(next) => tokio::time::sleep(next.since(Moment::now())).await,
            None => std::future::pending().await,
        }
    }

    /// Tries each step again: of a name the first, and the next if that was done.
    async fn try_again<E: Engine>(&mut self, engine: &E) {
        let mut in_the_way = HashSet::new();
        self.next = None;
        for one in std::mem::take(&mut self.steps) {
            if one.reply.is_closed() {
                continue;
            }
            let name = one.op.name().to_owned();
            if in_the_way.contains(&name) && one.can_wait() {
                // The one before it may not have been put aside again.
                self.next.get_or_insert(Moment::now() + RETRY);
                self.steps.push_back(one);
            } else if !self.try_alone(engine, one).await {
                in_the_way.insert(name);
            }
        }
    }

    /// Does one step in a transaction of its own, without waiting for its row. Returns whether others were not in its way.
    async fn try_alone<E: Engine>(&mut self, engine: &E, one: Asked) -> bool {
        let began = Moment::now();
        let done = fit(engine.run_now(&one.op).await, 1);
        match done {
            Ok(mut replies) => {
                if one.op.is_durable().is_some() {
                    self.kept.remove(one.op.name());
                }
                let missing = || engine.kind().unavailable("an answer is missing");
                one.answer(replies.pop().ok_or_else(missing));
                true
            }
            Err(Fault::Undone(error)) => {
                let now = Moment::now();
                self.kept.insert(one.op.name().to_owned(), now + WARY);
                if one.can_wait() {
                    let pause = (4 * now.since(began)).clamp(RETRY, LONGEST_RETRY);
                    self.next = Some(now + pause);
                    self.steps.push_back(one);
                } else {
                    one.answer(Err(error));
                }
                false
            }
            Err(fault) => {
                let error = explain(engine, &one.op, fault);
                one.answer(Err(error));
                true
            }
        }
    }
}

/// As many replies as there were steps.
fn fit(done: Result<Vec<Reply>, Fault>, steps: usize) -> Result<Vec<Reply>, Fault> {
    match done {
        Ok(replies) if replies.len() != steps => {
            Err(Fault::Unknown("the answers do not fit the requests".into()))
        }
        done => done,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;
    use crate::Name;
    use crate::store::common::{ServerClock, StoreKind};
    use crate::store::sql::wake::Mailbox;
    use crate::store::{
        Answer, BoxFuture, Capabilities, ClaimId, Health, Interest, KeeperId, Subscription,
    };

    const KIND: StoreKind = StoreKind::new("test", "test://host");

    /// A server on which somebody keeps a row: for as long as a test wants, and always from renewals.
    #[derive(Debug, Default)]
    struct Kept {
        is_free: AtomicBool,
        mailbox: Mailbox,
        clock: ServerClock,
    }

    impl Engine for Kept {
        fn run<'a>(&'a self, ops: &'a [Op], _: bool) -> BoxFuture<'a, Result<Vec<Reply>, Fault>> {
            let renews = ops.iter().any(|op| matches!(op, Op::Prolong { .. }));
            let done = if self.is_free.load(SeqCst) && !renews {
                Ok(ops.iter().map(|_| Reply::Done).collect())
            } else {
                Err(Fault::Undone(KIND.unavailable("the row is kept")))
            };
            Box::pin(std::future::ready(done))
        }
        fn subscribe<'a>(&'a self, _: Interest) -> Answer<'a, Subscription> {
            unimplemented!("nobody subscribes")
        }
        fn mailbox(&self) -> &Mailbox {
            &self.mailbox
        }
        fn clock(&self) -> &ServerClock {
            &self.clock
        }
        fn capabilities(&self) -> Capabilities {
            unimplemented!("nobody asks")
        }
        fn place(&self) -> String {
            String::new()
        }
        fn health(&self) -> Health {
            Health::default()
        }
        fn kind(&self) -> &'static StoreKind {
            &KIND
        }
    }

    /// A step that is put aside behind one that fails is tried again all the same.
    #[tokio::test]
    async fn a_step_behind_one_that_is_given_up_is_not_forgotten() {
        let engine = Arc::new(Kept::default());
        let (sender, todo) = mpsc::unbounded_channel();
        let driver = tokio::spawn(drive(engine.clone(), todo));
        let ask = |op: Op| {
            let (asked, answer) = Asked::new(op);
            sender.send(asked).expect("it is driven");
            answer
        };
        let renewal = |op: &Op| match op {
            Op::Free { name, claim } => Op::Prolong {
                name: name.clone(),
                claim: *claim,
                lease: Duration::from_secs(30),
                not_after: 0,
            },
            other => other.clone(),
        };
        let first = ask(free("x"));
        // It is put aside.
        tokio::time::sleep(5 * RETRY).await;
        let (second, third) = (ask(renewal(&free("x"))), ask(free("x")));
        engine.is_free.store(true, SeqCst);
        let answers = async { (first.await, second.await, third.await) };
        let answers = tokio::time::timeout(PATIENCE, answers).await;
        let (first, second, third) = answers.expect("all are answered");
        assert!(matches!(first, Ok(Ok(Reply::Done))), "{first:?}");
        assert!(matches!(second, Ok(Err(_))), "{second:?}");
        assert!(matches!(third, Ok(Ok(Reply::Done))), "{third:?}");
        driver.abort();
    }

    fn load(text: &str) -> Op {
        let name = Name::new(text).expect("a name");
        Op::Load { name, limit: 2 }
    }

    fn free(text: &str) -> Op {
        let claim = ClaimId {
            keeper: KeeperId::new(),
            number: 1,
        };
        let name = Name::new(text).expect("a name");
        Op::Free { name, claim }
    }

    /// A client that is stopped while the server sends it a long answer has no row locked.
    #[test]
    fn what_reads_goes_apart_from_what_changes_something() {
        let (mut waiting, mut answers) = (VecDeque::new(), Vec::new());
        for op in [load("c"), free("b"), load("a"), free("a")] {
            let (one, answer) = Asked::new(op);
            waiting.push_back(one);
            answers.push(answer);
        }
        for (split, expected, changes) in [(true, ["a", "c"], false), (false, ["a", "b"], true)] {
            let batch = next(&mut waiting, split);
            let names: Vec<&str> = batch.iter().map(|one| one.op.name()).collect();
            assert_eq!(names, expected);
            let mut kinds = batch.iter().map(|one| one.op.is_durable().is_some());
            assert!(kinds.all(|kind| kind == changes));
        }
        assert!(waiting.is_empty());
    }
}
