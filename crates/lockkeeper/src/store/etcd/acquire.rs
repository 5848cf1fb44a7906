//! Trying to hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::claims::{Entry, Seat, State, Turn};
use super::client::messages::{Compare, Operation, TxnRequest, after};
use super::core::Core;
use super::data::Fence;
use super::fault::{self, Fault};
use super::line::{Line, Verdict};
use super::session::Session;
use super::{GUARD_AFTER, RETRY, release, renew, tokens};
use crate::clock::Moment;
use crate::store::{Attempt, Claim, ClaimId, Grant, Mode, QUEUE_TTL, may_stand_beside};
use crate::{Error, Token};

const BUSY: Attempt = Attempt::Busy { free_in: None };
/// How often a request is made again that others came before.
const TRIES: usize = 50;
/// How long a claim that is about to wait waits for its watch.
const WATCHED_WITHIN: Duration = Duration::from_secs(5);

/// One try of a claim.
pub async fn attempt(core: Arc<Core>, claim: Claim, seat: Seat) -> Result<Attempt, Error> {
    core.capabilities.check_lease(claim.lease)?;
    core.keys().check(&claim.name)?;
    if let Mode::Permit { count: 0, .. } = claim.mode {
        return Err(Error::InvalidArgument {
            what: "permits",
            reason: "a claim for no permits has nothing to hold; ask for at least one".into(),
        });
    }
    if Moment::now() > claim.not_after {
        return Ok(Attempt::TooLate);
    }
    // A claim for more permits than there are would block the line for ever.
    if !claim.mode.admits([]) {
        return Ok(BUSY);
    }
    let mut turn = core.claims.enter(seat).await;
    if turn.is_withdrawn() {
        return Ok(Attempt::TooLate);
    }
    if turn.is_elsewhere(&claim.name) {
        return Ok(BUSY);
    }
    turn.attend(&claim.name);
    match go(&core, &claim, &mut turn).await {
        Ok(attempt) => {
            core.found(&claim.name, attempt == BUSY);
            Ok(attempt)
        }
        // It has a key: what failed came after that.
        Err(fault) if turn.entry().is_some() => match fault.after_a_part() {
            Fault::Store(error) => Err(error),
            _ => Ok(Attempt::TooLate),
        },
        Err(fault) => super::core::answer(Err(fault), Attempt::TooLate),
    }
}

async fn go(core: &Arc<Core>, claim: &Claim, turn: &mut Turn) -> Result<Attempt, Fault> {
    for _ in 0..TRIES {
        release::settle(core, turn).await?;
        let Some(entry) = turn.entry() else {
            return fresh(core, claim, turn).await;
        };
        entry.claim.not_after = claim.not_after;
        let again = match entry.state {
            State::Held(..) => renew::confirm(core, entry, claim.lease, claim.not_after)
                .await?
                .then_some(Attempt::Granted(entry.grant)),
            _ => look_again(core, claim, entry).await?,
        };
        match again {
            Some(attempt) => return Ok(attempt),
            // Its key is gone: it is as if it had never asked.
            None => *turn.entry() = None,
        }
    }
    Err(fault::odd("a claim's key goes all the time"))
}

/// Reads the line as it is now, and keeps the lease of a claim in it. `None` if its key is not there.
async fn recheck(
    core: &Core,
    entry: &Entry,
    not_after: Moment,
) -> Result<Option<(Line, Moment, Option<Moment>)>, Fault> {
    let below = core.keys().name(&entry.claim.name);
    let keys_only = !matches!(entry.claim.mode, Mode::Permit { .. });
    let txn = TxnRequest {
        compare: vec![Compare::created(&entry.key, entry.created)],
        success: vec![Operation::list(&below, keys_only)],
        failure: vec![Operation::get(&entry.key)],
    };
    let (answer, sent, until) = match core.prove(&entry.session, txn, not_after).await {
        Err(Fault::NoLease) => return Ok(None),
        proved => proved?,
    };
    if !answer.succeeded || entry.session.is_gone() {
        return Ok(None);
    }
    let keys = answer.lists().next().unwrap_or_default();
    Ok(Some((Line::of(&below, keys), sent, until)))
}

