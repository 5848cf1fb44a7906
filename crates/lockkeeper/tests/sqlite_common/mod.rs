//! What the tests of the SQLite store share.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs::Permissions;
use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use lockkeeper::Name;
use lockkeeper::store::{Claim, ClaimId, KeeperId, Mode, Release};
use tempfile::TempDir;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread: the store must not need any runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Waits until something is so.
///
/// The lock of a file that was closed here may last for a moment more: a child that another test starts at the same time has
/// a copy of every open file until it is another program.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes fresh claims of one keeper for one name.
pub struct Claims {
    keeper: KeeperId,
    name: Name,
    next: AtomicU64,
}

impl Claims {
    pub fn new(name: &str) -> Claims {
        Claims {
            keeper: KeeperId::new(),
            name: Name::new(name).expect("name"),
            next: AtomicU64::new(1),
        }
    }

    pub fn next(&self) -> Claim {
        Claim::new(
            ClaimId {
                keeper: self.keeper,
                number: self.next.fetch_add(1, Ordering::Relaxed),
            },
            self.name.clone(),
            Mode::Exclusive,
            Duration::from_secs(30),
        )
        .with_enqueue(true)
    }
}

pub fn release(claim: &Claim) -> Release {
    Release::new(claim.name.clone(), claim.id)
}

const CHILD: &str = "LOCKKEEPER_TEST_CHILD";

/// What this process, if it is a child, was told.
pub fn child_argument() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// This test again, in a process of its own.
pub fn child(test: &str, argument: &str) -> Command {
    child_of(
        &std::env::current_exe().expect("this program"),
        test,
        argument,
    )
}

fn child_of(program: &Path, test: &str, argument: &str) -> Command {
    // With this signal ignored, a file that reaches its size limit is an error and not the end.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    command.arg(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(CHILD, argument);
    command
}

/// Runs the rest of this test in a child: true there, false in the parent once the child has passed. With
/// `plain`, the superuser's child is an ordinary user.
pub fn run_as_child(test: &str, plain: bool) -> bool {
    if child_argument().is_some() {
        return true;
    }
    let mut command = child(test, "");
    // It ends with the child.
    let copy;
    if plain && rustix::process::geteuid().is_root() {
        // The superuser's own folders may be closed to others, and the program is often in one of them.
        copy = copy_for_everyone();
        command = child_of(&copy.path().join("test"), test, "");
        command.uid(65_534).gid(65_534);
        command.env("TMPDIR", "/tmp");
        command.current_dir("/");
    }
    let run = command.output().expect("a child starts");
    let words = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{words}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(words.contains("1 passed"), "the child ran no test: {words}");
    false
}

/// This program as `test`, in a folder that every user can read.
fn copy_for_everyone() -> TempDir {
    let folder = tempfile::tempdir_in("/tmp").expect("a folder");
    let open = Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("opens");
    let program = std::env::current_exe().expect("this program");
    std::fs::copy(program, folder.path().join("test")).expect("copies");
    folder
}
