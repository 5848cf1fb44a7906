//! Closing a keeper ends waits on purpose: they are no warnings in the log.

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};

use common::{LEASE, Tampered, acquired, eventually};
use lockkeeper::Error;

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
    fn lines(&self, word: &str) -> usize {
        let text = String::from_utf8_lossy(&self.0.lock().expect("log")).into_owned();
        text.lines().filter(|line| line.contains(word)).count()
    }
}

#[tokio::test]
async fn a_wait_that_a_close_ends_is_no_warning() {
    const WAITERS: usize = 20;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    subscriber.init();
    let keeper = Tampered::new().keeper(LEASE).await;
    let held = acquired(&keeper).await;
    let waits: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = keeper.lock("x").expect("a name");
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    let waiting = || log.lines("waiting for the lock");
    eventually("all wait", async || waiting() == WAITERS).await;
    keeper.close().await;
    for wait in waits {
        assert_eq!(wait.await.expect("no panic"), Err(Error::Closed));
    }
    assert_eq!(log.lines("WARN"), 0);
    assert_eq!(log.lines("wait ended by close"), WAITERS);
    drop(held);
}
