//! A file of an earlier version: brought up to date while nobody else has it open, and refused until then.
#![cfg(feature = "sqlite")]

mod sqlite_common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lockkeeper::clock::{Clock, Moment};
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper::store::{
    Attempt, ClaimId, KeeperId, LatchOp, LatchRequest, LatchState, Store, Waiter,
};
use lockkeeper::{Error, Label, Name};
use rusqlite::{Connection, params};
use rustix::fs::{FlockOperation, flock};
use sqlite_common::{Claims, block_on, child, child_argument, release, until};

/// The tables of version 1, as its programs made them.
const VERSION_1: &str = include_str!("sqlite_common/version_1.sql");
/// "Lock".
const APPLICATION_ID: i32 = 0x4C6F_636B;
/// Far beyond the clock, so that tokens go on from here.
const FUTURE: u64 = 5_000_000_000_000_000;

/// A file of version 1 in a folder of its own.
struct OldFile {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl OldFile {
    fn new() -> OldFile {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("locks.db");
        let conn = Connection::open(&path).expect("opens");
        conn.pragma_update(None, "page_size", 1024).expect("sets");
        conn.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .expect("sets");
        conn.execute_batch(VERSION_1).expect("tables");
        let boot = Clock::real().boot_id();
        conn.execute(
            "INSERT INTO meta VALUES (1,?1,?2,0)",
            params![boot, FUTURE as i64],
        )
        .expect("meta");
        conn.pragma_update(None, "application_id", APPLICATION_ID)
            .expect("sets");
        conn.pragma_update(None, "user_version", 1).expect("sets");
        OldFile {
            _folder: folder,
            path,
        }
    }

    fn connect(&self) -> Connection {
        Connection::open(&self.path).expect("opens")
    }

    fn version(&self) -> i32 {
        self.connect()
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .expect("reads")
    }

    /// Signs a program in, as version 1 does: a row, and a lock on a file of its own.
    fn sign_in(&self, number: i64) -> File {
        let keepers = self.path.with_file_name("locks.db-keepers");
        fs::create_dir_all(&keepers).expect("folder");
        let instance = format!("{number:032x}");
        let alive = File::create(keepers.join(format!("{instance}.alive"))).expect("creates");
        flock(&alive, FlockOperation::LockExclusive).expect("locks");
        let row = params![number, instance, "shelf", 4711, "oldtimer"];
        self.connect()
            .execute("INSERT INTO process VALUES (?1,?2,?3,?4,?5,NULL)", row)
            .expect("signs in");
        alive
    }

    /// A lease of a program, for as long as a test takes; and its fence.
    fn hold(&self, name: &str, process: i64) {
        let conn = self.connect();
        let expires = (Moment::now() + Duration::from_secs(3_600)).as_nanos() as i64;
        conn.execute(
            "INSERT INTO lock VALUES (?1,?2,?3,?4,0,0,0,1,?5,0,NULL,NULL,NULL)",
            params![name, [7_u8; 24], FUTURE as i64, process, expires],
        )
        .expect("holds");
        conn.execute(
            "INSERT INTO lock (name,claim,token,waited) VALUES (?1,x'',?2,1)",
            params![name, FUTURE as i64],
        )
        .expect("fence");
        conn.execute(
            "INSERT INTO waiter VALUES (?1,1,?2,?3,0,0,0,1000000000,1,?4)",
            params![name, [8_u8; 24], process, expires],
        )
        .expect("waits");
    }
}

fn token(store: &SqliteStore, name: &str) -> u64 {
    let claim = Claims::new(name).next();
    let mut token = None;
    until("it is free", || {
        let attempt = block_on(store.try_acquire(&claim)).expect("tries");
        if let Attempt::Granted(grant) = attempt {
            token = Some(grant.token.get());
        }
        token.is_some()
    });
    let released = block_on(store.release(&release(&claim)));
    assert!(released.expect("released").was_held);
    token.expect("granted")
}

fn refused(path: &Path) -> String {
    match SqliteStore::open(path) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("{path:?} should be refused: {other:?}"),
    }
}

/// The columns of every table, in their order.
fn tables(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).expect("opens");
    let all = "SELECT m.type||' '||m.name||' '||coalesce(t.cid||t.name||t.type||t.\"notnull\"||t.pk, '') \
               FROM sqlite_schema m LEFT JOIN pragma_table_info(m.name) t ORDER BY m.name, t.cid";
    let mut all = conn.prepare(all).expect("asks");
    let rows = all.query_map([], |row| row.get(0)).expect("asks");
    rows.collect::<Result<_, _>>().expect("columns")
}

#[test]
fn an_old_file_is_upgraded_and_keeps_tokens_and_latches() {
    let old = OldFile::new();
    let alive = old.sign_in(1);
    old.hold("held", 1);
    let arrived = ClaimId {
        keeper: KeeperId::from_bits(u128::from_be_bytes([9; 16])),
        number: u64::from_be_bytes([9; 8]),
    };
    let all = format!(
        "INSERT INTO lock (name,claim,token,waited,reason,broken) VALUES ('once',x'',{},0,'it hung',7);
         INSERT INTO latch VALUES ('start',2);
         INSERT INTO arrival VALUES ('start',x'{}')",
        FUTURE + 500,
        "09".repeat(24),
    );
    old.connect().execute_batch(&all).expect("writes");
    // Its program is gone.
    drop(alive);

    let store = SqliteStore::open(&old.path).expect("upgrades");
    assert_eq!(old.version(), 2);
    assert_eq!(token(&store, "once"), FUTURE + 501);
    assert!(token(&store, "new") > FUTURE);
    assert!(token(&store, "held") > FUTURE);
    let once = block_on(store.inspect(&Name::new("once").expect("name")));
    let once = once.expect("inspects").expect("known");
    assert_eq!(once.broken.expect("broken").reason, "it hung");
    let count_down = |id| {
        let request = LatchRequest::new(
            Name::new("start").expect("name"),
            id,
            LatchOp::CountDown,
            Moment::NEVER,
        );
        block_on(store.latch(&request)).expect("counts")
    };
    let again = count_down(arrived);
    assert_eq!((again.count, again.changed), (2, false));
    let other = count_down(Claims::new("x").next().id);
    assert_eq!(other, LatchState::new(1, true));
    drop(store);

    let new = old.path.with_file_name("new.db");
    drop(SqliteStore::open(&new).expect("creates"));
    assert_eq!(tables(&old.path), tables(&new));
}

