//! Writes histories, and reads them back.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper::clock::{Clock, Moment};

use super::{Answer, Call, Event, Fault, Mode, What};

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
            together: None,
        })
    }

    /// [`Recorder::invoke`] of the acquires of one `MultiLock`, one a lock.
    pub fn acquire_all(&self, locks: &[&str], owner: &str) -> Vec<u64> {
        let mut together = None;
        let acquire = |lock: &&str| {
            let op = self.0.next_op.fetch_add(1, Ordering::Relaxed);
            let call = Call::Acquire {
                lock: (*lock).to_owned(),
                owner: owner.to_owned(),
                mode: Mode::Exclusive,
                together: Some(*together.get_or_insert(op)),
            };
            self.record(What::Invoke { op, call });
            op
        };
        locks.iter().map(acquire).collect()
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
    use lockkeeper::store;

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
