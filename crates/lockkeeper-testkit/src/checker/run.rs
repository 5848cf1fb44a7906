//! Puts events together: each acquire with its answer, renewals, releases and loss.

use std::collections::{BTreeMap, HashMap};

use super::{Rule, Violation};
use crate::history::{Answer, Call, Entry, Event, Fault, Mode, What};

/// A whole history, by lock and by resource.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub locks: BTreeMap<String, Lock>,
    pub writes: BTreeMap<String, Vec<Write>>,
    pub entries: BTreeMap<String, Vec<Entry>>,
    pub contradictions: Vec<Violation>,
    pub faults: Vec<(u64, Fault)>,
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
    /// When it was broken, from the asking to the answer: holds from before end here.
    pub breaks: Vec<(u64, u64)>,
}

/// One acquire and the hold it may have begun.
#[derive(Debug)]
pub(super) struct Acquire {
    pub process: String,
    pub owner: String,
    pub mode: Mode,
    pub invoked: u64,
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

impl Acquire {
    pub fn hold(&self) -> Option<Hold> {
        match self.outcome {
            Outcome::Granted(hold) => Some(hold),
            _ => None,
        }
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
        let mut all = self.releases.iter();
        all.find(|release| release.answer == Some(Answer::Released))
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
            self.broken_since(acquire.invoked),
        ];
        ends.into_iter().flatten().min()
    }

    /// When the lock was first broken since something was asked. What was granted meanwhile may have been
    /// ended by it before its holder knew, so a break ends also what was still on its way.
    pub fn broken_since(&self, invoked: u64) -> Option<u64> {
        let mut breaks = self.breaks.iter();
        let first = breaks.find(|(_, done)| *done >= invoked)?;
        Some(first.0)
    }

    pub fn violation(&self, rule: Rule, text: String) -> Violation {
        Violation {
            rule,
            at: self.name.clone(),
            text,
        }
    }
}

/// Where an operation's record is kept, while its answer is awaited.
enum Slot {
    Acquire(String, usize),
    Renew(OpId, u64),
    Release(OpId, usize),
    Write(String, usize),
    Break(String, usize),
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
            What::Healed => self.healed.push(event.at),
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
            Call::Acquire { lock, owner, mode } => {
                let record = self.lock(lock);
                record.acquires.push(Acquire {
                    process: event.process.clone(),
                    owner: owner.clone(),
                    mode: *mode,
                    invoked: event.at,
                    completed: None,
                    outcome: Outcome::Unknown,
                    renewals: Vec::new(),
                    looks: Vec::new(),
                    releases: Vec::new(),
                    lost: None,
                    killed: None,
                });
                Slot::Acquire(lock.clone(), record.acquires.len() - 1)
            }
            Call::Renew { hold } => Slot::Renew((event.process.clone(), *hold), event.at),
            Call::Release { hold, owner } => {
                let id = (event.process.clone(), *hold);
                let acquire = self.acquire(&id, slots)?;
                acquire.releases.push(Release {
                    owner: owner.clone(),
                    invoked: event.at,
                    completed: None,
                    answer: None,
                });
                let index = acquire.releases.len() - 1;
                Slot::Release(id, index)
            }
            Call::Break { lock } => {
                let breaks = &mut self.lock(lock).breaks;
                breaks.push((event.at, u64::MAX));
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
            Some(Slot::Acquire(..)) => self.complete_acquire(event.at, id, answer, failed, slots),
            Some(Slot::Renew(hold, invoked)) => {
                self.complete_renewal((*invoked, event.at), hold, answer, slots)
            }
            Some(Slot::Release(hold, index)) => self.acquire(hold, slots).is_some_and(|acquire| {
                let release = &mut acquire.releases[*index];
                release.completed = Some(event.at);
                release.answer = answer.cloned();
                matches!(
                    answer,
                    None | Some(Answer::Released | Answer::StillHeld { .. } | Answer::NotHeld)
                )
            }),
            Some(Slot::Break(lock, index)) => {
                if answer == Some(&Answer::Broken) {
                    self.lock(lock).breaks[*index].1 = event.at;
                }
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

    fn complete_acquire(
        &mut self,
        at: u64,
        id: &OpId,
        answer: Option<&Answer>,
        failed: bool,
        slots: &HashMap<OpId, Slot>,
    ) -> bool {
        let Some(acquire) = self.acquire(id, slots) else {
            return false;
        };
        acquire.completed = Some(at);
        acquire.outcome = match answer {
            Some(&Answer::Granted {
                token,
                deadline,
                depth,
            }) => Outcome::Granted(Hold {
                ok: at,
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
        let Some(Slot::Acquire(lock, index)) = slots.get(id) else {
            return None;
        };
        self.locks.get_mut(lock)?.acquires.get_mut(*index)
    }

    fn is_open(&self, slot: &Slot) -> bool {
        match slot {
            Slot::Acquire(lock, index) => self.locks[lock].acquires[*index].completed.is_none(),
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
