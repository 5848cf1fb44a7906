//! Going on holding.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Claim, Renewed};

use super::Subject;
use super::client::{Client, LONG, SHORT, in_time, pass};

pub(super) async fn a_renewed_hold_outlives_its_lease(s: Subject) {
    let (a, b) = s.clients();
    let lease = Duration::from_secs(2);
    let claim = a.with_lease("renewed", lease);
    a.granted(&claim).await;
    assert_eq!(a.renew(&claim, LONG).await, Renewed::Renewed);
    pass(lease + SHORT).await;
    b.busy(&b.claim("renewed")).await;
    assert!(a.release(&claim).await);
}

pub(super) async fn a_renewal_never_shortens(s: Subject) {
    let (a, _) = s.clients();
    let claim = a.with_lease("long", LONG);
    a.granted(&claim).await;
    assert_eq!(a.renew(&claim, SHORT).await, Renewed::Renewed);
    let info = a.inspect(&claim.name).await.expect("it is held");
    assert!(info.holders[0].remaining > Some(LONG / 2), "{info:?}");
}

pub(super) async fn asking_whether_a_hold_goes_on_changes_nothing(s: Subject) {
    let (a, b) = s.clients();
    let lease = Duration::from_secs(2);
    let (kept, ends) = (a.with_lease("kept", LONG), a.with_lease("ends", lease));
    a.granted(&kept).await;
    a.granted(&ends).await;
    let over = Moment::now() + lease;
    let asks = [(&kept, Duration::ZERO), (&ends, Duration::ZERO)];
    assert_eq!(a.renew_all(&asks).await, [Renewed::Renewed; 2]);
    let info = a.inspect(&kept.name).await.expect("it is held");
    assert!(info.holders[0].remaining > Some(LONG / 2), "{info:?}");
    // However often: it ends when it would have.
    while Moment::now() < over {
        a.renew(&ends, Duration::ZERO).await;
        pass(SHORT / 5).await;
    }
    pass(Duration::from_millis(50)).await;
    assert_eq!(a.renew(&ends, Duration::ZERO).await, Renewed::NotHeld);
    b.granted(&b.claim("ends")).await;
    b.busy(&b.claim("kept")).await;
    assert!(a.release(&kept).await);
}

pub(super) async fn a_renewal_after_expiry_revives_nothing(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.with_lease("over", SHORT);
    a.granted(&claim).await;
    pass(SHORT + Duration::from_millis(50)).await;
    // Nobody else has asked meanwhile; it is over all the same.
    assert_eq!(a.renew(&claim, LONG).await, Renewed::NotHeld);
    let next = b.claim("over");
    b.granted(&next).await;
    assert_eq!(a.renew(&claim, LONG).await, Renewed::NotHeld);
    assert!(b.release(&next).await);
    assert_eq!(a.renew(&claim, LONG).await, Renewed::NotHeld);
}

pub(super) async fn a_renewal_after_a_break_says_not_held(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("broken");
    a.granted(&claim).await;
    b.break_lock(&claim.name, "stuck").await;
    assert_eq!(a.renew(&claim, LONG).await, Renewed::NotHeld);
    b.granted(&b.claim("broken")).await;
}

pub(super) async fn a_renewal_of_an_unknown_claim_says_not_held(s: Subject) {
    let (a, b) = s.clients();
    let claim = a.claim("theirs");
    assert_eq!(b.renew(&claim, LONG).await, Renewed::NotHeld);
    a.granted(&claim).await;
    assert_eq!(b.renew(&b.claim("theirs"), LONG).await, Renewed::NotHeld);
    assert!(a.renew_all(&[]).await.is_empty());
}

