//! Stores with one mistake each: a lock over them is broken, and the checker has to say so.

use std::sync::Arc;

use lockkeeper::Error;
use lockkeeper::store::{
    Answer, Attempt, Claim, ClaimId, LatchOp, LatchRequest, LatchState, Mode, Release, Released,
    Store,
};

use crate::checker::Rule;

/// What a store gets wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// A writer is let in beside readers, and beside other writers.
    WriterBesideReaders,
    /// A semaphore has twice the permits that were named.
    PermitTooMany,
    /// A count-down whose request is repeated counts again.
    LatchCountsTwice,
}

/// Each of them, its name, and the rule that a history breaks.
pub const SABOTAGES: &[(Sabotage, &str, Rule)] = &[
    (
        Sabotage::WriterBesideReaders,
        "writer-beside-readers",
        Rule::S1,
    ),
    (Sabotage::PermitTooMany, "permit-too-many", Rule::S1),
    (
        Sabotage::LatchCountsTwice,
        "latch-counts-twice",
        Rule::Latch,
    ),
];

impl Sabotage {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Sabotage> {
        let mut all = SABOTAGES.iter();
        all.find(|(_, of, _)| *of == name).map(|(one, ..)| *one)
    }

    fn mode(self, mode: Mode) -> Mode {
        match (self, mode) {
            (Sabotage::WriterBesideReaders, Mode::Write) => Mode::Read,
            (Sabotage::PermitTooMany, Mode::Permit { limit, count }) => Mode::Permit {
                limit: limit * 2,
                count,
            },
            (_, mode) => mode,
        }
    }

    fn claim(self, claim: &Claim) -> Claim {
        claim.clone().with_mode(self.mode(claim.mode))
    }
}

/// A store that gets one thing wrong.
#[derive(Debug)]
pub struct Sabotaged {
    inner: Arc<dyn Store>,
    sabotage: Sabotage,
}

impl Sabotaged {
    /// Breaks a good store.
    pub fn new(inner: Arc<dyn Store>, sabotage: Sabotage) -> Arc<Sabotaged> {
        Arc::new(Sabotaged { inner, sabotage })
    }

    async fn take(&self, claim: Claim) -> Result<Attempt, Error> {
        self.inner.try_acquire(&claim).await
    }

    async fn let_go(&self, release: Release) -> Result<Released, Error> {
        self.inner.release(&release).await
    }

    async fn count(&self, request: &LatchRequest) -> Result<LatchState, Error> {
        let twice = self.sabotage == Sabotage::LatchCountsTwice;
        if twice && request.op == LatchOp::CountDown {
            // By another number, as a client does that thinks nothing of a second try.
            let id = ClaimId {
                number: request.id.number | 1 << 62,
                ..request.id
            };
            let again = LatchRequest::new(request.name.clone(), id, request.op, request.not_after);
            self.inner.latch(&again).await?;
        }
        self.inner.latch(request).await
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for Sabotaged {
    lockkeeper::forward!(inner: capabilities facts withdraw renew subscribe inspect list break_lock);
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(self.take(self.sabotage.claim(claim)))
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        let requeue = release.requeue.as_ref();
        Box::pin(
            self.let_go(
                release
                    .clone()
                    .with_requeue(requeue.map(|claim| self.sabotage.claim(claim))),
            ),
        )
    }
    fn latch<'a>(&'a self, request: &'a LatchRequest) -> Answer<'a, LatchState> {
        Box::pin(self.count(request))
    }
}
