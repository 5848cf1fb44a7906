//! What happens without being asked for: watches that fire, time that passes, a connection that comes back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::mpsc;

use super::claims::{State, Turn};
use super::client::Event;
use super::client::wire::{Code, Request};
use super::core::Core;
use super::fault::{self, Fault};
use super::standing::{self, Lists, Verdict};
use super::{latch, release};
use crate::Error;
use crate::clock::Moment;
use crate::store::{ClaimId, DirectGrant, GRANT_LEASE, Interest, Mode, Subscription};

/// How many nodes of one hold are watched.
const MOST_GUARDED: usize = 16;

/// What subscriptions want to hear of: names and latches.
#[derive(Debug, Default)]
pub struct Watched(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// How many subscriptions there are.
    wanted: HashMap<Interest, usize>,
    /// What a path means to whom, and since which note of it.
    paths: HashMap<String, Vec<(Interest, u64)>>,
    /// How many notes there were.
    notes: u64,
}

impl Table {
    /// The path means something to this interest. Returns the number of this note, which takes the place of an earlier one.
    fn note(&mut self, path: &str, interest: &Interest) -> u64 {
        self.notes += 1;
        let known = self.paths.entry(path.to_owned()).or_default();
        known.retain(|(one, _)| one != interest);
        known.push((interest.clone(), self.notes));
        self.notes
    }

    /// Forgets this note. A later one of the same interest stays: it has a watch of its own.
    fn forget(&mut self, path: &str, interest: &Interest, note: u64) {
        self.retain(path, |one| *one != (interest.clone(), note));
    }

    /// The path means nothing to this interest any more.
    fn leave(&mut self, path: &str, interest: &Interest) {
        self.retain(path, |(one, _)| one != interest);
    }

    fn retain(&mut self, path: &str, stays: impl FnMut(&(Interest, u64)) -> bool) {
        if let Some(known) = self.paths.get_mut(path) {
            known.retain(stays);
            if known.is_empty() {
                self.paths.remove(path);
            }
        }
    }
}

impl Watched {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many paths mean something to somebody.
    #[cfg(feature = "internals")]
    pub fn paths(&self) -> usize {
        self.table().paths.len()
    }

    fn wants(&self, interest: &Interest) -> bool {
        self.table().wanted.contains_key(interest)
    }
}

/// Ends a subscription to a name or a latch.
struct Leave {
    core: Weak<Core>,
    interest: Interest,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let mut table = core.watched.table();
        if let Some(count) = table.wanted.get_mut(&self.interest) {
            *count -= 1;
            if *count == 0 {
                table.wanted.remove(&self.interest);
                for path in paths(&core, &self.interest) {
                    table.leave(&path, &self.interest);
                }
            }
        }
    }
}

/// Subscribes. No hint that follows is missed.
pub async fn subscribe(core: Arc<Core>, interest: Interest) -> Result<Subscription, Error> {
    let subscription = core.hints.subscribe(interest.clone());
    if matches!(interest, Interest::Claim(..) | Interest::Keeper(_)) {
        return Ok(subscription);
    }
    *core
        .watched
        .table()
        .wanted
        .entry(interest.clone())
        .or_default() += 1;
    let leave = Leave {
        core: Arc::downgrade(&core),
        interest: interest.clone(),
    };
    match arm(&core, &interest).await {
        Ok(()) => Ok(subscription.and(leave)),
        Err(Fault::Store(error)) => Err(error),
        Err(Fault::TooLate) => Err(Error::Closed),
    }
}

/// What is watched for a subscription.
fn paths(core: &Core, interest: &Interest) -> Vec<String> {
    match interest {
        Interest::Name(name) => {
            let place = core.place(name);
            vec![place.path, place.queue, place.leases]
        }
        Interest::Latch(name) => vec![latch::path(core, name)],
        _ => Vec::new(),
    }
}

