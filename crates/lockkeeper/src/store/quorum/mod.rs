//! Locks on a majority of independent Redis servers.

#[doc(hidden)]
pub mod protocol;
