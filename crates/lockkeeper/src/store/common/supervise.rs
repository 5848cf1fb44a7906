//! Keeps a connection alive: connects again when it ends, and decides when a server counts as silent.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use uuid::Uuid;

use crate::Error;
use crate::clock::Clock;

/// How long to wait after a try to connect that failed. The longest pause doubles with each failure, up to 1 s.
///
/// The jitter is full: a pause is any time from zero to the longest. So the clients that lost a server at the same moment
/// do not all come back at once.
///
/// ```
/// use lockkeeper::store::common::Backoff;
///
/// let mut backoff = Backoff::default();
/// assert!(backoff.pause() <= Backoff::FIRST);
/// assert!(backoff.pause() <= 2 * Backoff::FIRST);
/// backoff.reset();    // a connection lasted for a while
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    longest: Duration,
}

impl Backoff {
    /// The longest that a first pause may be.
    pub const FIRST: Duration = Duration::from_millis(20);
    /// The longest that any pause may be.
    pub const LONGEST: Duration = Duration::from_secs(1);

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        // Of a version 4 UUID 122 bits are random.
        self.pause_by(Uuid::new_v4().as_u128() as u64)
    }

    /// The next pause, from a random number.
    fn pause_by(&mut self, random: u64) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(Backoff::LONGEST);
        Duration::from_nanos(random % (longest.as_nanos() as u64 + 1))
    }

    /// Makes the next pause as short as a first one.
    pub fn reset(&mut self) {
        self.longest = Backoff::FIRST;
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff {
            longest: Backoff::FIRST,
        }
    }
}

/// What a store does with a connection that [`supervise`] keeps alive.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use lockkeeper::Error;
/// use lockkeeper::clock::Clock;
/// use lockkeeper::store::common::{Supervised, supervise};
/// use tokio::io::AsyncReadExt;
/// use tokio::net::TcpStream;
///
/// /// Reads what a server says.
/// struct Listener {
///     address: std::net::SocketAddr,
/// }
///
/// impl Supervised for Listener {
///     type Connection = tokio::sync::Mutex<TcpStream>;
///
///     async fn connect(&self, number: u64) -> Result<Self::Connection, Error> {
///         # if number > 2 { return Err(Error::Closed) }
///         let stream = TcpStream::connect(self.address).await;
///         let stream = stream.map_err(|error| Error::unavailable("toy", "it is down").caused_by(error))?;
///         Ok(tokio::sync::Mutex::new(stream))
///     }
///     async fn serve(&mut self, connection: &Self::Connection) -> String {
///         let mut said = [0; 64];
///         loop {
///             match connection.lock().await.read(&mut said).await {
///                 Ok(0) => return "the server closed the connection".into(),
///                 Ok(_) => {}     // to the one who asked
///                 Err(error) => return error.to_string(),
///             }
///         }
///     }
///     fn ended(&mut self, connection: Self::Connection, reason: &str) {
///         drop(connection);
///         println!("the connection ended: {reason}");
///     }
///     fn failed(&mut self, error: &Error) {
///         println!("{error}");
///     }
/// }
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
/// # let address = server.local_addr().unwrap();
/// # let accepting = tokio::spawn(async move { loop { drop(server.accept().await) } });
/// supervise(Listener { address }, None, &Clock::real()).await;    // in a task of its own
/// # accepting.abort();
/// # });
/// ```
pub trait Supervised: Send {
    /// A connection that is ready for use.
    type Connection: Send + Sync;

    /// Makes the connection of this number. The implementation sets the time-out. [`Error::Closed`] ends the supervision.
    fn connect(&self, number: u64) -> impl Future<Output = Result<Self::Connection, Error>> + Send;

    /// Serves a connection until it ends, and returns why it did. [`Silence`] decides when a server counts as silent.
    fn serve(&mut self, connection: &Self::Connection) -> impl Future<Output = String> + Send;

    /// Called when the connection has ended. Drop it first, so that its requests fail. Then hint all waiters
    /// ([`HintBoard::everyone`](super::HintBoard::everyone)), since hints may have been lost.
    fn ended(&mut self, connection: Self::Connection, reason: &str);

    /// Called when no connection could be made.
    fn failed(&mut self, error: &Error);

