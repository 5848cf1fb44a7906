//! A process that is stopped inside a transaction of the SQLite file: nobody can write meanwhile, and everybody is told
//! which process it is. And Ctrl-Z, which stops a waiting `run` only between its transactions.
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{Holder, Place, until, until_in};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Where this program, started once more, finds the store to be busy with.
const BUSY_WITH: &str = "LOCKKEEPER_TEST_BUSY_WITH";

/// A process that takes and releases locks of this place all the time: this program.
struct Busy(Child);

impl Busy {
    fn start(place: &Place) -> Busy {
        let mut busy = Command::new(std::env::current_exe().expect("this program"));
        busy.args(["--exact", "takes_and_releases_for_ever", "--ignored"]);
        busy.env(BUSY_WITH, place.url()).stdin(Stdio::null());
        let busy = busy.stdout(Stdio::null()).stderr(Stdio::null());
        Busy(busy.spawn().expect("starts"))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().cast_signed())
    }

    /// Stops it, again and again, until that finds it inside a transaction: it then has the write lock.
    fn stop_in_transaction(&self, place: &Place) {
        // Threads that stop may be in the kernel still, so whether it has the lock is asked once all of them are.
        until("it is stopped inside a transaction", || {
            kill(self.pid(), Signal::SIGSTOP).expect("it runs");
            until("it is stopped", || self.is_stopped());
            if self.writes(place) {
                return true;
            }
            kill(self.pid(), Signal::SIGCONT).expect("it is there");
            false
        });
    }

    /// Whether all of its threads are stopped: one that was in the kernel may go on for a moment.
    fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("it is there");
        let stat = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat"));
        let stopped = |stat: String| {
            stat.rsplit_once(") ")
                .is_some_and(|(_, s)| s.starts_with('T'))
        };
        threads
            .flatten()
            .all(|thread| stat(thread).is_ok_and(stopped))
    }

    /// Whether the kernel says that it has SQLite's write lock, which is byte 120 of the `-shm` file.
    fn writes(&self, place: &Place) -> bool {
        let Ok(shm) = std::fs::metadata(place.path("locks.db-shm")) else {
            return false;
        };
        let (pid, inode) = (self.pid().to_string(), format!(":{}", shm.ino()));
        let locks = std::fs::read_to_string("/proc/locks").expect("reads");
        locks.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(3) == Some(&"WRITE")
                && fields[4] == pid
                && fields[5].ends_with(&inode)
                && fields[6] == "120"
        })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The state of a process, as `ps` shows it.
