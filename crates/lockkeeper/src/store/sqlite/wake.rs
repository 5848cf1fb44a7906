//! How a waiter learns that it is its turn, without asking all the time.
//!
//! The store that frees a lock sends a datagram to the store of the claim that got it. The *sentry*, one thread a
//! store, passes it on to the waiting task. What no datagram tells it looks at itself, and only while someone
//! waits for it: whether a store that is waited for has died, and whether another process changed anything
//! that is watched.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::core::Core;
use super::fault::refused;
use super::liveness::Peer;
use super::rows::{claim_bytes, claim_of};
use crate::store::{ClaimId, Interest, Subscription};
use crate::{Error, MAX_NAME_BYTES, Name};

/// How often to look whether a store that is waited for has died.
const PULSE_EVERY: Duration = Duration::from_millis(100);
/// How often to look whether another process changed something that is watched.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long after the last subscription the sentry falls asleep for good: waits tend to come in rows.
const LINGER: Duration = Duration::from_secs(1);

/// Sends hints to other stores.
#[derive(Debug)]
pub(super) struct Outbox(UnixDatagram);

impl Outbox {
    pub fn new() -> io::Result<Outbox> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Outbox(socket))
    }

    /// Hints a claim of another store that it was granted.
    pub fn granted(&self, peer: &Peer, name: &Name, claim: ClaimId) {
        self.send(peer, claim, name);
    }

    /// Hints the keeper of a claim of another store that it was broken: a message without a name.
    pub fn broken(&self, peer: &Peer, claim: ClaimId) {
        self.send(peer, claim, "");
    }

    /// Whatever fails: it is only a hint.
    fn send(&self, peer: &Peer, claim: ClaimId, name: &str) {
        if let Some(socket) = &peer.socket {
            let mut message = Vec::with_capacity(24 + name.len());
            message.extend_from_slice(&claim_bytes(claim));
            message.extend_from_slice(name.as_bytes());
            let _ = self.0.send_to(&message, socket);
        }
    }
}

/// Where hints from other stores arrive, and the other end of it.
#[derive(Debug)]
pub(super) struct Inbox {
    socket: UnixDatagram,
    /// Connected to it, so it works even if the address is deleted.
    kick: UnixDatagram,
    /// Whether others can reach it.
    is_bound: bool,
}

impl Inbox {
    /// Listens at `address`; where no socket can be made, nobody reaches it and the sentry looks instead.
    pub fn new(address: &Path) -> io::Result<Inbox> {
        let bound = UnixDatagram::bind(address).and_then(|socket| {
            let kick = UnixDatagram::unbound()?;
            kick.connect(address)?;
            Ok((socket, kick))
        });
        let is_bound = bound.is_ok();
        let (socket, kick) = bound.or_else(|_| UnixDatagram::pair())?;
        kick.set_nonblocking(true)?;
        Ok(Inbox {
            socket,
            kick,
            is_bound,
        })
    }
}

/// The thread, and what it is to look at.
#[derive(Debug)]
pub(super) struct Sentry {
    watch: Arc<Watch>,
    kick: UnixDatagram,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Watch {
    /// Running subscriptions to claims.
    claims: AtomicUsize,
    /// Running subscriptions to names and latches, about which no datagram comes.
    broad: Mutex<HashMap<Interest, usize>>,
    broad_count: AtomicUsize,
    /// The sentry sleeps until it is kicked.
    dormant: AtomicBool,
    stop: AtomicBool,
}

impl Sentry {
    pub fn start(core: Arc<Core>, inbox: Inbox) -> Result<Sentry, Error> {
        let watch = Arc::new(Watch::default());
        let Inbox {
            socket,
            kick,
            is_bound,
        } = inbox;
        let mut rounds = Rounds {
            core,
            watch: watch.clone(),
            socket,
            is_bound,
            version: None,
            next_pulse: Instant::now(),
            last_busy: Instant::now(),
            timeout: None,
        };
        let thread = thread::Builder::new()
            .name("lockkeeper-wake".into())
            .spawn(move || rounds.walk())
            .map_err(|error| refused(format!("no thread can be started: {error}")))?;
        Ok(Sentry {
            watch,
            kick,
            thread: Some(thread),
        })
    }

    /// Keeps an eye on what the subscription is about, for as long as it runs.
    pub fn accompany(&self, interest: Interest, subscription: Subscription) -> Subscription {
        let attention = Attention::new(self.watch.clone(), interest);
        if self.watch.dormant.swap(false, SeqCst) {
            self.kick();
        }
        subscription.and(attention)
    }

