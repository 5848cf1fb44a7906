//! Locks that are wrong in one way each. A harness that never saw one of them red proves nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lockkeeper::store::*;
use lockkeeper::{Name, Token};
use lockkeeper_testkit::checker::Rule;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// One claim id for every hold of a process.
    ReusedId,
    /// One claim id for all processes.
    SharedId,
    /// The lease counts from when the answer came.
    DeadlineFromReply,
    /// The holder believes on until the store tells it otherwise.
    IgnoresDeadline,
    /// Renewing what has expired takes the lock again, silently.
    RenewalRecreates,
    /// Renewing prolongs whatever hold there is.
    RenewalUnchecked,
    /// A release frees the lock, without a look at the holder.
    ReleaseUnchecked,
    /// Tokens start over when the lock was free.
    TokensRestart,
    /// A request takes effect however late it arrives.
    NoNotAfter,
}

impl Bug {
    /// All of them, each with a rule that shows it.
    pub const ALL: &[(Bug, Rule)] = &[
        (Bug::ReusedId, Rule::S1),
        (Bug::SharedId, Rule::S1),
        (Bug::DeadlineFromReply, Rule::S1),
        (Bug::IgnoresDeadline, Rule::S1),
        (Bug::RenewalRecreates, Rule::S1),
        (Bug::RenewalUnchecked, Rule::S1),
        (Bug::ReleaseUnchecked, Rule::S1),
        (Bug::TokensRestart, Rule::S2),
        (Bug::NoNotAfter, Rule::L1),
    ];
}

/// The memory store with a bug in it; bugs of clients leave it as it is.
#[derive(Debug)]
pub struct BrokenStore {
    inner: Arc<dyn Store>,
    bug: Bug,
    /// What tokens of a name are counted from.
    restarted: Mutex<HashMap<Name, u64>>,
}

impl BrokenStore {
    pub fn new(inner: Arc<dyn Store>, bug: Bug) -> BrokenStore {
        BrokenStore {
            inner,
            bug,
            restarted: Mutex::default(),
        }
    }

    async fn holder(&self, name: &Name) -> Option<ClaimId> {
        let info = self.inner.inspect(name).await.ok()??;
        info.holders.first().map(|holder| holder.claim)
    }

    /// Tokens of a name that nobody holds are counted from 1 again.
    fn restart(&self, name: &Name, grant: Grant, was_free: bool) -> Grant {
        let mut restarted = self.restarted.lock().expect("not poisoned");
        let base = restarted.entry(name.clone()).or_default();
        if was_free {
            *base = grant.token.get() - 1;
        }
        Grant::new(Token::new(grant.token.get() - *base), grant.tokens)
    }

    async fn renew_one(&self, renewal: &Renewal) -> Result<Renewed, lockkeeper::Error> {
        let mut renewal = renewal.clone();
        if self.bug == Bug::RenewalUnchecked {
            let holder = self.holder(&renewal.name).await;
            renewal.claim = holder.unwrap_or(renewal.claim);
        }
        let answers = self.inner.renew(std::slice::from_ref(&renewal)).await?;
        if answers[0] == Renewed::Renewed || self.bug != Bug::RenewalRecreates {
            return Ok(answers[0]);
        }
        let claim = Claim::new(renewal.claim, renewal.name, Mode::Exclusive, renewal.lease);
        match self.inner.try_acquire(&claim).await? {
            Attempt::Granted(_) => Ok(Renewed::Renewed),
            _ => Ok(Renewed::NotHeld),
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for BrokenStore {
    lockkeeper::forward!(inner: capabilities facts withdraw subscribe inspect list break_lock latch);
    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
        Box::pin(async move {
            let was_free = self.holder(&claim.name).await.is_none();
            let attempt = self.inner.try_acquire(claim).await?;
            match attempt {
                Attempt::Granted(grant) if self.bug == Bug::TokensRestart => {
                    Ok(Attempt::Granted(self.restart(&claim.name, grant, was_free)))
                }
                other => Ok(other),
            }
        })
    }
    fn renew<'a>(&'a self, renewals: &'a [Renewal]) -> Answer<'a, Vec<Renewed>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for renewal in renewals {
                answers.push(self.renew_one(renewal).await?);
            }
            Ok(answers)
        })
    }
    fn release<'a>(&'a self, release: &'a Release) -> Answer<'a, Released> {
        Box::pin(async move {
            let mut release = release.clone();
            if self.bug == Bug::ReleaseUnchecked {
                let holder = self.holder(&release.name).await;
                release.claim = holder.unwrap_or(release.claim);
            }
            self.inner.release(&release).await
        })
    }
}
