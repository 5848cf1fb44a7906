//! Redis and a quorum of both. The earlier command writes and reads records without labels and whole leases.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::store::quorum::QuorumStore;
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{
    Attempt, Claim, Holder, Interest, LockInfo, Mode, Process, Release, Renewal, Renewed, Store,
};
use lockkeeper::url::StoreUrl;
use lockkeeper::{Label, Name};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::claims::{claim_for, until};
use crate::old::{old, run_old};

const LEASE: Duration = Duration::from_secs(30);
const LABEL: &str = "order 42";

/// Servers, and a store of ours on them.
struct Site {
    url: String,
    store: Arc<dyn Store>,
    _servers: Independent,
}

impl Site {
    async fn redis(options: &str) -> Site {
        let servers = Independent::of([RedisServer::start()]);
        let url = format!("{}{options}", servers.servers()[0].url());
        let parsed = StoreUrl::parse(&url).expect("a URL");
        let store = RedisStore::connect(&parsed).await.expect("connects");
        Site {
            url,
            store: Arc::new(store),
            _servers: servers,
        }
    }

    async fn redlock(dialect: &str) -> Site {
        let servers = Independent::start(3);
        let url = servers.url_at_once(&format!("60s&dialect={dialect}"));
        let parsed = StoreUrl::parse(&url).expect("a URL");
        let store = QuorumStore::connect(&parsed).await.expect("connects");
        Site {
            url,
            store: Arc::new(store),
            _servers: servers,
        }
    }

    async fn every() -> Vec<Site> {
        vec![
            Site::redis("").await,
            Site::redis("?dialect=plain").await,
            Site::redlock("redisson").await,
            Site::redlock("plain").await,
        ]
    }

    async fn try_acquire(&self, claim: &Claim) -> Attempt {
        self.store.try_acquire(claim).await.expect("answers")
    }

    async fn granted(&self, claim: &Claim) {
        until("it is granted", async || {
            matches!(self.try_acquire(claim).await, Attempt::Granted(_))
        })
        .await;
    }

    async fn busy(&self, claim: &Claim) {
        let answer = self.try_acquire(claim).await;
        assert!(matches!(answer, Attempt::Busy { .. }), "{answer:?}");
    }

    async fn release(&self, claim: &Claim) -> bool {
        let release = Release::new(claim.name.clone(), claim.id);
        self.store
            .release(&release)
            .await
            .expect("answers")
            .was_held
    }

    async fn renew(&self, claim: &Claim, lease: Duration) -> Renewed {
        let renewal = Renewal::new(claim.name.clone(), claim.id, lease, claim.not_after);
        self.store.renew(&[renewal]).await.expect("answers")[0]
    }

    async fn look(&self, name: &str) -> LockInfo {
        let name = Name::new(name).expect("a name");
        let info = self.store.inspect(&name).await.expect("answers");
        info.expect("something is known of it")
    }

