//! Other processes: this program again, told by lines of JSON what to do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::clock::Moment;
use lockkeeper::url::STORE_VARIABLE;
use lockkeeper::{HandOff, Lock};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use super::held::{self, HeldCount, HeldOrder};
use super::lap::{Lap, Pair, Window};
use super::side::{Side, Tasks, Threads};
use super::tally::Tally;
use super::target::{Address, Target};
use super::waiters::Crowding;

/// The hidden subcommand that makes this program a worker.
pub const SUBCOMMAND: &str = "bench-worker";
const NO_HAND_OFF: &str = "--no-handoff";

#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// So many tasks contend for one name.
    Contend {
        name: String,
        tasks: usize,
        blocking: bool,
        window: Window,
    },
    /// One task acquires and releases, and notes when.
    HandOff { name: String, window: Window },
    /// So many tasks wait for one name, each to acquire and release it once. Answered when they wait.
    Crowd { name: String, tasks: usize },
    /// See them through.
    Disperse,
    /// Hold many locks.
    Hold(HeldOrder),
    /// Answer at once.
    Ping,
}

/// When a task asked for a lock, got it and let go, in nanoseconds since boot.
pub type Note = [u64; 3];

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Ready,
    Contended(Tally),
    HandedOff(Tally, Vec<Note>),
    Held(HeldCount),
    Waiting,
    /// How many have acquired and released.
    Dispersed(usize),
    /// When the ping came.
    Pong(u64),
    Failed(String),
}

/// A worker process. Dropping it lets it end by itself, and waits for that.
pub struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker on a store.
    pub fn start(address: &Address, hand_off: HandOff) -> Result<Worker> {
        let program = std::env::current_exe().context("this program cannot be found again")?;
        let mut child = Command::new(program)
            .arg(SUBCOMMAND)
            .args((hand_off == HandOff::OFF).then_some(NO_HAND_OFF))
            // Not an argument: those can be seen by everyone, and the URL may have a password.
            .env(STORE_VARIABLE, &address.text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("another process cannot be started")?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let mut worker = Worker {
            child,
            orders,
            answers: BufReader::new(answers.context("the worker has no output")?),
        };
        match worker.answer()? {
            Answer::Ready => Ok(worker),
            other => bail!("a worker said {other:?} first"),
        }
    }

    pub fn order(&mut self, order: &Order) -> Result<()> {
        let orders = self.orders.as_mut().context("the worker has no input")?;
        say(orders, order)
    }

    pub fn answer(&mut self) -> Result<Answer> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("a worker ended too soon");
        }
        match serde_json::from_str(&line)? {
            Answer::Failed(reason) => bail!("a worker failed: {reason}"),
            answer => Ok(answer),
        }
    }

    /// How long a byte takes to wake the worker: what no hand-off can beat by much.
    pub fn ping(&mut self) -> Result<Duration> {
        let sent = Moment::now();
        self.order(&Order::Ping)?;
        match self.answer()? {
            Answer::Pong(came) => Ok(Moment::from_nanos(came).since(sent)),
            other => bail!("a worker answered a ping with {other:?}"),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its orders is the order to end.
        self.orders = None;
        let _ = self.child.wait();
    }
}

fn say(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(value)?;
    line.push('\n');
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}

/// Several processes that contend for one name.
pub struct Processes {
    pub workers: Vec<Worker>,
    pub name: String,
    /// In each process.
    pub tasks: usize,
    pub blocking: bool,
}

impl Side for Processes {
    fn window(&mut self, window: Window) -> Result<Tally> {
        let order = Order::Contend {
            name: self.name.clone(),
            tasks: self.tasks,
            blocking: self.blocking,
            window,
        };
        for worker in &mut self.workers {
            worker.order(&order)?;
        }
        let mut all: Option<Tally> = None;
        for worker in &mut self.workers {
            let Answer::Contended(tally) = worker.answer()? else {
                bail!("a worker answered something else");
            };
            match &mut all {
                Some(all) => all.beside(tally),
                None => all = Some(tally),
            }
        }
        all.context("there is no worker")
    }
}

/// What a worker process does: obey until there are no more orders.
pub fn obey(runtime: &Runtime) -> Result<()> {
    let address = Address::find(None)?;
    let hand_off = match std::env::args().nth(2).as_deref() {
        Some(NO_HAND_OFF) => HandOff::OFF,
        _ => HandOff::default(),
    };
    let target = Target::open(&address, hand_off, None)?;
    let mut crowd = Crowding::default();
    let mut out = std::io::stdout().lock();
    say(&mut out, &Answer::Ready)?;
    for line in std::io::stdin().lock().lines() {
        // Before anything else: a ping measures how soon we wake.
        let came = Moment::now();
        let answer = match serde_json::from_str(&line?)? {
            Order::Ping => Answer::Pong(came.as_nanos()),
            order => carry_out(order, runtime, &address, &target, &mut crowd)
                .unwrap_or_else(|error| Answer::Failed(format!("{error:#}"))),
        };
        say(&mut out, &answer)?;
    }
    target.keeper.close();
    Ok(())
}

fn carry_out(
    order: Order,
    runtime: &Runtime,
    address: &Address,
    target: &Target,
    crowd: &mut Crowding,
) -> Result<Answer> {
    let counting = target.counting.clone();
    match order {
        Order::Ping => bail!("answered before"),
        Order::Crowd { name, tasks } => {
            crowd.gather(runtime, target, &name, tasks)?;
            Ok(Answer::Waiting)
        }
        Order::Disperse => Ok(Answer::Dispersed(crowd.disperse(runtime))),
        Order::Hold(order) => Ok(Answer::Held(held::hold(runtime, address, &order)?)),
        Order::Contend {
            name,
            tasks,
            blocking,
            window,
        } => {
            let names = vec![name; tasks];
            let tally = if blocking {
                let pairs = target.blocking_locks(&names)?;
                Threads { pairs, counting }.window(window)
            } else {
                let pairs = target.locks(&names)?;
                Tasks {
                    runtime,
                    pairs,
                    counting,
                }
                .window(window)
            };
            Ok(Answer::Contended(tally?))
        }
        Order::HandOff { name, window } => {
            let notes = Arc::default();
            let pair = Noting {
                lock: target.keeper.asynchronous().lock(&name)?,
                notes: Arc::clone(&notes),
            };
            let tally = Tasks {
                runtime,
                pairs: vec![pair],
                counting,
            }
            .window(window)?;
            let notes = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
            Ok(Answer::HandedOff(tally, notes))
        }
    }
}

/// A pair that notes when it got the lock and when it let go.
#[derive(Clone)]
struct Noting {
    lock: Lock,
    notes: Arc<Mutex<Vec<Note>>>,
}

impl Pair for Noting {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let guard = self.lock.acquire().await?;
        let acquired = Moment::now();
        lap.acquired().await;
        let releasing = Moment::now();
        guard.release().await?;
        let note = [lap.asked, acquired, releasing].map(Moment::as_nanos);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push(note);
        Ok(())
    }
}