pub(super) async fn a_batch_is_answered_in_its_order(s: Subject) {
    let (a, b) = s.clients();
    let [first, second, gone] = ["first", "second", "gone"].map(|text| a.claim(text));
    for claim in [&first, &second, &gone] {
        a.granted(claim).await;
    }
    assert!(a.release(&gone).await);
    let unknown = b.claim("second");
    let batch = [&gone, &second, &unknown, &first, &second].map(|claim| (claim, LONG));
    let (renewed, not_held) = (Renewed::Renewed, Renewed::NotHeld);
    assert_eq!(
        a.renew_all(&batch).await,
        [not_held, renewed, not_held, renewed, renewed]
    );
}

pub(super) async fn a_large_batch_is_answered_in_its_order(s: Subject) {
    let (a, _) = s.clients();
    let claims: Vec<Claim> = (0..300).map(|n| a.claim(&format!("many {n}"))).collect();
    for claim in claims.iter().step_by(3) {
        a.granted(claim).await;
    }
    let batch: Vec<_> = claims.iter().map(|claim| (claim, LONG)).collect();
    let answers = a.renew_all(&batch).await;
    assert_eq!(answers.len(), claims.len());
    for (index, answer) in answers.into_iter().enumerate() {
        let expected = match index % 3 {
            0 => Renewed::Renewed,
            _ => Renewed::NotHeld,
        };
        assert_eq!(answer, expected, "hold {index}");
    }
}

/// How long the lease of a hold still runs.
async fn left(client: &Client, claim: &Claim) -> Duration {
    let info = client.inspect(&claim.name).await.expect("it is held");
    let hold = info.holders.iter().find(|hold| hold.claim == claim.id);
    let left = hold.expect("it is held").remaining;
    left.expect("it has an end")
}

pub(super) async fn a_late_renewal_does_nothing(s: Subject) {
    let (a, b) = s.clients();
    let lease = Duration::from_secs(20);
    let claim = a.with_lease("late", lease);
    a.granted(&claim).await;
    let late = Moment::now() - Duration::from_millis(10);
    let renewed = a.renew_until(&[(&claim, LONG, late)]).await;
    assert_eq!(renewed, [Renewed::TooLate]);
    assert!(left(&b, &claim).await <= lease);
    // It is no loss either: the hold is as it was.
    assert_eq!(a.renew(&claim, LONG).await, Renewed::Renewed);
    assert!(left(&b, &claim).await > lease);
    assert!(a.release(&claim).await);
}

pub(super) async fn a_renewal_just_before_its_end_counts(s: Subject) {
    let (a, b) = s.clients();
    let lease = Duration::from_secs(20);
    let claim = a.with_lease("in time", lease);
    a.granted(&claim).await;
    // The network may take a while, and the store's clock is not known to the microsecond.
    let soon = Duration::from_millis(500);
    pass(SHORT).await;
    let sent = Moment::now();
    let renewed = a.renew_until(&[(&claim, LONG, sent + soon)]).await[0];
    if renewed == Renewed::TooLate {
        // A machine that stood still.
        assert!(Moment::now() > sent + soon, "it was not late");
        return;
    }
    assert_eq!(renewed, Renewed::Renewed);
    assert!(left(&b, &claim).await > lease);
}

pub(super) async fn each_renewal_of_a_batch_has_its_own_end(s: Subject) {
    let (a, b) = s.clients();
    let lease = Duration::from_secs(20);
    let [first, second, third] = ["first", "second", "third"].map(|text| a.with_lease(text, lease));
    for claim in [&first, &second, &third] {
        a.granted(claim).await;
    }
    let gone = a.with_lease("gone", lease);
    let late = Moment::now() - Duration::from_millis(10);
    let batch = [
        (&first, LONG, in_time()),
        (&second, LONG, late),
        (&gone, LONG, in_time()),
        (&third, LONG, in_time()),
    ];
    let (renewed, not_held) = (Renewed::Renewed, Renewed::NotHeld);
    let answers = a.renew_until(&batch).await;
    assert_eq!(answers, [renewed, Renewed::TooLate, not_held, renewed]);
    assert!(left(&b, &first).await > lease);
    assert!(left(&b, &second).await <= lease);
    assert!(left(&b, &third).await > lease);
}
