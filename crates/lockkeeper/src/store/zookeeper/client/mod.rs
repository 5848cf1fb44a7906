//! A small client of ZooKeeper's: one session, over one connection at a time.
//!
//! Nothing is queued while there is no connection: a request that cannot be written now fails with [`Failure::NotSent`],
//! and nothing of it can happen later. What was written and not answered is [`Failure::InDoubt`]. Requests that are sent
//! together are answered in their order, by one server, within one session.
//!
//! `jute` is the encoding, `wire` has requests and answers, `link` makes a connection, `session` drives it, `heard` says
//! what the leader knows of the session.

mod heard;
mod jute;
mod link;
mod session;
pub mod wire;

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

pub use self::link::Way;
use self::session::Driver;
use self::wire::{Answer, Code, Request, Seen};
use crate::Error;
use crate::clock::Moment;

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing was sent, and nothing will be.
    NotSent(String),
    /// It was sent, and may have been done.
    InDoubt(String),
    /// It was not sent, as its time had passed.
    TooLate,
}

/// The answers to requests that were sent together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replies {
    /// The session that they belong to.
    pub session: i64,
    /// When they were sent.
    pub sent: Moment,
    /// One for each request.
    pub answers: Vec<Result<Answer, Code>>,
}

/// What happens to a session that nobody asked about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A watch saw something.
    Seen(Seen),
    /// A connection is there again. Watches that were set before are lost.
    Connected {
        /// Whether the session is another one: what belonged to the one before is gone.
        renewed: bool,
    },
    /// The connection was lost.
    Lost,
}

/// Requests that go out together, and where their answers go.
struct Batch {
    requests: Vec<Request>,
    not_after: Moment,
    /// Whether its answer is to say until when the session lives.
    proves: bool,
    answer: oneshot::Sender<Result<Replies, Failure>>,
}

/// How the session is.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Whether there is a connection.
    pub connected: bool,
    /// Its number, or 0 before the first.
    pub session: i64,
    /// After this long without a word from us, the servers end it.
    pub timeout: Duration,
    /// Why there is no connection.
    pub trouble: String,
}

#[derive(Debug)]
struct Shared {
    way: Mutex<Option<mpsc::UnboundedSender<Batch>>>,
    standing: watch::Sender<Standing>,
    last_zxid: AtomicI64,
    /// The socket of the connection that there is, if what is written to it is not encrypted.
    socket: Mutex<Option<Farewell>>,
    /// A part of a frame may have been written.
    half_written: AtomicBool,
}

/// Ends the session of a client whose task was dropped with its runtime.
#[derive(Debug)]
struct Farewell {
    socket: std::net::TcpStream,
    /// A fork of the process shares the socket, and not the session.
    process: u32,
}

/// Ends the session with the last client.
#[derive(Debug)]
struct End {
    sender: Option<oneshot::Sender<()>>,
    shared: Arc<Shared>,
}

impl Drop for End {
    fn drop(&mut self) {
        let sender = self.sender.take();
        if sender.is_some_and(|sender| sender.send(()).is_ok()) {
            return;
        }
        self.shared.say_farewell();
    }
}

/// Hears of the last client. It may be dropped with its runtime before it was asked.
#[derive(Debug)]
struct Ended {
    receiver: oneshot::Receiver<()>,
    shared: Arc<Shared>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        // What is sent from now on comes back to the sender.
        self.receiver.close();
        if self.receiver.try_recv().is_ok() {
            self.shared.say_farewell();
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.requests.fmt(f)
    }
}

/// A session. It ends with its last clone.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    _end: Arc<End>,
}

/// How a session is to be kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to ask the servers for.
    pub session_timeout: Duration,
    /// How long an answer may take before the connection is given up; by default [`within`].
    pub answer_timeout: Option<Duration>,
}

/// How long an answer may take at most, unless the URL says otherwise.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// How long an answer or a connection may take by default: a hung server and the way to the next one together leave time
/// for a renewal, as leases are two thirds of a session's time-out.
fn within(session_timeout: Duration) -> Duration {
    ANSWERS_WITHIN.min(session_timeout / 6)
}

