//! Labels, and the whole length of a lease: what people see beside a holder.

use std::time::Duration;

use lockkeeper::store::{BreakTarget, Claim, Holder, Mode, Renewed};
use lockkeeper::{Label, MAX_LABEL_BYTES};

use super::Subject;
use super::client::{Client, LONG, name};

pub(super) fn label(text: &str) -> Option<Label> {
    Some(Label::new(text).expect("a valid label"))
}

fn labelled(claim: Claim, text: &str) -> Claim {
    let label = label(text);
    claim.with_label(label)
}

/// The holder of a claim, as another sees it.
async fn seen(by: &Client, claim: &Claim) -> Holder {
    let info = by.inspect(&claim.name).await.expect("it is held");
    let mut holders = info.holders.into_iter();
    let holder = holders.find(|holder| holder.claim == claim.id);
    holder.expect("the claim holds")
}

pub(super) async fn a_label_stands_beside_its_holder(s: Subject) {
    let (a, b) = s.clients();
    let claim = labelled(a.claim("labelled"), "order 42");
    a.granted(&claim).await;
    assert_eq!(seen(&b, &claim).await.label, label("order 42"));
    let list = b.store.list("labelled").await.expect("list answers");
    assert_eq!(list[0].holders[0].label, label("order 42"));
    assert!(a.release(&claim).await);
    // The next holder says nothing, and the label is not the name's.
    let next = a.claim("labelled");
    a.granted(&next).await;
    assert_eq!(seen(&b, &next).await.label, None);
}

pub(super) async fn a_label_stays_as_long_as_the_hold(s: Subject) {
    let (a, b) = s.clients();
    let claim = labelled(a.claim("stays"), "nightly report");
    let grant = a.granted(&claim).await;
    assert_eq!(a.granted(&claim).await, grant);
    assert_eq!(a.renew(&claim, LONG).await, Renewed::Renewed);
    b.busy(&labelled(b.claim("stays"), "another")).await;
    assert_eq!(seen(&b, &claim).await.label, label("nightly report"));
    let broken = b.break_lock(&claim.name, "stuck").await;
    assert_eq!(broken[0].label, label("nightly report"));
}

pub(super) async fn odd_labels_are_kept_exactly(s: Subject) {
    let (a, b) = s.clients();
    let longest = "x".repeat(MAX_LABEL_BYTES);
    let wide = "键".repeat(MAX_LABEL_BYTES / 3);
    let odd = [
        " ",
        "%s %d",
        "a\\nb",
        "\"'`",
        "{tag}",
        "'; DROP TABLE lock; --",
        "\u{202e}desrever",
        "0",
        "1 2 3",
        "null",
        "[1,2]",
        "host pid program",
        "🔒 è ü",
        &longest,
        &wide,
    ];
    for (number, text) in odd.into_iter().enumerate() {
        let claim = labelled(a.claim(&format!("odd label {number}")), text);
        let grant = a.granted(&claim).await;
        let holder = seen(&b, &claim).await;
        assert_eq!(holder.label, label(text));
        // The label has not crept into what stands beside it.
        let this = lockkeeper::store::Process::current();
        assert_eq!((&holder.process, holder.token), (&this, Some(grant.token)));
        assert!(a.release(&claim).await);
        assert!(
            b.inspect(&claim.name)
                .await
                .is_none_or(|info| info.holders.is_empty())
        );
    }
}

pub(super) async fn the_whole_lease_is_known(s: Subject) {
    let (a, b) = s.clients();
    // A store may grant no lease that is longer than `LONG`.
    let claim = a.claim("whole lease").with_lease(LONG / 2);
    a.granted(&claim).await;
    assert_eq!(seen(&b, &claim).await.lease, Some(LONG / 2));
    assert_eq!(a.renew(&claim, LONG).await, Renewed::Renewed);
    assert_eq!(seen(&b, &claim).await.lease, Some(LONG));
    // A renewal that does not move the end of the lease does not change its length.
    let less = Duration::from_secs(1);
    assert_eq!(a.renew(&claim, less).await, Renewed::Renewed);
    assert_eq!(seen(&b, &claim).await.lease, Some(LONG));
}

pub(super) async fn each_reader_has_its_own_label(s: Subject) {
    let (a, b) = s.clients();
    let one = labelled(a.with_mode("readers", Mode::Read), "one");
    let two = labelled(b.with_mode("readers", Mode::Read), "two");
    let none = b.with_mode("readers", Mode::Read);
    for claim in [&one, &two, &none] {
        a.granted(claim).await;
    }
    assert_eq!(seen(&b, &one).await.label, label("one"));
    assert_eq!(seen(&a, &two).await.label, label("two"));
    assert_eq!(seen(&a, &none).await.label, None);
    assert!(a.release(&one).await);
    assert_eq!(seen(&a, &two).await.label, label("two"));
}

pub(super) async fn each_permit_has_its_own_label(s: Subject) {
    let (a, b) = s.clients();
    let mode = Mode::Permit { limit: 3, count: 1 };
    let one = labelled(a.with_mode("permits", mode), "one");
    let two = labelled(b.with_mode("permits", mode), "two");
    a.granted(&one).await;
    b.granted(&two).await;
    assert_eq!(seen(&b, &one).await.label, label("one"));
    assert_eq!(seen(&a, &two).await.label, label("two"));
    a.break_hold(&one.name, BreakTarget::Claim(one.id), "stuck")
        .await;
    assert_eq!(seen(&a, &two).await.label, label("two"));
}

pub(super) async fn a_direct_grant_keeps_the_label(s: Subject) {
    let (a, b) = s.clients();
    let holding = labelled(a.claim("handed"), "first");
    a.granted(&holding).await;
    let waiting = b.queued(labelled(b.claim("handed"), "second")).await;
    assert!(a.release(&holding).await);
    // Also before it is confirmed.
    assert_eq!(seen(&a, &waiting).await.label, label("second"));
    b.granted(&waiting).await;
    let holder = seen(&a, &waiting).await;
    assert_eq!((holder.label, holder.lease), (label("second"), Some(LONG)));
}

pub(super) async fn a_requeued_claim_has_its_own_label(s: Subject) {
    let (a, b) = s.clients();
    let first = labelled(a.claim("requeued"), "first");
    a.granted(&first).await;
    let second = labelled(a.claim("requeued"), "second");
    let released = a.release_and(&first, Some(second.clone())).await;
    assert!(released.regrant.is_some(), "{released:?}");
    assert_eq!(seen(&b, &second).await.label, label("second"));
    // Behind another it waits with its label.
    let other = b.queued(labelled(b.claim("requeued"), "other")).await;
    let third = labelled(a.claim("requeued"), "third");
    let released = a.release_and(&second, Some(third.clone())).await;
    assert!(released.was_held && released.regrant.is_none());
    b.granted(&other).await;
    let info = b.inspect(&name("requeued")).await.expect("it is held");
    assert_eq!(info.holders[0].label, label("other"));
    assert_eq!(info.queue[0].label, label("third"));
}
