//! One instance of the shop.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, Result};
use lockkeeper::url::StoreUrl;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use super::gate::Gate;
use super::lock::{LockKind, Locks};
use super::routes::{Site, router};
use super::sale::Shop;
use super::stock::{self, USUAL_SIZE};
use crate::{open_files, server, words};

/// How long customers may still take once the shop closes.
const CLOSING: Duration = Duration::from_secs(10);

/// How many files the stock and the lock's store may need.
const OWN_FILES: usize = 64;

/// How to serve.
#[derive(Clone)]
pub struct ServeOptions {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Names under which it answers, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// What protects the sales.
    pub lock: LockKind,
    /// The URL of the stock.
    pub stock: String,
    /// How much of the inventory there is if the stock is new.
    pub size: u32,
    /// The lease of locks that have one.
    pub lease: Duration,
    /// How long a customer waits for a lock.
    pub wait: Duration,
    /// How long a decision takes, between reading and writing.
    pub work: Duration,
    /// Whether decisions wait for a word: see [`Instance::go_on`](super::Instance::go_on).
    pub held_back: bool,
}

impl ServeOptions {
    /// The usual ones: a free port of this machine, a lease of 5 s, and twice that to wait for a lock.
    pub fn new(lock: LockKind, stock: impl Into<String>) -> ServeOptions {
        ServeOptions {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            hosts: Vec::new(),
            lock,
            stock: stock.into(),
            size: USUAL_SIZE,
            lease: Duration::from_secs(5),
            // Longer than the lease: the death of an instance costs the others' customers time and nothing else.
            wait: Duration::from_secs(10),
            work: Duration::ZERO,
            held_back: false,
        }
    }
}

impl std::fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeOptions")
            .field("listen", &self.listen)
            .field("hosts", &self.hosts)
            .field("lock", &self.lock)
            .field("stock", &StoreUrl::parse(&self.stock))
            .field("size", &self.size)
            .field("lease", &self.lease)
            .field("wait", &self.wait)
            .field("work", &self.work)
            .field("held_back", &self.held_back)
            .finish()
    }
}

/// A shop that is open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opened {
    /// Where it is.
    pub url: String,
    /// Its port.
    pub port: u16,
    /// What protects it, without a password.
    pub lock: String,
    /// Where its stock is, without a password.
    pub stock: String,
}

/// Serves until `stop` completes, then lets those who are in finish. Tells by `opened` once it listens. Nothing is
/// decided before `decides` is true.
///
/// # Errors
/// When the lock's store, the stock or the address cannot be used.
pub async fn serve(
    options: ServeOptions,
    decides: watch::Receiver<bool>,
    opened: impl FnOnce(&Opened) -> io::Result<()>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let listen = options.listen;
    let listener = TcpListener::bind(listen).await;
    let listener = listener.with_context(|| words::cannot_listen(listen))?;
    let address = listener.local_addr()?;
    let stock_url = StoreUrl::parse(&options.stock)?;
    let stock = stock::open(&options.stock, options.size).await?;
    let lock = options.lock.to_string();
    let shop = Arc::new(Shop {
        locks: Locks::open(options.lock, options.lease).await?,
        stock,
        port: address.port(),
        wait: options.wait,
        work: options.work,
        decides,
        waiting: AtomicU64::new(0),
        deciding: AtomicU64::new(0),
    });
    let site = Site {
        shop: shop.clone(),
        lock: lock.clone(),
        stock: stock_url.to_string(),
    };
    let gate = Gate {
        port: address.port(),
        only_loopback: address.ip().is_loopback(),
        hosts: options.hosts,
    };
    opened(&Opened {
        url: format!("http://{address}"),
        port: address.port(),
        lock,
        stock: stock_url.to_string(),
    })?;
    let (closing, closed) = oneshot::channel();
    let stop = async move {
        stop.await;
        let _ = closing.send(());
    };
    let most = open_files::most().saturating_sub(OWN_FILES).max(1);
    let serving = server::serve(listener, router(site, gate), most, stop);
    let late = async {
        if closed.await.is_ok() {
            tokio::time::sleep(CLOSING).await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = late => {}
    }
    shop.locks.close().await;
    Ok(())
}
