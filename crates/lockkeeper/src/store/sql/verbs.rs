//! The verbs of the contract: a short cut where one statement is enough, else the rules on what is loaded.

use std::collections::HashMap;
use std::time::Duration;

use super::engine::{Engine, Op, Reply, moment};
use super::plan::{Plan, version};
use super::{Shared, join};
use crate::clock::Moment;
use crate::store::common::polling;
use crate::store::record::{Ended, Hold, Missing, Now, Record, Step};
use crate::store::*;

/// How much of a queue is loaded at first: the head, and whether somebody stands behind it.
const HEAD: usize = 2;
/// How often a save is tried that others were faster than. Each of them has done something.
const TRIES: u32 = 200;
/// How many names are asked for at a time.
const PAGE: usize = 256;
/// How often a keeper's row is refreshed.
const ENLIST_EVERY: Duration = Duration::from_secs(600);
/// The same where that is refused, since its table is missing.
const ENLIST_AGAIN: Duration = Duration::from_secs(10);

/// What the rules made of a name.
struct Applied<T> {
    answer: T,
    /// The record afterwards.
    record: Record,
    /// The server's time by which the rules were applied.
    now: Moment,
    /// Whether the name has a row.
    known: bool,
}

impl<E: Engine> Shared<E> {
    /// Applies a rule to a name: loads it, and saves what has changed if nobody else was faster.
    async fn apply<T>(
        &self,
        name: &Name,
        not_after: Moment,
        (mut limit, always): (usize, bool),
        rule: impl Fn(&Record, Now<'_>) -> Result<Step<T>, Missing>,
    ) -> Result<Applied<T>, Error> {
        for tries in 0..TRIES {
            if tries > 2 {
                // The caller may run where there are no timers.
                let pause = async { tokio::time::sleep(polling::pause() / 8).await };
                let _ = self.runtime.spawn(pause).await;
            }
            let (mut step, plan, asked) = loop {
                let load = Op::Load {
                    name: name.clone(),
                    limit,
                };
                let Reply::Loaded(loaded) = self.ask(load).await? else {
                    return Err(self.confused());
                };
                let plan = Plan::new(*loaded);
                let now = Now {
                    moment: moment(plan.loaded.now),
                    asked: Moment::now(),
                    wall_micros: plan.loaded.now,
                    may_grant: plan.loaded.may_grant,
                    me: 0,
                    lives: &|_| Some(true),
                };
                match rule(&plan.loaded.record, now) {
                    Ok(step) => break (step, plan, now.asked),
                    Err(_) => limit *= 8,
                }
            };
            plan.lengthen(&mut step.changes, self.engine.slowness());
            let end = self.engine.clock().at(not_after);
            let (record, save) = plan.save(name, step.changes, end, always);
            let applied = Applied {
                answer: step.answer,
                now: moment(plan.loaded.now),
                known: plan.loaded.seen.is_some() || save.is_some(),
                record,
            };
            // No save of a late request is taken. All that it could change is what time alone has, and that is found the next time.
            let Some(save) = save.filter(|_| asked <= not_after) else {
                return Ok(applied);
            };
            if let Reply::Done = self.ask(Op::Save(Box::new(save))).await? {
                return Ok(applied);
            }
        }
        Err(self.engine.kind().unavailable(format!(
            "others changed {name:?} {TRIES} times before this could be saved; try again"
        )))
    }

    pub async fn acquire(&self, claim: &Claim) -> Result<Attempt, Error> {
        self.grants_for(claim.lease)?;
        let sent = Moment::now();
        self.enlist(claim.id.keeper).await;
        let attempt = self.attempt(claim).await?;
        match attempt {
            Attempt::Busy { .. } if claim.enqueue => self.engine.mailbox().waiting(claim.id, sent),
            Attempt::Granted(_) => {
                self.engine.mailbox().forget(claim.id);
                self.engine.mailbox().holds(claim.id, claim.lease);
                self.tidy_now_and_then(&claim.name);
            }
            _ => {}
        }
        Ok(attempt)
    }

    async fn attempt(&self, claim: &Claim) -> Result<Attempt, Error> {
        if Moment::now() > claim.not_after {
            return Ok(Attempt::TooLate);
        }
        let queues = claim.enqueue && claim.beside.is_none() && claim.mode.admits([]);
        let takes = claim.mode.is_exclusive() && claim.beside.is_none();
        // Where others were in the way the last time they still are, mostly. A claim that waits holds by now, or waits on.
        let waits = || self.engine.mailbox().waits(claim.id);
        let crowded = queues && (self.crowded().contains(&claim.name) || waits());
        let not_after = self.engine.clock().at(claim.not_after);
        let take = || Op::Take {
            claim: claim.clone(),
            not_after,
        };
        let append = || Op::Append {
            claim: claim.clone(),
            not_after,
        };
        // A claim that was hinted holds by now, mostly. Its grant becomes durable here, where that costs a wait for the disk.
        if queues && self.engine.mailbox().was_hinted(claim.id) && !claim.lease.is_zero() {
            let prolong = Op::Prolong {
                name: claim.name.clone(),
                claim: claim.id,
                lease: claim.lease,
                not_after,
            };
            if let Reply::Granted(grant) = self.ask(prolong).await? {
                return Ok(Attempt::Granted(grant));
            }
        }
        let first = (takes && !crowded).then(take);
        let second = queues.then(append);
        let third = (takes && crowded).then(take);
        for op in [first, second, third].into_iter().flatten() {
            let appends = matches!(op, Op::Append { .. });
            match self.ask(op).await? {
                Reply::Granted(grant) => {
                    if !appends {
                        self.crowded().remove(&claim.name);
                    }
                    return Ok(Attempt::Granted(grant));
                }
                Reply::Held { free_in } if appends || !queues => {
                    if appends {
                        self.is_crowded(&claim.name);
                    }
                    let free_in = Some(free_in);
                    return Ok(Attempt::Busy { free_in });
                }
                _ => {}
            }
        }
        let rule = |record: &Record, now: Now<'_>| record.try_acquire(claim, now);
        let applied = self.apply(&claim.name, claim.not_after, (HEAD, false), rule);
        Ok(applied.await?.answer)
    }

    pub async fn withdraw(&self, name: &Name, claim: ClaimId) -> Result<(), Error> {
        self.engine.mailbox().forget(claim);
        self.engine.mailbox().let_go(claim);
        if self.engine.leave(name, claim).await {
            return Ok(());
        }
        let rule = |record: &Record, now: Now<'_>| record.withdraw(claim, now);
        // The version moves in any case: a save of the claim that is still on its way does nothing then.
        self.apply(name, Moment::NEVER, (HEAD, true), rule).await?;
        Ok(())
    }

    pub async fn let_go(&self, release: &Release) -> Result<Released, Error> {
        let name = &release.name;
        if let Some(next) = &release.requeue {
            self.grants_for(next.lease)?;
        }
        self.engine.mailbox().let_go(release.claim);
        if release.requeue.is_none() && !self.crowded().contains(name) {
            let free = Op::Free {
                name: name.clone(),
                claim: release.claim,
            };
            if let Reply::Done = self.ask(free).await? {
                return Ok(Released {
                    was_held: true,
                    regrant: None,
                });
            }
        }
        let sent = Moment::now();
        if let Some(next) = &release.requeue {
            self.enlist(next.id.keeper).await;
        }
        let rule = |record: &Record, now: Now<'_>| record.release(release, now);
        let applied = self.apply(name, Moment::NEVER, (HEAD, false), rule).await?;
        let queue = &applied.record.queue;
        match queue.more || !queue.first.is_empty() {
            true => self.is_crowded(name),
            false => drop(self.crowded().remove(name)),
        }
        if let Some(next) = &release.requeue
            && applied.answer.was_held
            && sent <= next.not_after
        {
            match applied.answer.regrant {
                Some(_) => self.engine.mailbox().holds(next.id, next.lease),
                None => self.engine.mailbox().waiting(next.id, sent),
            }
        }
        Ok(applied.answer)
    }

    pub async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let lengths = renewals.iter().map(|one| one.lease);
        self.grants_for(lengths.max().unwrap_or_default())?;
        let asked = renewals.iter().map(|one| self.prolong(one));
        let asked = join::all(asked.collect()).await;
        let mut missed: Vec<usize> = Vec::new();
        let mut answers: Vec<Result<Renewed, Error>> = Vec::with_capacity(renewals.len());
        for (at, asked) in asked.into_iter().enumerate() {
            if let Ok(None) = asked {
                missed.push(at);
            }
            answers.push(asked.map(|done| done.unwrap_or(Renewed::NotHeld)));
        }
        // Those of one name that are late together.
        let key = |at: usize| (&renewals[at].name, renewals[at].not_after);
        missed.sort_by(|&one, &other| key(one).cmp(&key(other)));
        let of_names = missed.chunk_by(|&one, &other| key(one) == key(other));
        let long = of_names.map(|places| async move {
            let of_one: Vec<Renewal> = places.iter().map(|&at| renewals[at].clone()).collect();
            (places, self.renew_by_rule(&of_one).await)
        });
        for (places, renewed) in join::all(long.collect()).await {
            for (number, &at) in places.iter().enumerate() {
                answers[at] = renewed.clone().map(|renewed| renewed[number]);
            }
        }
        // One that failed is not told of the others, if there were any that did not.
        let failed = answers.iter().find_map(|answer| answer.clone().err());
        match failed {
            Some(error) if answers.iter().all(Result::is_err) => Err(error),
            _ => {
                let answers = answers.into_iter();
                Ok(answers
                    .map(|answer| answer.unwrap_or(Renewed::Unknown))
                    .collect())
            }
        }
    }

