//! How a waiter in another process learns that it is its turn.
//!
//! The store that frees a lock sends a datagram to the store of the claim that got it. There the *watcher*, one thread a
//! store, hints the waiting task. Two things send no datagram, so the watcher checks them at intervals, while a
//! subscription needs it: whether another store has died, and whether another process changed the file.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::core::Core;
use super::fault::refused;
use super::liveness::Peer;
use super::rows::{claim_bytes, claim_from_bytes};
use crate::store::{ClaimId, Interest, Subscription};
use crate::{Error, MAX_NAME_BYTES, Name};

/// How often to check whether another store has died, while a claim waits.
const LIVENESS_EVERY: Duration = Duration::from_millis(100);
/// How often to check whether another process changed the file, while a name or a latch is watched.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// How long after the last subscription the watcher still wakes up by itself: one wait is often followed by the next.
const SLEEP_AFTER: Duration = Duration::from_secs(1);

/// Sends hints to other stores.
#[derive(Debug)]
pub(super) struct HintSender(UnixDatagram);

impl HintSender {
    pub fn new() -> io::Result<HintSender> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(HintSender(socket))
    }

    /// Hints a claim of another store that it was granted.
    pub fn granted(&self, peer: &Peer, name: &Name, claim: ClaimId) {
        self.send(peer, claim, name);
    }

    /// Hints the keeper of a claim of another store that it was broken: a message without a name.
    pub fn broken(&self, peer: &Peer, claim: ClaimId) {
        self.send(peer, claim, "");
    }

    /// Ignores failures: hints may be lost.
    fn send(&self, peer: &Peer, claim: ClaimId, name: &str) {
        if let Some(socket) = &peer.socket {
            let mut message = Vec::with_capacity(24 + name.len());
            message.extend_from_slice(&claim_bytes(claim));
            message.extend_from_slice(name.as_bytes());
            let _ = self.0.send_to(&message, socket);
        }
    }
}

/// The socket at which hints from other stores arrive.
#[derive(Debug)]
pub(super) struct HintReceiver {
    socket: UnixDatagram,
    /// Wakes the watcher. It is connected to `socket`, so it works even if the address is deleted.
    waker: UnixDatagram,
    /// Whether other stores can reach the socket.
    is_bound: bool,
}

impl HintReceiver {
    /// Listens at `address`. If no socket can be bound there, no store reaches it, and the watcher polls the file instead.
    pub fn new(address: &Path) -> io::Result<HintReceiver> {
        let bound = UnixDatagram::bind(address).and_then(|socket| {
            let waker = UnixDatagram::unbound()?;
            waker.connect(address)?;
            Ok((socket, waker))
        });
        let is_bound = bound.is_ok();
        let (socket, waker) = bound.or_else(|_| UnixDatagram::pair())?;
        waker.set_nonblocking(true)?;
        Ok(HintReceiver {
            socket,
            waker,
            is_bound,
        })
    }
}

/// The watcher's thread, and what it watches.
#[derive(Debug)]
pub(super) struct Watcher {
    watched: Arc<Mutex<Watched>>,
    waker: UnixDatagram,
    thread: Option<JoinHandle<()>>,
}

/// What the running subscriptions are about, and whether the watcher's thread sleeps.
#[derive(Debug, Default)]
struct Watched {
    /// How many subscriptions are about claims.
    claims: usize,
    /// Those about names and latches, with how many there are of each. No datagram comes for them.
    polled: HashMap<Interest, usize>,
    /// The thread sleeps until it is woken.
    is_asleep: bool,
    stop: bool,
}

impl Watched {
    fn add(&mut self, interest: &Interest) {
        match interest {
            Interest::Claim(..) => self.claims += 1,
            polled => *self.polled.entry(polled.clone()).or_default() += 1,
        }
    }

