//! Reports when an acquire begins to wait, and when its wait ends: once each, whatever becomes of the acquire.

use std::sync::OnceLock;

use super::core::Core;
use super::request::AcquireRequest;
use crate::clock::Moment;
use crate::observe::WaitEnd;
use crate::store::Mode;
use crate::{Error, Event, Name};

#[derive(Debug)]
pub(crate) struct WaitReport<'a> {
    core: &'a Core,
    name: &'a Name,
    mode: Mode,
    /// The caller is ready to wait.
    waits: bool,
    /// When the acquire began, if that is known.
    began: Option<Moment>,
    /// Since when it waits, once that was reported.
    since: OnceLock<Moment>,
    ended: bool,
}

impl WaitReport<'_> {
    pub fn new<'a>(
        core: &'a Core,
        name: &'a Name,
        request: &AcquireRequest,
        began: Option<Moment>,
    ) -> WaitReport<'a> {
        WaitReport {
            core,
            name,
            mode: request.mode,
            waits: request.wait_limit.waits(),
            began,
            since: OnceLock::new(),
            ended: false,
        }
    }

    /// The acquire has to wait. Reported once.
    pub fn begins(&self) {
        let since = self.began.unwrap_or_else(Moment::now);
        if self.since.set(since).is_ok() {
            self.report(&Event::Waiting {
                name: self.name,
                mode: self.mode,
            });
        }
    }

    /// The acquire has ended, with this result.
    pub fn ends<T>(mut self, taken: &Result<Option<T>, Error>) {
        let end = match taken {
            Ok(Some(_)) => WaitEnd::Granted,
            Ok(None) if !self.waits => {
                return self.report(&Event::Busy {
                    name: self.name,
                    mode: self.mode,
                });
            }
            // The limit may be reached before the store's first response.
            Ok(None) => {
                self.begins();
                WaitEnd::TimedOut
            }
            Err(error) => {
                if self.waits && error.is_transient() {
                    self.begins();
                }
                WaitEnd::Failed(error)
            }
        };
        self.over(end);
    }

    fn over(&mut self, end: WaitEnd<'_>) {
        self.ended = true;
        if let Some(since) = self.since.get() {
            self.report(&Event::Waited {
                name: self.name,
                mode: self.mode,
                waited: Moment::now().since(*since),
                end,
            });
        }
    }

    fn report(&self, event: &Event<'_>) {
        self.core.shared.observers.event(event);
    }
}

impl Drop for WaitReport<'_> {
    fn drop(&mut self) {
        if !self.ended && !self.core.process.is_fork() {
            self.over(WaitEnd::Cancelled);
        }
    }
}