    /// Waits until another server is to be tried. This ends a pause, or a `connect` that is under way. By default it waits for
    /// ever.
    fn redirected(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Waits for this long.
    fn sleep(&self, pause: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(pause)
    }
}

/// Serves a connection until it ends, then makes the next, with a [`Backoff`] between tries. Ends only by
/// [`Error::Closed`], or when it is dropped.
///
/// `first` is the connection of number 1, if there is one already. A connection that ended within a second counts as a try
/// that failed, since the next may end as soon.
pub async fn supervise<S: Supervised>(
    mut supervised: S,
    first: Option<S::Connection>,
    clock: &Clock,
) {
    let mut number = u64::from(first.is_some());
    let mut ready = first;
    let mut backoff = Backoff::default();
    loop {
        if let Some(connection) = ready.take() {
            let began = clock.now();
            let reason = supervised.serve(&connection).await;
            supervised.ended(connection, &reason);
            if clock.now().since(began) >= Backoff::LONGEST {
                backoff.reset();
            } else {
                back_off(&supervised, &mut backoff).await;
            }
        }
        number += 1;
        let connected = tokio::select! {
            connected = supervised.connect(number) => connected,
            () = supervised.redirected() => continue,
        };
        match connected {
            Ok(connection) => ready = Some(connection),
            Err(error) => {
                supervised.failed(&error);
                if error == Error::Closed {
                    return;
                }
                back_off(&supervised, &mut backoff).await;
            }
        }
    }
}

/// Pauses before the next try, unless another server is to be tried.
async fn back_off<S: Supervised>(supervised: &S, backoff: &mut Backoff) {
    tokio::select! {
        () = supervised.sleep(backoff.pause()) => {}
        () = supervised.redirected() => {}
    }
}

/// Decides when a server counts as silent.
///
/// A request has no timer of its own, which would cost more than the rest of it. Instead a *probe* is sent every quarter
/// of the time-out. A server answers in order, so while a request has no answer, the next probe has none either. When a probe
/// has no answer after three quarters of the time-out, the connection ends with all requests on it. So each request ends
/// within the time-out.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::future::{pending, ready};
/// use std::time::Duration;
/// use lockkeeper::store::common::Silence;
///
/// let silence = Silence::after(Duration::from_millis(40));
/// let heard = silence.probe(ready("pong")).await;
/// assert_eq!(heard, Ok("pong"));
/// let unheard = silence.probe(pending::<()>()).await;
/// assert!(unheard.unwrap_err().contains("40ms"));
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    limit: Duration,
}

impl Silence {
    /// A server that does not answer a request for this long is silent.
    pub fn after(limit: Duration) -> Silence {
        Silence { limit }
    }

    /// How often to probe.
    pub fn probe_every(&self) -> Duration {
        self.limit / 4
    }

    /// Waits for the answer to a probe: for half of the time-out, and then for a quarter. In two steps, so that a process
    /// that was stopped reads what came meanwhile before it counts the server as silent.
    ///
    /// # Errors
    /// A text that says that the server is silent.
    pub async fn probe<T>(&self, answer: impl Future<Output = T>) -> Result<T, String> {
        self.probe_by(answer, tokio::time::sleep).await
    }

