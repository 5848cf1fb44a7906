//! The user of docs/redis.md: the whole suite passes with it, and it has nothing more than that needs.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::claims::break_of;
use crate::common::*;
use lockkeeper::store::LatchOp::{CountDown, Open, Read, Set};
use lockkeeper::store::redis::RedisStore;
use lockkeeper::store::{ClaimId, Interest, LatchRequest, Mode, Release, Store};
use lockkeeper_testkit::conformance::Subject;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::replicated::Replicated;

const JAVA: &str = "5b8e6f6c-9a53-4d37-8b0c-6d1d0f6e6a01:42";

/// The words of the documented user of this server, read from the page.
fn documented(server: &RedisServer) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let from = page.find("ACL SETUSER").expect("it has a user");
    let rules = page[from..].split("```").next().expect("a block");
    let mut words: Vec<String> = rules.split_whitespace().map(str::to_owned).collect();
    let setinfo = server.command(&["COMMAND", "INFO", "client|setinfo"]);
    // Less than nothing is how none is said: as a text, or as a list.
    if !setinfo.ends_with("-1\r\n") {
        assert!(page.contains("From 7.2 on add `+client|setinfo`"));
        words.push("+client|setinfo".into());
    }
    words
}

/// Makes the user, without one of its words, and with others.
fn make_user(server: &RedisServer, without: &str, with: &[&str]) {
    let words = documented(server);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.retain(|word| *word != without);
    words.insert(3, "reset");
    words.extend(with);
    assert_eq!(server.command(&words), "+OK\r\n", "{words:?}");
}

fn url(server: &RedisServer) -> String {
    format!("redis://locks:PASSWORD@127.0.0.1:{}", server.port())
}

fn shared_server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = RedisServer::start();
        make_user(&server, "", &[]);
        server
    })
}

async fn subject(options: &str) -> Subject {
    let case = uuid_like();
    let url = format!("{}/1?prefix=app:{case}:{options}", url(shared_server()));
    let (store, other) = (open(&url).await, open(&url).await);
    Subject::new(Arc::new(store)).with_other(Arc::new(other))
}

/// Something that no other case has.
fn uuid_like() -> String {
    claim("x", Mode::Exclusive).id.keeper.to_string()
}

async fn redisson() -> Subject {
    subject("").await
}

async fn plain() -> Subject {
    subject("&dialect=plain").await
}

lockkeeper_testkit::conformance_tests!(as_the_documented_user, redisson, transport);
lockkeeper_testkit::conformance_tests!(as_the_documented_user_plainly, plain, transport);

/// Uses everything that the store has, beside Java clients; whatever is refused is passed over.
async fn use_everything(server: &RedisServer) {
    let url = format!("{}/1?prefix=app:", url(server));
    let Ok(store) = connect(&url).await else {
        return;
    };
    for mode in [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write] {
        locks(&store, mode).await;
    }
    permits(&store).await;
    beside_java(server, &store).await;
    let becomes_reader = claim("down", Mode::Write);
    let _ = store.try_acquire(&becomes_reader).await;
    let reader = claim("down", Mode::Read)
        .with_id(ClaimId {
            number: becomes_reader.id.number + 1_000_000,
            ..becomes_reader.id
        })
        .with_beside(Some(becomes_reader.id))
        .with_label(None);
    let _ = store.try_acquire(&reader).await;
    let _ = release(&store, &becomes_reader).await;
    for op in [Set(2), Read, CountDown, Open] {
        let request = LatchRequest::new(name("latch"), reader.id, op, reader.not_after);
        let interest = Interest::Latch(name("latch"));
        let listening = store.subscribe(interest).await;
        let _ = store.latch(&request).await;
        drop(listening);
    }
    let _ = store.list("").await;
    for retention in ["30d", "forever"] {
        let url = format!("{url}&dialect=plain&token_retention={retention}");
        if let Ok(store) = connect(&url).await {
            locks(&store, Mode::Exclusive).await;
            crowd(store).await;
        }
    }
}

