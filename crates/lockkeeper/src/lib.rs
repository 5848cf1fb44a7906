//! One lock that holds across threads, tasks, processes and machines.
//! Any asynchronous executor will do; [`blocking`] needs none.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use lockkeeper::Lockkeeper;
//!
//! let keeper = Lockkeeper::connect("memory:").await?;    // one for a program; or "sqlite:/var/lib/app/locks.db"
//! let lock = keeper.lock("stock:42")?;
//!
//! let guard = lock.acquire().await?;                     // waits; renewed until released
//! println!("sell one, fenced by {}", guard.token());     // send the token along with every write
//! guard.release().await?;                                // an error if it was lost
//!
//! if let Some(guard) = lock.try_acquire().await? {       // does not wait
//!     guard.run(async { /* dropped if the lock is lost */ }).await?;
//! }
//! match lock.acquire_within(Duration::from_secs(2)).await? {
//!     Some(guard) => drop(guard),                        // released in the background
//!     None => println!("held by someone else for two seconds"),
//! }
//! # Ok::<(), lockkeeper::Error>(()) }).unwrap();
//! ```
//!
//! # What there is
//! | | |
//! | --- | --- |
//! | [`Lockkeeper`] | one client of one store, and the thread that renews what it holds; [`Builder`] sets it up |
//! | [`Lock`] | one holder at a time; renewed or [fixed](Lock::fixed_lease) lease, [fair](Lock::fair) if asked |
//! | [`RwLock`], [`Semaphore`], [`Latch`], [`MultiLock`] | readers and a writer; permits; a count-down; several locks at once |
//! | [`Guard`], [`MultiGuard`] | what holding looks like: [`token`](Guard::token), [`lost`](Guard::lost), [`release`](Guard::release) |
//! | [`Owner`] | may acquire again what it holds |
//! | [`Token`], [`FenceGate`] | let a resource refuse a holder that woke up too late |
//! | [`blocking`] | the same verbs for threads, re-entrant by thread |
//! | [`Observer`], [`Event`] | waits, time-outs, losses and outages; `tracing` has the same events |
//! | [`store`] | where locks are kept, and the contract for writing another store |
//!
//! # Guarantees
//! - **Exclusive**: between a grant and its [deadline](Guard::deadline), which renewals move on, no other holder
//!   is granted the lock, as far as the store keeps its own guarantees.
//! - **It never lies about holding**: [`Guard::is_held`] turns false and [`Guard::lost`] fires *before* the
//!   lease can have ended in the store, on a clock that cannot be set and does not stop in suspend.
//! - **Fenced**: each grant's [`Token`] is higher than all before it, so a resource can refuse a late writer.
//! - **No deadlock by death**: the lock of a holder that dies is free at once (embedded stores), when its session ends (ZooKeeper) or
//!   when its lease ends (all others).
//! - **No stealing**: only the claim that holds can release or renew, however late a request arrives.
//! - **Cancel safe**: any future here may be dropped at any point; no lock and no place in a queue is left behind.
//! - **Nothing held at the end**: when a program ends by itself, its last handle waits until its locks are released, at
//!   most a second.
//!
//! **Not guaranteed**: a lock cannot stop a program that was paused in the middle of a write. Only the resource can, by its
//! token: `docs/fencing.md` in the repository has recipes. A process that is forked without `exec` does not hold what its parent
//! holds: there every verb is [`Error::Forked`]. `docs/guarantees.md` gives the reasons and the assumptions.
//!
//! # Stores
//! | URL | locks hold among | feature |
//! | --- | --- | --- |
//! | `memory:`, `memory:NAME` | tasks and threads of one process; the keepers of a process that give the same name share a store | |
//! | `sqlite:PATH` | processes of one machine | `sqlite` |
//! | `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, `redis+unix:///SOCKET` | machines of a network, and Redisson's clients | `redis` |
//! | `redis+sentinel://HOST[:PORT],…/SERVICE[/DB]` | the same, on the master that Sentinels name | `redis` |
//! | `redis+cluster://HOST[:PORT],…` | the same, on a cluster | `redis` |
//! | `rediss:`, `rediss+sentinel:`, `rediss+cluster:` | the same with TLS | `redis`, `tls` |
//! | `redlock://HOST[:PORT],HOST[:PORT],HOST[:PORT]` | machines of a network, while a majority of independent servers is up | `redlock` |
//! | `postgres://[USER[:PASSWORD]@]HOST[:PORT][,…]/DATABASE`, `postgresql:` | machines of a network, in a PostgreSQL database | `postgres` |
//! | `mysql://[USER[:PASSWORD]@]HOST[:PORT][,…]/DATABASE`, `mariadb:` | machines of a network, in a MySQL or MariaDB database | `mysql` |
//! | `zk://[USER:PASSWORD@]HOST[:PORT],…[/CHROOT]`, `zookeeper:` | machines of a network, and Curator's clients, while a majority of the ensemble is up | `zookeeper` |
//! | `zks://…` | the same with TLS | `zookeeper`, `tls` |
//! | `etcd://[USER:PASSWORD@]HOST[:PORT],…[/PREFIX]` | machines of a network, and `etcdctl lock`, while a majority of the members is up | `etcd` |
//! | `etcds://…` | the same with TLS | `etcd`, `tls` |
//!
//! Without a URL, [`Builder::connect`] takes the environment variable `LOCKKEEPER_STORE`, else a SQLite file in the user's
//! state folder. A `%` in front of two hexadecimal digits writes any byte of a user, a password or a path. Options follow a `?` and
//! are joined by `&`:
//!
//! | option | of | default | |
//! | --- | --- | --- | --- |
//! | `connect_timeout`, `response_timeout` | Redis, redlock, SQL | `2s`, PostgreSQL: `3s` | 10 ms to 10 s |
//! | `connect_timeout`, `timeout` | ZooKeeper, etcd | `5s` | 10 ms to 10 s; `timeout` is for an answer |
//! | `dialect` | Redis, redlock | `redisson` | `plain` is the `SET NX PX` recipe of other libraries |
//! | `prefix` | Redis, redlock | none | what every key begins with |
//! | `prefix`, `schema` | MySQL, PostgreSQL | `lockkeeper_`, `lockkeeper` | what the names of the tables begin with; the schema that has them |
//! | `db` | Redis | 0 | the database, where the path does not say it |
//! | `password_file` | every network store | none | a file whose first line is the password |
//! | `replicas`, `replicas_timeout` | Redis | 0, `1s` | how many replicas have to confirm a grant, and within what time |
//! | `token_retention` | Redis, redlock | `forever`, plain: `30d` | how long a name's last token stays after its last use |
//! | `sentinel_user`, `sentinel_password_file` | Sentinels | none | the user for the Sentinels, and a file with its password |
//! | `ca`, `cert`, `key`, `insecure=yes` | with TLS | the system's authorities | files in PEM; `insecure` trusts any server |
//! | `max_lease` | redlock, SQL | `30s` | the longest lease of any client |
//! | `node_timeout` | redlock | `500ms` | how long one node may take |
//! | `tls=yes`, `quarantine=off` | redlock | | TLS to all nodes; **unsafe**: a restarted node votes at once |
//! | `sslmode` | SQL | `disable` on this machine, else `require` | `require` and `verify-full` both verify the certificate |
//! | `host`, `port` | SQL | none | a socket instead of a host; `port` of PostgreSQL alone |
//! | `sit_out` | SQL | `auto` | `never`: the server forgets no commit, and grants at once after a crash |
//! | `session_timeout` | ZooKeeper | `45s` | what to ask the servers for; leases last up to two thirds of what they grant |
//! | `also`, `tokens=native`, `acl=open` | ZooKeeper | | other recipes to keep out (`rw`, `kazoo`); tokens are czxids; nodes are for everybody |
//!
//! SQL stands for PostgreSQL, MySQL and MariaDB. `docs/redis.md`, `quorum.md`, `sql.md`, `zookeeper.md` and `etcd.md` in the repository have the details.
//!
//! On Redis and `redlock:` the name of a lock is a key, among your own of the same database. So name a lock otherwise than your data,
//! or set `prefix`. A lock at a key of yours is [`Error::Refused`] on Redis; on `redlock:`, and as text in dialect `plain`, your key
//! counts as a holder. A semaphore takes a number of yours for its permits, and changes it.
//!
//! `sqlite:` takes no options. [`store::schemes`] lists what this build has, and [`Lockkeeper::capabilities`] what the open
//! store can do.
//!
//! # Features
//! `sqlite`, `redis`, `redlock` and `tls` are on by default; `postgres`, `mysql`, `zookeeper` and `etcd` are not. Any one alone builds.
//! `default-features = false, features = ["redis"]` leaves SQLite's C code and TLS out. The error for a URL whose feature is off
//! names it.
//!
//! | feature | gives |
//! | --- | --- |
//! | `sqlite` | `sqlite:`, with SQLite compiled in, and the embedded default store |
//! | `redis` | `redis:` and its kin |
//! | `redlock` | `redlock:`; brings `redis` |
//! | `postgres` | `postgres:` and `postgresql:`; brings `tls` |
//! | `mysql` | `mysql:` and `mariadb:`; brings `tls` |
//! | `zookeeper` | `zk:` and `zookeeper:`; with `tls` also `zks:` |
//! | `etcd` | `etcd:`; with `tls` also `etcds:` |
//! | `tls` | TLS for network stores, [`store::common`]`::tls` |
//! | `internals` | what this project's own tests need: **outside semver**, it may change with any version |
//!
//! # Errors
//! "Held by someone else" is no error: it is `Ok(None)`. Decide by the variant of [`Error`], never by its text.
//!
//! | error | what to do |
//! | --- | --- |
//! | [`Unavailable`](Error::Unavailable), [`OutcomeUnknown`](Error::OutcomeUnknown) ([transient](Error::is_transient)) | try again later. Nothing is left held: an acquire in doubt is taken back, a release is tried again |
//! | [`Lost`](Error::Lost) | stop, and undo or fence what is on its way: another may hold the lock |
//! | [`Refused`](Error::Refused), [`Unsupported`](Error::Unsupported) | mend the set-up, or take another store |
//! | [`InvalidName`](Error::InvalidName), [`InvalidUrl`](Error::InvalidUrl), [`InvalidArgument`](Error::InvalidArgument), [`WouldDeadlock`](Error::WouldDeadlock) | mend the call; the text says how |
//! | [`LimitExceeded`](Error::LimitExceeded) | wait, or use fewer |
//! | [`Closed`](Error::Closed), [`Forked`](Error::Forked) | connect another keeper |
//!
//! # Running it
//! - **One keeper for a program**: it has a thread and, on a network store, connections. Clones are the same keeper.
//! - **Readiness**: [`Lockkeeper::connect`] returns once the store has answered. Later, [`Lockkeeper::inspect`] of any name asks the
//!   store one question, and [`Lockkeeper::nodes`] says from memory how the nodes of a quorum are.
//! - **Shutting down**: [`Lockkeeper::close`] lets nobody acquire any more, and waits for releases that are on their way. If the
//!   store is away it waits as long as the leases run: put a time-out around it.
//! - **Observing**: `docs/observing.md` in the repository has a table of the [events](Event), and how to count time-outs on a lock.
//! - **From asynchronous code that blocks**: use [`blocking`] on a thread of its own, as in `spawn_blocking`.
//!
//! # Limits
//! | | |
//! | --- | --- |
//! | a name | 1 to [`MAX_NAME_BYTES`] bytes of text without control characters |
//! | a label | 1 to [`MAX_LABEL_BYTES`] bytes |
//! | a lease | [`MIN_LEASE`], 100 ms, to [`MAX_LEASE`], 24 hours; on `redlock:` and in a database at most `max_lease`; on ZooKeeper at most two thirds of the session's time-out |
//! | the safety margin: how much sooner than the lease a lock that is not renewed counts as lost | a tenth of the lease, at least 50 ms |
//! | tasks that wait for one lock in one process | 100,000 |
//! | re-entries of one lock | 65,535 |
//! | permits of one claim on Redis | 1,000 |
//! | systems | Linux and macOS |
//!
//! Inside one process a `Mutex` is faster. `sqlite:` is for one machine: a file on a network file system is refused. `redlock:`
//! has no semaphores, latches or fair locks.
//!
//! # From Redisson
//! On Redis a Lockkeeper lock is a Redisson lock: Java services and Rust services exclude and wake each other on the same name.
//!
//! | Redisson | here |
//! | --- | --- |
//! | `RedissonClient`, `Redisson.create(config)` | [`Lockkeeper`], [`Lockkeeper::connect`] |
//! | `getLock(name)`, `RLock` | [`Lockkeeper::lock`], [`Lock`] |
//! | `lock()`, `tryLock()`, `tryLock(wait, unit)` | [`acquire`](Lock::acquire), [`try_acquire`](Lock::try_acquire), [`acquire_within`](Lock::acquire_within) |
//! | `lock(lease, unit)`, which is not renewed | [`Lock::fixed_lease`] |
//! | `lockWatchdogTimeout` | [`Builder::lease`], [`Lock::with_lease`] |
//! | `unlock()`, which throws if the lock was lost | [`Guard::release`], or drop the guard |
//! | `isHeldByCurrentThread()` | [`Guard::is_held`], which also knows when the lease is over |
//! | `forceUnlock()` | [`Lockkeeper::break_lock`], with a reason; [`Lockkeeper::break_hold`] for one hold |
//! | re-entry by thread | [`blocking`] by thread, asynchronous code by [`Owner`] |
//! | `RFairLock` (`getFairLock`) | [`Lock::fair`] |
//! | `RReadWriteLock` | [`RwLock`] |
//! | `RFencedLock`, `lockAndGetToken()` | every lock: [`Guard::token`] |
//! | `RPermitExpirableSemaphore`, `RSemaphore` | [`Semaphore`], whose permits have leases |
//! | `RCountDownLatch` | [`Latch`] |
//! | `RedissonMultiLock` | [`MultiLock`], in an order that cannot deadlock |
//! | `RedissonRedLock` | the store `redlock:`, for every [`Lock`] and [`RwLock`] |

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
mod limits;
mod lock;
mod multi;
mod name;
mod observe;
mod owner;
mod rw_guard;
mod rwlock;
mod semaphore;
mod state_folder;
pub mod store;
mod token;
mod under_way;
pub mod url;

pub use error::{Error, LossCause, SystemError};
pub use guard::{Guard, ReleaseOutcome};
pub use keeper::{Builder, HandOff, Lockkeeper};
pub use label::{Label, MAX_LABEL_BYTES};
pub use latch::Latch;
pub use limits::{MAX_LEASE, MIN_LEASE};
pub use lock::Lock;
pub use multi::{MultiGuard, MultiLock};
pub use name::{MAX_NAME_BYTES, Name};
pub use observe::{Event, Observer, SETUP_TARGET, WaitEnd};
pub use owner::Owner;
pub use rw_guard::{ReadGuard, WriteGuard};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use token::{FenceGate, Token};

/// Compiles and runs the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the examples of the page about events.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/observing.md")]
struct Observing;

/// Compiles the examples of the page about tokens.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/fencing.md")]
struct Fencing;

/// Compiles the examples of the page of recipes.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/recipes.md")]
struct Recipes;