#[test]
fn a_lease_that_is_kept_alive_without_the_file_outlives_the_upgrade() {
    let old = OldFile::new();
    // As the guardian of `lockkeeper run` does for a parent that was killed.
    let alive = old.sign_in(1);
    old.hold("job", 1);
    let store = SqliteStore::open(&old.path).expect("upgrades");
    let job = Claims::new("job").next();
    let busy = block_on(store.try_acquire(&job));
    assert!(matches!(busy, Ok(Attempt::Busy { .. })), "{busy:?}");
    let info = block_on(store.inspect(&job.name)).expect("inspects");
    let info = info.expect("known");
    assert_eq!(info.holders[0].process.program, "oldtimer");
    assert!(info.holders[0].lease > Some(Duration::from_secs(3_000)));
    let waiting: Vec<ClaimId> = info
        .queue
        .iter()
        .map(|waiter: &Waiter| waiter.claim)
        .collect();
    assert_eq!(waiting, [job.id], "the waiter of a closed file is gone");
    drop(alive);
    until("it is free", || {
        let free = block_on(store.try_acquire(&job)).expect("tries");
        matches!(free, Attempt::Granted(_))
    });
}

#[test]
fn an_old_file_in_use_is_refused_and_left_as_it_is() {
    let old = OldFile::new();
    let alive = old.sign_in(1);
    old.hold("job", 1);
    // Open and idle, as a program of version 1 is between two verbs.
    let opener = old.connect();
    let held = "SELECT count(*) FROM lock WHERE claim>x''";
    let count = |conn: &Connection| conn.query_row(held, [], |row| row.get::<_, i64>(0));
    assert_eq!(count(&opener).expect("reads"), 1);

    let text = refused(&old.path);
    for words in ["earlier Lockkeeper", "oldtimer[4711] on shelf", "end the"] {
        assert!(text.contains(words), "{text}");
    }
    // It goes on as if nothing had happened.
    assert_eq!(count(&opener).expect("reads"), 1);
    let end =
        "DELETE FROM lock WHERE claim>x''; INSERT INTO waiter VALUES ('job',2,x'01',1,0,0,0,1,1,1)";
    opener.execute_batch(end).expect("writes");
    assert_eq!(old.version(), 1);

    // One that has not signed in yet, or no longer, counts as well.
    opener.execute("DELETE FROM process", []).expect("writes");
    drop(alive);
    let text = refused(&old.path);
    assert!(text.contains("in use by some program"), "{text}");
    drop(opener);
    let store = SqliteStore::open(&old.path).expect("upgrades");
    assert!(token(&store, "job") > FUTURE);
}

#[test]
fn programs_that_open_an_old_file_at_once_share_it() {
    if let Some(path) = child_argument() {
        let store = SqliteStore::open(Path::new(&path)).expect("opens");
        let claims = Claims::new("a");
        let claim = claims.next();
        while !matches!(
            block_on(store.try_acquire(&claim)).expect("tries"),
            Attempt::Granted(_)
        ) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let info = block_on(store.inspect(&claim.name)).expect("inspects");
        let token = info.expect("held").holders[0].token;
        println!("token {}", token.expect("it has one").get());
        block_on(store.release(&release(&claim))).expect("releases");
        return;
    }
    let old = OldFile::new();
    let test = "programs_that_open_an_old_file_at_once_share_it";
    let start = |_| {
        let mut command = child(test, &old.path.display().to_string());
        command.stdout(Stdio::piped()).spawn().expect("starts")
    };
    let children: Vec<_> = (0..4).map(start).collect();
    let mut tokens = BTreeSet::new();
    for child in children {
        let output = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        let token = said.lines().find_map(|line| line.split_once("token "));
        let token: u64 = token.expect("held").1.parse().expect("a token");
        assert!(token > FUTURE);
        tokens.insert(token);
    }
    assert_eq!(tokens.len(), 4);
    assert_eq!(old.version(), 2);
}

#[test]
fn a_label_that_another_program_wrote_is_shown_as_a_valid_one() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(&path).expect("opens");
    let mut claim = Claims::new("a").next();
    claim.label = Label::shortened("order 42");
    block_on(store.try_acquire(&claim)).expect("tries");
    let label = || {
        let info = block_on(store.inspect(&claim.name)).expect("inspects");
        info.expect("known").holders[0].label.clone()
    };
    assert_eq!(label(), Label::shortened("order 42"));
    let forged = "UPDATE lock SET label=char(27)||'[2J'||printf('%.*c',400,'x') WHERE claim>x''";
    let forger = Connection::open(&path).expect("opens");
    forger.execute(forged, []).expect("forges");
    let shown = label().expect("a label");
    assert!(Label::new(shown.as_str()).is_ok(), "{shown:?}");
}
