//! One pair, and the tasks or threads that repeat it for the length of a window.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, bail};
use lockkeeper::ReleaseOutcome;
use lockkeeper::clock::Moment;
use serde::{Deserialize, Serialize};

use super::tally::Counted;

/// Something to acquire and to release again, by a task.
pub trait Pair: Send + 'static {
    fn run(&mut self, lap: &mut Lap) -> impl Future<Output = Result<()>> + Send;
}

/// The same by a thread.
pub trait BlockingPair {
    fn run(&mut self, lap: &mut Lap) -> Result<()>;
}

/// From when to when to repeat a pair, and how.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Window {
    start: u64,
    end: u64,
    hold_nanos: u64,
    /// Only every so many pairs the clock is read: it takes as long as a pair of a `tokio::sync::Mutex`.
    stride: u32,
}

impl Window {
    /// A window that begins soon, so that everyone is ready.
    pub fn soon(length: Duration, hold: Duration, stride: u32) -> Window {
        let start = Moment::now() + Duration::from_millis(5);
        Window {
            start: start.as_nanos(),
            end: (start + length).as_nanos(),
            hold_nanos: hold.as_nanos() as u64,
            stride,
        }
    }

    /// The window in pieces of this length, each to begin when it is its turn.
    pub fn slices(self, length: Duration) -> impl Iterator<Item = Window> {
        let length = length.as_nanos() as u64;
        let starts = (self.start..self.end).step_by(length as usize);
        starts.map(move |start| {
            let (now, length) = (Moment::now().as_nanos(), length.min(self.end - start));
            Window {
                start: now,
                end: now + length,
                ..self
            }
        })
    }

    /// The same window, to begin soon: for a side that has something to do before.
    pub fn anew(self) -> Window {
        let start = Moment::now() + Duration::from_millis(5);
        Window {
            start: start.as_nanos(),
            end: (start + self.length()).as_nanos(),
            ..self
        }
    }

    pub fn start(&self) -> Moment {
        Moment::from_nanos(self.start)
    }

    pub fn end(&self) -> Moment {
        Moment::from_nanos(self.end)
    }

    pub fn length(&self) -> Duration {
        self.end().since(self.start())
    }

    fn is_over(&self, now: Moment) -> bool {
        now >= self.end() || interrupted()
    }

    fn lap(&self, asked: Moment) -> Lap {
        Lap {
            asked,
            acquired: asked,
            releasing: asked,
            hold: Duration::from_nanos(self.hold_nanos),
        }
    }
}

/// Set by Ctrl-C: windows end at once, and what was made for them is cleaned up.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub fn interrupted() -> bool {
    INTERRUPTED.load(Relaxed)
}

/// One pair under way.
#[derive(Debug)]
pub struct Lap {
    /// [`Moment::NEVER`] if this pair is not timed.
    pub asked: Moment,
    acquired: Moment,
    releasing: Moment,
    hold: Duration,
}

impl Lap {
    /// The lock is held now. Holds it as long as asked for: a timer, since a real holder waits for something.
    pub async fn acquired(&mut self) {
        self.note();
        if !self.hold.is_zero() {
            tokio::time::sleep(self.hold).await;
            self.held();
        }
    }

    /// As [`Lap::acquired`], for threads.
    pub fn acquired_blocking(&mut self) {
        self.note();
        if !self.hold.is_zero() {
            std::thread::sleep(self.hold);
            self.held();
        }
    }

    fn note(&mut self) {
        if self.asked != Moment::NEVER {
            self.acquired = Moment::now();
            self.releasing = self.acquired;
        }
    }

    fn held(&mut self) {
        if self.asked != Moment::NEVER {
            self.releasing = Moment::now();
        }
    }

    /// When it was let go of.
    pub fn releasing(&self) -> Moment {
        self.releasing
    }

    pub fn waited(&self) -> Duration {
        self.acquired.since(self.asked)
    }
}

impl Pair for lockkeeper::Lock {
    async fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let guard = self.acquire().await?;
        lap.acquired().await;
        released(guard.release().await?)
    }
}

impl BlockingPair for lockkeeper::blocking::Lock {
    fn run(&mut self, lap: &mut Lap) -> Result<()> {
        let guard = self.acquire()?;
        lap.acquired_blocking();
        released(guard.release()?)
    }
}

fn released(outcome: ReleaseOutcome) -> Result<()> {
    match outcome {
        ReleaseOutcome::Released => Ok(()),
        other => bail!("a lock was lost during the run: {other:?}"),
    }
}

/// Repeats a pair until the window is over.
pub async fn repeat<P: Pair>(mut pair: P, window: Window) -> Result<Counted> {
    let mut counted = Counted::new();
    tokio::time::sleep(window.start().remaining()).await;
    loop {
        let mut lap = window.lap(Moment::now());
        if window.is_over(lap.asked) {
            return Ok(counted);
        }
        pair.run(&mut lap).await?;
        counted.record(&lap, Moment::now(), window.end());
        for _ in 1..window.stride {
            // A store that answers at once never makes the task wait: let the others run now and then.
            tokio::task::coop::consume_budget().await;
            pair.run(&mut window.lap(Moment::NEVER)).await?;
            counted.pairs += 1;
        }
        tokio::task::coop::consume_budget().await;
    }
}

/// As [`repeat`], for threads.
pub fn repeat_blocking(mut pair: impl BlockingPair, window: Window) -> Result<Counted> {
    let mut counted = Counted::new();
    std::thread::sleep(window.start().remaining());
    loop {
        let mut lap = window.lap(Moment::now());
        if window.is_over(lap.asked) {
            return Ok(counted);
        }
        pair.run(&mut lap)?;
        counted.record(&lap, Moment::now(), window.end());
        for _ in 1..window.stride {
            pair.run(&mut window.lap(Moment::NEVER))?;
            counted.pairs += 1;
        }
    }
}