    /// The hold of a claim of ours, which the earlier command sees in the same way but for what it does not know.
    async fn seen_by_both(&self, claim: &Claim) -> Holder {
        let info = self.look(claim.name.as_str()).await;
        let mut holders = info.holders.into_iter();
        let holder = holders.find(|holder| holder.claim == claim.id);
        let holder = holder.expect("it holds");
        let us = Process::current();
        assert_eq!(holder.process, us);
        for arguments in [["show", claim.name.as_str()], ["ls", "--json"]] {
            let (code, said) = run_old(&self.url, &arguments);
            assert_eq!(code, 0, "{said}");
            assert!(!said.contains(LABEL), "{said}");
            assert!(said.contains(&claim.id.to_string()), "{said}");
        }
        let (_, said) = run_old(&self.url, &["show", "--json", claim.name.as_str()]);
        let Process {
            host, pid, program, ..
        } = us;
        let process = format!(r#""host":"{host}","pid":{pid},"program":"{program}""#);
        assert!(said.contains(&process), "{said}");
        let token = format!(r#""token":{}"#, holder.token.expect("it has one"));
        assert!(said.contains(&token), "{said}");
        holder
    }
}

fn ours(name: &str, mode: Mode) -> Claim {
    claim_for(LEASE, name, mode)
}

fn labelled(name: &str, mode: Mode) -> Claim {
    ours(name, mode).with_label(Some(Label::new(LABEL).expect("a label")))
}

fn waiting(claim: Claim) -> Claim {
    claim.with_enqueue(true)
}

/// The earlier `lockkeeper run`, which holds until it is told to end. Dropping it kills it.
struct Old {
    run: Child,
    said: BufReader<ChildStdout>,
}

impl Old {
    fn start(site: &Site, arguments: &[&str]) -> Old {
        let mut command = old(&site.url);
        command.arg("run").args(arguments);
        command.args(["--", "sh", "-c", "echo held; cat"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().expect("it starts");
        let said = BufReader::new(run.stdout.take().expect("piped"));
        Old { run, said }
    }

    fn holds(mut self) -> Old {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it says something");
        assert_eq!(line, "held\n");
        self
    }

    fn end(mut self) {
        drop(self.run.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("it ends");
        assert!(self.run.wait().expect("it ends").success());
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earlier_holds_and_ours_comes() {
    for site in Site::every().await {
        let holding = Old::start(&site, &["x"]).holds();
        site.busy(&ours("x", Mode::Exclusive)).await;
        let next = labelled("x", Mode::Exclusive);
        site.busy(&next).await;
        let seen = site.look("x").await.holders.remove(0);
        assert_eq!(seen.process.program, "lockkeeper", "{seen:?}");
        assert_eq!(seen.process.pid, holding.run.id());
        assert_eq!((seen.label, seen.lease), (None, None));
        holding.end();
        site.granted(&next).await;
        let seen = site.seen_by_both(&next).await;
        assert_eq!((seen.label, seen.lease), (next.label.clone(), Some(LEASE)));
        assert!(site.release(&next).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_holds_with_a_label_and_the_earlier_comes() {
    for site in Site::every().await {
        let held = labelled("x", Mode::Exclusive);
        site.granted(&held).await;
        let (code, said) = run_old(&site.url, &["run", "--no-wait", "x", "--", "true"]);
        assert_eq!(code, 75, "{said}");
        site.seen_by_both(&held).await;
        assert_eq!(site.renew(&held, 2 * LEASE).await, Renewed::Renewed);
        let next = Old::start(&site, &["x"]);
        if site.store.capabilities().queue {
            until("it waits", async || site.look("x").await.waiters == 1).await;
            let waiter = site.look("x").await.queue.remove(0);
            assert_eq!(waiter.process.pid, next.run.id(), "{waiter:?}");
            assert_eq!(waiter.label, None);
        }
        // The earlier command has looked at it, and nothing was lost.
        let seen = site.seen_by_both(&held).await;
        assert_eq!(
            (seen.label, seen.lease),
            (held.label.clone(), Some(2 * LEASE))
        );
        assert!(site.release(&held).await);
        next.holds().end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earlier_breaks_what_ours_holds() {
    for site in Site::every().await {
        let held = labelled("x", Mode::Exclusive);
        site.granted(&held).await;
        let broken = ["break", "x", "--reason", "stuck"];
        let (code, said) = run_old(&site.url, &broken);
        assert_eq!(code, 0, "{said}");
        assert_eq!(site.renew(&held, LEASE).await, Renewed::NotHeld);
        // The next holder is of its kind.
        let holding = Old::start(&site, &["x"]).holds();
        let seen = site.look("x").await.holders.remove(0);
        assert_eq!(seen.process.pid, holding.run.id());
        holding.end();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_wait_in_one_line_and_hand_over_to_each_other() {
    let site = Site::redis("").await;
    for mode in [Mode::Exclusive, Mode::Fair] {
        let first = labelled("x", mode);
        site.granted(&first).await;
        let earlier = Old::start(&site, &["x"]);
        until("it waits", async || site.look("x").await.waiters == 1).await;
        let last = waiting(labelled("x", mode));
        let interest = Interest::Claim(last.name.clone(), last.id);
        let _hints = site.store.subscribe(interest).await.expect("listens");
        site.busy(&last).await;
        let line = site.look("x").await.queue;
        assert_eq!(line[0].process.pid, earlier.run.id());
        assert_eq!((line[1].claim, &line[1].label), (last.id, &last.label));
        // Ours makes the earlier the holder.
        assert!(site.release(&first).await);
        let earlier = earlier.holds();
        site.busy(&last).await;
        // The earlier makes ours the holder, which says its label when it confirms that.
        earlier.end();
        let holders = site.look("x").await.holders;
        // Where this took longer than a second, nobody holds any more.
        let is_ours = holders.first().is_none_or(|holder| holder.claim == last.id);
        assert!(is_ours, "{holders:?}");
        site.granted(&last).await;
        let seen = site.seen_by_both(&last).await;
        assert_eq!((seen.label, seen.lease), (last.label.clone(), Some(LEASE)));
        assert!(site.release(&last).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_permits_of_both_hold_side_by_side() {
    let permit = Mode::Permit { limit: 3, count: 1 };
    let kinds = [
        (Mode::Read, vec!["--shared"]),
        (permit, vec!["--permits", "3"]),
    ];
    for site in [Site::redis("").await, Site::redlock("redisson").await] {
        for (mode, arguments) in &kinds {
            if matches!(mode, Mode::Permit { .. }) && !site.store.capabilities().permits {
                continue;
            }
            let arguments = [&["x"], arguments.as_slice()].concat();
            let first = labelled("x", *mode);
            site.granted(&first).await;
            let earlier = Old::start(&site, &arguments).holds();
            let second = labelled("x", *mode);
            site.granted(&second).await;
            assert_eq!(site.look("x").await.holders.len(), 3);
            for held in [&first, &second] {
                let seen = site.seen_by_both(held).await;
                assert_eq!((&seen.label, seen.lease), (&held.label, Some(LEASE)));
            }
            assert!(site.release(&first).await);
            earlier.end();
            // The earlier wrote the record without its own hold.
            let seen = site.seen_by_both(&second).await;
            assert_eq!(
                (seen.label, seen.lease),
                (second.label.clone(), Some(LEASE))
            );
            assert_eq!(site.renew(&second, 2 * LEASE).await, Renewed::Renewed);
            let seen = site.seen_by_both(&second).await;
            assert_eq!(seen.lease, Some(2 * LEASE));
            assert!(site.release(&second).await);
        }
    }
}
