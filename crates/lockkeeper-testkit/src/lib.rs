//! What proves that a lock is one: for Lockkeeper's own stores, and for anybody's.
//!
//! # Layout
//! - [`history`]: records what clients asked and were told, against one clock, across processes.
//! - [`checker`]: judges a history: exclusion, token order, fencing, release, progress. Pure.
//! - [`conformance`]: the cases every [`Store`](lockkeeper::store::Store) has to pass, chosen by its
//!   capabilities.
//! - [`differential`]: random verbs on a store and on the memory store, whose answers have to be the same.
//! - [`wrappers`]: stores that count or misbehave, over any store.
//! - [`fenced`]: a resource in a file that refuses late writers and remembers every write.
//! - [`servers`]: real servers, started for one test, and what makes them fail.
//! - [`naive`]: locks on Redis with one mistake each, for the checker to catch.
//! - [`process`]: a process that takes locks, to be killed and stopped; [`taking`]: ours or naive ones.
//! - [`program`]: any program, run to its end, and waiting for what it does.
//! - [`listed`]: whether a list in a test is complete.
//! - [`polling`], [`random`]: futures dropped half-way, and chance that can be repeated.
//! - [`retries`]: counts what tests do again by themselves.
//!
//! A run that proves nothing (too few grants, nobody contended, the fault never bit) is not a pass: the
//! checker calls it [`Invalid`](checker::Verdict::Invalid).

pub mod checker;
pub mod conformance;
pub mod differential;
pub mod fenced;
pub mod history;
pub mod listed;
pub mod naive;
pub mod polling;
pub mod process;
pub mod program;
pub mod random;
pub mod retries;
pub mod servers;
pub mod taking;
pub mod wrappers;
