//! `lock-taker hold`: one holder that does as it is told.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::Token;
use lockkeeper::clock::Moment;
use lockkeeper::store::Mode;
use lockkeeper_testkit::fenced::FencedFile;
use lockkeeper_testkit::history::{Answer, Call, Recorder};
use lockkeeper_testkit::taking::{AnyGuard, AnyLock, Failure, took_nothing};

use crate::Options;

/// The process, and what it has to do with.
struct Holder {
    name: String,
    owner: String,
    lock: AnyLock,
    patience: Duration,
    resource: Option<FencedFile>,
    recorder: Recorder,
}

/// One hold, and who watches it.
struct Held {
    op: u64,
    guard: Arc<AnyGuard>,
    /// When a look last said yes.
    seen: Arc<AtomicU64>,
    /// Taken again for the same owner.
    inner: Vec<(u64, AnyGuard)>,
}

pub async fn hold(options: &Options) -> Result<(), Failure> {
    let lock = match options.lock().await {
        Ok(lock) => lock,
        Err(failure) => {
            println!("failed {failure}");
            let mut lines = lines();
            while lines.recv().await.is_some() {
                println!("nothing is held");
            }
            return Ok(());
        }
    };
    let holder = Holder {
        name: options.need("name")?.to_owned(),
        owner: options.get("process").unwrap_or("p").to_owned(),
        lock,
        patience: options.patience()?,
        resource: options.resource()?,
        recorder: options.recorder()?,
    };
    let mut base = 0;
    let mut held = holder.acquire().await?;
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        match (line.trim(), &mut held) {
            ("acquire", None) => held = holder.acquire().await?,
            (_, None) => println!("nothing is held"),
            ("is-held", Some(held)) => println!("is-held {}", held.guard.is_held()),
            ("deadline", Some(held)) => println!("deadline {}", held.guard.deadline().as_nanos()),
            ("last-held", Some(held)) => {
                println!("last-held {}", held.seen.load(Ordering::SeqCst));
            }
            ("read", Some(held)) => {
                let token = Token::new(held.guard.token());
                base = holder.resource()?.read(token)?.unwrap_or(base);
                println!("read {base}");
            }
            // As a program does that does not look at its guard.
            ("write", Some(held)) => holder.write(held, base, holder.lock.is_fenced())?,
            ("write-unfenced", Some(held)) => holder.write(held, base, false)?,
            ("again", Some(held)) => holder.again(held).await?,
            ("leave", Some(held)) => {
                let (op, guard) = held.inner.pop().ok_or("it was not taken again")?;
                holder.let_go(op, guard).await;
            }
            ("release", slot) => {
                if let Some(held) = slot.take() {
                    holder.release(held).await;
                }
            }
            (other, _) => println!("unknown {other:?}"),
        }
    }
    if let Some(held) = held {
        holder.release(held).await;
    }
    holder.lock.close().await;
    Ok(())
}

impl Holder {
    async fn acquire(&self) -> Result<Option<Held>, Failure> {
        let recorder = &self.recorder;
        let op = recorder.acquire(&self.name, &self.owner, Mode::Exclusive);
        let guard = match self.lock.acquire(self.patience).await {
            Ok(Some(guard)) => Arc::new(guard),
            Ok(None) => {
                recorder.ok(op, Answer::Busy);
                println!("busy");
                return Ok(None);
            }
            Err(failure) => {
                println!("failed {failure}");
                match took_nothing(&failure) {
                    true => recorder.fail(op, failure),
                    false => recorder.unknown(op, failure),
                }
                return Ok(None);
            }
        };
        let (token, deadline) = (guard.token(), guard.deadline());
        recorder.granted(op, Token::new(token), deadline);
        let seen = watch(guard.clone(), deadline, op, recorder.clone());
        println!("held {token} {}", deadline.as_nanos());
        let (lost, told) = (guard.lost(), recorder.clone());
        tokio::spawn(async move {
            lost.await;
            told.lost(op);
            println!("lost");
        });
        Ok(Some(Held {
            op,
            guard,
            seen,
            inner: Vec::new(),
        }))
    }

    async fn again(&self, held: &mut Held) -> Result<(), Failure> {
        let op = self
            .recorder
            .acquire(&self.name, &self.owner, Mode::Exclusive);
        let Some(guard) = held.guard.again().await? else {
            self.recorder.ok(op, Answer::Busy);
            println!("busy");
            return Ok(());
        };
        let granted = Answer::Granted {
            token: guard.token(),
            deadline: guard.deadline().as_nanos(),
            depth: guard.depth(),
        };
        self.recorder.ok(op, granted);
        println!("again {}", guard.depth());
        held.inner.push((op, guard));
        Ok(())
    }

    async fn release(&self, held: Held) {
        // The watcher ends with its next look; until then it shares the guard.
        drop(held.seen);
        let guard = unshared(held.guard).await;
        self.let_go(held.op, guard).await;
    }

    async fn let_go(&self, op: u64, guard: AnyGuard) {
        let release = self.recorder.release(op, &self.owner);
        match guard.release().await {
            Ok(answer) => {
                match &answer {
                    Answer::Released => println!("released"),
                    Answer::StillHeld { depth } => println!("still-held {depth}"),
                    other => println!("not-held {other:?}"),
                }
                self.recorder.ok(release, answer);
            }
            Err(failure) => {
                println!("release-unknown {failure}");
                self.recorder.unknown(release, failure);
            }
        }
    }

    fn write(&self, held: &Held, base: u64, fenced: bool) -> Result<(), Failure> {
        let resource = self.resource()?;
        let token = held.guard.token();
        let op = self.recorder.invoke(Call::Write {
            resource: resource.name(),
            token,
            base,
            value: base + 1,
        });
        let token = Token::new(token);
        let answer = match fenced {
            true => resource.write(token, base, base + 1)?,
            false => resource.write_unfenced(token, base, base + 1)?,
        };
        match &answer {
            Answer::Accepted { seq } => println!("accepted {seq}"),
            other => println!("refused {other:?}"),
        }
        self.recorder.ok(op, answer);
        Ok(())
    }

    fn resource(&self) -> Result<&FencedFile, Failure> {
        let resource = self.resource.as_ref();
        resource.ok_or_else(|| "there is no --resource".into())
    }
}

async fn unshared(mut guard: Arc<AnyGuard>) -> AnyGuard {
    loop {
        match Arc::try_unwrap(guard) {
            Ok(guard) => return guard,
            Err(shared) => guard = shared,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Looks at the guard all the time, and keeps when a look that said yes was begun. What it says is recorded when
/// it is news: another deadline, or a yes after the last one.
fn watch(
    guard: Arc<AnyGuard>,
    granted_until: Moment,
    op: u64,
    recorder: Recorder,
) -> Arc<AtomicU64> {
    // The first look is done before anybody knows of the hold, and can stop this process.
    let now = Moment::now();
    let first = if guard.is_held() { now.as_nanos() } else { 0 };
    let mut told = granted_until;
    let last = Arc::new(AtomicU64::new(first));
    let seen = Arc::downgrade(&last);
    std::thread::spawn(move || {
        while let Some(seen) = seen.upgrade() {
            let now = Moment::now();
            let deadline = guard.deadline();
            if guard.is_held() {
                seen.store(now.as_nanos(), Ordering::SeqCst);
                if now > told || deadline > told + Duration::from_millis(1) {
                    recorder.look(op, now, deadline);
                    told = told.max(deadline);
                }
            }
            drop(seen);
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    last
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