/// Asks the servers to tell of what a subscription wants to hear of.
async fn arm(core: &Core, interest: &Interest) -> Result<(), Fault> {
    let paths = paths(core, interest);
    if let (Interest::Latch(_), [path]) = (interest, &paths[..]) {
        core.watched.table().note(path, interest);
        let (path, watch) = (path.clone(), true);
        core.read(vec![Request::Exists { path, watch }]).await?;
        return Ok(());
    }
    for _ in 0..100 {
        let children = |path: &String| Request::GetChildren {
            path: path.clone(),
            watch: true,
        };
        let note = |path: &String| core.watched.table().note(path, interest);
        let notes: Vec<u64> = paths.iter().map(note).collect();
        let answers = core.read(paths.iter().map(children).collect()).await?;
        for ((answer, path), note) in answers.iter().zip(&paths).zip(notes).skip(1) {
            // Its parent is watched: to hear of its creation is to ask again, and that may be under way.
            if answer.is_err() {
                core.watched.table().forget(path, interest, note);
            }
        }
        match &answers[0] {
            Ok(_) => return Ok(()),
            Err(Code::NO_NODE) => {}
            Err(code) => return Err(fault::of_code(*code, &paths[0])),
        }
        // It is not there: to hear of its creation is to hear of all.
        let exists = Request::Exists {
            path: paths[0].clone(),
            watch: true,
        };
        match core.read(vec![exists]).await?.pop() {
            Some(Err(Code::NO_NODE)) => return Ok(()),
            Some(Ok(_)) => {}
            Some(Err(code)) => return Err(fault::of_code(code, &paths[0])),
            None => return Err(fault::odd("nothing")),
        }
    }
    Err(fault::odd("a name comes and goes all the time"))
}

async fn arm_and_hint(core: Arc<Core>, interest: Interest) {
    // If there is no connection, the next one asks again.
    let _ = arm(&core, &interest).await;
    core.hints.notify(&interest);
}

/// Hears what the session tells, until the store is gone.
pub async fn listen(core: Weak<Core>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(core) = core.upgrade() else { return };
        match event {
            Event::Seen(seen) => {
                for id in core.claims.interested(&seen.path) {
                    tokio::spawn(look_after(core.clone(), id));
                }
                let interests = core.watched.table().paths.remove(&seen.path);
                for (interest, _) in interests.into_iter().flatten() {
                    if core.watched.wants(&interest) {
                        tokio::spawn(arm_and_hint(core.clone(), interest));
                    }
                }
            }
            Event::Connected { .. } => {
                // The watches of the connection before are gone, and so may be what they would have told.
                core.claims.forget_watches();
                for id in core.claims.known() {
                    tokio::spawn(look_after(core.clone(), id));
                }
                core.watched.table().paths.clear();
                let wanted: Vec<Interest> = core.watched.table().wanted.keys().cloned().collect();
                for interest in wanted {
                    tokio::spawn(arm_and_hint(core.clone(), interest));
                }
            }
            Event::Lost => core.hints.everyone(),
        }
    }
}

/// Lets time do its work on claims, until the store is gone.
pub async fn keep_time(core: Weak<Core>) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        let claims = strong.claims.clone();
        let now = Moment::now();
        for id in claims.due(now) {
            tokio::spawn(look_after(strong.clone(), id));
        }
        drop(strong);
        let next = claims.next().map_or(super::RETRY, |next| next.remaining());
        tokio::select! {
            () = claims.earlier.notified() => {}
            // Timers stop in suspend, and a store may be gone: no long sleep.
            () = tokio::time::sleep(next.min(super::RETRY)) => {}
        }
    }
}

/// Something may have happened to a claim, or its time has come.
async fn look_after(core: Arc<Core>, id: ClaimId) {
    let Some(mut turn) = core.claims.take_known(id).await else {
        return;
    };
    let Some(entry) = turn.entry() else { return };
    let (name, was) = (entry.claim.name.clone(), entry.state);
    let held = matches!(was, State::Held(..) | State::Granted(_));
    let looked = async {
        release::settle(&core, &mut turn).await?;
        let Some(entry) = turn.entry() else {
            return Ok(());
        };
        match entry.state {
            State::Waiting(_) => wait_on(&core, &mut turn).await,
            State::Held(..) => guard(&core, &mut turn).await,
            _ => Ok(()),
        }
    };
    let looked: Result<(), Fault> = looked.await;
    if turn.entry().is_none() && held {
        release::tell(&core, &name, id);
    } else if looked.is_err() || held || turn.entry().is_none() {
        // It asks by itself, and is told what is the matter. One that asked before it was told is told all the same.
        core.hints.claim(&name, id);
    }
}

