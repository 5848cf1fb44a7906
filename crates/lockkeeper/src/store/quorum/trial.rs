//! One node's requests on a real server, for the test that compares the scripts to [`protocol::Node`](Node).

use std::sync::Arc;
use std::time::Duration;

use super::dialect::{Asked, Dialect, LettingGo};
use super::gate::Gate;
use super::node;
use super::protocol::{Added, Ask, Life, RoundId, Run, Terms, Vote};
use crate::clock::Moment;
use crate::store::Mode;
use crate::store::redis::node::{NodeLink, NodeSettings, Ticket};
use crate::url::StoreUrl;
use crate::{Error, Name};

#[cfg(doc)]
use super::protocol::Node;

/// A node and one name on it.
pub struct Trial {
    node: Arc<node::Node>,
    dialect: Arc<Dialect>,
    name: Name,
}

impl std::fmt::Debug for Trial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Trial({:?})", self.name)
    }
}

fn silent(silence: node::Silence) -> Error {
    Error::unavailable(super::STORE, silence.reason())
}

impl Trial {
    /// Connects to one server.
    pub async fn open(url: &str, name: &str, terms: Terms) -> Result<Trial, Error> {
        let settings = NodeSettings::parse(&StoreUrl::parse(url)?)?;
        let dialect = Arc::new(Dialect::new(&settings, "who".into(), &terms));
        let gate = Gate::alone(settings.address(), terms);
        let (link, first) = NodeLink::start(&settings, "trial".into(), Arc::new(gate));
        first.await.map_err(|_| Error::Closed)??;
        link.settled().await;
        let (address, timeout) = (settings.address(), Duration::from_secs(10));
        Ok(Trial {
            node: node::Node::start(link, address, dialect.clone(), timeout),
            dialect,
            name: Name::new(name)?,
        })
    }

    fn ticket(&self) -> Result<Ticket, Error> {
        let ticket = self.node.ticket();
        ticket.map_err(|reason| silent(node::Silence::Lost(reason)))
    }

    async fn vote(&self, ask: Ask, re_add: bool) -> Result<Vote, Error> {
        let keys = self.dialect.keys(&self.name)?;
        let vote = self
            .dialect
            .vote(&self.node, self.ticket()?, &keys, ask, None, re_add);
        vote.await.map_err(silent)
    }

    /// As [`Node::acquire`].
    pub async fn acquire(&self, ask: Ask) -> Result<Vote, Error> {
        self.vote(ask, false).await
    }

    /// As [`Node::re_add`].
    pub async fn re_add(
        &self,
        round: RoundId,
        mode: Mode,
        run: Run,
        lease: Duration,
    ) -> Result<Added, Error> {
        let ask = Ask {
            round,
            mode,
            lease,
            run,
            floor: 0,
            not_after: None,
            beside: None,
        };
        Ok(match self.vote(ask, true).await? {
            Vote::Yes => Added::Added,
            _ => Added::Busy,
        })
    }

    /// As [`Node::renew`].
    pub async fn renew(&self, round: RoundId, lease: Duration) -> Result<Life, Error> {
        let asked = Asked {
            main: self.dialect.keys(&self.name)?.main,
            claim: round.claim,
            round: round.number,
            lease,
            not_after: Moment::NEVER,
        };
        let asked = Arc::from([asked]);
        let lives = self.dialect.renew(&self.node, self.ticket()?, asked);
        let lives = lives.await.map_err(silent)?;
        Ok(lives.first().copied().unwrap_or(Life::Silent))
    }

    /// As [`Node::release`].
    pub async fn release(&self, round: RoundId, run: Run) -> Result<Life, Error> {
        let what = LettingGo {
            round,
            run: Some(run),
        };
        let life = self
            .dialect
            .let_go(&self.node, self.ticket()?, &self.name, what);
        life.await.map_err(silent)
    }
}
