//! Verbs that share a script when there are many of them.
//!
//! Calling a script costs the server, the client and the kernel more than what the script does: with 64 names, a pair takes the
//! server 10.6 µs of processor time in batches and 15.5 µs alone, and 8.1 and 12.0 µs in `plain`. So while
//! [`AT_ONCE`] verbs are under way, further ones collect, and go out together once they are so many that
//! [`AT_ONCE`] such requests hold all there are: the server has the next while we read one. With
//! nothing else to do a verb goes out at once, as it is. Where the way to the server is long, waiting for an answer
//! would cost more than it saves: there every verb goes out at once. So it does on the nodes of a cluster, as keys of
//! different slots must not meet in one script.
//!
//! Each verb of a batch has its own answer or error. A batch that the server refuses as a whole, before it ran,
//! goes out again one by one: nobody suffers for what is wrong with another's. A batch without an answer is
//! in doubt for each of them. A caller that stops waiting leaves the others alone.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, RedisWrite, Value};
use tokio::sync::oneshot;

use super::connection::Connection;
use super::fault::{Fault, words};
use super::scripts::{Text, Verb};
use super::shared::{Shared, State as Link, Up};
use super::transport::{Reply, Socket};
use crate::clock::Moment;
use crate::store::ClaimId;

/// How many requests may be under way.
const AT_ONCE: usize = 3;
/// How many verbs one script runs: it keeps all other clients of the server waiting.
const MOST: usize = 32;
/// How many locks and permits these take, about: each permit is an entry of its own.
const HEAVIEST: u32 = 4_000;
/// Where an answer takes longer than this, nothing is held back.
const FAR: Duration = Duration::from_millis(1);

/// A verb to run: its keys, and its arguments after the two that all of them have.
pub(super) struct Op<'a> {
    pub verb: &'static Verb,
    /// The first argument, where the verb needs it.
    pub who: &'a str,
    pub keys: &'a (dyn Fn(&mut Cmd) + Sync),
    /// In a cluster, a last key that never exists.
    pub witness: Option<String>,
    /// How many locks or permits it takes.
    pub weight: u32,
    pub args: &'a (dyn Fn(&mut Cmd) + Sync),
}

/// What goes out together.
#[derive(Debug)]
pub(super) struct Batch {
    state: Mutex<State>,
    /// The first two arguments of every verb.
    who: String,
    keep: String,
}

#[derive(Debug, Default)]
struct State {
    /// Requests, and the verbs in them.
    under_way: usize,
    verbs: usize,
    waiting: VecDeque<Waiting>,
    /// About the least that an answer takes; nothing is known at first.
    way: Duration,
}

/// A verb that waits for others to be answered.
#[derive(Debug)]
struct Waiting {
    verb: &'static Verb,
    /// Its keys, then its arguments.
    body: Cmd,
    weight: u32,
    answer: oneshot::Sender<Result<Value, Fault>>,
}

impl Batch {
    pub fn new(who: String, keep: Option<Duration>) -> Batch {
        Batch {
            state: Mutex::default(),
            who,
            keep: keep.map_or(0, |keep| keep.as_millis()).to_string(),
        }
    }

    /// How long the fence is kept, as an argument.
    pub fn keep(&self) -> &str {
        &self.keep
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether so many go out now.
    fn are_due(&self, many: usize) -> bool {
        let share = (self.verbs + many).div_ceil(AT_ONCE).min(MOST);
        let room = self.under_way == 0 || self.under_way < AT_ONCE && many >= share;
        many > 0 && (room || self.way > FAR)
    }

    /// Whether one more goes out by itself.
    ///
    /// A caller may not come back for its answer for a while; so the last place is for a request of ours.
    fn has_room(&self) -> bool {
        let leaves_one = self.under_way + 1 < AT_ONCE || self.way > FAR;
        self.waiting.is_empty() && leaves_one && self.are_due(1)
    }

    fn sent(&mut self, verbs: usize) {
        self.under_way += 1;
        self.verbs += verbs;
    }

    /// How many of those that wait go out together.
    fn together(&self) -> usize {
        let mut weight = 0;
        let fit = self.waiting.iter().take(MOST).take_while(|op| {
            let fits = weight < HEAVIEST;
            weight += op.weight;
            fits
        });
        fit.count()
    }

    /// One more was answered after so long.
    fn answered(&mut self, took: Duration) {
        // Follows a shorter way at once and a longer one slowly: a busy server is not a far one.
        self.way = match took < self.way || self.way.is_zero() {
            true => took,
            false => self.way + (took - self.way) / 64,
        };
    }
}

impl Connection {
    /// Runs a verb, alone or with others.
    pub async fn run_verb(&self, op: &Op<'_>) -> Result<Value, Fault> {
        let shared = self.shared();
        let batch = &shared.batch;
        let has_room = batch.state().has_room();
        let joined = match has_room {
            true => match self.run_now(op).await {
                Some(answer) => return answer,
                None => op.join(shared),
            },
            false => op.join(shared),
        };
        let lost = |_| Err(Fault::Lost("the connection is no longer needed".into()));
        joined.await.unwrap_or_else(lost)
    }

