//! A model of the quorum protocol, checked exhaustively for small sizes: every order in which requests and answers can
//! arrive, late, twice or never, every crash, every clock that runs too fast or is set.
//!
//! Its clients and nodes decide nothing themselves: they run `lockkeeper::store::quorum::protocol`, the types that the
//! real client runs. The model is what is around them.
//!
//! # What is modelled
//! - **Nodes**: three, each with a clock of its own. A crash loses everything and breaks the connections; the node is
//!   back at once, which is the worst it can do. Nodes are alike, so states that differ only in their order are one.
//! - **Clients**: two, each with claims that follow each other. A claim has several rounds. A hold is renewed, released
//!   or left to end. A client that died is one that does nothing any more.
//! - **Network**: a request is on its way from when it is sent to whenever it arrives: now, in a different order, much
//!   later, or never; where [`Scene::repeats`] says so, asks and releases arrive any number of times. So do answers, once.
//! - **Time**: in ticks of 2 ms, which is what the protocol allows for drift in its shortest leases. A lease is three
//!   ticks: a hold is valid for two of them, and a node is out of quarantine after four.
//!   Within its budget a scene lets a node's clock gain a tick, a client's lose one, or a node's be set.
//!
//! # What is checked
//! - *S1*: valid holds never overlap.
//! - *S2*: tokens grow from grant to grant.
//! - *L4*: a vote that nobody counts any more is left only where its withdrawal has not arrived.
//! - That the interesting happens: see [`Scene::expects`].

mod clients;
mod links;
mod model;
mod scene;
mod state;

pub use model::Action;
pub use scene::{Expect, Scene};
pub use state::State;