fn state(pid: Pid) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Starts a command in a process group of its own, as a shell does. The system ignores Ctrl-Z for a group without a parent
/// in its session, and the group of the tests may be such a one.
fn as_a_job(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// A `run` that waits for a lock, with what it says in a file.
fn waiter(place: &Place, name: &str, says: &str) -> Child {
    let mut run = place.lockkeeper(&["run", name, "--", "true"]);
    let says = File::create(place.path(says)).expect("creates");
    let child = as_a_job(&mut run).stdin(Stdio::null()).stderr(says);
    let child = child.spawn().expect("starts");
    until("it waits", || place.show(name)["waiters"] == 1);
    child
}

#[test]
#[ignore = "another test starts it"]
fn takes_and_releases_for_ever() {
    let Ok(url) = std::env::var(BUSY_WITH) else {
        return;
    };
    let keeper = lockkeeper::blocking::Lockkeeper::connect(&url).expect("a store");
    let lock = keeper.lock("busy").expect("a name");
    loop {
        let guard = lock.acquire().expect("it is free");
        guard.release().expect("it was held");
    }
}

#[test]
fn everybody_learns_which_process_is_stopped_inside_a_transaction() {
    let place = Place::new();
    let victim = place.hold(&["--lease", "6s"], "victim", "exec sleep 600");
    let holder = place.hold(&["--lease", "60s"], "wanted", "exec sleep 600");
    let mut waiter = waiter(&place, "wanted", "says");
    let busy = Busy::start(&place);
    busy.stop_in_transaction(&place);
    let name = std::fs::read_to_string(format!("/proc/{}/comm", busy.pid())).expect("reads");
    let stopped = format!("process {} ({}) is stopped", busy.pid(), name.trim());

    // The list of stores opens no file, so it needs no lock.
    let listed = place.done(&["stores"]).code(0).out();
    assert!(listed.contains(&stopped), "{listed}");
    let listed = place.done(&["stores", "--json"]).code(0).json();
    let all = listed.as_array().expect("an array");
    let sqlite = all.iter().find(|store| store["scheme"] == "sqlite");
    let writer = &sqlite.expect("listed")["file"]["writer"];
    assert_eq!(writer["pid"], busy.0.id(), "{listed}");
    assert_eq!(writer["state"], "stopped", "{listed}");
    // A new run fails with the reason, a waiting one goes on waiting and says it, and a holder loses its lock by it.
    let run = ["run", "--wait", "3s", "unrelated", "--", "true"];
    let tried = place.done(&run).code(69);
    let advice = format!("kill -CONT {}", busy.pid());
    for line in tried.err().lines() {
        assert!(
            line.contains(&stopped) && line.contains(&advice),
            "{tried:?}"
        );
    }
    assert_eq!(
        tried.err().lines().count(),
        2,
        "that it waits, and that it failed: {tried:?}"
    );
    until_in(&place.path("says"), "still waiting for wanted: ");
    until_in(&place.path("says"), &stopped);
    let lost = victim.done().code(76);
    let why = format!("the lock \"victim\" was lost (the sqlite store is unavailable: {stopped}");
    assert!(lost.err().contains(&why), "{lost:?}");

    kill(busy.pid(), Signal::SIGCONT).expect("it is there");
    place.done(&["run", "unrelated", "--", "true"]).code(0);
    // This program has a name that begins with the same word, and is listed if it writes at every look.
    let listed = place.done(&["stores"]).code(0).out();
    assert!(!listed.contains("is stopped"), "{listed}");
    // The holder with the longer lease has not noticed anything.
    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
    assert!(waiter.wait().expect("it ends").success());

    busy.stop_in_transaction(&place);
    // Its write lock ends with it.
    drop(busy);
    place.done(&["run", "unrelated", "--", "true"]).code(0);
}

/// Holds the write lock of the place's file; its transaction ends with it.
fn write_lock(place: &Place) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(place.path("locks.db")).expect("opens");
    conn.busy_timeout(common::PATIENCE).expect("sets");
    conn.execute_batch("BEGIN IMMEDIATE").expect("locks");
    conn
}

/// How often the thread that tries again, while somebody else writes, has slept; nothing while it has no name yet.
fn pauses(pid: Pid) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let read = |task: &std::path::Path, file| std::fs::read_to_string(task.join(file)).ok();
    let status = tasks.flatten().find_map(|task| {
        let task = task.path();
        let name = read(&task, "comm")?;
        (name.starts_with("lockkeeper-work")).then(|| read(&task, "status"))?
    })?;
    let line = |line: &str| {
        line.strip_prefix("voluntary_ctxt_switches:")?
            .trim()
            .parse()
            .ok()
    };
    status.lines().find_map(line)
}

fn busy_with_a_request(pid: Pid) {
    until("it tries again and again", || {
        let before = pauses(pid);
        std::thread::sleep(Duration::from_millis(100));
        before.is_some_and(|before| pauses(pid) >= Some(before + 10))
    });
}

/// Ctrl-Z while `lockkeeper` is in the middle of a request stops it once that has ended.
fn stops_between_requests(place: &Place, pid: Pid) {
    let writes = write_lock(place);
    busy_with_a_request(pid);
    kill(pid, Signal::SIGTSTP).expect("it is there");
    std::thread::sleep(Duration::from_millis(300));
    assert_ne!(state(pid), Some('T'), "stopped in the middle of a request");
    drop(writes);
    until("it is stopped", || state(pid) == Some('T'));
    // Nothing that it left is in the way of others.
    place.done(&["run", "other", "--", "true"]).code(0);
    kill(pid, Signal::SIGCONT).expect("it is there");
    until("it goes on", || state(pid) != Some('T'));
}

