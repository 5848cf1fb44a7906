//! What network stores share.

mod abort;
mod hints;
pub mod polling;
mod server_clock;

pub use self::abort::AbortOnDrop;
pub use self::hints::HintBoard;
pub use self::server_clock::ServerClock;
