//! A thread of the keeper's own, for everything that must go on when the caller's runtime is blocked or
//! there is none: renewals, waiting in the store's queue, releases of dropped guards, and timers.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::Error;
use crate::clock::Moment;
use crate::store::caller::apart;

/// After a suspend, timers are late by as long as it took: no sleep is longer than this without a look at
/// the clock.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Runs futures on the keeper's thread. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Background {
    handle: Handle,
    pending: Arc<Pending>,
    stop: Option<oneshot::Sender<()>>,
    /// Closed when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    thread: ThreadId,
}

/// How long the end of a program waits at most: for the thread, which an observer may block, and for what is on its way
/// to the store, from when it was sent.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// What closing, and the end of a program, wait for.
#[derive(Debug, Default)]
struct Pending {
    state: Mutex<Counts>,
    /// Some kind of them has ended: for threads and for tasks.
    ended: Condvar,
    done: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    /// By [`Pends`].
    counts: [usize; 2],
    /// When a user last left something behind.
    newest: Option<Instant>,
}

/// What the keeper's thread does that is to be done before it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pends {
    /// Waits in the store's queue, for tasks of this process.
    Contender,
    /// Takes back what nobody wants any more.
    CleanUp,
}

impl Pending {
    fn state(&self) -> MutexGuard<'_, Counts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until none of these is left, or it is long ago that a user left one behind.
    fn settle(&self, what: &[Pends]) {
        let mut state = self.state();
        while what.iter().any(|what| state.counts[*what as usize] > 0) {
            let newest = state.newest.map_or(END_PATIENCE, |newest| newest.elapsed());
            let left = END_PATIENCE.saturating_sub(newest);
            if left.is_zero() {
                return;
            }
            let waited = self.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Something that is not done yet.
struct Undone(Arc<Pending>, Pends);

impl Drop for Undone {
    fn drop(&mut self) {
        let Undone(pending, what) = self;
        let mut state = pending.state();
        state.counts[*what as usize] -= 1;
        let none_left = state.counts[*what as usize] == 0;
        drop(state);
        if none_left {
            pending.ended.notify_all();
            pending.done.notify_waiters();
        }
    }
}

impl Background {
    pub fn start() -> Result<Background, Error> {
        let failed = |e: std::io::Error| Error::Refused {
            store: "lock",
            reason: format!("its background thread cannot start: {e}"),
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
            handle,
            pending: Arc::default(),
            stop: Some(stop),
            ended: Mutex::new(ended),
            thread: thread.thread().id(),
        })
    }

    /// Ends the thread and waits for that, unless it is this one.
    pub fn end(&mut self) {
        drop(self.stop.take());
        if std::thread::current().id() != self.thread {
            let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = ended.recv_timeout(END_PATIENCE);
        }
    }

    /// Runs a future there.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(future);
    }

    /// Runs a future there that [`Background::cleaned_up`] waits for.
    pub fn spawn_pending(&self, what: Pends, future: impl Future<Output = ()> + Send + 'static) {
        self.pending.state().counts[what as usize] += 1;
        let undone = Undone(self.pending.clone(), what);
        self.handle.spawn(async move {
            let _undone = undone;
            future.await;
        });
    }

    /// A user leaves something behind.
    pub fn left_behind(&self) {
        self.pending.state().newest = Some(Instant::now());
    }

    /// Blocks until none of these is left, for at most a second after a user left something behind. Does nothing on the
    /// keeper's own thread, which would wait for itself.
    pub fn settle(&self, what: &[Pends]) {
        if std::thread::current().id() != self.thread {
            self.pending.settle(what);
        }
    }

    /// Waits until no clean-up is under way, nor any contender.
    pub async fn cleaned_up(&self) {
        loop {
            let done = self.pending.done.notified();
            if self.pending.state().counts == [0, 0] {
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
        let task = self.handle.spawn(future);
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
        let _context = self.handle.enter();
        tokio::time::sleep(d)
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
