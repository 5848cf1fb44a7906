//! Puts events together: each acquire with its answer, renewals, releases and loss.

use std::collections::{BTreeMap, HashMap};

use super::{Rule, Violation};
use crate::history::{Answer, Call, Entry, Event, Fault, LatchAsk, Mode, What};

/// A whole history, by lock and by resource.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub locks: BTreeMap<String, Lock>,
    pub writes: BTreeMap<String, Vec<Write>>,
    pub entries: BTreeMap<String, Vec<Entry>>,
    pub contradictions: Vec<Violation>,
    pub faults: Vec<(u64, Fault)>,
    pub latches: BTreeMap<String, Vec<LatchStep>>,
    /// When something was about to be broken, and when that was over.
    pub troubles: Vec<(u64, u64)>,
    /// When the faults were over.
    pub healed: Vec<u64>,
    pub left: Vec<String>,
    pub unknown: usize,
    last: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lock {
    pub name: String,
    pub acquires: Vec<Acquire>,
    pub breaks: Vec<Break>,
    /// What was seen of its line.
    pub lines: Vec<Seen>,
}

/// When a lock was broken, or may have been: holds from before end here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Break {
    pub asked: u64,
    /// When its outcome was reported, whatever it was: from then on it does nothing more.
    pub done: u64,
    /// Whether it was told to have ended the holds.
    pub sure: bool,
}

/// A look at how many claims wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub invoked: u64,
    pub completed: Option<u64>,
    pub waiting: Option<usize>,
}

/// Something that was asked of a latch.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatchStep {
    pub ask: LatchAsk,
    pub invoked: u64,
    pub completed: Option<u64>,
    /// What it was told: a count, or whether the latch was changed.
    pub told: Option<LatchTold>,
    pub failed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LatchTold {
    Count(u32),
    Changed(bool),
}

/// One acquire and the hold it may have begun.
#[derive(Debug)]
pub(super) struct Acquire {
    pub process: String,
    pub owner: String,
    pub mode: Mode,
    /// The number that the acquires of one `MultiLock` share.
    pub together: Option<u64>,
    /// Begun by a downgrade of this owner's hold for writing.
    pub downgraded: bool,
    pub invoked: u64,
    /// When the hold of the store was first asked for that it has a part in. The tasks of a process may share one, hand it
    /// on and enter it again, also for a while after it was broken.
    pub since: u64,
    /// When it was answered or failed; `None` when its process died meanwhile.
    pub completed: Option<u64>,
    pub outcome: Outcome,
    /// In the order in which they were answered.
    pub renewals: Vec<Renewal>,
    /// When a look at the guard said yes, and until when it said to hold.
    pub looks: Vec<(u64, u64)>,
    pub releases: Vec<Release>,
    pub lost: Option<u64>,
    /// When its process was about to be killed: nobody is left to believe in the hold.
    pub killed: Option<u64>,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Granted(Hold),
    Busy,
    Failed,
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub ok: u64,
    /// From when on it keeps others out: a downgraded hold never stopped to.
    pub from: u64,
    pub token: u64,
    pub depth: u32,
    pub deadline: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    pub invoked: u64,
    pub answered: u64,
    pub deadline: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Release {
    pub owner: String,
    pub invoked: u64,
    pub completed: Option<u64>,
    pub answer: Option<Answer>,
}

#[derive(Clone, Debug)]
pub(super) struct Write {
    pub invoked: u64,
    pub completed: Option<u64>,
    pub token: u64,
    pub base: u64,
    pub value: u64,
    pub answer: Option<Answer>,
    pub failed: bool,
}

/// A granted acquire with the part of its hold that its holder had a right to believe in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Valid<'a> {
    pub acquire: &'a Acquire,
    pub hold: Hold,
    pub end: u64,
}

impl Release {
    fn asked(event: &Event, owner: &str) -> Release {
        Release {
            owner: owner.to_owned(),
            invoked: event.at,
            completed: None,
            answer: None,
        }
    }
}