    /// Sends a verb by itself, unless others took the room meanwhile.
    async fn run_now(&self, op: &Op<'_>) -> Option<Result<Value, Fault>> {
        let shared = self.shared();
        let Up { number, socket, .. } = match shared.current().await {
            Ok(current) => current,
            Err(fault) => return Some(Err(fault)),
        };
        let script = &op.verb.script.usual;
        let cmd = request("EVALSHA", script.sha(), |cmd| op.write(cmd, &shared.batch));
        let sent = Moment::now();
        let (mut slot, reply) = {
            let mut state = shared.batch.state();
            if !state.has_room() {
                return None;
            }
            state.sent(1);
            // Within the mutex, so that what one task asks for goes out in that order.
            let reply = socket.start_request(&cmd);
            (Slot::of(shared, sent, 1), reply)
        };
        socket.flush();
        let answer = reply.await;
        slot.answered = true;
        drop(slot);
        Some(match shared.judge(number, answer) {
            Err(fault) if fault.is_unknown_script() => {
                let cmd = request("EVAL", script.text, |cmd| op.write(cmd, &shared.batch));
                self.send(&cmd, false).await
            }
            answer => answer,
        })
    }
}

impl Op<'_> {
    /// All that follows the script.
    pub fn write(&self, cmd: &mut Cmd, batch: &Batch) {
        cmd.arg(self.verb.keys + self.witness.iter().len());
        (self.keys)(cmd);
        cmd.arg(&self.witness).arg(self.who).arg(&batch.keep);
        (self.args)(cmd);
    }

    /// Waits for others to be answered.
    fn join(&self, shared: &Arc<Shared>) -> oneshot::Receiver<Result<Value, Fault>> {
        let mut body = Cmd::with_capacity(16, 512);
        (self.keys)(&mut body);
        (self.args)(&mut body);
        let (answer, answered) = oneshot::channel();
        let mut state = shared.batch.state();
        state.waiting.push_back(Waiting {
            verb: self.verb,
            body,
            weight: self.weight,
            answer,
        });
        // The last answer may have come in between.
        shared.send_waiting(state);
        answered
    }
}

fn request(call: &'static str, script: &str, write: impl Fn(&mut Cmd)) -> Cmd {
    let mut cmd = Cmd::with_capacity(24, 640);
    cmd.arg(call).arg(script);
    write(&mut cmd);
    cmd
}

/// A request under way. Dropped, it makes room for those that wait.
struct Slot {
    shared: Arc<Shared>,
    sent: Moment,
    verbs: usize,
    answered: bool,
}

impl Slot {
    fn of(shared: &Arc<Shared>, sent: Moment, verbs: usize) -> Slot {
        Slot {
            shared: shared.clone(),
            sent,
            verbs,
            answered: false,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // What waits is the parent's to send, and a thread of the parent may have locked the mutex.
        if self.shared.is_fork() {
            return;
        }
        let took = self.answered.then(|| Moment::now().since(self.sent));
        let mut state = self.shared.batch.state();
        state.under_way -= 1;
        state.verbs -= self.verbs;
        if let Some(took) = took {
            state.answered(took);
        }
        self.shared.send_waiting(state);
    }
}

/// Verbs that went out together.
struct Together {
    ops: Vec<Waiting>,
    script: &'static Text,
    number: u64,
    socket: Socket,
    slot: Slot,
}

impl Shared {
    /// Sends those that wait, as far as there is room.
    fn send_waiting(self: &Arc<Shared>, mut state: MutexGuard<'_, State>) {
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        while state.are_due(state.waiting.len()) {
            let many = state.together();
            let ops = state.waiting.drain(..many);
            // A caller that stopped waiting does not want it done.
            let mut ops: Vec<Waiting> = ops.filter(|op| !op.answer.is_closed()).collect();
            // Releases first: a try may be for the same name. Nobody waits for both a try and what is to follow it.
            // Otherwise in their order, with a label or without.
            ops.sort_by_key(|op| matches!(op.verb.letter, "a" | "A" | "b" | "B"));
            let Some(script) = ops.first().map(|op| &op.verb.batch.usual) else {
                continue;
            };
            let link = match &*self.state.borrow() {
                Link::Up(up) => Some((up.number, up.socket.clone())),
                _ => None,
            };
            let Some((number, socket)) = link else {
                alone.extend(ops);
                continue;
            };
            state.sent(ops.len());
            let batch = Together {
                slot: Slot::of(self, Moment::now(), ops.len()),
                ops,
                script,
                number,
                socket,
            };
            let cmd = self.batch_request("EVALSHA", script.sha(), &batch.ops);
            let reply = batch.socket.start_request(&cmd);
            together.push((batch, reply));
        }
        // Ending a batch takes the mutex again.
        drop(state);
        for (batch, reply) in together {
            batch.socket.flush();
            self.runtime.spawn(self.clone().finish(batch, reply));
        }
        self.run_each(alone);
    }

