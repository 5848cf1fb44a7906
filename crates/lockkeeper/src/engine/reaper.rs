//! Releases and withdrawals that nobody waits for: what dropped guards and cancelled acquires leave behind.
//!
//! Each goes on until the store has answered or the lease has ended there anyway. Claim ids are never used
//! twice, so repeating one is harmless.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::arbiter::Leaving;
use super::background::Pends;
use super::parting::Parting;
use crate::clock::Moment;
use crate::store::{ClaimId, Release, Released, Store};
use crate::{Error, Name};

/// How long a request may be on its way: past this the store ignores it, and we stop waiting for its answer.
pub(crate) const REQUEST_WINDOW: Duration = Duration::from_secs(10);

/// What is to be undone in the store, and when its lease undoes it anyway.
struct Undo {
    verb: Verb,
    name: Name,
    claim: ClaimId,
    lease: Duration,
}

#[derive(Clone, Copy)]
enum Verb {
    Release,
    Withdraw,
}

impl Core {
    /// Lets go of a hold in the background.
    pub fn release_later(
        self: &Arc<Core>,
        parting: Parting,
        lease: Duration,
        leaving: Option<Leaving>,
    ) {
        let core = self.clone();
        let undo = Undo {
            verb: Verb::Release,
            name: parting.hold.name.clone(),
            claim: parting.hold.claim,
            lease,
        };
        let done = async move { undo.until_done(&core, leaving, Some(parting)).await };
        self.background.spawn_pending(Pends::CleanUp, done);
    }

    /// Takes back a claim in the background. `in_doubt`: its request may still be on its way to the store,
    /// so it is taken back once more when the store would ignore it.
    pub fn withdraw_later(
        self: &Arc<Core>,
        name: Name,
        claim: ClaimId,
        lease: Duration,
        in_doubt: bool,
    ) {
        let core = self.clone();
        let late = Moment::now() + REQUEST_WINDOW;
        let undo = Undo {
            verb: Verb::Withdraw,
            name,
            claim,
            lease,
        };
        let leaving = self.known_arbiter(&undo.name).map(|a| a.leaving());
        self.background.spawn_pending(Pends::CleanUp, async move {
            undo.until_done(&core, leaving, None).await;
            if in_doubt {
                let again = core.clone();
                core.background.spawn(async move {
                    again.background.sleep_until(late).await;
                    undo.until_done(&again, None, None).await;
                });
            }
        });
    }
}

impl Undo {
    /// A try that waits for this waits for the first answer only.
    async fn until_done(
        &self,
        core: &Core,
        mut leaving: Option<Leaving>,
        mut parting: Option<Parting>,
    ) {
        let observers = &core.shared.observers;
        let give_up = Moment::now() + self.lease;
        let mut pause = Duration::from_millis(20);
        loop {
            let answer = core.answer(self.once(core.store())).await;
            drop(leaving.take());
            core.shared.heard(&self.name, &answer);
            if let Some(parting) = &mut parting {
                match &answer {
                    Ok(Some(released)) if parting.shows_loss(released) => {
                        parting.hold.was_gone();
                        core.shared.tell_lost(&parting.hold);
                    }
                    Ok(_) => {}
                    Err(error) => parting.failed(error, observers),
                }
            }
            let error = answer.err();
            if error.is_none_or(|error| !error.is_transient()) || Moment::now() >= give_up {
                if let Some(parting) = parting {
                    parting.over(observers);
                }
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Tries once. A release says what it found.
    async fn once(&self, store: &dyn Store) -> Result<Option<Released>, Error> {
        match self.verb {
            Verb::Withdraw => store.withdraw(&self.name, self.claim).await.map(|()| None),
            Verb::Release => {
                let release = Release {
                    name: self.name.clone(),
                    claim: self.claim,
                    requeue: None,
                };
                store.release(&release).await.map(Some)
            }
        }
    }
}
