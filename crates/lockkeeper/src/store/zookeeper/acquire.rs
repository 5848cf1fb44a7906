//! Trying to hold.

use std::sync::Arc;

use uuid::Uuid;

use super::claims::{Entry, Seat, State, Turn};
use super::client::wire::{Answer, Code, Kind, Op, Request};
use super::core::{Core, Place};
use super::data::{Data, Fence};
use super::fault::{self, Fault};
use super::line;
use super::standing::{self, Lists, Verdict};
use super::tokens::{self, Step};
use super::{GUARD_AFTER, data_of, node_id, permits, release};
use crate::clock::Moment;
use crate::store::{Attempt, Claim, ClaimId, Grant, Mode, QUEUE_TTL, may_stand_beside};
use crate::{Error, Token};

const BUSY: Attempt = Attempt::Busy { free_in: None };

/// One try of a claim.
pub async fn attempt(core: Arc<Core>, claim: Claim, seat: Seat) -> Result<Attempt, Error> {
    core.check_lease(claim.lease)?;
    permits::check(&core, &claim)?;
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
    match go(&core, &claim, &mut turn).await {
        Ok(attempt) => {
            core.found(&claim.name, attempt == BUSY);
            Ok(attempt)
        }
        // It has a node: what failed came after that.
        Err(fault) if turn.entry().is_some() => Err(match fault {
            Fault::Store(error @ Error::Unavailable { .. }) => error.in_doubt(),
            Fault::Store(error) => error,
            Fault::TooLate => {
                Error::outcome_unknown(super::url::KIND.store, "its time ended half way")
            }
        }),
        Err(Fault::TooLate) => Ok(Attempt::TooLate),
        Err(Fault::Store(error)) => Err(error),
    }
}

async fn go(core: &Arc<Core>, claim: &Claim, turn: &mut Turn) -> Result<Attempt, Fault> {
    let place = core.place(&claim.name);
    loop {
        if turn.is_elsewhere(&claim.name) {
            return Ok(BUSY);
        }
        release::settle(core, turn).await?;
        let Some(entry) = turn.entry() else {
            return fresh(core, claim, &place, turn).await;
        };
        entry.claim.not_after = claim.not_after;
        let again = match entry.state {
            State::Held(..) => confirm(core, claim, entry).await?,
            _ => look_again(core, claim, &place, entry).await?,
        };
        match again {
            Some(attempt) => return Ok(attempt),
            // Its node is gone: it is as if it had never asked.
            None => release::forget(core, turn).await?,
        }
    }
}

/// A claim that holds asks again: the same tokens, and its lease runs at least as long as it asks for now.
async fn confirm(core: &Core, claim: &Claim, entry: &mut Entry) -> Result<Option<Attempt>, Fault> {
    let lease = claim.lease;
    let ops = super::renew::touch(core, entry, lease, Moment::now());
    let replies = core
        .prove(vec![Request::Multi(ops)], claim.not_after)
        .await?;
    match replies.answers.into_iter().next() {
        // A node of a session that was given up is nobody's.
        Some(Ok(Answer::Multi(_))) if replies.session != entry.session => Ok(None),
        Some(Ok(Answer::Multi(_))) => {
            core.committed(replies.sent);
            super::renew::prolong(entry, lease, replies.sent);
            Ok(Some(Attempt::Granted(entry.grant)))
        }
        Some(Ok(Answer::Failed(_, Code::NO_NODE))) => Ok(None),
        Some(Ok(Answer::Failed(_, code)) | Err(code)) => Err(fault::of_code(code, &entry.nodes[0])),
        _ => Err(fault::odd("no list")),
    }
}

