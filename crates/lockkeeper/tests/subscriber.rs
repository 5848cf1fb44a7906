//! A subscriber of `tracing` that panics costs nobody a lock. A program of its own: there is one subscriber for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::Lockkeeper;
use lockkeeper::store::memory::MemoryStore;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static HEARD: AtomicUsize = AtomicUsize::new(0);

struct Panics;

impl Subscriber for Panics {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        if event.metadata().target().starts_with("lockkeeper") {
            HEARD.fetch_add(1, SeqCst);
            panic!("a subscriber that is broken");
        }
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn a_subscriber_that_panics_ends_no_renewal() {
    tracing::subscriber::set_global_default(Panics).expect("no other");
    // What it says of its panics is of no use here.
    std::panic::set_hook(Box::new(|_| ()));
    let lease = Duration::from_millis(900);
    let builder = Lockkeeper::builder().store(Arc::new(MemoryStore::new()));
    let keeper = builder.lease(lease).connect().await.expect("connects");
    let lock = keeper.lock("a").expect("a lock");
    let guard = lock.acquire().await.expect("acquires");
    let first = guard.deadline();
    // It is renewed for as long as it is held.
    let later = async {
        while guard.deadline() < first + 3 * lease {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let renewed = tokio::time::timeout(Duration::from_secs(60), later).await;
    assert!(renewed.is_ok(), "it is renewed no more");
    guard.release().await.expect("is still held");
    assert!(HEARD.load(SeqCst) > 0, "there was something to panic about");
}
