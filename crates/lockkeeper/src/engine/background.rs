//! The keeper's own thread. It runs what must go on when the caller's runtime is blocked, or there is none: renewals, waiting in the
//! store's queue, releases of dropped guards, and timers.

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
use crate::under_way::UnderWay;

/// Timers stop while the machine is suspended, so the clock is read again after at most this long.
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

/// Spawns futures on the keeper's thread. Futures that are left when the thread ends are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Spawner {
    handle: Handle,
    pending: Arc<Pending>,
}

/// How long the end of a program waits at most: for the thread, which an observer may block, and for requests on their way to the
/// store, from when they were sent.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The tasks that closing, and the end of a program, wait for.
#[derive(Debug, Default)]
struct Pending {
    state: Mutex<PendingTasks>,
    /// Wakes waiting threads when a task has ended.
    ended: Condvar,
    /// Wakes waiting tasks when none is left.
    done: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct PendingTasks {
    pub clean_ups: UnderWay,
    contenders: usize,
    /// How many threads wait for `ended`.
    blocked: usize,
}

impl PendingTasks {
    pub fn is_empty(&self) -> bool {
        self.clean_ups.is_empty() && self.contenders == 0
    }
}

/// What a pending task does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PendingKind {
    /// It waits in the store's queue, for tasks of this process.
    Contender,
    /// It releases or withdraws a claim, or reports a loss.
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

    /// Blocks until `done` holds, but not past a moment.
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

/// A task that is pending until this is dropped.
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
    /// The clean-up that runs. One that it begins itself is part of it, so that a thread which waits for the first waits for both.
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
        // The runtime is made after the thread: if the thread cannot start, no runtime has to be dropped inside a task.
        let thread = std::thread::Builder::new()
            .name("lockkeeper".into())
            .spawn(move || {
                if let Ok(runtime) = take.recv() {
                    let _ = runtime.block_on(stopped);
                    // Drops its tasks, and the references that they have.
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
        // This cannot fail: the thread waits for it.
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

    /// Ends the thread, and waits until it has ended unless it is the calling one.
    pub fn end(&mut self) {
        drop(self.stop.take());
        if !self.is_here() {
            let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = ended.recv_timeout(END_TIMEOUT);
        }
    }

    /// Runs a future on the keeper's thread.
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

    /// Spawns futures on the thread, without keeping it.
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

    /// Blocks until `done` holds, but not past a moment.
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

    /// Runs a future on the keeper's thread and waits for it, from any executor.
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
            // The destructors of a thread cannot set timers.
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
    /// Runs a future on the keeper's thread that [`Background::cleaned_up`] waits for. Returns its number if it is a clean-up.
    pub fn spawn_pending(
        &self,
        what: PendingKind,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> u64 {
        let current = CURRENT.try_with(Arc::clone).ok().filter(|current| {
            matches!(
                (what, current.what),
                (PendingKind::CleanUp, PendingKind::CleanUp)
            ) && Arc::ptr_eq(&current.pending, &self.pending)
        });
        let task = current.unwrap_or_else(|| Arc::new(self.pending.begin(what)));
        let number = task.number;
        self.handle.spawn(CURRENT.scope(task, future));
        number
    }
}

/// Runs a future on the calling thread until it is done. It needs no runtime, since the keeper's drives the timers.
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
    // Inside a task that has used up its budget, tokio's primitives stay pending until the task yields, which it cannot do here.
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}
