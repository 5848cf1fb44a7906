//! Records what clients asked and what they were told, against one clock.
//!
//! All processes of a machine share [`Moment`], so each writes a file of its own, one JSON event a line, and
//! the test merges them. An event is written before the call it announces and after the answer it reports:
//! what the history calls a hold is never longer than the hold was.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store;
use serde::{Deserialize, Serialize};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds of [`Moment`].
    pub at: u64,
    /// In which process; unique for each one started.
    pub process: String,
    /// What.
    pub what: What,
}

/// What happened. An operation is numbered within its process; a hold goes by its acquire's number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// An operation is about to start. Without an outcome it counts as unknown: its process was killed.
    Invoke {
        /// Its number.
        op: u64,
        /// What it asks.
        call: Call,
    },
    /// The operation was answered.
    Ok {
        /// Its number.
        op: u64,
        /// The answer.
        answer: Answer,
    },
    /// The operation failed and certainly did nothing.
    Fail {
        /// Its number.
        op: u64,
        /// Why.
        reason: String,
    },
    /// Nobody knows whether the operation took effect.
    Unknown {
        /// Its number.
        op: u64,
        /// Why.
        reason: String,
    },
    /// The holder was told that it no longer holds.
    Lost {
        /// The acquire that began the hold.
        hold: u64,
    },
    /// The holder looked at its guard, which said that it holds.
    Look {
        /// The acquire that began the hold.
        hold: u64,
        /// When the look began, in nanoseconds: its process may have been stopped before it could write this.
        asked: u64,
        /// Until when the guard said to hold.
        deadline: u64,
    },
    /// A fault was made.
    Fault(Fault),
    /// The faults are over: from here on the locks have to work again.
    Healed,
    /// Something that nobody uses any more is still there.
    Left {
        /// What.
        what: String,
    },
    /// A write as the fenced resource itself remembers it.
    Entry(Entry),
}

/// What an operation asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// To hold a lock.
    Acquire {
        /// Which.
        lock: String,
        /// For whom: who may hold it again meanwhile.
        owner: String,
        /// How.
        mode: Mode,
    },
    /// To go on holding.
    Renew {
        /// The acquire that began the hold.
        hold: u64,
    },
    /// To let go.
    Release {
        /// The acquire that began the hold.
        hold: u64,
        /// Who lets go.
        owner: String,
    },
    /// To end whatever holds there are, as an administrator.
    Break {
        /// Of which lock.
        lock: String,
    },
    /// To change a fenced resource from `base`, which was read before, to `value`.
    Write {
        /// Which.
        resource: String,
        /// The token of the hold under which it happens.
        token: u64,
        /// What was read.
        base: u64,
        /// What is to be written.
        value: u64,
    },
}

/// What an operation was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The lock is held.
    Granted {
        /// The fencing token.
        token: u64,
        /// When the holder stops believing in it, in nanoseconds.
        deadline: u64,
        /// How deep the owner is in: 1 unless it held already.
        depth: u32,
    },
    /// Others hold it.
    Busy,
    /// The hold goes on.
    Renewed {
        /// The new deadline.
        deadline: u64,
    },
    /// The lock was let go of.
    Released,
    /// One level of re-entry was left.
    StillHeld {
        /// How many remain.
        depth: u32,
    },
    /// There was no such hold; nothing was changed.
    NotHeld,
    /// The holds were ended.
    Broken,
    /// The resource took the write.
    Accepted {
        /// The resource's own count of accepted writes, with this one.
        seq: u64,
    },
    /// The resource refused the write: it has seen a higher token.
    Refused {
        /// That token.
        highest: u64,
    },
}

/// One accepted write, from the resource's own books.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Which resource.
    pub resource: String,
    /// Counts its accepted writes from 1.
    pub seq: u64,
    /// The token it came with.
    pub token: u64,
    /// What the writer had read.
    pub base: u64,
    /// What it wrote.
    pub value: u64,
}

/// A fault that a test makes or sees.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// A process is about to be killed: what it holds counts no longer. Proves something only if it held.
    Killed {
        /// Which.
        process: String,
    },
    /// A process was stopped for a while, and is still. Proves something only if it held.
    Stopped {
        /// Which.
        process: String,
    },
    /// A lock was broken by an administrator.
    Broken,
    /// A request did not arrive.
    RequestLost,
    /// A request arrived and its answer did not.
    ReplyLost,
    /// A message arrived late.
    Delayed,
    /// A message arrived twice.
    Repeated,
    /// Anything else.
    Other(String),
}

/// How a hold excludes others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It stands alone: exclusive, fair and write locks.
    Alone,
    /// It stands beside other readers.
    Read,
    /// It stands beside other permits up to the limit.
    Permits {
        /// How many there are.
        limit: u32,
        /// How many it takes.
        count: u32,
    },
}

impl From<store::Mode> for Mode {
    fn from(mode: store::Mode) -> Mode {
        match mode {
            store::Mode::Read => Mode::Read,
            store::Mode::Permit { limit, count } => Mode::Permits { limit, count },
            _ => Mode::Alone,
        }
    }
}

/// Writes events of one process, from any of its threads.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    process: String,
    clock: Clock,
    next_op: AtomicU64,
    sink: Mutex<Sink>,
}

#[derive(Debug)]
enum Sink {
    Memory(Vec<Event>),
    File(File),
}

impl Recorder {
    /// Keeps events in memory.
    pub fn in_memory(process: &str, clock: Clock) -> Recorder {
        Recorder::new(process, clock, Sink::Memory(Vec::new()))
    }