/// So many at once share their calls, once their names have fences.
async fn crowd(store: RedisStore) {
    let store = Arc::new(store);
    let tasks = (0..64).map(|number| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..5 {
                let held = claim(&format!("crowd:{number}"), Mode::Exclusive);
                let _ = store.try_acquire(&held).await;
                let _ = release(&store, &held).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

async fn locks(store: &RedisStore, mode: Mode) {
    let held = claim("lock", mode);
    let _ = store.try_acquire(&held).await;
    let wish = waiting("lock", mode);
    let listening = store
        .subscribe(Interest::Claim(wish.name.clone(), wish.id))
        .await;
    let _ = store.try_acquire(&wish).await;
    let again = waiting("lock", mode);
    let _ = store.try_acquire(&again).await;
    let _ = store.inspect(&held.name).await;
    let _ = store.renew(&[renewal(&held)]).await;
    let requeue =
        Release::new(held.name.clone(), held.id).with_requeue(Some(waiting("lock", mode)));
    let _ = store.release(&requeue).await;
    let _ = store.try_acquire(&wish).await;
    let _ = release(store, &wish).await;
    let _ = store.withdraw(&again.name, again.id).await;
    let request = break_of(&held);
    let _ = store.break_lock(&request).await;
    let _ = store.inspect(&request.name).await;
    drop(listening);
}

async fn permits(store: &RedisStore) {
    let permit = |limit, count| Mode::Permit { limit, count };
    let (one, two) = (claim("pool", permit(3, 1)), claim("pool", permit(3, 2)));
    let _ = store.try_acquire(&one).await;
    let _ = store.try_acquire(&two).await;
    let _ = store.inspect(&one.name).await;
    let _ = store.renew(&[renewal(&one)]).await;
    let _ = release(store, &one).await;
    let _ = release(store, &two).await;
}

/// What only happens while clients of Redisson's are there.
async fn beside_java(server: &RedisServer, store: &RedisStore) {
    let java = |parts: &[&str]| {
        // Each command is a connection of its own, so the database goes along.
        let call: Vec<String> = parts.iter().map(|part| format!("'{part}'")).collect();
        let script = format!(
            "redis.call('SELECT', 1) return redis.call({})",
            call.join(",")
        );
        server.command(&["EVAL", &script, "0"]);
    };
    java(&["HSET", "app:java", JAVA, "1"]);
    java(&["PEXPIRE", "app:java", "30000"]);
    java(&["RPUSH", "redisson_lock_queue:{app:java}", "dead"]);
    java(&["ZADD", "redisson_lock_timeout:{app:java}", "1", "dead"]);
    for mode in [Mode::Exclusive, Mode::Fair] {
        let wish = waiting("java", mode);
        let listening = store
            .subscribe(Interest::Claim(wish.name.clone(), wish.id))
            .await;
        let _ = store.try_acquire(&wish).await;
        let _ = store.inspect(&wish.name).await;
        // Once the channels of Java's are listened to, a hint says so.
        if let Ok(listening) = &listening {
            let _ = tokio::time::timeout(Duration::from_millis(200), listening.hint()).await;
        }
        let _ = store.withdraw(&wish.name, wish.id).await;
    }
    // One that died in the line.
    java(&["RPUSH", "redisson_lock_queue:{app:line}", "dead"]);
    java(&["ZADD", "redisson_lock_timeout:{app:line}", "1", "dead"]);
    let _ = store.try_acquire(&claim("line", Mode::Fair)).await;
    // One that takes a permit of ours.
    let permit = || claim("ours", Mode::Permit { limit: 3, count: 1 });
    let _ = store.try_acquire(&permit()).await;
    java(&["DECRBY", "app:ours", "1"]);
    let far = "99999999999999";
    java(&["ZADD", "{app:ours}:timeout", far, "0123456789abcdef"]);
    let _ = store.try_acquire(&permit()).await;
    java(&["SET", "app:javapool", "2"]);
    let permit = claim("javapool", Mode::Permit { limit: 2, count: 1 });
    let _ = store.try_acquire(&permit).await;
    java(&["DECRBY", "app:javapool", "1"]);
    java(&["ZADD", "{app:javapool}:timeout", far, "0123456789abcdef"]);
    let _ = release(store, &permit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_word_of_the_documented_user_is_needed() {
    let server = RedisServer::start();
    make_user(&server, "", &[]);
    use_everything(&server).await;
    let log = server.command(&["ACL", "LOG"]);
    assert!(log.starts_with("*0"), "something was denied: {log}");
    let mut idle = Vec::new();
    for word in documented(&server) {
        let Some(command) = word.strip_prefix('+') else {
            continue;
        };
        start_over(&server);
        make_user(&server, &word, &[]);
        let mut refused = false;
        // A server that answers late is not asked in all the ways there are.
        for _ in 0..10 {
            use_everything(&server).await;
            let log = server.strings(&["ACL", "LOG"]);
            refused = log.iter().any(|text| text.eq_ignore_ascii_case(command));
            if refused {
                break;
            }
        }
        if !refused {
            idle.push(word);
        }
    }
    assert!(idle.is_empty(), "nothing is refused without {idle:?}");
    // The keys and channels: without each pattern something is refused as well.
    for word in documented(&server) {
        let kind = match word.chars().next() {
            Some('~') => "key",
            Some('&') => "channel",
            _ => continue,
        };
        start_over(&server);
        make_user(&server, &word, &[]);
        use_everything(&server).await;
        use_braces(&server).await;
        let log = server.strings(&["ACL", "LOG"]);
        let refused = log.iter().any(|text| text == kind);
        assert!(refused, "no {kind} is refused without {word}: {log:?}");
    }
}

fn start_over(server: &RedisServer) {
    server.command(&["FLUSHALL"]);
    server.command(&["SCRIPT", "FLUSH"]);
    server.command(&["ACL", "LOG", "RESET"]);
}

/// Names with braces have other keys.
async fn use_braces(server: &RedisServer) {
    let url = format!("{}/1?prefix=app:", url(server));
    if let Ok(store) = connect(&url).await {
        for mode in [Mode::Fair, Mode::Permit { limit: 1, count: 1 }] {
            let held = claim("{braces}", mode);
            let _ = store.try_acquire(&held).await;
            let _ = store.try_acquire(&waiting("{braces}", mode)).await;
            let _ = release(&store, &held).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_can_do_nothing_else() {
    let server = RedisServer::start();
    make_user(&server, "", &[]);
    let denied = |parts: &[&str]| {
        let said = server.command_as("locks", "PASSWORD", parts);
        assert!(said.starts_with("-NOPERM"), "{parts:?}: {said}");
    };
    denied(&["FLUSHALL"]);
    denied(&["FLUSHDB"]);
    denied(&["KEYS", "*"]);
    denied(&["CONFIG", "GET", "*"]);
    denied(&["ACL", "LIST"]);
    denied(&["CLIENT", "LIST"]);
    denied(&["DEBUG", "SLEEP", "0"]);
    denied(&["SCRIPT", "FLUSH"]);
    denied(&["SHUTDOWN"]);
    for key in [
        "x",
        "other:x",
        "lockkeeper_holders:{other:x}",
        "{other:x}:timeout",
    ] {
        denied(&["GET", key]);
        denied(&["SET", key, "1"]);
        denied(&["DEL", key]);
        denied(&["EVAL", "return redis.call('GET', KEYS[1])", "1", key]);
    }
    let elsewhere = open(&format!("{}/0?prefix=other:", url(&server))).await;
    let error = elsewhere.try_acquire(&claim("x", Mode::Exclusive)).await;
    assert!(
        matches!(error, Err(lockkeeper::Error::Refused { .. })),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_not_ping_is_refused() {
    let server = RedisServer::start();
    make_user(&server, "+ping", &[]);
    let url = format!("{}/0?prefix=app:", url(&server));
    let error = connect(&url).await.expect_err("it may not PING");
    assert!(error.to_string().contains("+ping"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_replicas_takes_one_command_more() {
    let servers = tokio::task::block_in_place(|| Replicated::start(1));
    let master = &servers.servers()[0];
    make_user(master, "", &[]);
    let url = format!("{}/0?prefix=app:&replicas=1", url(master));
    let error = connect(&url).await.expect_err("it may not WAIT");
    assert!(error.to_string().contains("+wait"), "{error}");
    make_user(master, "", &["+wait"]);
    let store = open(&url).await;
    let held = claim("{braces}", Mode::Exclusive);
    granted(&store, &held).await;
    assert_eq!(release(&store, &held).await, Ok(true));
}
