//! Requests that are late.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::{Attempt, Mode, Renewal, Renewed, Store};
use lockkeeper_testkit::servers::proxy::{Proxy, Way};

use crate::claims::claim_for;

/// What was held has ended, and the answer that says so comes when the renewal is late.
pub async fn renewals_become_late(store: &dyn Store, proxy: &Proxy) {
    let lease = Duration::from_millis(300);
    let held = claim_for(lease, "over", Mode::Exclusive).with_not_after(Moment::NEVER);
    let attempt = store.try_acquire(&held).await;
    assert!(matches!(attempt, Ok(Attempt::Granted(_))), "{attempt:?}");
    tokio::time::sleep(lease + Duration::from_millis(50)).await;
    proxy.replies(Way::Slow(Duration::from_millis(200)));
    let end = Moment::now() + Duration::from_millis(150);
    let renewal = Renewal::new(held.name.clone(), held.id, lease, end);
    let renewed = store.renew(&[renewal]).await;
    proxy.heal();
    assert_eq!(renewed, Ok(vec![Renewed::TooLate]));
}
