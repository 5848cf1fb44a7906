//! [`Latch`]: wait until a number of things have happened.

use std::time::Duration;

use crate::clock::Moment;
use crate::engine::availability::REQUEST_WINDOW;
use crate::engine::core::Core;
use crate::engine::handle::Handle;
use crate::store::{Interest, LatchOp, LatchRequest, LatchState, Subscription};
use crate::{Error, Name};

/// The longest sleep of a waiter: a lost hint costs no more.
const MAX_SLEEP: Duration = Duration::from_millis(750);

/// A count-down latch: closed while its count is above 0, open otherwise.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// # let keeper = lockkeeper::Lockkeeper::connect("memory:latch-example").await?;
/// let ready = keeper.latch("workers-ready")?;
/// assert!(ready.set(2).await?);
/// assert_eq!(ready.count_down().await?, 1);
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;                                   // open: goes through at once
/// # Ok::<(), lockkeeper::Error>(()) }).unwrap();
/// ```
///
/// # Guarantees
/// Each count-down counts once, however often its request reaches the store.
///
/// # What this does not protect against
/// A process that dies before it counts down: a latch has no lease. [`open`](Latch::open) ends the wait.
#[derive(Clone, Debug)]
pub struct Latch {
    core: Handle<Core>,
    name: Name,
}

impl Latch {
    pub(crate) fn new(core: Handle<Core>, name: Name) -> Latch {
        Latch { core, name }
    }

    /// The name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Closes an open latch with this count. False if it was closed already: then nothing changed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for 0, or a store error.
    pub async fn set(&self, count: u32) -> Result<bool, Error> {
        if count == 0 {
            return Err(Error::InvalidArgument {
                what: "count",
                reason: "a latch of 0 is open; set at least 1".into(),
            });
        }
        Ok(self.ask(LatchOp::Set(count)).await?.changed)
    }

    /// Counts down by one and returns the count that is left. An open latch stays open.
    ///
    /// # Errors
    /// A store error. After [`Error::OutcomeUnknown`] it may or may not have counted.
    ///
    /// # Cancel safety
    /// Dropping the future counts once or not at all.
    pub async fn count_down(&self) -> Result<u32, Error> {
        Ok(self.ask(LatchOp::CountDown).await?.count)
    }

    /// The count.
    ///
    /// # Errors
    /// A store error.
    pub async fn count(&self) -> Result<u32, Error> {
        Ok(self.ask(LatchOp::Read).await?.count)
    }

    /// Opens the latch, whatever its count. False if it was open.
    ///
    /// # Errors
    /// A store error.
    pub async fn open(&self) -> Result<bool, Error> {
        Ok(self.ask(LatchOp::Open).await?.changed)
    }

    /// Waits until the latch is open.
    ///
    /// # Errors
    /// A store error; one that may pass is reported once it has lasted as long as the keeper's lease, or until the end of
    /// the wait.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_until(Moment::NEVER).await.map(|_| ())
    }

    /// Waits until the latch is open, at most `timeout`; false if it stayed closed until then.
    ///
    /// # Errors
    /// As [`wait`](Latch::wait).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_within(&self, timeout: Duration) -> Result<bool, Error> {
        self.wait_until(Moment::now() + timeout).await
    }

    async fn wait_until(&self, deadline: Moment) -> Result<bool, Error> {
        self.core.process.check()?;
        // Since when the store fails, and its last error.
        let mut failure: Option<(Moment, Error)> = None;
        let mut subscription = None;
        loop {
            let count = tokio::select! {
                biased;
                count = self.subscribed_count(&mut subscription) => count,
                () = self.core.background.sleep_until(deadline) => return timed_out(failure),
            };
            let now = Moment::now();
            match count {
                Ok(0) => return Ok(true),
                Ok(_) => failure = None,
                Err(error) => {
                    let since = failure.map_or(now, |(since, _)| since);
                    if !error.is_transient() || now.since(since) >= self.core.lease {
                        return Err(error);
                    }
                    // A count that was only read leaves nothing in doubt.
                    failure = Some((since, error.not_in_doubt()));
                }
            }
            if now >= deadline {
                return timed_out(failure);
            }
            let hint = async {
                match &subscription {
                    Some(running) => running.hint().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = hint => {}
                () = self.core.closed() => return Err(Error::Closed),
                () = self.core.background.sleep_until(deadline.min(now + MAX_SLEEP)) => {}
            }
        }
    }

    /// The count. It is read after the subscription, so that no opening in between is missed.
    async fn subscribed_count(
        &self,
        subscription: &mut Option<Subscription>,
    ) -> Result<u32, Error> {
        if subscription.is_none() {
            let interest = Interest::Latch(self.name.clone());
            let running = self.core.store().subscribe(interest);
            *subscription = Some(self.core.bounded(running).await?);
        }
        self.count().await
    }

    async fn ask(&self, op: LatchOp) -> Result<LatchState, Error> {
        self.core.check_usable()?;
        let request = LatchRequest {
            name: self.name.clone(),
            id: self.core.new_claim_id(),
            not_after: Moment::now() + REQUEST_WINDOW,
            op,
        };
        let answer = self.core.bounded(self.core.store().latch(&request)).await;
        match (&answer, request.op) {
            // A store that can be read may still refuse to write.
            (Ok(_), LatchOp::Read) => {}
            _ => self.core.shared.availability.record(&self.name, &answer),
        }
        answer
    }
}

/// The limit was reached: the latch was closed, as far as is known.
fn timed_out(failure: Option<(Moment, Error)>) -> Result<bool, Error> {
    failure.map_or(Ok(false), |(_, error)| Err(error))
}
