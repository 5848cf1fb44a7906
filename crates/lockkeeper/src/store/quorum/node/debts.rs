//! What a node is owed: holds that it must hear were let go of, told when it is back.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Node, Silence};
use crate::Name;
use crate::clock::Moment;
use crate::store::ClaimId;
use crate::store::quorum::dialect::LettingGo;

/// How much a node may be owed. It is all about leases that end by themselves.
const MOST_OWED: usize = 65_536;

/// A hold that the node is to let go of.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    name: Name,
    what: LettingGo,
    /// When the lease has ended it anyway.
    until: Moment,
}

impl Node {
    fn owed(&self) -> MutexGuard<'_, HashMap<ClaimId, Owed>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is to let go of this as soon as it can be asked.
    pub fn owe(&self, name: Name, what: LettingGo, until: Moment) {
        let mut owed = self.owed();
        if owed.len() >= MOST_OWED {
            let now = Moment::now();
            owed.retain(|_, owed| owed.until > now);
        }
        // A later round ends earlier ones with it.
        let known = owed.get(&what.round.claim);
        let covered = known.is_some_and(|known| known.what.round > what.round);
        if !covered && owed.len() < MOST_OWED {
            owed.insert(what.round.claim, Owed { name, what, until });
        }
        drop(owed);
        self.look.notify_one();
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
                let mut all = self.owed();
                all.entry(owed.what.round.claim).or_insert(owed);
                return false;
            }
        }
        true
    }
}

/// Pays off what a node is owed, whenever it may be possible.
pub(super) async fn pay_off(node: Weak<Node>) {
    let Some(mut watch) = node.upgrade().map(|node| node.link.watch()) else {
        return;
    };
    while let Some(node) = node.upgrade() {
        if node.pay().await || node.link.ticket().is_err() {
            // Neither keeps the node alive.
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

async fn wait_for_look(node: Weak<Node>) {
    loop {
        let Some(node) = node.upgrade() else { return };
        // Looked at now and then, so that a node that nobody needs any more can go.
        let look = tokio::time::timeout(Duration::from_secs(1), node.look.notified());
        if look.await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::KeeperId;
    use crate::store::quorum::dialect::Dialect;
    use crate::store::quorum::gate::Gate;
    use crate::store::quorum::protocol::{Quarantine, RoundId, Terms};
    use crate::store::redis::node::{NodeLink, NodeSettings};
    use crate::url::StoreUrl;

    #[tokio::test]
    async fn an_earlier_round_does_not_take_the_place_of_a_later_one() {
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
        let node = Node::start(link, settings.address(), dialect, Duration::from_secs(1));
        let claim = ClaimId {
            keeper: KeeperId::new(),
            number: 1,
        };
        let name = Name::new("name").expect("a name");
        let until = Moment::now() + Duration::from_secs(60);
        // A request of the first round is found to be lost when the second has ended already.
        for number in [2, 1, 0] {
            let round = RoundId { claim, number };
            node.owe(name.clone(), LettingGo { round, run: None }, until);
        }
        let owed = node.owed()[&claim].what.round.number;
        assert_eq!(owed, 2);
    }
}
