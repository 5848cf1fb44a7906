//! This Lockkeeper beside the command of an earlier commit, on one store and in both orders.
//!
//! Run by `cargo xtask interop old`, which builds that command.

#[path = "../support/claims.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod claims;
mod old;
mod redis;
mod sqlite;
