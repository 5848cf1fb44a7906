//! The quorum protocol without its network: what a client concludes from the nodes' answers, and what a node does
//! with a request. Pure; time is an argument. The real client and the model that is checked exhaustively
//! (`crates/lockkeeper-model`) run these same types.
//!
//! # Why it holds
//! **A hold is valid only while a majority of nodes keep it, and a node keeps one exclusive hold at a time.** Two
//! majorities share a node, so two valid holds cannot be. Everything below serves that sentence.
//!
//! - *Time.* A hold counts from before the first request was sent, and ends 1 % of the lease + 2 ms before the
//!   lease does: no node ends it earlier, as long as clocks run equally fast within that. ([`Terms::deadline`])
//! - *Rounds.* Each try of a claim is a [`Round`] with a number of its own. A node keeps the round with the hold: a
//!   late request of an earlier round can neither end a later one nor take its place, and a later round takes the place
//!   of an earlier one. Only a refused round is followed by another.
//! - *Clean-up.* A round that was refused is withdrawn on every node, also where no answer came. A withdrawal raises the
//!   node's last token to the round's: if it comes before the request it undoes, that is refused as stale. No tombstone
//!   has to be kept for that, and none ends too soon. What still slips through (the withdrawal is lost, or the token
//!   was so far ahead that the node would not take it) keeps a node busy for one lease at most; a node lets nothing in
//!   after `not_after`, to make that rarer. Nobody *counts* such a vote, so no clock that was set can turn it into a
//!   second holder.
//! - *Restart.* A node that restarted may have voted for a round that is still valid, and have forgotten it. So it
//!   neither votes nor is re-added until it is older than any lease ([`Quarantine`]).
//! - *The longest lease.* That wait is as long as the asking client's `max_lease`, so all clients must have the same. A
//!   node votes only for clients that have the one it has recorded ([`agree`]).
//! - *Renewal.* It needs a majority of nodes where the hold is still alive: then it was alive on a majority all the time,
//!   and nobody else held in between. Only then are the others re-added, and they count from the next renewal on.
//!   A renewal that finds more nodes without the hold than a minority is the end of it, for good.
//!   A re-add that is still on its way when the hold is released is taken back when its answer comes; without that it
//!   keeps a node busy for one lease at most.
//! - *Tokens.* A node votes only for a token above the last it saw, so tokens of successive holders grow: their
//!   majorities share a node. It votes for none that is further ahead of its clock than [`Terms::lead`]; after a restart
//!   without data its last token is therefore below boot time + lead, and that is its floor ([`Admission::floor`]).
//!
//! # Words
//! Where a word means what it means in the [contract](crate::store) and the [rule book](crate::store::record), it is the same word
//! and the same type: claim ([`ClaimId`](crate::store::ClaimId)), [`Mode`](crate::store::Mode) and what it admits, a claim
//! `beside` another, grant ([`Grant`](crate::store::Grant)), lease, `expires`, `last_token`, `not_after`, release, withdraw,
//! renew. These are other things on purpose:
//! - A [`Hold`] here is what one node keeps: a vote. A claim holds only while a majority keeps such votes. So a node
//!   does not apply the rules of a [`Record`](crate::store::record::Record): it has no queue, grants nothing, and takes or refuses
//!   the tokens that a client proposes, where a record takes the next ones.
//! - A [`Run`] is a proposal. It becomes a grant when a majority has voted for it ([`Run::grant`]).
//! - A [`Renewal`] counts the answers to one renewal; what is asked for is a [`Renewal`](crate::store::Renewal) of the
//!   contract. A [`Record`] is a node's note of the longest lease.
//! - A node's times are microseconds of its own clock, which no [`Moment`](crate::clock::Moment) of a client's clock compares with.

mod agreement;
mod ballot;
mod node;
mod poll;
#[cfg(test)]
mod properties;
mod quarantine;
mod renewal;
mod round;
mod terms;

pub use agreement::{Agreement, Record, agree};
pub use ballot::{Ask, RoundId, Run, Vote};
pub use node::{Added, Hold, Node};
pub use poll::{Life, Outcome, Poll};
pub use quarantine::{Check, Quarantine};
pub use renewal::{Renewal, Step as RenewalStep};
pub use round::{Granted, Refusal, Rivals, Round, Step};
pub use terms::Terms;

pub use crate::store::admission::Admission;