/// A claim that waits asks again. `None` if its key is not there any more.
async fn look_again(
    core: &Core,
    claim: &Claim,
    entry: &mut Entry,
) -> Result<Option<Attempt>, Fault> {
    for _ in 0..renew::PROOFS {
        let Some((line, sent, until)) = recheck(core, entry, claim.not_after).await? else {
            return Ok(None);
        };
        match line.judge(&entry.key, entry.created, claim.mode) {
            Verdict::Gone => return Ok(None),
            Verdict::Behind(behind) => {
                entry.behind = behind;
                return Ok(Some(keep_waiting(claim, entry, sent)));
            }
            Verdict::Turn => {
                if let Some(until) = until {
                    // One that asked before it was told is told all the same.
                    if matches!(entry.state, State::Waiting(_)) {
                        core.hints.claim(&claim.name, claim.id);
                    }
                    win(claim, entry, sent, until);
                    return Ok(Some(Attempt::Granted(entry.grant)));
                }
            }
        }
    }
    Err(renew::unproven())
}

fn keep_waiting(claim: &Claim, entry: &mut Entry, asked: Moment) -> Attempt {
    entry.asked = asked;
    // One that is not to be queued keeps the place that it has.
    if claim.enqueue || matches!(entry.state, State::Granted(_)) {
        entry.state = State::Waiting(asked + QUEUE_TTL);
    }
    BUSY
}

/// It is the claim's turn: it holds, counted from when it asked.
fn win(claim: &Claim, entry: &mut Entry, asked: Moment, until: Moment) {
    entry.asked = asked;
    entry.behind = None;
    entry.guard = None;
    entry.claim.lease = claim.lease;
    entry.state = State::Held((asked + claim.lease).min(until), claim.lease);
    entry.guard_at = Some(Moment::now() + GUARD_AFTER);
}

/// A claim that has no key yet.
async fn fresh(core: &Arc<Core>, claim: &Claim, turn: &mut Turn) -> Result<Attempt, Fault> {
    if let Some(beside) = claim.beside
        && beside != claim.id
        && let Some(entry) = stand_beside(core, claim, beside, turn).await?
    {
        let grant = entry.grant;
        *turn.entry() = Some(entry);
        return Ok(Attempt::Granted(grant));
    }
    let queues = claim.enqueue && claim.beside.is_none();
    // The same request looks whether it is free. How much room permits leave is not for a request to find out.
    let guarded = !queues && !matches!(claim.mode, Mode::Permit { .. });
    if !queues && !guarded && core.was_busy(&claim.name) {
        let line = core.line(&claim.name, false).await?;
        if line.is_busy_for(claim.mode) {
            return Ok(BUSY);
        }
    }
    match stand_in_line(core, claim, None, guarded, turn).await? {
        Placed::In(placed) => settle_in(core, claim, turn, *placed, queues).await,
        Placed::Busy => Ok(BUSY),
        Placed::NothingThere => Err(fault::odd("nothing was to go")),
    }
}

/// What became of a claim that comes to the line.
#[derive(Debug)]
pub enum Placed {
    In(Box<Newcomer>),
    /// Others hold or wait, and it did not come.
    Busy,
    /// What was to go is not there, and nothing was done.
    NothingThere,
}

/// A claim that has just come to the line.
#[derive(Debug)]
pub struct Newcomer {
    pub entry: Entry,
    /// The line right after; none if nobody else was there.
    line: Option<Line>,
    /// Until when its lease lives, if that is known.
    until: Option<Moment>,
}

