//! A simulated network between clients and one store: it delays, repeats, loses and reorders.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::Name;
use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::{
    Attempt, Break, BreakTarget, Claim, ClaimId, Release, Released, Renewal, Renewed, Store,
};
use lockkeeper_testkit::history::{Answer, Call, Event, Fault, Recorder};
use lockkeeper_testkit::polling::ready;
use lockkeeper_testkit::random::Random;

use crate::broken::{BrokenStore, Bug};
use crate::client::{Client, Wake};

/// What a run is like.
#[derive(Clone, Debug)]
pub struct Plan {
    pub clients: usize,
    pub modes: Modes,
    pub lease: Duration,
    /// For how long the clients go on.
    pub time: Duration,
    /// How long a client does nothing between two holds, at most.
    pub rest: Duration,
    /// The longest delay of a message; most are much faster.
    pub longest_delay: Duration,
    /// How many messages are very late, lost or repeated.
    pub trouble: f64,
    pub crashes: bool,
    pub breaks: bool,
    /// Clients wait in the queue; otherwise they give up at once.
    pub waiting: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Modes {
    Exclusive,
    ReadWrite,
    Permits,
}

#[derive(Clone, Debug)]
pub enum Request {
    Try(Claim),
    Withdraw(Name, ClaimId),
    Renew(Renewal),
    Release(Release),
}

#[derive(Clone, Debug)]
pub enum Reply {
    Try(Attempt),
    Withdraw,
    Renew(Renewed),
    Release(Released),
}

/// Something that will happen.
#[derive(Debug)]
enum Coming {
    AtStore {
        message: u64,
        client: usize,
        request: Request,
    },
    AtClient {
        message: u64,
        client: usize,
        reply: Reply,
    },
    Wake {
        client: usize,
        wake: Wake,
    },
    Break,
}

/// What clients see of the world.
pub struct Outside {
    pub clock: Clock,
    pub random: Random,
    pub recorder: Recorder,
    pub plan: Plan,
    pub bug: Option<Bug>,
    coming: BinaryHeap<Reverse<(u64, u64)>>,
    content: std::collections::HashMap<u64, Coming>,
    next: u64,
}

impl Outside {
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    fn schedule(&mut self, at: Moment, coming: Coming) {
        self.next += 1;
        self.coming.push(Reverse((at.as_nanos(), self.next)));
        self.content.insert(self.next, coming);
    }

    pub fn wake_in(&mut self, client: usize, delay: Duration, wake: Wake) {
        let at = self.now() + delay;
        self.schedule(at, Coming::Wake { client, wake });
    }

    /// Sends a request, if the network lets it; answers the message's number.
    pub fn send(&mut self, client: usize, request: Request) -> u64 {
        self.next += 1;
        let message = self.next;
        let trouble = self.plan.trouble;
        if self.random.chance(trouble) {
            self.recorder.fault(Fault::RequestLost);
            return message;
        }
        // A store does not remember ids whose hold has ended. A repeated acquire that arrives after a break,
        // and before its `not_after`, would bring back what was broken, so these two do not come together.
        let repeatable = !(self.plan.breaks && matches!(request, Request::Try(_)));
        if repeatable && self.random.chance(trouble) {
            self.recorder.fault(Fault::Repeated);
            self.deliver(message, client, request.clone());
        }
        self.deliver(message, client, request);
        message
    }

    fn deliver(&mut self, message: u64, client: usize, request: Request) {
        let at = self.now() + self.delay();
        let coming = Coming::AtStore {
            message,
            client,
            request,
        };
        self.schedule(at, coming);
    }

    fn delay(&mut self) -> Duration {
        let quick = Duration::from_millis(2);
        let longest = self.plan.longest_delay;
        if !self.random.chance(self.plan.trouble) {
            return self.random.between(Duration::from_micros(50), quick);
        }
        self.recorder.fault(Fault::Delayed);
        // As many a little late as very late.
        let longest = [longest, longest / 10, longest / 100][self.random.below(3) as usize];
        self.random.between(quick, longest.max(quick))
    }

    fn pop(&mut self) -> Option<(Moment, Coming)> {
        let Reverse((at, number)) = self.coming.pop()?;
        let coming = self.content.remove(&number)?;
        Some((Moment::from_nanos(at), coming))
    }
}

/// Runs clients by a plan and answers their history.
pub fn run(seed: u64, plan: &Plan, bug: Option<Bug>) -> Vec<Event> {
    let clock = Clock::simulated();
    let memory = Arc::new(MemoryStore::with_clock(clock.clone()));
    let store: Arc<dyn Store> = match bug {
        Some(bug) => Arc::new(BrokenStore::new(memory, bug)),
        None => memory,
    };
    let mut outside = Outside {
        recorder: Recorder::in_memory("simulation", clock.clone()),
        clock,
        random: Random::seeded(seed),
        plan: plan.clone(),
        bug,
        coming: BinaryHeap::new(),
        content: Default::default(),
        next: 0,
    };
    let mut clients: Vec<Client> = (0..plan.clients)
        .map(|number| Client::new(number, &mut outside))
        .collect();
    if plan.breaks {
        outside.schedule(outside.now() + plan.time / 3, Coming::Break);
    }
    let end = outside.now() + plan.time;
    let mut answered = HashSet::new();
    while let Some((at, coming)) = outside.pop() {
        if at > end {
            break;
        }
        outside.clock.advance(at.since(outside.now()));
        match coming {
            Coming::AtStore {
                message,
                client,
                request,
            } => {
                let reply = serve(&*store, request);
                // Of a repeated request the first one's answer counts, as with any transport that repeats.
                if answered.insert(message) {
                    send_back(&mut outside, message, client, reply);
                }
            }
            Coming::AtClient {
                message,
                client,
                reply,
            } => clients[client].told(message, reply, &mut outside),
            Coming::Wake { client, wake } => clients[client].woken(wake, &mut outside),
            Coming::Break => break_lock(&*store, &mut outside),
        }
    }
    outside.recorder.events()
}

fn serve(store: &dyn Store, request: Request) -> Reply {
    const ANSWERS: &str = "memory always answers";
    match request {
        Request::Try(claim) => Reply::Try(ready(store.try_acquire(&claim)).expect(ANSWERS)),
        Request::Withdraw(name, claim) => {
            ready(store.withdraw(&name, claim)).expect(ANSWERS);
            Reply::Withdraw
        }
        Request::Renew(renewal) => {
            let answers = ready(store.renew(&[renewal])).expect(ANSWERS);
            Reply::Renew(answers[0])
        }
        Request::Release(release) => Reply::Release(ready(store.release(&release)).expect(ANSWERS)),
    }
}

fn send_back(outside: &mut Outside, message: u64, client: usize, reply: Reply) {
    if outside.random.chance(outside.plan.trouble) {
        outside.recorder.fault(Fault::ReplyLost);
        return;
    }
    let at = outside.now() + outside.delay();
    let coming = Coming::AtClient {
        message,
        client,
        reply,
    };
    outside.schedule(at, coming);
}

/// An administrator loses patience, a few times.
fn break_lock(store: &dyn Store, outside: &mut Outside) {
    let op = outside.recorder.invoke(Call::Break { lock: "a".into() });
    let request = Break::new(
        Name::new("a").expect("a name"),
        BreakTarget::All,
        "stuck",
        outside.now(),
    );
    ready(store.break_lock(&request)).expect("memory always answers");
    outside.recorder.ok(op, Answer::Broken);
    outside.recorder.fault(Fault::Broken);
    let next = outside.now() + outside.plan.time / 5;
    outside.schedule(next, Coming::Break);
}
