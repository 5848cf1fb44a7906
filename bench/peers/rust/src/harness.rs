//! The contract of `bench/peers/README.md`, for both peers in Rust.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

/// Why a program ends.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A library under measurement.
pub trait Library: Send + Sync + 'static {
    /// One name, as a task of it uses it.
    type Lock: Send + Sync;
    /// What is held.
    type Guard: Send;
    /// Makes a lock.
    fn lock(&self, name: &str) -> Result<Self::Lock, Failure>;
    /// Waits until it is acquired.
    fn acquire(
        &self,
        lock: &Self::Lock,
    ) -> impl Future<Output = Result<Self::Guard, Failure>> + Send;
    /// Lets go of it, and waits until that is done.
    fn release(&self, guard: Self::Guard) -> impl Future<Output = Result<(), Failure>> + Send;
}

#[derive(Clone, Copy, Deserialize)]
struct Window {
    start_ns: u64,
    end_ns: u64,
    hold_us: u64,
    notes: bool,
}

#[derive(Deserialize)]
struct Order {
    names: Vec<String>,
    #[serde(flatten)]
    window: Window,
}

#[derive(Default, Serialize)]
struct Answer {
    pairs: Vec<u64>,
    all: u64,
    waits: BTreeMap<u32, u64>,
    held_ns: u64,
    notes: Vec<[u64; 3]>,
    errors: u64,
    error: Option<String>,
}

/// Obeys until there are no more orders.
pub fn obey<L: Library>(runtime: &Runtime, ready: &str, library: L) -> Result<(), Failure> {
    println!("{}", serde_json::json!({ "ready": ready }));
    let library = Arc::new(library);
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        let answer = runtime.block_on(measure(&library, order))?;
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

async fn measure<L: Library>(library: &Arc<L>, order: Order) -> Result<Answer, Failure> {
    let mut tasks = Vec::new();
    for name in &order.names {
        let lock = library.lock(name)?;
        tasks.push(tokio::spawn(repeat(library.clone(), lock, order.window)));
    }
    let mut all = Answer::default();
    for task in tasks {
        let one = task.await?;
        all.pairs.extend(one.pairs);
        all.all += one.all;
        all.held_ns += one.held_ns;
        all.notes.extend(one.notes);
        all.errors += one.errors;
        all.error = all.error.or(one.error);
        for (bucket, count) in one.waits {
            *all.waits.entry(bucket).or_default() += count;
        }
    }
    Ok(all)
}

async fn repeat<L: Library>(library: Arc<L>, lock: L::Lock, window: Window) -> Answer {
    let mut answer = Answer::default();
    let mut pairs = 0;
    // A vector while counting: a map would cost as much as the pair that it counts.
    let mut waits = vec![0_u64; 1024];
    let early = window.start_ns.saturating_sub(now());
    tokio::time::sleep(Duration::from_nanos(early)).await;
    loop {
        let asked = now();
        if asked >= window.end_ns {
            break;
        }
        let guard = match library.acquire(&lock).await {
            Ok(guard) => guard,
            Err(error) => {
                answer.failed(&error);
                continue;
            }
        };
        let acquired = now();
        hold(Duration::from_micros(window.hold_us)).await;
        let releasing = now();
        if let Err(error) = library.release(guard).await {
            answer.failed(&error);
        }
        waits[bucket(acquired - asked)] += 1;
        answer.all += 1;
        answer.held_ns += releasing - acquired;
        pairs += u64::from(now() < window.end_ns);
        if window.notes {
            answer.notes.push([asked, acquired, releasing]);
        }
        // A task that never has to wait lets the others run now and then.
        tokio::task::coop::consume_budget().await;
    }
    answer.pairs = vec![pairs];
    let seen = waits.iter().enumerate().filter(|(_, count)| **count > 0);
    answer.waits = seen.map(|(at, count)| (at as u32, *count)).collect();
    answer
}

impl Answer {
    fn failed(&mut self, error: &Failure) {
        self.errors += 1;
        self.error.get_or_insert_with(|| error.to_string());
    }
}

/// On a thread, because tokio's timer has a grain of 1 ms and would hold for 2.
async fn hold(time: Duration) {
    if !time.is_zero() {
        let sleep = tokio::task::spawn_blocking(move || std::thread::sleep(time));
        sleep.await.expect("sleeping does not panic");
    }
}

fn bucket(nanos: u64) -> usize {
    ((nanos.max(1) as f64).log2() * 16.0) as usize
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
