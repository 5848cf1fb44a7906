//! A quorum of independent Redis servers under faults, judged by the history checker.
//!
//! `naive` has Redlock with its usual mistakes, and ours in the same scenes.

#[path = "../support/crew.rs"]
mod crew;
mod naive;
#[path = "../support/place.rs"]
mod place;
mod world;