/// A claim that waits asks again.
async fn look_again(
    core: &Arc<Core>,
    claim: &Claim,
    place: &Place,
    entry: &mut Entry,
) -> Result<Option<Attempt>, Fault> {
    let waits = matches!(entry.state, State::Waiting(_)) && core.wrote_lately();
    if waits && matches!(claim.mode, Mode::Permit { .. }) {
        // The one before it may leave room for both, so all are looked at. Nothing is written for a claim that waits.
        let mut requests = vec![Request::Sync {
            path: place.path.clone(),
        }];
        requests.extend(Lists::requests(place, claim.mode));
        let asked = Moment::now();
        let answers = core.read(requests).await?.into_iter().skip(1);
        let lists = Lists::read(core, place, claim.mode, answers).await?;
        if let Verdict::Behind(wait) = standing::judge(core, place, entry, &lists).await?
            && standing::arm(core, entry, &wait).await?
        {
            return Ok(Some(keep_waiting(claim, entry, asked)));
        }
    } else if let Some(behind) = entry.behind.clone().filter(|_| waits) {
        let requests = vec![
            Request::Sync {
                path: behind.clone(),
            },
            Request::Exists {
                path: behind,
                watch: false,
            },
        ];
        let asked = Moment::now();
        if let Some(Ok(Answer::Stat(_))) = core.read(requests).await?.pop() {
            return Ok(Some(keep_waiting(claim, entry, asked)));
        }
    }
    loop {
        // A write that is committed: what it answers, and the lists behind it, are not of the past.
        let mut requests = vec![Request::Multi(super::renew::checks(entry))];
        requests.extend(Lists::requests(place, claim.mode));
        let replies = core.prove(requests, claim.not_after).await?;
        let (asked, mut answers) = (replies.sent, replies.answers.into_iter());
        match answers.next() {
            Some(Ok(Answer::Multi(_))) if replies.session != entry.session => return Ok(None),
            Some(Ok(Answer::Multi(_))) => core.committed(asked),
            Some(Ok(Answer::Failed(_, Code::NO_NODE))) => return Ok(None),
            Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
                return Err(fault::of_code(code, &place.path));
            }
            _ => return Err(fault::odd("no list")),
        }
        let lists = Lists::read(core, place, claim.mode, answers).await?;
        match standing::judge(core, place, entry, &lists).await? {
            Verdict::Gone => return Ok(None),
            Verdict::Again => {}
            Verdict::Turn => {
                if !win(core, claim, place, entry, asked).await? {
                    return Ok(None);
                }
                return Ok(Some(Attempt::Granted(entry.grant)));
            }
            Verdict::Behind(wait) => {
                if standing::arm(core, entry, &wait).await? {
                    return Ok(Some(keep_waiting(claim, entry, asked)));
                }
            }
        }
    }
}

fn keep_waiting(claim: &Claim, entry: &mut Entry, asked: Moment) -> Attempt {
    entry.asked = asked;
    // One that is not to be queued keeps the place that it has.
    if claim.enqueue || matches!(entry.state, State::Granted(_)) {
        entry.state = State::Waiting(asked + QUEUE_TTL);
    }
    BUSY
}

/// It is the claim's turn: it holds, counted from when it asked. False if it is in line no more.
async fn win(
    core: &Core,
    claim: &Claim,
    place: &Place,
    entry: &mut Entry,
    asked: Moment,
) -> Result<bool, Fault> {
    let mut asked = asked;
    if matches!(claim.mode, Mode::Permit { .. }) {
        if !permits::take(core, place, entry, claim.not_after).await? {
            return Ok(false);
        }
        asked = entry.asked;
    }
    entry.asked = asked;
    entry.behind = None;
    entry.claim.lease = claim.lease;
    entry.state = State::Held(asked + claim.lease, claim.lease);
    entry.guard_at = Some(Moment::now() + GUARD_AFTER);
    Ok(true)
}

/// A claim that has no node yet.
async fn fresh(
    core: &Arc<Core>,
    claim: &Claim,
    place: &Place,
    turn: &mut Turn,
) -> Result<Attempt, Fault> {
    if let Some(beside) = claim.beside
        && beside != claim.id
        && let Some(entry) = stand_beside(core, claim, beside, place, turn).await?
    {
        let grant = entry.grant;
        *turn.entry() = Some(entry);
        return Ok(Attempt::Granted(grant));
    }
    let queues = claim.enqueue && claim.beside.is_none();
    // Every node counts towards the end of the numbers: a name that is busy is looked at first.
    let looks = !queues && core.was_busy(&claim.name);
    if looks && is_busy(core, claim, place).await? {
        return Ok(BUSY);
    }
    let Some((entry, lists)) = stand_in_line(core, claim, place, Vec::new(), turn).await? else {
        return Err(fault::odd("nothing was to go"));
    };
    *turn.entry() = Some(entry);
    settle_in(core, claim, place, turn, lists, queues).await
}