impl Client {
    /// Opens a session. The task that drives it is spawned on the runtime of the caller.
    pub async fn open(
        way: Way,
        options: Options,
    ) -> Result<(Client, mpsc::UnboundedReceiver<Event>), Error> {
        let standing = Standing {
            connected: false,
            session: 0,
            timeout: options.session_timeout,
            trouble: "it has not connected yet".into(),
        };
        let shared = Arc::new(Shared {
            way: Mutex::default(),
            standing: watch::Sender::new(standing),
            last_zxid: AtomicI64::new(0),
            socket: Mutex::default(),
            half_written: AtomicBool::new(false),
        });
        let (events, heard) = mpsc::unbounded_channel();
        let (end, receiver) = oneshot::channel();
        let ended = Ended {
            receiver,
            shared: shared.clone(),
        };
        let mut driver = Driver::new(way, options, shared.clone(), events);
        let link = driver.connect_first().await?;
        // Before the task runs, so that callers learn what was granted, and not what was wanted.
        driver.greeted(&link);
        tokio::spawn(driver.run(link, ended));
        let end = End {
            sender: Some(end),
            shared: shared.clone(),
        };
        let client = Client {
            shared,
            _end: Arc::new(end),
        };
        Ok((client, heard))
    }

    /// How the session is.
    pub fn standing(&self) -> Standing {
        self.shared.standing.borrow().clone()
    }

    /// The number of the session, 0 if there is none.
    pub fn session(&self) -> i64 {
        self.shared.standing.borrow().session
    }

    /// The last transaction that the servers of this session spoke of; 0 before the first.
    pub fn last_zxid(&self) -> i64 {
        self.shared.last_zxid.load(Ordering::SeqCst)
    }

    /// Waits until there is a connection, for so long at most.
    pub async fn connected(&self, within: Duration) {
        let mut standing = self.shared.standing.subscribe();
        let _ = tokio::time::timeout(within, standing.wait_for(|now| now.connected)).await;
    }

    /// Sends requests together, in this order.
    pub async fn send(
        &self,
        requests: Vec<Request>,
        not_after: Moment,
    ) -> Result<Replies, Failure> {
        self.hand_over(requests, not_after, false).await
    }

    /// The same, once a write that is committed says that the session lives for two thirds of its time-out from when it was
    /// sent.
    pub async fn send_and_prove(
        &self,
        requests: Vec<Request>,
        not_after: Moment,
    ) -> Result<Replies, Failure> {
        self.hand_over(requests, not_after, true).await
    }

    async fn hand_over(
        &self,
        requests: Vec<Request>,
        not_after: Moment,
        proves: bool,
    ) -> Result<Replies, Failure> {
        if requests.is_empty() {
            return Ok(Replies {
                session: self.session(),
                sent: Moment::now(),
                answers: Vec::new(),
            });
        }
        let (answer, answered) = oneshot::channel();
        let batch = Batch {
            requests,
            not_after,
            proves,
            answer,
        };
        let sent = match &*self.shared.way() {
            Some(way) => way.send(batch).is_ok(),
            None => false,
        };
        if !sent {
            return Err(Failure::NotSent(self.standing().trouble));
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::InDoubt("the session was closed".into())),
        }
    }
}

impl Shared {
    fn way(&self) -> MutexGuard<'_, Option<mpsc::UnboundedSender<Batch>>> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session from outside of its task, which is gone or is being dropped: nothing else writes.
    fn say_farewell(&self) {
        let farewell = self.farewell().take();
        if let Some(Farewell { socket, process }) = farewell
            && process == std::process::id()
            && !self.half_written.load(Ordering::SeqCst)
        {
            let mut w = jute::Writer::default();
            wire::close(i32::MAX, &mut w);
            let _ = (&socket).write(&w.finish());
        }
    }

    fn farewell(&self) -> MutexGuard<'_, Option<Farewell>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
