//! `lock-taker mix`: load in every mode that the store has, and its history. `lock-taker visit`: one hold, dropped at the end
//! of the program.
//!
//! What is done is drawn by chance; see [`wish`]. [`hold`] has what becomes of a hold, `latch` the count-downs.

mod hold;
mod latch;
mod wish;

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::Store;
use lockkeeper::store::sqlite::SqliteStore;
use lockkeeper::{Guard, Lockkeeper, Owner};
use lockkeeper_testkit::fenced::FencedFile;
use lockkeeper_testkit::history::{Answer, Recorder};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::taking::Failure;
use lockkeeper_testkit::wrappers::{Sabotage, Sabotaged};

use crate::Options;
use wish::Wish;

/// What the tasks of `mix` share.
struct Mixer {
    process: String,
    keeper: Lockkeeper,
    patience: Duration,
    resource: FencedFile,
    recorder: Recorder,
    seed: u64,
    broken: Option<String>,
    told_to_stop: AtomicBool,
    told_to_exit: AtomicBool,
}

/// The one that does something: the name in the history, and the owner in the library.
struct Who {
    name: String,
    owner: Owner,
}

pub async fn mix(options: &Options) -> Result<(), Failure> {
    let mixer = Arc::new(Mixer::open(options).await?);
    let tasks: u64 = options.number("tasks", 1)?;
    let tasks: Vec<_> = (0..tasks)
        .map(|number| tokio::spawn(mixer.clone().work(number)))
        .collect();
    obey(mixer.clone());
    println!("mixing");
    for task in tasks {
        task.await??;
    }
    mixer.keeper.close().await;
    println!("done");
    Ok(())
}

/// Takes a lock, drops its guard, and leaves the rest to the end of the program.
pub async fn visit(options: &Options) -> Result<(), Failure> {
    let mixer = Mixer::open(options).await?;
    let who = mixer.who(0, 0);
    let mut random = Random::seeded(mixer.seed);
    let wish = Wish::draw_lasting(&mut random, mixer.keeper.capabilities());
    let op = mixer.recorder.acquire(wish.name, &who.name, wish.mode);
    match mixer.try_take(&wish, &who).await {
        Ok(Some(guard)) => {
            mixer.granted(op, &guard);
            tokio::time::sleep(random.between(Duration::ZERO, Duration::from_millis(5))).await;
            println!("visited");
            let release = mixer.recorder.release(op, &who.name);
            mixer.recorder.ok(release, Answer::Dropped);
            drop(guard);
        }
        Ok(None) => mixer.recorder.ok(op, Answer::Busy),
        Err(error) => mixer.recorder.error(op, &error),
    }
    Ok(())
}

impl Mixer {
    async fn open(options: &Options) -> Result<Mixer, Failure> {
        let url = options.need("store")?;
        let lease = options.duration("lease")?.ok_or("--lease is missing")?;
        let broken = options.get("broken").map(str::to_owned);
        let builder = Lockkeeper::builder().lease(lease);
        let builder = match broken.as_deref().and_then(Sabotage::named) {
            Some(sabotage) => {
                let path = url.strip_prefix("sqlite:").ok_or("only sqlite is broken")?;
                let inner: Arc<dyn Store> = Arc::new(SqliteStore::open(Path::new(path))?);
                builder.store(Sabotaged::new(inner, sabotage))
            }
            None => builder.url(url),
        };
        Ok(Mixer {
            process: options.need("process")?.to_owned(),
            keeper: builder.connect().await?,
            patience: options.patience()?,
            resource: options.resource()?.ok_or("--resource is missing")?,
            recorder: options.recorder()?,
            seed: options.number("seed", 0)?,
            broken,
            told_to_stop: AtomicBool::new(false),
            told_to_exit: AtomicBool::new(false),
        })
    }

    fn who(&self, number: u64, turn: u64) -> Who {
        Who {
            name: format!("{}.{number}.{turn}", self.process),
            owner: Owner::new(),
        }
    }

    fn is(&self, mistake: &str) -> bool {
        self.broken.as_deref() == Some(mistake)
    }

    async fn work(self: Arc<Self>, number: u64) -> Result<(), Failure> {
        let mut random = Random::seeded(self.seed.wrapping_mul(31).wrapping_add(number));
        let mut turn = 0;
        while !self.told_to_stop.load(SeqCst) {
            // An owner for each turn, also by name: the last one's guard may still be on its way out.
            turn += 1;
            let who = self.who(number, turn);
            let can = self.keeper.capabilities();
            // One task of each process keeps a line going, so that its order can be seen.
            let wish = match number == 0 && can.fair && random.chance(0.7) {
                true => Some(Wish::in_line()),
                false => Wish::draw(&mut random, can),
            };
            match wish {
                Some(wish) => self.take_one(&wish, &who, &mut random).await?,
                None => self.take_several(&who, &mut random).await?,
            }
            let longest = Duration::from_millis(if number == 0 { 5 } else { 25 });
            tokio::time::sleep(random.between(Duration::ZERO, longest)).await;
        }
        Ok(())
    }

    async fn take_one(&self, wish: &Wish, who: &Who, random: &mut Random) -> Result<(), Failure> {
        let op = self.recorder.acquire(wish.name, &who.name, wish.mode);
        let taken = match wish.cancelled {
            None => self.try_take(wish, who).await,
            Some(after) => match tokio::time::timeout(after, self.try_take(wish, who)).await {
                Ok(taken) => taken,
                Err(_) => {
                    // A future that is dropped leaves nothing behind.
                    self.recorder.fail(op, "cancelled");
                    return Ok(());
                }
            },
        };
        match taken {
            Ok(Some(guard)) => {
                self.granted(op, &guard);
                return self.hold(op, guard, wish, who, random).await;
            }
            Ok(None) => self.recorder.ok(op, Answer::Busy),
            Err(error) => self.recorder.error(op, &error),
        }
        Ok(())
    }

    fn granted(&self, op: u64, guard: &Guard) {
        let granted = Answer::Granted {
            token: guard.token().get(),
            deadline: guard.deadline().as_nanos(),
            depth: guard.depth(),
        };
        self.recorder.ok(op, granted);
    }

    /// Records what a guard says of itself, if it says yes.
    fn look(&self, op: u64, guard: &Guard) {
        let asked = Moment::now();
        if guard.is_held() {
            self.recorder.look(op, asked, guard.deadline());
        }
    }
}

/// Obeys lines on the standard input: `stop`, `exit` right after the next guard is dropped, `latch NAME COUNT`.
fn obey(mixer: Arc<Mixer>) {
    let runtime = tokio::runtime::Handle::current();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["stop"] => mixer.told_to_stop.store(true, SeqCst),
                ["exit"] => mixer.told_to_exit.store(true, SeqCst),
                ["latch", name, count] => {
                    let count = count.parse().unwrap_or(0);
                    runtime.spawn(mixer.clone().count_down(name.to_owned(), count));
                }
                _ => println!("unknown {line:?}"),
            }
        }
    });
}
