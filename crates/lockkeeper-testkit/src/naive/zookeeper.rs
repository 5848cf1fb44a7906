//! A lock on ZooKeeper as it is written every day: each client makes an ephemeral node with a number, and the lowest
//! number holds.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::clock::Moment;
use tokio::task::spawn_blocking;

use crate::servers::zookeeper_session::{NO_NODE, Node, NodeStat, Refusal, ZooKeeperSession};
use crate::taking::Failure;

/// How often a waiter looks whether it is first.
const POLL: Duration = Duration::from_millis(20);
/// How often a holder looks at its connection.
const LOOK: Duration = Duration::from_millis(15);

/// What a naive ZooKeeper lock gets wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZooKeeperMistake {
    /// Nothing: its own session made the first node, by transaction. The caller counts two thirds of the session's time-out
    /// from its last write.
    None,
    /// It holds as long as its session is answered.
    TrustsPings,
    /// The first node has its id, whichever session made it.
    AdoptsById,
    /// No other node has a lower number.
    SortsByNumber,
}

impl ZooKeeperMistake {
    /// The mistake of this name; `right` is none.
    pub fn named(name: &str) -> Option<ZooKeeperMistake> {
        Some(match name {
            "right" => ZooKeeperMistake::None,
            "trusts-pings" => ZooKeeperMistake::TrustsPings,
            "adopts-by-id" => ZooKeeperMistake::AdoptsById,
            "sorts-by-number" => ZooKeeperMistake::SortsByNumber,
            _ => return None,
        })
    }
}

/// A lock of one client, with its session.
#[derive(Clone, Debug)]
pub struct NaiveZooKeeper {
    mistake: ZooKeeperMistake,
    folder: String,
    id: String,
    session: Arc<ZooKeeperSession>,
}

/// A hold of a [`NaiveZooKeeper`].
#[derive(Debug)]
pub struct NaiveZooKeeperGuard {
    lock: NaiveZooKeeper,
    node: String,
    token: u64,
}

impl NaiveZooKeeper {
    /// A lock at a folder of the server at a port of this machine. The client is known by its id.
    ///
    /// # Panics
    /// When there is no server.
    pub fn new(
        mistake: ZooKeeperMistake,
        port: u16,
        folder: &str,
        id: &str,
        timeout: Duration,
    ) -> NaiveZooKeeper {
        NaiveZooKeeper {
            mistake,
            folder: folder.to_owned(),
            id: id.to_owned(),
            session: Arc::new(ZooKeeperSession::open(port, timeout)),
        }
    }

    /// A lock at the server of this machine that a URL `zk://127.0.0.1:PORT/CHROOT` names.
    ///
    /// # Errors
    /// When the URL has no port, or the server cannot be used.
    pub async fn at(
        mistake: ZooKeeperMistake,
        url: &str,
        name: &str,
        timeout: Duration,
    ) -> Result<NaiveZooKeeper, Failure> {
        let unusable = || format!("{url:?} is no URL of one ZooKeeper server");
        let rest = url.strip_prefix("zk://").ok_or_else(unusable)?;
        let rest = rest.split('?').next().unwrap_or_default();
        let (host, chroot) = rest.split_once('/').unwrap_or((rest, ""));
        let (_, port) = host.split_once(':').ok_or_else(unusable)?;
        let port = port.parse().map_err(|_| unusable())?;
        let folder = format!("/{}/{name}", chroot.trim_matches('/')).replace("//", "/");
        let id = uuid::Uuid::new_v4().to_string();
        let opened = spawn_blocking(move || {
            let lock = NaiveZooKeeper::new(mistake, port, &folder, &id, timeout);
            lock.session.folders(&folder);
            lock
        });
        Ok(opened.await?)
    }

    /// Its mistake.
    pub fn mistake(&self) -> ZooKeeperMistake {
        self.mistake
    }

    /// Its session.
    pub fn session(&self) -> &ZooKeeperSession {
        &self.session
    }

    /// Makes its node, and returns the node's path.
    ///
    /// # Errors
    /// What the server refused with.
    pub fn queue(&self) -> Result<String, Refusal> {
        let path = format!("{}/{}-lock-", self.folder, self.id);
        self.session.create(&path, b"", Node::Sequential)
    }

    /// Its node, if that is the first of all.
    ///
    /// # Panics
    /// When the server refuses, or a node has no number.
    pub fn first(&self) -> Option<NodeStat> {
        let number = |node: &str| node[node.len() - 10..].parse::<u64>().expect("a number");
        let read = |node: String| {
            let read = self.session.data(&format!("{}/{node}", self.folder));
            // One may go meanwhile.
            Some((read.ok()?.1, node))
        };
        let nodes = self.session.children(&self.folder);
        let nodes: Vec<_> = nodes.into_iter().filter_map(read).collect();
        let by_number = |node: &&(_, String)| number(&node.1);
        let mine = |node: &&(_, String)| node.1.starts_with(&self.id);
        let least = nodes.iter().min_by_key(by_number).map(|one| number(&one.1));
        let first = match self.mistake {
            ZooKeeperMistake::SortsByNumber => nodes
                .iter()
                .filter(|one| Some(number(&one.1)) == least)
                .find(mine),
            ZooKeeperMistake::None => nodes
                .iter()
                .min_by_key(|(stat, _)| stat.czxid)
                .filter(|(stat, _)| stat.owner == self.session.id()),
            _ => nodes.iter().min_by_key(by_number).filter(mine),
        };
        first.map(|(stat, _)| *stat)
    }

    /// Waits for the lock, for so long; `None` if others have it all the while.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn acquire(
        &self,
        patience: Duration,
    ) -> Result<Option<NaiveZooKeeperGuard>, Failure> {
        let end = Moment::now() + patience;
        let lock = self.clone();
        let node = spawn_blocking(move || lock.queue()).await?;
        let node = node.map_err(refused)?;
        loop {
            let lock = self.clone();
            if let Some(stat) = spawn_blocking(move || lock.first()).await? {
                return Ok(Some(NaiveZooKeeperGuard {
                    lock: self.clone(),
                    node,
                    token: stat.czxid.cast_unsigned(),
                }));
            }
            if Moment::now() >= end {
                let lock = self.clone();
                let deleted = spawn_blocking(move || lock.session.delete(&node)).await?;
                return deleted.map(|()| None).map_err(refused);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

fn refused(refusal: Refusal) -> Failure {
    format!("the server refuses with {}", refusal.0).into()
}

impl NaiveZooKeeperGuard {
    /// Its token: the transaction that made its node.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether it believes: its session is answered.
    pub fn is_held(&self) -> bool {
        self.lock.session.is_open()
    }

    /// Completes when the connection of its session has ended.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let session = self.lock.session.clone();
        async move {
            while session.is_open() {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    /// Deletes its node, and returns whether that was there.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn release(self) -> Result<bool, Failure> {
        let deleted = spawn_blocking(move || self.lock.session.delete(&self.node));
        match deleted.await? {
            Ok(()) => Ok(true),
            Err(NO_NODE) => Ok(false),
            Err(refusal) => Err(refused(refusal)),
        }
    }
}