/// A claim that has just come to the line: it holds, waits or leaves.
pub async fn settle_in(
    core: &Arc<Core>,
    claim: &Claim,
    turn: &mut Turn,
    placed: Newcomer,
    queues: bool,
) -> Result<Attempt, Fault> {
    let Newcomer {
        entry,
        mut line,
        mut until,
    } = placed;
    let mut sent = entry.asked;
    *turn.entry() = Some(entry);
    for _ in 0..renew::PROOFS {
        let Some(entry) = turn.entry() else {
            return Err(fault::odd("no entry"));
        };
        let judge = |line: &Line| line.judge(&entry.key, entry.created, claim.mode);
        match line.as_ref().map_or(Verdict::Turn, judge) {
            // It was broken, or its lease has ended, at once.
            Verdict::Gone => {
                *turn.entry() = None;
                return Ok(BUSY);
            }
            Verdict::Turn => {
                if let Some(until) = until {
                    win(claim, entry, sent, until);
                    return Ok(Attempt::Granted(entry.grant));
                }
            }
            Verdict::Behind(_) if !queues => {
                release::remove(core, turn).await?;
                return Ok(BUSY);
            }
            Verdict::Behind(behind) => {
                entry.behind = behind;
                return Ok(keep_waiting(claim, entry, sent));
            }
        }
        let Some(now) = recheck(core, entry, claim.not_after).await? else {
            *turn.entry() = None;
            return Ok(BUSY);
        };
        (line, sent, until) = (Some(now.0), now.1, now.2);
    }
    Err(renew::unproven())
}

/// What has to be so for a claim that does not wait: nobody is there whom it would have to wait for.
fn guards(core: &Core, claim: &Claim) -> Vec<Compare> {
    let below = core.keys().name(&claim.name);
    let end = after(&below);
    if claim.mode != Mode::Read {
        return vec![Compare::none_in(&below, &end)];
    }
    let readers = [&below[..], b"read/"].concat();
    vec![
        Compare::none_in(&below, &readers),
        Compare::none_in(&after(&readers), &end),
    ]
}

/// Creates the key of a claim, and deletes `gone` in the same transaction. A `guarded` one is created only where nobody is in
/// its way. Whatever fails in doubt leaves an entry that says so.
pub async fn stand_in_line(
    core: &Arc<Core>,
    claim: &Claim,
    mut gone: Option<(Vec<u8>, i64)>,
    mut guarded: bool,
    turn: &mut Turn,
) -> Result<Placed, Fault> {
    let releases = gone.is_some();
    let queues = claim.enqueue && claim.beside.is_none();
    let mut watch = None;
    if queues {
        // What goes from here on is told. It was there before, or the list has it.
        let mut watching = core.watch_name(&claim.name, false);
        let watched = watching.created(WATCHED_WITHIN).await;
        watched.map_err(fault::of_read)?;
        watch = Some(Arc::new(watching));
    }
    for _ in 0..TRIES {
        let placed = create(core, claim, gone.as_ref(), guarded, turn).await;
        let part_done = releases && gone.is_none();
        match placed {
            Ok(Created::In(mut placed)) => {
                placed.entry.guard = watch;
                return Ok(Placed::In(placed));
            }
            Ok(Created::Busy) => return Ok(Placed::Busy),
            Ok(Created::NothingThere) => return Ok(Placed::NothingThere),
            Ok(Created::Unguarded) => guarded = false,
            Ok(Created::Again) | Err(Fault::NoLease) => {}
            // Its tokens would not grow.
            Ok(Created::ThrownAway(entry)) => {
                gone = None;
                *turn.entry() = Some(*entry);
                release::remove(core, turn).await?;
            }
            Err(fault) if part_done => return Err(fault.after_a_part()),
            Err(fault) => return Err(fault),
        }
    }
    Err(fault::odd("others come before us all the time"))
}

enum Created {
    In(Box<Newcomer>),
    Busy,
    NothingThere,
    /// What is there is not in its way.
    Unguarded,
    /// Something has changed meanwhile, and nothing was done.
    Again,
    ThrownAway(Box<Entry>),
}

