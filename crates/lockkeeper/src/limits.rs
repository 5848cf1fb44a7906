//! How long a lease may be.

use std::time::Duration;

use crate::Error;
use crate::duration::typed;

/// The shortest lease, 100 ms. Half of it is the safety margin, see [`Lock::fixed_lease`](crate::Lock::fixed_lease).
pub const MIN_LEASE: Duration = Duration::from_millis(100);
/// The longest lease, 24 hours. A store may grant less, as its
/// [`longest_lease`](crate::store::Capabilities::longest_lease) says.
pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks that a lease is within range.
pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        what: "lease",
        reason: format!(
            "{} is outside {} to {}",
            typed(lease),
            typed(MIN_LEASE),
            typed(MAX_LEASE)
        ),
    })
}