impl Acquire {
    fn asked(event: &Event, owner: &str, mode: Mode) -> Acquire {
        Acquire {
            process: event.process.clone(),
            owner: owner.to_owned(),
            mode,
            together: None,
            downgraded: false,
            invoked: event.at,
            since: event.at,
            completed: None,
            outcome: Outcome::Unknown,
            renewals: Vec::new(),
            looks: Vec::new(),
            releases: Vec::new(),
            lost: None,
            killed: None,
        }
    }

    pub fn hold(&self) -> Option<Hold> {
        match self.outcome {
            Outcome::Granted(hold) => Some(hold),
            _ => None,
        }
    }

    /// Takes its answer in. False if that is none to an acquire.
    fn complete(&mut self, at: u64, answer: Option<&Answer>, failed: bool) -> bool {
        self.completed = Some(at);
        self.outcome = match answer {
            Some(&Answer::Granted {
                token,
                deadline,
                depth,
            }) => Outcome::Granted(Hold {
                ok: at,
                from: if self.downgraded { self.invoked } else { at },
                token,
                depth,
                deadline,
            }),
            Some(Answer::Busy) => Outcome::Busy,
            None if failed => Outcome::Failed,
            None => Outcome::Unknown,
            Some(_) => return false,
        };
        true
    }

    /// The latest deadline the holder was told.
    pub fn deadline(&self) -> Option<u64> {
        let renewed = self.renewals.iter().map(|renewal| renewal.deadline);
        let seen = self.looks.iter().map(|(_, deadline)| *deadline);
        Some(renewed.chain(seen).fold(self.hold()?.deadline, u64::max))
    }

    /// When the holder itself began to let go.
    pub fn release_invoked(&self) -> Option<u64> {
        let own = self.releases.iter().filter(|r| r.owner == self.owner);
        own.map(|release| release.invoked).min()
    }

    /// Whether some release of this hold said that it freed the lock.
    pub fn released(&self) -> Option<&Release> {
        self.release_told(&Answer::Released)
    }

    /// Some release of this hold that was told this.
    pub fn release_told(&self, answer: &Answer) -> Option<&Release> {
        let mut all = self.releases.iter();
        all.find(|release| release.answer.as_ref() == Some(answer))
    }
}

impl Lock {
    /// Every hold, in order of its start, with the end of its validity.
    pub fn valid_holds(&self) -> Vec<Valid<'_>> {
        let mut holds: Vec<Valid<'_>> = self
            .acquires
            .iter()
            .filter_map(|acquire| {
                let hold = acquire.hold()?;
                let end = self.end(acquire)?;
                Some(Valid { acquire, hold, end })
            })
            .collect();
        holds.sort_by_key(|valid| valid.hold.ok);
        holds
    }

    /// The end of a hold's validity; before its start when it was granted too late to be of use.
    pub fn end(&self, acquire: &Acquire) -> Option<u64> {
        acquire.hold()?;
        let ends = [
            acquire.deadline(),
            acquire.release_invoked(),
            acquire.lost,
            acquire.killed,
            self.broken(acquire),
        ];
        ends.into_iter().flatten().min()
    }

    /// When the lock was first broken since a hold was asked for. What was granted meanwhile may have been
    /// ended by it before its holder knew, so a break ends also what was still on its way.
    pub fn broken(&self, acquire: &Acquire) -> Option<u64> {
        let mut breaks = self.breaks.iter();
        let first = breaks.find(|one| one.done >= acquire.since)?;
        Some(first.asked)
    }

    /// Traces what tasks of one process have of each other back to where it was asked for.
    fn trace(&mut self) {
        let mut parts: Vec<(&str, u64, usize)> = Vec::new();
        for (index, acquire) in self.acquires.iter().enumerate() {
            if let Some(hold) = acquire.hold() {
                parts.push((&acquire.process, hold.token, index));
            }
        }
        parts.sort_unstable();
        let mut since: Vec<u64> = self.acquires.iter().map(|a| a.invoked).collect();
        for shared in parts.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let first = shared.iter().map(|part| since[part.2]).min();
            shared
                .iter()
                .for_each(|part| since[part.2] = first.unwrap_or(since[part.2]));
        }
        parts.retain(|part| self.acquires[part.2].mode == Mode::Exclusive);
        for pair in parts.windows(2) {
            let (before, next) = (pair[0], pair[1]);
            if before.0 == next.0 && next.1 - before.1 <= HANDED_ON {
                since[next.2] = since[next.2].min(since[before.2]);
            }
        }
        for (acquire, since) in self.acquires.iter_mut().zip(since) {
            acquire.since = since;
        }
    }

    pub fn violation(&self, rule: Rule, text: String) -> Violation {
        Violation {
            rule,
            at: self.name.clone(),
            text,
        }
    }
}

