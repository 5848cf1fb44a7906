//! The requests of one name, by chance, and what was asked before.
//!
//! Most requests arrive at once and once. Of the rest, a network loses some, loses the answers of some, delivers some later, and
//! delivers some again. A keeper that gets no answer does what the engine does: it withdraws the claim, or sends the
//! request again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::*;
use lockkeeper::{Label, Name};

use super::agree::{Tokens, same};
use super::request::{Reply, Request};
use super::{Stores, Turn};
use crate::random::Random;

/// Leases in ms; none is a multiple of the clock's [`STEP`](super::STEP).
const LEASES: [u64; 5] = [51, 501, 3_004, 30_001, 120_003];
/// Of the claims that a name has had, how many are asked about again.
const RECENT: usize = 10;
/// How many requests are under way at most.
const UNDER_WAY: usize = 8;

/// How often something happened.
pub(super) type Counts = BTreeMap<&'static str, usize>;

#[derive(Debug)]
pub(super) struct Sequence {
    name: Name,
    stores: Stores,
    can: Capabilities,
    model: Arc<MemoryStore>,
    clock: Clock,
    random: Random,
    /// How this name is mostly used: some ways through a store are taken only where all claims are alike.
    taste: u64,
    keepers: Vec<KeeperId>,
    claims: Vec<Claim>,
    /// How many claims there were, also those that died.
    made: u64,
    /// Requests that the network has: they may still arrive, whether they did before or not.
    under_way: Vec<Request>,
    tokens: Tokens,
    counts: Counts,
    verbs: usize,
    history: String,
}

impl Sequence {
    pub fn new(
        name: &str,
        stores: Stores,
        model: Arc<MemoryStore>,
        clock: Clock,
        mut random: Random,
    ) -> Sequence {
        Sequence {
            name: Name::new(name).expect("a name"),
            can: stores.at(0).capabilities(),
            keepers: (0..stores.len()).map(|_| KeeperId::new()).collect(),
            tokens: Tokens::default(),
            stores,
            model,
            clock,
            taste: random.below(5),
            random,
            claims: Vec::new(),
            made: 0,
            under_way: Vec::new(),
            counts: Counts::new(),
            verbs: 0,
            history: String::new(),
        }
    }

    pub fn verbs(&self) -> usize {
        self.verbs
    }

    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Everything so far, one verb a line.
    pub fn history(&self) -> String {
        format!(
            "{:?}, claims as <keeper>.<number>:{}",
            self.name, self.history
        )
    }

    pub async fn take(&mut self, turn: Turn) -> Result<(), String> {
        match turn {
            Turn::Look => self.look().await,
            Turn::Died(keeper) => self.bury(keeper).await,
            Turn::End => self.end().await,
            Turn::Verbs(many) => {
                for _ in 0..many {
                    self.verb().await?;
                }
                Ok(())
            }
        }
    }

    async fn verb(&mut self) -> Result<(), String> {
        if self.random.chance(0.12) && !self.under_way.is_empty() {
            return self.arrive().await;
        }
        let request = match self.random.below(100) {
            0..42 => Some(self.a_try().await),
            42..64 => self.a_release().await,
            64..72 => self.some_claim().await.map(|it| Request::Withdraw(it.id)),
            72..82 => self.some_renewals().await,
            82..84 => Some(self.a_break().await),
            91.. if self.can.latches => Some(self.a_latch()),
            _ => None,
        };
        match request {
            Some(request) => self.send(request).await,
            None => self.inspect().await,
        }
    }

    /// Sends a request over a network that is not to be trusted.
    async fn send(&mut self, request: Request) -> Result<(), String> {
        match self.random.below(100) {
            0..78 => self.deliver(request, "").await,
            78..86 => {
                self.deliver(request.clone(), "").await?;
                self.keep(request);
                Ok(())
            }
            86..91 => {
                self.count("answers lost");
                self.deliver(request.clone(), ", and the answer is lost")
                    .await?;
                self.doubt(request).await
            }
            91..96 => {
                self.note(&format!("{} is on its way", self.describe(&request)));
                self.keep(request.clone());
                self.doubt(request).await
            }
            _ => {
                self.count("requests lost");
                self.note(&format!("{} is lost", self.describe(&request)));
                self.doubt(request).await
            }
        }
    }

    fn keep(&mut self, request: Request) {
        if self.under_way.len() == UNDER_WAY {
            self.under_way.remove(0);
        }
        self.under_way.push(request);
    }

