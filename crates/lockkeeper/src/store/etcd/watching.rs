//! What happens without being asked for: watches that fire, time that passes, a connection that comes back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

use super::RETRY;
use super::claims::{State, Turn};
use super::client::Event;
use super::client::messages::Operation;
use super::client::watches::Range;
use super::core::Core;
use super::fault::{self, Fault};
use super::line::Verdict;
use super::release;
use crate::clock::Moment;
use crate::store::{ClaimId, DirectGrant, GRANT_LEASE, Interest, Mode, Subscription};
use crate::{Error, Name};

/// How long a subscription waits for its watch.
const WATCHED_WITHIN: Duration = Duration::from_secs(5);
/// The longest sleep: timers stop while the machine does.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

/// Subscribes. No hint that follows is missed.
pub async fn subscribe(core: Arc<Core>, interest: Interest) -> Result<Subscription, Error> {
    let subscription = core.hints.subscribe(interest.clone());
    let mut watching = match &interest {
        Interest::Claim(name, _) => core.watch_name(name, false),
        Interest::Name(name) => core.watch_name(name, true),
        Interest::Latch(name) => core.client.watches.watch(Range {
            from: core.keys().latch(name),
            end: Vec::new(),
            puts: true,
        }),
        Interest::Keeper(_) => return Ok(subscription),
    };
    match watching.created(WATCHED_WITHIN).await {
        Ok(()) => Ok(subscription.and(watching)),
        Err(failure) => match fault::of_read(failure) {
            Fault::Store(error) => Err(error),
            _ => Err(Error::Closed),
        },
    }
}

/// What a range that is watched means.
enum Meaning {
    Latch(Name),
    /// That anything has changed.
    Name(Name),
    /// That keys have gone.
    Contenders(Name),
}

fn meaning(core: &Core, range: &Range) -> Option<Meaning> {
    if let Some(latch) = core.keys().name_of_latch(&range.from) {
        return Some(Meaning::Latch(Name::new(&latch).ok()?));
    }
    let name = Name::new(&core.keys().name_below(&range.from)?).ok()?;
    Some(if range.puts {
        Meaning::Name(name)
    } else {
        Meaning::Contenders(name)
    })
}

/// Hears what the members tell, until the store is gone.
pub async fn listen(core: Weak<Core>, mut events: mpsc::UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        let Some(core) = core.upgrade() else { return };
        let (range, deleted) = match event {
            Event::Changed(range, deleted) => (range, Some(deleted)),
            Event::Missed(range) => (range, None),
            Event::Lost => {
                core.hints.everyone();
                continue;
            }
        };
        match meaning(&core, &range) {
            None => {}
            Some(Meaning::Latch(name)) => core.hints.latch(&name),
            Some(Meaning::Name(name)) => core.hints.name(&name),
            Some(Meaning::Contenders(name)) => {
                let claims = match deleted {
                    Some(deleted) => core.claims.interested(&name, &deleted),
                    None => core.claims.of_name(&name),
                };
                for id in claims {
                    tokio::spawn(look_after(core.clone(), id));
                }
            }
        }
    }
}

/// Lets time do its work on claims, until the store is gone.
pub async fn keep_time(core: Weak<Core>) {
    loop {
        let (claims, next) = {
            let Some(core) = core.upgrade() else { return };
            for id in core.claims.due(Moment::now()) {
                tokio::spawn(look_after(core.clone(), id));
            }
            (core.claims.clone(), core.claims.next())
        };
        let sleep = next.map_or(LONGEST_SLEEP, |next| next.remaining().min(LONGEST_SLEEP));
        tokio::select! {
            () = claims.earlier.notified() => {}
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Does for a claim what has to be done for it now.
async fn look_after(core: Arc<Core>, id: ClaimId) {
    let Some(mut turn) = core.claims.take_known(id).await else {
        return;
    };
    let Some(name) = turn.entry().as_ref().map(|entry| entry.claim.name.clone()) else {
        return;
    };
    let held = |turn: &mut Turn| {
        let entry = turn.entry().as_ref();
        entry.is_some_and(|entry| entry.holds(Moment::now()))
    };
    let held_before = held(&mut turn);
    let mut outcome = release::settle(&core, &mut turn).await;
    if let (Ok(()), Some(entry)) = (&outcome, turn.entry().as_ref()) {
        outcome = match entry.state {
            State::Waiting(_) => wait_on(&core, &mut turn).await,
            State::Granted(_) | State::Held(..) => check(&core, &mut turn).await,
            State::Ending(_) | State::Doubt(_) => Ok(()),
        };
    }
    if outcome.is_err()
        && let Some(entry) = turn.entry()
        && matches!(entry.state, State::Held(..))
    {
        entry.guard_at = Some(Moment::now() + RETRY);
    }
    if turn.entry().is_none() {
        // It asks by itself, and is told what is the matter.
        core.hints.claim(&name, id);
        if held_before {
            core.hints.keeper(id.keeper);
        }
    } else if outcome.is_err() {
        core.hints.claim(&name, id);
    }
}

/// Looks whether the key of a hold is there, and has its end told from now on: its keeper is told when it is broken.
async fn check(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    if entry.leaving {
        // Whether it was there is for its release to say.
        entry.guard_at = None;
        return Ok(());
    }
    if matches!(entry.state, State::Held(..)) {
        let due = entry.guard_at.is_some_and(|at| at <= Moment::now());
        if entry.guard.is_none() && due {
            entry.guard_at = Some(Moment::now() + RETRY);
            let mut watching = core.watch_name(&entry.claim.name, false);
            let watched = watching.created(WATCHED_WITHIN).await;
            watched.map_err(fault::of_read)?;
            entry.guard = Some(Arc::new(watching));
        }
        entry.guard_at = entry.guard_at.filter(|_| entry.guard.is_none());
    }
    let gone = core
        .keys()
        .gone(&entry.claim.name, entry.key_lease, entry.number);
    let reads = vec![Operation::get(&entry.key), Operation::get(&gone)];
    let mut lists = core.read(reads).await?.lists();
    let mut next = || lists.next().unwrap_or_default();
    let (own, gone) = (next(), next());
    let there = own.first().map(|kv| kv.create_revision) == Some(entry.created);
    if !there || (entry.claim.mode != Mode::Read && !gone.is_empty()) {
        *turn.entry() = None;
    }
    Ok(())
}

/// Looks whether it is the turn of a claim that waits. If so, it is granted for a moment, and told; if not, it waits for
/// the one that is before it now.
async fn wait_on(core: &Core, turn: &mut Turn) -> Result<(), Fault> {
    let Some(entry) = turn.entry() else {
        return Ok(());
    };
    let (name, id, mode) = (entry.claim.name.clone(), entry.claim.id, entry.claim.mode);
    let keys_only = !matches!(mode, Mode::Permit { .. });
    let line = core.line(&name, keys_only).await?;
    match line.judge(&entry.key, entry.created, mode) {
        Verdict::Gone => *turn.entry() = None,
        Verdict::Behind(behind) => entry.behind = behind,
        Verdict::Turn => {
            let now = Moment::now();
            let until = entry.session.lives_until().min(now + GRANT_LEASE);
            entry.behind = None;
            entry.state = State::Granted(now + GRANT_LEASE);
            if until <= now {
                core.hints.claim(&name, id);
                return Ok(());
            }
            entry.state = State::Granted(until);
            let direct = DirectGrant {
                grant: entry.grant,
                sent: entry.asked,
                lease: until.since(entry.asked),
            };
            core.hints.granted(&name, id, direct);
        }
    }
    Ok(())
}