#[test]
fn ctrl_z_stops_a_waiting_run_between_its_requests() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    let mut waiter = waiter(&place, "x", "says");
    let pid = Pid::from_raw(waiter.id().cast_signed());
    for _ in 0..2 {
        stops_between_requests(&place, pid);
    }
    end(holder);
    assert!(waiter.wait().expect("it ends").success());
}

#[test]
fn ctrl_z_stops_a_watch_between_its_requests() {
    let place = Place::new();
    let mut watch = place.lockkeeper(&["watch", "x"]);
    let watch = as_a_job(&mut watch).stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("starts");
    let pid = Pid::from_raw(watch.id().cast_signed());
    assert!(common::first_line(&mut watch).contains("free"));
    stops_between_requests(&place, pid);
    kill(pid, Signal::SIGTERM).expect("it is there");
    assert_eq!(watch.wait().expect("it ends").code(), Some(143));
}

#[test]
fn stores_tells_who_keeps_the_log_from_starting_over() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    let file = |listed: &serde_json::Value| {
        let all = listed.as_array().expect("an array");
        let sqlite = all.iter().find(|store| store["scheme"] == "sqlite");
        sqlite.expect("listed")["file"].clone()
    };
    let listed = || file(&place.done(&["stores", "--json"]).code(0).json());
    assert!(listed()["log_bytes"].as_u64() > Some(0), "{}", listed());
    assert_eq!(listed()["readers"], serde_json::json!([]));
    // As a graphical tool does.
    let reads = rusqlite::Connection::open(place.path("locks.db")).expect("opens");
    reads
        .execute_batch("BEGIN; SELECT * FROM lock")
        .expect("reads");
    let me = std::process::id();
    until("it is seen", || listed()["readers"][0]["pid"] == me);
    let text = place.done(&["stores"]).code(0).out();
    assert!(
        text.contains("has a log of ") && text.contains("KiB"),
        "{text}"
    );
    let line = text
        .lines()
        .find(|line| line.contains(&format!("process {me} (")));
    assert!(
        line.is_some_and(|line| line.contains("its log cannot start over")),
        "{text}"
    );
    drop(reads);
    assert_eq!(listed()["readers"], serde_json::json!([]));
    end(holder);
}

/// Whether the copying has begun, and whether it may end.
static COPIES: AtomicBool = AtomicBool::new(false);
static MAY_END: AtomicBool = AtomicBool::new(false);

#[test]
fn stores_tells_who_stays_in_copying_the_log_back() {
    let place = Place::new();
    let holder = place.hold(&[], "x", "exec sleep 600");
    let writes = write_lock(&place);
    let path = place.path("locks.db");
    // It has the lock of those who copy when it finds that somebody writes.
    let copies = std::thread::spawn(move || {
        let conn = rusqlite::Connection::open(path).expect("opens");
        let waits = |_| {
            COPIES.store(true, SeqCst);
            while !MAY_END.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            false
        };
        conn.busy_handler(Some(waits)).expect("sets");
        let copied = conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        copied.expect("copies");
    });
    until("it copies", || COPIES.load(SeqCst));
    drop(writes);
    let listed = || {
        let listed = place.done(&["stores", "--json"]).code(0).json();
        let all = listed.as_array().expect("an array");
        let sqlite = all.iter().find(|store| store["scheme"] == "sqlite");
        sqlite.expect("listed")["file"]["checkpointer"].clone()
    };
    let me = std::process::id();
    until("it is seen", || listed()["pid"] == me);
    let text = place.done(&["stores"]).code(0).out();
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains(&format!("process {me} (")));
    assert!(
        line.is_some_and(|line| line.contains("copies the log back")),
        "{text}"
    );
    MAY_END.store(true, SeqCst);
    copies.join().expect("no panic");
    assert_eq!(listed(), serde_json::Value::Null);
    end(holder);
}

#[test]
fn stores_makes_no_file() {
    let place = Place::new();
    let listed = place.done(&["stores"]).code(0).out();
    assert!(!listed.contains("has a log of"), "{listed}");
    assert!(!place.path("locks.db").exists());
}

fn end(holder: Holder) {
    holder.signal(Signal::SIGTERM);
    holder.done().code(143);
}