    pub fn stop(&mut self) {
        self.watch.stop.store(true, SeqCst);
        self.kick();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn kick(&self) {
        // When it cannot be sent there are others to be read, which do as well.
        let _ = self.kick.send(&[]);
    }
}

/// One subscription's share of the sentry's attention.
struct Attention {
    watch: Arc<Watch>,
    broad: Option<Interest>,
}

impl Attention {
    fn new(watch: Arc<Watch>, interest: Interest) -> Attention {
        let broad = match interest {
            Interest::Claim(..) => None,
            broad => Some(broad),
        };
        match &broad {
            None => {
                watch.claims.fetch_add(1, SeqCst);
            }
            Some(interest) => {
                *watch.broad().entry(interest.clone()).or_default() += 1;
                watch.broad_count.fetch_add(1, SeqCst);
            }
        }
        Attention { watch, broad }
    }
}

impl Drop for Attention {
    fn drop(&mut self) {
        let Some(interest) = &self.broad else {
            self.watch.claims.fetch_sub(1, SeqCst);
            return;
        };
        self.watch.broad_count.fetch_sub(1, SeqCst);
        let mut broad = self.watch.broad();
        if let Some(count) = broad.get_mut(interest) {
            *count -= 1;
            if *count == 0 {
                broad.remove(interest);
            }
        }
    }
}

impl Watch {
    fn broad(&self) -> MutexGuard<'_, HashMap<Interest, usize>> {
        self.broad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.claims.load(SeqCst) == 0 && self.broad_count.load(SeqCst) == 0
    }
}

/// The sentry's own state.
struct Rounds {
    core: Arc<Core>,
    watch: Arc<Watch>,
    socket: UnixDatagram,
    is_bound: bool,
    /// The file's version when last looked at.
    version: Option<i64>,
    next_pulse: Instant,
    /// When someone last waited.
    last_busy: Instant,
    timeout: Option<Duration>,
}

impl Rounds {
    fn walk(&mut self) {
        // One byte more than any message, to notice what is none.
        let mut buffer = [0; 24 + MAX_NAME_BYTES + 1];
        loop {
            self.set_pace();
            match self.socket.recv(&mut buffer) {
                Ok(length) => self.pass_on(&buffer[..length]),
                Err(error) if is_timeout(&error) => {}
                Err(_) => thread::sleep(PULSE_EVERY),
            }
            self.watch.dormant.store(false, SeqCst);
            if self.watch.stop.load(SeqCst) {
                return;
            }
            self.look();
            self.feel_pulses();
        }
    }

    /// Decides how long to wait for a message at most.
    fn set_pace(&mut self) {
        let pace = if self.looks() {
            Some(LOOK_EVERY)
        } else if !self.watch.is_idle() || self.last_busy.elapsed() < LINGER {
            Some(PULSE_EVERY)
        } else {
            // Said before it is checked again: a new subscription either is seen here or kicks.
            self.watch.dormant.store(true, SeqCst);
            let stays = self.watch.is_idle() && !self.watch.stop.load(SeqCst);
            (!stays).then_some(LOOK_EVERY)
        };
        if !self.watch.is_idle() {
            self.last_busy = Instant::now();
        }
        if pace != self.timeout && self.socket.set_read_timeout(pace).is_ok() {
            self.timeout = pace;
        }
    }

    /// Whether there is something about which no message would come.
    fn looks(&self) -> bool {
        let claims = self.watch.claims.load(SeqCst) > 0;
        self.watch.broad_count.load(SeqCst) > 0 || (claims && !self.is_bound)
    }

    /// Hints everything watched when another process has changed the file.
    fn look(&mut self) {
        if !self.looks() {
            self.version = None;
            return;
        }
        let Ok(version) = self.core.session().data_version() else {
            return;
        };
        // The first look may come after the change.
        if self.version.replace(version) == Some(version) {
            return;
        }
        if !self.is_bound {
            self.core.hints.everyone();
        }
        for interest in self.watch.broad().keys() {
            match interest {
                Interest::Name(name) => self.core.hints.name(name),
                Interest::Latch(name) => self.core.hints.latch(name),
                Interest::Claim(name, claim) => self.core.hints.claim(name, *claim),
                Interest::Keeper(keeper) => self.core.hints.keeper(*keeper),
            }
        }
    }

    /// Frees what dead stores hold, which hints those that get it.
    fn feel_pulses(&mut self) {
        if self.watch.claims.load(SeqCst) == 0 || Instant::now() < self.next_pulse {
            return;
        }
        if let Err(fault) = self.core.bury_dead() {
            tracing::debug!(?fault, "could not look for dead processes; trying again");
        }
        self.next_pulse = Instant::now() + PULSE_EVERY;
    }

    fn pass_on(&self, message: &[u8]) {
        let Some((claim, name)) = message.split_first_chunk::<24>() else {
            return;
        };
        if name.is_empty() {
            return self.core.hints.keeper(claim_of(*claim).keeper);
        }
        let name = std::str::from_utf8(name)
            .ok()
            .and_then(|name| Name::new(name).ok());
        if let Some(name) = name {
            self.core.hints.claim(&name, claim_of(*claim));
            self.core.hints.name(&name);
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}
