//! This Lockkeeper beside the command of an earlier commit, on one store and in both orders.
//!
//! Run by `cargo xtask interop old`, which builds that command.

mod old;
mod sqlite;
