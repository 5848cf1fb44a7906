//! What happens to a lock is told to `tracing` too.

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Fault, Tampered, Verb, eventually};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("log").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn has(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.0.lock().expect("log")).contains(text)
    }
}

#[tokio::test]
async fn every_event_reaches_tracing() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    // For the whole process: events come from the keeper's thread as well.
    subscriber.init();
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_millis(600)).await;
    let lock = keeper.lock("observed").expect("a name");
    lock.acquire()
        .await
        .expect("acquired")
        .release()
        .await
        .expect("released");
    let guard = lock.acquire().await.expect("acquired");
    store.set(Verb::Renew, Some(Fault::Refused));
    guard.lost().await;
    for text in [
        "lock acquired",
        "lock released",
        "lock renewal failed",
        "lock at risk",
        "lock lost",
    ] {
        eventually(text, async || log.has(text)).await;
    }
    assert!(log.has("name=observed") && log.has("waited=") && log.has("held="));
}
