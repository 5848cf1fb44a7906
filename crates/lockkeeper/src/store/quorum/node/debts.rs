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
        let needed = match known {
            Some(known) => known.what.round <= round,
            None => owed.len() < MOST_OWED,
        };
        if needed {
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
}

/// Pays off what a node is owed, whenever it may be possible.
pub(super) async fn pay_off(node: Weak<Node>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::KeeperId;
    use crate::store::quorum::dialect::Dialect;
    use crate::store::quorum::gate::Gate;
    use crate::store::quorum::protocol::{RoundId, Terms};
    use crate::store::redis::node::{NodeLink, NodeSettings};
    use crate::url::StoreUrl;

    fn unreachable() -> Arc<Node> {
        // Nobody listens there: nothing is paid off.
        let url = StoreUrl::parse("redis://127.0.0.1:1").expect("a URL");
        let settings = NodeSettings::parse(&url).expect("a node");
        let terms = Terms::new(3, Duration::from_secs(30));
        let gate = Gate::alone(settings.address(), terms);
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
