//! A small client of etcd's: one connection to one member at a time, another member when that one fails.
//!
//! Nothing is queued while there is no connection: a request that cannot be sent now fails with [`Failure::NotSent`], and
//! nothing of it can happen later. What was sent and not answered is [`Failure::InDoubt`].
//!
//! `messages` are those of the protocol, `link` is a connection, `watches` is what the members are asked to tell of.

mod link;
pub mod messages;
pub mod watches;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prost::Message;
use tokio::sync::{mpsc, watch};
use tonic::Code;

pub use self::link::Link;
use self::messages::{TxnRequest, TxnResponse};
use self::watches::Watches;
use crate::Error;
use crate::clock::Moment;
use crate::store::common::{AbortOnDrop, Address, Backoff, Credentials, StoreKind, Trust};

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing was sent, or nothing was done, and nothing will be.
    NotSent(String),
    /// It was sent, and may have been done, or be done yet.
    InDoubt(String),
    /// A member refused, and nothing was done.
    Status(Code, String),
    /// It was not sent, as its time had passed.
    TooLate,
}

/// How to reach the members.
#[derive(Clone, Debug)]
pub struct Way {
    pub kind: StoreKind,
    pub members: Vec<Address>,
    pub credentials: Credentials,
    pub tls: Option<Trust>,
    /// How long a connection may take until it is ready.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// What happens that nobody asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// These keys of a watched range were deleted; none if something was put.
    Changed(watches::Range, Vec<Vec<u8>>),
    /// A watch stood still for a time: anything may have happened in its range.
    Missed(watches::Range),
    /// The connection was lost.
    Lost,
}

/// Whether there is a connection.
#[derive(Clone, Debug, Default)]
struct State {
    link: Option<Arc<Link>>,
    trouble: String,
}

#[derive(Debug)]
struct Shared {
    way: Way,
    state: watch::Sender<State>,
    /// The cluster that was met first. A member of another has other locks.
    cluster: Mutex<Option<u64>>,
    events: mpsc::UnboundedSender<Event>,
}

/// A keeper's access to the cluster.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    pub watches: Arc<Watches>,
    _driver: AbortOnDrop,
}

/// What came of a transaction that was sent together with a keep-alive.
#[derive(Clone, PartialEq, Debug)]
pub struct Proved {
    pub answer: TxnResponse,
    /// When both were sent.
    pub sent: Moment,
    pub lease: Proof,
}

/// What is known of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// It lives for so long from when the keep-alive was sent: the keep-alive and the transaction were answered in one term, so
    /// the leader that kept the lease had the quorum after that.
    Lives(Duration),
    /// There is no such lease any more.
    Gone,
    /// Nothing is known.
    Unknown,
}

impl Proof {
    /// What a keep-alive and a transaction that were sent together prove: the time of the lease and the term in which that was
    /// said, if it was.
    fn of(kept: Option<(i64, u64)>, answer: &TxnResponse) -> Proof {
        match kept {
            // A leader that is new may not know the lease yet, while the transaction has seen its keys.
            Some((ttl, _)) if ttl <= 0 && answer.succeeded => Proof::Unknown,
            Some((ttl, _)) if ttl <= 0 => Proof::Gone,
            Some((ttl, term)) if term == answer.term() => {
                Proof::Lives(Duration::from_secs(ttl.unsigned_abs()))
            }
            _ => Proof::Unknown,
        }
    }
}

