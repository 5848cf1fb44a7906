//! A quorum of independent Redis servers under faults, judged by the history checker.
//!
//! `load` has many processes on one lock while something breaks; `majority` has what is needed for there to be a lock at
//! all; `victims` has one holder that it happens to; `mixed` has faults by chance, one after the other, in as many
//! histories as are asked for; `naive` has Redlock with its usual mistakes, and ours in the same scenes.

#[path = "../support/crew.rs"]
mod crew;
mod load;
mod majority;
mod mixed;
mod naive;
#[path = "../support/place.rs"]
mod place;
#[path = "../support/victim.rs"]
mod victim;
mod victims;
mod world;
