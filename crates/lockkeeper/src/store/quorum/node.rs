//! One node: requests to it, whether it keeps up, and what it is owed.
//!
//! A node that is silent for longer than a request may take is *behind*: it is asked nothing more until it has answered
//! something, so that nothing piles up in front of it. What it must hear all the same, that a hold was let go of, it is
//! *owed*: it is told when it is back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ::redis::Value;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::dialect::{Dialect, LettingGo};
use crate::clock::Moment;
use crate::store::redis::fault::Fault;
use crate::store::redis::node::{Call, NodeLink, Ticket};
use crate::store::{ClaimId, NodeState, NodeStatus};
use crate::{Error, Name};

/// How many requests may be under way: far more than a node that keeps up ever has.
const MOST_UNDER_WAY: usize = 4096;
/// How much a node may be owed. It is all about leases that end by themselves.
const MOST_OWED: usize = 65_536;

pub(super) struct Node {
    pub address: String,
    pub link: NodeLink,
    pub dialect: Arc<Dialect>,
    timeout: Duration,
    /// The number of the connection on which it is behind; 0 if it is not.
    behind: AtomicU64,
    /// Requests over the main connection, and over the lane: what a busy runtime does not read keeps nothing else back.
    under_way: [AtomicUsize; 2],
    owed: Mutex<HashMap<ClaimId, Owed>>,
    /// Something is owed, or the node is back.
    look: Notify,
    courier: Mutex<Option<AbortHandle>>,
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
            Fault::Lost(reason) | Fault::NotSent(reason) => Silence::Lost(reason),
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

/// A hold that the node is to let go of.
#[derive(Clone, Debug)]
struct Owed {
    name: Name,
    what: LettingGo,
    /// When the lease has ended it anyway.
    until: Moment,
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
            under_way: Default::default(),
            owed: Mutex::default(),
            look: Notify::new(),
            courier: Mutex::default(),
        });
        let courier = tokio::spawn(pay_off(Arc::downgrade(&node)));
        let mut slot = node.courier.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(courier.abort_handle());
        drop(slot);
        node
    }

    /// The connection to ask over, or why there is none.
    pub fn ticket(&self) -> Result<Ticket, String> {
        self.keeps_up(self.link.ticket()?)
    }

    /// As [`ticket`](Node::ticket), for what a task waits for itself.
    pub fn quickest(&self) -> Result<Ticket, String> {
        self.keeps_up(self.link.quickest()?)
    }

    fn keeps_up(&self, ticket: Ticket) -> Result<Ticket, String> {
        if self.behind.load(SeqCst) == ticket.number {
            return Err(format!("it did not answer within {:?}", self.timeout));
        }
        if self.under_way(ticket.lane().is_some()).load(SeqCst) >= MOST_UNDER_WAY {
            return Err("too many requests to it are under way".into());
        }
        Ok(ticket)
    }

    /// Asks over this connection.
    pub async fn ask(self: Arc<Node>, ticket: Ticket, call: Call) -> Result<Value, Silence> {
        let number = ticket.number;
        let _under_way = UnderWay::of(&self, ticket.lane().is_some());
        let answer = self.link.run(ticket, &call).await;
        self.heard(number, &answer);
        answer.map_err(Silence::from)
    }

    fn under_way(&self, lane: bool) -> &AtomicUsize {
        &self.under_way[usize::from(lane)]
    }

    /// A request is on its way.
    pub fn sending(&self, lane: bool) {
        self.under_way(lane).fetch_add(1, SeqCst);
    }

    /// A request was answered, or lost.
    pub fn sent(&self, lane: bool, number: u64, answer: &Result<Value, Fault>) {
        self.under_way(lane).fetch_sub(1, SeqCst);
        self.heard(number, answer);
    }

    fn heard(&self, number: u64, answer: &Result<Value, Fault>) {
        if matches!(answer, Ok(_) | Err(Fault::Server(_))) {
            self.answered(number);
        }
    }

    /// Over whichever of its connections.
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
        // What it has not answered may have been on a lane, and end with it: the main connection tells.
        let node = Arc::downgrade(self);
        self.link.runtime().spawn(async move {
            let answers = ticket.answers().await;
            if let (true, Some(node)) = (answers, node.upgrade()) {
                node.answered(ticket.number);
            }
        });
    }

    fn owed(&self) -> MutexGuard<'_, HashMap<ClaimId, Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is to let go of this as soon as it can be asked.
    pub fn owe(&self, name: Name, what: LettingGo, until: Moment) {
        self.note(Owed { name, what, until });
        self.look.notify_one();
    }

    fn note(&self, new: Owed) {
        let mut owed = self.owed();
        if owed.len() >= MOST_OWED {
            let now = Moment::now();
            owed.retain(|_, owed| owed.until > now);
        }
        // A later round ends earlier ones with it.
        let round = new.what.round;
        let known = owed.get(&round.claim);
        let covered = known.is_some_and(|known| known.what.round > round);
        if !covered && owed.len() < MOST_OWED {
            owed.insert(round.claim, new);
        }
    }

    fn next_owed(&self) -> Option<Owed> {
        let mut owed = self.owed();
        let claim = *owed.keys().next()?;
        owed.remove(&claim)
    }

    /// Tells it what it is owed. `false`: not all, as it cannot be asked.
    async fn pay(self: &Arc<Node>) -> bool {
        while let Some(owed) = self.next_owed() {
            if Moment::now() >= owed.until {
                continue;
            }
            let told = match self.ticket() {
                Err(_) => false,
                Ok(ticket) => {
                    let answer = self.dialect.let_go(self, ticket, &owed.name, owed.what);
                    // The lease ends what a node refuses to.
                    !matches!(answer.await, Err(Silence::Lost(_)))
                }
            };
            if !told {
                // Nobody has to look: it is tried again when the node may be back.
                self.note(owed);
                return false;
            }
        }
        true
    }

    /// Whether it can be asked and may not vote.
    pub fn sits_out(&self) -> bool {
        let up = self.link.admission();
        up.is_some_and(|(number, admission)| {
            self.behind.load(SeqCst) != number && admission.sits_out(Moment::now()).is_some()
        })
    }

    pub fn status(&self) -> NodeStatus {
        let state = match self.link.ticket() {
            Err(reason) => NodeState::Down { reason },
            Ok(ticket) if self.behind.load(SeqCst) == ticket.number => NodeState::Behind,
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

/// Pays off what a node is owed, whenever it may be possible.
async fn pay_off(node: Weak<Node>) {
    let Some(mut watch) = node.upgrade().map(|node| node.link.watch()) else {
        return;
    };
    while let Some(node) = node.upgrade() {
        if node.pay().await || node.link.ticket().is_err() {
            let look = wait_for_look(Arc::downgrade(&node));
            drop(node);
            tokio::select! {
                () = look => {}
                up = watch.changed() => if !up { return },
            }
        } else {
            drop(node);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Waits until there may be something to pay off. A node that nobody needs any more stays for a second at most.
async fn wait_for_look(node: Weak<Node>) {
    loop {
        let Some(node) = node.upgrade() else { return };
        let look = tokio::time::timeout(Duration::from_secs(1), node.look.notified());
        if look.await.is_ok() {
            return;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let courier = self
            .courier
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(courier) = courier {
            courier.abort();
        }
    }
}

/// A request under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl UnderWay<'_> {
    fn of(node: &Node, lane: bool) -> UnderWay<'_> {
        node.sending(lane);
        UnderWay(node.under_way(lane))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeeperId;
    use crate::store::quorum::gate::Gate;
    use crate::store::quorum::protocol::{Quarantine, RoundId, Terms};
    use crate::store::redis::node::NodeSettings;
    use crate::url::StoreUrl;

    /// A node that nothing is paid off to.
    fn unreachable() -> Arc<Node> {
        // Nobody listens there: nothing is paid off.
        let url = StoreUrl::parse("redis://127.0.0.1:1").expect("a URL");
        let settings = NodeSettings::parse(&url).expect("a node");
        let terms = Terms::new(3, Duration::from_secs(30));
        let gate = Gate {
            number: 0,
            addresses: Arc::from([settings.address()]),
            terms,
            runs: Arc::new(Mutex::new(vec![None])),
            quarantine: Mutex::new(Quarantine::default()),
        };
        let dialect = Arc::new(Dialect::new(&settings, "who".into(), &terms));
        let (link, _first) = NodeLink::start(&settings, "channel".into(), Arc::new(gate));
        Node::start(link, settings.address(), dialect, Duration::from_secs(1))
    }

    #[tokio::test]
    async fn an_earlier_round_does_not_take_the_place_of_a_later_one() {
        let node = unreachable();
        let claim = ClaimId {
            keeper: KeeperId::new(),
            number: 1,
        };
        let name = Name::new("name").expect("a name");
        let until = Moment::now() + Duration::from_secs(60);
        // A request of the first round is found to be lost when the second has ended already.
        let owe = |number| {
            let round = RoundId { claim, number };
            node.owe(name.clone(), LettingGo { round, run: None }, until);
        };
        let owed = || node.owed()[&claim].what.round.number;
        for number in [2, 1, 0] {
            owe(number);
        }
        assert_eq!(owed(), 2);
        // Nor when it comes while the node is told of the later one, in vain.
        for meanwhile in [1, 3] {
            let telling = node.next_owed().expect("something is owed");
            owe(meanwhile);
            node.note(telling);
            assert_eq!(owed(), meanwhile.max(2));
        }
    }
}
