//! Beside etcd's own clients: what `etcdctl lock` takes, a keeper waits for, and the other way round.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::store::{Mode, Store};
use lockkeeper_testkit::servers::etcd::EtcdServer;

use super::claims::{break_all, claim_for, release, until};
use super::common::{busy, granted, in_the_end, open, soon};

const LEASE: Duration = Duration::from_secs(20);

/// `etcdctl lock`, which prints its key once it holds. It lets go when it is killed by a signal that it hears.
struct Ctl(Child, Option<BufReader<ChildStdout>>);

impl Ctl {
    fn lock(server: &EtcdServer, name: &str) -> Ctl {
        let mut command = server.command(&["lock", name, "--ttl", "60"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let out = child.stdout.take().map(BufReader::new);
        Ctl(child, out)
    }

    /// Waits until it holds, and returns its key.
    async fn key(&mut self) -> String {
        let mut out = self.1.take().expect("a pipe");
        let read = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            out.read_line(&mut line).expect("reads");
            (out, line.trim().to_owned())
        });
        let (out, key) = soon("etcdctl holds", read).await.expect("reads");
        // It prints more, and dies where nobody would read that.
        self.1 = Some(out);
        key
    }

    fn let_go(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Ctl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_waits_for_etcdctl_and_is_woken() {
    let server = EtcdServer::start();
    let keeper = Lockkeeper::connect(&server.url(""))
        .await
        .expect("connects");
    let lock = keeper.lock("shared/name").expect("a lock");
    let mut ctl = Ctl::lock(&server, "shared/name");
    let key = ctl.key().await;
    assert!(key.starts_with("shared/name/"), "{key}");
    assert!(lock.try_acquire().await.expect("asks").is_none());
    let info = keeper.inspect("shared/name").await.expect("asks");
    let holders = info.expect("it is held").holders;
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].token, None, "it has no tokens that others see");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits", async || {
        let info = keeper.inspect("shared/name").await.expect("asks");
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
    ctl.let_go();
    let guard = soon("the lock", waiting).await.expect("ends");
    guard.expect("acquires").release().await.expect("releases");
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_waits_for_every_mode_and_is_woken() {
    let server = EtcdServer::start();
    let store = open(&server.url("")).await;
    let permits = Mode::Permit { limit: 2, count: 1 };
    for mode in [
        Mode::Exclusive,
        Mode::Fair,
        Mode::Read,
        Mode::Write,
        permits,
    ] {
        let ours = claim_for(LEASE, "theirs", mode);
        granted(&store, &ours).await;
        let mut ctl = Ctl::lock(&server, "theirs");
        until("etcdctl waits", async || server.keys("theirs/").len() == 2).await;
        // A later claim stands behind it.
        let later = claim_for(LEASE, "theirs", Mode::Exclusive).with_enqueue(true);
        busy(&store, &later).await;
        assert!(release(&store, &ours).await.expect("releases"), "{mode}");
        let key = ctl.key().await;
        assert_eq!(key.matches('/').count(), 1, "{key}");
        busy(&store, &later).await;
        ctl.let_go();
        in_the_end(&store, &later).await;
        assert!(release(&store, &later).await.expect("releases"));
        assert!(server.keys("theirs/").is_empty());
    }
}

/// Of a hold of another client's, a break is the end, too.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_is_broken() {
    let server = EtcdServer::start();
    let store = open(&server.url("")).await;
    let mut ctl = Ctl::lock(&server, "stuck");
    ctl.key().await;
    let ours = claim_for(LEASE, "stuck", Mode::Exclusive);
    busy(&store, &ours).await;
    assert_eq!(break_all(&store, &ours).await.len(), 1);
    granted(&store, &ours).await;
}

/// etcd#11052: to `etcdctl lock a`, a holder of `a/b` holds `a`. Keepers are not in each other's way.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_free_while_one_below_it_is_held() {
    let server = EtcdServer::start();
    let (one, other) = (open(&server.url("p")).await, open(&server.url("p")).await);
    let modes = [
        Mode::Exclusive,
        Mode::Read,
        Mode::Permit { limit: 1, count: 1 },
    ];
    for below in ["a/b", "a/b/c", "a/write", "a/read/x", "a/permit"] {
        for mode in modes {
            let (nested, outer) = (claim_for(LEASE, below, mode), claim_for(LEASE, "a", mode));
            granted(&one, &nested).await;
            granted(&one, &outer).await;
            busy(&other, &claim_for(LEASE, below, Mode::Write)).await;
            busy(&other, &claim_for(LEASE, "a", Mode::Write)).await;
            assert!(release(&one, &outer).await.expect("releases"));
            busy(&other, &claim_for(LEASE, below, Mode::Write)).await;
            assert!(release(&one, &nested).await.expect("releases"));
        }
    }
}

/// A writer that goes on as a reader keeps clients out that know no other place than that of a key.
#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_does_not_get_in_while_a_writer_becomes_a_reader() {
    let server = EtcdServer::start();
    let store = open(&server.url("")).await;
    let writer = claim_for(LEASE, "down", Mode::Write);
    granted(&store, &writer).await;
    let mut ctl = Ctl::lock(&server, "down");
    until("etcdctl waits", async || server.keys("down/").len() == 2).await;
    let reader = claim_for(LEASE, "down", Mode::Read).with_beside(Some(writer.id));
    let reader = reader.with_id(lockkeeper::store::ClaimId {
        number: writer.id.number + 1_000_000,
        ..writer.id
    });
    granted(&store, &reader).await;
    assert!(release(&store, &writer).await.expect("releases"));
    let theirs = server.keys("down/");
    let theirs = theirs
        .iter()
        .find(|key| !key.contains("/write/") && !key.contains("/read/"));
    let theirs = theirs.expect("it still waits").clone();
    let info = store.inspect(&writer.name).await.expect("asks");
    let info = info.expect("it is held");
    assert_eq!((info.holders.len(), info.waiters), (1, 1));
    assert_eq!(info.holders[0].claim, reader.id);
    assert!(release(&store, &reader).await.expect("releases"));
    assert_eq!(ctl.key().await, theirs);
    assert_eq!(server.keys("down/"), [theirs], "nothing of ours is left");
}
