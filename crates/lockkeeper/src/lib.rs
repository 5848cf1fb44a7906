//! Placeholder front page.
pub mod clock;
pub mod duration;
mod error;
mod name;
pub mod store;
mod token;
pub mod url;

pub use error::{Error, MAX_LEASE, MIN_LEASE};
pub use name::{MAX_NAME_BYTES, Name};
pub use token::{FenceGate, Token};
