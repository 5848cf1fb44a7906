//! A client as the engine is one, reduced to its decisions. Each [`Bug`] changes one of them.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{
    Attempt, Claim, ClaimId, Grant, KeeperId, Mode, Release, Released, Renewal, Renewed,
};
use lockkeeper::{Name, Token};
use lockkeeper_testkit::history::{Answer, Call};

use crate::broken::Bug;
use crate::world::{Modes, Outside, Reply, Request};

/// How long a client waits for an answer. Longer than a lease: an answer may come when it is of no use.
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// How late a request may take effect.
const WINDOW: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub enum Wake {
    Begin,
    Retry(ClaimId),
    /// No answer to this message.
    Timeout(u64),
    Renew(ClaimId),
    LetGo(ClaimId),
    Deadline,
    /// What may have arrived late is withdrawn once more.
    WithdrawAgain(ClaimId),
    Resume,
}

/// An acquire that is under way.
#[derive(Clone, Debug)]
struct Asking {
    claim: Claim,
    op: u64,
    message: u64,
    sent: Moment,
}

#[derive(Clone, Debug)]
struct Holding {
    claim: Claim,
    op: u64,
    deadline: Moment,
    /// The renewal under way: its message, when it was sent, its operation.
    renewing: Option<(u64, Moment, u64)>,
}

/// A release that is under way, and the acquire that it queues in the same step.
#[derive(Clone, Debug)]
struct Releasing {
    op: u64,
    message: u64,
    sent: Moment,
    next: Option<(Claim, u64)>,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    Asking(Asking),
    Holding(Holding),
    Releasing(Releasing),
    /// Its process is gone; another one starts later.
    Crashed,
}

pub struct Client {
    number: usize,
    lives: usize,
    keeper: KeeperId,
    claims: u64,
    /// Its clock runs this much faster than the store's.
    drift: f64,
    state: State,
    /// Stopped until then, as by SIGSTOP.
    stopped_until: Moment,
}

impl Client {
    pub fn new(number: usize, outside: &mut Outside) -> Client {
        let drift = outside.random.below(1_000) as f64 / 100_000.0 - 0.005;
        let mut client = Client {
            number,
            lives: 0,
            keeper: KeeperId::from_bits(0),
            claims: 0,
            drift,
            state: State::Idle,
            stopped_until: Moment::BOOT,
        };
        client.begin_life(outside);
        client
    }

    fn begin_life(&mut self, outside: &mut Outside) {
        self.lives += 1;
        self.keeper = KeeperId::from_bits((self.number * 1_000 + self.lives) as u128);
        self.rest(outside);
    }

    fn owner(&self) -> String {
        format!("c{}.{}", self.number, self.lives)
    }

    fn rest(&mut self, outside: &mut Outside) {
        self.state = State::Idle;
        let pause = outside.random.between(Duration::ZERO, outside.plan.rest);
        outside.wake_in(self.number, pause, Wake::Begin);
    }

    fn claim(&mut self, outside: &mut Outside) -> Claim {
        self.claims += 1;
        let id = match outside.bug {
            Some(Bug::ReusedId) => ClaimId {
                keeper: self.keeper,
                number: 1,
            },
            Some(Bug::SharedId) => ClaimId {
                keeper: KeeperId::from_bits(1),
                number: 1,
            },
            _ => ClaimId {
                keeper: self.keeper,
                number: self.claims,
            },
        };
        let mode = match outside.plan.modes {
            Modes::Exclusive => Mode::Exclusive,
            Modes::ReadWrite if outside.random.chance(0.6) => Mode::Read,
            Modes::ReadWrite => Mode::Write,
            Modes::Permits => Mode::Permit {
                limit: 3,
                count: 1 + outside.random.below(2) as u32,
            },
        };
        Claim::new(
            id,
            Name::new("a").expect("a name"),
            mode,
            outside.plan.lease,
        )
        .with_not_after(outside.now())
        .with_enqueue(outside.plan.waiting)
    }

    fn ask(&mut self, claim: Claim, op: u64, outside: &mut Outside) {
        let (claim, sent) = (dated(claim, outside), outside.now());
        let message = outside.send(self.number, Request::Try(claim.clone()));
        outside.wake_in(self.number, TIMEOUT, Wake::Timeout(message));
        self.state = State::Asking(Asking {
            claim,
            op,
            message,
            sent,
        });
    }

    /// The moment until which a lease asked for at `sent` is believed in, on a clock that drifts.
    fn deadline(&self, sent: Moment, outside: &Outside) -> Moment {
        let from = match outside.bug {
            Some(Bug::DeadlineFromReply) => outside.now(),
            _ => sent,
        };
        let lease = outside.plan.lease;
        let believed = (lease - lease / 100).saturating_sub(Duration::from_millis(2));
        from + believed.div_f64(1.0 + self.drift)
    }

