//! A process that is forked without `exec`, as prefork servers and daemons are: the child has copies of its parent's
//! keepers and guards, and none of its threads. It holds nothing, releases nothing, and is told so.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid, waitpid_nohang};
use lockkeeper::clock::Moment;
use lockkeeper::store::Subscription;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper::{Error, Guard, Lockkeeper, blocking};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{Builder, Runtime};

/// Runs something in a fork of this process, and returns what it wrote and whether it ended as it should.
fn in_a_fork(work: impl FnOnce(&mut dyn Write)) -> (String, bool) {
    // One at a time: a child has the pipes of all that are there.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut from_child, mut to_parent) = std::io::pipe().expect("a pipe");
    match fork().expect("forks") {
        Fork::Child => {
            drop(from_child);
            // Not by `println`: another thread may have had the lock of the standard output.
            let done =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut to_parent)));
            if done.is_err() {
                let _ = writeln!(to_parent, "panicked");
            }
            drop(to_parent);
            // Ends this thread as well, and what it left behind.
            std::process::exit(0)
        }
        Fork::Parent(child) => {
            drop(to_parent);
            let end = Instant::now() + Duration::from_secs(20);
            let ended = loop {
                match waitpid_nohang(child).expect("waits") {
                    Some(status) => break status == 0,
                    None if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
                    None => {
                        let pid = Pid::from_raw(child).expect("a process");
                        kill_process(pid, Signal::KILL).expect("is killed");
                        let _ = waitpid(child);
                        break false;
                    }
                }
            };
            let mut wrote = String::new();
            from_child.read_to_string(&mut wrote).expect("reads");
            (wrote, ended)
        }
    }
}

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Writes a line unless this is the error of a forked process.
fn forked<T: Debug>(out: &mut dyn Write, verb: &str, answer: Result<T, Error>) {
    if !matches!(answer, Err(Error::Forked)) {
        let _ = writeln!(out, "{verb}: {answer:?}");
    }
}

async fn verbs(out: &mut dyn Write, keeper: &Lockkeeper, guard: &Guard) {
    let soon = Duration::from_millis(50);
    forked(out, "lock", keeper.lock("other"));
    forked(out, "inspect", keeper.inspect("held").await);
    forked(out, "list", keeper.list("").await);
    forked(out, "break", keeper.break_lock("held", "a test").await);
    forked(out, "watch", keeper.watch("held").await.map(drop));
    forked(out, "multi", keeper.multi_lock(["a", "b"]));
    forked(out, "extend", guard.extend(Duration::from_secs(60)).await);
    forked(out, "run", guard.run(async {}).await);
    if keeper.capabilities().latches {
        let latch = keeper.latch("latch").expect("a latch");
        forked(out, "count", latch.count().await);
        forked(out, "wait", latch.wait_within(soon).await);
    }
    guard.lost().await;
    guard.at_risk().await;
    keeper.close().await;
    if guard.is_held() || guard.is_held_for(Duration::ZERO) || guard.deadline() > Moment::now() {
        let _ = writeln!(out, "held: {guard:?}");
    }
}

/// What a child finds that connects to its parent's store by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Anew {
    /// The same store, with what its parent holds.
    Same,
    /// A store of its own.
    Another,
    /// Nothing: it may not connect.
    Refused,
}

/// What `sqlite:` says to a child whose parent had such a store open.
const NO_SQLITE: &str = "SQLite does not survive a fork";