    fn remove(&mut self, interest: &Interest) {
        if let Interest::Claim(..) = interest {
            self.claims -= 1;
        } else if let Some(count) = self.polled.get_mut(interest) {
            *count -= 1;
            if *count == 0 {
                self.polled.remove(interest);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.claims == 0 && self.polled.is_empty()
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watcher {
    pub fn start(core: Arc<Core>, receiver: HintReceiver) -> Result<Watcher, Error> {
        let watched = Arc::<Mutex<Watched>>::default();
        let HintReceiver {
            socket,
            waker,
            is_bound,
        } = receiver;
        let mut watch_loop = WatchLoop {
            core,
            watched: watched.clone(),
            socket,
            is_bound,
            version: None,
            next_liveness_check: Instant::now(),
            last_subscribed: Instant::now(),
            timeout: None,
        };
        let thread = thread::Builder::new()
            .name("lockkeeper-wake".into())
            .spawn(move || watch_loop.run())
            .map_err(|error| refused(format!("no thread can be started: {error}")))?;
        Ok(Watcher {
            watched,
            waker,
            thread: Some(thread),
        })
    }

    /// Watches what the subscription is about, for as long as it runs.
    pub fn watch(&self, interest: Interest, subscription: Subscription) -> Subscription {
        let mut watched = lock(&self.watched);
        watched.add(&interest);
        let was_asleep = std::mem::take(&mut watched.is_asleep);
        drop(watched);
        if was_asleep {
            self.wake();
        }
        subscription.and(WatchGuard {
            watched: self.watched.clone(),
            interest,
        })
    }

    pub fn stop(&mut self) {
        lock(&self.watched).stop = true;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn wake(&self) {
        // If the socket's buffer is full, the datagrams in it wake the watcher as well.
        let _ = self.waker.send(&[]);
    }
}

/// Counts one subscription as watched until it is dropped.
struct WatchGuard {
    watched: Arc<Mutex<Watched>>,
    interest: Interest,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        lock(&self.watched).remove(&self.interest);
    }
}

/// What the watcher's thread runs.
struct WatchLoop {
    core: Arc<Core>,
    watched: Arc<Mutex<Watched>>,
    socket: UnixDatagram,
    is_bound: bool,
    /// The file's version when it was last polled.
    version: Option<i64>,
    next_liveness_check: Instant,
    /// When there was last a subscription.
    last_subscribed: Instant,
    /// The time-out that the socket has.
    timeout: Option<Duration>,
}

impl WatchLoop {
    fn run(&mut self) {
        // One byte longer than any message: a longer datagram is cut to that, and its name is too long to be one.
        let mut buffer = [0; 24 + MAX_NAME_BYTES + 1];
        loop {
            self.set_timeout();
            match self.socket.recv(&mut buffer) {
                Ok(length) => self.pass_on(&buffer[..length]),
                Err(error) if is_timeout(&error) => {}
                Err(_) => thread::sleep(LIVENESS_EVERY),
            }
            let mut watched = lock(&self.watched);
            watched.is_asleep = false;
            if watched.stop {
                return;
            }
            drop(watched);
            self.poll_file();
            self.check_liveness();
        }
    }

    /// Decides how long to wait for a datagram at most. `None` is for ever.
    fn set_timeout(&mut self) {
        let mut watched = lock(&self.watched);
        if !watched.is_empty() {
            self.last_subscribed = Instant::now();
        }
        let timeout = if self.has_to_poll(&watched) {
            Some(POLL_EVERY)
        } else if watched.stop || self.last_subscribed.elapsed() < SLEEP_AFTER {
            Some(LIVENESS_EVERY)
        } else {
            watched.is_asleep = true;
            None
        };
        drop(watched);
        if timeout != self.timeout && self.socket.set_read_timeout(timeout).is_ok() {
            self.timeout = timeout;
        }
    }

    /// Whether a subscription is about something for which no datagram comes.
    fn has_to_poll(&self, watched: &Watched) -> bool {
        !watched.polled.is_empty() || (watched.claims > 0 && !self.is_bound)
    }

    /// Hints all polled subscriptions if another process has changed the file.
    fn poll_file(&mut self) {
        if !self.has_to_poll(&lock(&self.watched)) {
            self.version = None;
            return;
        }
        let Ok(version) = self.core.session().data_version() else {
            return;
        };
        // The first poll hints as well: the change may have come before it.
        if self.version.replace(version) == Some(version) {
            return;
        }
        if !self.is_bound {
            self.core.hints.everyone();
        }
        for interest in lock(&self.watched).polled.keys() {
            match interest {
                Interest::Name(name) => self.core.hints.name(name),
                Interest::Latch(name) => self.core.hints.latch(name),
                Interest::Claim(name, claim) => self.core.hints.claim(name, *claim),
                Interest::Keeper(keeper) => self.core.hints.keeper(*keeper),
            }
        }
    }

    /// Frees what dead stores hold, which hints the claims that get it.
    fn check_liveness(&mut self) {
        if lock(&self.watched).claims == 0 || Instant::now() < self.next_liveness_check {
            return;
        }
        if let Err(fault) = self.core.reclaim_dead() {
            tracing::debug!(?fault, "could not check for dead processes; trying again");
        }
        self.next_liveness_check = Instant::now() + LIVENESS_EVERY;
    }

    /// Gives the hint in a datagram to the subscriptions of this process.
    fn pass_on(&self, message: &[u8]) {
        let Some((claim, name)) = message.split_first_chunk::<24>() else {
            return;
        };
        if name.is_empty() {
            return self.core.hints.keeper(claim_from_bytes(*claim).keeper);
        }
        let name = std::str::from_utf8(name)
            .ok()
            .and_then(|name| Name::new(name).ok());
        if let Some(name) = name {
            self.core.hints.claim(&name, claim_from_bytes(*claim));
            self.core.hints.name(&name);
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