/// Watches the node of a hold, so that its keeper is told when it is broken. One that is released soon is not watched.
async fn guard(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    entry.guard_at = Some(Moment::now() + super::RETRY);
    // Permits may be many. A renewal finds out what happened to the rest.
    let guarded = entry.nodes.iter().take(MOST_GUARDED);
    let mut requests = Vec::new();
    for path in guarded.clone() {
        core.claims.watch(path, entry.claim.id);
        requests.push(Request::GetData {
            path: path.clone(),
            watch: true,
        });
    }
    let answers = core.read(requests).await?;
    let mut gone = false;
    for (answer, path) in answers.into_iter().zip(guarded) {
        match answer {
            Ok(_) => {}
            // Only what is there is watched.
            Err(Code::NO_NODE) => {
                core.claims.unwatch(path, entry.claim.id);
                gone = true;
            }
            Err(code) => return Err(fault::of_code(code, path)),
        }
    }
    entry.guard_at = None;
    if gone {
        release::forget(core, turn).await?;
    }
    Ok(())
}

/// Looks whether it is the turn of a claim that waits. If so, it is granted for a moment, and told; if not, it waits for the claim
/// that is before it now.
async fn wait_on(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    let (name, id, mode) = (entry.claim.name.clone(), entry.claim.id, entry.claim.mode);
    let place = core.place(&name);
    loop {
        let answers = core.read(Lists::requests(&place, mode)).await?;
        let lists = Lists::read(core, &place, mode, answers).await?;
        match standing::judge(core, &place, entry, &lists).await? {
            Verdict::Gone => return release::forget(core, turn).await,
            // What was read is of another session, and so is the turn.
            Verdict::Turn if entry.session != core.client.session() => {
                *turn.entry() = None;
                return Ok(());
            }
            Verdict::Again => {}
            Verdict::Behind(wait) => {
                if standing::arm(core, entry, &wait).await? {
                    return Ok(());
                }
            }
            Verdict::Turn => {
                let now = Moment::now();
                entry.behind = None;
                entry.state = State::Granted(now + GRANT_LEASE);
                let until = core.lives_until().min(now + GRANT_LEASE);
                let lease = until.since(entry.asked);
                let direct = DirectGrant {
                    grant: entry.grant,
                    sent: entry.asked,
                    lease,
                };
                match mode {
                    // Permits have to be taken first.
                    Mode::Permit { .. } => core.hints.claim(&name, id),
                    _ if until <= now => core.hints.claim(&name, id),
                    _ => core.hints.granted(&name, id, direct),
                }
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One asks and is told that the path is not there. It is created meanwhile, and another asks and is told that it is.
    #[test]
    fn a_path_that_was_noted_again_is_not_forgotten() {
        let name = crate::Name::new("a").expect("a name");
        let interest = Interest::Name(name);
        let mut table = Table::default();
        let first = table.note("/a/locks", &interest);
        // What `listen` does when the path is created.
        table.paths.clear();
        let second = table.note("/a/locks", &interest);
        table.forget("/a/locks", &interest, first);
        assert!(table.paths.contains_key("/a/locks"), "nobody would be told");
        table.forget("/a/locks", &interest, second);
        assert!(table.paths.is_empty());
        // The same without an event in between, and an interest that leaves.
        let first = table.note("/a/locks", &interest);
        table.note("/a/locks", &interest);
        table.forget("/a/locks", &interest, first);
        assert_eq!(table.paths["/a/locks"].len(), 1);
        table.leave("/a/locks", &interest);
        assert!(table.paths.is_empty());
    }
}