/// How far the tokens are apart at most of two tasks that hand a hold on: each task has the next one, some are given up. The
/// store's own are as far apart as the microseconds between two grants.
const HANDED_ON: u64 = 16;

/// Where an operation's record is kept, while its answer is awaited.
enum Slot {
    Acquire(String, usize),
    Renew(OpId, u64),
    Release(OpId, usize),
    Write(String, usize),
    Break(String, usize),
    Downgrade {
        reader: (String, usize),
        writer: OpId,
        release: usize,
    },
    Inspect(String, usize),
    Latch(String, usize),
}

type OpId = (String, u64);

impl Run {
    pub fn build(events: &[Event]) -> Run {
        let mut order: Vec<&Event> = events.iter().collect();
        order.sort_by_key(|event| event.at);
        let mut run = Run::default();
        let mut slots: HashMap<OpId, Slot> = HashMap::new();
        run.last = order.last().map_or(0, |event| event.at);
        for event in order {
            run.add(event, &mut slots);
        }
        run.bury();
        run.locks.values_mut().for_each(Lock::trace);
        run.unknown += slots.values().filter(|slot| run.is_open(slot)).count();
        run
    }

    /// When its last event was.
    pub fn end(&self) -> u64 {
        self.last
    }

    /// Ends what killed processes held.
    fn bury(&mut self) {
        for (at, fault) in &self.faults {
            let Fault::Killed { process } = fault else {
                continue;
            };
            let acquires = self.locks.values_mut().flat_map(|lock| &mut lock.acquires);
            for acquire in acquires.filter(|acquire| acquire.process == *process) {
                acquire.killed = Some(*at);
            }
        }
    }

    fn add(&mut self, event: &Event, slots: &mut HashMap<OpId, Slot>) {
        let id = |op: u64| (event.process.clone(), op);
        match &event.what {
            What::Invoke { op, call } => {
                let slot = self.invoke(event, call, slots);
                match slot {
                    Some(slot) => drop(slots.insert(id(*op), slot)),
                    None => self.contradiction(event, "names a hold that was never asked for"),
                }
            }
            What::Ok { op, answer } => self.complete(event, &id(*op), Some(answer), false, slots),
            What::Fail { op, .. } => self.complete(event, &id(*op), None, true, slots),
            What::Unknown { op, .. } => {
                self.unknown += 1;
                self.complete(event, &id(*op), None, false, slots);
            }
            What::Lost { hold } => match self.acquire(&id(*hold), slots) {
                Some(acquire) => acquire.lost = Some(acquire.lost.unwrap_or(event.at)),
                None => self.contradiction(event, "loses a hold that was never asked for"),
            },
            What::Look {
                hold,
                asked,
                deadline,
            } => match self.acquire(&id(*hold), slots) {
                Some(acquire) => acquire.looks.push((*asked, *deadline)),
                None => self.contradiction(event, "looks at a hold that was never asked for"),
            },
            What::Trouble => self.troubles.push((event.at, u64::MAX)),
            What::Healed => {
                self.healed.push(event.at);
                let open = self.troubles.iter_mut().filter(|(_, end)| *end == u64::MAX);
                open.for_each(|(_, end)| *end = event.at);
            }
            What::Left { what } => self.left.push(what.clone()),
            What::Fault(fault) => self.faults.push((event.at, fault.clone())),
            What::Entry(entry) => self
                .entries
                .entry(entry.resource.clone())
                .or_default()
                .push(entry.clone()),
        }
    }

