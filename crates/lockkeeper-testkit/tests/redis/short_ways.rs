//! The short ways through the scripts of a contended lock, and when they must not be taken.

use crate::common::*;
use lockkeeper::Error;
use lockkeeper::store::{Claim, Mode, Release, Store};
use lockkeeper_testkit::servers::redis::RedisServer;

const HOLDERS: &str = "lockkeeper_holders:{busy}";
const TOKEN: &str = "redisson_lock_token:{busy}";

fn waiter() -> Claim {
    waiting("busy", Mode::Exclusive)
}

/// Whether the record of a hold is in the hash, and nowhere else.
fn is_in_the_hash(server: &RedisServer, held: &Claim) -> bool {
    let note = format!("lockkeeper:{}", held.id);
    server.strings(&["HEXISTS", "busy", &note]) == ["1"]
        && server.strings(&["EXISTS", HOLDERS]) == ["0"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_passes_from_hash_to_hash_and_is_found_back_there() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let line: Vec<Claim> = (0..4).map(|_| waiter()).collect();
    let mut last = granted(&store, &line[0]).await.token;
    for next in &line[1..] {
        busy(&store, next).await;
    }
    assert!(is_in_the_hash(&server, &line[0]));
    for (number, pair) in line.windows(2).enumerate() {
        if number == 1 {
            // The fence is ahead of the clock: this token does not tell since when it is held.
            let ahead = server_micros(&server).max(last.get()) + 2_000_000;
            server.command(&["SET", TOKEN, &ahead.to_string()]);
        }
        if number == 2 {
            let passed = async || server_micros(&server) > last.get();
            until("the clock has passed it", passed).await;
            // It waits all the while, and says so.
            busy(&store, &pair[1]).await;
        }
        assert_eq!(release(&store, &pair[0]).await, Ok(true));
        // Until it is confirmed, the grant is a short one.
        let grant = granted(&store, &pair[1]).await;
        let left: u64 = server.strings(&["PTTL", "busy"])[0].parse().expect("ms");
        assert!(left > 20_000, "{left}");
        assert!(grant.token > last, "tokens grow");
        last = grant.token;
        assert_eq!(is_in_the_hash(&server, &pair[1]), number != 1, "{number}");
    }
    assert_eq!(release(&store, &line[3]).await, Ok(true));
    assert_eq!(server.keys(), [TOKEN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_queues_behind_who_waits_and_is_granted_at_once_if_nobody_does() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let [first, second, third, fourth] = [(); 4].map(|()| waiter());
    granted(&store, &first).await;
    let and_queue = async |held: &Claim, next: &Claim| {
        let release = Release::new(held.name.clone(), held.id).with_requeue(Some(next.clone()));
        let released = store.release(&release).await.expect("released");
        assert!(released.was_held);
        released.regrant
    };
    let regrant = and_queue(&first, &second).await.expect("nobody waits");
    assert_eq!(granted(&store, &second).await, regrant, "the same grant");
    busy(&store, &third).await;
    assert_eq!(and_queue(&second, &fourth).await, None, "another waits");
    busy(&store, &fourth).await;
    assert!(granted(&store, &third).await.token > regrant.token);
    assert_eq!(release(&store, &third).await, Ok(true));
    granted(&store, &fourth).await;
    assert_eq!(release(&store, &fourth).await, Ok(true));
    assert_eq!(server.keys(), [TOKEN]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_in_the_hash_keeps_the_next_out() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let (held, next) = (waiter(), waiter());
    granted(&store, &held).await;
    busy(&store, &next).await;
    let stranger = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";
    server.command(&["HSET", "busy", stranger, "1"]);
    assert_eq!(release(&store, &held).await, Ok(true));
    busy(&store, &next).await;
    assert_eq!(server.strings(&["HKEYS", "busy"]), [stranger]);
    server.command(&["DEL", "busy"]);
    granted(&store, &next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_became_something_else_is_no_hold_to_pass_on() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let (held, next) = (waiter(), waiter());
    granted(&store, &held).await;
    busy(&store, &next).await;
    server.command(&["SET", "busy", "something"]);
    let refused = store.try_acquire(&next).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(release(&store, &held).await, Ok(false));
    assert_eq!(server.strings(&["GET", "busy"]), ["something"]);
    server.command(&["DEL", "busy"]);
    granted(&store, &next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_without_its_hold_is_no_hold() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for queue in [false, true] {
        let (held, next) = (waiter(), waiter());
        granted(&store, &held).await;
        if queue {
            busy(&store, &next).await;
        }
        // Another client put itself in the place of the hold, and left what it did not know.
        server.command(&["HDEL", "busy", &held.id.to_string()]);
        server.command(&["HSET", "busy", "theirs:1", "1"]);
        let release = Release::new(held.name.clone(), held.id).with_requeue(Some(next.clone()));
        let released = store.release(&release).await.expect("answers");
        assert!(!released.was_held, "it was theirs");
        assert_eq!(server.strings(&["HGET", "busy", "theirs:1"]), ["1"]);
        server.command(&[
            "HSET",
            "busy",
            &format!("lockkeeper:{}", held.id),
            "7 1 who",
        ]);
        busy(&store, &held).await;
        assert_eq!(server.strings(&["HGET", "busy", "theirs:1"]), ["1"]);
        server.command(&["FLUSHALL"]);
    }
}
