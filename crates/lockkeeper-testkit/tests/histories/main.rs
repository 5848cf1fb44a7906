//! Every mode of every store under faults by chance, judged by the history checker.
//!
//! A history has three processes that take locks in all modes that the store has (`lock-taker mix`), on a few names, while
//! one fault follows the other: `trouble` has their names, `crowd` the processes, `stage` one history; `sqlite`, `redis`,
//! `quorum`, `postgres`, `mysql`, `zookeeper` and `etcd` have what can happen to each store. `broken` has locks with a mistake, which
//! the same checker catches.
//!
//! `LOCKKEEPER_HISTORIES` says how many each store has, `LOCKKEEPER_SEED` repeats a run, `LOCKKEEPER_TROUBLES` names the only
//! faults to make; `cargo xtask nightly` asks for many.

mod broken;
#[path = "../support/crew.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod crew;
mod crowd;
mod etcd;
mod mysql;
#[path = "../support/place.rs"]
mod place;
mod postgres;
mod quorum;
mod redis;
mod sqlite;
mod stage;
mod trouble;
mod zookeeper;
