//! An actor's own process: takes a lock, works, and says what happens to it.
//!
//! It is the program that runs the laboratory once more, started with a hidden verb. Its first line of input says who
//! it is, each further line what to do. The end of its input is its end.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use lockkeeper::clock::Moment;
use lockkeeper::{Guard, Token};
use lockkeeper_testkit::history::Answer as Release;
use lockkeeper_testkit::taking::{AnyGuard, AnyLock, Failure, Wanted};
use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};
use tokio::task::JoinSet;

use super::orders::{Casting, Event, LockOrder, Order, Said};
use crate::shop::Item;
use crate::shop::stock::{self, Fenced, Sale, Stock};

/// The hidden verb that makes a program an actor; see [`main`].
pub const VERB: &str = "lab-actor";

/// How often a guard is looked at, and a nested call tries again.
const LOOK: Duration = Duration::from_millis(15);

/// Runs as an actor.
pub fn main() -> ExitCode {
    // However the laboratory ends: also an actor that is stopped must not stay behind.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match play() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard output is for what is said in the play, and its end tells that something is wrong.
            let message = format!("{error:#}");
            say(Event::Failed { message });
            ExitCode::FAILURE
        }
    }
}

fn play() -> Result<()> {
    let mut first = String::new();
    io::stdin().read_line(&mut first)?;
    let casting: Casting = serde_json::from_str(&first)?;
    let (sender, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut actor = Actor::open(casting).await?;
        say(Event::Ready);
        actor.obey(orders).await
    })
}