impl Client {
    /// Connects to one of the members.
    pub async fn open(way: Way) -> Result<(Client, mpsc::UnboundedReceiver<Event>), Error> {
        let (events, listener) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            way,
            state: watch::Sender::new(State::default()),
            cluster: Mutex::default(),
            events: events.clone(),
        });
        let first = shared.connect(0).await?;
        let watches = Arc::new(Watches::new(events));
        shared.state.send_replace(State {
            link: Some(first.1.clone()),
            trouble: String::new(),
        });
        let driver = tokio::spawn(drive(shared.clone(), Arc::downgrade(&watches), first));
        Ok((
            Client {
                shared,
                watches,
                _driver: AbortOnDrop::of(&driver),
            },
            listener,
        ))
    }

    /// Waits for a connection for a while, if there is none.
    pub async fn link(&self, patience: Duration) -> Result<Arc<Link>, Failure> {
        let mut state = self.shared.state.subscribe();
        let usable = |state: &State| {
            let link = state.link.as_ref();
            link.is_some_and(|link| link.over().is_none())
        };
        let found = tokio::time::timeout(patience, state.wait_for(usable)).await;
        if let Ok(Ok(state)) = found
            && let Some(link) = &state.link
        {
            return Ok(link.clone());
        }
        let trouble = self.shared.state.borrow().trouble.clone();
        Err(Failure::NotSent(if trouble.is_empty() {
            "there is no connection".into()
        } else {
            trouble
        }))
    }

    /// Asks for one thing.
    pub async fn call<Q, A>(
        &self,
        path: &'static str,
        message: Q,
        not_after: Moment,
    ) -> Result<A, Failure>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let link = self.link(PATIENCE.min(not_after.remaining())).await?;
        if Moment::now() > not_after {
            return Err(Failure::TooLate);
        }
        link.call(path, message, self.shared.way.timeout).await
    }

    /// Runs a transaction.
    pub async fn txn(&self, txn: TxnRequest, not_after: Moment) -> Result<TxnResponse, Failure> {
        self.call("/etcdserverpb.KV/Txn", txn, not_after).await
    }

    /// Runs a transaction, and has the lease kept at the same time by the same member.
    pub async fn prove(
        &self,
        lease: i64,
        ttl: Duration,
        txn: TxnRequest,
        not_after: Moment,
    ) -> Result<Proved, Failure> {
        let link = self.link(PATIENCE.min(not_after.remaining())).await?;
        let sent = Moment::now();
        if sent > not_after {
            return Err(Failure::TooLate);
        }
        let limit = self.shared.way.timeout.min(within(ttl));
        let (kept, answer) = tokio::join!(
            link.keep_alive(lease, limit),
            link.call::<_, TxnResponse>("/etcdserverpb.KV/Txn", txn, limit)
        );
        let answer = answer?;
        let lease = Proof::of(kept.ok(), &answer);
        Ok(Proved {
            answer,
            sent,
            lease,
        })
    }
}

/// How long a verb waits for a connection before it says that there is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long an answer may take when a lease of this length depends on it: another member has to be found in time.
fn within(ttl: Duration) -> Duration {
    (ttl / 4).max(Duration::from_secs(1))
}

/// Refuses what is too old to work, and warns of what has known mistakes with leases.
fn check_version(version: &str, server: &Address, kind: &StoreKind) -> Result<(), Error> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>());
    let mut next = || parts.next().and_then(Result::ok).unwrap_or_default();
    let version_numbers = (next(), next(), next());
    if version_numbers < (3, 4, 0) {
        return Err(kind.refused(format!(
            "{server} is etcd {version}, which is too old; use 3.4 or newer"
        )));
    }
    let fixed_in = match version_numbers {
        (3, 4, _) => (3, 4, 31),
        (3, 5, _) => (3, 5, 13),
        _ => return Ok(()),
    };
    if version_numbers < fixed_in {
        tracing::info!(
            target: crate::SETUP_TARGET,
            %server,
            version,
            "a stalled leader of this version of etcd keeps leases alive that others have ended; what keepers hold is safe from \
             it, and other clients are not: update to {}.{}.{}",
            fixed_in.0, fixed_in.1, fixed_in.2
        );
    }
    Ok(())
}

