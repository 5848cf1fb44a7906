//! What all verbs of a store share: the cluster, its settings, and how requests are made.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::claims::{Claims, Entry};
use super::client::Client;
use super::client::messages::{
    Compare, KeyValue, Operation, RangeRequest, RangeResponse, TxnRequest, TxnResponse, after,
};
use super::client::watches::{Range, Watching};
use super::config::Settings;
use super::data::{Data, Fence};
use super::fault::{self, Fault};
use super::keys::Keys;
use super::line::Line;
use super::session::{Session, Sessions};
use super::tokens::{Base, Step, Tokens};
use crate::clock::{Clock, Moment};
use crate::store::common::HintBoard;
use crate::store::common::json::{Fields, number};
use crate::store::{Capabilities, Claim, Process};
use crate::{Error, Name};

/// How many names that were found busy are remembered.
const MOST_BUSY: usize = 4096;
/// For how long a name that was found busy is looked at before it is tried.
const BUSY_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Core {
    pub client: Client,
    pub settings: Settings,
    pub capabilities: Capabilities,
    pub process: Process,
    pub hints: HintBoard,
    pub claims: Arc<Claims>,
    pub sessions: Sessions,
    tokens: Mutex<Tokens>,
    /// When a name was last found busy.
    busy: Mutex<HashMap<Name, Moment>>,
    numbers: AtomicU64,
    clock: Clock,
}

impl Core {
    pub fn new(client: Client, settings: Settings, capabilities: Capabilities) -> Core {
        Core {
            client,
            settings,
            capabilities,
            process: Process::current(),
            hints: HintBoard::default(),
            claims: Arc::default(),
            sessions: Sessions::default(),
            tokens: Mutex::default(),
            busy: Mutex::default(),
            numbers: AtomicU64::new(0),
            clock: Clock::real(),
        }
    }

    pub fn keys(&self) -> &Keys {
        &self.settings.keys
    }

    pub fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The wall clock, in microseconds.
    pub fn wall_micros(&self) -> u64 {
        self.clock.unix_micros()
    }

    /// A number that no other key of this store has.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reads a range as it is now, by the quorum.
    pub async fn list(&self, prefix: &[u8], keys_only: bool) -> Result<Vec<KeyValue>, Fault> {
        let request = RangeRequest {
            key: prefix.to_vec(),
            range_end: after(prefix),
            keys_only,
            count_only: false,
        };
        let answer: Result<RangeResponse, _> = self
            .client
            .call("/etcdserverpb.KV/Range", request, Moment::NEVER)
            .await;
        Ok(answer.map_err(fault::of_read)?.kvs)
    }

    /// The contenders of a name, as they are now.
    pub async fn line(&self, name: &Name, keys_only: bool) -> Result<Line, Fault> {
        let below = self.keys().name(name);
        let keys = self.list(&below, keys_only).await?;
        Ok(Line::of(&below, keys))
    }

    /// Reads keys in one request.
    pub async fn read(&self, reads: Vec<Operation>) -> Result<TxnResponse, Fault> {
        let txn = TxnRequest {
            success: reads,
            ..TxnRequest::default()
        };
        let answer = self.client.txn(txn, Moment::NEVER).await;
        answer.map_err(fault::of_read)
    }

    /// Runs a transaction that may change something.
    pub async fn write(&self, txn: TxnRequest, not_after: Moment) -> Result<TxnResponse, Fault> {
        let answer = self.client.txn(txn, not_after).await;
        answer.map_err(fault::of_write)
    }

    /// Runs a transaction and keeps the lease. Returns the answer, when both were sent, and until when the lease lives, if it
    /// is known by this.
    pub async fn prove(
        &self,
        session: &Session,
        txn: TxnRequest,
        not_after: Moment,
    ) -> Result<(TxnResponse, Moment, Option<Moment>), Fault> {
        let proved = self
            .client
            .prove(session.id, session.ttl, txn, not_after)
            .await;
        match proved {
            Ok(proved) => {
                let until = session.learn(&proved);
                Ok((proved.answer, proved.sent, until))
            }
            Err(failure) => {
                let fault = fault::of_write(failure);
                if fault == Fault::NoLease {
                    session.end();
                }
                Err(fault)
            }
        }
    }

