//! The verbs of one name, by chance, and what was asked before.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::memory::MemoryStore;
use lockkeeper::store::*;
use lockkeeper::{Label, Name};

use super::agree::{Tokens, same};
use crate::random::Random;

/// Leases in ms; none is a multiple of the clock's [`STEP`](super::STEP).
const LEASES: [u64; 5] = [51, 501, 3_004, 30_001, 120_003];
/// Of the claims that a name has had, how many are asked about again.
const RECENT: usize = 10;

/// What a sequence is to do next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn {
    /// So many verbs.
    Verbs(u64),
    /// The clock has moved: end what time has ended.
    Look,
    /// Let go of everything.
    End,
}

#[derive(Debug)]
pub(super) struct Sequence {
    name: Name,
    stores: Vec<Arc<dyn Store>>,
    can: Capabilities,
    model: Arc<MemoryStore>,
    clock: Clock,
    random: Random,
    /// How this name is mostly used: some ways through a store are taken only where all claims are alike.
    taste: u64,
    keepers: Vec<KeeperId>,
    claims: Vec<Claim>,
    tokens: Tokens,
    verbs: usize,
    history: String,
}

impl Sequence {
    pub fn new(
        name: &str,
        stores: Vec<Arc<dyn Store>>,
        model: Arc<MemoryStore>,
        clock: Clock,
        mut random: Random,
    ) -> Sequence {
        Sequence {
            name: Name::new(name).expect("a name"),
            can: stores[0].capabilities(),
            keepers: stores.iter().map(|_| KeeperId::new()).collect(),
            stores,
            model,
            clock,
            taste: random.below(5),
            random,
            claims: Vec::new(),
            tokens: Tokens::default(),
            verbs: 0,
            history: String::new(),
        }
    }

    pub fn verbs(&self) -> usize {
        self.verbs
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
            Turn::Look => self.inspect().await,
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
        let late = self.random.chance(0.03);
        match self.random.below(100) {
            0..42 => self.try_acquire(late).await,
            42..64 => self.release(late).await,
            64..72 => self.withdraw().await,
            72..82 => self.renew(late).await,
            82..84 => self.break_lock(late).await,
            84..91 => self.inspect().await,
            _ if self.can.latches => self.latch(late).await,
            _ => self.inspect().await,
        }
    }

    /// The verb is on its way: if it goes wrong, this is the last line.
    fn note(&mut self, what: &str) {
        self.verbs += 1;
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
        let number = self.claims.len() as u64 + 1;
        let label = self.random.chance(0.3).then(|| format!("claim {number}"));
        let claim = Claim {
            id: ClaimId {
                keeper: self.keepers[keeper],
                number,
            },
            name: self.name.clone(),
            mode: self.mode(),
            lease: self.lease(),
            reserve: [1, 1, 1, 7, 60][self.random.below(5) as usize],
            not_after: Moment::NEVER,
            enqueue: false,
            beside: None,
            label: label.and_then(|text| Label::shortened(&text)),
        };
        self.claims.push(claim.clone());
        claim
    }

    /// The holders, as the model has them.
    async fn holders(&self) -> Vec<Holder> {
        let info = self
            .model
            .inspect(&self.name)
            .await
            .expect("the model answers");
        info.map_or_else(Vec::new, |info| info.holders)
    }

