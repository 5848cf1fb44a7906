//! An outage that hundreds of locks wait for is a few lines in the log, and not thousands.

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Fault, Tampered};

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
async fn an_outage_is_about_a_line_a_second() {
    const LOCKS: usize = 200;
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone());
    subscriber.init();
    let store = Tampered::new();
    let keeper = store.keeper(Duration::from_secs(3)).await;
    let mut guards = Vec::new();
    for number in 0..LOCKS {
        let lock = keeper.lock(&format!("held-{number}")).expect("a name");
        guards.push(lock.acquire().await.expect("acquired"));
    }
    let began = Instant::now();
    store.set_all(Some(Fault::Refused));
    let waits: Vec<_> = (0..LOCKS)
        .map(|number| {
            let lock = keeper.lock(&format!("wanted-{number}")).expect("a name");
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    for wait in waits {
        assert!(wait.await.expect("no panic").is_err(), "away for a lease");
    }
    for guard in &guards {
        guard.lost().await;
    }
    let seconds = began.elapsed().as_secs() as usize;
    let warnings = log.lines("WARN");
    assert!(
        (1..=2 * seconds + 4).contains(&warnings),
        "{warnings} in {seconds} s"
    );
    assert_eq!(log.lines("store away"), 1);
    common::eventually("each loss is told", async || {
        log.lines("lock lost") == LOCKS
    })
    .await;
}
