//! Redis under faults, judged by the history checker: what the table of `docs/redis.md` promises.
//!
//! On one server, `load` has many processes on one lock while something breaks; `victims` has one holder that it happens
//! to, and shows what one server cannot protect from; `naive` has the locks with mistakes, and ours in the same scenes.
//! `sentinel` and `cluster` have masters that are replaced.

mod cluster;
#[path = "../support/crew.rs"]
mod crew;
mod crews;
mod load;
mod naive;
#[path = "../support/place.rs"]
mod place;
mod sentinel;
#[path = "../support/victim.rs"]
mod victim;
mod victims;
mod world;
