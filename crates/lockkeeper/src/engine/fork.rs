//! A process that was forked has copies of its parent's handles and none of its parent's threads. There every verb is refused.

use rustix::process::{Pid, getpid};

use crate::Error;

/// The process that a keeper was connected in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HomeProcess(Pid);

impl HomeProcess {
    pub fn here() -> HomeProcess {
        HomeProcess(getpid())
    }

    /// Whether this process is a fork of that one.
    pub fn is_fork(self) -> bool {
        getpid() != self.0
    }

    /// Refuses to go on in a fork. Comes before any mutex of the keeper is taken.
    pub fn check(self) -> Result<(), Error> {
        if self.is_fork() {
            return Err(Error::Forked);
        }
        Ok(())
    }
}