    pub fn woken(&mut self, wake: Wake, outside: &mut Outside) {
        if outside.now() < self.stopped_until {
            let left = self.stopped_until.since(outside.now());
            return outside.wake_in(self.number, left, wake);
        }
        self.notice_deadline(outside);
        match (wake, self.state.clone()) {
            (Wake::Begin, State::Idle) => {
                let claim = self.claim(outside);
                let op = outside.recorder.acquire("a", &self.owner(), claim.mode);
                self.ask(claim, op, outside);
            }
            (Wake::Retry(id), State::Asking(asking)) if asking.claim.id == id => {
                self.ask(asking.claim, asking.op, outside);
            }
            (Wake::Timeout(message), State::Asking(asking)) if asking.message == message => {
                self.doubt(asking.claim, asking.op, outside);
                self.rest(outside);
            }
            (Wake::Timeout(message), State::Releasing(releasing))
                if releasing.message == message =>
            {
                outside.recorder.unknown(releasing.op, "no answer");
                if let Some((claim, op)) = releasing.next {
                    self.doubt(claim, op, outside);
                }
                self.rest(outside);
            }
            (Wake::Renew(id), State::Holding(holding)) if holding.claim.id == id => {
                self.renew(holding, outside);
            }
            (Wake::LetGo(id), State::Holding(holding)) if holding.claim.id == id => {
                self.let_go(holding, outside);
            }
            (Wake::WithdrawAgain(id), _) => {
                let name = Name::new("a").expect("a name");
                outside.send(self.number, Request::Withdraw(name, id));
            }
            (Wake::Resume, State::Crashed) => self.begin_life(outside),
            _ => {}
        }
    }

    pub fn told(&mut self, message: u64, reply: Reply, outside: &mut Outside) {
        if outside.now() < self.stopped_until {
            // It lies in the socket until the process goes on. The client may have given up by then.
            self.notice_later(outside);
            return;
        }
        self.notice_deadline(outside);
        match (reply, self.state.clone()) {
            (Reply::Try(attempt), State::Asking(asking)) if asking.message == message => {
                self.answered(attempt, asking, outside);
            }
            (Reply::Renew(renewed), State::Holding(holding))
                if holding.renewing.is_some_and(|(sent, ..)| sent == message) =>
            {
                self.renewed(renewed, holding, outside);
            }
            (Reply::Release(released), State::Releasing(releasing))
                if releasing.message == message =>
            {
                self.released(released, releasing, outside);
            }
            _ => {}
        }
    }

    fn notice_later(&mut self, outside: &mut Outside) {
        let left = self.stopped_until.since(outside.now());
        outside.wake_in(self.number, left, Wake::Resume);
    }

    /// Whatever wakes a holder, it looks at the clock first.
    fn notice_deadline(&mut self, outside: &mut Outside) {
        let State::Holding(holding) = self.state.clone() else {
            return;
        };
        let believes_on = matches!(
            outside.bug,
            Some(Bug::IgnoresDeadline | Bug::RenewalRecreates)
        );
        if outside.now() < holding.deadline || believes_on {
            return;
        }
        outside.recorder.lost(holding.op);
        self.take_back(&holding.claim, outside);
        self.rest(outside);
    }

    fn answered(&mut self, attempt: Attempt, asking: Asking, outside: &mut Outside) {
        match attempt {
            Attempt::Granted(grant) => {
                self.hold(asking.claim, asking.op, grant, asking.sent, outside);
            }
            Attempt::Busy { .. } if asking.claim.enqueue => {
                let pause = outside
                    .random
                    .between(Duration::from_millis(1), Duration::from_millis(300));
                outside.wake_in(self.number, pause, Wake::Retry(asking.claim.id));
                // The answer is here: its timeout no longer counts.
                self.state = State::Asking(Asking {
                    message: 0,
                    ..asking
                });
            }
            Attempt::Busy { .. } => {
                outside.recorder.ok(asking.op, Answer::Busy);
                self.rest(outside);
            }
            // Too late.
            _ => {
                self.doubt(asking.claim, asking.op, outside);
                self.rest(outside);
            }
        }
    }

    fn hold(
        &mut self,
        claim: Claim,
        op: u64,
        Grant { token, .. }: Grant,
        sent: Moment,
        outside: &mut Outside,
    ) {
        let deadline = self.deadline(sent, outside);
        if outside.now() >= deadline {
            self.doubt(claim, op, outside);
            return self.rest(outside);
        }
        let id = claim.id;
        outside
            .recorder
            .granted(op, Token::new(token.get()), deadline);
        let (lease, now) = (outside.plan.lease, outside.now());
        let longest = if outside.random.chance(0.3) {
            lease * 3
        } else {
            lease / 4
        };
        let hold = outside.random.between(Duration::ZERO, longest);
        outside.wake_in(self.number, lease / 3, Wake::Renew(id));
        outside.wake_in(self.number, hold, Wake::LetGo(id));
        outside.wake_in(self.number, deadline.since(now), Wake::Deadline);
        self.state = State::Holding(Holding {
            claim,
            op,
            deadline,
            renewing: None,
        });
        if outside.plan.crashes {
            self.perhaps_fall(outside);
        }
    }

