//! The log of a SQLite file grows while a program has a read transaction open, or is stopped while it copies the log back. A
//! warning names the program. Once it is gone, the log is small again.
#![cfg(feature = "sqlite")]

mod sqlite_common;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockkeeper::SETUP_TARGET;
use lockkeeper::store::Store;
use lockkeeper::store::sqlite::{FileStatus, SqliteStore, UserState};
use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use sqlite_common::{Claims, block_on, child, child_argument, release};
use tracing::field::{Field, Visit};

const LARGE: u64 = 16 << 20;
/// What a log is cut to when it starts over, and a little more.
const SMALL: u64 = 5 << 20;

/// For what cannot last.
const PATIENCE: Duration = Duration::from_secs(120);

/// Warnings about how stores are set up.
static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Warnings;

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == SETUP_TARGET
    }
    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{value:?}");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        WARNED.lock().expect("no panic").push(text.0);
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

/// Another program, which does something to the file until its input ends.
struct Other(Child);

impl Other {
    /// It has a read transaction open.
    fn reads(path: &Path) -> Other {
        Other::start(
            "a_warning_names_the_reader_that_keeps_a_log_from_starting_over",
            path,
        )
    }

    /// It is in the middle of copying the log back.
    fn copies(path: &Path) -> Other {
        // It has to wait for this, and is inside by then.
        let writes = Connection::open(path).expect("opens");
        writes.busy_timeout(PATIENCE).expect("sets");
        writes.execute_batch("BEGIN IMMEDIATE").expect("locks");
        Other::start(
            "a_warning_names_the_process_that_is_stopped_while_it_copies_the_log",
            path,
        )
    }

    fn start(test: &str, path: &Path) -> Other {
        let mut command = child(test, &path.display().to_string());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        while lines.next().expect("more to come").expect("text") != "there" {}
        Other(child)
    }

    fn read(path: &str) {
        let conn = Connection::open(path).expect("opens");
        conn.execute_batch("BEGIN; SELECT count(*) FROM lock")
            .expect("reads");
        Other::stay();
    }

    fn copy(path: &str) {
        let conn = Connection::open(path).expect("opens");
        let stays = |_| {
            Other::stay();
            false
        };
        conn.busy_handler(Some(stays)).expect("sets");
        let copied = conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        copied.expect("copies");
    }

    fn stay() {
        println!("\nthere");
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn log(path: &Path) -> u64 {
    let file = std::fs::metadata(path.with_extension("db-wal"));
    file.expect("it is in use").len()
}

/// Acquires and releases until something is so.
fn work(store: &SqliteStore, what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        for name in 0..200 {
            let claim = Claims::new(&format!("name {name}")).next();
            block_on(store.try_acquire(&claim)).expect("works");
            block_on(store.release(&release(&claim))).expect("works");
        }
    }
}

/// One test at a time: the warnings are those of all. None is left of the test before.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The second time it is there.
    let _ = tracing::subscriber::set_global_default(Warnings);
    WARNED.lock().expect("no panic").clear();
    one
}

#[test]
fn a_warning_names_the_reader_that_keeps_a_log_from_starting_over() {
    if let Some(path) = child_argument() {
        return Other::read(&path);
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(&path).expect("opens");
    let warned = || WARNED.lock().expect("no panic").clone();

    work(&store, "a log of ordinary size", || log(&path) > 1 << 20);
    assert_eq!(warned(), [""; 0], "nobody reads");

    let reader = Other::reads(&path);
    let pid = reader.0.id();
    work(&store, "a large log", || log(&path) > LARGE + (4 << 20));
    work(&store, "a warning", || !warned().is_empty());
    let text = warned().remove(0);
    assert!(
        text.contains("has grown to 1") && text.contains("MiB"),
        "{text}"
    );
    let status = FileStatus::of(&path);
    assert!(status.log_bytes > LARGE, "{status:?}");
    if cfg!(target_os = "linux") {
        assert!(text.contains(&format!("process {pid} (")), "{text}");
        let pids: Vec<u32> = status.readers.iter().map(|reader| reader.pid).collect();
        assert_eq!((pids, status.writer), (vec![pid], None));
    }

    drop(reader);
    work(&store, "a small log", || log(&path) < SMALL);
    assert_eq!(FileStatus::of(&path).readers, []);
    // One that nobody is at work on shrinks when a program opens the file.
    let reader = Other::reads(&path);
    work(&store, "a log of more than it is cut to", || {
        log(&path) > SMALL
    });
    let idle = Connection::open(&path).expect("opens");
    idle.execute_batch("SELECT count(*) FROM lock")
        .expect("reads");
    drop((store, reader));
    assert!(log(&path) > SMALL);
    let _store = SqliteStore::open(&path).expect("opens");
    let begun = Instant::now();
    while log(&path) > SMALL {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", log(&path));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_warning_names_the_process_that_is_stopped_while_it_copies_the_log() {
    if let Some(path) = child_argument() {
        return Other::copy(&path);
    }
    let _alone = alone();
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(&path).expect("opens");
    let warned = || WARNED.lock().expect("no panic").clone();

    let copies = Other::copies(&path);
    let pid = copies.0.id();
    let process = Pid::from_raw(pid.cast_signed()).expect("a process");
    kill_process(process, Signal::STOP).expect("is stopped");
    work(&store, "a large log", || log(&path) > LARGE + (4 << 20));
    work(&store, "a warning", || !warned().is_empty());
    let text = warned().remove(0);
    assert!(
        text.contains("has grown to 1") && text.contains("MiB"),
        "{text}"
    );
    let status = FileStatus::of(&path);
    if cfg!(target_os = "linux") {
        let advice = format!("kill -CONT {pid}");
        assert!(
            text.contains(&format!("process {pid} (")) && text.contains(&advice),
            "{text}"
        );
        let copies = status.checkpointer.expect("it is seen");
        assert_eq!((copies.pid, copies.state), (pid, UserState::Stopped));
        assert_eq!((status.writer, status.readers), (None, vec![]));
    }

    drop(copies);
    work(&store, "a small log", || log(&path) < SMALL);
    assert_eq!(FileStatus::of(&path).checkpointer, None);
}