    fn invoke(&mut self, event: &Event, call: &Call, slots: &HashMap<OpId, Slot>) -> Option<Slot> {
        Some(match call {
            Call::Acquire {
                lock,
                owner,
                mode,
                together,
            } => {
                let record = self.lock(lock);
                let mut acquire = Acquire::asked(event, owner, *mode);
                acquire.together = *together;
                record.acquires.push(acquire);
                Slot::Acquire(lock.clone(), record.acquires.len() - 1)
            }
            Call::Downgrade { hold } => {
                let writer = (event.process.clone(), *hold);
                let Some(Slot::Acquire(lock, _)) = slots.get(&writer) else {
                    return None;
                };
                let lock = lock.clone();
                let held = self.acquire(&writer, slots)?;
                let owner = held.owner.clone();
                // It ends its time as a writer, and nobody else knows when.
                held.releases.push(Release::asked(event, &owner));
                let release = held.releases.len() - 1;
                let record = self.lock(&lock);
                let mut acquire = Acquire::asked(event, &owner, Mode::Read);
                acquire.downgraded = true;
                record.acquires.push(acquire);
                Slot::Downgrade {
                    reader: (lock, record.acquires.len() - 1),
                    writer,
                    release,
                }
            }
            Call::Inspect { lock } => {
                let lines = &mut self.lock(lock).lines;
                lines.push(Seen {
                    invoked: event.at,
                    completed: None,
                    waiting: None,
                });
                Slot::Inspect(lock.clone(), lines.len() - 1)
            }
            Call::Latch { latch, ask } => {
                let steps = self.latches.entry(latch.clone()).or_default();
                steps.push(LatchStep {
                    ask: *ask,
                    invoked: event.at,
                    completed: None,
                    told: None,
                    failed: false,
                });
                Slot::Latch(latch.clone(), steps.len() - 1)
            }
            Call::Renew { hold } => Slot::Renew((event.process.clone(), *hold), event.at),
            Call::Release { hold, owner } => {
                let id = (event.process.clone(), *hold);
                let acquire = self.acquire(&id, slots)?;
                acquire.releases.push(Release::asked(event, owner));
                let index = acquire.releases.len() - 1;
                Slot::Release(id, index)
            }
            Call::Break { lock } => {
                let breaks = &mut self.lock(lock).breaks;
                breaks.push(Break {
                    asked: event.at,
                    done: u64::MAX,
                    sure: false,
                });
                Slot::Break(lock.clone(), breaks.len() - 1)
            }
            Call::Write {
                resource,
                token,
                base,
                value,
            } => {
                let writes = self.writes.entry(resource.clone()).or_default();
                writes.push(Write {
                    invoked: event.at,
                    completed: None,
                    token: *token,
                    base: *base,
                    value: *value,
                    answer: None,
                    failed: false,
                });
                Slot::Write(resource.clone(), writes.len() - 1)
            }
        })
    }

