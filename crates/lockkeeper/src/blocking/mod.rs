//! The same verbs for threads: no runtime, no `async`.
//!
//! Re-entry is by thread, as in Java: a thread that holds a lock may acquire it again. So a guard belongs to
//! its thread and cannot be sent to another; use the asynchronous API with an [`Owner`](crate::Owner) where
//! ownership moves.
//!
//! ```
//! use lockkeeper::blocking::Lockkeeper;
//!
//! let keeper = Lockkeeper::connect("memory:blocking-example")?;
//! let lock = keeper.lock("invoice:9")?;
//! let outer = lock.acquire()?;
//! let inner = lock.acquire()?;                 // the same thread: re-entered
//! assert_eq!(inner.depth(), 2);
//! drop(inner);
//! outer.release()?;
//! keeper.close();
//! # Ok::<(), lockkeeper::Error>(())
//! ```
//!
//! Do not call these inside asynchronous code: they block the thread that would run other tasks.

mod guard;
mod keeper;
mod latch;
mod lock;
mod multi;
mod rwlock;
mod semaphore;

pub use guard::{Guard, ReadGuard, WriteGuard};
pub use keeper::Lockkeeper;
pub use latch::Latch;
pub use lock::Lock;
pub use multi::{MultiGuard, MultiLock};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