/// Whether others hold or wait, by a list that is not of the past.
async fn is_busy(core: &Core, claim: &Claim, place: &Place) -> Result<bool, Fault> {
    let mut requests = vec![core.barrier()];
    requests.extend(Lists::requests(place, claim.mode));
    let mut answers = core.read(requests).await?.into_iter();
    answers.next();
    let lists = Lists::read(core, place, claim.mode, answers).await?;
    let line = core.line(&place.path, &lists.main).await?;
    let queue = core.line(&place.queue, &lists.queue).await?;
    Ok(match claim.mode {
        Mode::Permit { limit, count } => {
            let full = lists.leases.len() as u64 + u64::from(count) > u64::from(limit);
            full || !line.all().is_empty()
        }
        Mode::Read => line.all().iter().any(|one| one.alone) || !lists.leases.is_empty(),
        _ => !line.all().is_empty() || !lists.leases.is_empty() || !queue.all().is_empty(),
    })
}

/// A claim that has just come to the line: it holds, waits or leaves.
pub async fn settle_in(
    core: &Arc<Core>,
    claim: &Claim,
    place: &Place,
    turn: &mut Turn,
    mut lists: Lists,
    queues: bool,
) -> Result<Attempt, Fault> {
    loop {
        let Some(entry) = turn.entry() else {
            return Err(fault::odd("no entry"));
        };
        match standing::judge(core, place, entry, &lists).await? {
            // It was broken, or lapsed, at once.
            Verdict::Gone => {
                release::forget(core, turn).await?;
                return Ok(BUSY);
            }
            Verdict::Again => {}
            Verdict::Turn => {
                let asked = entry.asked;
                if !win(core, claim, place, entry, asked).await? {
                    *turn.entry() = None;
                    return Ok(BUSY);
                }
                return Ok(Attempt::Granted(entry.grant));
            }
            Verdict::Behind(_) if !queues => {
                release::remove(core, turn).await?;
                return Ok(BUSY);
            }
            Verdict::Behind(wait) => {
                if standing::arm(core, entry, &wait).await? {
                    let asked = entry.asked;
                    return Ok(keep_waiting(claim, entry, asked));
                }
            }
        }
        let requests = Lists::requests(place, claim.mode);
        let answers = core.read(requests).await?;
        lists = Lists::read(core, place, claim.mode, answers).await?;
    }
}

