//! The engine over a memory store, and over one that fails, answers late or not at all.

#[path = "../common/mod.rs"]
mod common;

mod closing;
mod corners;
mod crowds;
mod ends;
mod events;
mod faults;
mod labels;
mod late;
mod leases;
mod losses;
