//! What becomes of a hold: work, re-entry, a downgrade, a release or a drop.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::store::Mode;
use lockkeeper::{Error, Guard, MultiGuard, ReleaseOutcome, Token, WriteGuard};
use lockkeeper_testkit::history::{Answer, Call, Fault};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::taking::Failure;
use tokio::task::JoinHandle;

use super::wish::Wish;
use super::{Mixer, Who};

/// The locks that are taken together.
const SEVERAL: [&str; 2] = ["a", "b"];

impl Mixer {
    /// Does something under a hold, and lets go of it.
    pub async fn hold(
        &self,
        op: u64,
        guard: Guard,
        wish: &Wish,
        who: &Who,
        random: &mut Random,
    ) -> Result<(), Failure> {
        let told = self.watch(op, &guard);
        if random.chance(0.25)
            && let Some(inner) = wish.inner(random)
        {
            let depth = 1 + random.below(2);
            let outer = self.enter_again(&inner, who, depth, guard, random).await;
            let Some(guard) = outer else {
                // Broken: its owner goes on believing.
                tokio::time::sleep(Duration::from_millis(20)).await;
                told.abort();
                let release = self.recorder.release(op, &who.name);
                self.recorder.ok(release, Answer::Released);
                return Ok(());
            };
            return self.finish(op, guard, wish, who, told, random).await;
        }
        self.finish(op, guard, wish, who, told, random).await
    }

