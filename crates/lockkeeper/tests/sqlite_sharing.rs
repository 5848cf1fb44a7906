//! Several stores on one file: they exclude and wake each other, and what a dead one held is free.
#![cfg(feature = "sqlite")]

mod sqlite_common;

use std::fs;
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::clock::Moment;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper::store::*;
use rusqlite::Connection;
use sqlite_common::{Claims, block_on, child, child_argument, release, run_as_child, until};

/// Far longer than anything here takes, and shorter than the leases that would end it otherwise.
const SOON: Duration = Duration::from_secs(20);

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("locks.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path).expect("opens")
}

fn acquire(store: &SqliteStore, claim: &Claim) -> Attempt {
    block_on(store.try_acquire(claim)).expect("answers")
}

fn is_granted(attempt: Attempt) -> bool {
    matches!(attempt, Attempt::Granted(_))
}

/// Waits for a hint; panics when none comes for long.
fn hinted(subscription: &Subscription) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("runtime");
    runtime
        .block_on(async { tokio::time::timeout(SOON, subscription.hint()).await })
        .expect("a hint comes");
}

#[test]
fn stores_exclude_each_other_and_a_release_wakes_the_next() {
    let (_folder, path) = folder();
    let (one, two) = (open(&path), open(&path));
    let (ours, theirs) = (Claims::new("a"), Claims::new("a"));
    let (held, waiting) = (ours.next(), theirs.next());
    let Attempt::Granted(first) = acquire(&one, &held) else {
        panic!("free");
    };
    let interest = Interest::Claim(waiting.name.clone(), waiting.id);
    let subscription = block_on(two.subscribe(interest)).expect("subscribes");
    assert!(matches!(
        acquire(&two, &waiting),
        Attempt::Busy { free_in: Some(_) }
    ));
    let info = block_on(two.inspect(&held.name))
        .expect("answers")
        .expect("known");
    assert_eq!((info.holders.len(), info.waiters), (1, 1));
    assert_eq!(info.holders[0].process.pid, std::process::id());

    assert!(
        block_on(one.release(&release(&held)))
            .expect("answers")
            .was_held
    );
    hinted(&subscription);
    let Attempt::Granted(second) = acquire(&two, &waiting) else {
        panic!("granted by the release");
    };
    assert!(second.token > first.token);
    // The first cannot come back in between, nor end what is not its own.
    assert!(!is_granted(acquire(&one, &ours.next())));
    assert!(
        !block_on(one.release(&release(&held)))
            .expect("answers")
            .was_held
    );
    assert!(
        block_on(two.release(&release(&waiting)))
            .expect("answers")
            .was_held
    );
}

#[test]
fn names_and_latches_are_watched_across_stores() {
    let (_folder, path) = folder();
    let (one, two) = (open(&path), open(&path));
    let claims = Claims::new("a");
    let claim = claims.next();
    let watch = block_on(two.subscribe(Interest::Name(claim.name.clone()))).expect("subscribes");
    assert!(is_granted(acquire(&one, &claim)));
    hinted(&watch);
    let latch = |store: &SqliteStore, op| {
        let request = LatchRequest::new(claim.name.clone(), claims.next().id, op, claim.not_after);
        block_on(store.latch(&request)).expect("answers").count
    };
    assert_eq!(latch(&one, LatchOp::Set(2)), 2);
    let watch = block_on(two.subscribe(Interest::Latch(claim.name.clone()))).expect("subscribes");
    assert_eq!(latch(&two, LatchOp::CountDown), 1);
    assert_eq!(latch(&one, LatchOp::CountDown), 0);
    hinted(&watch);
    assert_eq!(latch(&two, LatchOp::Read), 0);
}

#[test]
fn a_store_that_is_dropped_leaves_nothing() {
    // Threads and open files are counted, so no other test may run here.
    if !run_as_child("a_store_that_is_dropped_leaves_nothing", false) {
        return;
    }
    let (folder, path) = folder();
    let in_use = || {
        let count = |what| fs::read_dir(what).map_or(0, |entries| entries.count());
        (count("/proc/self/task"), count("/proc/self/fd"))
    };
    let before = in_use();
    for _ in 0..3 {
        let store = open(&path);
        let claim = Claims::new("a").next();
        let interest = Interest::Claim(claim.name.clone(), claim.id);
        let subscription = block_on(store.subscribe(interest)).expect("subscribes");
        assert!(is_granted(acquire(&store, &claim)));
        block_on(store.release(&release(&claim))).expect("answers");
        drop(store);
        drop(subscription);
    }
    // A thread that was joined may stay in the list for a moment.
    let begun = Instant::now();
    while in_use() != before {
        assert!(begun.elapsed() < SOON, "{before:?} became {:?}", in_use());
        std::thread::yield_now();
    }
    let left = fs::read_dir(folder.path()).expect("folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(
        left,
        ["locks.db"],
        "the log, the socket and the lock are gone"
    );
}

