//! `lock-taker count`: load, and its history.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::Token;
use lockkeeper::clock::Moment;
use lockkeeper::store::Mode;
use lockkeeper_testkit::fenced::FencedFile;
use lockkeeper_testkit::history::{Answer, Call, Recorder};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::taking::{AnyLock, Failure, took_nothing};

use crate::Options;

/// What the tasks of `count` share.
struct Counter {
    process: String,
    name: String,
    lock: AnyLock,
    patience: Duration,
    resource: FencedFile,
    recorder: Recorder,
    end: Moment,
    rounds: u64,
    seed: u64,
    lockless: bool,
    told_to_stop: AtomicBool,
}

pub async fn count(options: &Options) -> Result<(), Failure> {
    let lock = options.lock().await?;
    let time = options.duration("for")?;
    let counter = Arc::new(Counter {
        process: options.need("process")?.to_owned(),
        name: options.need("name")?.to_owned(),
        lock,
        patience: options.patience()?,
        resource: options.resource()?.ok_or("--resource is missing")?,
        recorder: options.recorder()?,
        end: time.map_or(Moment::NEVER, |d| Moment::now() + d),
        rounds: options.number("rounds", u64::MAX)?,
        seed: options.number("seed", 0)?,
        lockless: options.get("broken") == Some("no-lock"),
        told_to_stop: AtomicBool::new(false),
    });
    let tasks: u64 = options.number("tasks", 1)?;
    let tasks: Vec<_> = (0..tasks)
        .map(|number| tokio::spawn(counter.clone().work(number)))
        .collect();
    stop_when_told(counter.clone());
    println!("counting");
    for task in tasks {
        task.await??;
    }
    counter.lock.close().await;
    println!("done");
    Ok(())
}

/// Obeys `stop` on the standard input.
fn stop_when_told(counter: Arc<Counter>) {
    std::thread::spawn(move || {
        let lines = std::io::stdin().lock().lines();
        if lines.map_while(Result::ok).any(|line| line == "stop") {
            counter.told_to_stop.store(true, SeqCst);
        }
    });
}

impl Counter {
    async fn work(self: Arc<Self>, number: u64) -> Result<(), Failure> {
        let owner = format!("{}.{number}", self.process);
        let mut random = Random::seeded(self.seed.wrapping_add(number));
        let mut done = 0;
        while done < self.rounds && Moment::now() < self.end && !self.told_to_stop.load(SeqCst) {
            let counted = match self.lockless {
                false => self.add_one(&owner, &mut random).await?,
                true => self.add_one_without_lock(&owner, &mut random).await?,
            };
            done += u64::from(counted);
        }
        Ok(())
    }

    /// Whether one more was counted.
    async fn add_one(&self, owner: &str, random: &mut Random) -> Result<bool, Failure> {
        let op = self.recorder.acquire(&self.name, owner, Mode::Exclusive);
        let guard = match self.lock.acquire(self.patience).await {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                self.recorder.ok(op, Answer::Busy);
                return Ok(false);
            }
            Err(failure) => {
                match took_nothing(&failure) {
                    true => self.recorder.fail(op, failure),
                    false => self.recorder.unknown(op, failure),
                }
                return Ok(false);
            }
        };
        let token = Token::new(guard.token());
        self.recorder.granted(op, token, guard.deadline());
        let told = {
            let (lost, recorder) = (guard.lost(), self.recorder.clone());
            tokio::spawn(async move {
                lost.await;
                recorder.lost(op);
            })
        };
        let counted = self.change(token, random).await?;
        let asked = Moment::now();
        if guard.is_held() {
            self.recorder.look(op, asked, guard.deadline());
        }
        told.abort();
        let release = self.recorder.release(op, owner);
        match guard.release().await {
            Ok(answer) => self.recorder.ok(release, answer),
            Err(error) => self.recorder.unknown(release, error),
        }
        Ok(counted)
    }

    /// What somebody does who believes in a lock that is none.
    async fn add_one_without_lock(
        &self,
        owner: &str,
        random: &mut Random,
    ) -> Result<bool, Failure> {
        let op = self.recorder.acquire(&self.name, owner, Mode::Exclusive);
        let now = Moment::now();
        let token = Token::new(now.as_nanos());
        self.recorder
            .granted(op, token, now + Duration::from_secs(1));
        let counted = self.change(token, random).await?;
        let release = self.recorder.release(op, owner);
        self.recorder.ok(release, Answer::Released);
        Ok(counted)
    }

    async fn change(&self, token: Token, random: &mut Random) -> Result<bool, Failure> {
        let resource = self.resource.clone();
        // A thread of its own: a process that is stopped with the file locked blocks it.
        let base = tokio::task::spawn_blocking(move || resource.read(token)).await??;
        let Some(base) = base else {
            return Ok(false);
        };
        // Some think longer, so that a fault finds a holder.
        let longest = match random.chance(0.1) {
            true => Duration::from_millis(40),
            false => Duration::from_millis(2),
        };
        tokio::time::sleep(random.between(Duration::ZERO, longest)).await;
        let op = self.recorder.invoke(Call::Write {
            resource: self.resource.name(),
            token: token.get(),
            base,
            value: base + 1,
        });
        let resource = self.resource.clone();
        let fenced = self.lock.is_fenced();
        let write = move || match fenced {
            true => resource.write(token, base, base + 1),
            false => resource.write_unfenced(token, base, base + 1),
        };
        let answer = tokio::task::spawn_blocking(write).await??;
        let accepted = matches!(answer, Answer::Accepted { .. });
        self.recorder.ok(op, answer);
        Ok(accepted)
    }
}
