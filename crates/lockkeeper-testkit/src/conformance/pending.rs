//! Cases that follow from the contract and that not every store passes yet. They are no part of the suite, so
//! that nobody takes them for passed; a store's tests name those it does pass, or ignore them with the reason.

use lockkeeper::store::{Attempt, Claim, Interest, Mode};

use super::Subject;
use super::client::hinted_at_all;

/// Rule 1. A repeat of an acquire that arrives after its hold was released, withdrawn or broken, but before
/// its `not_after`, must not bring the hold back: after a break, its holder's renewals would succeed again.
pub(super) async fn a_claim_is_granted_once(s: Subject) {
    let (a, b) = s.clients();
    let released = a.claim("once");
    a.granted(&released).await;
    assert!(a.release(&released).await);
    let withdrawn = a.claim("once");
    a.withdraw(&withdrawn).await;
    let broken = a.claim("once");
    a.granted(&broken).await;
    b.break_lock(&broken.name, "stuck").await;
    for claim in [&released, &withdrawn, &broken] {
        let attempt = a.attempt(claim).await;
        assert!(!matches!(attempt, Attempt::Granted(_)), "{claim:?} again");
    }
    b.granted(&b.claim("once")).await;
}

/// Whoever looks at a name at each hint about it would otherwise wake itself for ever.
pub(super) async fn looking_hints_nobody(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("looked at");
    a.granted(&claim).await;
    let interest = Interest::Name(claim.name.clone());
    let subscription = a.subscribe(interest).await;
    while hinted_at_all(&subscription).await {}
    for client in [&a, &b] {
        client.inspect(&claim.name).await;
        client.list("").await;
    }
    assert!(!hinted_at_all(&subscription).await);
}

/// A claim that stands beside nothing is like any other: it does not pass a writer that waits.
pub(super) async fn standing_beside_nothing_waits_its_turn(s: Subject) {
    let (a, b) = s.clients();
    let reader = a.with_mode("turn", Mode::Read);
    a.granted(&reader).await;
    b.queued(b.with_mode("turn", Mode::Write)).await;
    let late = Claim {
        beside: Some(a.id()),
        ..a.with_mode("turn", Mode::Read)
    };
    a.busy(&late).await;
}
