//! A Lockkeeper lock on Redis is a Redisson lock: proven with a real Redisson client.
//!
//! `cargo xtask interop redisson` builds the client (`interop/redisson`) and runs this.

mod cluster;
mod fair;
mod holders;
mod latch;
mod load;
mod multi;
mod names;
mod peer;
mod permits;
mod readers;
mod red;
mod sentinel;
mod site;
mod tokens;
