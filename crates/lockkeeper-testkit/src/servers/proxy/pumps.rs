//! What passes through one connection, in both directions.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::{Rules, Shared, Then, Way};

/// How often a target that does not listen yet is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What becomes of the replies of one connection.
#[derive(Debug, Default)]
struct Fate {
    /// All are lost from now on.
    losing: AtomicBool,
    /// What the client gets instead of the next ones: `None` is nothing.
    instead: Mutex<VecDeque<Option<Arc<[u8]>>>>,
}

impl Fate {
    fn instead(&self) -> MutexGuard<'_, VecDeque<Option<Arc<[u8]>>>> {
        self.instead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The four ends of one proxied connection.
struct Ends {
    client: (OwnedReadHalf, OwnedWriteHalf),
    server: (OwnedReadHalf, OwnedWriteHalf),
}

impl Shared {
    pub(super) async fn connect(&self, client: TcpStream) -> io::Result<()> {
        let server = self.reach().await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let mut ends = Ends {
            client: client.into_split(),
            server: server.into_split(),
        };
        let fate = Fate::default();
        let (answer, answers) = mpsc::unbounded_channel();
        let (requests, replies) = tokio::join!(
            self.pump_requests(&mut ends.client.0, &mut ends.server.1, &fate, answer),
            self.pump_replies(&mut ends.server.0, &mut ends.client.1, &fate, answers),
        );
        requests.and(replies)
    }

    /// Connects to the target, once it listens.
    async fn reach(&self) -> io::Result<TcpStream> {
        let end = Instant::now() + self.patience;
        loop {
            let target = SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.load(SeqCst)));
            match TcpStream::connect(target).await {
                Err(_) if Instant::now() < end => tokio::time::sleep(AGAIN_AFTER).await,
                reached => return reached,
            }
        }
    }

    pub(super) fn rewrites(&self) -> MutexGuard<'_, Option<[Vec<u8>; 2]>> {
        self.rewrites.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rewrite(&self, chunk: &mut [u8]) {
        if let Some([from, to]) = &*self.rewrites() {
            for at in 0..(chunk.len() + 1).saturating_sub(from.len()) {
                if chunk[at..].starts_with(from) {
                    chunk[at..at + to.len()].copy_from_slice(to);
                }
            }
        }
    }

    async fn pump_requests(
        &self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        fate: &Fate,
        answer: mpsc::UnboundedSender<Arc<[u8]>>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let mut told = self.told.subscribe();
        loop {
            let length = tokio::select! {
                length = from.read(&mut buffer) => length.unwrap_or(0),
                Ok(bytes) = told.recv() => {
                    fate.instead().push_back(None);
                    to.write_all(&bytes).await?;
                    continue;
                }
            };
            if length == 0 {
                self.end(|rules| rules.requests).await;
                return to.shutdown().await;
            }
            self.rewrite(&mut buffer[..length]);
            let chunk = &buffer[..length];
            if !self.gate(|rules| rules.requests).await {
                continue;
            }
            match self.triggered(chunk) {
                Some(Then::LoseReply) => {
                    fate.losing.store(true, SeqCst);
                    to.write_all(chunk).await?;
                    // The server does all it was asked before it sees the end; then it closes.
                    return to.shutdown().await;
                }
                Some(Then::Hold) => {
                    let mut rules = self.rules.subscribe();
                    let before = rules.borrow_and_update().healed;
                    self.stopped.fetch_add(1, SeqCst);
                    let _ = rules.wait_for(|rules| rules.healed > before).await;
                    to.write_all(chunk).await?;
                }
                Some(Then::Answer(reply)) => drop(answer.send(reply)),
                Some(Then::Replace(reply)) => {
                    fate.instead().push_back(Some(reply));
                    to.write_all(chunk).await?;
                }
                Some(Then::HoldReplies) | None => to.write_all(chunk).await?,
            }
        }
    }

    async fn pump_replies(
        &self,
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        fate: &Fate,
        mut answers: mpsc::UnboundedReceiver<Arc<[u8]>>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let mut injected = self.injected.subscribe();
        loop {
            let length = tokio::select! {
                length = from.read(&mut buffer) => length.unwrap_or(0),
                Some(reply) = answers.recv() => {
                    let _ = to.write_all(&reply).await;
                    continue;
                }
                Ok(bytes) = injected.recv() => {
                    let _ = to.write_all(&bytes).await;
                    continue;
                }
            };
            if length == 0 {
                if fate.losing.load(SeqCst) {
                    self.lost.fetch_add(1, SeqCst);
                }
                self.end(|rules| rules.replies).await;
                return to.shutdown().await;
            }
            let instead = fate.instead().pop_front();
            if let Some(instead) = instead {
                match instead {
                    Some(reply) => drop(to.write_all(&reply).await),
                    None => drop(self.heard.fetch_add(1, SeqCst)),
                }
                continue;
            }
            if self.gate(|rules| rules.replies).await && !fate.losing.load(SeqCst) {
                // A client that is gone does not keep its last requests from the server.
                let _ = to.write_all(&buffer[..length]).await;
            }
        }
    }

    /// Waits as long as the way says. `false`: the chunk is to be thrown away.
    async fn gate(&self, way: impl Fn(&Rules) -> Way) -> bool {
        let mut rules = self.rules.subscribe();
        let now = way(&rules.borrow_and_update());
        match now {
            Way::Open => {}
            Way::Slow(time) => tokio::time::sleep(time).await,
            Way::Held | Way::Frozen => {
                self.stopped.fetch_add(1, SeqCst);
                let held = |rules: &Rules| matches!(way(rules), Way::Held | Way::Frozen);
                let _ = rules.wait_for(|rules| !held(rules)).await;
            }
            Way::Dropped => {
                self.stopped.fetch_add(1, SeqCst);
                return false;
            }
        }
        true
    }

    /// Waits as long as the end of a connection is not to be seen.
    async fn end(&self, way: impl Fn(&Rules) -> Way) {
        let mut rules = self.rules.subscribe();
        let _ = rules.wait_for(|rules| way(rules) != Way::Frozen).await;
    }

    /// What is to happen with a request, if it is the one that was waited for.
    fn triggered(&self, chunk: &[u8]) -> Option<Then> {
        let mut armed = self.trigger();
        let trigger = armed.as_mut()?;
        let text = &trigger.text;
        if !chunk.windows(text.len()).any(|part| part == text) {
            return None;
        }
        let then = trigger.then.clone();
        trigger.left -= 1;
        let last = trigger.left == 0;
        if last {
            *armed = None;
            if then == Then::HoldReplies {
                let hold = |rules: &mut Rules| rules.replies = Way::Held;
                self.rules.send_modify(hold);
            }
        }
        (last || matches!(then, Then::LoseReply | Then::Answer(_))).then_some(then)
    }
}
