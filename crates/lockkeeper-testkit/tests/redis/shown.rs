//! What people see of a lock on Redis: where labels and leases are written, and who stands in a line.

use std::time::Duration;

use crate::common::*;
use lockkeeper::store::{Claim, Holder, LockInfo, MAX_LISTED, Mode, Release, Store, Waiter};
use lockkeeper::{Label, store::redis::RedisStore};
use lockkeeper_testkit::servers::redis::RedisServer;

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
const JAVA_TOO: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:43";

fn labelled(claim: Claim, text: &str) -> Claim {
    claim.with_label(Some(Label::new(text).expect("a label")))
}

async fn look(store: &RedisStore, text: &str) -> LockInfo {
    let info = store.inspect(&name(text)).await.expect("answers");
    info.expect("something is known of it")
}

async fn holder(store: &RedisStore, text: &str) -> Holder {
    let mut holders = look(store, text).await.holders;
    assert_eq!(holders.len(), 1, "{holders:?}");
    holders.remove(0)
}

fn label_of(holder: &Holder) -> Option<&str> {
    holder.label.as_ref().map(Label::as_str)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_labelled_exclusive_hold_has_its_record_in_the_hash() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let held = labelled(claim("x", Mode::Exclusive), "order 42");
    granted(&store, &held).await;
    let id = held.id.to_string();
    assert_eq!(server.strings(&["HGET", "x", &id]), ["1 30000 order 42"]);
    assert_eq!(server.strings(&["EXISTS", "lockkeeper_holders:{x}"]), ["0"]);
    // Which the short ways and the long one know alike.
    let longer = 2 * LEASE;
    let renewal = renewal(&held).with_lease(longer);
    store.renew(&[renewal]).await.expect("renewed");
    assert_eq!(server.strings(&["HGET", "x", &id]), ["1 60000 order 42"]);
    let seen = holder(&store, "x").await;
    assert_eq!(
        (label_of(&seen), seen.lease),
        (Some("order 42"), Some(longer))
    );
    assert_eq!(release(&store, &held).await, Ok(true));
    assert_eq!(server.keys(), ["redisson_lock_token:{x}"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_label_goes_on_with_every_way_to_hand_a_lock_over() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let labels = ["first", "second", "third"];
    let line = labels.map(|text| labelled(waiting("x", Mode::Exclusive), text));
    granted(&store, &line[0]).await;
    busy(&store, &line[1]).await;
    let and_queue = async |held: &Claim, next: &Claim| {
        let release = Release::new(held.name.clone(), held.id).with_requeue(Some(next.clone()));
        store.release(&release).await.expect("released")
    };
    // From hash to hash, while the releasing claim's next is queued behind.
    assert!(and_queue(&line[0], &line[2]).await.was_held);
    let seen = holder(&store, "x").await;
    assert_eq!(label_of(&seen), Some("second"));
    assert_eq!(seen.lease, Some(Duration::from_secs(1)), "not confirmed");
    granted(&store, &line[1]).await;
    let seen = holder(&store, "x").await;
    assert_eq!((label_of(&seen), seen.lease), (Some("second"), Some(LEASE)));
    // Nobody else waits: the next is granted at once.
    assert_eq!(release(&store, &line[1]).await, Ok(true));
    granted(&store, &line[2]).await;
    let last = labelled(waiting("x", Mode::Exclusive), "last");
    assert!(and_queue(&line[2], &last).await.regrant.is_some());
    let seen = holder(&store, "x").await;
    assert_eq!((label_of(&seen), seen.lease), (Some("last"), Some(LEASE)));
    // A reader beside it moves the record to a key of its own, and back.
    let mut reader = labelled(claim("x", Mode::Read), "reads");
    reader.id.keeper = last.id.keeper;
    reader.beside = Some(last.id);
    granted(&store, &reader).await;
    let seen = look(&store, "x").await.holders;
    let mut seen: Vec<_> = seen.iter().map(label_of).collect();
    seen.sort_unstable();
    assert_eq!(seen, [Some("last"), Some("reads")]);
    assert_eq!(release(&store, &reader).await, Ok(true));
    let seen = holder(&store, "x").await;
    assert_eq!((label_of(&seen), seen.lease), (Some("last"), Some(LEASE)));
    assert_eq!(release(&store, &last).await, Ok(true));
    assert_eq!(server.keys(), ["redisson_lock_token:{x}"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_labelled_claims_at_once_keep_each_its_own() {
    let server = RedisServer::start();
    for options in ["", "?dialect=plain"] {
        let store = open(&format!("{}{options}", server.url())).await;
        let claims: Vec<Claim> = (0..200)
            .map(|number| {
                let claim = claim(&format!("many{number}"), Mode::Exclusive);
                match number % 3 {
                    0 => claim,
                    _ => labelled(claim, &format!("label {number}")),
                }
            })
            .collect();
        let tries = claims.iter().map(|claim| granted(&store, claim));
        join_all(tries).await;
        for (number, claim) in claims.iter().enumerate() {
            let seen = holder(&store, claim.name.as_str()).await;
            let expected = (number % 3 != 0).then(|| format!("label {number}"));
            assert_eq!(label_of(&seen), expected.as_deref(), "{number}");
            assert_eq!(seen.lease, Some(LEASE));
        }
        join_all(claims.iter().map(|claim| release(&store, claim))).await;
        server.command(&["FLUSHALL"]);
    }
}

/// Awaits all of them, at the same time.
async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut done = Vec::new();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| match future.as_mut().poll(context) {
            std::task::Poll::Ready(answer) => {
                done.push(answer);
                false
            }
            std::task::Poll::Pending => true,
        });
        match futures.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn java_waiters_are_listed_where_they_stand() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(&store, &claim("fair", Mode::Fair)).await;
    let java_waits = |id: &str| {
        let until = server_micros(&server) / 1_000 + 300_000;
        server.command(&["RPUSH", "redisson_lock_queue:{fair}", id]);
        let times = "redisson_lock_timeout:{fair}";
        server.command(&["ZADD", times, &until.to_string(), id]);
    };
    let plain = waiting("fair", Mode::Exclusive);
    busy(&store, &plain).await;
    java_waits(JAVA);
    let ours = labelled(waiting("fair", Mode::Fair), "ours");
    busy(&store, &ours).await;
    java_waits(JAVA_TOO);
    java_waits("no id");
    let info = look(&store, "fair").await;
    assert_eq!(info.waiters, 5);
    let shown = |waiter: &Waiter| (waiter.claim.to_string(), waiter.process.program.clone());
    let us = lockkeeper::store::Process::current().program;
    let java = "a Redisson client".to_owned();
    let nobody = "00000000-0000-0000-0000-000000000000:0";
    assert_eq!(
        info.queue.iter().map(shown).collect::<Vec<_>>(),
        [
            (plain.id.to_string(), us.clone()),
            (JAVA.into(), java.clone()),
            (ours.id.to_string(), us),
            (JAVA_TOO.into(), java.clone()),
            (nobody.into(), java),
        ]
    );
    assert_eq!(info.queue[1].since, None);
    assert!(info.queue[2].since.is_some());
    assert_eq!(info.queue[2].label, ours.label);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_are_counted_without_reading_them_all() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(&store, &claim("crowd", Mode::Exclusive)).await;
    let first = waiting("crowd", Mode::Exclusive);
    busy(&store, &first).await;
    // As a waiter of ours is written down, ten thousand times.
    let crowd = "local one = redis.call('HGET', KEYS[2], ARGV[1]) \
        local keeper = string.match(ARGV[1], '^[^:]*') \
        for number = 1, 9999 do \
          local id = keeper .. ':' .. 1000000 + number \
          redis.call('HSET', KEYS[2], id, one) \
          redis.call('ZADD', KEYS[1], string.format('%.0f', ARGV[2] + number), id) \
        end return 1";
    let (queue, waiters) = ("lockkeeper_queue:{crowd}", "lockkeeper_waiters:{crowd}");
    let now = server_micros(&server).to_string();
    let id = first.id.to_string();
    server.command(&["EVAL", crowd, "2", queue, waiters, &id, &now]);
    let info = look(&store, "crowd").await;
    // Those of the first thousand that died do not count; this machine may be slow.
    if info.waiters == 10_000 {
        assert_eq!(info.queue.len(), MAX_LISTED);
        assert_eq!(info.queue[0].claim, first.id);
        assert_eq!(info.queue[99].claim.number, 1_000_099);
    }
    assert!((9_000..=10_000).contains(&info.waiters), "{}", info.waiters);
    let list = store.list("crowd").await.expect("lists");
    assert!(list[0].queue.is_empty() && list[0].waiters >= 9_000);
}
