//! One lock that holds across threads, tasks, processes and machines.
//! Any asynchronous executor will do; [`blocking`] needs none.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use lockkeeper::Lockkeeper;
//!
//! let keeper = Lockkeeper::connect("memory:").await?;    // or "sqlite:/var/lib/app/locks.db"
//! let lock = keeper.lock("stock:42")?;
//!
//! let guard = lock.acquire().await?;                     // waits; renewed until released
//! println!("sell one, fenced by {}", guard.token());     // send the token along with every write
//! guard.release().await?;                                // tells whether it was still ours
//!
//! if let Some(guard) = lock.try_acquire().await? {       // does not wait
//!     guard.run(async { /* dropped if the lock is lost */ }).await?;
//! }
//! # Ok::<(), lockkeeper::Error>(()) }).unwrap();
//! ```
//!
//! # Guarantees
//! - **Exclusive**: between a grant and its [deadline](Guard::deadline), which renewals move on, nobody else
//!   is granted the lock, as far as the store keeps its word.
//! - **It never lies about holding**: [`Guard::is_held`] turns false and [`Guard::lost`] fires *before* the
//!   lease can have ended in the store, on a clock that cannot be set and does not stop in suspend.
//! - **Fenced**: each grant's [`Token`] is higher than all before it, so a resource can refuse a late writer.
//! - **No deadlock by death**: a holder that dies is followed at once (embedded stores) or when its lease
//!   ends.
//! - **No stealing**: only the claim that holds can release or renew, however late a request arrives.
//! - **Cancel safe**: any future here may be dropped at any point; nothing stays behind.
//! - **Nothing held at the end**: when a program ends by itself, its last handle waits until its locks are released, at
//!   most a second.
//!
//! # What it does not guarantee
//! A lock cannot stop a program that was paused in the middle of a write. Only the resource can, by its
//! token. `docs/guarantees.md` in the repository gives the reasons and the assumptions.
//!
//! A process that is forked without `exec` does not hold what its parent holds: there every verb is [`Error::Forked`].
//!
//! # Layout
//! - What you call: [`Lockkeeper`], [`Lock`], [`RwLock`], [`Semaphore`], [`Latch`], [`MultiLock`], and what
//!   they give you, [`Guard`]. [`blocking`] has the same verbs for threads.
//!   Who may acquire again what it holds: an [`Owner`].
//! - What happens: [`Observer`] and `tracing` events.
//! - Where locks are kept: [`store`], with the contract that every store keeps.
//!
//! # Features
//! | feature | default | gives |
//! | --- | --- | --- |
//! | `sqlite` | yes | `sqlite:PATH`, and the embedded default store |
//! | `redis` | yes | `redis://HOST:PORT/DB`, `redis+unix:`, `redis+sentinel:`, `redis+cluster:`: machines of a network, in Redisson's layout |
//! | `redlock` | yes | `redlock:`; brings `redis` |
//! | `tls` | yes | `rediss:`, and [`store::common`]`::tls` for network stores of other crates |
//! | `internals` | no | what this project's own tests need: outside semver |

pub mod blocking;
pub mod clock;
#[cfg(feature = "internals")]
pub mod duration;
#[cfg(not(feature = "internals"))]
mod duration;
mod engine;
mod error;
mod guard;
mod keeper;
mod label;
mod latch;
mod lock;
mod multi;
mod name;
mod observe;
mod owner;
mod rwlock;
mod semaphore;
mod state_folder;
pub mod store;
mod token;
mod under_way;
pub mod url;

pub use error::{Error, MAX_LEASE, MIN_LEASE};
pub use guard::{Guard, ReleaseOutcome};
pub use keeper::{Builder, HandOff, Lockkeeper};
pub use label::{Label, MAX_LABEL_BYTES};
pub use latch::Latch;
pub use lock::Lock;
pub use multi::{MultiGuard, MultiLock};
pub use name::{MAX_NAME_BYTES, Name};
pub use observe::{Event, LossCause, Observer, SETUP_TARGET, WaitEnd};
pub use owner::Owner;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use token::{FenceGate, Token};

/// Compiles and runs what the README shows.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles what the page about events shows.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/observing.md")]
struct Observing;
