//! What the browser sees: chapters that are run live, and a store's locks as they come and go.
//!
//! # Layout
//! - [`serve`]: the page's server, from its start to its end
//! - `routes`: the ways in; `gate`: who is let in; `assets`: the files of the page
//! - `runs`: chapters one after the other, and what is told about them; `listeners`: who is told
//! - `locks`: looks at the store while somebody watches; `seen`: what two looks tell; `histogram`: how long things took
//!
//! The page itself is in `assets/`: plain HTML, CSS and modules of JavaScript, without anything from elsewhere.

mod assets;
pub(crate) mod gate;
mod histogram;
mod listeners;
mod locks;
mod routes;
mod runs;
mod seen;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::url::StoreUrl;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::chapters::Stage;
use crate::{open_files, server, words};
use locks::Locks;
use routes::Site;
use runs::Runs;

/// The usual port. A browser remembers language and colours by it.
pub const USUAL_PORT: u16 = 7420;

/// How long browsers may still take once the page closes.
const CLOSING: Duration = Duration::from_secs(2);

/// A browser needs six at most. The rest of the files is for chapters.
const MOST_CONNECTIONS: usize = 512;

/// How to serve the page.
#[derive(Clone)]
pub struct PageOptions {
    /// Where to listen; without, on [`USUAL_PORT`] of this machine, or a free port if that is taken.
    pub listen: Option<SocketAddr>,
    /// The URL of the store whose locks are shown; without, the default store.
    pub store: Option<String>,
    /// Where chapters are played.
    pub stage: Stage,
}

impl fmt::Debug for PageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageOptions")
            .field("listen", &self.listen)
            .field("store", &self.store.as_deref().map(StoreUrl::parse))
            .field("stage", &self.stage)
            .finish()
    }
}

/// A page that can be opened.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// Where it is.
    pub url: String,
    /// The store whose locks it shows, without a password.
    pub store: String,
}

/// Serves the page until `stop` completes, and ends what it has started. Tells by `opened` once it listens.
///
/// # Errors
/// When the address cannot be listened on, or the store's URL is none.
pub async fn serve(
    options: PageOptions,
    opened: impl FnOnce(&Opened) -> io::Result<()>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let store = match &options.store {
        Some(url) => StoreUrl::parse(url)?,
        None => StoreUrl::from_environment()?,
    };
    let store = store.to_string();
    let listener = listen(options.listen).await?;
    let address = listener.local_addr()?;
    let runs = Arc::new(Runs::default());
    let locks = Arc::new(Locks::new(options.store));
    let site = Site {
        runs: runs.clone(),
        locks: locks.clone(),
        store: store.clone(),
        only_loopback: address.ip().is_loopback(),
    };
    opened(&Opened {
        url: format!("http://{address}"),
        store,
    })?;
    let (close, mut closing) = tokio::sync::watch::channel(());
    let closed = async move { drop(closing.changed().await) };
    let most = (open_files::most() * 3 / 4).min(MOST_CONNECTIONS);
    let serving = server::serve(listener, routes::router(site), most, closed);
    let mut serving = tokio::spawn(serving);
    let watching = tokio::spawn({
        let locks = locks.clone();
        async move { locks.watch().await }
    });
    tokio::select! {
        () = stop => {}
        () = runs.work(&options.stage) => {}
        served = &mut serving => served.context("the server broke off")?,
    }
    // Streams of events never end by themselves.
    runs.close();
    watching.abort();
    let _ = watching.await;
    locks.close().await;
    close.send_replace(());
    if tokio::time::timeout(CLOSING, &mut serving).await.is_err() {
        serving.abort();
    }
    Ok(())
}

async fn listen(wanted: Option<SocketAddr>) -> Result<TcpListener> {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, USUAL_PORT));
    let address = wanted.unwrap_or(usual);
    let listener = match TcpListener::bind(address).await {
        Err(error) if wanted.is_none() && error.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
        }
        bound => bound,
    };
    listener.with_context(|| words::cannot_listen(address))
}
