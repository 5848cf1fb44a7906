//! What network stores share, here and in other crates. Nothing in it knows a kind of server.
//!
//! | | |
//! | --- | --- |
//! | a URL | [`ServerUrl`] parses it into [`Credentials`], [`Address`]es, a path and [`Options`]; a [`StoreKind`] says how errors name the store |
//! | TLS | [`Trust`] is what the options say of it; `tls`, with the feature of that name, does the handshake |
//! | time | [`ServerClock`] says in the server's time when a request is too late |
//! | hints | [`HintBoard`] routes them to subscriptions; [`polling`] makes them for a server that sends none |
//! | a connection | [`supervise`] keeps it alive, with a [`Backoff`] between tries; [`Silence`] decides when to end it |
//!
//! Errors say what to write instead. No error and no `Debug` shows a secret.
//!
//! ```
//! use std::time::Duration;
//! use lockkeeper::store::common::{ServerUrl, StoreKind, Trust, decode};
//! use lockkeeper::url::StoreUrl;
//!
//! const TOY: StoreKind = StoreKind::new("toy", "toy://localhost:7000/locks")
//!     .with_tls("write toys: instead of toy:", "write toy: instead of toys:");
//!
//! let url = StoreUrl::parse("toys://me:p%2Fw@a:7001,b/my%20locks?connect_timeout=500ms&ca=/etc/ca.pem")?;
//! let server = ServerUrl::parse(&url, TOY)?;
//! let servers = server.addresses(7000)?;
//! let database = decode(server.path().trim_start_matches('/'))?;
//!
//! let mut options = server.options()?;
//! let timeout = options.timeout("connect_timeout")?.unwrap_or(Duration::from_secs(2));
//! let mut credentials = server.credentials().clone();
//! if let Some(password) = options.password_file("password_file")? {
//!     credentials.password = Some(password);
//! }
//! let trust = Trust::read(&mut options, server.scheme() == "toys", &TOY)?;
//! options.finish()?;              // refuses any other option, and names those that were taken
//!
//! assert_eq!(servers[1].to_string(), "b:7000");
//! assert_eq!((database.as_str(), timeout.as_millis()), ("my locks", 500));
//! assert_eq!(credentials.password(), Some("p/w"));        // to send it
//! assert!(!format!("{credentials:?}").contains("p/w"));   // shown nowhere
//! # Ok::<(), lockkeeper::Error>(())
//! ```

mod abort;
mod address;
mod credentials;
mod hints;
pub(crate) mod json;
mod options;
pub mod polling;
mod server_clock;
mod supervise;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
pub(crate) mod tls;
mod trust;
mod url;

pub use self::abort::AbortOnDrop;
pub use self::address::Address;
pub use self::credentials::{Credentials, Secret, warn_of_plain_text};
pub use self::hints::HintBoard;
pub use self::options::Options;
pub use self::server_clock::ServerClock;
pub use self::supervise::{Backoff, Silence, Supervised, supervise};
pub use self::trust::Trust;
pub use self::url::{ServerUrl, StoreKind, decode, refuse};
