//! The load generator: many customers at once, spread over the instances, and what the books say afterwards.

mod client;
mod report;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;
use hyper::{Method, Uri};
use serde::Deserialize;
use tokio::task::JoinSet;

use super::answer::{self, Answer};
use super::routes::{ROUTES, Route};
use super::stock::Account;
use crate::text::Text;
use crate::{open_files, words};
use client::{Address, Client, Silence};

pub use report::{Books, InstanceReport, Latency, Report, Tally};

/// How many files it needs beside its connections.
const OWN_FILES: u64 = 32;

/// What to do.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where the instances are: `http://HOST:PORT`.
    pub instances: Vec<String>,
    /// What to ask for: one of [`ROUTES`], perhaps with parameters.
    pub path: String,
    /// How many requests in all.
    pub requests: u64,
    /// How many at a time.
    pub concurrency: usize,
    /// How long to wait for an answer.
    pub timeout: Duration,
}

impl LoadOptions {
    /// The usual ones: `/inventory/sale`, 64 at a time, a minute for an answer.
    pub fn new(instances: Vec<String>, requests: u64) -> LoadOptions {
        LoadOptions {
            instances,
            path: "/inventory/sale".into(),
            requests,
            concurrency: 64,
            timeout: Duration::from_secs(60),
        }
    }

    /// Whether they make sense.
    ///
    /// # Errors
    /// What is wrong and what to write instead.
    pub fn check(&self) -> Result<()> {
        prepare(self).map(|_| ())
    }
}

/// What the customers share.
struct Run {
    instances: Vec<Target>,
    method: Method,
    path: String,
    patience: Duration,
    /// Requests that are still to be made.
    left: AtomicU64,
    turn: AtomicUsize,
    latency: Mutex<Histogram<u64>>,
}

struct Target {
    address: Address,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tally: Tally,
    gone: Option<Text>,
    /// Why the first customer was not served who was not.
    trouble: Option<Text>,
}

impl Target {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_gone(&self) -> bool {
        self.state().gone.is_some()
    }
}

/// Makes the requests, tells how they go by `watch` ten times a second, and answers what the books say at the end.
///
/// # Errors
/// When the options make no sense, or no instance can be reached at the start.
pub async fn run(options: &LoadOptions, mut watch: impl FnMut(&Tally)) -> Result<Report> {
    let (run, item) = prepare(options)?;
    let run = Arc::new(run);
    let before = run.account(&item).await;
    let before = before.context(words::NO_INSTANCE_REACHED)?;
    let start = Instant::now();
    let mut customers = JoinSet::new();
    for _ in 0..options.concurrency {
        customers.spawn(run.clone().customer());
    }
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            ended = customers.join_next() => match ended {
                Some(ended) => ended.context(words::CUSTOMER_BROKE_OFF)?,
                None => break,
            },
            _ = ticks.tick() => watch(&run.tally()),
        }
    }
    let took = start.elapsed();
    watch(&run.tally());
    let after = run.account(&item).await.ok();
    Ok(run.report(&before, after, took))
}

/// One customer who makes the requests, without a look at the books.
pub(crate) async fn customer(options: &LoadOptions) -> Result<Tally> {
    let run = Arc::new(prepare(options)?.0);
    run.clone().customer().await;
    Ok(run.tally())
}

/// How many customers are in the instances: waiting for the lock, or with a look at the stock behind them.
pub(crate) async fn inside(instances: &[String]) -> Result<u64> {
    #[derive(Deserialize)]
    struct Health {
        waiting: u64,
        deciding: u64,
    }
    let mut inside = 0;
    for url in instances {
        let mut client = Client::new(Address::parse(url)?, Duration::from_secs(20));
        let asked = client.ask(Method::GET, "/health").await;
        let (_, body) = asked.map_err(|silence| anyhow!(about(url, &silence.told())))?;
        let health: Health = serde_json::from_slice(&body)?;
        inside += health.waiting + health.deciding;
    }
    Ok(inside)
}

/// Why an instance does not answer as it should.
fn about(url: &str, why: &Text) -> Text {
    Text::made(format!("{url}: {}", why.en), format!("{url}：{}", why.zh))
}