#[test]
fn holds_of_a_dropped_store_are_free_unless_its_liveness_is_kept() {
    let (_folder, path) = folder();
    let (one, two) = (open(&path), open(&path));
    let claims = Claims::new("a");
    assert!(is_granted(acquire(&one, &claims.next())));
    let handle = one.liveness().expect("a handle");
    drop(one);
    let next = claims.next();
    assert!(
        !is_granted(acquire(&two, &next)),
        "alive through the handle"
    );
    drop(handle);
    until("it is free", || is_granted(acquire(&two, &next)));
}

/// Starts a child that holds `held`, waits for `wanted`, and says so.
fn start_holder(test: &str, path: &Path) -> Child {
    let mut command = child(test, path.to_str().expect("text"));
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let output = BufReader::new(child.stdout.take().expect("output"));
    let ready = output
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("READY"));
    assert!(ready, "the child ended early");
    child
}

fn hold_until_killed(path: &str) -> ! {
    let store = open(Path::new(path));
    assert!(is_granted(acquire(&store, &Claims::new("held").next())));
    assert!(!is_granted(acquire(&store, &Claims::new("wanted").next())));
    println!("READY");
    loop {
        std::thread::park();
    }
}

#[test]
fn holds_of_a_killed_process_are_free_at_once() {
    const TEST: &str = "holds_of_a_killed_process_are_free_at_once";
    if let Some(path) = child_argument() {
        hold_until_killed(&path);
    }
    let (folder, path) = folder();
    let store = open(&path);
    let wanted = Claims::new("wanted").next();
    assert!(is_granted(acquire(&store, &wanted)));
    let mut child = start_holder(TEST, &path);

    let claims = Claims::new("held");
    let waiting = claims.next();
    let interest = Interest::Claim(waiting.name.clone(), waiting.id);
    let subscription = block_on(store.subscribe(interest)).expect("subscribes");
    assert!(!is_granted(acquire(&store, &waiting)), "the child lives");
    let info = block_on(store.inspect(&waiting.name))
        .expect("answers")
        .expect("known");
    assert_eq!(info.holders[0].process.pid, child.id());

    let killed = Instant::now();
    child.kill().expect("kills");
    child.wait().expect("ends");
    // Nobody releases anything: the hint comes from the store that notices.
    hinted(&subscription);
    assert!(is_granted(acquire(&store, &waiting)));
    assert!(killed.elapsed() < SOON, "its lease would have run for 30 s");
    // Its place in the other queue is gone too: the release grants to nobody.
    block_on(store.release(&release(&wanted))).expect("answers");
    let info = block_on(store.inspect(&wanted.name))
        .expect("answers")
        .expect("known");
    assert!(info.holders.is_empty() && info.waiters == 0, "{info:?}");
    block_on(store.release(&release(&waiting))).expect("answers");
    drop(store);
    let keepers = folder.path().join("locks.db-keepers");
    let left: Vec<_> = fs::read_dir(keepers).into_iter().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_try_finds_the_dead_without_waiting_for_a_hint() {
    const TEST: &str = "a_try_finds_the_dead_without_waiting_for_a_hint";
    if let Some(path) = child_argument() {
        hold_until_killed(&path);
    }
    let (_folder, path) = folder();
    let store = open(&path);
    assert!(is_granted(acquire(&store, &Claims::new("wanted").next())));
    let mut child = start_holder(TEST, &path);
    let claims = Claims::new("held");
    assert!(!is_granted(acquire(&store, &claims.next())));
    child.kill().expect("kills");
    child.wait().expect("ends");
    // The claim above waits and gets it; it is ours, and a withdrawal lets the next in.
    let next = claims.next();
    let attempt = acquire(&store, &next);
    let info = block_on(store.inspect(&next.name))
        .expect("answers")
        .expect("known");
    assert!(
        info.holders
            .iter()
            .all(|holder| holder.process.pid == std::process::id()),
        "{attempt:?}"
    );
    assert_eq!(info.holders.len(), 1);
}

#[test]
fn opening_cleans_up_after_a_crash() {
    const TEST: &str = "opening_cleans_up_after_a_crash";
    if let Some(path) = child_argument() {
        hold_until_killed(&path);
    }
    let (folder, path) = folder();
    let store = open(&path);
    assert!(is_granted(acquire(&store, &Claims::new("wanted").next())));
    let mut child = start_holder(TEST, &path);
    drop(store);
    child.kill().expect("kills");
    child.wait().expect("ends");
    let store = open(&path);
    assert!(block_on(store.list("")).expect("answers").is_empty());
    let keepers = folder.path().join("locks.db-keepers");
    let left = fs::read_dir(keepers).expect("folder").flatten().count();
    assert_eq!(left, 2, "only the lock and the socket of the open store");
}

/// A new file is there all at once, under one name: a store that opens it meanwhile takes it for what it is.
#[test]
fn a_file_that_many_open_first_is_opened_by_all() {
    const ROUNDS: usize = 100;
    for round in 0..ROUNDS {
        let (folder, path) = folder();
        let start = std::sync::Barrier::new(6);
        let opened: Vec<_> = std::thread::scope(|scope| {
            let opener = || {
                start.wait();
                SqliteStore::open(&path).map(drop)
            };
            let openers: Vec<_> = (0..6).map(|_| scope.spawn(opener)).collect();
            let opened = openers.into_iter().map(|opener| opener.join());
            opened.map(|opened| opened.expect("no panic")).collect()
        });
        for result in opened {
            assert!(result.is_ok(), "round {round}: {result:?}");
        }
        let files = fs::read_dir(folder.path()).expect("folder").flatten();
        let drafts = files.filter(|file| file.file_name().as_encoded_bytes().starts_with(b"."));
        assert_eq!(drafts.count(), 0, "a draft was left");
    }
}

#[test]
fn many_threads_and_stores_never_hold_together() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 150;
    let (_folder, path) = folder();
    let stores = [Arc::new(open(&path)), Arc::new(open(&path))];
    let (inside, last_token) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for at in 0..THREADS {
            let store = stores[at as usize % 2].clone();
            let (inside, last_token) = (&inside, &last_token);
            scope.spawn(move || {
                let claims = Claims::new("hammered");
                for _ in 0..ROUNDS {
                    let claim = claims.next();
                    let interest = Interest::Claim(claim.name.clone(), claim.id);
                    let grant = block_on(async {
                        let hints = store.subscribe(interest).await.expect("subscribes");
                        loop {
                            match store.try_acquire(&claim).await.expect("answers") {
                                Attempt::Granted(grant) => return grant,
                                _ => hints.hint().await,
                            }
                        }
                    });
                    assert!(!inside.swap(true, SeqCst), "two hold at once");
                    let before = last_token.swap(grant.token.get(), SeqCst);
                    assert!(before < grant.token.get(), "tokens grow");
                    inside.store(false, SeqCst);
                    let released = block_on(store.release(&release(&claim))).expect("answers");
                    assert!(released.was_held);
                }
            });
        }
    });
    assert!(last_token.load(SeqCst) > 0);
    assert!(block_on(stores[0].list("")).expect("answers").is_empty());
}