/// Puts a claim at the end of the line, and deletes `gone` in the same transaction. Returns its entry and the lists
/// right after, or `None` if what was to go is not there: then nothing was done.
pub async fn stand_in_line(
    core: &Arc<Core>,
    claim: &Claim,
    place: &Place,
    mut gone: Vec<String>,
    turn: &mut Turn,
) -> Result<Option<(Entry, Lists)>, Fault> {
    let tokens = claim.reserve.clamp(1, tokens::MOST);
    let mut folders = Vec::new();
    let releases = !gone.is_empty();
    for _ in 0..50 {
        let step = match core.base_step().await {
            Ok(step) => step,
            // What was to go is gone.
            Err(Fault::Store(error)) if releases && gone.is_empty() => {
                return Err(error.in_doubt().into());
            }
            Err(fault) => return Err(fault),
        };
        let fence = step
            .as_ref()
            .map_or(Fence::Native, |step| Fence::Base(step.micros));
        let data = data_of(core, claim, fence, tokens).write();
        let mut ops: Vec<Op> = gone
            .iter()
            .map(|path| Op::Delete { path: path.clone() })
            .collect();
        let deletes = ops.len();
        ops.extend(step.as_ref().map(|step| step.op.clone()));
        let creates = ops.len();
        for path in node_paths(core, claim, place) {
            ops.push(Op::Create {
                path,
                data: data.clone(),
                acl: core.acl(),
                kind: Kind::Sequential,
            });
        }
        let mut requests = std::mem::take(&mut folders);
        let before = requests.len();
        requests.push(Request::Multi(ops));
        requests.extend(Lists::requests(place, claim.mode));
        let replies = match core.prove(requests, claim.not_after).await {
            Ok(replies) => replies,
            Err(fault) => {
                if let Fault::Store(Error::OutcomeUnknown { .. }) = fault {
                    *turn.entry() = Some(in_doubt(core, claim));
                }
                return Err(match fault {
                    Fault::Store(error) if releases && gone.is_empty() => error.in_doubt().into(),
                    Fault::TooLate if releases && gone.is_empty() => {
                        let reason = "its time ended half way";
                        Error::outcome_unknown(super::url::KIND.store, reason).into()
                    }
                    fault => fault,
                });
            }
        };
        let mut answers = replies.answers.into_iter().skip(before);
        let made = match answers.next() {
            Some(Ok(Answer::Multi(made))) => made,
            Some(Ok(Answer::Failed(at, Code::NO_NODE))) if at < deletes => return Ok(None),
            Some(Ok(Answer::Failed(at, Code::BAD_VERSION | Code::NO_NODE))) if at < creates => {
                core.tokens().base = None;
                continue;
            }
            Some(Ok(Answer::Failed(_, Code::NO_NODE))) => {
                folders = core.folders(folder(claim, place));
                continue;
            }
            Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
                return Err(fault::of_code(code, &place.path));
            }
            _ => return Err(fault::odd("no list")),
        };
        core.committed(replies.sent);
        gone.clear();
        let made_all = made
            .iter()
            .filter(|one| matches!(one, Answer::Created { .. }));
        if made_all.count() < node_paths(core, claim, place).len() {
            *turn.entry() = Some(in_doubt(core, claim));
            return Err(fault::unclear("it made fewer nodes than it was asked for"));
        }
        let entry = placed(claim, fence, tokens, replies.session, replies.sent, made)?;
        if !is_sound(core, step.as_ref(), entry.czxid) {
            // An election came in between: its token may be too low.
            *turn.entry() = Some(entry);
            release::remove(core, turn).await?;
            continue;
        }
        let lists = Lists::read(core, place, claim.mode, answers).await;
        match lists {
            Ok(lists) => return Ok(Some((entry, lists))),
            Err(fault) => {
                *turn.entry() = Some(entry);
                return Err(fault);
            }
        }
    }
    Err(fault::odd("the folders of a name are swept all the time"))
}

fn is_sound(core: &Core, step: Option<&Step>, czxid: i64) -> bool {
    step.is_none_or(|step| core.tokens().done(step, czxid).is_some())
}

/// Where a claim stands in line.
pub fn folder<'a>(claim: &Claim, place: &'a Place) -> &'a str {
    match claim.mode {
        Mode::Permit { .. } => &place.queue,
        _ => &place.path,
    }
}

/// The nodes that a claim has in line, without their numbers.
fn node_paths(core: &Core, claim: &Claim, place: &Place) -> Vec<String> {
    let uuid = Uuid::from_u128(node_id(claim.id));
    let (folder, hex) = (folder(claim, place), uuid.simple());
    let queues = claim.enqueue && claim.beside.is_none();
    let tries = if queues { "" } else { line::TRYING };
    let curators = |marker: &str| format!("{folder}/_c_{uuid}-{tries}{marker}");
    let kazoos = |marker: &str| format!("{folder}/{hex}{marker}");
    let (rw, kazoo) = (core.settings.also_rw, core.settings.also_kazoo);
    let mut paths = Vec::with_capacity(3);
    match claim.mode {
        Mode::Permit { .. } => paths.push(curators("lock-")),
        Mode::Read => {
            paths.push(curators("__READ__"));
            if kazoo {
                paths.push(kazoos("__rlock__"));
            }
        }
        mode => {
            let write = mode == Mode::Write;
            if !write || rw {
                paths.push(curators("lock-"));
            }
            if write || rw {
                paths.push(curators("__WRIT__"));
            }
            if kazoo {
                paths.push(kazoos("__lock__"));
            }
        }
    }
    paths
}