    async fn finish(
        &self,
        op: u64,
        guard: Guard,
        wish: &Wish,
        who: &Who,
        told: JoinHandle<()>,
        random: &mut Random,
    ) -> Result<(), Failure> {
        let alone = !matches!(wish.mode, Mode::Read | Mode::Permit { .. });
        match alone && wish.name == "a" {
            true => self.change(guard.token(), random).await?,
            false => think(random).await,
        }
        if self.broken.is_some() && !alone {
            // What should keep others out lasts, so that they show if it does not. One that stands alone would only keep the
            // tasks from it.
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        self.look(op, &guard);
        told.abort();
        if self.told_to_exit.load(SeqCst) {
            self.exit_after_drop(op, guard, who);
        }
        if wish.mode == Mode::Write && random.chance(0.3) {
            return self.downgrade(op, guard, who, random).await;
        }
        self.let_go(op, guard, who, random.chance(0.2)).await;
        Ok(())
    }

    /// The program ends as soon as the guard is dropped. Whatever else it holds goes with it.
    fn exit_after_drop(&self, op: u64, guard: Guard, who: &Who) -> ! {
        self.recorder.release(op, &who.name);
        self.recorder.fault(Fault::Killed {
            process: self.process.clone(),
        });
        drop(guard);
        std::process::exit(0);
    }

    /// Enters again, so many times, and leaves as often. Answers the guard of the first entry; `None` where leaving is
    /// broken and it went with the inner ones.
    async fn enter_again(
        &self,
        wish: &Wish,
        who: &Who,
        times: u64,
        outer: Guard,
        random: &mut Random,
    ) -> Option<Guard> {
        let mut inner = Vec::new();
        for _ in 0..times {
            let op = self.recorder.acquire(wish.name, &who.name, wish.mode);
            match self.try_take(wish, who).await {
                Ok(Some(guard)) => {
                    self.granted(op, &guard);
                    let told = self.watch(op, &guard);
                    inner.push((op, guard, told));
                }
                Ok(None) => self.recorder.ok(op, Answer::Busy),
                Err(error) => self.recorder.error(op, &error),
            }
        }
        think(random).await;
        let entered = !inner.is_empty();
        while let Some((op, guard, told)) = inner.pop() {
            self.look(op, &guard);
            told.abort();
            self.let_go(op, guard, who, false).await;
        }
        match entered && self.is("reentry-off-by-one") {
            true => {
                drop(outer);
                None
            }
            false => Some(outer),
        }
    }

    async fn downgrade(
        &self,
        hold: u64,
        guard: Guard,
        who: &Who,
        random: &mut Random,
    ) -> Result<(), Failure> {
        let op = self.recorder.invoke(Call::Downgrade { hold });
        let writer = WriteGuard::try_from(guard);
        let writer = writer.map_err(|guard| format!("{guard:?} does not write"))?;
        match writer.downgrade().await {
            Ok(reader) => {
                let reader = Guard::from(reader);
                self.granted(op, &reader);
                let told = self.watch(op, &reader);
                think(random).await;
                self.look(op, &reader);
                told.abort();
                self.let_go(op, reader, who, random.chance(0.2)).await;
            }
            // It may have held for reading, for a moment.
            Err(error) => self.recorder.unknown(op, error),
        }
        Ok(())
    }

    /// Releases, or only drops.
    async fn let_go(&self, op: u64, guard: Guard, who: &Who, dropped: bool) {
        let release = self.recorder.release(op, &who.name);
        if dropped {
            drop(guard);
            return self.recorder.unknown(release, "dropped");
        }
        self.let_gone(release, guard.release().await);
    }

    fn let_gone(&self, release: u64, outcome: Result<ReleaseOutcome, Error>) {
        match outcome {
            Ok(ReleaseOutcome::Released) => self.recorder.ok(release, Answer::Released),
            Ok(ReleaseOutcome::StillHeld { depth, .. }) => {
                self.recorder.ok(release, Answer::StillHeld { depth });
            }
            Ok(other) => self.recorder.unknown(release, format!("{other:?}")),
            Err(Error::Lost { .. }) => self.recorder.ok(release, Answer::NotHeld),
            Err(error) => self.recorder.unknown(release, error),
        }
    }

    /// Both of two locks, or neither.
    pub async fn take_several(&self, who: &Who, random: &mut Random) -> Result<(), Failure> {
        if self.is("multi-keeps-a-part") {
            return self.keep_a_part(who).await;
        }
        let ops = self.recorder.acquire_all(&SEVERAL, &who.name);
        let locks = self.keeper.multi_lock(SEVERAL)?.as_owner(&who.owner);
        let taken = match random.chance(0.15) {
            true => locks.try_acquire().await,
            false => locks.acquire_within(self.patience).await,
        };
        let guards = match taken {
            Ok(Some(guards)) => guards,
            Ok(None) => {
                ops.iter()
                    .for_each(|op| self.recorder.ok(*op, Answer::Busy));
                return Ok(());
            }
            Err(error) => {
                ops.iter().for_each(|op| self.recorder.error(*op, &error));
                return Ok(());
            }
        };
        let pairs = || ops.iter().zip(guards.guards());
        pairs().for_each(|(op, guard)| self.granted(*op, guard));
        let told: Vec<_> = pairs().map(|(op, guard)| self.watch(*op, guard)).collect();
        match guards.token("a") {
            Some(token) => self.change(token, random).await?,
            None => think(random).await,
        }
        pairs().for_each(|(op, guard)| self.look(*op, guard));
        told.iter().for_each(JoinHandle::abort);
        self.let_go_of_all(&ops, guards, who).await;
        Ok(())
    }

    async fn let_go_of_all(&self, ops: &[u64], guards: MultiGuard, who: &Who) {
        let releases = ops.iter().map(|op| self.recorder.release(*op, &who.name));
        let releases: Vec<u64> = releases.collect();
        match guards.release().await {
            Ok(outcomes) => {
                for (release, outcome) in releases.into_iter().zip(outcomes) {
                    self.let_gone(release, Ok(outcome));
                }
            }
            // Of one of them; the others are not told.
            Err(error) => {
                for release in releases {
                    self.recorder.unknown(release, &error);
                }
            }
        }
    }

    /// What a program does that forgets what it has when it cannot get the rest. It takes first what few others want, so
    /// that this happens soon.
    async fn keep_a_part(&self, who: &Who) -> Result<(), Failure> {
        let [wanted, other] = SEVERAL;
        let several = [other, wanted];
        let ops = self.recorder.acquire_all(&several, &who.name);
        let mut guards = Vec::new();
        for name in several {
            match self.keeper.lock(name)?.try_acquire().await {
                Ok(Some(guard)) => guards.push(guard),
                _ => {
                    std::mem::forget(guards);
                    ops.iter()
                        .for_each(|op| self.recorder.ok(*op, Answer::Busy));
                    return Ok(());
                }
            }
        }
        for (op, guard) in ops.iter().zip(guards) {
            self.granted(*op, &guard);
            self.let_go(*op, guard, who, false).await;
        }
        Ok(())
    }

    /// Records the loss of a hold, should it come.
    fn watch(&self, op: u64, guard: &Guard) -> JoinHandle<()> {
        let (lost, recorder) = (guard.lost(), self.recorder.clone());
        tokio::spawn(async move {
            lost.await;
            recorder.lost(op);
        })
    }

    /// Adds one to the resource.
    async fn change(&self, token: Token, random: &mut Random) -> Result<(), Failure> {
        let resource = self.resource.clone();
        // A thread of its own: a process that is stopped with the file locked blocks it.
        let base = tokio::task::spawn_blocking(move || resource.read(token)).await??;
        let Some(base) = base else {
            return Ok(());
        };
        think(random).await;
        let op = self.recorder.invoke(Call::Write {
            resource: self.resource.name(),
            token: token.get(),
            base,
            value: base + 1,
        });
        let resource = self.resource.clone();
        let write = move || resource.write(token, base, base + 1);
        let answer = tokio::task::spawn_blocking(write).await??;
        self.recorder.ok(op, answer);
        Ok(())
    }
}

/// Most are quick. Some take longer, so that a fault finds a holder.
async fn think(random: &mut Random) {
    let longest = match random.chance(0.1) {
        true => Duration::from_millis(40),
        false => Duration::from_millis(3),
    };
    tokio::time::sleep(random.between(Duration::ZERO, longest)).await;
}