/// Forks with a lock held and others known, asynchronously and by the blocking API.
fn forks(url: &str, anew: Anew) {
    let runtime = runtime();
    let keeper = runtime
        .block_on(Lockkeeper::connect(url))
        .expect("connects");
    let lock = keeper.lock("held").expect("a lock");
    let guard = runtime.block_on(lock.acquire()).expect("acquires");
    let releases = keeper.lock("releases").expect("a lock");
    let released = runtime.block_on(releases.acquire()).expect("acquires");
    let free = keeper.lock("free").expect("a lock");
    // A thread has left something behind, for which it would wait at its end.
    drop(runtime.block_on(free.acquire()).expect("acquires"));
    let threads = blocking::Lockkeeper::connect(url).expect("connects");
    let theirs = threads.lock("theirs").expect("a lock");
    let held = theirs.acquire().expect("acquires");

    let own = (keeper.clone(), lock.clone(), free.clone(), theirs.clone());
    let mut kept = Some((guard, released, held, own));
    let (wrote, ended) = in_a_fork(|out| {
        let (guard, released, held, own) = kept.take().expect("is there");
        let here = self::runtime();
        for lock in [&lock, &free] {
            let within = lock.acquire_within(Duration::from_secs(2));
            forked(out, "try", here.block_on(lock.try_acquire()));
            forked(out, "within", here.block_on(within));
            forked(out, "acquire", here.block_on(lock.acquire()));
        }
        here.block_on(verbs(out, &keeper, &guard));
        forked(out, "release", here.block_on(released.release()));
        forked(out, "blocking try", theirs.try_acquire());
        forked(out, "blocking run", held.run(|| ()));
        forked(out, "blocking lock", threads.lock("other"));
        threads.close();
        if held.is_held() {
            let _ = writeln!(out, "held by a thread");
        }
        drop((guard, held));
        drop(own);
        // A keeper of its own has nothing of its parent's.
        let fresh = here.block_on(Lockkeeper::connect(url));
        if anew == Anew::Refused {
            match fresh {
                Err(error @ Error::Refused { .. }) if error.to_string().contains(NO_SQLITE) => (),
                fresh => drop(writeln!(out, "connects: {fresh:?}")),
            }
            return;
        }
        let fresh = fresh.expect("connects");
        for name in ["held", "releases", "theirs"] {
            let lock = fresh.lock(name).expect("a lock");
            let got = here.block_on(lock.try_acquire()).expect("answers");
            if got.is_some() == (anew == Anew::Same) {
                let _ = writeln!(out, "{name}: {got:?}");
            }
        }
        let free = fresh.lock("free").expect("a lock");
        let got = here.block_on(free.try_acquire()).expect("answers");
        if !got.is_some_and(|guard| guard.is_held()) {
            let _ = writeln!(out, "the free one is not to be had");
        }
    });
    assert_eq!(wrote, "", "what went wrong in the child");
    assert!(ended, "the child did not end");

    let (guard, released, held, own) = kept.expect("the child took its copy");
    assert!(guard.is_held() && released.is_held() && held.is_held());
    runtime
        .block_on(guard.extend(Duration::from_secs(25)))
        .expect("is held in the store");
    let token = guard.token();
    for (name, guard) in [("held", guard), ("releases", released)] {
        let outcome = runtime.block_on(guard.release()).expect("releases");
        assert_eq!(outcome, lockkeeper::ReleaseOutcome::Released, "{name}");
    }
    held.release().expect("releases");
    drop(own);
    let next = runtime.block_on(lock.try_acquire()).expect("answers");
    assert!(next.expect("is free").token() > token);
}

#[test]
fn on_memory() {
    forks("memory:forks", Anew::Another);
}

#[test]
fn on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.db");
    forks(&format!("sqlite:{}", file.display()), Anew::Refused);
}

