//! Goods, rewards and the fence: a few customers, looked at closely.

use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper_lab::shop::ServeOptions;
use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::until;
use crate::scene::{Place, account, ask, crowd, start, start_many};

/// Long enough for all customers to have read before the first one writes.
const SLOW: Duration = Duration::from_secs(2);

/// Ten buyers of five goods: without a lock down to −5, with one to 0.
fn goods(options: ServeOptions) {
    let slow = ServeOptions {
        work: SLOW,
        ..options.clone()
    };
    let report = crowd(&start_many(2, &slow), "/redisLock/saleGoods", 10);
    let books = report.books.as_ref().expect("books");
    assert_eq!(report.tally.sold, 10, "{report:?}");
    assert_eq!((books.account.stock, books.oversold), (-5, 5), "{books:?}");
    assert!(!report.held());

    let report = crowd(&start_many(2, &options), "/redisLock/saleGoodsLock", 10);
    let books = report.books.as_ref().expect("books");
    assert_eq!((report.tally.sold, report.tally.refused), (5, 5));
    assert_eq!((books.account.stock, books.oversold), (0, 0), "{books:?}");
    assert!(report.held());
}

/// Five members of a family ask at once: without a lock each is given a reward, with one only the first.
fn rewards(options: ServeOptions) {
    let slow = ServeOptions {
        work: SLOW,
        ..options.clone()
    };
    let report = crowd(&start_many(2, &slow), "/redisLock/receiveAward", 5);
    let books = report.books.as_ref().expect("books");
    assert_eq!((books.recorded, books.oversold), (5, 4), "{books:?}");

    let instances = start_many(2, &options);
    let path = "/redisLock/receiveAwardLock";
    let report = crowd(&instances, path, 5);
    let books = report.books.as_ref().expect("books");
    assert_eq!((report.tally.sold, report.tally.refused), (1, 4));
    assert_eq!((books.recorded, books.oversold), (1, 0), "{books:?}");

    // Another family, and another kind of reward, have their own.
    for other in ["?familyId=7", "?familyId=7&rewardType=2"] {
        let path = format!("{path}{other}");
        let given = ask(&instances[0], "POST", &path, "").json();
        assert_eq!(given["result"], "received", "{given}");
        let again = ask(&instances[1], "POST", &path, "").json();
        assert_eq!(again["result"], "already_received", "{again}");
    }
}

fn on_sqlite(place: &Place) -> ServeOptions {
    let work = Duration::from_millis(20);
    let options = place.options(place.lock());
    ServeOptions { work, ..options }
}

fn on_redis(server: &RedisServer) -> ServeOptions {
    let work = Duration::from_millis(20);
    let options = ServeOptions::new(LockKind::Ours(server.url()), server.url());
    ServeOptions { work, ..options }
}

#[test]
fn goods_on_sqlite() {
    goods(on_sqlite(&Place::new()));
}

#[test]
fn goods_on_redis() {
    goods(on_redis(&RedisServer::start()));
}

/// The locks on a server of another kind, and the stock beside it.
fn under(url: String) {
    let place = Place::new();
    let work = Duration::from_millis(20);
    let options = place.options(LockKind::Ours(url));
    let options = ServeOptions { work, ..options };
    let report = crowd(&start_many(2, &options), "/redisLock/saleGoodsLock", 10);
    assert_eq!((report.tally.sold, report.tally.refused), (5, 5));
    assert!(report.held());
}

#[test]
fn goods_under_a_lock_on_postgres() {
    under(PostgresServer::start().url());
}

#[test]
fn goods_under_a_lock_on_zookeeper() {
    under(ZooKeeperServer::start().url("locks"));
}

#[test]
fn rewards_on_sqlite() {
    rewards(on_sqlite(&Place::new()));
}

#[test]
fn rewards_on_redis() {
    rewards(on_redis(&RedisServer::start()));
}

#[test]
fn a_naive_lock_serves_as_long_as_nothing_goes_wrong() {
    let server = RedisServer::start();
    let lock = LockKind::parse("right", Some(&server.url())).expect("a kind");
    let options = ServeOptions::new(lock, server.url());
    let report = crowd(&start_many(2, &options), "/redisLock/saleGoodsLock", 10);
    assert_eq!((report.tally.sold, report.tally.refused), (5, 5));
    assert!(report.held());
}

