//! Histories on a SQLite file.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::random::Random;

use crate::crowd::Crowd;
use crate::place::Place;
use crate::stage::{ALL_KINDS, Stage, play};
use crate::trouble::{OF_PROCESSES, Trouble, chosen};

struct Sqlite;

#[test]
fn every_rule_holds_on_sqlite() {
    play("sqlite", 3, 2, |_| Sqlite);
}

impl Stage for Sqlite {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::StoppedInTransaction,
            Trouble::StoppedInTransaction,
            Trouble::Visitor,
        ];
        chosen(&[&OF_PROCESSES, &own])
    }

    fn place(&mut self) -> Place {
        Place::new()
    }

    fn straight(&self, place: &Place) -> String {
        place.url.clone()
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random) {
        assert_eq!(trouble, Trouble::StoppedInTransaction);
        let shm = crowd.place.file("locks.db-shm");
        let index = crowd.stop_when(random, |_, taker| writes(&shm, taker.pid()));
        crowd.oversleep(index, time);
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }
}

/// Whether a process has the write lock of a database: byte 120 of its index.
fn writes(shm: &Path, pid: u32) -> bool {
    let inode = std::fs::metadata(shm).expect("there is an index").ino();
    let locks = std::fs::read_to_string("/proc/locks").expect("the system tells");
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // `1: POSIX  ADVISORY  WRITE 1234 fd:00:5678 120 120`
        let [_, "POSIX", _, "WRITE", who, file, from, _] = words[..] else {
            return false;
        };
        let on = file.rsplit(':').next().and_then(|inode| inode.parse().ok());
        who.parse() == Ok(pid) && on == Some(inode) && from == "120"
    })
}
