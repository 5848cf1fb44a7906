//! A process that takes locks, for tests to kill and to stop.
//!
//! ```text
//! lock-taker hold  --store URL --name N --lease D [--resource FILE]
//! lock-taker count --store URL --name N --lease D --resource FILE --history FILE --process ID
//!                  --tasks N (--for D | --rounds N) [--seed N] [--broken no-lock]
//! ```
//!
//! `hold` waits for the lock, prints `held <token> <deadline ns>` and obeys lines on its standard input:
//! `is-held`, `last-held` (when a look at the guard last said yes, in ns), `read` the resource, `write` one more
//! than was read, `write-unfenced` (without the resource's look at the token), `release`. It prints `lost` when
//! the lock is. The end of input releases as well.
//!
//! `count` has tasks that add one to the resource under the lock, again and again, and writes a history. With
//! `--broken no-lock` each believes that it holds whenever it likes: what the tests have to notice.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::Mode;
use lockkeeper::{Guard, Lock, Lockkeeper, ReleaseOutcome, Token};
use lockkeeper_testkit::fenced::FencedFile;
use lockkeeper_testkit::history::{Answer, Call, Recorder};
use lockkeeper_testkit::options::Options;
use lockkeeper_testkit::random::Random;

type Failure = lockkeeper_testkit::options::Failure;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let options = Options::read(arguments)?;
    match command.as_str() {
        "hold" => hold(&options).await,
        "count" => count(&options).await,
        other => Err(format!("{other:?} is neither hold nor count").into()),
    }
}

async fn lock(options: &Options) -> Result<(Lockkeeper, Lock), Failure> {
    let lease = lockkeeper::duration::parse(options.need("lease")?)?;
    let builder = Lockkeeper::builder().url(options.need("store")?);
    let keeper = builder.lease(lease).connect().await?;
    let lock = keeper.lock(options.need("name")?)?;
    Ok((keeper, lock))
}

async fn hold(options: &Options) -> Result<(), Failure> {
    let (keeper, lock) = lock(options).await?;
    let resource = options
        .get("resource")
        .map(|path| FencedFile::open(Path::new(path)));
    let resource = resource.transpose()?;
    let guard = Arc::new(lock.acquire().await?);
    println!("held {} {}", guard.token(), guard.deadline().as_nanos());
    let lost = guard.lost();
    tokio::spawn(async move {
        lost.await;
        println!("lost");
    });
    let last_held = watch(guard.clone());
    let mut base = 0;
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        match line.trim() {
            "is-held" => println!("is-held {}", guard.is_held()),
            "last-held" => println!("last-held {}", last_held.load(Ordering::SeqCst)),
            "read" => {
                base = need(&resource)?.read(guard.token())?.unwrap_or(base);
                println!("read {base}");
            }
            // As a program does that does not look at its guard.
            "write" => report(need(&resource)?.write(guard.token(), base, base + 1)?),
            "write-unfenced" => {
                let answer = need(&resource)?.write_unfenced(guard.token(), base, base + 1)?;
                report(answer);
            }
            "release" => break,
            other => println!("unknown {other:?}"),
        }
    }
    // The watcher ends with its next look; until then it shares the guard.
    drop(last_held);
    let guard = unshared(guard).await;
    match guard.release().await? {
        ReleaseOutcome::Released => println!("released"),
        other => println!("not-held {other:?}"),
    }
    keeper.close().await;
    Ok(())
}

async fn unshared(mut guard: Arc<Guard>) -> Guard {
    loop {
        match Arc::try_unwrap(guard) {
            Ok(guard) => return guard,
            Err(shared) => guard = shared,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Looks at the guard all the time, and keeps when a look that said yes was begun.
fn watch(guard: Arc<Guard>) -> Arc<AtomicU64> {
    let last = Arc::new(AtomicU64::new(0));
    let seen = Arc::downgrade(&last);
    std::thread::spawn(move || {
        while let Some(seen) = seen.upgrade() {
            let now = Moment::now();
            if guard.is_held() {
                seen.store(now.as_nanos(), Ordering::SeqCst);
            }
            drop(seen);
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    last
}

fn need(resource: &Option<FencedFile>) -> Result<&FencedFile, Failure> {
    let resource = resource.as_ref();
    resource.ok_or_else(|| "there is no --resource".into())
}

fn report(answer: Answer) {
    match answer {
        Answer::Accepted { seq } => println!("accepted {seq}"),
        other => println!("refused {other:?}"),
    }
}

/// Standard input, line by line.
fn lines() -> tokio::sync::mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// What the tasks of `count` share.
struct Counter {
    process: String,
    lock: Lock,
    resource: FencedFile,
    recorder: Recorder,
    end: Moment,
    rounds: u64,
    seed: u64,
    lockless: bool,
}

async fn count(options: &Options) -> Result<(), Failure> {
    let (keeper, lock) = lock(options).await?;
    let process = options.need("process")?.to_owned();
    let time = options.get("for").map(lockkeeper::duration::parse);
    let counter = Arc::new(Counter {
        lock,
        resource: FencedFile::open(Path::new(options.need("resource")?))?,
        recorder: Recorder::to_file(&process, Path::new(options.need("history")?))?,
        end: time
            .transpose()?
            .map_or(Moment::NEVER, |d| Moment::now() + d),
        rounds: options.number("rounds", u64::MAX)?,
        seed: options.number("seed", 0)?,
        lockless: options.get("broken") == Some("no-lock"),
        process,
    });
    let tasks: u64 = options.number("tasks", 1)?;
    let tasks: Vec<_> = (0..tasks)
        .map(|number| tokio::spawn(counter.clone().work(number)))
        .collect();
    println!("counting");
    for task in tasks {
        task.await??;
    }
    keeper.close().await;
    println!("done");
    Ok(())
}

impl Counter {
    async fn work(self: Arc<Self>, number: u64) -> Result<(), Failure> {
        let owner = format!("{}.{number}", self.process);
        let mut random = Random::seeded(self.seed.wrapping_add(number));
        let mut done = 0;
        while done < self.rounds && Moment::now() < self.end {
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
        let name = self.lock.name().as_str();
        let op = self.recorder.acquire(name, owner, Mode::Exclusive);
        let guard = match self.lock.acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                self.recorder.unknown(op, error);
                return Ok(false);
            }
        };
        self.recorder.granted(op, guard.token(), guard.deadline());
        let counted = self.change(guard.token(), random).await?;
        let release = self.recorder.release(op, owner);
        match guard.release().await {
            Ok(ReleaseOutcome::Released) => self.recorder.ok(release, Answer::Released),
            Ok(ReleaseOutcome::NotHeld { .. }) => self.recorder.ok(release, Answer::NotHeld),
            Ok(other) => self.recorder.unknown(release, format!("{other:?}")),
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
        let name = self.lock.name().as_str();
        let op = self.recorder.acquire(name, owner, Mode::Exclusive);
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
        // A thread of its own: whoever is stopped with the file locked blocks it.
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
        let write = move || resource.write(token, base, base + 1);
        let answer = tokio::task::spawn_blocking(write).await??;
        let accepted = matches!(answer, Answer::Accepted { .. });
        self.recorder.ok(op, answer);
        Ok(accepted)
    }
}