    /// Some holders die, some are stopped for a while.
    fn perhaps_fall(&mut self, outside: &mut Outside) {
        let pause = outside
            .random
            .between(Duration::ZERO, outside.plan.lease * 3);
        if outside.random.chance(0.05) {
            self.state = State::Crashed;
            outside.wake_in(self.number, pause, Wake::Resume);
        } else if outside.random.chance(0.1) {
            self.stopped_until = outside.now() + pause;
        }
    }

    fn renew(&mut self, mut holding: Holding, outside: &mut Outside) {
        let request = Request::Renew(Renewal::new(
            holding.claim.name.clone(),
            holding.claim.id,
            holding.claim.lease,
            match outside.bug {
                Some(Bug::IgnoresDeadline) => Moment::NEVER,
                _ => holding.deadline,
            },
        ));
        let op = outside.recorder.invoke(Call::Renew { hold: holding.op });
        let sent = outside.now();
        let message = outside.send(self.number, request);
        outside.wake_in(
            self.number,
            outside.plan.lease / 3,
            Wake::Renew(holding.claim.id),
        );
        holding.renewing = Some((message, sent, op));
        self.state = State::Holding(holding);
    }

    fn renewed(&mut self, renewed: Renewed, mut holding: Holding, outside: &mut Outside) {
        let Some((_, sent, op)) = holding.renewing.take() else {
            return;
        };
        match renewed {
            Renewed::Renewed => {
                let deadline = holding.deadline.max(self.deadline(sent, outside));
                holding.deadline = deadline;
                let answer = Answer::Renewed {
                    deadline: deadline.as_nanos(),
                };
                outside.recorder.ok(op, answer);
                let left = deadline.since(outside.now());
                outside.wake_in(self.number, left, Wake::Deadline);
                self.state = State::Holding(holding);
            }
            Renewed::NotHeld => {
                outside.recorder.ok(op, Answer::NotHeld);
                outside.recorder.lost(holding.op);
                self.rest(outside);
            }
            // Unknown, or too late.
            _ => {
                outside.recorder.unknown(op, "no answer that counts");
                self.state = State::Holding(holding);
            }
        }
    }

    fn let_go(&mut self, holding: Holding, outside: &mut Outside) {
        let op = outside.recorder.release(holding.op, &self.owner());
        let requeue = outside.plan.waiting && outside.random.chance(0.4);
        let next = requeue.then(|| {
            let claim = dated(self.claim(outside), outside);
            let op = outside.recorder.acquire("a", &self.owner(), claim.mode);
            (claim, op)
        });
        let request = Request::Release(
            Release::new(holding.claim.name.clone(), holding.claim.id)
                .with_requeue(next.as_ref().map(|(claim, _)| claim.clone())),
        );
        let sent = outside.now();
        let message = outside.send(self.number, request);
        outside.wake_in(self.number, TIMEOUT, Wake::Timeout(message));
        self.state = State::Releasing(Releasing {
            op,
            message,
            sent,
            next,
        });
    }

    fn released(&mut self, released: Released, releasing: Releasing, outside: &mut Outside) {
        let answer = match released.was_held {
            true => Answer::Released,
            false => Answer::NotHeld,
        };
        outside.recorder.ok(releasing.op, answer);
        match (releasing.next, released.regrant) {
            (Some((claim, op)), Some(grant)) => {
                self.hold(claim, op, grant, releasing.sent, outside);
            }
            (Some((claim, op)), None) if released.was_held => self.ask(claim, op, outside),
            (Some((_, op)), None) => {
                outside.recorder.fail(op, "the release took no effect");
                self.rest(outside);
            }
            (None, _) => self.rest(outside),
        }
    }

    /// Nobody knows whether an acquire took effect: it is withdrawn, now and once it can no longer arrive.
    fn doubt(&mut self, claim: Claim, op: u64, outside: &mut Outside) {
        outside.recorder.unknown(op, "no answer in time");
        self.take_back(&claim, outside);
    }

    fn take_back(&mut self, claim: &Claim, outside: &mut Outside) {
        outside.send(self.number, Request::Withdraw(claim.name.clone(), claim.id));
        outside.wake_in(self.number, WINDOW, Wake::WithdrawAgain(claim.id));
    }
}

/// The claim as it is sent now.
fn dated(claim: Claim, outside: &Outside) -> Claim {
    let not_after = match outside.bug {
        Some(Bug::NoNotAfter) => Moment::NEVER,
        _ => outside.now() + WINDOW,
    };
    claim.with_not_after(not_after)
}