impl Shared {
    /// Connects to a member, beginning with this one. Returns which one it was.
    async fn connect(&self, first: usize) -> Result<(usize, Arc<Link>), Error> {
        let members = &self.way.members;
        let mut failed = None;
        for at in 0..members.len() {
            let at = (first + at) % members.len();
            match self.way.open(&members[at]).await {
                Ok(link) => match self.same_cluster(&link) {
                    Ok(()) => return Ok((at, link)),
                    Err(error) => failed = Some(error),
                },
                // A member that can never be used hides no other's trouble.
                Err(error @ Error::Refused { .. }) => failed = Some(error),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        Err(failed.unwrap_or(Error::Closed))
    }

    fn same_cluster(&self, link: &Link) -> Result<(), Error> {
        let mut known = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if *known.get_or_insert(link.cluster) == link.cluster {
            Ok(())
        } else {
            Err(self.way.kind.refused(format!(
                "{} is of another cluster than the member before; name the members of one cluster",
                link.server
            )))
        }
    }
}

/// Keeps a connection, for as long as the client is there.
async fn drive(shared: Arc<Shared>, watches: Weak<Watches>, first: (usize, Arc<Link>)) {
    let mut backoff = Backoff::default();
    let (mut at, mut link) = first;
    loop {
        let began = Moment::now();
        let reason = {
            let Some(watches) = watches.upgrade() else {
                return;
            };
            tokio::select! {
                reason = link.ended() => reason,
                () = watches.serve(&link) => "the watches ended".into(),
            }
        };
        tracing::debug!(target: crate::SETUP_TARGET, server = %link.server, reason, "the connection ended");
        shared.state.send_replace(State {
            link: None,
            trouble: reason,
        });
        drop(link);
        let _ = shared.events.send(Event::Lost);
        if Moment::now().since(began) >= Backoff::LONGEST {
            backoff.reset();
        }
        // Another member, if there is one; the same again may be as it was.
        loop {
            match shared.connect(at + 1).await {
                Ok(next) => {
                    (at, link) = next;
                    break;
                }
                Err(error) => {
                    shared
                        .state
                        .send_modify(|state| state.trouble = reason_of(&error));
                    tokio::time::sleep(backoff.pause()).await;
                }
            }
        }
        shared.state.send_replace(State {
            link: Some(link.clone()),
            trouble: String::new(),
        });
    }
}

fn reason_of(error: &Error) -> String {
    match error {
        Error::Unavailable { reason, .. } | Error::Refused { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(succeeded: bool, term: u64) -> TxnResponse {
        TxnResponse {
            header: Some(messages::Header {
                raft_term: term,
                ..messages::Header::default()
            }),
            succeeded,
            responses: Vec::new(),
        }
    }

    /// A leader that was deposed says that the lease lives, and its member answers the transaction once it has heard of the next.
    #[test]
    fn a_keep_alive_of_another_term_proves_nothing() {
        let lives = Proof::Lives(Duration::from_secs(3));
        for (kept, succeeded, proof) in [
            (Some((3, 7)), true, lives),
            (Some((3, 7)), false, lives),
            (Some((3, 6)), true, Proof::Unknown),
            (Some((3, 8)), true, Proof::Unknown),
            (None, true, Proof::Unknown),
            (Some((0, 7)), false, Proof::Gone),
            (Some((-1, 6)), false, Proof::Gone),
            (Some((0, 7)), true, Proof::Unknown),
        ] {
            let found = Proof::of(kept, &answer(succeeded, 7));
            assert_eq!(found, proof, "{kept:?} {succeeded}");
        }
    }

    #[test]
    fn what_is_too_old_is_refused() {
        let server = Address::Tcp("h".into(), 1);
        let check = |version| check_version(version, &server, &super::super::config::KIND);
        assert!(check("3.3.27").is_err() && check("2.3.8").is_err());
        for version in [
            "3.4.0",
            "3.4.23",
            "3.5.13",
            "3.6.14",
            "3.8.0-alpha.0",
            "4.0.0",
        ] {
            assert_eq!(check(version), Ok(()), "{version}");
        }
    }
}