    async fn probe_by<T, F: Future<Output = ()>>(
        &self,
        answer: impl Future<Output = T>,
        sleep: impl Fn(Duration) -> F,
    ) -> Result<T, String> {
        let mut answer = pin!(answer);
        let quarter = self.probe_every();
        tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer),
            () = sleep(2 * quarter) => {}
        }
        tokio::select! {
            biased;
            answer = &mut answer => Ok(answer),
            () = sleep(quarter) => Err(format!("the server did not answer within {:?}", self.limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::VecDeque;
    use std::future::pending;
    use std::sync::Mutex;
    use std::task::Poll;

    use super::*;
    use crate::clock::Moment;

    #[test]
    fn pauses_double_and_their_jitter_is_full() {
        let longest = |backoff: &mut Backoff| {
            let longest = backoff.longest;
            assert_eq!(backoff.clone().pause_by(0), Duration::ZERO);
            assert_eq!(backoff.pause_by(longest.as_nanos() as u64), longest);
            longest.as_millis()
        };
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| longest(&mut backoff)).collect();
        assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        backoff.reset();
        assert_eq!(longest(&mut backoff), 20);
        let mut random: Vec<Duration> = (0..64).map(|_| backoff.pause()).collect();
        assert!(random.iter().all(|pause| *pause <= Backoff::LONGEST));
        random.dedup();
        assert!(random.len() > 32, "{random:?}");
    }

    /// The outcome of a try to connect.
    enum Try {
        /// A connection that lives for so long.
        Lives(Duration),
        Fails,
        /// Another server is to be tried before this one answers.
        Redirected,
        Closed,
    }

    /// A server on a simulated clock, and what happened.
    struct Simulated<'a> {
        clock: &'a Clock,
        tries: Mutex<VecDeque<Try>>,
        log: &'a Mutex<Vec<String>>,
        redirected: tokio::sync::Notify,
    }

    impl Simulated<'_> {
        fn log(&self, event: String) {
            self.log.lock().expect("the log").push(event);
        }
    }

    impl Supervised for Simulated<'_> {
        type Connection = Duration;

        async fn connect(&self, number: u64) -> Result<Duration, Error> {
            self.log(format!("connect {number}"));
            let next = self.tries.lock().expect("tries").pop_front();
            match next {
                Some(Try::Lives(time)) => Ok(time),
                Some(Try::Fails) => Err(Error::unavailable("toy", "it is down")),
                Some(Try::Redirected) => {
                    self.redirected.notify_one();
                    pending().await
                }
                Some(Try::Closed) | None => Err(Error::Closed),
            }
        }
        async fn serve(&mut self, lives: &Duration) -> String {
            self.clock.advance(*lives);
            format!("after {lives:?}")
        }
        fn ended(&mut self, _: Duration, reason: &str) {
            self.log(format!("ended {reason}"));
        }
        fn failed(&mut self, error: &Error) {
            self.log(format!("failed {}", error.is_transient()));
        }
        async fn redirected(&self) {
            self.redirected.notified().await;
        }
        async fn sleep(&self, pause: Duration) {
            self.log("pause".into());
            self.clock.advance(pause);
        }
    }

    /// What happens when a server is supervised, and how long it takes.
    fn supervised(first: Option<Duration>, tries: Vec<Try>) -> (Vec<String>, Duration) {
        let (clock, log) = (Clock::simulated(), Mutex::default());
        let start: Moment = clock.now();
        let simulated = Simulated {
            clock: &clock,
            tries: Mutex::new(tries.into()),
            log: &log,
            redirected: tokio::sync::Notify::new(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(supervise(simulated, first, &clock));
        let log = log.into_inner().expect("the log");
        (log, clock.now().since(start))
    }

    #[test]
    fn a_lost_connection_is_made_again_at_once() {
        let long = Duration::from_secs(5);
        let (log, _) = supervised(Some(long), vec![Try::Lives(long), Try::Closed]);
        assert_eq!(
            log,
            [
                "ended after 5s",
                "connect 2",
                "ended after 5s",
                "connect 3",
                "failed false"
            ]
        );
    }

    #[test]
    fn a_server_that_is_down_or_ends_connections_soon_is_tried_with_pauses() {
        let soon = Duration::from_millis(999);
        let (log, took) = supervised(None, vec![Try::Fails, Try::Lives(soon), Try::Closed]);
        assert_eq!(
            log,
            [
                "connect 1",
                "failed true",
                "pause",
                "connect 2",
                "ended after 999ms",
                "pause",
                "connect 3",
                "failed false"
            ]
        );
        assert!(took <= soon + Duration::from_millis(60), "{took:?}");
        // An hour of failures has a pause of half a second each, on average.
        let (log, took) = supervised(None, (0..7_200).map(|_| Try::Fails).collect());
        assert_eq!(log.iter().filter(|event| *event == "pause").count(), 7_200);
        let minutes = took.as_secs() / 60;
        assert!((55..=65).contains(&minutes), "{took:?}");
    }

    #[test]
    fn another_server_is_tried_without_a_pause() {
        let (log, took) = supervised(None, vec![Try::Redirected, Try::Redirected, Try::Closed]);
        assert_eq!(log, ["connect 1", "connect 2", "connect 3", "failed false"]);
        assert_eq!(took, Duration::ZERO);
    }

    /// Probes a server that answers after so long, on a simulated clock, in a process that is stopped for a while in the first
    /// step. Returns when the wait ended, too.
    fn probed(answers: Option<Duration>, stopped: Duration) -> (Result<(), String>, Duration) {
        let clock = Clock::simulated();
        let start = clock.now();
        let answer = std::future::poll_fn(|_| {
            if answers.is_some_and(|answers| clock.now().since(start) >= answers) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        let stopped = Cell::new(stopped);
        // Time passes in steps of a millisecond, and each wakes what waits.
        let sleep = |time: Duration| {
            let end = clock.now() + time;
            let (clock, stopped) = (&clock, &stopped);
            std::future::poll_fn(move |context| {
                if clock.now() >= end {
                    clock.advance(stopped.take());
                    return Poll::Ready(());
                }
                clock.advance(Duration::from_millis(1));
                context.waker().wake_by_ref();
                Poll::Pending
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let silence = Silence::after(Duration::from_secs(2));
        let ended = runtime
            .expect("a runtime")
            .block_on(silence.probe_by(answer, sleep));
        (ended, clock.now().since(start))
    }

    #[test]
    fn a_server_is_silent_after_three_quarters_of_the_time_out() {
        let millis = Duration::from_millis;
        for answers in [0, 1, 1_000, 1_001, 1_500] {
            let (answered, took) = probed(Some(millis(answers)), Duration::ZERO);
            assert_eq!((answered, took), (Ok(()), millis(answers)));
        }
        for answers in [Some(millis(1_501)), None] {
            let (answered, took) = probed(answers, Duration::ZERO);
            let silent = "the server did not answer within 2s";
            assert_eq!((answered, took), (Err(silent.into()), millis(1_500)));
        }
    }

    #[test]
    fn a_process_that_was_stopped_reads_before_the_server_counts_as_silent() {
        let millis = Duration::from_millis;
        let minute = Duration::from_secs(60);
        // The answer came meanwhile.
        let (answered, took) = probed(Some(minute), minute);
        assert_eq!((answered, took), (Ok(()), minute + millis(1_000)));
        let (answered, _) = probed(Some(minute + millis(1_500)), minute);
        assert_eq!(answered, Ok(()));
    }
}