#[test]
fn a_verb_that_was_dropped_before_it_could_run_never_runs() {
    let (_folder, path) = folder();
    let store = open(&path);
    let claims = Claims::new("a");
    let (dropped, kept) = (claims.next(), claims.next());
    let blocker = Connection::open(&path).expect("opens");
    let poll = |future: &mut std::pin::Pin<&mut Answer<'_, Attempt>>| {
        future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
    };
    // Nothing happens before the first poll.
    drop(store.try_acquire(&dropped));
    blocker.execute_batch("BEGIN IMMEDIATE").expect("locks");
    {
        let mut future = pin!(store.try_acquire(&dropped));
        assert!(poll(&mut future).is_pending());
    }
    let mut withdrawn = store.withdraw(&dropped.name, dropped.id);
    let polled = withdrawn
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        matches!(polled, Poll::Pending),
        "lines up behind the acquire"
    );
    blocker.execute_batch("ROLLBACK").expect("unlocks");
    block_on(withdrawn).expect("answers");
    let info = block_on(store.inspect(&dropped.name)).expect("answers");
    assert!(info.is_none_or(|info| info.holders.is_empty() && info.waiters == 0));
    assert!(is_granted(acquire(&store, &kept)));
}

#[test]
fn the_log_stays_small_and_idle_names_are_forgotten() {
    let (_folder, path) = folder();
    let store = open(&path);
    let log = path.with_file_name("locks.db-wal");
    let mut largest = 0;
    let mut last = None;
    for round in 0..12_000 {
        let claim = Claims::new(&format!("name-{round}")).next();
        let Attempt::Granted(grant) = acquire(&store, &claim) else {
            panic!("free");
        };
        assert!(
            last < Some(grant.token) || round % 2_000 != 0,
            "forgotten names go on above the floor"
        );
        last = Some(grant.token);
        block_on(store.release(&release(&claim))).expect("answers");
        largest = largest.max(fs::metadata(&log).map_or(0, |file| file.len()));
    }
    assert!(largest < 64 << 20, "the log grew to {largest} bytes");
    drop(store);
    let rows: i64 = Connection::open(&path)
        .expect("opens")
        .query_row("SELECT count(*) FROM lock", [], |row| row.get(0))
        .expect("counts");
    assert!(rows < 10_000, "{rows} fences are left");
}

