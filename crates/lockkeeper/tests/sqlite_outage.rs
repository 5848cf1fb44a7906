//! A file that another program keeps locked is away, and it is told when it is back, also where nobody asks any more.
#![cfg(feature = "sqlite")]

use std::sync::{Arc, mpsc};
use std::time::Duration;

use lockkeeper::blocking::Lockkeeper;
use lockkeeper::{Event, Observer};
use rusqlite::Connection;

const PATIENCE: Duration = Duration::from_secs(60);

struct Tells(mpsc::Sender<&'static str>);

impl Observer for Tells {
    fn event(&self, event: &Event<'_>) {
        if event.name().is_none() {
            let _ = self.0.send(event.kind());
        }
    }
}

#[test]
fn a_file_that_is_locked_is_away_until_it_can_be_written() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("locks.db");
    let (tells, told) = mpsc::channel();
    let keeper = Lockkeeper::builder().url(&format!("sqlite:{}", path.display()));
    let keeper = keeper.observer(Arc::new(Tells(tells)));
    let keeper = keeper.connect_blocking().expect("connects");
    let lock = keeper.lock("x").expect("a name");
    let writer = Connection::open(&path).expect("opens");
    writer.execute_batch("BEGIN IMMEDIATE").expect("locks");
    assert!(lock.try_acquire().is_err(), "another program writes");
    assert_eq!(told.recv_timeout(PATIENCE), Ok("store_away"));
    // Asking whether it is back says nothing before it is.
    assert!(told.recv_timeout(Duration::from_secs(3)).is_err());
    writer.execute_batch("ROLLBACK").expect("unlocks");
    assert_eq!(told.recv_timeout(PATIENCE), Ok("store_back"));
    assert!(lock.try_acquire().expect("works").is_some());
    assert!(told.try_recv().is_err());
}