    /// What a transaction that creates a key has to do with the base of tokens.
    pub async fn step(&self) -> Result<Step, Fault> {
        if let Some(step) = self.tokens().step(self.wall_micros()) {
            return Ok(step);
        }
        let answer = self.read(vec![Operation::get(&self.keys().base())]).await?;
        let revision = answer.revision();
        let found = answer.lists().next().unwrap_or_default();
        self.learn_base(&found, revision)?;
        let step = self.tokens().step(self.wall_micros());
        step.ok_or_else(|| fault::odd("no base"))
    }

    /// Learns the base from what was read.
    pub fn learn_base(&self, found: &[KeyValue], revision: i64) -> Result<(), Fault> {
        let base = match found.first() {
            None => Base {
                written: 0,
                micros: 0,
            },
            Some(kv) => {
                let micros = Fields::read(&kv.value).and_then(|fields| fields.number("base"));
                Base {
                    written: kv.mod_revision,
                    micros: micros.ok_or_else(|| {
                        super::config::KIND.refused(format!(
                            "the key {:?} is not what keepers write there; delete it if nobody holds",
                            String::from_utf8_lossy(&kv.key)
                        ))
                    })?,
                }
            }
        };
        self.tokens().learn(base, revision);
        Ok(())
    }

    /// What compares the base, and what writes it if the step does.
    pub fn base_part(&self, step: &Step) -> (Compare, Option<Operation>) {
        let key = self.keys().base();
        let write = step.writes.then(|| {
            let mut json = String::from("{");
            number(&mut json, "base", step.micros);
            json.push('}');
            Operation::put(&key, json.into_bytes(), 0)
        });
        (Compare::modified(&key, step.written), write)
    }

    /// What the key of a claim says.
    pub fn data(&self, claim: &Claim, fence: Fence, tokens: u32, since_millis: u64) -> Data {
        Data {
            claim: claim.id,
            process: self.process.clone(),
            mode: claim.mode,
            lease: claim.lease,
            fence,
            tokens,
            label: claim.label.clone(),
            since_millis,
        }
    }

    /// What the key of an entry says under this lease.
    pub fn data_of(&self, entry: &Entry, lease: Duration) -> Data {
        let claim = entry.claim.clone().with_lease(lease);
        self.data(&claim, entry.fence, entry.grant.tokens, entry.since_millis)
    }

    /// Watches what is below a name: that keys go, or also that they come.
    pub fn watch_name(&self, name: &Name, puts: bool) -> Watching {
        let from = self.keys().name(name);
        self.client.watches.watch(Range {
            end: after(&from),
            from,
            puts,
        })
    }

    /// A name was found busy, or free.
    pub fn found(&self, name: &Name, busy: bool) {
        let mut known = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if busy {
            let now = Moment::now();
            if known.len() >= MOST_BUSY {
                known.retain(|_, since| now.since(*since) < BUSY_FOR);
            }
            known.insert(name.clone(), now);
        } else if !known.is_empty() {
            known.remove(name);
        }
    }

    /// Whether a name was found busy not long ago.
    pub fn was_busy(&self, name: &Name) -> bool {
        let known = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(name)
            .is_some_and(|since| Moment::now().since(*since) < BUSY_FOR)
    }
}

/// What a verb returns for a fault, where `TooLate` has a value of its own.
pub fn answer<T>(outcome: Result<T, Fault>, too_late: T) -> Result<T, Error> {
    match outcome {
        Ok(value) => Ok(value),
        Err(Fault::TooLate) => Ok(too_late),
        Err(Fault::NoLease) => Err(super::config::KIND.unavailable("the lease ended meanwhile")),
        Err(Fault::Store(error)) => Err(error),
    }
}
