//! What the programs `lockkeeper` and `lockkeeper-lab` share, so that both speak and end alike.
//!
//! It is no API for others: it changes with the command, outside of semantic versioning.
//!
//! # Layout
//! [`store`] says which store a verb works on, [`nested`] that it is the same inside a command of `run`, [`secrecy`] keeps its password from other programs, [`warnings`] tells what is
//! wrong with how it is set up, [`output`] and [`notes`] print, [`signals`] hears signals, [`exit`] has the exit codes. [`lang`] chooses the
//! language, and [`words`] has the texts in each.

pub mod exit;
pub mod lang;
pub mod nested;
pub mod notes;
pub mod output;
pub mod secrecy;
pub mod signals;
pub mod store;
pub mod warnings;
pub mod words;

use exit::Failure;

/// Runs a verb to its end, on this thread.
///
/// # Errors
/// Those of the verb, and when the system has no file descriptors left to wait with.
pub fn block_on<T>(verb: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(verb)
}
