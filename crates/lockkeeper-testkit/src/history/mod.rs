//! Records what clients asked and what they were told, against one clock.
//!
//! All processes of a machine share [`Moment`](lockkeeper::clock::Moment), so each writes a file of its own, one JSON
//! event a line, and the test merges them. An event is written before the call it announces and after the answer it
//! reports: what the history calls a hold is never longer than the hold was.

mod event;
mod recorder;

pub use event::{Answer, Call, Entry, Event, Fault, LatchAsk, Mode, What};
pub use recorder::{Recorder, merge, read};
