//! One acquire's wait: told when it begins and when it ends, once each, whatever becomes of it.

use std::sync::OnceLock;

use super::arbiter::Arbiter;
use super::tenure::Entry;
use super::waiting::Patience;
use super::wish::Wish;
use crate::clock::Moment;
use crate::observe::WaitEnd;
use crate::store::Mode;
use crate::{Error, Event};

#[derive(Debug)]
pub(crate) struct Wait<'a> {
    arbiter: &'a Arbiter,
    mode: Mode,
    /// When the acquire began, if that is known.
    began: Option<Moment>,
    /// Since when it waits, once that was told.
    since: OnceLock<Moment>,
    ended: bool,
}

impl Wait<'_> {
    pub fn new<'a>(arbiter: &'a Arbiter, wish: &Wish, began: Option<Moment>) -> Wait<'a> {
        Wait {
            arbiter,
            mode: wish.mode,
            began,
            since: OnceLock::new(),
            ended: false,
        }
    }

    /// The acquire has to wait.
    pub fn begins(&self) {
        let since = self.began.unwrap_or_else(Moment::now);
        if self.since.set(since).is_ok() {
            self.tell(&Event::Waiting {
                name: &self.arbiter.name,
                mode: self.mode,
            });
        }
    }

    /// The acquire came to this.
    pub fn ends(mut self, taken: &Result<Option<Entry>, Error>, patience: Patience) {
        let will_wait = patience != Patience::None;
        let end = match taken {
            Ok(Some(_)) => WaitEnd::Granted,
            Ok(None) if !will_wait => {
                return self.tell(&Event::Busy {
                    name: &self.arbiter.name,
                    mode: self.mode,
                });
            }
            // The time may be over before the first answer comes.
            Ok(None) => {
                self.begins();
                WaitEnd::TimedOut
            }
            Err(error) => {
                if will_wait && error.is_transient() {
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
            self.tell(&Event::Waited {
                name: &self.arbiter.name,
                mode: self.mode,
                waited: Moment::now().since(*since),
                end,
            });
        }
    }

    fn tell(&self, event: &Event<'_>) {
        self.arbiter.core.shared.observers.event(event);
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if !self.ended && !self.arbiter.core.home.is_left() {
            self.over(WaitEnd::Cancelled);
        }
    }
}
