//! Redlock as it is written every day, over independent servers, with one mistake each.
//!
//! The recipe asks all nodes at once and holds with a majority of them, for what is left of the lease; proposes its
//! token, which a node refuses unless it is higher than any before; gives a failed round back everywhere; and lets a
//! node vote only once it has been up for longer than any lease.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lockkeeper::clock::Moment;
use redis::RedisResult;
use tokio::task::{AbortHandle, JoinSet};
use uuid::Uuid;

use super::belief::Belief;
use super::node::Node;
use crate::checker::Rule;
use crate::random::Random;

/// What a naive quorum lock gets wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuorumMistake {
    /// Nothing.
    None,
    /// Half of the nodes are enough, and others may have the other half.
    Half,
    /// The lease counts from the last answer, however long the round took, and clocks are taken to agree.
    ElapsedIgnored,
    /// A node that restarted without its data votes at once.
    RestartedAtOnce,
    /// What a failed round took is left to expire.
    NotCleanedUp,
}

/// Each mistake, its name, and the rule that a history under the right fault breaks.
pub const QUORUM_MISTAKES: &[(QuorumMistake, &str, Rule)] = &[
    (QuorumMistake::Half, "half-a-quorum", Rule::S1),
    (QuorumMistake::ElapsedIgnored, "elapsed-ignored", Rule::S1),
    (
        QuorumMistake::RestartedAtOnce,
        "restarted-at-once",
        Rule::S1,
    ),
    (QuorumMistake::NotCleanedUp, "not-cleaned-up", Rule::L1),
];

impl QuorumMistake {
    /// The mistake of this name; `right` is none.
    pub fn named(name: &str) -> Option<QuorumMistake> {
        if name == "right" {
            return Some(QuorumMistake::None);
        }
        let mut all = QUORUM_MISTAKES.iter();
        all.find(|(_, of, _)| *of == name)
            .map(|(mistake, ..)| *mistake)
    }
}

/// A lock over several servers.
#[derive(Clone, Debug)]
pub struct NaiveQuorum(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    mistake: QuorumMistake,
    nodes: Vec<Arc<Node>>,
    lease: Duration,
    renewed: bool,
}

/// A hold of a [`NaiveQuorum`]. Dropped, it is renewed no longer.
#[derive(Debug)]
pub struct NaiveQuorumGuard {
    lock: NaiveQuorum,
    id: Arc<str>,
    token: u64,
    belief: Arc<Belief>,
    watchdog: AbortHandle,
}

/// How one round went.
#[derive(Default)]
struct Round {
    yes: usize,
    no: usize,
    /// The highest token that a node has seen.
    highest: u64,
}

