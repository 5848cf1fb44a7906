//! 5,000 in stock, 20,000 customers, four instances, and one of them is killed in the middle. `cargo xtask test` has the whole
//! sale on Redis and in a chapter of the laboratory, else a quarter of it.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use lockkeeper::blocking::Lockkeeper;
use lockkeeper_lab::shop::load::{LoadOptions, Report, Tally};
use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_lab::shop::{Instance, Item, ServeOptions};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::RedisServer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::until;
use crate::scene::{Place, run, start_many, urls};

#[derive(Clone, Copy)]
struct Sale {
    stock: u32,
    customers: u64,
}

const WHOLE: Sale = Sale {
    stock: 5_000,
    customers: 20_000,
};
const QUARTER: Sale = Sale {
    stock: WHOLE.stock / 4,
    customers: WHOLE.customers / 4,
};

/// The scene, under any lock. `fault` is done beside the kill, to a server for instance.
fn flash_sale(sale: Sale, lock: LockKind, stock: &str, fault: impl FnOnce()) -> Report {
    let options = ServeOptions {
        size: sale.stock,
        // A killed instance's lock is in the way for so long where only the lease tells that it is dead.
        lease: Duration::from_secs(2),
        wait: Duration::from_secs(60),
        ..ServeOptions::new(lock, stock)
    };
    let mut instances = start_many(4, &options);
    let load = LoadOptions::new(urls(&instances), sale.customers);
    let now = Mutex::new(Tally::default());
    let watch = |tally: &Tally| *now.lock().expect("no panic") = *tally;
    let (killed_at, report) = std::thread::scope(|scope| {
        let customers = scope.spawn(|| run(&load, watch));
        let tally = || *now.lock().expect("no panic");
        until("a fifth is sold", || {
            tally().sold >= u64::from(sale.stock / 5)
        });
        kill_holder(&mut instances[3], &options.lock);
        fault();
        (tally(), customers.join().expect("a report"))
    });
    println!("{report:#?}");
    // It proves nothing unless the kill came in the middle and was felt.
    assert!(killed_at.requests() < sale.customers / 2, "{killed_at:?}");
    assert!(report.instances[3].gone.is_some());
    assert_eq!(report.requests, sale.customers);
    for instance in &report.instances[..3] {
        assert!(instance.gone.is_none(), "{instance:?}");
        assert!(instance.tally.sold > 0, "{instance:?}");
    }
    report
}

/// Kills an instance while it holds the lock, if it is one that others can see.
fn kill_holder(instance: &mut Instance, lock: &LockKind) {
    if let LockKind::Ours(url) = lock {
        let keeper = Lockkeeper::connect(url).expect("a store");
        let name = Item::Inventory.lock_name();
        let pid = instance.pid();
        let signal = |signal| kill(Pid::from_raw(pid.cast_signed()), signal).expect("it is there");
        until("it is stopped while it holds the lock", || {
            signal(Signal::SIGSTOP);
            let (keeper, name) = (keeper.clone(), name.clone());
            let holds = answer_soon(move || keeper.inspect(&name)).is_some_and(|info| {
                let info = info.expect("the store answers");
                let mut holders = info.iter().flat_map(|info| &info.holders);
                holders.any(|holder| holder.process.pid == pid)
            });
            if !holds {
                signal(Signal::SIGCONT);
            }
            holds
        });
    }
    instance.kill();
}

/// What `look` answers, unless it takes long: a process that is stopped within a transaction keeps the whole file of
/// the locks from everyone, also from who wants to know what it holds.
fn answer_soon<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(look()));
    told.recv_timeout(Duration::from_millis(500)).ok()
}

/// Every last one was sold, once.
fn assert_held(sale: Sale, report: &Report) {
    let books = report.books.as_ref().expect("books");
    assert_eq!(books.recorded, i64::from(sale.stock));
    assert_eq!(books.account.stock, 0);
    assert_eq!((books.oversold, books.lost_updates), (0, 0));
    assert!(report.held());
    // A customer that was told so has one; only one that was told nothing may have one as well.
    let tally = report.tally;
    assert!(tally.sold <= u64::from(sale.stock), "{tally:?}");
    assert!(
        tally.sold + tally.unknown >= u64::from(sale.stock),
        "{tally:?}"
    );
    assert_eq!(tally.busy, 0, "{tally:?}");
}

fn on_sqlite(sale: Sale) {
    let place = Place::new();
    let report = flash_sale(sale, place.lock(), &place.stock(), || {});
    assert_held(sale, &report);
}

/// One of the three nodes is killed as well, and stays away.
fn on_a_quorum(sale: Sale) {
    let place = Place::new();
    let mut nodes = Independent::start(3);
    nodes.wait_out_quarantine(Duration::from_secs(2));
    let lock = LockKind::Ours(nodes.url("2s"));
    let report = flash_sale(sale, lock, &place.stock(), || nodes.server(1).kill());
    assert_held(sale, &report);
}

#[test]
fn on_redis_every_last_one_is_sold_once() {
    let server = RedisServer::start();
    let lock = LockKind::Ours(server.url());
    assert_held(WHOLE, &flash_sale(WHOLE, lock, &server.url(), || {}));
    // The figures are the stock's own, and the stock is where the documents have it.
    assert_eq!(server.strings(&["GET", "inventory001"]), ["0"]);
    assert_eq!(
        server.strings(&["LLEN", "inventory001:ledger"]),
        [WHOLE.stock.to_string()]
    );
}

#[test]
fn on_sqlite_every_last_one_is_sold_once() {
    on_sqlite(QUARTER);
}

#[test]
fn on_a_quorum_every_last_one_is_sold_once() {
    on_a_quorum(QUARTER);
}

#[test]
#[ignore = "takes long: `cargo xtask nightly`"]
fn on_sqlite_the_whole_sale() {
    on_sqlite(WHOLE);
}

#[test]
#[ignore = "takes long: `cargo xtask nightly`"]
fn on_a_quorum_the_whole_sale() {
    on_a_quorum(WHOLE);
}

#[test]
fn without_a_lock_the_same_scene_oversells() {
    let place = Place::new();
    let report = flash_sale(QUARTER, LockKind::None, &place.stock(), || {});
    let books = report.books.as_ref().expect("books");
    assert!(books.oversold > 0, "{books:?}");
    assert!(books.lost_updates > 0, "{books:?}");
    assert!(!report.held());
}

#[test]
fn a_mutex_of_each_process_does_not_help() {
    let server = RedisServer::start();
    let report = flash_sale(QUARTER, LockKind::Mutex, &server.url(), || {});
    let books = report.books.as_ref().expect("books");
    assert!(books.lost_updates > 0, "{books:?}");
}
