//! One task of a runtime that reads several lanes.
//!
//! The nodes of a quorum answer at about the same time. With a task for each lane, a runtime that finds several of them with
//! something to do wakes a second thread for the others, and that costs more than to read all the answers. So they are read
//! one after the other: code that blocks in what an answer has it do, such as a subscriber of `tracing`, keeps back all
//! lanes of the runtime.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::{Handle, Id};

type Reader = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What reads the lanes of one store: a task for each runtime that has some.
#[derive(Default)]
pub(in crate::store) struct Readers(Mutex<Vec<(Id, Arc<Desk>)>>);

/// Where the task of one runtime gets its lanes.
#[derive(Default)]
struct Desk(Mutex<Inbox>);

#[derive(Default)]
struct Inbox {
    new: Vec<Reader>,
    task: Task,
}

#[derive(Default)]
enum Task {
    #[default]
    None,
    /// Not polled yet: it will see what is there.
    Begun,
    Runs(Waker),
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Readers")
    }
}

impl Readers {
    /// Has the runtime drive a reader until that ends.
    pub fn add(&self, runtime: &Handle, reader: impl Future<Output = ()> + Send + 'static) {
        let desk = self.desk(runtime.id());
        let mut inbox = desk.inbox();
        inbox.new.push(Box::pin(reader));
        match &inbox.task {
            Task::Runs(waker) => waker.wake_by_ref(),
            Task::Begun => {}
            Task::None => {
                inbox.task = Task::Begun;
                drop(inbox);
                runtime.spawn(Reading::at(desk));
            }
        }
    }

    fn desk(&self, runtime: Id) -> Arc<Desk> {
        let mut desks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, desk)) = desks.iter().find(|(id, _)| *id == runtime) {
            return desk.clone();
        }
        let desk = Arc::<Desk>::default();
        desks.push((runtime, desk.clone()));
        desk
    }
}

impl Desk {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task is there.
    #[cfg(test)]
    fn is_manned(&self) -> bool {
        !matches!(self.inbox().task, Task::None)
    }
}

/// The task. Dropped with its runtime, it drops what it reads, and the callers that wait for that are told.
struct Reading {
    desk: Arc<Desk>,
    readers: Vec<(Reader, Arc<Bell>)>,
    done: bool,
}

impl Reading {
    fn at(desk: Arc<Desk>) -> impl Future<Output = ()> + Send {
        let mut reading = Reading {
            desk,
            readers: Vec::new(),
            done: false,
        };
        poll_fn(move |context| reading.poll(context))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut inbox = self.desk.inbox();
            if let Task::Begun = inbox.task {
                inbox.task = Task::Runs(context.waker().clone());
            }
            let new = inbox.new.drain(..);
            self.readers
                .extend(new.map(|reader| (reader, Bell::of(context))));
        }
        self.readers.retain_mut(|(reader, bell)| {
            // Before it is polled: what comes meanwhile rings again.
            if !bell.rung.swap(false, SeqCst) {
                return true;
            }
            let waker = Waker::from(bell.clone());
            let mut context = Context::from_waker(&waker);
            // A panic ends one lane, as if it had a task of its own.
            let poll = || reader.as_mut().poll(&mut context).is_pending();
            catch_unwind(AssertUnwindSafe(poll)).unwrap_or(false)
        });
        let mut inbox = self.desk.inbox();
        match (self.readers.is_empty(), inbox.new.is_empty()) {
            (true, true) => {
                inbox.task = Task::None;
                self.done = true;
                Poll::Ready(())
            }
            // The lane that added it has woken us.
            _ => Poll::Pending,
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.done {
            // Another may be at the desk by now.
            return;
        }
        let mut inbox = self.desk.inbox();
        inbox.task = Task::None;
        let new = std::mem::take(&mut inbox.new);
        // They tell others.
        drop(inbox);
        drop(new);
    }
}

/// Tells the task which lane it is that has something to read.
struct Bell {
    rung: AtomicBool,
    task: Waker,
}

