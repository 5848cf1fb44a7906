//! The ZooKeeper store beside Curator itself, kazoo and go-zookeeper: `cargo xtask interop curator` builds the peers and runs
//! these tests.

mod load;
mod others;
mod peer;
mod recipes;
