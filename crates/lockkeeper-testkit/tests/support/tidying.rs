//! Names that nobody uses any more are forgotten: by what other names are used for, and also where each process lives for one lock only.

use std::time::Duration;

use lockkeeper::Lockkeeper;

/// How many names were used once.
pub const OLD: usize = 5_000;
/// How many grants may go by until they are forgotten.
const GRANTS: usize = 5_000;
/// How many processes that take one lock each forget some of a few hundred names.
const PROCESSES: usize = 300;

/// One keeper that goes on takes a lock until all others are forgotten. `count` counts names.
pub async fn one_keeper_forgets_all(keeper: &Lockkeeper, count: impl Fn() -> usize) {
    let lock = keeper.lock("used").expect("a lock");
    for grant in 0..GRANTS {
        drop(lock.acquire().await.expect("acquires"));
        if grant % 100 == 99 && count() <= 1 {
            return;
        }
    }
    panic!("{} of {OLD} names are still there", count());
}

/// Keepers that take one lock each, as commands do, forget old names too.
pub async fn short_keepers_forget(url: &str, old: usize, count: impl Fn() -> usize) {
    for number in 0..PROCESSES {
        let keeper = Lockkeeper::connect(url).await.expect("connects");
        let lock = keeper.lock(&format!("job-{number:06}")).expect("a lock");
        let guard = lock.acquire().await.expect("acquires");
        // As long as a short command.
        tokio::time::sleep(Duration::from_millis(5)).await;
        guard.release().await.expect("releases");
        if count() <= old / 2 + number {
            return;
        }
    }
    panic!(
        "{} names are there, of {old} old ones and {PROCESSES} new",
        count()
    );
}
