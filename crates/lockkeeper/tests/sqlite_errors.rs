//! Each way in which a file cannot be used is refused in words that say what to do, and nothing breaks.
#![cfg(feature = "sqlite")]

mod sqlite_common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use lockkeeper::Error;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper::store::{Attempt, Store};
use rusqlite::Connection;
use sqlite_common::{Claims, block_on, release, run_as_child};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("folder")
}

/// The words with which a path is refused.
fn refused(path: &Path) -> String {
    match SqliteStore::open(path) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("{path:?} should be refused: {other:?}"),
    }
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Unavailable { reason, .. }) => reason,
        other => panic!("should be unavailable: {other:?}"),
    }
}

#[test]
fn a_missing_folder_is_created_only_where_it_is_ours() {
    let folder = folder();
    let missing = folder.path().join("nowhere/locks.db");
    let text = refused(&missing);
    assert!(
        text.contains("does not exist") && text.contains("create it"),
        "{text}"
    );
    assert!(!folder.path().join("nowhere").exists());

    let ours = folder.path().join("state/lockkeeper/locks.db");
    SqliteStore::open(&ours).expect("the default's folder is made");
    let mode = fs::metadata(ours.parent().expect("folder"))
        .expect("made")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn paths_that_are_no_file_are_refused() {
    let folder = folder();
    let text = refused(folder.path());
    assert!(text.contains("is a folder"), "{text}");
    let socket = folder.path().join("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).expect("socket");
    assert!(refused(&socket).contains("not an ordinary file"));
    let file = folder.path().join("file");
    fs::write(&file, "").expect("file");
    assert!(
        refused(&file.join("locks.db")).contains("is"),
        "a file as folder"
    );
    let link = folder.path().join("link");
    symlink(folder.path().join("gone"), &link).expect("link");
    assert!(refused(&link).contains("symbolic link to nowhere"));
}

#[test]
fn foreign_files_are_refused_and_left_as_they_are() {
    let folder = folder();
    let text_file = folder.path().join("notes.txt");
    fs::write(&text_file, "dear diary, ".repeat(500)).expect("notes");
    assert!(refused(&text_file).contains("not a SQLite database"));

    let foreign = folder.path().join("shop.db");
    let shop = Connection::open(&foreign).expect("shop");
    shop.execute_batch("CREATE TABLE stock (item TEXT); INSERT INTO stock VALUES ('book')")
        .expect("stock");
    drop(shop);
    let before = fs::read(&foreign).expect("content");
    assert!(refused(&foreign).contains("database of another program"));
    assert_eq!(fs::read(&foreign).expect("content"), before);

    let marked = folder.path().join("marked.db");
    Connection::open(&marked)
        .expect("opens")
        .pragma_update(None, "application_id", 42)
        .expect("marks");
    assert!(refused(&marked).contains("database of another program"));
    assert!(!folder.path().join("marked.db-keepers").exists());
}

#[test]
fn a_newer_version_is_refused() {
    let folder = folder();
    let path = folder.path().join("locks.db");
    drop(SqliteStore::open(&path).expect("opens"));
    Connection::open(&path)
        .expect("opens")
        .pragma_update(None, "user_version", 999)
        .expect("marks");
    let text = refused(&path);
    assert!(
        text.contains("newer") && text.contains("999") && text.contains("update"),
        "{text}"
    );
}

#[test]
fn a_damaged_file_is_refused() {
    let folder = folder();
    let path = folder.path().join("locks.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let mut bytes = fs::read(&path).expect("content");
    let end = bytes.len();
    bytes[120..end].fill(0xA5);
    fs::write(&path, bytes).expect("damages");
    let text = refused(&path);
    assert!(
        text.contains("damaged") && text.contains("delete"),
        "{text}"
    );
}

#[test]
fn a_file_with_two_names_is_refused_but_a_symbolic_link_leads_to_the_same_locks() {
    let folder = folder();
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(&path).expect("opens");
    let link = folder.path().join("link.db");
    symlink(&path, &link).expect("link");
    let other = SqliteStore::open(&link).expect("opens");
    let claims = Claims::new("a");
    assert!(matches!(
        block_on(store.try_acquire(&claims.next())),
        Ok(Attempt::Granted(_))
    ));
    assert!(matches!(
        block_on(other.try_acquire(&claims.next())),
        Ok(Attempt::Busy { .. })
    ));
    drop((store, other));
    fs::hard_link(&path, folder.path().join("twin.db")).expect("twin");
    assert!(refused(&path).contains("hard link"));
}

#[test]
fn read_only_files_and_folders_are_refused() {
    // The superuser may write anywhere, so this runs as somebody else.
    if !run_as_child("read_only_files_and_folders_are_refused", true) {
        return;
    }
    let folder = folder();
    let path = folder.path().join("locks.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("sets")
    };
    set(&path, 0o400);
    let text = refused(&path);
    assert!(
        text.contains("read-only") && text.contains("write access"),
        "{text}"
    );
    set(&path, 0o600);
    set(folder.path(), 0o500);
    let text = refused(&path);
    assert!(text.contains("write access"), "{text}");
    let text = refused(&folder.path().join("new.db"));
    assert!(text.contains("write access"), "{text}");
    set(folder.path(), 0o000);
    let text = refused(&path);
    assert!(text.contains("cannot be accessed"), "{text}");
    set(folder.path(), 0o700);
    drop(SqliteStore::open(&path).expect("opens again"));
}

#[test]
fn a_file_locked_by_another_program_is_unavailable_in_time_and_comes_back() {
    let folder = folder();
    let path = folder.path().join("locks.db");
    let store = SqliteStore::open(&path).expect("opens");
    let claims = Claims::new("a");
    let holder = Connection::open(&path).expect("opens");
    holder.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let begun = Instant::now();
    let text = unavailable(block_on(store.try_acquire(&claims.next())));
    assert!(text.contains("keeps") && text.contains("locked"), "{text}");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "waited {:?}",
        begun.elapsed()
    );
    let text = unavailable(SqliteStore::open(&path));
    assert!(text.contains("locked"), "{text}");
    holder.execute_batch("ROLLBACK").expect("unlocks");
    assert!(matches!(
        block_on(store.try_acquire(&claims.next())),
        Ok(Attempt::Granted(_))
    ));
}

#[test]
fn a_deleted_or_replaced_file_is_noticed() {
    // Without its log or the memory next to it, too, the next store sees nothing of us.
    for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        let folder = folder();
        let store = SqliteStore::open(&folder.path().join("locks.db")).expect("opens");
        let claims = Claims::new("a");
        let claim = claims.next();
        block_on(store.try_acquire(&claim)).expect("works");
        fs::rename(folder.path().join(file), folder.path().join("moved")).expect("moves");
        let begun = Instant::now();
        let error = loop {
            match block_on(store.try_acquire(&claims.next())) {
                Ok(_) => assert!(begun.elapsed() < Duration::from_secs(10), "{file}"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(&error, Error::Refused { reason, .. } if reason.contains("restart")),
            "{error}"
        );
        assert!(block_on(store.release(&release(&claim))).is_err());
    }
}

/// Fills the store with names until the file cannot grow, then checks that nothing is half taken.
fn fill_up(store: &SqliteStore, mut make_room: impl FnMut()) {
    let mut last = None;
    let text = loop {
        let claims = Claims::new(&format!("{:0400}", last.map_or(0, |n| n + 1)));
        let claim = claims.next();
        match block_on(store.try_acquire(&claim)) {
            Ok(Attempt::Granted(_)) => last = Some(last.map_or(0, |n| n + 1)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                let text = unavailable::<()>(Err(error));
                make_room();
                let info = block_on(store.inspect(&claim.name)).expect("reads");
                assert!(
                    info.is_none_or(|info| info.holders.is_empty()),
                    "half taken"
                );
                assert!(matches!(
                    block_on(store.try_acquire(&claim)),
                    Ok(Attempt::Granted(_))
                ));
                break text;
            }
        }
        assert!(last < Some(1_000_000), "the disk never filled up");
    };
    assert!(last > Some(10), "too early");
    assert!(text.contains("nothing was changed"), "{text}");
}

#[test]
fn a_full_disk_takes_nothing_by_halves() {
    // A limit on the size of files stands in for the disk: it needs no rights. It is for a whole process.
    if !run_as_child("a_full_disk_takes_nothing_by_halves", false) {
        return;
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let folder = folder();
    let store = SqliteStore::open(&folder.path().join("locks.db")).expect("opens");
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some(300_000),
        maximum: before.maximum,
    };
    setrlimit(Resource::Fsize, limit).expect("limits");
    fill_up(&store, || {
        setrlimit(Resource::Fsize, before).expect("lifts the limit")
    });
}

/// A small file system that ends with the test.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new() -> Option<Mount> {
        let mount = Mount(folder());
        let made = mount.run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
        made.then_some(mount)
    }

    fn run(&self, what: &str, args: &[&str]) -> bool {
        let run = std::process::Command::new(what)
            .args(args)
            .arg(self.0.path())
            .output();
        run.is_ok_and(|run| run.status.success())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.run("umount", &[]);
    }
}

#[test]
fn a_full_file_system_takes_nothing_by_halves() {
    let Some(mount) = Mount::new() else {
        // Not by `eprintln`, which shows only when a test fails.
        let words =
            "no right to mount a file system: the full disk was tested by a size limit alone";
        let _ = writeln!(std::io::stderr(), "{words}");
        return;
    };
    let ballast = mount.0.path().join("ballast");
    fs::write(&ballast, vec![0; 200_000]).expect("ballast");
    let store = SqliteStore::open(&mount.0.path().join("locks.db")).expect("opens");
    fill_up(&store, || fs::remove_file(&ballast).expect("makes room"));
}