fn placed(
    claim: &Claim,
    fence: Fence,
    tokens: u32,
    session: i64,
    sent: Moment,
    made: Vec<Answer>,
) -> Result<Entry, Fault> {
    let (mut nodes, mut czxid) = (Vec::new(), 0);
    for answer in made {
        if let Answer::Created { path, stat } = answer {
            nodes.push(path);
            czxid = stat.czxid;
        }
    }
    let first = nodes.first().and_then(|path| path.rsplit('/').next());
    let number = first
        .and_then(super::line::Contender::parse)
        .map(|one| one.number);
    let number = number.ok_or_else(|| fault::odd("a node without a number"))?;
    Ok(Entry {
        claim: claim.clone(),
        session,
        nodes,
        number,
        czxid,
        grant: tokens::grant(fence, czxid, tokens),
        told: claim.lease,
        asked: sent,
        state: State::Waiting(sent + QUEUE_TTL),
        behind: None,
        guard_at: None,
        beside: 0,
        leaving: false,
    })
}

/// A claim whose nodes have to be looked for.
pub fn in_doubt(core: &Core, claim: &Claim) -> Entry {
    let now = Moment::now();
    Entry {
        claim: claim.clone(),
        session: core.client.session(),
        nodes: Vec::new(),
        number: 0,
        czxid: 0,
        grant: Grant {
            token: Token::new(0),
            tokens: 1,
        },
        told: claim.lease,
        asked: now,
        state: State::Doubt(now + super::RETRY),
        behind: None,
        guard_at: None,
        beside: 0,
        leaving: false,
    }
}

/// A writer becomes a reader: its node has the writer's number, and so keeps its place. `None` if there is no such writer.
async fn stand_beside(
    core: &Arc<Core>,
    claim: &Claim,
    beside: ClaimId,
    place: &Place,
    turn: &mut Turn,
) -> Result<Option<Entry>, Fault> {
    let Some(mut other) = core.claims.take_known(beside).await else {
        return Ok(None);
    };
    let now = Moment::now();
    let session = core.client.session();
    let Some(writer) = other.entry().as_mut().filter(|writer| {
        let modes = may_stand_beside((claim.id, claim.mode), (beside, writer.claim.mode));
        modes && writer.claim.name == claim.name && writer.session == session && writer.holds(now)
    }) else {
        return Ok(None);
    };
    let native = core.settings.native;
    let above = u64::from(tokens::MOST) + u64::from(writer.beside.min(14));
    let token = writer.grant.token.get() + if native { 0 } else { above };
    let fence = Fence::Token(Token::new(token));
    let data = Data {
        place: Some(writer.czxid),
        ..data_of(core, claim, fence, 1)
    };
    let node = writer.nodes[0].rsplit('/').next();
    let number = node.and_then(line::written_number);
    let number = number.ok_or_else(|| fault::odd("a node without a number"))?;
    let uuid = Uuid::from_u128(node_id(claim.id));
    let mut ops = vec![Op::Check {
        path: writer.nodes[0].clone(),
        version: -1,
    }];
    let mut paths = vec![format!("{}/_c_{uuid}-__READ__{number}", place.path)];
    if core.settings.also_kazoo {
        paths.push(format!("{}/{}__rlock__{number}", place.path, uuid.simple()));
    }
    for path in &paths {
        ops.push(Op::Create {
            path: path.clone(),
            data: data.write(),
            acl: core.acl(),
            kind: Kind::Ephemeral,
        });
    }
    let replies = match core.prove(vec![Request::Multi(ops)], claim.not_after).await {
        Ok(replies) => replies,
        Err(fault) => {
            if let Fault::Store(Error::OutcomeUnknown { .. }) = fault {
                *turn.entry() = Some(in_doubt(core, claim));
            }
            return Err(fault);
        }
    };
    match replies.answers.into_iter().next() {
        Some(Ok(Answer::Multi(_))) => {}
        Some(Ok(Answer::Failed(0, Code::NO_NODE))) => return Ok(None),
        Some(Ok(Answer::Failed(_, code)) | Err(code)) => {
            return Err(fault::of_code(code, &place.path));
        }
        _ => return Err(fault::odd("no list")),
    }
    core.committed(replies.sent);
    writer.beside += 1;
    Ok(Some(Entry {
        session: replies.session,
        nodes: paths,
        number: writer.number,
        czxid: writer.czxid,
        grant: Grant {
            token: Token::new(token),
            tokens: 1,
        },
        asked: replies.sent,
        state: State::Held(replies.sent + claim.lease, claim.lease),
        guard_at: Some(Moment::now() + GUARD_AFTER),
        ..in_doubt(core, claim)
    }))
}
