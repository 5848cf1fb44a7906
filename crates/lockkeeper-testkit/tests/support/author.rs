//! Writes histories that a right lock would give, from a plan that proptest draws.

use lockkeeper_testkit::history::{Answer, Call, Entry, Event, Mode, What};
use proptest::prelude::*;

pub const MS: u64 = 1_000_000;
const LEASE: u64 = 100 * MS;

/// One turn of the lock.
#[derive(Clone, Debug)]
pub enum Turn {
    Alone {
        ending: Ending,
        writes: u8,
        reenter: bool,
        /// Asked for while the turn before was still on.
        early: bool,
    },
    Readers(u8),
    Permits(Vec<u8>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Ending {
    Release,
    UnknownRelease,
    Crash,
    Lost,
    /// The holder sleeps past its deadline; its write and its release come when another holds.
    Late,
}

pub const LIMIT: u32 = 4;

pub fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let ending = prop_oneof![
        4 => Just(Ending::Release),
        1 => Just(Ending::UnknownRelease),
        1 => Just(Ending::Crash),
        1 => Just(Ending::Lost),
        2 => Just(Ending::Late),
    ];
    let alone = (ending, 0..3u8, any::<bool>(), any::<bool>()).prop_map(
        |(ending, writes, reenter, early)| Turn::Alone {
            ending,
            writes,
            reenter,
            early,
        },
    );
    let permits = prop::collection::vec(1..3u8, 1..3).prop_map(Turn::Permits);
    let turn = prop_oneof![5 => alone, 1 => (1..5u8).prop_map(Turn::Readers), 1 => permits];
    prop::collection::vec(turn, 0..25).prop_map(|mut turns| {
        // One of everything, so that every mutation finds a place.
        let alone = |ending, reenter| Turn::Alone {
            ending,
            writes: 2,
            reenter,
            early: false,
        };
        turns.extend([
            alone(Ending::Release, true),
            alone(Ending::Release, false),
            alone(Ending::Late, false),
            alone(Ending::Crash, false),
            alone(Ending::Lost, false),
            Turn::Readers(2),
            Turn::Permits(vec![2, 1]),
            alone(Ending::Release, false),
            alone(Ending::Release, false),
        ]);
        turns
    })
}

/// A hold that the author wrote, for mutations to find.
#[derive(Clone, Debug)]
pub struct Written {
    pub op: u64,
    pub owner: String,
    pub mode: Mode,
    pub ok: u64,
    pub end: u64,
    pub ending: Ending,
    pub reentered: bool,
}

#[derive(Debug, Default)]
pub struct Author {
    pub events: Vec<Event>,
    pub holds: Vec<Written>,
    pub next_op: u64,
    pub token: u64,
    now: u64,
    owner: usize,
    value: u64,
    late: Vec<Late>,
}

#[derive(Debug)]
struct Late {
    op: u64,
    owner: String,
    token: u64,
    base: u64,
}

impl Author {
    pub fn write(turns: &[Turn], books: bool) -> Author {
        let mut author = Author {
            now: 1_000 * MS,
            token: 1_000,
            ..Author::default()
        };
        for turn in turns {
            match turn {
                Turn::Alone {
                    ending,
                    writes,
                    reenter,
                    early,
                } => author.alone(*ending, *writes, *reenter, *early),
                Turn::Readers(count) => author.shared(vec![Mode::Read; usize::from(*count)]),
                Turn::Permits(counts) => {
                    let mode = |count: &u8| Mode::Permits {
                        limit: LIMIT,
                        count: u32::from(*count),
                    };
                    author.shared(counts.iter().map(mode).collect());
                }
            }
        }
        author.finish_late();
        if books {
            author.books();
        }
        author
    }

    pub fn push(&mut self, at: u64, what: What) {
        let process = "p".to_owned();
        self.events.push(Event { at, process, what });
    }

    pub fn call(&mut self, at: u64, call: Call) -> u64 {
        self.next_op += 1;
        let op = self.next_op;
        self.push(at, What::Invoke { op, call });
        op
    }

    pub fn answer(&mut self, at: u64, op: u64, answer: Answer) {
        self.push(at, What::Ok { op, answer });
    }

    pub fn acquire(&mut self, asked: u64, ok: u64, owner: &str, mode: Mode, depth: u32) -> u64 {
        let op = self.call(
            asked,
            Call::Acquire {
                lock: "a".into(),
                owner: owner.into(),
                mode,
            },
        );
        let answer = Answer::Granted {
            token: self.token,
            deadline: ok + LEASE,
            depth,
        };
        self.answer(ok, op, answer);
        op
    }