async fn create(
    core: &Core,
    claim: &Claim,
    gone: Option<&(Vec<u8>, i64)>,
    guarded: bool,
    turn: &mut Turn,
) -> Result<Created, Fault> {
    let session = core
        .sessions
        .for_lease(&core.client, claim.lease, claim.not_after)
        .await?;
    let step = core.step().await?;
    let mut entry = new_entry(core, claim, session);
    entry.fence = Fence::Base(step.micros);
    let tokens = claim.reserve.clamp(1, tokens::MOST);
    let below = core.keys().name(&claim.name);
    let doubt_key = core.keys().doubt(entry.session.id);
    let keys_only = !matches!(claim.mode, Mode::Permit { .. });
    let (base, base_write) = core.base_part(&step);
    let doubt = entry.session.doubt.load(Ordering::SeqCst);
    let mut compare = vec![
        Compare::created(&entry.key, 0),
        Compare::modified(&doubt_key, doubt),
        base,
    ];
    let mut success = Vec::new();
    let mut failure = vec![
        Operation::get(&doubt_key),
        Operation::get(&core.keys().base()),
        Operation::list(&below, keys_only),
    ];
    if let Some((key, created)) = gone {
        compare.push(Compare::created(key, *created));
        success.push(Operation::delete(key));
        failure.push(Operation::get(key));
    }
    success.extend(base_write);
    let data = core.data(claim, entry.fence, tokens, entry.since_millis);
    success.push(Operation::put(&entry.key, data.write(), entry.session.id));
    if guarded {
        compare.extend(guards(core, claim));
    } else {
        success.push(Operation::list(&below, keys_only));
    }
    let txn = TxnRequest {
        compare,
        success,
        failure,
    };
    let (answer, sent, until) = match core.prove(&entry.session, txn, claim.not_after).await {
        Ok(proved) => proved,
        Err(fault) => {
            if fault.is_doubt() {
                entry.state = State::Doubt(Moment::now() + RETRY);
                *turn.entry() = Some(entry);
            }
            return Err(fault);
        }
    };
    let revision = answer.revision();
    if answer.succeeded {
        entry.created = revision;
        entry.modified = revision;
        entry.asked = sent;
        let sound = core.tokens().done(step, revision, core.wall_micros());
        if sound.is_none() {
            return Ok(Created::ThrownAway(Box::new(entry)));
        }
        entry.grant = tokens::grant(entry.fence, revision, tokens);
        let keys = answer.lists().next();
        return Ok(Created::In(Box::new(Newcomer {
            line: keys.map(|keys| Line::of(&below, keys)),
            until,
            entry,
        })));
    }
    let mut lists = answer.lists();
    let mut next = || lists.next().unwrap_or_default();
    let (doubts, bases, keys, gones) = (next(), next(), next(), next());
    let changed = doubts.first().map_or(0, |kv| kv.mod_revision);
    entry.session.doubt.store(changed, Ordering::SeqCst);
    core.learn_base(&bases, revision)?;
    if let Some((_, created)) = gone
        && gones.first().map(|kv| kv.create_revision) != Some(*created)
    {
        return Ok(Created::NothingThere);
    }
    if guarded && !keys.is_empty() {
        return Ok(if Line::of(&below, keys).is_busy_for(claim.mode) {
            Created::Busy
        } else {
            Created::Unguarded
        });
    }
    Ok(Created::Again)
}

/// What a claim is before its key is created.
fn new_entry(core: &Core, claim: &Claim, session: Arc<Session>) -> Entry {
    let now = Moment::now();
    let number = core.number();
    Entry {
        key: core
            .keys()
            .claim(&claim.name, claim.mode, session.id, number),
        claim: claim.clone(),
        key_lease: session.id,
        session,
        number,
        created: 0,
        modified: 0,
        fence: Fence::Base(0),
        grant: Grant {
            token: Token::new(0),
            tokens: 1,
        },
        since_millis: core.wall_micros() / 1_000,
        told: claim.lease,
        asked: now,
        state: State::Waiting(now + QUEUE_TTL),
        behind: None,
        in_place_of: None,
        beside: 0,
        guard: None,
        guard_at: None,
        leaving: false,
        unsettled: false,
    }
}