    fn complete(
        &mut self,
        event: &Event,
        id: &OpId,
        answer: Option<&Answer>,
        failed: bool,
        slots: &HashMap<OpId, Slot>,
    ) {
        let fits = match slots.get(id) {
            None => false,
            Some(Slot::Acquire(..)) => self
                .acquire(id, slots)
                .is_some_and(|acquire| acquire.complete(event.at, answer, failed)),
            Some(Slot::Downgrade {
                writer, release, ..
            }) => {
                let granted = matches!(answer, Some(Answer::Granted { .. }));
                if let Some(writer) = self.acquire(writer, slots) {
                    let release = &mut writer.releases[*release];
                    release.completed = Some(event.at);
                    release.answer = granted.then_some(Answer::Released);
                }
                self.acquire(id, slots)
                    .is_some_and(|acquire| acquire.complete(event.at, answer, failed))
            }
            Some(Slot::Inspect(lock, index)) => {
                let seen = &mut self.lock(lock).lines[*index];
                seen.completed = Some(event.at);
                seen.waiting = match answer {
                    Some(Answer::Waiting(count)) => Some(*count),
                    _ => None,
                };
                matches!(answer, None | Some(Answer::Waiting(_)))
            }
            Some(Slot::Latch(latch, index)) => {
                let steps = self.latches.get_mut(latch);
                steps.and_then(|all| all.get_mut(*index)).is_some_and(|s| {
                    s.completed = Some(event.at);
                    s.failed = failed;
                    s.told = match answer {
                        Some(Answer::Count(count)) => Some(LatchTold::Count(*count)),
                        Some(Answer::Changed(changed)) => Some(LatchTold::Changed(*changed)),
                        _ => None,
                    };
                    answer.is_none() || s.told.is_some()
                })
            }
            Some(Slot::Renew(hold, invoked)) => {
                self.complete_renewal((*invoked, event.at), hold, answer, slots)
            }
            Some(Slot::Release(hold, index)) => self.acquire(hold, slots).is_some_and(|acquire| {
                let release = &mut acquire.releases[*index];
                release.completed = Some(event.at);
                release.answer = answer.cloned();
                matches!(
                    answer,
                    None | Some(
                        Answer::Released
                            | Answer::StillHeld { .. }
                            | Answer::NotHeld
                            | Answer::Dropped
                    )
                )
            }),
            Some(Slot::Break(lock, index)) => {
                let broken = &mut self.lock(lock).breaks[*index];
                broken.done = event.at;
                broken.sure = answer == Some(&Answer::Broken);
                matches!(answer, None | Some(Answer::Broken))
            }
            Some(Slot::Write(resource, index)) => {
                let writes = self.writes.get_mut(resource);
                writes.and_then(|all| all.get_mut(*index)).is_some_and(|w| {
                    w.completed = Some(event.at);
                    w.answer = answer.cloned();
                    w.failed = failed;
                    matches!(
                        answer,
                        None | Some(Answer::Accepted { .. } | Answer::Refused { .. })
                    )
                })
            }
        };
        if !fits {
            self.contradiction(event, "answers what was not asked");
        }
    }

    fn complete_renewal(
        &mut self,
        (invoked, answered): (u64, u64),
        hold: &OpId,
        answer: Option<&Answer>,
        slots: &HashMap<OpId, Slot>,
    ) -> bool {
        let Some(acquire) = self.acquire(hold, slots) else {
            return false;
        };
        match answer {
            Some(&Answer::Renewed { deadline }) => acquire.renewals.push(Renewal {
                invoked,
                answered,
                deadline,
            }),
            None | Some(Answer::NotHeld) => {}
            Some(_) => return false,
        }
        true
    }

    fn lock(&mut self, name: &str) -> &mut Lock {
        let lock = self.locks.entry(name.to_owned()).or_default();
        name.clone_into(&mut lock.name);
        lock
    }

    fn acquire(&mut self, id: &OpId, slots: &HashMap<OpId, Slot>) -> Option<&mut Acquire> {
        let (lock, index) = match slots.get(id)? {
            Slot::Acquire(lock, index)
            | Slot::Downgrade {
                reader: (lock, index),
                ..
            } => (lock, index),
            _ => return None,
        };
        self.locks.get_mut(lock)?.acquires.get_mut(*index)
    }

    fn is_open(&self, slot: &Slot) -> bool {
        match slot {
            Slot::Acquire(lock, index)
            | Slot::Downgrade {
                reader: (lock, index),
                ..
            } => self.locks[lock].acquires[*index].completed.is_none(),
            Slot::Latch(latch, index) => self.latches[latch][*index].completed.is_none(),
            Slot::Write(resource, index) => self.writes[resource][*index].completed.is_none(),
            _ => false,
        }
    }

    fn contradiction(&mut self, event: &Event, text: &str) {
        self.contradictions.push(Violation {
            rule: Rule::History,
            at: event.process.clone(),
            text: format!("{:?} {text}", event.what),
        });
    }
}