    async fn finish(self: Arc<Shared>, mut batch: Together, reply: Reply) {
        let mut answer = reply.await;
        if let Ok(Value::ServerError(error)) = &answer
            && error.code() == "NOSCRIPT"
        {
            // A caller that left meanwhile may have taken it back already.
            batch.ops.retain(|op| !op.answer.is_closed());
            let cmd = self.batch_request("EVAL", batch.script.text, &batch.ops);
            answer = batch.socket.send(&cmd).await;
        }
        let Together {
            ops,
            number,
            mut slot,
            ..
        } = batch;
        slot.answered = answer.is_ok();
        // The next go out before these are told.
        drop(slot);
        let fault = match answer {
            Ok(Value::Array(answers)) if answers.len() == ops.len() => {
                for (op, answer) in ops.into_iter().zip(answers) {
                    let _ = op.answer.send(self.judge(number, Ok(answer)));
                }
                return;
            }
            // A script that failed may have begun; whatever else the server refuses it has not.
            Ok(Value::ServerError(error)) if error.code() != "ERR" => return self.run_each(ops),
            Ok(Value::ServerError(error)) => Fault::Lost(words(&error.into())),
            answer => match self.judge(number, answer) {
                Err(fault) => fault,
                Ok(_) => Fault::Lost("the server answered a batch with something else".into()),
            },
        };
        for op in ops {
            let _ = op.answer.send(Err(fault.clone()));
        }
    }

    fn batch_request(&self, call: &'static str, script: &str, ops: &[Waiting]) -> Cmd {
        let keys: usize = ops.iter().map(|op| op.verb.keys).sum();
        let mut cmd = Cmd::with_capacity(16 * ops.len() + 8, 512 * ops.len() + 256);
        cmd.arg(call).arg(script).arg(keys);
        for op in ops {
            op.keys().for_each(|key| {
                cmd.arg(key);
            });
        }
        cmd.arg(&self.batch.who).arg(&self.batch.keep);
        for run in ops.chunk_by(|one, next| one.verb.letter == next.verb.letter) {
            cmd.arg(run[0].verb.letter).arg(run.len());
            for arg in run.iter().flat_map(Waiting::args) {
                cmd.arg(arg);
            }
        }
        cmd
    }

    /// Sends verbs on their own, in their order, and waits for none.
    fn run_each(self: &Arc<Shared>, ops: Vec<Waiting>) {
        for mut op in ops {
            let shared = self.clone();
            self.runtime.spawn(async move {
                let Waiting {
                    verb,
                    body,
                    answer: told,
                    ..
                } = &mut op;
                let answer = shared.run(verb.script, false, |cmd| {
                    cmd.arg(verb.keys);
                    parts(body).take(verb.keys).for_each(|key| {
                        cmd.arg(key);
                    });
                    cmd.arg(&shared.batch.who).arg(&shared.batch.keep);
                    parts(body).skip(verb.keys).for_each(|arg| {
                        cmd.arg(arg);
                    });
                });
                let answer = tokio::select! {
                    biased;
                    () = told.closed() => return,
                    answer = answer => answer,
                };
                let _ = op.answer.send(answer);
            });
        }
    }
}

impl Waiting {
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        parts(&self.body).take(self.verb.keys)
    }

    fn args(&self) -> impl Iterator<Item = &[u8]> {
        parts(&self.body).skip(self.verb.keys)
    }
}

/// Writes a claim as an argument.
pub(super) fn id_arg(cmd: &mut Cmd, id: ClaimId) {
    cmd.write_arg_fmt(id);
}

/// What a request consists of.
pub(super) fn parts(cmd: &Cmd) -> impl Iterator<Item = &[u8]> {
    cmd.args_iter().map(|arg| match arg {
        ::redis::Arg::Simple(bytes) => bytes,
        _ => unreachable!("there are no other arguments"),
    })
}