    async fn prolong(&self, renewal: &Renewal) -> Result<Option<Renewed>, Error> {
        if Moment::now() > renewal.not_after {
            return Ok(Some(Renewed::TooLate));
        }
        if renewal.lease.is_zero() {
            return Ok(None);
        }
        let op = Op::Prolong {
            name: renewal.name.clone(),
            claim: renewal.claim,
            lease: renewal.lease,
            not_after: self.engine.clock().at(renewal.not_after),
        };
        Ok(match self.ask(op).await? {
            Reply::Done | Reply::Granted(_) => {
                self.engine.mailbox().holds(renewal.claim, renewal.lease);
                Some(Renewed::Renewed)
            }
            _ => None,
        })
    }

    async fn renew_by_rule(&self, of_one: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let rule = |record: &Record, now: Now<'_>| record.renew_all(of_one, now);
        let Renewal {
            name, not_after, ..
        } = &of_one[0];
        let applied = self.apply(name, *not_after, (HEAD, false), rule);
        Ok(applied.await?.answer)
    }

    pub async fn look(&self, name: &Name) -> Result<Option<LockInfo>, Error> {
        let limit = (MAX_LISTED + 1, false);
        let applied = loop {
            let applied = self.apply(name, Moment::NEVER, limit, Record::inspect);
            let applied = applied.await?;
            // Those who lapsed took places in what was loaded. They are gone now, so others come next.
            let queue = &applied.record.queue;
            if !queue.more || queue.first.len() >= MAX_LISTED {
                break applied;
            }
        };
        let waiters = match applied.record.queue.more {
            true => match self.ask(Op::Count { name: name.clone() }).await? {
                Reply::Count(waiters) => Some(waiters),
                _ => return Err(self.confused()),
            },
            false => None,
        };
        let mut infos = self
            .describe(vec![(name.clone(), applied, waiters)])
            .await?;
        Ok(infos.pop())
    }