fn prepare(options: &LoadOptions) -> Result<(Run, String)> {
    ensure!(!options.instances.is_empty(), words::NAME_AN_INSTANCE);
    ensure!(options.concurrency > 0, words::NOBODY_ASKS);
    // Each customer keeps a connection to each instance.
    let customers = u64::try_from(options.concurrency)?.min(options.requests);
    let connections = customers * u64::try_from(options.instances.len())?;
    let files = open_files::most();
    ensure!(
        connections + OWN_FILES <= u64::try_from(files)?,
        words::too_many_connections(connections, files)
    );
    let uri: Uri = options.path.parse().context(words::PATH_NOT_READ)?;
    let route = Route::find(&options.path).with_context(|| {
        let paths: Vec<_> = ROUTES.iter().map(|route| route.path).collect();
        words::sells_nothing(&options.path, &paths.join(", "))
    })?;
    let item = route.item(&uri).map_err(anyhow::Error::msg)?;
    let targets = options.instances.iter().map(|url| {
        Ok(Target {
            address: Address::parse(url)?,
            state: Mutex::default(),
        })
    });
    let run = Run {
        instances: targets.collect::<Result<_>>()?,
        method: route.method.parse()?,
        path: options.path.clone(),
        patience: options.timeout,
        left: AtomicU64::new(options.requests),
        turn: AtomicUsize::new(0),
        // Up to an hour, in microseconds.
        latency: Mutex::new(Histogram::new_with_max(3_600_000_000, 3)?),
    };
    Ok((run, item.to_string()))
}

impl Run {
    /// Asks for one after the other, each at the next instance, for as long as there are any.
    async fn customer(self: Arc<Self>) {
        let client = |target: &Target| Client::new(target.address.clone(), self.patience);
        let mut clients: Vec<_> = self.instances.iter().map(client).collect();
        while self.take_one() {
            let at = match self.next_instance() {
                Ok(at) => at,
                Err(gone) => {
                    self.instances[gone].state().tally.failed += 1;
                    continue;
                }
            };
            let target = &self.instances[at];
            let asked = Instant::now();
            let answer = clients[at].ask(self.method.clone(), &self.path).await;
            let (answer, told) = match answer {
                Ok((status, body)) => match serde_json::from_slice::<Answer>(&body) {
                    Ok(answer) => (Ok(answer.result), answer.message.into()),
                    // Not a shop, or something in between that speaks for it.
                    Err(_) => (Ok(answer::Result::Unknown), words::status(status)),
                },
                Err(silence) => {
                    let told = silence.told();
                    (Err(silence), told)
                }
            };
            if answer.is_ok() {
                let micros = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
                let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
                latency.saturating_record(micros);
            }
            let mut state = target.state();
            let before = state.tally.unserved();
            state.tally.count(&answer);
            if let Err(Silence::NotSent(_)) = answer {
                state.gone.get_or_insert_with(|| told.clone());
            }
            if state.tally.unserved() > before {
                state.trouble.get_or_insert(told);
            }
        }
    }

    fn take_one(&self) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        taken.is_ok()
    }

    /// The next one that is still there, in turn.
    ///
    /// # Errors
    /// The next one in turn if none is.
    fn next_instance(&self) -> Result<usize, usize> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let all = 0..self.instances.len();
        let there: Vec<usize> = all.filter(|at| !self.instances[*at].is_gone()).collect();
        match there.as_slice() {
            [] => Err(turn % self.instances.len()),
            there => Ok(there[turn % there.len()]),
        }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for target in &self.instances {
            tally.add(&target.state().tally);
        }
        tally
    }

    /// What the first instance that answers says about an item.
    async fn account(&self, item: &str) -> Result<Account> {
        #[derive(Deserialize)]
        struct Stats {
            accounts: Vec<Account>,
        }
        let mut why = anyhow!(words::NAME_AN_INSTANCE);
        for target in &self.instances {
            let mut client = Client::new(target.address.clone(), self.patience);
            let stats = match client.ask(Method::GET, "/stats").await {
                Ok((_, body)) => serde_json::from_slice::<Stats>(&body),
                Err(silence) => {
                    why = anyhow!(about(&target.address.url, &silence.told()));
                    continue;
                }
            };
            let Ok(stats) = stats else {
                why = anyhow!(about(&target.address.url, &words::NO_SHOP));
                continue;
            };
            let account = stats.accounts.into_iter().find(|found| found.item == item);
            // A family that has asked for nothing yet has no account.
            return Ok(account.unwrap_or_else(|| Account {
                item: item.to_owned(),
                opening: 1,
                stock: 1,
                sales: 0,
            }));
        }
        Err(why)
    }

    fn report(&self, before: &Account, after: Option<Account>, took: Duration) -> Report {
        let instances = self.instances.iter().map(|target| {
            let state = target.state();
            InstanceReport {
                url: target.address.url.clone(),
                tally: state.tally,
                gone: state.gone.clone(),
                trouble: state.trouble.clone(),
            }
        });
        let books = after.map(|after| Books::new(before, after));
        let latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        Report::new(&self.path, instances.collect(), books, took, &latency)
    }
}