/// A writer becomes a reader: its key names the writer's, and so has its place. `None` if there is no such writer.
async fn stand_beside(
    core: &Arc<Core>,
    claim: &Claim,
    beside: ClaimId,
    turn: &mut Turn,
) -> Result<Option<Entry>, Fault> {
    let Some(mut other) = core.claims.take_known(beside).await else {
        return Ok(None);
    };
    let now = Moment::now();
    let Some(writer) = other.entry().as_mut().filter(|writer| {
        let modes = may_stand_beside((claim.id, claim.mode), (beside, writer.claim.mode));
        let there = writer.holds(now) && !writer.session.is_gone();
        modes && writer.claim.name == claim.name && there
    }) else {
        return Ok(None);
    };
    // The writer's key has to stay for as long as the reader's: both end with one lease of etcd's.
    if claim.lease > writer.session.ttl {
        return Err(Error::InvalidArgument {
            what: "lease",
            reason: "a writer that goes on as a reader cannot have a longer lease than before; extend it first".into(),
        }
        .into());
    }
    let mut entry = new_entry(core, claim, writer.session.clone());
    let above = u64::from(tokens::MOST) + u64::from(writer.beside.min(14));
    let token = Token::new(writer.grant.token.get() + above);
    entry.fence = Fence::Token(token);
    entry.grant = Grant { token, tokens: 1 };
    entry.key_lease = writer.key_lease;
    entry.in_place_of = Some(writer.number);
    entry.key =
        core.keys()
            .reader_beside(&claim.name, writer.key_lease, writer.number, entry.number);
    let doubt_key = core.keys().doubt(entry.session.id);
    for _ in 0..TRIES {
        let data = core.data(claim, entry.fence, 1, entry.since_millis);
        let doubt = entry.session.doubt.load(Ordering::SeqCst);
        let txn = TxnRequest {
            compare: vec![
                Compare::created(&writer.key, writer.created),
                Compare::created(&entry.key, 0),
                Compare::modified(&doubt_key, doubt),
            ],
            success: vec![Operation::put(&entry.key, data.write(), entry.session.id)],
            failure: vec![Operation::get(&doubt_key), Operation::get(&writer.key)],
        };
        let (answer, sent, until) = match core.prove(&entry.session, txn, claim.not_after).await {
            Ok(proved) => proved,
            Err(Fault::NoLease) => return Ok(None),
            Err(fault) => {
                if fault.is_doubt() {
                    writer.beside += 1;
                    entry.state = State::Doubt(Moment::now() + RETRY);
                    *turn.entry() = Some(entry);
                }
                return Err(fault);
            }
        };
        if answer.succeeded {
            writer.beside += 1;
            entry.created = answer.revision();
            entry.modified = entry.created;
            entry.asked = sent;
            match until {
                Some(until) => win(claim, &mut entry, sent, until),
                None => {
                    entry.state = State::Held(sent, claim.lease);
                    if !renew::confirm(core, &mut entry, claim.lease, claim.not_after).await? {
                        return Ok(None);
                    }
                }
            }
            return Ok(Some(entry));
        }
        let mut lists = answer.lists();
        let changed = lists.next().unwrap_or_default();
        let there = lists.next().unwrap_or_default();
        if there.first().map(|kv| kv.create_revision) != Some(writer.created) {
            return Ok(None);
        }
        let changed = changed.first().map_or(0, |kv| kv.mod_revision);
        entry.session.doubt.store(changed, Ordering::SeqCst);
    }
    Err(fault::odd("keys are taken back all the time"))
}