    pub async fn look_all(&self, prefix: &str) -> Result<Vec<LockInfo>, Error> {
        let (mut infos, mut after) = (Vec::new(), None);
        loop {
            let page = Op::Names {
                prefix: prefix.to_owned(),
                after,
                limit: PAGE,
            };
            let Reply::Names(names) = self.ask(page).await? else {
                return Err(self.confused());
            };
            let last = names.last().map(|(name, _)| name.clone());
            let whole = names.len() < PAGE;
            let names = names
                .into_iter()
                .filter_map(|(name, waiters)| Some((Name::new(&name).ok()?, waiters)));
            let looks = names.map(|(name, waiters)| async move {
                let applied = self.apply(&name, Moment::NEVER, (HEAD, false), Record::inspect);
                Ok::<_, Error>((name.clone(), applied.await?, Some(waiters)))
            });
            let looked = join::all(looks.collect()).await;
            let looked: Result<Vec<_>, Error> = looked.into_iter().collect();
            infos.extend(self.describe(looked?).await?);
            if whole || last.is_none() {
                break;
            }
            after = last;
        }
        infos.retain(|info: &LockInfo| !info.holders.is_empty() || info.waiters > 0);
        for info in &mut infos {
            info.queue.clear();
        }
        Ok(infos)
    }

