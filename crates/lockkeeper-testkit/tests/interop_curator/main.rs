//! The ZooKeeper store beside Curator itself, kazoo and go-zookeeper: `cargo xtask interop curator` builds the peers and runs
//! these tests.

mod also;
mod load;
mod names;
mod others;
mod peer;
mod recipes;