    pub fn release(&mut self, at: u64, hold: u64, owner: &str) -> u64 {
        let owner = owner.to_owned();
        self.call(at, Call::Release { hold, owner })
    }

    fn next_owner(&mut self) -> String {
        self.owner += 1;
        format!("o{}", self.owner % 7)
    }

    fn alone(&mut self, ending: Ending, writes: u8, reenter: bool, early: bool) {
        let owner = self.next_owner();
        self.token += 1 + u64::from(writes);
        let asked = match self.holds.last() {
            Some(before) if early => before.ok + MS,
            _ => self.now,
        };
        let ok = self.now + MS;
        let op = self.acquire(asked, ok, &owner, Mode::Alone, 1);
        self.now = ok + MS;
        self.finish_late();
        if reenter {
            let inner = self.acquire(self.now, self.now + MS, &owner, Mode::Alone, 2);
            let release = self.release(self.now + 2 * MS, inner, &owner);
            self.answer(self.now + 3 * MS, release, Answer::StillHeld { depth: 1 });
            self.now += 4 * MS;
        }
        for _ in 0..writes {
            self.change();
        }
        let end = self.end(ending, op, &owner, ok);
        self.holds.push(Written {
            op,
            owner,
            mode: Mode::Alone,
            ok,
            end,
            ending,
            reentered: reenter,
        });
    }

    fn end(&mut self, ending: Ending, op: u64, owner: &str, ok: u64) -> u64 {
        let (now, deadline) = (self.now, ok + LEASE);
        match ending {
            Ending::Release => {
                let release = self.release(now, op, owner);
                self.answer(now + MS, release, Answer::Released);
                self.now = now + 2 * MS;
                return now;
            }
            Ending::UnknownRelease => {
                let release = self.release(now, op, owner);
                let reason = String::new();
                self.push(
                    now + MS,
                    What::Unknown {
                        op: release,
                        reason,
                    },
                );
            }
            Ending::Crash => {}
            Ending::Lost => self.push(deadline - 10 * MS, What::Lost { hold: op }),
            Ending::Late => self.late.push(Late {
                op,
                owner: owner.to_owned(),
                token: self.token,
                base: self.value,
            }),
        }
        self.now = deadline + MS;
        deadline
    }

    /// The sleepers of before wake up.
    fn finish_late(&mut self) {
        for late in std::mem::take(&mut self.late) {
            let call = Call::Write {
                resource: "r".into(),
                token: late.token,
                base: late.base,
                value: late.base + 1,
            };
            if self.token > late.token {
                // The new holder writes first, so that the fence knows of it.
                self.change();
                let write = self.call(self.now, call);
                let highest = self.token;
                self.answer(self.now + MS, write, Answer::Refused { highest });
            }
            let release = self.release(self.now, late.op, &late.owner);
            self.answer(self.now + MS, release, Answer::NotHeld);
            self.now += 2 * MS;
        }
    }

    fn change(&mut self) {
        let call = Call::Write {
            resource: "r".into(),
            token: self.token,
            base: self.value,
            value: self.value + 1,
        };
        let write = self.call(self.now, call);
        self.value += 1;
        let seq = self.value;
        self.answer(self.now + MS, write, Answer::Accepted { seq });
        self.now += 2 * MS;
    }

    fn shared(&mut self, modes: Vec<Mode>) {
        let (ok, end) = (self.now + MS, self.now + 10 * MS);
        for mode in modes {
            let owner = self.next_owner();
            self.token += 1;
            let op = self.acquire(self.now, ok, &owner, mode, 1);
            let release = self.release(end, op, &owner);
            self.answer(end + MS, release, Answer::Released);
            self.holds.push(Written {
                op,
                owner,
                mode,
                ok,
                end,
                ending: Ending::Release,
                reentered: false,
            });
        }
        self.now = end + 2 * MS;
    }

    /// The resource's own record of what the writers were told.
    fn books(&mut self) {
        let mut calls = std::collections::HashMap::new();
        let mut entries = Vec::new();
        for event in &self.events {
            match &event.what {
                What::Invoke { op, call } => drop(calls.insert(*op, call.clone())),
                What::Ok {
                    op,
                    answer: Answer::Accepted { seq },
                } => {
                    let Some(Call::Write {
                        resource,
                        token,
                        base,
                        value,
                    }) = calls.get(op)
                    else {
                        panic!("only writes are accepted");
                    };
                    entries.push(Entry {
                        resource: resource.clone(),
                        seq: *seq,
                        token: *token,
                        base: *base,
                        value: *value,
                    });
                }
                _ => {}
            }
        }
        for entry in entries {
            self.push(self.now, What::Entry(entry));
        }
    }

    pub fn now(&self) -> u64 {
        self.now
    }
}