    /// Names as people see them, with who is behind each claim.
    async fn describe(
        &self,
        names: Vec<(Name, Applied<()>, Option<usize>)>,
    ) -> Result<Vec<LockInfo>, Error> {
        let holding = |record: &Record| -> Vec<KeeperId> {
            let holds = record.holds.iter().map(|hold| hold.claim.keeper);
            let queue = record.queue.first.iter().map(|entry| entry.claim.keeper);
            holds.chain(queue).collect()
        };
        let keepers = names
            .iter()
            .flat_map(|(_, applied, _)| holding(&applied.record));
        let processes = self.processes(keepers.collect()).await?;
        let mut infos = Vec::with_capacity(names.len());
        for (name, mut applied, waiters) in names {
            let record = &mut applied.record;
            let keepers = holding(record);
            // Numbered for this one description.
            for (number, hold) in record.holds.iter_mut().enumerate() {
                hold.process = number as i64;
            }
            let behind = record.holds.len();
            for (number, entry) in record.queue.first.iter_mut().enumerate() {
                entry.process = (behind + number) as i64;
            }
            let known = applied.known
                && (!record.is_idle() || record.broken.is_some() || record.last_token > 0);
            if !known {
                continue;
            }
            let mut info = record.info(&name, applied.now, |number| {
                behind_of(&processes, keepers[number as usize])
            });
            info.waiters = waiters.unwrap_or(info.waiters);
            infos.push(info);
        }
        Ok(infos)
    }

    async fn processes(
        &self,
        mut keepers: Vec<KeeperId>,
    ) -> Result<HashMap<KeeperId, Process>, Error> {
        keepers.sort_unstable();
        keepers.dedup();
        if keepers.is_empty() {
            return Ok(HashMap::new());
        }
        match self.ask(Op::Processes(keepers)).await? {
            Reply::Processes(found) => Ok(found.into_iter().collect()),
            _ => Err(self.confused()),
        }
    }

    pub async fn break_holds(&self, request: &Break) -> Result<BreakOutcome, Error> {
        let rule = |record: &Record, now: Now<'_>| record.break_lock(request, now);
        let applied = self.apply(&request.name, request.not_after, (HEAD, false), rule);
        let applied = applied.await?;
        let holds = match &applied.answer {
            Ended::These(holds) | Ended::NotHeld(holds) => holds.as_slice(),
            Ended::TooLate => return Ok(BreakOutcome::TooLate),
        };
        let keepers = holds.iter().map(|hold| hold.claim.keeper).collect();
        let processes = self.processes(keepers).await.unwrap_or_default();
        let holder =
            |hold: &Hold| hold.holder(applied.now, behind_of(&processes, hold.claim.keeper));
        let holders = holds.iter().map(holder).collect();
        Ok(match applied.answer {
            Ended::NotHeld(_) => BreakOutcome::NotHeld(holders),
            _ => BreakOutcome::Ended(holders),
        })
    }

    pub async fn count(&self, request: &LatchRequest) -> Result<LatchState, Error> {
        for _ in 0..TRIES {
            let (name, id) = (request.name.clone(), request.id);
            let Reply::Latch(seen, latch) = self.ask(Op::LoadLatch { name, id }).await? else {
                return Err(self.confused());
            };
            let (answer, change) = latch.apply(request, Moment::now());
            let Some(change) = change else {
                return Ok(answer);
            };
            let save = Op::SaveLatch {
                name: request.name.clone(),
                id,
                seen,
                version: version(),
                change,
                not_after: self.engine.clock().at(request.not_after),
            };
            if let Reply::Done = self.ask(save).await? {
                return Ok(answer);
            }
        }
        Err(self.engine.kind().unavailable(format!(
            "others changed the latch {:?} {TRIES} times before this could be saved; try again",
            request.name
        )))
    }

    /// Refuses a lease that is longer than the longest: a server that sits out counts on it.
    fn grants_for(&self, lease: Duration) -> Result<(), Error> {
        let can = self.engine.capabilities();
        match lease > can.longest_lease {
            true => can.check_lease(lease),
            false => Ok(()),
        }
    }

    /// Says who this keeper is, once in a while. Only for people: an error does not matter.
    async fn enlist(&self, keeper: KeeperId) {
        let now = Moment::now();
        let next = self.enlisted().get(&keeper).copied();
        if next.is_some_and(|next| now < next) {
            return;
        }
        let enlist = Op::Enlist(keeper, self.process.clone());
        let pause = match self.ask(enlist).await {
            Ok(_) => ENLIST_EVERY,
            Err(Error::Refused { .. }) => ENLIST_AGAIN,
            Err(_) => return,
        };
        self.enlisted().insert(keeper, now + pause);
    }
}

/// The process behind a keeper, as far as it is known.
fn behind_of(processes: &HashMap<KeeperId, Process>, keeper: KeeperId) -> Process {
    let process = processes.get(&keeper).cloned();
    process.unwrap_or_else(|| Process::unknown(""))
}
