//! One node: requests to it, whether it keeps up, and what it is owed.
//!
//! A node that is silent for longer than a request may take is *behind*: it is asked nothing more until it has answered
//! something, so that nothing piles up in front of it, except that a hold was let go of: that arrives also when this
//! process has ended by then. Where there is no connection, it is *owed* that: it is told when it is back.

mod debts;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ::redis::Value;
use tokio::sync::Notify;

use self::debts::{Owed, pay_off};
use super::dialect::Dialect;
use super::protocol::Admission;
use crate::Error;
use crate::clock::Moment;
use crate::store::common::AbortOnDrop;
use crate::store::redis::fault::Fault;
use crate::store::redis::node::{Call, NodeLink, Ticket};
use crate::store::{ClaimId, NodeState, NodeStatus};

/// How many requests may be under way: far more than a node that keeps up ever has.
const MOST_UNDER_WAY: usize = 4096;

pub(super) struct Node {
    pub address: String,
    pub link: NodeLink,
    pub dialect: Arc<Dialect>,
    timeout: Duration,
    /// The number of the connection on which it is behind; 0 if it is not.
    behind: AtomicU64,
    /// The number of the connection over which it was sent the script that lets go, in full.
    taught: AtomicU64,
    /// The number of the connection over which it was found to have our longest lease on record, after it had none.
    agreed: AtomicU64,
    /// Why it has none.
    unagreed: Mutex<String>,
    /// How many requests are.
    under_way: AtomicUsize,
    owed: Mutex<HashMap<ClaimId, Owed>>,
    /// Something is owed, or the node is back.
    look: Notify,
    courier: OnceLock<AbortOnDrop>,
}

/// Why a node has no answer.
#[derive(Clone, Debug)]
pub(super) enum Silence {
    /// The request, or its answer, was lost.
    Lost(String),
    /// It answered that it cannot.
    Refused(String),
}

impl Silence {
    pub fn reason(self) -> String {
        match self {
            Silence::Lost(reason) | Silence::Refused(reason) => reason,
        }
    }
}

impl From<Fault> for Silence {
    fn from(fault: Fault) -> Silence {
        match fault {
            Fault::Server(_) => Silence::from(fault.of_look()),
            Fault::Lost(reason) => Silence::Lost(reason),
            Fault::NotSent(away) => Silence::Lost(away.reason),
        }
    }
}

impl From<Error> for Silence {
    fn from(error: Error) -> Silence {
        Silence::Refused(match error {
            Error::Unavailable { reason, .. } | Error::Refused { reason, .. } => reason,
            other => other.to_string(),
        })
    }
}

impl Node {
    pub fn start(
        link: NodeLink,
        address: String,
        dialect: Arc<Dialect>,
        timeout: Duration,
    ) -> Arc<Node> {
        let node = Arc::new(Node {
            address,
            link,
            dialect,
            timeout,
            behind: AtomicU64::new(0),
            taught: AtomicU64::new(0),
            agreed: AtomicU64::new(0),
            unagreed: Mutex::default(),
            under_way: AtomicUsize::new(0),
            owed: Mutex::default(),
            look: Notify::new(),
            courier: OnceLock::new(),
        });
        let courier = tokio::spawn(pay_off(Arc::downgrade(&node)));
        node.courier.get_or_init(|| AbortOnDrop::of(&courier));
        node
    }

    /// The connection to ask over, or why there is none.
    pub fn ticket(&self) -> Result<Ticket, String> {
        let ticket = self.link.ticket()?;
        if self.behind.load(SeqCst) == ticket.number {
            return Err(format!("it did not answer within {:?}", self.timeout));
        }
        if self.under_way.load(SeqCst) >= MOST_UNDER_WAY {
            return Err("too many requests to it are under way".into());
        }
        Ok(ticket)
    }

    /// The connection on which it is behind, for what it is to hear all the same.
    pub fn behind_on(&self) -> Option<Ticket> {
        let ticket = self.link.ticket().ok()?;
        let has_room = self.under_way.load(SeqCst) < MOST_UNDER_WAY;
        (has_room && self.behind.load(SeqCst) == ticket.number).then_some(ticket)
    }

    /// Asks over this connection.
    pub async fn ask(self: Arc<Node>, ticket: Ticket, call: Call) -> Result<Value, Silence> {
        let number = ticket.number;
        let _under_way = UnderWay::of(&self);
        let answer = self.link.run(ticket, &call).await;
        self.heard(number, &answer);
        answer.map_err(Silence::from)
    }