#[test]
fn many_holds_are_renewed_at_once() -> Result<(), Error> {
    const HOLDS: u64 = 20_000;
    let (_folder, path) = folder();
    let store = open(&path);
    let claims: Vec<Claim> = (0..HOLDS)
        .map(|at| Claims::new(&format!("n{at}")).next())
        .collect();
    for claim in &claims {
        assert!(is_granted(block_on(store.try_acquire(claim))?));
    }
    let mut renewals: Vec<Renewal> = claims
        .iter()
        .map(|claim| {
            Renewal::new(
                claim.name.clone(),
                claim.id,
                Duration::from_secs(60),
                Moment::NEVER,
            )
        })
        .collect();
    renewals[77].claim = Claims::new("x").next().id;
    let renewed = block_on(store.renew(&renewals))?;
    assert_eq!(renewed.len(), renewals.len());
    let lost: Vec<_> = (0..renewed.len())
        .filter(|at| renewed[*at] == Renewed::NotHeld)
        .collect();
    assert_eq!(lost, [77]);
    assert_eq!(block_on(store.list("n1999"))?.len(), 11);
    Ok(())
}

#[test]
fn hostile_names_are_only_names() -> Result<(), Error> {
    let (_folder, path) = folder();
    let store = open(&path);
    let longest = "x".repeat(lockkeeper::MAX_NAME_BYTES);
    let names = [
        "'; DROP TABLE lock; --",
        "%",
        "_",
        "b\"c",
        "\u{10FFFF}",
        "../../x",
        "a",
        "A",
        &longest,
    ];
    for name in names {
        let claims = Claims::new(name);
        assert!(is_granted(acquire(&store, &claims.next())), "{name}");
        assert!(!is_granted(acquire(&store, &claims.next())), "{name}");
    }
    for name in names {
        let found = block_on(store.list(name))?;
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].name.as_str(), name);
    }
    assert_eq!(block_on(store.list(""))?.len(), names.len());
    Ok(())
}

#[test]
fn everything_next_to_the_file_has_its_permissions() {
    // The umask is for a whole process.
    if !run_as_child("everything_next_to_the_file_has_its_permissions", false) {
        return;
    }
    for (umask, file, inside) in [(0o002, 0o664, 0o775), (0o077, 0o600, 0o700)] {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        let (folder, path) = folder();
        let store = open(&path);
        assert!(is_granted(acquire(&store, &Claims::new("a").next())));
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
            assert_eq!(mode(&folder.path().join(name)), file, "{name}");
        }
        let keepers = folder.path().join("locks.db-keepers");
        assert_eq!(mode(&keepers), inside);
        for entry in fs::read_dir(keepers).expect("folder").flatten() {
            assert_eq!(mode(&entry.path()), file, "{entry:?}");
        }
    }
}

#[test]
fn a_long_path_still_wakes() {
    let folder = tempfile::tempdir().expect("folder");
    let deep = folder.path().join("d".repeat(120));
    fs::create_dir(&deep).expect("folder");
    let path = deep.join("locks.db");
    let (one, two) = (open(&path), open(&path));
    let (held, waiting) = (Claims::new("a").next(), Claims::new("a").next());
    assert!(is_granted(acquire(&one, &held)));
    let interest = Interest::Claim(waiting.name.clone(), waiting.id);
    let subscription = block_on(two.subscribe(interest)).expect("subscribes");
    assert!(!is_granted(acquire(&two, &waiting)));
    block_on(one.release(&release(&held))).expect("answers");
    hinted(&subscription);
    assert!(is_granted(acquire(&two, &waiting)));
}
