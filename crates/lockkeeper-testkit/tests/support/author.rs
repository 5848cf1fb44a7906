//! Writes histories that a right lock would give, from a plan that proptest draws.

use lockkeeper_testkit::history::{Answer, Call, Entry, Event, LatchAsk, Mode, What};
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
    /// Two locks at once.
    Together,
    /// A writer that goes on as a reader, which reads again.
    Downgrade,
    /// Two wait in line for a fair lock, and one has looked in between.
    Line,
    /// A latch of this count.
    Latch(u8),
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
    let turn = prop_oneof![
        5 => alone,
        1 => (1..5u8).prop_map(Turn::Readers),
        1 => permits,
        1 => Just(Turn::Together),
        1 => Just(Turn::Downgrade),
        1 => Just(Turn::Line),
        1 => (2..6u8).prop_map(Turn::Latch),
    ];
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
            Turn::Together,
            Turn::Downgrade,
            Turn::Line,
            Turn::Latch(3),
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
    latches: usize,
    /// The acquires of each `MultiLock`, the downgrades, the acquires of each line, and the latches.
    pub together: Vec<[u64; 2]>,
    pub downgrades: Vec<(u64, u64)>,
    pub lines: Vec<[u64; 2]>,
    pub latched: Vec<Latched>,
}

/// A latch that the author wrote: its count-downs, the waits before and after it opened, and the last read.
#[derive(Clone, Debug)]
pub struct Latched {
    pub name: String,
    pub count_downs: Vec<u64>,
    pub wait: u64,
    pub read: u64,
    pub opened: u64,
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
                Turn::Together => author.both(),
                Turn::Downgrade => author.downgrade(),
                Turn::Line => author.line(),
                Turn::Latch(count) => author.latch(u32::from(*count)),
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
        let op = self.ask(asked, "a", owner, mode, None);
        self.grant(ok, op, depth);
        op
    }

    pub fn ask(
        &mut self,
        at: u64,
        lock: &str,
        owner: &str,
        mode: Mode,
        together: Option<u64>,
    ) -> u64 {
        let (lock, owner) = (lock.to_owned(), owner.to_owned());
        let call = Call::Acquire {
            lock,
            owner,
            mode,
            together,
        };
        self.call(at, call)
    }

    pub fn grant(&mut self, ok: u64, op: u64, depth: u32) {
        let answer = Answer::Granted {
            token: self.token,
            deadline: ok + LEASE,
            depth,
        };
        self.answer(ok, op, answer);
    }

    /// A release that frees.
    fn free(&mut self, at: u64, hold: u64, owner: &str) {
        let release = self.release(at, hold, owner);
        self.answer(at + MS, release, Answer::Released);
    }

    /// Both locks of a `MultiLock`.
    fn both(&mut self) {
        let owner = self.next_owner();
        self.token += 1;
        let at = self.now;
        let first = self.next_op + 1;
        let ops = ["a", "b"].map(|lock| self.ask(at, lock, &owner, Mode::Exclusive, Some(first)));
        for op in ops {
            self.grant(at + MS, op, 1);
            self.free(at + 5 * MS, op, &owner);
        }
        self.together.push(ops);
        self.now = at + 7 * MS;
    }

    /// Writes, goes on as a reader, and reads again.
    fn downgrade(&mut self) {
        let owner = self.next_owner();
        self.token += 1;
        let at = self.now;
        let writer = self.acquire(at, at + MS, &owner, Mode::Write, 1);
        let reader = self.call(at + 2 * MS, Call::Downgrade { hold: writer });
        self.token += 1;
        self.grant(at + 6 * MS, reader, 1);
        let inner = self.acquire(at + 7 * MS, at + 8 * MS, &owner, Mode::Read, 2);
        let release = self.release(at + 9 * MS, inner, &owner);
        self.answer(at + 10 * MS, release, Answer::StillHeld { depth: 1 });
        self.free(at + 11 * MS, reader, &owner);
        self.downgrades.push((at + 2 * MS, inner));
        self.now = at + 13 * MS;
    }

    /// One holds, a second is in line, a third comes after a look at the line.
    fn line(&mut self) {
        let owners = [self.next_owner(), self.next_owner(), self.next_owner()];
        let mut at = self.now;
        self.token += 1;
        let first = self.acquire(at, at + MS, &owners[0], Mode::Fair, 1);
        let second = self.ask(at + 2 * MS, "a", &owners[1], Mode::Fair, None);
        let look = self.call(at + 4 * MS, Call::Inspect { lock: "a".into() });
        self.answer(at + 5 * MS, look, Answer::Waiting(1));
        let third = self.ask(at + 6 * MS, "a", &owners[2], Mode::Fair, None);
        self.free(at + 8 * MS, first, &owners[0]);
        for (op, owner) in [(second, &owners[1]), (third, &owners[2])] {
            at += 10 * MS;
            self.token += 1;
            self.grant(at, op, 1);
            self.free(at + 2 * MS, op, owner);
        }
        self.lines.push([second, third]);
        // What is asked for early is so after the look.
        let [_, _, owner] = owners;
        self.holds.push(Written {
            op: third,
            owner,
            mode: Mode::Fair,
            ok: at,
            end: at + 2 * MS,
            ending: Ending::Release,
            reentered: false,
        });
        self.now = at + 5 * MS;
    }

    /// Set, counted down, waited for and read; one count-down more comes to an open latch.
    fn latch(&mut self, count: u32) {
        self.latches += 1;
        let name = format!("latch{}", self.latches);
        let ask = |author: &mut Author, at, ask| {
            let latch = name.clone();
            author.call(at, Call::Latch { latch, ask })
        };
        let mut at = self.now;
        let set = ask(self, at, LatchAsk::Set(count));
        self.answer(at + MS, set, Answer::Changed(true));
        let wait = ask(self, at + MS, LatchAsk::Wait);
        let mut count_downs = Vec::new();
        for left in (0..count).rev() {
            at += 2 * MS;
            let op = ask(self, at, LatchAsk::CountDown);
            self.answer(at + MS, op, Answer::Count(left));
            count_downs.push(op);
        }
        let opened = at + MS;
        self.answer(at + 2 * MS, wait, Answer::Count(0));
        let read = ask(self, at + 3 * MS, LatchAsk::Read);
        self.answer(at + 4 * MS, read, Answer::Count(0));
        self.latched.push(Latched {
            name,
            count_downs,
            wait,
            read,
            opened,
        });
        self.now = at + 6 * MS;
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
        let mode = [Mode::Exclusive, Mode::Write, Mode::Fair][self.owner % 3];
        let op = self.acquire(asked, ok, &owner, mode, 1);
        self.now = ok + MS;
        self.finish_late();
        if reenter {
            let inner = self.acquire(self.now, self.now + MS, &owner, mode, 2);
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
            mode,
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