    /// Appends events to a file. Each is with the kernel when its call returns, so that a kill loses none.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn to_file(process: &str, path: &Path) -> io::Result<Recorder> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Recorder::new(process, Clock::real(), Sink::File(file)))
    }

    fn new(process: &str, clock: Clock, sink: Sink) -> Recorder {
        Recorder(Arc::new(Inner {
            process: process.to_owned(),
            clock,
            next_op: AtomicU64::new(1),
            sink: Mutex::new(sink),
        }))
    }

    /// Records that an operation starts, and numbers it.
    pub fn invoke(&self, call: Call) -> u64 {
        let op = self.0.next_op.fetch_add(1, Ordering::Relaxed);
        self.record(What::Invoke { op, call });
        op
    }

    /// [`Recorder::invoke`] of an acquire.
    pub fn acquire(&self, lock: &str, owner: &str, mode: impl Into<Mode>) -> u64 {
        self.invoke(Call::Acquire {
            lock: lock.to_owned(),
            owner: owner.to_owned(),
            mode: mode.into(),
        })
    }

    /// [`Recorder::invoke`] of a release.
    pub fn release(&self, hold: u64, owner: &str) -> u64 {
        self.invoke(Call::Release {
            hold,
            owner: owner.to_owned(),
        })
    }

    /// Records an answer.
    pub fn ok(&self, op: u64, answer: Answer) {
        self.record(What::Ok { op, answer });
    }

    /// Records a grant.
    pub fn granted(&self, op: u64, token: lockkeeper::Token, deadline: Moment) {
        self.ok(
            op,
            Answer::Granted {
                token: token.get(),
                deadline: deadline.as_nanos(),
                depth: 1,
            },
        );
    }

    /// Records that an operation certainly did nothing.
    pub fn fail(&self, op: u64, reason: impl ToString) {
        let reason = reason.to_string();
        self.record(What::Fail { op, reason });
    }

    /// Records that an operation's outcome is unknown.
    pub fn unknown(&self, op: u64, reason: impl ToString) {
        let reason = reason.to_string();
        self.record(What::Unknown { op, reason });
    }

    /// Records an error: unknown or failed, by its kind.
    pub fn error(&self, op: u64, error: &lockkeeper::Error) {
        match error {
            lockkeeper::Error::OutcomeUnknown { .. } => self.unknown(op, error),
            _ => self.fail(op, error),
        }
    }

    /// Records that a holder learned of its loss.
    pub fn lost(&self, hold: u64) {
        self.record(What::Lost { hold });
    }

    /// Records that a guard said to hold until `deadline`, when it was asked at `asked`.
    pub fn look(&self, hold: u64, asked: Moment, deadline: Moment) {
        self.record(What::Look {
            hold,
            asked: asked.as_nanos(),
            deadline: deadline.as_nanos(),
        });
    }

    /// Records a fault.
    pub fn fault(&self, fault: Fault) {
        self.record(What::Fault(fault));
    }

    /// Records anything.
    pub fn record(&self, what: What) {
        let mut sink = self.sink();
        // Read under the mutex: the events of one process are in order of time.
        let event = Event {
            at: self.0.clock.now().as_nanos(),
            process: self.0.process.clone(),
            what,
        };
        match &mut *sink {
            Sink::Memory(events) => events.push(event),
            Sink::File(file) => {
                let mut line = serde_json::to_vec(&event).expect("events are plain data");
                line.push(b'\n');
                file.write_all(&line).expect("the history can be written");
            }
        }
    }

    /// What was recorded in memory so far; empty for a file.
    pub fn events(&self) -> Vec<Event> {
        match &*self.sink() {
            Sink::Memory(events) => events.clone(),
            Sink::File(_) => Vec::new(),
        }
    }

    fn sink(&self) -> MutexGuard<'_, Sink> {
        self.0.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Merges the histories of several processes, in order of time.
pub fn merge(histories: impl IntoIterator<Item = Vec<Event>>) -> Vec<Event> {
    let mut events: Vec<Event> = histories.into_iter().flatten().collect();
    events.sort_by_key(|event| event.at);
    events
}

/// Reads one process's file.
///
/// # Errors
/// When the file cannot be read, or a line other than the last is not an event. A last line cut short is the
/// mark of a killed process and is left out.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        serde_json::from_str(line).map_err(|error| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: {error} in {line:?}", path.display()),
            )
        })
    };
    whole.lines().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back_and_a_cut_line_is_left_out() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("p1.jsonl");
        let recorder = Recorder::to_file("p1", &path).expect("a file");
        let op = recorder.acquire("a", "me", store::Mode::Exclusive);
        recorder.granted(op, lockkeeper::Token::new(7), Moment::NEVER);
        recorder.fault(Fault::Killed {
            process: "p1".into(),
        });
        let mut file = OpenOptions::new().append(true).open(&path).expect("opens");
        file.write_all(b"{\"at\":12,\"pro").expect("writes");

        let events = read(&path).expect("reads back");
        assert_eq!(events.len(), 3);
        assert!(events.is_sorted_by_key(|event| event.at));
        assert_eq!(
            events[1].what,
            What::Ok {
                op,
                answer: Answer::Granted {
                    token: 7,
                    deadline: Moment::NEVER.as_nanos(),
                    depth: 1
                }
            }
        );
        assert_eq!(merge([events.clone(), events]).len(), 6);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("p1.jsonl");
        std::fs::write(&path, "nonsense\n{}\n").expect("writes");
        assert!(read(&path).is_err());
    }
}
