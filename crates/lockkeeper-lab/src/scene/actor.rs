//! An actor as the scene has it in hand: told what to do, heard, paused, killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lockkeeper::clock::Moment;
use lockkeeper::url::STORE_VARIABLE;
use rustix::process::{Pid, Signal, kill_process};

use super::board::Board;
use super::orders::{Casting, Event, Order, Said};
use super::process::VERB;
use super::timeline::Doing;
use crate::text::Text;
use crate::words;

/// How long something may take that nothing stands in the way of. Machines are slow at times.
pub const SOON: Duration = Duration::from_secs(20);
/// How long somebody is given to do what a lock should prevent.
const A_WHILE: Duration = Duration::from_millis(900);
/// How long a sale takes between its read and its write.
const THINKS_MS: u64 = 180;

/// A process of a scene. Dropping it kills it.
#[derive(Debug)]
pub struct Actor {
    name: String,
    lane: usize,
    board: Arc<Board>,
    child: Child,
    orders: Option<ChildStdin>,
    /// How much of what it said has been taken note of.
    heard: usize,
}

impl Actor {
    /// Starts it, and waits until it can be told what to do.
    pub async fn start(program: &Path, casting: &Casting, board: &Arc<Board>) -> Result<Actor> {
        let lane = board.lane(&casting.name, false);
        let mut child = Command::new(program)
            .arg(VERB)
            .env_remove(STORE_VARIABLE)
            // A Ctrl-C means the laboratory, which then ends its actors.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context(words::NO_ACTOR)?;
        let output = child.stdout.take().context("an actor has no output")?;
        let listening = board.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(said) = serde_json::from_str(&line) {
                    listening.heard(lane, said);
                }
            }
            let at = Moment::now().as_nanos();
            let event = Event::Ended;
            listening.heard(lane, Said { at, event });
        });
        let mut actor = Actor {
            name: casting.name.clone(),
            lane,
            board: board.clone(),
            orders: child.stdin.take(),
            child,
            heard: 0,
        };
        actor.send(&serde_json::to_string(casting)?)?;
        actor.says(|event| *event == Event::Ready).await?;
        Ok(actor)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its lane.
    pub fn lane(&self) -> usize {
        self.lane
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let name = &self.name;
        let orders = self.orders.as_mut();
        let orders = orders.with_context(|| words::does_not_listen(name))?;
        writeln!(orders, "{line}")
            .and_then(|()| orders.flush())
            .with_context(|| words::does_not_listen(name))
    }

    /// Tells it to do something, and does not wait for it.
    pub fn tell(&mut self, order: Order) -> Result<()> {
        self.send(&serde_json::to_string(&order)?)
    }

    /// Waits for it to say something like this, passing over the rest; `None` if it does not in time.
    pub async fn says_within(
        &mut self,
        time: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>> {
        let end = tokio::time::Instant::now() + time;
        let mut news = self.board.news();
        loop {
            let found = self.board.find(self.lane, self.heard, |event| {
                wanted(event) || matches!(event, Event::Failed { .. } | Event::Ended)
            });
            if let Some((said, heard)) = found {
                self.heard = heard;
                return match said.event {
                    event if wanted(&event) => Ok(Some(event)),
                    Event::Failed { message } => bail!(words::actor_failed(&self.name, &message)),
                    _ => bail!(words::actor_ended(&self.name)),
                };
            }
            // The sender lives as long as the board, which is as long as we do.
            if tokio::time::timeout_at(end, news.changed()).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Waits for it to say something like this, which it is bound to.
    pub async fn says(&mut self, wanted: impl Fn(&Event) -> bool) -> Result<Event> {
        match self.says_within(SOON, wanted).await? {
            Some(event) => Ok(event),
            None => bail!(self.too_slow("to do as it was told", "没有照办")),
        }
    }

    /// Asks for the lock, and waits for it. Answers whether it got it.
    pub async fn acquires(&mut self, within: Duration) -> Result<bool> {
        let within_ms = within.as_millis() as u64;
        self.tell(Order::Acquire { within_ms })?;
        let patience = within + SOON;
        let answer = self.says_within(patience, |event| {
            matches!(event, Event::Acquired { .. } | Event::Busy)
        });
        match answer.await? {
            Some(event) => Ok(event != Event::Busy),
            None => bail!(self.too_slow("to acquire or give up", "既没有拿到锁，也没有放弃")),
        }
    }

    fn too_slow(&self, en: &'static str, zh: &'static str) -> Text {
        words::takes_too_long(&self.name, &Text::new(en, zh))
    }

    /// Reads the stock.
    pub async fn reads(&mut self) -> Result<()> {
        self.tell(Order::Read)?;
        self.says(is_read).await.map(drop)
    }

    /// Writes back what it has read, less one.
    pub async fn writes(&mut self) -> Result<()> {
        self.tell(Order::Write)?;
        self.says(is_written).await.map(drop)
    }

    /// Lets go.
    pub async fn releases(&mut self) -> Result<()> {
        self.tell(Order::Release)?;
        self.says(is_released).await.map(drop)
    }

    /// Lets go, also when the servers that should hear of it are gone.
    pub async fn releases_somehow(&mut self) -> Result<()> {
        self.tell(Order::Release)?;
        let over = |event: &Event| is_released(event) || matches!(event, Event::Failed { .. });
        self.says(over).await.map(drop)
    }

    /// Takes the lock once more, as a nested call does. Answers whether it got it.
    pub async fn enters_again(&mut self, within: Duration) -> Result<bool> {
        let within_ms = within.as_millis() as u64;
        self.tell(Order::Again { within_ms })?;
        let answer = self.says_within(within + SOON, |event| {
            matches!(event, Event::Entered { .. } | Event::Busy)
        });
        match answer.await? {
            Some(event) => Ok(event != Event::Busy),
            None => bail!(self.too_slow("to enter or give up", "既没有重入，也没有放弃")),
        }
    }

    /// Leaves what it took once more.
    pub async fn leaves(&mut self) -> Result<()> {
        self.tell(Order::Leave)?;
        let left = |event: &Event| matches!(event, Event::Left { .. }) || is_released(event);
        self.says(left).await.map(drop)
    }

    /// Tells it to wait for the lock, sell one and let go.
    pub fn tell_to_sell(&mut self, within: Duration) -> Result<()> {
        self.tell(Order::Sell {
            within_ms: within.as_millis() as u64,
            thinks_ms: THINKS_MS,
        })
    }

    /// Waits for the lock, sells one and lets go. Answers whether it got the lock.
    pub async fn sells(&mut self, within: Duration) -> Result<bool> {
        self.tell_to_sell(within)?;
        self.ends_its_sale(within).await
    }

    /// Is told to sell while the lock should prevent it, and given a while to get as far as reading the stock.
    pub async fn tries_to_sell(&mut self) -> Result<()> {
        self.tell_to_sell(SOON)?;
        self.says_within(A_WHILE, is_read).await.map(drop)
    }

    /// Waits until what [`Actor::tell_to_sell`] began is over. Answers whether it got the lock.
    pub async fn ends_its_sale(&mut self, within: Duration) -> Result<bool> {
        let over = |event: &Event| is_released(event) || *event == Event::Busy;
        match self.says_within(within + SOON, over).await? {
            Some(event) => Ok(event != Event::Busy),
            None => bail!(self.too_slow("to sell or give up", "既没有卖出，也没有放弃")),
        }
    }

    /// Kills it (SIGKILL), and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.orders = None;
        self.board.dead(self.lane);
        Ok(())
    }

    /// Stops it (SIGSTOP): it does nothing, and does not notice.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        self.board.begin(self.lane, Doing::Paused);
        Ok(())
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.board.end(self.lane, Doing::Paused);
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).context("no process")?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// It has read the stock, or was refused.
pub fn is_read(event: &Event) -> bool {
    matches!(event, Event::Read { .. } | Event::Refused { .. })
}

/// It has written, or has a reason not to.
pub fn is_written(event: &Event) -> bool {
    matches!(
        event,
        Event::Sold { .. } | Event::SoldOut | Event::Refused { .. } | Event::Abstained
    )
}

/// It has let go, or had nothing.
pub fn is_released(event: &Event) -> bool {
    matches!(event, Event::Released | Event::NotHeld)
}