/// Says it, as of now.
fn say(event: Event) {
    let at = Moment::now().as_nanos();
    if let Ok(line) = serde_json::to_string(&Said { at, event }) {
        // Nobody to tell is the end anyway.
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// What an actor takes.
enum Lock {
    /// Nothing at all.
    None,
    /// A mutex of this process.
    Mutex(Arc<Mutex<()>>),
    /// One that other processes see.
    Shared(Box<AnyLock>),
}

/// What an actor has taken.
enum Held {
    Nothing,
    Mutex(OwnedMutexGuard<()>),
    Shared(Arc<AnyGuard>, Watch),
}

/// The tasks that look at a hold.
type Watch = JoinSet<()>;

struct Actor {
    lock: Lock,
    /// Whether its writes show a token.
    fenced: bool,
    stock: Option<Arc<dyn Stock>>,
    held: Option<Held>,
    /// Taken again.
    inner: Vec<AnyGuard>,
    /// What it has read.
    base: i64,
    /// Whether its work was stopped.
    stopped: bool,
}

impl Lock {
    async fn open(order: &LockOrder) -> Result<Lock> {
        Ok(match order.kind.as_str() {
            "none" => Lock::None,
            "mutex" => Lock::Mutex(Arc::default()),
            kind => {
                let wanted = Wanted {
                    kind,
                    url: &order.url,
                    name: &order.name,
                    lease: Duration::from_millis(order.lease_ms),
                    renewed: order.renewed,
                };
                Lock::Shared(Box::new(AnyLock::open(&wanted).await.map_err(plain)?))
            }
        })
    }

    async fn acquire(&self, within: Duration) -> Result<Option<Held>> {
        Ok(match self {
            Lock::None => Some(Held::Nothing),
            Lock::Mutex(mutex) => {
                let locked = tokio::time::timeout(within, mutex.clone().lock_owned());
                locked.await.ok().map(Held::Mutex)
            }
            Lock::Shared(lock) => {
                let guard = lock.acquire(within).await.map_err(plain)?;
                guard.map(|guard| Held::Shared(Arc::new(guard), Watch::new()))
            }
        })
    }
}

/// Keeps the message.
fn plain(failure: Failure) -> anyhow::Error {
    anyhow!("{failure}")
}

impl Held {
    /// The guard of a lock of ours, which knows more than naive ones do.
    fn ours(&self) -> Option<&Guard> {
        match self {
            Held::Shared(guard, _) => match &**guard {
                AnyGuard::Ours(guard, _) => Some(guard),
                _ => None,
            },
            _ => None,
        }
    }

    /// Its token, for locks that have one.
    fn token(&self) -> Option<u64> {
        match self {
            Held::Shared(guard, _) => Some(guard.token()),
            _ => None,
        }
    }

    /// Whether a look at it says that it is held. A naive lock gives its holder nothing to look at.
    fn looks_held(&self) -> bool {
        self.ours().is_none_or(Guard::is_held)
    }

    /// Says what becomes of the hold.
    fn watch(&mut self) {
        if let Held::Shared(guard, watch) = self {
            watch.spawn(told(guard.clone()));
        }
    }
}

async fn told(guard: Arc<AnyGuard>) {
    let mut lost = guard.lost();
    let AnyGuard::Ours(guard, _) = &*guard else {
        lost.await;
        return say(Event::Lost);
    };
    let (mut until, mut at_risk) = (guard.deadline(), false);
    while tokio::time::timeout(LOOK, &mut lost).await.is_err() {
        let (deadline, risk) = (guard.deadline(), Moment::now() >= guard.at_risk_at());
        if deadline != until {
            until = deadline;
            let until = until.as_nanos();
            say(Event::BelievesUntil { until });
        }
        if risk && !at_risk {
            say(Event::AtRisk);
        }
        at_risk = risk;
    }
    say(Event::Lost);
}

impl Actor {
    async fn open(casting: Casting) -> Result<Actor> {
        let stock = match &casting.stock {
            // It is there already: how much there is is not for an actor to say.
            Some(url) => Some(stock::open(url, 0).await?),
            None => None,
        };
        Ok(Actor {
            lock: Lock::open(&casting.lock).await?,
            fenced: casting.lock.kind == "ours",
            stock,
            held: None,
            inner: Vec::new(),
            base: 0,
            stopped: false,
        })
    }

    async fn obey(&mut self, mut orders: mpsc::UnboundedReceiver<String>) -> Result<()> {
        while let Some(line) = orders.recv().await {
            if let Err(error) = self.follow(serde_json::from_str(&line)?).await {
                let message = format!("{error:#}");
                say(Event::Failed { message });
            }
        }
        Ok(())
    }

    async fn follow(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Acquire { within_ms } => {
                let within = Duration::from_millis(within_ms);
                self.acquire(within).await.map(drop)
            }
            Order::Again { within_ms } => self.again(Duration::from_millis(within_ms)).await,
            Order::Leave => {
                let inner = self.inner.pop().context("it was not taken again")?;
                released(inner.release().await.map_err(plain)?);
                Ok(())
            }
            Order::Look => {
                let held = self.held()?.looks_held();
                say(Event::Looked { held });
                Ok(())
            }
            Order::Read => self.read().await,
            Order::Work { ms } => self.work(Duration::from_millis(ms)).await,
            Order::Write => self.write_if_held().await,
            Order::WriteBlindly => self.write().await,
            Order::Release => self.release().await,
            Order::Sell {
                within_ms,
                thinks_ms,
            } => {
                if self.acquire(Duration::from_millis(within_ms)).await? {
                    self.read().await?;
                    self.work(Duration::from_millis(thinks_ms)).await?;
                    self.write_if_held().await?;
                    self.release().await?;
                }
                Ok(())
            }
        }
    }

    async fn write_if_held(&self) -> Result<()> {
        if self.stopped || !self.held()?.looks_held() {
            say(Event::Abstained);
            return Ok(());
        }
        self.write().await
    }

    fn held(&self) -> Result<&Held> {
        self.held.as_ref().context("nothing is held")
    }

    /// Whether it got the lock.
    async fn acquire(&mut self, within: Duration) -> Result<bool> {
        say(Event::Asked);
        let Some(mut held) = self.lock.acquire(within).await? else {
            say(Event::Busy);
            return Ok(false);
        };
        let token = held.token();
        let until = held.ours().map(|guard| guard.deadline().as_nanos());
        say(Event::Acquired { token, until });
        held.watch();
        self.held = Some(held);
        self.stopped = false;
        Ok(true)
    }

    async fn again(&mut self, within: Duration) -> Result<()> {
        let Held::Shared(guard, _) = self.held()? else {
            bail!("this lock cannot be taken again");
        };
        let end = Moment::now() + within;
        say(Event::Asked);
        loop {
            if let Some(inner) = guard.again().await.map_err(plain)? {
                let depth = inner.depth();
                say(Event::Entered { depth });
                self.inner.push(inner);
                return Ok(());
            }
            if Moment::now() >= end {
                say(Event::Busy);
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn token(&self) -> Option<Token> {
        let token = self.held.as_ref().and_then(Held::token);
        token.filter(|_| self.fenced).map(Token::new)
    }

    fn stock(&self) -> Result<&dyn Stock> {
        self.stock.as_deref().context("there is no stock")
    }

    async fn read(&mut self) -> Result<()> {
        match self.stock()?.read(Item::Inventory, self.token()).await? {
            Fenced::Count(left) => {
                self.base = left;
                say(Event::Read { left });
            }
            Fenced::Refused { seen } => say(Event::Refused { seen }),
        }
        Ok(())
    }

    async fn work(&mut self, time: Duration) -> Result<()> {
        let work = tokio::time::sleep(time);
        let done = match self.held()?.ours() {
            Some(guard) => guard.run(work).await.is_ok(),
            None => {
                work.await;
                true
            }
        };
        self.stopped = !done;
        say(if done { Event::Worked } else { Event::Stopped });
        Ok(())
    }

    async fn write(&self) -> Result<()> {
        if self.base < 1 {
            say(Event::SoldOut);
            return Ok(());
        }
        let sale = Sale {
            item: Item::Inventory,
            read: self.base,
            token: self.token(),
            port: 0,
        };
        match self.stock()?.write(sale).await? {
            Fenced::Count(left) => say(Event::Sold { left }),
            Fenced::Refused { seen } => say(Event::Refused { seen }),
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match self.held.take().context("nothing is held")? {
            Held::Nothing => say(Event::Released),
            Held::Mutex(guard) => {
                drop(guard);
                say(Event::Released);
            }
            Held::Shared(guard, mut watch) => {
                watch.shutdown().await;
                // It believes no longer, whatever the store still has to say.
                say(Event::Releases);
                let guard = Arc::into_inner(guard).context("somebody still looks at it")?;
                released(guard.release().await.map_err(plain)?);
            }
        }
        Ok(())
    }
}

fn released(answer: Release) {
    say(match answer {
        Release::Released => Event::Released,
        Release::StillHeld { depth } => Event::Left { depth },
        _ => Event::NotHeld,
    });
}