/// A SQLite store that was closed before the fork is in nobody's way; and what a child opens is closed to its own child.
#[test]
fn sqlite_in_the_child_only() {
    const ALONE: &str = "LOCKKEEPER_TEST_ALONE";
    // In a process of its own: other tests have stores open here.
    if std::env::var_os(ALONE).is_none() {
        let mut again = Command::new(std::env::current_exe().expect("this program"));
        again.args(["--exact", "sqlite_in_the_child_only"]);
        let again = again.env(ALONE, "1").output().expect("runs");
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.db");
    let open = || SqliteStore::open(&file);
    drop((open().expect("opens"), open().expect("opens")));
    let refused = |out: &mut dyn Write| match open() {
        Err(error) if error.to_string().contains(NO_SQLITE) => (),
        opened => drop(writeln!(out, "{opened:?}")),
    };
    let (wrote, ended) = in_a_fork(|out| {
        let one = open().expect("opens");
        drop(open().expect("opens"));
        // The one that is left counts.
        let status = match fork().expect("forks") {
            Fork::Child => {
                refused(out);
                std::process::exit(0)
            }
            Fork::Parent(child) => waitpid(child),
        };
        if !matches!(status, Ok(0)) {
            let _ = writeln!(out, "the grandchild: {status:?}");
        }
        drop(one);
        drop(open().expect("opens once more"));
    });
    assert_eq!((wrote.as_str(), ended), ("", true));
    // And the parent, to which nothing happened.
    drop(open().expect("opens"));
}

#[test]
fn on_redis() {
    let server = RedisServer::start();
    forks(&server.url(), Anew::Same);
}

#[test]
fn on_a_quorum() {
    let nodes = Independent::start(3);
    forks(&nodes.url_at_once("30s"), Anew::Same);
}

#[test]
fn on_postgres() {
    let server = PostgresServer::start();
    forks(&server.url(), Anew::Same);
}

#[test]
fn on_mariadb() {
    let server = MariaDbServer::start();
    forks(&server.url(), Anew::Same);
}

#[test]
fn on_zookeeper() {
    let server = ZooKeeperServer::start();
    forks(&server.url("forks"), Anew::Same);
}

/// A thread is in the middle of a transaction, with a mutex locked, for as long as the child is there.
#[test]
fn at_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("locks.db").display());
    let keeper = runtime().block_on(Lockkeeper::connect(&url));
    let keeper = keeper.expect("connects");
    let (tell, told) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    let theirs = keeper.clone();
    let rests = std::thread::spawn(move || {
        theirs.at_rest(|| {
            tell.send(()).expect("is heard");
            let _ = ends.recv();
        });
    });
    told.recv().expect("is told");
    let (wrote, ended) = in_a_fork(|out| {
        keeper.at_rest(|| {
            let _ = write!(out, "called");
        });
    });
    assert_eq!((wrote.as_str(), ended), ("called", true));
    drop(end);
    rests.join().expect("no panic");
}

/// What ends a subscription does nothing in a fork. The copy is dropped with what it points to.
#[test]
fn of_a_subscription() {
    struct Ends(PathBuf);
    impl Drop for Ends {
        fn drop(&mut self) {
            std::fs::write(&self.0, "dropped").expect("is written");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ends");
    let mut kept = Some(Subscription::new(Arc::default(), Ends(file.clone())));
    let (wrote, ended) = in_a_fork(|_| drop(kept.take()));
    assert_eq!((wrote.as_str(), ended), ("", true));
    assert!(!file.exists(), "ended in the fork");
    drop(kept);
    assert!(file.exists(), "not ended by its own process");
}

/// Many threads use a keeper while its process is forked: whatever they had locked then, the child goes on.
fn forks_at_work(url: &str) {
    let keeper = blocking::Lockkeeper::connect(url).expect("connects");
    let lock = keeper.lock("mine").expect("a lock");
    let at_work = Arc::new(AtomicBool::new(true));
    let work = |lock: blocking::Lock| {
        let at_work = at_work.clone();
        std::thread::spawn(move || {
            while at_work.load(Ordering::Relaxed) {
                drop(lock.acquire().expect("acquires"));
            }
        })
    };
    let workers = [(); 3].map(|()| work(keeper.lock("theirs").expect("a lock")));
    for _ in 0..20 {
        let mut guard = Some(lock.acquire().expect("acquires"));
        let (wrote, ended) = in_a_fork(|out| {
            forked(out, "lock", keeper.lock("theirs"));
            forked(out, "try", lock.try_acquire());
            drop(guard.take());
            drop(lock.clone());
        });
        assert_eq!((wrote.as_str(), ended), ("", true), "{url}");
        assert!(guard.expect("is there").is_held());
    }
    at_work.store(false, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("no panic");
    }
}

#[test]
fn while_others_are_at_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("locks.db");
    forks_at_work("memory:busy-forks");
    forks_at_work(&format!("sqlite:{}", file.display()));
    let server = RedisServer::start();
    forks_at_work(&server.url());
}

#[test]
#[ignore = "takes long: `cargo xtask nightly` runs it"]
fn while_others_are_at_work_on_slower_servers() {
    let server = PostgresServer::start();
    forks_at_work(&server.url());
    let server = MariaDbServer::start();
    forks_at_work(&server.url());
    let server = ZooKeeperServer::start();
    forks_at_work(&server.url("forks"));
}
