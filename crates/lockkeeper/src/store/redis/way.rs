//! One try of a verb at one server.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use ::redis::{Cmd, RedisError, Value};

use super::batch::Op;
use super::connection::Connection;
use super::fault::{Fault, words};
use super::scripts::Script;
use super::slots::redirected;
use crate::store::common::Address;

/// A way to a server, that remembers if the server sent us elsewhere.
#[derive(Debug)]
pub(super) struct Way<'a> {
    server: Server<'a>,
    /// Whether a node is to take requests although their slot is still on its way there.
    asking: bool,
    elsewhere: Mutex<Option<Elsewhere>>,
}

#[derive(Debug)]
enum Server<'a> {
    Only(&'a Connection),
    Node(Arc<Connection>),
}

/// What a node of a cluster said instead of running a script.
#[derive(Debug)]
pub(super) enum Elsewhere {
    /// Another node serves the slot.
    Moved(Address),
    /// The slot is on its way to another node, and what was asked about has arrived there.
    Ask(Address),
    /// The slot is on its way to another node, and only a part has arrived there.
    TryAgain,
}

impl<'a> Way<'a> {
    pub fn to(connection: &'a Connection) -> Way<'a> {
        Way {
            server: Server::Only(connection),
            asking: false,
            elsewhere: Mutex::default(),
        }
    }

    pub fn to_node(node: Arc<Connection>, asking: bool) -> Way<'a> {
        Way {
            server: Server::Node(node),
            asking,
            elsewhere: Mutex::default(),
        }
    }

    /// Runs a script: `write` adds keys and arguments, the number of keys first.
    pub async fn run(&self, script: &Script, write: impl Fn(&mut Cmd)) -> Result<Value, Fault> {
        let answer = (**self).run(script, self.asking, write).await;
        match answer {
            Err(Fault::Server(error)) => Err(self.judge(error)),
            answer => answer,
        }
    }

    /// Runs a verb: alone on a node of a cluster, elsewhere perhaps with others.
    pub async fn run_verb(&self, op: Op<'_>) -> Result<Value, Fault> {
        match &self.server {
            Server::Only(connection) => connection.run_verb(&op).await,
            Server::Node(_) => self.run_alone(op).await,
        }
    }

    /// Runs a verb by itself.
    pub async fn run_alone(&self, op: Op<'_>) -> Result<Value, Fault> {
        let write = |cmd: &mut Cmd| op.write(cmd, self.batch());
        self.run(op.verb.script, write).await
    }

    fn judge(&self, error: RedisError) -> Fault {
        let redirect = || {
            let (to, _slot) = error.redirect_node()?;
            redirected(to, &self.address())
        };
        let elsewhere = match error.code() {
            Some("MOVED") => redirect().map(Elsewhere::Moved),
            Some("ASK") => redirect().map(Elsewhere::Ask),
            Some("TRYAGAIN") => Some(Elsewhere::TryAgain),
            // It ran until it came to a key that is elsewhere.
            _ if words(&error).contains("non local key") => return Fault::Lost(words(&error)),
            _ => None,
        };
        *self.lock() = elsewhere;
        Fault::Server(error)
    }

    /// Something was done: it is not to be tried again elsewhere.
    pub fn stay(&self) {
        *self.lock() = None;
    }

    /// Where the server sent us, having done nothing.
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Elsewhere>> {
        self.elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Way<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        match &self.server {
            Server::Only(connection) => connection,
            Server::Node(connection) => connection,
        }
    }
}
