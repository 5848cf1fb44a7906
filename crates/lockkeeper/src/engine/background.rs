//! A thread of the keeper's own, for everything that must go on when the caller's runtime is blocked or
//! there is none: renewals, waiting in the store's queue, releases of dropped guards, and timers.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::Error;
use crate::clock::Moment;
use crate::store::caller::apart;
use crate::under_way::UnderWay;

/// After a suspend, timers are late by as long as it took: no sleep is longer than this without a look at
/// the clock.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Runs futures on the keeper's thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Background {
    spawner: Spawner,
    stop: Option<oneshot::Sender<()>>,
    /// Closed when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: ThreadId,
}

/// Runs futures on the keeper's thread as long as that runs, and drops them after that.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    handle: Handle,
    pending: Arc<Pending>,
}

/// How long the end of a program waits at most: for the thread, which an observer may block, and for what is on its way
/// to the store, from when it was sent.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// What closing, and the end of a program, wait for.
#[derive(Debug, Default)]
struct Pending {
    state: Mutex<PendingTasks>,
    /// One of them has ended, for the threads that wait.
    ended: Condvar,
    /// None of them is left, for tasks.
    done: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct PendingTasks {
    pub clean_ups: UnderWay,
    contenders: usize,
    /// How many threads wait.
    blocked: usize,
}

impl PendingTasks {
    pub fn is_empty(&self) -> bool {
        self.clean_ups.is_empty() && self.contenders == 0
    }
}

/// What the keeper's thread does that is to be done before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PendingKind {
    /// Waits in the store's queue, for tasks of this process.
    Contender,
    /// Takes back what nobody wants any more, or tells a loss.
    CleanUp,
}

impl Pending {
    fn state(&self) -> MutexGuard<'_, PendingTasks> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>, what: PendingKind) -> PendingTask {
        let mut state = self.state();
        let number = match what {
            PendingKind::CleanUp => state.clean_ups.begin(),
            PendingKind::Contender => {
                state.contenders += 1;
                0
            }
        };
        PendingTask {
            pending: self.clone(),
            what,
            number,
        }
    }

    /// Blocks until this is so, but not past a moment.
    fn wait_for(&self, until: Moment, done: impl Fn(&PendingTasks) -> bool) {
        let mut state = self.state();
        state.blocked += 1;
        while !done(&state) && !until.remaining().is_zero() {
            let waited = self.ended.wait_timeout(state, until.remaining());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.blocked -= 1;
    }
}

/// Something that is not done yet.
struct PendingTask {
    pending: Arc<Pending>,
    what: PendingKind,
    number: u64,
}

impl Drop for PendingTask {
    fn drop(&mut self) {
        let mut state = self.pending.state();
        match self.what {
            PendingKind::CleanUp => state.clean_ups.end(self.number),
            PendingKind::Contender => state.contenders -= 1,
        }
        let (waited_for, none_left) = (state.blocked > 0, state.is_empty());
        drop(state);
        if waited_for {
            self.pending.ended.notify_all();
        }
        if none_left {
            self.pending.done.notify_waiters();
        }
    }
}

tokio::task_local! {
    /// The clean-up that runs. One that failed is followed by another, which is part of it: a thread that waits for the
    /// first waits for that too.
    static CURRENT: Arc<PendingTask>;
}

impl Background {
    pub fn start() -> Result<Background, Error> {
        let failed = |e: std::io::Error| {
            Error::refused("lock", format!("its background thread cannot start: {e}")).caused_by(e)
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (give, take) = mpsc::channel::<Runtime>();
        let (end, ended) = mpsc::channel();
        // Before there is a runtime: one must not be dropped by a task, as it would be if this failed.
        let thread = std::thread::Builder::new()
            .name("lockkeeper".into())
            .spawn(move || {
                if let Ok(runtime) = take.recv() {
                    let _ = runtime.block_on(stopped);
                    // With its tasks, and what they kept.
                    drop(runtime);
                }
                drop(end);
            })
            .map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        // It is received: the thread waits for nothing else.
        let _ = give.send(runtime);
        Ok(Background {
            spawner: Spawner {
                handle,
                pending: Arc::default(),
            },
            stop: Some(stop),
            ended: Mutex::new(ended),
            thread: thread.thread().id(),
        })
    }

    /// Ends the thread and waits for that, unless it is this one.
    pub fn end(&mut self) {
        drop(self.stop.take());
        if !self.is_here() {
            let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = ended.recv_timeout(END_TIMEOUT);
        }
    }

    /// Runs a future there.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.spawner.handle.spawn(future);
    }

    /// As [`Spawner::spawn_pending`].
    pub fn spawn_pending(
        &self,
        what: PendingKind,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> u64 {
        self.spawner.spawn_pending(what, future)
    }

    /// What runs futures there, for those who do not keep the thread.
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    fn pending(&self) -> &Arc<Pending> {
        &self.spawner.pending
    }

    /// The number of the last clean-up that began.
    pub fn last_clean_up(&self) -> u64 {
        self.pending().state().clean_ups.last_begun()
    }

    /// Whether this is the keeper's own thread, which must not wait for itself.
    pub fn is_here(&self) -> bool {
        std::thread::current().id() == self.thread
    }

    /// Blocks until this is so, but not past a moment.
    pub fn wait_for(&self, until: Moment, done: impl Fn(&PendingTasks) -> bool) {
        self.pending().wait_for(until, done);
    }

    /// Waits until no clean-up is under way, nor any contender.
    pub async fn cleaned_up(&self) {
        loop {
            let done = self.pending().done.notified();
            if self.pending().state().is_empty() {
                return;
            }
            done.await;
        }
    }

    /// Runs a future there and waits for it from anywhere.
    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let task = self.spawner.handle.spawn(future);
        task.await.map_err(|_| Error::Closed)
    }

    /// Sleeps until a moment. The timer is the keeper's own, so this works under any executor.
    pub async fn sleep_until(&self, moment: Moment) {
        loop {
            let left = moment.remaining();
            if left.is_zero() {
                return;
            }
            // In the destructors of a thread there are no timers; what goes on elsewhere sets them there.
            if Handle::try_current().is_err_and(|e| e.is_thread_local_destroyed()) {
                tokio::task::yield_now().await;
                continue;
            }
            self.sleep(left.min(LONGEST_SLEEP)).await;
        }
    }

    fn sleep(&self, d: Duration) -> tokio::time::Sleep {
        let _context = self.spawner.handle.enter();
        tokio::time::sleep(d)
    }
}

impl Spawner {
    /// Runs a future there that [`Background::cleaned_up`] waits for. Returns the number of a clean-up.
    pub fn spawn_pending(
        &self,
        what: PendingKind,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> u64 {
        let current = CURRENT.try_with(Arc::clone).ok().filter(|current| {
            matches!((what, current.what), (PendingKind::CleanUp, PendingKind::CleanUp))
                && Arc::ptr_eq(&current.pending, &self.pending)
        });
        let task = current.unwrap_or_else(|| Arc::new(self.pending.begin(what)));
        let number = task.number;
        self.handle.spawn(CURRENT.scope(task, future));
        number
    }
}

/// Runs a future on the calling thread until it is done, under no runtime: the keeper's own drives timers.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local!(static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current()))));
    let waker = WAKER.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    // Inside a task that used up its budget, tokio's primitives would be pending until the task yields, which
    // it cannot do here.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        // The runtime that this thread may belong to does not go on meanwhile.
        if let Poll::Ready(output) = apart(|| future.as_mut().poll(&mut context)) {
            return output;
        }
        std::thread::park();
    }
}