impl Bell {
    /// Rung once: a new reader has to be polled.
    fn of(context: &Context<'_>) -> Arc<Bell> {
        Arc::new(Bell {
            rung: AtomicBool::new(true),
            // A task that was spawned has one for good.
            task: context.waker().clone(),
        })
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, SeqCst) {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use tokio::sync::{mpsc, oneshot};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    /// Counts how often it is polled, and passes on what it is sent.
    async fn counted(reader: impl Future<Output = ()>, polls: Arc<AtomicUsize>) {
        let mut reader = std::pin::pin!(reader);
        poll_fn(|context| {
            polls.fetch_add(1, SeqCst);
            reader.as_mut().poll(context)
        })
        .await;
    }

    #[tokio::test]
    async fn only_those_are_polled_that_have_something_to_read() {
        let (readers, runtime) = (Readers::default(), Handle::current());
        let (told, mut heard) = mpsc::unbounded_channel();
        let mut lanes = Vec::new();
        for number in 0..3 {
            let (send, mut receive) = mpsc::unbounded_channel::<()>();
            let (told, polls) = (told.clone(), Arc::<AtomicUsize>::default());
            let read = async move {
                while receive.recv().await.is_some() {
                    told.send(number).expect("is heard");
                }
                told.send(number + 10).expect("is heard");
            };
            readers.add(&runtime, counted(read, polls.clone()));
            lanes.push((send, polls));
        }
        for _ in 0..100 {
            lanes[1].0.send(()).expect("is read");
            let number = timeout(SOON, heard.recv()).await.expect("it is read");
            assert_eq!(number, Some(1));
        }
        assert!(lanes[1].1.load(SeqCst) >= 100);
        assert_eq!(lanes[0].1.load(SeqCst), 1);
        assert_eq!(lanes[2].1.load(SeqCst), 1);
        // One that ends leaves the others.
        drop(lanes.remove(1));
        assert_eq!(timeout(SOON, heard.recv()).await, Ok(Some(11)));
        lanes[1].0.send(()).expect("is read");
        assert_eq!(timeout(SOON, heard.recv()).await, Ok(Some(2)));
        assert!(readers.desk(runtime.id()).is_manned());
    }

    #[tokio::test]
    async fn the_task_ends_with_the_last_and_begins_anew() {
        let (readers, runtime) = (Readers::default(), Handle::current());
        let desk = readers.desk(runtime.id());
        for _ in 0..1000 {
            let (told, heard) = oneshot::channel();
            readers.add(&runtime, async move {
                told.send(()).expect("is heard");
            });
            timeout(SOON, heard).await.expect("in time").expect("read");
        }
        let ends = async {
            while desk.is_manned() {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, ends).await.expect("it ends");
    }

    /// None is lost between the last reader's end and the task's.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn those_that_come_while_the_last_one_ends_are_read() {
        let readers = Arc::<Readers>::default();
        let add = |readers: Arc<Readers>, runtime: Handle| {
            for round in 0..20_000 {
                let (told, heard) = std::sync::mpsc::channel();
                readers.add(&runtime, async move {
                    if round % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    told.send(()).expect("is heard");
                });
                heard.recv_timeout(SOON).expect("it is read");
            }
        };
        let adding: Vec<_> = (0..2)
            .map(|_| {
                let (readers, runtime) = (readers.clone(), Handle::current());
                std::thread::spawn(move || add(readers, runtime))
            })
            .collect();
        let joined = tokio::task::spawn_blocking(|| {
            adding
                .into_iter()
                .for_each(|thread| thread.join().expect("all are read"));
        });
        joined.await.expect("all are read");
    }

    #[tokio::test]
    async fn a_panic_ends_one_lane() {
        let (readers, runtime) = (Readers::default(), Handle::current());
        let (go, gone) = oneshot::channel::<()>();
        let (told, heard) = oneshot::channel();
        readers.add(&runtime, async move {
            gone.await.expect("told to");
            panic!("as it should");
        });
        let (ask, asked) = oneshot::channel::<()>();
        readers.add(&runtime, async move {
            asked.await.expect("asked");
            told.send(()).expect("is heard");
        });
        go.send(()).expect("it waits");
        tokio::task::yield_now().await;
        ask.send(()).expect("it waits");
        timeout(SOON, heard).await.expect("in time").expect("read");
    }

    /// A caller must not wait for an answer from a runtime that is no more.
    #[test]
    fn lanes_end_with_their_runtime() {
        let readers = Readers::default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .expect("a runtime");
        let handle = runtime.handle().clone();
        let (told, mut heard) = oneshot::channel::<()>();
        let read = async move {
            std::future::pending::<()>().await;
            drop(told);
        };
        readers.add(&handle, read);
        assert!(
            heard
                .try_recv()
                .is_err_and(|e| e == oneshot::error::TryRecvError::Empty)
        );
        drop(runtime);
        assert!(heard.blocking_recv().is_err(), "it is dropped");
        let (told, heard) = oneshot::channel::<()>();
        readers.add(&handle, async move {
            std::future::pending::<()>().await;
            drop(told);
        });
        assert!(heard.blocking_recv().is_err(), "it is not kept");
    }
}
