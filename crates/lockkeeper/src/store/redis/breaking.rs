//! An administrator's release, in time or not at all.

use ::redis::Cmd;

use super::answer::Reply;
use super::fault::Fault;
use super::scripts::Script;
use super::way::Way;
use crate::Error;
use crate::clock::Moment;
use crate::store::{Break, BreakOutcome, Holder};

impl Way<'_> {
    /// Breaks by this script: `write` adds keys and arguments, the number of keys first, and takes the server time past which
    /// the request is void. A request without an answer is void before that is reported: it has been done by then, or never
    /// is.
    pub(super) async fn break_lock(
        &self,
        script: &Script,
        request: &Break,
        write: impl Fn(&mut Cmd, u64),
    ) -> Result<Broke, Error> {
        // Twice at most: the second time with a better idea of the server's clock.
        for last in [false, true] {
            let sent = Moment::now();
            let void = request
                .not_after
                .min(sent + self.settings().response_timeout);
            let not_after = self.clock().at(void);
            let answer = self.run(script, |cmd| write(cmd, not_after)).await;
            if let Err(Fault::Lost(_)) = answer {
                let never = std::future::pending::<()>();
                self.shared().within(void.remaining(), never).await;
            }
            let broke = Broke(Reply::new(answer.map_err(Fault::of_change)?)?);
            self.clock().saw(broke.0.number(1)?, sent, Moment::now());
            if last || !broke.is_late()? || Moment::now() > request.not_after {
                return Ok(broke);
            }
        }
        unreachable!("the last round returns")
    }
}

/// What a script says of a break: `{what became of it, us, …}`.
#[derive(Debug)]
pub(in crate::store) struct Broke(pub Reply);

impl Broke {
    pub fn is_late(&self) -> Result<bool, Error> {
        Ok(self.0.number(0)? == 2)
    }

    /// Whether anything was ended, or could have been.
    pub fn is_done(&self) -> Result<bool, Error> {
        Ok(self.0.number(0)? == 1)
    }

    /// `holders` reads who held, or holds.
    pub fn outcome(
        &self,
        holders: impl FnOnce(&Reply) -> Result<Vec<Holder>, Error>,
    ) -> Result<BreakOutcome, Error> {
        Ok(match self.0.number(0)? {
            1 => BreakOutcome::Ended(holders(&self.0)?),
            0 => BreakOutcome::NotHeld(holders(&self.0)?),
            _ => BreakOutcome::TooLate,
        })
    }
}
