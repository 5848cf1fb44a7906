//! The ZooKeeper store beside Curator itself: `cargo xtask interop curator` builds the peer and runs these tests.

mod load;
mod peer;
mod recipes;