    /// Mostly one that holds, else any of the last.
    async fn some_claim(&mut self) -> Option<Claim> {
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

    async fn claim_to_try(&mut self) -> Claim {
        let again = !self.claims.is_empty() && self.random.chance(0.4);
        if again && let Some(claim) = self.some_claim().await {
            return claim;
        }
        let holders = self.holders().await;
        let writer = holders.iter().find(|holder| holder.mode.is_exclusive());
        let writer = writer
            .filter(|_| self.can.read_write)
            .map(|holder| holder.claim);
        let mut claim = self.fresh();
        if let Some(writer) = writer.filter(|_| self.random.chance(0.15)) {
            claim.mode = Mode::Read;
            claim.beside = Some(writer);
            if self.random.chance(0.9) {
                claim.id.keeper = writer.keeper;
            }
            let last = self.claims.len() - 1;
            self.claims[last] = claim.clone();
        }
        claim
    }

    /// How claims are written down: which keeper's, and its number.
    fn short(&self, id: ClaimId) -> String {
        let keeper = self.keepers.iter().position(|keeper| *keeper == id.keeper);
        format!("{}.{}", keeper.map_or(9, |keeper| keeper + 1), id.number)
    }

    fn describe(&self, claim: &Claim) -> String {
        let late = if claim.not_after == Moment::BOOT {
            " late"
        } else {
            ""
        };
        let queues = if claim.enqueue { " queued" } else { "" };
        let beside = claim
            .beside
            .map(|beside| format!(" beside {}", self.short(beside)));
        let label = claim.label.as_ref().map_or("", |_| ", labelled");
        format!(
            "{} ({}, {:?}, {} tokens{label}){}{queues}{late}",
            self.short(claim.id),
            claim.mode,
            claim.lease,
            claim.reserve,
            beside.unwrap_or_default(),
        )
    }

    /// The store of the keeper whose claim it is.
    fn store(&self, id: ClaimId) -> Arc<dyn Store> {
        let keeper = self.keepers.iter().position(|keeper| *keeper == id.keeper);
        self.stores[keeper.unwrap_or(0)].clone()
    }

    fn any_store(&mut self) -> Arc<dyn Store> {
        let at = self.random.below(self.stores.len() as u64) as usize;
        self.stores[at].clone()
    }

    async fn try_acquire(&mut self, late: bool) -> Result<(), String> {
        let mut claim = self.claim_to_try().await;
        claim.enqueue = self.can.queue && self.random.chance(0.6);
        if late {
            // Past, on every clock.
            claim.not_after = Moment::BOOT;
        }
        self.note(&format!("try {}", self.describe(&claim)));
        let store = self.store(claim.id).try_acquire(&claim).await;
        let model = self.model.try_acquire(&claim).await;
        let (model, store) = answers(model, store)?;
        let _ = write!(self.history, ": {}", outcome(&model));
        self.tokens.tried(model, store, self.now())
    }

    async fn release(&mut self, late: bool) -> Result<(), String> {
        let Some(held) = self.claim_or_none().await else {
            return Ok(());
        };
        let requeue = match self.can.queue && self.random.chance(0.35) {
            true => Some(Claim {
                enqueue: true,
                not_after: if late { Moment::BOOT } else { Moment::NEVER },
                ..self.fresh()
            }),
            false => None,
        };
        let next = requeue.as_ref().map(|next| self.describe(next));
        let next = next.map_or_else(String::new, |next| format!(", next {next}"));
        self.note(&format!("release {}{next}", self.short(held.id)));
        let release = Release {
            name: self.name.clone(),
            claim: held.id,
            requeue,
        };
        let store = self.store(held.id).release(&release).await;
        let (model, store) = answers(self.model.release(&release).await, store)?;
        let _ = write!(self.history, ": {} {:?}", model.was_held, model.regrant);
        self.tokens.released(model, store, self.now())
    }

    async fn claim_or_none(&mut self) -> Option<Claim> {
        match self.claims.is_empty() {
            true => None,
            false => self.some_claim().await,
        }
    }

    async fn withdraw(&mut self) -> Result<(), String> {
        match self.claim_or_none().await {
            Some(claim) => self.withdraw_claim(claim.id).await,
            None => Ok(()),
        }
    }

    async fn withdraw_claim(&mut self, id: ClaimId) -> Result<(), String> {
        self.note(&format!("withdraw {}", self.short(id)));
        let store = self.store(id).withdraw(&self.name, id).await;
        answers(self.model.withdraw(&self.name, id).await, store).map(|_| ())
    }

    async fn renew(&mut self, late: bool) -> Result<(), String> {
        let mut renewals = Vec::new();
        for _ in 0..=self.random.below(3) {
            let Some(claim) = self.claim_or_none().await else {
                return Ok(());
            };
            let lease = match self.random.chance(0.1) {
                true => Duration::ZERO,
                false => self.lease(),
            };
            renewals.push(Renewal {
                name: self.name.clone(),
                claim: claim.id,
                lease,
                not_after: if late { Moment::BOOT } else { Moment::NEVER },
            });
        }
        let asked = renewals.iter();
        let asked = asked.map(|one| format!(" {} {:?}", self.short(one.claim), one.lease));
        let late = if late { " late" } else { "" };
        self.note(&format!("renew{}{late}", asked.collect::<String>()));
        let store = self.any_store().renew(&renewals).await;
        let (model, store) = answers(self.model.renew(&renewals).await, store)?;
        let _ = write!(self.history, ": {model:?}");
        same(model, store)
    }

    async fn break_lock(&mut self, late: bool) -> Result<(), String> {
        let named = match self.random.chance(0.5) {
            true => self.claim_or_none().await,
            false => None,
        };
        let target = named.map_or(BreakTarget::All, |claim| BreakTarget::Claim(claim.id));
        let late_word = if late { " late" } else { "" };
        self.note(&format!("break {target:?}{late_word}"));
        let request = Break {
            name: self.name.clone(),
            target,
            reason: format!("after {} verbs", self.verbs),
            not_after: if late { Moment::BOOT } else { Moment::NEVER },
        };
        let store = self.any_store().break_lock(&request).await;
        let (model, store) = answers(self.model.break_lock(&request).await, store)?;
        self.tokens.broken(model, store)
    }

    async fn inspect(&mut self) -> Result<(), String> {
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

    async fn latch(&mut self, late: bool) -> Result<(), String> {
        let op = match self.random.below(8) {
            0..3 => LatchOp::CountDown,
            3..6 => LatchOp::Set(self.random.below(4) as u32),
            6 => LatchOp::Open,
            _ => LatchOp::Read,
        };
        self.latch_op(op, late).await
    }

    async fn latch_op(&mut self, op: LatchOp, late: bool) -> Result<(), String> {
        let request = LatchRequest {
            name: self.name.clone(),
            id: ClaimId {
                keeper: self.keepers[0],
                number: self.random.below(6),
            },
            not_after: if late { Moment::BOOT } else { Moment::NEVER },
            op,
        };
        let late = if late { " late" } else { "" };
        self.note(&format!("latch {op:?} by {}{late}", request.id.number));
        let store = self.any_store().latch(&request).await;
        let (model, store) = answers(self.model.latch(&request).await, store)?;
        let _ = write!(self.history, ": {model:?}");
        same(model, store)
    }

    async fn end(&mut self) -> Result<(), String> {
        for at in 0..self.claims.len() {
            self.withdraw_claim(self.claims[at].id).await?;
        }
        if self.can.latches {
            self.latch_op(LatchOp::Open, false).await?;
        }
        self.inspect().await
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

fn outcome(attempt: &Attempt) -> String {
    match attempt {
        Attempt::Granted(grant) => format!("granted {}", grant.token),
        Attempt::Busy { free_in } => format!("busy {free_in:?}"),
        Attempt::TooLate => "too late".into(),
    }
}
