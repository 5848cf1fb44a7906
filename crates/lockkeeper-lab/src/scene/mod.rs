//! A scene: real processes that are told when to do what, real servers, and a record of all that happens.
//!
//! # Layout
//! - [`Scene`]: one side of a chapter while it is played
//! - [`actor`]: a process in it, as the scene has it; [`process`]: its own part; [`orders`]: what they say to each other
//! - [`servers`]: what locks live on, when it is more than one server
//! - [`shop`]: instances of the shop and their customers
//! - [`board`]: writes down what happens; [`timeline`]: the result; [`update`]: the same, as it happens
//! - [`drawing`]: a timeline as text
//! - [`judge`]: what went wrong, if anything; [`figures`]: its numbers
//!
//! Interleavings are arranged, not hoped for: an actor does one thing, says so, and waits to be told the next.

pub mod actor;
pub mod board;
pub mod drawing;
pub mod figures;
mod folder;
pub mod judge;
pub mod orders;
pub mod process;
pub mod servers;
pub mod shop;
pub mod timeline;
pub mod update;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper_testkit::servers::redis::RedisServer;

use crate::shop::stock::{self, Account};
use crate::text::Text;
use crate::words;
use actor::Actor;
use board::{Board, Updates};
use figures::Figures;
use folder::Folder;
pub(crate) use folder::sweep;
use orders::{Casting, LockOrder};

/// The name of the lock in every scene.
const NAME: &str = "inventory001";

/// How long the scene rests before what it has announced.
const BEAT: Duration = Duration::from_millis(120);

/// Where a lock lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lives {
    /// Where the scene has it, whichever lock it is: in a file, or on one server.
    Anywhere,
    /// On a server that has a replica.
    WithReplica,
    /// On a majority of three servers that know nothing of each other.
    Quorum,
}

/// Which lock a side takes, and how.
#[derive(Clone, Debug)]
pub struct LockKind {
    /// `none`, `mutex`, `ours`, or the name of a naive lock.
    pub kind: &'static str,
    /// The lease.
    pub lease: Duration,
    /// Whether holds are renewed.
    pub renewed: bool,
    /// Where it lives, for scenes in which that makes the difference.
    pub lives: Lives,
    /// What it is, in words.
    pub about: Text,
}

/// One side of a chapter while it is played. Dropping it ends its servers and removes its folder; actors go before it.
#[derive(Debug)]
pub struct Scene {
    /// What is written down.
    pub board: Arc<Board>,
    /// Numbers beside those that every side has.
    pub figures: Figures,
    /// What went wrong beside what every side is judged by.
    pub faults: Vec<Text>,
    lock: LockKind,
    program: PathBuf,
    /// Where its actors find their locks.
    url: String,
    /// The URL of what its actors sell from.
    stock: Option<String>,
    /// What the books of a shop say.
    pub books: Option<Account>,
    folder: Arc<Folder>,
}

impl Scene {
    /// An empty one, in which actors are processes of this program and take this lock.
    pub fn new(program: PathBuf, lock: LockKind, updates: Updates) -> Result<Scene> {
        let folder = Folder::new().context(words::NO_TEMPORARY_FOLDER)?;
        Ok(Scene {
            board: Arc::new(Board::new(updates)),
            figures: Figures::default(),
            faults: Vec::new(),
            url: format!("sqlite:{}", folder.path().join("locks.db").display()),
            lock,
            program,
            stock: None,
            books: None,
            folder: Arc::new(folder),
        })
    }

    /// Says what comes next, and takes a breath, so that it can be followed.
    pub async fn step(&self, en: &'static str, zh: &'static str) {
        self.board.step(Text::new(en, zh));
        tokio::time::sleep(BEAT).await;
    }

    /// Whether nothing is locked at all.
    pub fn is_without_lock(&self) -> bool {
        self.lock.kind == "none"
    }

    /// Where its lock lives.
    pub fn lives(&self) -> Lives {
        self.lock.lives
    }

    /// A new stock for its actors to sell from.
    pub async fn stock(&mut self, size: u32) -> Result<()> {
        let url = self.new_stock();
        stock::reset(&url, size).await?;
        self.stock = Some(url);
        Ok(())
    }

    fn new_stock(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("stock.db").display())
    }

    /// A private `redis-server`, on which the locks are from now on.
    pub async fn redis(&mut self) -> Result<RedisServer> {
        let server = started(RedisServer::start).await?;
        self.url = server.url();
        Ok(server)
    }

    /// Puts the locks of actors that come from now on elsewhere.
    pub fn locks_at(&mut self, url: String) {
        self.url = url;
    }

    /// Some more actors.
    pub async fn actors<const N: usize>(&self, names: [&str; N]) -> Result<[Actor; N]> {
        let mut actors = Vec::with_capacity(N);
        for name in names {
            actors.push(self.actor(name).await?);
        }
        Ok(actors.try_into().expect("one a name"))
    }

    /// One more actor.
    pub async fn actor(&self, name: &str) -> Result<Actor> {
        let casting = Casting {
            name: name.to_owned(),
            lock: LockOrder {
                kind: self.lock.kind.to_owned(),
                url: self.url.clone(),
                name: NAME.to_owned(),
                lease_ms: self.lock.lease.as_millis() as u64,
                renewed: self.lock.renewed,
            },
            stock: self.stock.clone(),
        };
        Actor::start(&self.program, &casting, &self.board).await
    }
}

/// What a launcher starts, without keeping others waiting.
pub async fn started<T: Send + 'static>(launch: fn() -> T) -> Result<T> {
    let started = tokio::task::spawn_blocking(launch).await;
    started.context(words::NO_SERVER)
}