    /// Whether this is the first time that it is asked to let go over this connection.
    pub fn to_be_taught(&self, ticket: &Ticket) -> bool {
        self.taught.swap(ticket.number, SeqCst) != ticket.number
    }

    /// A request is on its way.
    pub fn sending(&self) {
        self.under_way.fetch_add(1, SeqCst);
    }

    /// A request was answered, or lost.
    pub fn sent(&self, number: u64, answer: &Result<Value, Fault>) {
        self.under_way.fetch_sub(1, SeqCst);
        self.heard(number, answer);
    }

    fn heard(&self, number: u64, answer: &Result<Value, Fault>) {
        if matches!(answer, Ok(_) | Err(Fault::Server(_))) {
            self.answered(number);
        }
    }

    fn answered(&self, number: u64) {
        if self.behind.load(SeqCst) == 0 {
            return;
        }
        let caught_up = self.behind.compare_exchange(number, 0, SeqCst, SeqCst);
        if caught_up.is_ok() {
            tracing::info!(node = self.address, "the node answers again");
            self.look.notify_one();
        }
    }

    /// It has not answered a request in time.
    pub fn overdue(self: &Arc<Node>) {
        let Ok(ticket) = self.link.ticket() else {
            return;
        };
        if self.behind.swap(ticket.number, SeqCst) == ticket.number {
            return;
        }
        tracing::warn!(
            node = self.address,
            "the node did not answer within {:?}; it is asked again when it does",
            self.timeout
        );
        // What it has not answered may have been on a connection before this one, and have ended with it.
        let node = Arc::downgrade(self);
        self.link.runtime().spawn(async move {
            let answers = ticket.answers().await;
            if let (true, Some(node)) = (answers, node.upgrade()) {
                node.answered(ticket.number);
            }
        });
    }

    /// Whether it has the same longest lease on record as this client, and so may vote for it.
    pub fn agrees(&self, ticket: &Ticket) -> bool {
        ticket.admission.agrees || self.agreed.load(SeqCst) == ticket.number
    }

    /// It has the record now.
    pub fn is_agreed(&self, ticket: &Ticket) {
        self.agreed.store(ticket.number, SeqCst);
    }

    /// It has no record, for this reason.
    pub fn is_unagreed(&self, reason: String) {
        *self.unagreed.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Why it has no record.
    pub fn why_unagreed(&self) -> String {
        let reason = self.unagreed.lock().unwrap_or_else(PoisonError::into_inner);
        match reason.is_empty() {
            true => "it has no record of max_lease yet".into(),
            false => reason.clone(),
        }
    }

    /// Whether it can be asked and may not vote.
    pub fn sits_out(&self) -> bool {
        let admission = self.admission();
        admission.is_some_and(|admission| admission.sits_out(Moment::now()).is_some())
    }

    /// Whether it can be asked, and has restarted and voted for nobody since.
    pub fn forgot(&self) -> bool {
        let admission = self.admission();
        admission.is_some_and(|admission| admission.forgot(Moment::now()))
    }

    /// From when on it votes, if it can be asked.
    fn admission(&self) -> Option<Admission> {
        let (number, admission) = self.link.admission()?;
        (self.behind.load(SeqCst) != number).then_some(admission)
    }

    pub fn status(&self) -> NodeStatus {
        let state = match self.link.ticket() {
            // It stands behind the node's address.
            Err(reason) => NodeState::Down {
                reason: match reason.strip_prefix(&self.address) {
                    Some(rest) => rest.trim_start_matches([':', ' ']).to_owned(),
                    None => reason,
                },
            },
            Ok(ticket) if self.behind.load(SeqCst) == ticket.number => NodeState::Behind,
            Ok(ticket) if !self.agrees(&ticket) => NodeState::NotVoting {
                reason: self.why_unagreed(),
            },
            Ok(ticket) => match ticket.admission.sits_out(Moment::now()) {
                Some(ready_in) => NodeState::SittingOut { ready_in },
                None => NodeState::Up,
            },
        };
        NodeStatus {
            node: self.address.clone(),
            state,
        }
    }
}

/// A request under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl UnderWay<'_> {
    fn of(node: &Node) -> UnderWay<'_> {
        node.sending();
        UnderWay(&node.under_way)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
