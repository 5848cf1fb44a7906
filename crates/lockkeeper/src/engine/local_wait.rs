//! One task's wait in a [`LocalQueue`](super::local_queue::LocalQueue).

use std::sync::Arc;

use super::arbiter::Arbiter;
use super::local_queue::{Receiver, Turn};
use super::raw_guard::RawGuard;
use super::request::WaitLimit;
use super::sharing::Sharing;
use super::wait_report::WaitReport;
use crate::Error;
use crate::owner::OwnerId;

/// A task's place in a queue. Dropped, it is given up; a turn that has come by then ends.
pub(super) struct LocalWait<'a> {
    arbiter: &'a Arc<Arbiter>,
    sharing: Sharing,
    owner: Option<OwnerId>,
    number: u64,
    receiver: Receiver,
    /// The turn has come, or an error.
    is_over: bool,
}

impl<'a> LocalWait<'a> {
    pub fn new(
        arbiter: &'a Arc<Arbiter>,
        sharing: Sharing,
        owner: Option<OwnerId>,
        number: u64,
        receiver: Receiver,
    ) -> LocalWait<'a> {
        LocalWait {
            arbiter,
            sharing,
            owner,
            number,
            receiver,
            is_over: false,
        }
    }

    /// Waits for the turn; `None` if the limit was reached before.
    pub async fn turn(
        mut self,
        limit: WaitLimit,
        report: &WaitReport<'_>,
    ) -> Result<Option<RawGuard>, Error> {
        report.begins();
        let core = &self.arbiter.core;
        let deadline = async {
            match limit {
                WaitLimit::Forever => std::future::pending().await,
                WaitLimit::Until(moment) => core.background.sleep_until(moment).await,
                WaitLimit::NoWait => {}
            }
        };
        tokio::select! {
            biased;
            turn = &mut self.receiver => {
                self.is_over = true;
                match turn {
                    Ok(turn) => Ok(Some(self.guard(turn?))),
                    Err(_) => Err(Error::Closed),
                }
            }
            () = deadline => {
                // Read before the task leaves: once no task waits, the queue forgets the reason.
                let why = self.arbiter.queue(self.sharing).timeout_error();
                let turn = self.stop();
                self.is_over = true;
                match turn {
                    Some(turn) => turn.map(Some),
                    None => why.map_or(Ok(None), Err),
                }
            }
        }
    }

    fn guard(&self, turn: Turn) -> RawGuard {
        RawGuard::new(self.arbiter, turn, self.owner, Some(self.sharing))
    }

    /// Leaves the queue. Returns a turn or an error that has come by now.
    fn stop(&mut self) -> Option<Result<RawGuard, Error>> {
        self.arbiter.queue(self.sharing).stop_waiting(self.number);
        // Closed first: a turn that is sent from now on is refused, and goes to another task.
        self.receiver.close();
        let turn = self.receiver.try_recv().ok()?;
        Some(turn.map(|turn| self.guard(turn)))
    }
}

impl Drop for LocalWait<'_> {
    fn drop(&mut self) {
        if !self.is_over && !self.arbiter.core.process.is_fork() {
            drop(self.stop());
        }
    }
}
