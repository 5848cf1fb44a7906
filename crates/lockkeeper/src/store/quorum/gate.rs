//! Judges a node on every new connection: whether it may be one, and from when on it votes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;

use super::STORE;
use super::protocol::{Admission, Check, Quarantine, Terms};
use super::scripts;
use crate::clock::Moment;
use crate::store::Answer;
use crate::store::redis::checks::ServerInfo;
use crate::store::redis::fault::explain;
use crate::store::redis::node::Vet;
use crate::{Error, SETUP_TARGET};

/// Where a node has the longest lease of its clients.
pub(super) const RECORD: &str = "lockkeeper_quorum";

/// Which run each node is of, as last seen: two addresses of one server would make it vote twice.
pub(super) type Runs = Arc<Mutex<Vec<Option<String>>>>;

pub(super) struct Gate {
    pub number: usize,
    pub addresses: Arc<[String]>,
    pub terms: Terms,
    pub runs: Runs,
    pub quarantine: Mutex<Quarantine<String>>,
}

impl Gate {
    /// The gate of a node by itself.
    pub fn alone(address: String, terms: Terms) -> Gate {
        Gate {
            number: 0,
            addresses: Arc::from([address]),
            terms,
            runs: Arc::new(Mutex::new(vec![None])),
            quarantine: Mutex::default(),
        }
    }

    fn address(&self) -> &str {
        &self.addresses[self.number]
    }

    fn refused(&self, reason: String) -> Error {
        Error::Refused {
            store: STORE,
            reason: format!("{}: {reason}", self.address()),
        }
    }

    /// Notes which server it is, unless another address leads to it as well.
    fn note(&self, run: &str) -> Result<(), Error> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let other = runs.iter().position(|known| known.as_deref() == Some(run));
        match other {
            Some(other) if other != self.number => Err(self.refused(format!(
                "it is the same server as {}; each node is a server of its own, or one would vote twice",
                self.addresses[other]
            ))),
            _ => {
                runs[self.number] = Some(run.to_owned());
                Ok(())
            }
        }
    }

    async fn agree(&self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        let ours = self.terms.max_lease.as_millis() as u64;
        let recorded: u64 = ::redis::cmd("EVAL")
            .arg(scripts::JOIN.usual.text)
            .arg(1)
            .arg(RECORD)
            .arg(ours)
            .query_async(connection)
            .await
            .map_err(|error| explain(&error))?;
        if recorded == ours {
            return Ok(());
        }
        Err(self.refused(format!(
            "its clients have agreed on max_lease={:?}, and this one has max_lease={:?}; use theirs, or stop all of them, \
             wait for that long and delete the key {RECORD:?} on every node",
            Duration::from_millis(recorded),
            self.terms.max_lease
        )))
    }
}

impl Vet for Gate {
    fn look(&self, info: &ServerInfo) -> Result<(), Error> {
        if info.role.as_deref().is_some_and(|role| role != "master") {
            return Err(self.refused(
                "it is a replica; the nodes of a quorum are masters that know nothing of each other".into(),
            ));
        }
        if info.run_id.is_none() || info.uptime.is_none() {
            return Err(self.refused(
                "it does not say for how long it is up, as its ACL does not allow INFO; add +info to the user".into(),
            ));
        }
        if info.replicas.is_some_and(|replicas| replicas > 0) {
            tracing::warn!(
                target: SETUP_TARGET,
                node = self.address(),
                "the node has replicas; if one takes its place, it may have forgotten locks that are held"
            );
        }
        Ok(())
    }

    fn admit<'a>(
        &'a self,
        connection: &'a mut MultiplexedConnection,
        info: &'a ServerInfo,
        now: u64,
    ) -> Answer<'a, Admission> {
        Box::pin(async move {
            let run = info.run_id.clone().unwrap_or_default();
            self.note(&run)?;
            self.agree(connection).await?;
            let check = Check {
                run,
                uptime: Duration::from_secs(info.uptime.unwrap_or(0)),
                now,
            };
            let mut quarantine = self.quarantine.lock();
            let quarantine = quarantine.as_mut().map_err(|_| Error::Closed)?;
            let admission = quarantine.connected(&self.terms, check, Moment::now());
            if let Some(left) = admission.sits_out(Moment::now()) {
                tracing::warn!(
                    node = self.address(),
                    ?left,
                    "the node has started not long ago and may have forgotten locks; it sits out"
                );
            }
            Ok(admission)
        })
    }
}