#[test]
fn a_killed_holder_of_a_lock_without_expiry_closes_the_shop() {
    let server = RedisServer::start();
    let lock = LockKind::parse("no-expiry", Some(&server.url())).expect("a kind");
    let options = ServeOptions {
        work: SLOW,
        wait: Duration::from_millis(300),
        ..ServeOptions::new(lock, server.url())
    };
    let mut instances = start_many(2, &options);
    std::thread::scope(|scope| {
        let address = instances[0].url().trim_start_matches("http://").to_owned();
        scope.spawn(move || {
            use std::io::{Read, Write};
            let mut stream = std::net::TcpStream::connect(address).expect("it listens");
            let request = b"GET /inventory/sale HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request).expect("it reads");
            let _ = stream.read(&mut [0; 64]);
        });
        until("the lock is held", || {
            server.strings(&["EXISTS", "shop:inventory001"]) == ["1"]
        });
        instances[0].kill();
    });
    let answer = ask(&instances[1], "GET", "/inventory/sale", "");
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["result"], "busy");
    assert_eq!(account(&instances[1], "inventory001")["sales"], 0);
}

/// A holder that is stopped past its lease wakes up to write: the fence refuses it.
fn late_write(options: ServeOptions, has_read: impl Fn() -> bool) {
    let options = ServeOptions {
        lease: Duration::from_secs(1),
        size: 10,
        ..options
    };
    let slow = start(&ServeOptions {
        work: Duration::from_secs(3),
        ..options.clone()
    });
    let quick = start(&options);
    let stopped = Pid::from_raw(slow.pid().cast_signed());
    std::thread::scope(|scope| {
        let late = scope.spawn(|| ask(&slow, "GET", "/inventory/sale", ""));
        until("it has read", has_read);
        kill(stopped, Signal::SIGSTOP).expect("it is there");
        let sold = ask(&quick, "GET", "/inventory/sale", "").json();
        assert_eq!(sold["remaining"], 9, "{sold}");
        kill(stopped, Signal::SIGCONT).expect("it is there");
        let late = late.join().expect("an answer");
        assert_eq!(late.status, 409, "{late:?}");
        let late = late.json();
        assert_eq!(late["result"], "fenced");
        assert!(late["token"].as_u64() < sold["token"].as_u64(), "{late}");
    });
    let account = account(&quick, "inventory001");
    assert_eq!(account["sales"], 1, "{account}");
    assert_eq!(account["lost_updates"], 0, "{account}");
}

#[test]
fn a_late_write_to_sqlite_is_refused_by_its_token() {
    let place = Place::new();
    late_write(place.options(place.lock()), || {
        let stock = rusqlite::Connection::open(place.path("shop.db")).expect("opens");
        let shown = "SELECT count(*) FROM fence WHERE item = 'inventory001'";
        stock.query_row(shown, (), |row| row.get(0)) == Ok(1)
    });
}

#[test]
fn a_late_write_to_redis_is_refused_by_its_token() {
    let server = RedisServer::start();
    late_write(on_redis(&server), || {
        server.strings(&["EXISTS", "inventory001:fence"]) == ["1"]
    });
}

#[test]
fn instances_that_open_at_the_same_time_fill_a_new_stock_once() {
    let place = Place::new();
    let server = RedisServer::start();
    for stock in [place.stock(), server.url()] {
        let options = ServeOptions {
            size: 100,
            ..ServeOptions::new(place.lock(), &stock)
        };
        let instances: Vec<_> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..4).map(|_| scope.spawn(|| start(&options))).collect();
            let started = starting.into_iter().map(|one| one.join().expect("opens"));
            started.collect()
        });
        let report = crowd(&instances, "/order/submitOrder", 120);
        assert_eq!((report.tally.sold, report.tally.refused), (100, 20));
        assert!(report.held(), "{report:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_to_be_had_sells_nothing() {
    let place = Place::new();
    let keeper = Lockkeeper::connect(&place.store()).await.expect("a store");
    let lock = keeper.lock("shop:inventory001").expect("a name");
    let guard = lock.acquire().await.expect("free");
    let shop = start(&ServeOptions {
        wait: Duration::from_millis(200),
        ..place.options(place.lock())
    });
    let answer = ask(&shop, "GET", "/inventory/sale", "");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("Retry-After"), Some("1"));
    let json = answer.json();
    assert_eq!(json["result"], "busy");
    assert!(
        json["message"]
            .as_str()
            .is_some_and(|why| why.contains("lock"))
    );
    assert_eq!(account(&shop, "inventory001")["sales"], 0);
    guard.release().await.expect("released");
    assert_eq!(ask(&shop, "GET", "/inventory/sale", "").status, 200);
}
