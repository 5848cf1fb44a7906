//! Several locks at once beside clients of other projects, which keep no order.

use std::time::Duration;

use crate::common::until;
use lockkeeper::{Lock, Lockkeeper, MultiGuard, MultiLock, blocking};
use lockkeeper_testkit::servers::redis::RedisServer;

const SOON: Duration = Duration::from_secs(20);
/// Much longer than a claim that waits for a stranger insists at first.
const A_WHILE: Duration = Duration::from_millis(300);

const STRANGER: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";

struct Site {
    keeper: Lockkeeper,
    other: Lockkeeper,
    redisson: bool,
    url: String,
    server: RedisServer,
}

impl Site {
    /// In each dialect.
    async fn both() -> Vec<Site> {
        let mut sites = Vec::new();
        for dialect in ["redisson", "plain"] {
            let server = RedisServer::start();
            let url = format!("{}?dialect={dialect}", server.url());
            sites.push(Site {
                keeper: Lockkeeper::connect(&url).await.expect("connects"),
                other: Lockkeeper::connect(&url).await.expect("connects"),
                redisson: dialect == "redisson",
                url,
                server,
            });
        }
        sites
    }

    fn stranger_takes(&self, name: &str) {
        match self.redisson {
            true => self.server.command(&["HSET", name, STRANGER, "1"]),
            false => self.server.command(&["SET", name, "theirs"]),
        };
        self.server.command(&["PEXPIRE", name, "600000"]);
    }

    fn stranger_leaves(&self, name: &str) {
        self.server.command(&["DEL", name]);
        let channel = format!("redisson_lock__channel:{{{name}}}");
        self.server.command(&["PUBLISH", &channel, "0"]);
    }

    fn all(&self) -> MultiLock {
        self.keeper.multi_lock(["z", "x", "y"]).expect("locks")
    }

    fn lock(&self, name: &str) -> Lock {
        self.other.lock(name).expect("a lock")
    }

    async fn is_free(&self, name: &str) -> bool {
        let guard = self.lock(name).try_acquire().await.expect("answers");
        match guard {
            Some(guard) => guard.release().await.expect("releases"),
            None => return false,
        };
        true
    }

    fn token(&self, name: &str) -> Vec<String> {
        let kind = match self.redisson {
            true => "redisson_lock",
            false => "lockkeeper",
        };
        let key = format!("{kind}_token:{{{name}}}");
        self.server.strings(&["GET", &key])
    }

    /// One of ours has it, or had it.
    fn was_taken(&self, name: &str) -> bool {
        !self.token(name).is_empty()
    }

    /// Somebody has it. No try, which might get it.
    fn is_taken(&self, name: &str) -> bool {
        self.server.strings(&["EXISTS", name]) == ["1"]
    }

    async fn nothing_is_left(&self) {
        until("only tokens are left", async || {
            let keys = self.server.keys();
            keys.iter().all(|key| key.contains("_token:"))
        })
        .await;
    }
}

fn waits_for(all: MultiLock) -> tokio::task::JoinHandle<MultiGuard> {
    tokio::spawn(async move { all.acquire().await.expect("acquires") })
}

async fn soon(waits: tokio::task::JoinHandle<MultiGuard>) -> MultiGuard {
    let done = tokio::time::timeout(SOON, waits).await;
    done.expect("soon").expect("finishes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_stranger_lets_go_of_what_it_has() {
    for site in Site::both().await {
        site.stranger_takes("z");
        let waits = waits_for(site.all());
        until("it had the others", async || site.was_taken("y")).await;
        until("it lets go of them", async || {
            !site.is_taken("x") && !site.is_taken("y")
        })
        .await;
        // As does a stranger that has the last and wants the others.
        site.stranger_takes("x");
        site.stranger_takes("y");
        for name in ["z", "x", "y"] {
            site.stranger_leaves(name);
        }
        let all = soon(waits).await;
        assert!(all.is_held());
        let names: Vec<&str> = all.guards().iter().map(|guard| &**guard.name()).collect();
        assert_eq!(names, ["x", "y", "z"], "in the order of their names");
        all.release().await.expect("releases");
        site.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_keeper_keeps_what_it_has() {
    for site in Site::both().await {
        let last = site.lock("z").acquire().await.expect("acquires");
        let waits = waits_for(site.all());
        until("it has the first two", async || {
            site.is_taken("x") && site.is_taken("y")
        })
        .await;
        let tokens = ["x", "y"].map(|name| site.token(name));
        tokio::time::sleep(A_WHILE).await;
        assert!(site.is_taken("x") && site.is_taken("y"));
        last.release().await.expect("releases");
        let all = soon(waits).await;
        assert_eq!(["x", "y"].map(|name| site.token(name)), tokens);
        all.release().await.expect("releases");
        site.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_out_of_order_gives_way_to_keepers_too() {
    for site in Site::both().await {
        site.stranger_takes("z");
        let waits = waits_for(site.all());
        until("it had the others", async || site.was_taken("y")).await;
        // A keeper that will want the last as well, and keeps what it has.
        let first = tokio::time::timeout(SOON, site.lock("x").acquire()).await;
        let first = first.expect("it lets go").expect("acquires");
        site.stranger_leaves("z");
        let last = tokio::time::timeout(SOON, site.lock("z").acquire()).await;
        let last = last.expect("it lets go").expect("acquires");
        assert!(!waits.is_finished());
        last.release().await.expect("releases");
        first.release().await.expect("releases");
        soon(waits).await.release().await.expect("releases");
        site.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gave_way_and_gives_up_leaves_nothing() {
    for site in Site::both().await {
        site.stranger_takes("y");
        for patience in [20, 80, 200, 500].map(Duration::from_millis) {
            let all = site.all();
            let within = all.acquire_within(patience).await.expect("answers");
            assert!(within.is_none());
            // Dropped in the middle.
            assert!(tokio::time::timeout(patience, all.acquire()).await.is_err());
            until("the others are free", async || {
                site.is_free("x").await && site.is_free("z").await
            })
            .await;
        }
        let url = site.url.clone();
        let gives_up = move || {
            let keeper = blocking::Lockkeeper::connect(&url).expect("connects");
            let all = keeper.multi_lock(["x", "y", "z"]).expect("locks");
            all.acquire_within(A_WHILE).expect("answers").is_none()
        };
        let gave_up = tokio::task::spawn_blocking(gives_up);
        assert!(gave_up.await.expect("finishes"));
        site.stranger_leaves("y");
        site.nothing_is_left().await;
    }
}
