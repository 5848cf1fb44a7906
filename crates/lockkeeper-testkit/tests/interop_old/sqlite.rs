//! A SQLite file that both programs open: its version keeps one of them out, with a sentence.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use lockkeeper::{Error, Lockkeeper};
use tempfile::TempDir;

use crate::old::{OldRun, old, run_old};

/// The exit codes of `lockkeeper run` for a store that cannot be used, and for a lock that is not free.
const UNUSABLE: i32 = 69;
const BUSY: i32 = 75;
/// The exit code with which a command says that another one ran beside it.
const OVERLAP: i32 = 99;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().expect("folder");
        Place { folder }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path("locks.db").display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The sentence with which ours refuses the file.
    async fn refused(&self) -> String {
        match Lockkeeper::connect(&self.url()).await {
            Err(Error::Refused { reason, .. }) => reason,
            other => panic!("it should be refused: {other:?}"),
        }
    }

    fn old_is_refused(&self, arguments: &[&str]) {
        let (code, said) = run_old(&self.url(), arguments);
        assert_eq!(code, UNUSABLE, "{said}");
        let sentence = said.contains("newer Lockkeeper") && said.contains("update this program");
        assert!(sentence, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earlier_holds_and_ours_comes() {
    let place = Place::new();
    let holder = OldRun::holding(&place.url(), "job");
    let reason = place.refused().await;
    for words in ["earlier Lockkeeper", "lockkeeper[", "end the programs"] {
        assert!(reason.contains(words), "{reason}");
    }
    // The earlier one goes on undisturbed.
    let (code, said) = run_old(&place.url(), &["run", "--no-wait", "job", "--", "true"]);
    assert_eq!(code, BUSY, "{said}");
    let token = holder.token;
    holder.end();

    let keeper = Lockkeeper::connect(&place.url()).await.expect("upgrades");
    let guard = keeper.lock("job").expect("a lock").acquire().await;
    let guard = guard.expect("acquires");
    assert!(guard.token().get() > token, "{guard:?} after {token}");
    guard.release().await.expect("releases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_holds_and_the_earlier_comes() {
    let place = Place::new();
    let keeper = Lockkeeper::connect(&place.url()).await.expect("connects");
    let lock = keeper.lock("job").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    for arguments in [
        &["run", "--no-wait", "job", "--", "true"][..],
        &["ls"],
        &["show", "job"],
        &["break", "--reason", "stuck", "job"],
    ] {
        place.old_is_refused(arguments);
    }
    let info = keeper.inspect("job").await.expect("inspects");
    assert_eq!(info.expect("held").holders[0].claim, guard.claim());
    guard.release().await.expect("releases");
    drop((lock, keeper));
    // Also once nobody has it open.
    place.old_is_refused(&["run", "--no-wait", "job", "--", "true"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earlier_is_killed_and_ours_follows() {
    let place = Place::new();
    let holder = OldRun::holding(&place.url(), "job");
    let token = holder.token;
    drop(holder);
    let keeper = Lockkeeper::connect(&place.url()).await.expect("upgrades");
    // Its guardian ends its command first.
    let guard = keeper.lock("job").expect("a lock").acquire().await;
    assert!(guard.expect("acquires").token().get() > token);
}

/// Programs of both versions start at the same moment, on a file that is there or not, and take one lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_of_both_come_at_once() {
    let (mut old_ran, mut ours_ran, mut old_refused) = (0, 0, 0);
    for round in 0..12 {
        let place = Place::new();
        if round % 2 == 0 {
            let (code, said) = run_old(&place.url(), &["ls"]);
            assert_eq!(code, 0, "{said}");
        }
        let alone = place.path("alone");
        let inside = format!(
            "mkdir '{0}' || exit {OVERLAP}; sleep 0.02; rmdir '{0}'",
            alone.display()
        );
        let start = |_| {
            let mut command = old(&place.url());
            command.args(["run", "--wait", "20s", "job", "--", "sh", "-c", &inside]);
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::piped()).spawn().expect("it starts")
        };
        let old_ones: Vec<_> = (0..3).map(start).collect();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20 * round) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        match Lockkeeper::connect(&place.url()).await {
            Ok(keeper) => {
                let guard = keeper.lock("job").expect("a lock").acquire().await;
                let guard = guard.expect("acquires");
                fs::create_dir(&alone).expect("nobody else runs");
                tokio::time::sleep(Duration::from_millis(20)).await;
                fs::remove_dir(&alone).expect("nobody else ran");
                guard.release().await.expect("releases");
                ours_ran += 1;
            }
            Err(Error::Refused { reason, .. }) => {
                assert!(reason.contains("earlier Lockkeeper"), "{reason}");
            }
            Err(other) => panic!("{other}"),
        }
        for one in old_ones {
            let output = one.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => old_ran += 1,
                Some(UNUSABLE) if said.contains("newer Lockkeeper") => old_refused += 1,
                code => panic!("{code:?}: {said}"),
            }
        }
    }
    println!("{old_ran} earlier ones ran, {old_refused} were refused; ours ran {ours_ran} times");
    assert!(old_ran > 0 && ours_ran > 0, "{old_ran} {ours_ran}");
}
