//! Judges a node on every new connection: whether it may be one, and from when on it votes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::Value;

use super::STORE;
use super::known::Known;
use super::protocol::{Admission, Check, Quarantine, Terms};
use super::scripts;
use crate::clock::Moment;
use crate::store::Answer;
use crate::store::redis::answer;
use crate::store::redis::checks::ServerInfo;
use crate::store::redis::fault::explain;
use crate::store::redis::node::{Socket, Vet};
use crate::{Error, SETUP_TARGET};

/// Where a node has the longest lease of its clients.
pub(super) const RECORD: &str = "lockkeeper_quorum";

pub(super) struct Gate {
    pub number: usize,
    pub addresses: Arc<[String]>,
    pub terms: Terms,
    pub known: Arc<Known>,
    pub quarantine: Mutex<Quarantine<String>>,
}

impl Gate {
    /// The gate of a node by itself.
    #[cfg(any(test, feature = "internals"))]
    pub fn alone(address: String, terms: Terms) -> Gate {
        Gate {
            number: 0,
            addresses: Arc::from([address]),
            terms,
            known: Arc::new(Known::of(1)),
            quarantine: Mutex::default(),
        }
    }

    fn address(&self) -> &str {
        &self.addresses[self.number]
    }

    fn quarantine(&self) -> MutexGuard<'_, Quarantine<String>> {
        self.quarantine
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which server it is, unless another address leads to it as well.
    fn note(&self, run: &str) -> Result<(), Error> {
        let Err(other) = self.known.is_run(self.number, run) else {
            return Ok(());
        };
        let error = refused(format!(
            "{} is the same server as {}; each node is a server of its own, or one would vote twice",
            self.address(),
            self.addresses[other]
        ));
        self.known.are_twins(error.clone());
        Err(error)
    }

    /// What the node has recorded. It is asked by a script, as whatever else is: a user that may run none is found out here.
    async fn recorded(&self, connection: &mut Socket) -> Result<Option<Duration>, Error> {
        let recorded: Value = ::redis::cmd("EVAL")
            .arg(scripts::JOIN.usual.text)
            .arg(1)
            .arg(RECORD)
            .arg("")
            .query_async(connection)
            .await
            .map_err(|error| explain(&error))?;
        read_record(&recorded)
    }
}

/// The longest lease that a node has recorded, if it has.
pub(super) fn read_record(recorded: &Value) -> Result<Option<Duration>, Error> {
    if *recorded == Value::Nil {
        return Ok(None);
    }
    match answer::text(recorded)?.parse() {
        Ok(longest) => Ok(Some(Duration::from_millis(longest))),
        Err(_) => Err(refused(format!(
            "its key {RECORD:?} is used for something else, and has to be deleted"
        ))),
    }
}

/// Why a server cannot be a node. Which one it is stands before it.
fn refused(reason: String) -> Error {
    Error::refused(STORE, reason)
}

/// Why a node is of no use to a client with another longest lease.
pub(super) fn differs(recorded: Duration, terms: &Terms) -> String {
    format!(
        "its clients have agreed on max_lease={recorded:?}, and this one has max_lease={:?}; use theirs, or stop all of them, \
         wait for that long and delete the key {RECORD:?} on every node that has it",
        terms.max_lease
    )
}

impl Vet for Gate {
    fn look(&self, info: &ServerInfo) -> Result<(), Error> {
        if info.role.as_deref().is_some_and(|role| role != "master") {
            self.demoted();
            return Err(refused(
                "it is a replica; the nodes of a quorum are masters that know nothing of each other".into(),
            ));
        }
        if info.run_id.is_none() || info.uptime.is_none() {
            let reason = match info.version {
                None => {
                    "it does not say for how long it is up, as its ACL does not allow INFO; add +info to the user"
                }
                Some(_) => {
                    "its INFO has no run_id or no uptime_in_seconds, so that a restart would not be seen"
                }
            };
            return Err(refused(reason.into()));
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

    fn demoted(&self) {
        self.quarantine().is_replica();
    }

    fn admit<'a>(
        &'a self,
        connection: &'a mut Socket,
        info: &'a ServerInfo,
        now: u64,
    ) -> Answer<'a, Admission> {
        Box::pin(async move {
            let run = info.run_id.clone().unwrap_or_default();
            self.note(&run)?;
            let record = self.recorded(connection).await?;
            let uptime = Duration::from_secs(info.uptime.unwrap_or(0));
            self.known.connected(self.number, record, uptime);
            if let Some(other) = record.filter(|longest| *longest != self.terms.max_lease) {
                return Err(refused(differs(other, &self.terms)));
            }
            let check = Check {
                run,
                uptime,
                now,
                record,
            };
            let admission = self
                .quarantine()
                .connected(&self.terms, check, Moment::now());
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