    /// The keeper does not know what became of its request.
    async fn doubt(&mut self, request: Request) -> Result<(), String> {
        let wanted = request.wants();
        match (wanted, self.random.below(10)) {
            (Some(claim), 0..6) => {
                let withdraw = Request::Withdraw(claim);
                self.deliver(withdraw, ", as it is in doubt").await
            }
            (_, 0..8) => self.deliver(request, ", once more").await,
            // The request was chosen by a look at the model, which ended there what time has ended.
            _ => self.inspect().await,
        }
    }

    /// One of the requests under way arrives, and perhaps not for the last time.
    async fn arrive(&mut self) -> Result<(), String> {
        let at = self.random.below(self.under_way.len() as u64) as usize;
        let request = self.under_way.remove(at);
        if self.random.chance(0.3) {
            self.keep(request.clone());
        }
        if self.breaks_the_rules(&request).await {
            return self.inspect().await;
        }
        self.count("requests delayed or repeated");
        let late = self.clock.now() > request.not_after();
        self.counts
            .entry("of them late")
            .and_modify(|it| *it += usize::from(late))
            .or_default();
        self.deliver(request, ", from before").await
    }

    /// A claim that is requeued is a fresh one. A release that comes twice queues it once, unless the claim that it releases was
    /// granted twice, which no store has to expect.
    async fn breaks_the_rules(&self, request: &Request) -> bool {
        let Request::Release(release) = request else {
            return false;
        };
        let holders = self.holders().await;
        release.requeue.is_some() && holders.iter().any(|holder| holder.claim == release.claim)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The verb is on its way: if it goes wrong, this is the last line.
    fn note(&mut self, what: &str) {
        let at = self.clock.unix_micros() % 1_000_000_000_000;
        let _ = write!(self.history, "\n  {:>12.3} {what}", at as f64 / 1e6);
    }

    fn now(&self) -> u64 {
        self.clock.unix_micros()
    }

    fn lease(&mut self) -> Duration {
        let at = self.random.below(LEASES.len() as u64);
        Duration::from_millis(LEASES[at as usize])
    }

    /// When a request, arriving late, does nothing. Some are late when they are sent.
    fn not_after(&mut self) -> Moment {
        let now = self.clock.now();
        let after = match self.random.below(100) {
            0..40 => return Moment::NEVER,
            40..43 => return now - Duration::from_nanos(1),
            43..58 => 0,
            58..70 => 28,
            70..80 => 1_400,
            80..90 => 7_000,
            _ => 70_000,
        };
        now + Duration::from_millis(after)
    }

    fn mode(&mut self) -> Mode {
        let any = self.random.below(10);
        let kind = match (self.taste, any) {
            // Mostly exclusive, readers and writers, permits, fair; or anything.
            (0, 0..9) => 0,
            (1, 0..5) => 1,
            (1, 5..8) => 2,
            (2, 0..7) => 3,
            (3, 0..8) => 4,
            (_, any) => any / 2,
        };
        match kind {
            1 if self.can.read_write => Mode::Read,
            2 if self.can.read_write => Mode::Write,
            3 if self.can.permits => Mode::Permit {
                limit: 1 + self.random.below(4) as u32,
                count: 1 + self.random.below(3) as u32,
            },
            4 if self.can.fair => Mode::Fair,
            _ => Mode::Exclusive,
        }
    }

    fn fresh(&mut self) -> Claim {
        let keeper = self.random.below(self.keepers.len() as u64) as usize;
        self.made += 1;
        let number = self.made;
        let labelled = self.random.chance(0.5);
        let claim = Claim::new(
            ClaimId {
                keeper: self.keepers[keeper],
                number,
            },
            self.name.clone(),
            self.mode(),
            self.lease(),
        )
        .with_reserve([1, 1, 1, 7, 60][self.random.below(5) as usize])
        .with_not_after(self.not_after())
        .with_label(labelled.then(|| Label::new(&format!("order {number}")).expect("a label")));
        self.claims.push(claim.clone());
        claim
    }

    /// Changes the last claim that was made.
    fn amend(&mut self, claim: &Claim) {
        let last = self.claims.len() - 1;
        self.claims[last] = claim.clone();
    }

    /// The holders, as the model has them.
    async fn holders(&self) -> Vec<Holder> {
        let info = self.model.inspect(&self.name).await;
        let info = info.expect("the model answers");
        info.map_or_else(Vec::new, |info| info.holders)
    }

    /// Mostly one that holds, else any of the last.
    async fn some_claim(&mut self) -> Option<Claim> {
        if self.claims.is_empty() {
            return None;
        }
        let holders = self.holders().await;
        let holder = self.random.below(holders.len() as u64) as usize;
        if let Some(holder) = holders.get(holder).filter(|_| self.random.chance(0.8)) {
            let mut claims = self.claims.iter();
            return claims.find(|claim| claim.id == holder.claim).cloned();
        }
        let recent = self.claims.len().min(RECENT);
        let at = self.claims.len() - 1 - self.random.below(recent as u64) as usize;
        self.claims.get(at).cloned()
    }

    async fn a_try(&mut self) -> Request {
        let mut claim = self.claim_to_try().await;
        claim.enqueue = self.can.queue && self.random.chance(0.6);
        Request::Try(claim)
    }

    async fn claim_to_try(&mut self) -> Claim {
        let again = self.random.chance(0.4);
        if again && let Some(claim) = self.some_claim().await {
            let not_after = self.not_after();
            return claim.with_not_after(not_after);
        }
        let holders = self.holders().await;
        let writer = holders.iter().find(|holder| holder.mode.is_exclusive());
        let writer = writer
            .filter(|_| self.can.read_write)
            .map(|holder| holder.claim);
        let mut claim = self.fresh();
        if let Some(writer) = writer.filter(|_| self.random.chance(0.15)) {
            // Only a reader may stand beside another hold.
            if self.random.chance(0.9) {
                claim.mode = Mode::Read;
            }
            claim.beside = Some(writer);
            if self.random.chance(0.9) {
                claim.id.keeper = writer.keeper;
            }
            self.amend(&claim);
        }
        claim
    }

    async fn a_release(&mut self) -> Option<Request> {
        let held = self.some_claim().await?;
        let requeue = match self.can.queue && self.random.chance(0.35) {
            true => {
                let mut next = self.fresh();
                next.enqueue = true;
                next.id.keeper = held.id.keeper;
                self.amend(&next);
                Some(next)
            }
            false => None,
        };
        Some(Request::Release(
            Release::new(self.name.clone(), held.id).with_requeue(requeue),
        ))
    }

    async fn some_renewals(&mut self) -> Option<Request> {
        let not_after = self.not_after();
        let mut renewals = Vec::new();
        for _ in 0..=self.random.below(3) {
            let claim = self.some_claim().await?.id;
            let lease = match self.random.chance(0.1) {
                true => Duration::ZERO,
                false => self.lease(),
            };
            renewals.push(Renewal::new(self.name.clone(), claim, lease, not_after));
        }
        Some(Request::Renew(renewals))
    }

    async fn a_break(&mut self) -> Request {
        let target = match self.random.below(4) {
            0 => {
                let claim = self.some_claim().await;
                claim.map_or(BreakTarget::All, |claim| BreakTarget::Claim(claim.id))
            }
            1 => {
                let holders = self.holders().await;
                let mut tokens = holders.iter().filter_map(|it| it.token);
                let token = tokens.find(|token| self.tokens.of_store(token.get()).is_some());
                token.map_or(BreakTarget::All, BreakTarget::Token)
            }
            _ => BreakTarget::All,
        };
        Request::Break(Break::new(
            self.name.clone(),
            target,
            format!("after {} verbs", self.verbs),
            self.not_after(),
        ))
    }

    fn a_latch(&mut self) -> Request {
        let op = match self.random.below(8) {
            0..3 => LatchOp::CountDown,
            3..6 => LatchOp::Set(self.random.below(4) as u32),
            6 => LatchOp::Open,
            _ => LatchOp::Read,
        };
        self.latch_request(op)
    }

    fn latch_request(&mut self, op: LatchOp) -> Request {
        Request::Latch(LatchRequest::new(
            self.name.clone(),
            ClaimId {
                keeper: self.keepers[0],
                number: self.random.below(6),
            },
            op,
            self.not_after(),
        ))
    }

    /// How claims are written down: which keeper's, and its number.
    fn short(&self, id: ClaimId) -> String {
        let keeper = self.keepers.iter().position(|keeper| *keeper == id.keeper);
        format!("{}.{}", keeper.map_or(9, |keeper| keeper + 1), id.number)
    }

    fn describe_claim(&self, claim: &Claim) -> String {
        let queues = if claim.enqueue { " queued" } else { "" };
        let beside = claim
            .beside
            .map(|beside| format!(" beside {}", self.short(beside)));
        let label = claim.label.as_ref().map_or("", |_| ", labelled");
        format!(
            "{} ({}, {:?}, {} tokens{label}){}{queues}",
            self.short(claim.id),
            claim.mode,
            claim.lease,
            claim.reserve,
            beside.unwrap_or_default(),
        )
    }

    fn describe(&self, request: &Request) -> String {
        let what = match request {
            Request::Try(claim) => format!("try {}", self.describe_claim(claim)),
            Request::Withdraw(claim) => format!("withdraw {}", self.short(*claim)),
            Request::Renew(renewals) => {
                let asked = renewals.iter();
                let asked = asked.map(|one| format!(" {} {:?}", self.short(one.claim), one.lease));
                format!("renew{}", asked.collect::<String>())
            }
            Request::Release(release) => {
                let next = release.requeue.as_ref();
                let next = next.map(|next| format!(", next {}", self.describe_claim(next)));
                let claim = self.short(release.claim);
                format!("release {claim}{}", next.unwrap_or_default())
            }
            Request::Break(request) => format!("break {:?}", request.target),
            Request::Latch(request) => format!("latch {:?} by {}", request.op, request.id.number),
        };
        let late = self.clock.now() > request.not_after();
        format!("{what}{}", if late { " late" } else { "" })
    }

    /// The store of the keeper that sends it.
    fn store_of(&mut self, request: &Request) -> Arc<dyn Store> {
        let Some(sender) = request.sender() else {
            return self.any_store();
        };
        let mut keepers = self.keepers.iter();
        let keeper = keepers.position(|keeper| *keeper == sender.keeper);
        self.stores.at(keeper.unwrap_or(0))
    }

    fn any_store(&mut self) -> Arc<dyn Store> {
        let at = self.random.below(self.stores.len() as u64) as usize;
        self.stores.at(at)
    }

    /// The request as the store gets it: with its own times and tokens.
    fn for_store(&self, request: &Request) -> Request {
        let mut request = request
            .clone()
            .timed(|at| self.stores.moment(&self.clock, at));
        if let Request::Break(Break { target, .. }) = &mut request
            && let BreakTarget::Token(token) = target
            && let Some(of_store) = self.tokens.of_store(token.get())
        {
            *target = BreakTarget::Token(lockkeeper::Token::new(of_store));
        }
        request
    }

    /// A request arrives at the store and at the model, whose answers have to be the same.
    async fn deliver(&mut self, request: Request, how: &str) -> Result<(), String> {
        self.verbs += 1;
        self.note(&format!("{}{how}", self.describe(&request)));
        let store = self.store_of(&request);
        let store = self.for_store(&request).on(&*store, &self.name).await;
        let model = request.on(&*self.model, &self.name).await;
        let (model, store) = answers(model, store)?;
        let _ = write!(self.history, ": {}", outcome(&model));
        let now = self.now();
        match (model, store) {
            (Reply::Tried(model), Reply::Tried(store)) => {
                self.count(match model {
                    Attempt::Granted(_) => "granted",
                    Attempt::Busy { .. } => "busy",
                    Attempt::TooLate => "tried too late",
                    _ => "tried with an outcome of a later version",
                });
                self.tokens.tried(model, store, now)
            }
            (Reply::Renewed(model), Reply::Renewed(store)) => {
                self.count("renewals");
                same(model, store)
            }
            (Reply::Released(model), Reply::Released(store)) => {
                self.count(match model {
                    Released {
                        regrant: Some(_), ..
                    } => "released and granted to the next of the keeper",
                    Released { was_held: true, .. } => "released",
                    _ => "released and not held",
                });
                self.tokens.released(model, store, now)
            }
            (Reply::Broke(model), Reply::Broke(store)) => {
                self.count("breaks");
                self.tokens.broken(model, store)
            }
            (Reply::Latched(model), Reply::Latched(store)) => same(model, store),
            (Reply::Withdrawn, Reply::Withdrawn) => Ok(()),
            (model, store) => Err(format!("answers to different verbs: {model:?}, {store:?}")),
        }
    }

    /// Ends what time has ended, by a verb that has to see all of it.
    async fn look(&mut self) -> Result<(), String> {
        if self.random.chance(0.5) {
            return self.inspect().await;
        }
        let request = self.a_try().await;
        self.deliver(request.timed(|_| Moment::NEVER), "").await?;
        // A claim that holds is told so by a short way, which leaves the queue to others.
        self.inspect().await
    }

    async fn inspect(&mut self) -> Result<(), String> {
        self.verbs += 1;
        self.note("inspect");
        let store = self.any_store().inspect(&self.name).await;
        let (model, store) = answers(self.model.inspect(&self.name).await, store)?;
        if let Some(info) = &model {
            let held = info.holders.iter();
            let held = held.map(|hold| format!(" {} {:?}", self.short(hold.claim), hold.remaining));
            let held: String = held.collect();
            let _ = write!(self.history, ":{held}, {} wait", info.waiters);
        }
        self.tokens.info(model, store)
    }

    /// The process of a keeper has died: the model lets go of all that it held and waited for. Nothing of it arrives any more, and
    /// another keeper takes its place.
    async fn bury(&mut self, keeper: usize) -> Result<(), String> {
        let dead = self.keepers[keeper];
        self.note(&format!("the process of keeper {} dies", keeper + 1));
        let of_dead = |claim: ClaimId| claim.keeper == dead;
        let info = self.model.inspect(&self.name).await;
        let (mut holders, mut queue) = match info.expect("the model answers") {
            Some(info) => (info.holders, info.queue),
            None => (Vec::new(), Vec::new()),
        };
        queue.retain(|waiter| of_dead(waiter.claim));
        holders.retain(|holder| of_dead(holder.claim));
        self.counts
            .entry("holds and waiters that died")
            .and_modify(|it| *it += holders.len() + queue.len())
            .or_insert(holders.len() + queue.len());
        // From the end of the queue on: so none of the dead is granted on the way.
        let waiters = queue.iter().rev().map(|waiter| waiter.claim);
        for claim in waiters.chain(holders.iter().map(|holder| holder.claim)) {
            let left = self.model.withdraw(&self.name, claim).await;
            left.expect("the model answers");
        }
        self.under_way
            .retain(|request| !request.sender().is_some_and(of_dead));
        self.claims.retain(|claim| !of_dead(claim.id));
        self.keepers[keeper] = KeeperId::new();
        self.inspect().await
    }

    async fn end(&mut self) -> Result<(), String> {
        while let Some(claim) = self.in_use().await {
            self.deliver(Request::Withdraw(claim), "").await?;
        }
        if self.can.latches {
            let open = self.latch_request(LatchOp::Open);
            self.deliver(open.timed(|_| Moment::NEVER), "").await?;
        }
        self.inspect().await
    }

    /// A claim that holds or waits.
    async fn in_use(&self) -> Option<ClaimId> {
        let info = self.model.inspect(&self.name).await;
        let info = info.expect("the model answers")?;
        let waiter = info.queue.last().map(|waiter| waiter.claim);
        waiter.or_else(|| info.holders.first().map(|holder| holder.claim))
    }
}

/// Both answers. A failure is a difference, as the model never fails.
fn answers<T>(
    model: Result<T, lockkeeper::Error>,
    store: Result<T, lockkeeper::Error>,
) -> Result<(T, T), String> {
    match (model, store) {
        (Ok(model), Ok(store)) => Ok((model, store)),
        (Ok(_), Err(error)) => Err(format!("the store fails: {error}")),
        (Err(error), _) => Err(format!("the model fails: {error}")),
    }
}

fn outcome(reply: &Reply) -> String {
    match reply {
        Reply::Tried(Attempt::Granted(grant)) => format!("granted {}", grant.token),
        Reply::Tried(Attempt::Busy { free_in }) => format!("busy {free_in:?}"),
        Reply::Tried(attempt) => format!("{attempt:?}"),
        Reply::Withdrawn => "done".into(),
        Reply::Renewed(renewed) => format!("{renewed:?}"),
        Reply::Released(Released {
            was_held, regrant, ..
        }) => format!("{was_held} {regrant:?}"),
        Reply::Broke(BreakOutcome::Ended(ended)) => format!("{} ended", ended.len()),
        Reply::Broke(BreakOutcome::NotHeld(_)) => "not held".into(),
        Reply::Broke(outcome) => format!("{outcome:?}"),
        Reply::Latched(state) => format!("{state:?}"),
    }
}