impl NaiveQuorum {
    /// A lock with a mistake on the servers of a URL, `redlock://HOST:PORT,…?max_lease=D`.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(
        mistake: QuorumMistake,
        url: &str,
        name: &str,
        lease: Duration,
        renewed: bool,
    ) -> RedisResult<NaiveQuorum> {
        let (hosts, query) = url.split_once('?').unwrap_or((url, ""));
        let hosts = hosts
            .trim_start_matches("redlock://")
            .trim_end_matches("/0");
        let mut options = query.split('&').filter_map(|option| option.split_once('='));
        let max_lease = options
            .find(|(option, _)| *option == "max_lease")
            .and_then(|(_, text)| lockkeeper::duration::parse(text).ok());
        let max_lease = max_lease.unwrap_or(lease);
        let old_enough = match mistake {
            QuorumMistake::RestartedAtOnce => Duration::ZERO,
            _ => max_lease.mul_f64(1.01) + Duration::from_secs(1),
        };
        let node = |host| Node::new(host, name, lease, old_enough).map(Arc::new);
        Ok(NaiveQuorum(Arc::new(Inner {
            mistake,
            nodes: hosts.split(',').map(node).collect::<RedisResult<_>>()?,
            lease,
            renewed,
        })))
    }

    fn enough(&self) -> usize {
        match self.0.mistake {
            QuorumMistake::Half => self.0.nodes.len() / 2,
            _ => self.0.nodes.len() / 2 + 1,
        }
    }

    /// Waits for the lock, for so long; `None` if others have it all the while, or too few nodes answer.
    pub async fn acquire(&self, patience: Duration) -> Option<NaiveQuorumGuard> {
        let end = Moment::now() + patience;
        let mut random = Random::seeded(Moment::now().as_nanos());
        let mut token = 0;
        loop {
            let id: Arc<str> = Uuid::new_v4().to_string().into();
            token = wall_micros().max(token + 1);
            let sent = Moment::now();
            let round = self.ask(Verb::Take(id.clone(), token)).await;
            if round.yes >= self.enough()
                && let Some(until) = self.until(sent)
            {
                return Some(self.guard(id, token, until));
            }
            token = token.max(round.highest);
            if self.0.mistake != QuorumMistake::NotCleanedUp {
                self.ask(Verb::Release(id)).await;
            }
            if Moment::now() >= end {
                return None;
            }
            let pause = random.between(Duration::from_millis(10), Duration::from_millis(40));
            tokio::time::sleep(pause).await;
        }
    }

    /// Until when to believe in what was asked for at `sent` and answered now; `None` if it is over already.
    fn until(&self, sent: Moment) -> Option<Moment> {
        let lease = self.0.lease;
        if self.0.mistake == QuorumMistake::ElapsedIgnored {
            return Some(Moment::now() + lease);
        }
        let until = sent + lease - (lease / 100 + Duration::from_millis(2));
        (Moment::now() < until).then_some(until)
    }

    fn guard(&self, id: Arc<str>, token: u64, until: Moment) -> NaiveQuorumGuard {
        let belief = Arc::new(Belief::until(until));
        let watchdog = self.clone().watch(id.clone(), belief.clone());
        let watchdog = tokio::spawn(watchdog).abort_handle();
        NaiveQuorumGuard {
            lock: self.clone(),
            id,
            token,
            belief,
            watchdog,
        }
    }

    /// Renews while there is something to renew, and tells when it is over.
    async fn watch(self, id: Arc<str>, belief: Arc<Belief>) {
        while belief.held() {
            let left = belief.deadline().remaining();
            tokio::time::sleep(left.min(self.0.lease / 3)).await;
            if !self.0.renewed {
                continue;
            }
            let sent = Moment::now();
            let round = self.ask(Verb::Renew(id.clone())).await;
            match self.until(sent) {
                Some(until) if round.yes >= self.enough() && belief.held() => belief.set(until),
                _ => {}
            }
        }
        belief.lose();
    }

    /// Asks all nodes at once, until it is decided. Those that have not answered by then still get the request.
    async fn ask(&self, verb: Verb) -> Round {
        let mut asked = JoinSet::new();
        for node in &self.0.nodes {
            let (node, verb) = (node.clone(), verb.clone());
            asked.spawn(async move { node.ask(&verb).await });
        }
        let mut round = Round::default();
        let (nodes, enough) = (self.0.nodes.len(), self.enough());
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok(Ok((true, _))) => round.yes += 1,
                Ok(Ok((false, last))) => {
                    round.no += 1;
                    round.highest = round.highest.max(last);
                }
                _ => {}
            }
            if round.yes >= enough || nodes - round.no < enough {
                break;
            }
        }
        asked.detach_all();
        round
    }
}

/// What a node is asked.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    /// For this id, with this token.
    Take(Arc<str>, u64),
    Renew(Arc<str>),
    Release(Arc<str>),
}

fn wall_micros() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_micros() as u64
}

impl NaiveQuorumGuard {
    /// Its token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Until when it believes.
    pub fn deadline(&self) -> Moment {
        self.belief.deadline()
    }

    /// Whether it believes.
    pub fn is_held(&self) -> bool {
        self.belief.held()
    }

    /// Completes when its holder learns that the lock is gone.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.belief.lost()
    }

    /// Lets go, and answers whether it still held; `None` if too few nodes answer.
    pub async fn release(self) -> Option<bool> {
        self.watchdog.abort();
        let round = self.lock.ask(Verb::Release(self.id.clone())).await;
        let enough = self.lock.enough();
        match (
            round.yes >= enough,
            self.lock.0.nodes.len() - round.no < enough,
        ) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }
}

impl Drop for NaiveQuorumGuard {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}
