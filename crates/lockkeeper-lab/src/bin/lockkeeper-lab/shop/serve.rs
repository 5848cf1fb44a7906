//! `lockkeeper shop serve`: one instance of the shop.

use std::io::{BufRead, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use lockkeeper::duration;
use lockkeeper::url::{STORE_VARIABLE, StoreUrl};
use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_lab::shop::stock::USUAL_SIZE;
use lockkeeper_lab::shop::{Opened, ServeOptions, serve};
use lockkeeper_lab::{told, words};
use tokio::sync::watch;

use super::{failure, stock_url};
use lockkeeper_cli::exit::{Failure, USAGE};
use lockkeeper_cli::notes::say;
use lockkeeper_cli::output::{print, print_json};
use lockkeeper_cli::signals::Signals;
use lockkeeper_cli::store::{StoreArgs, check, without_password};

/// Serves one instance; start as many as you like, on different ports
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen: a port of this machine (0 takes a free one), or an address and a port
    #[arg(long, value_name = "ADDR", default_value = "8080", value_parser = address)]
    listen: SocketAddr,
    /// Answer to this name too, beside addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME", value_parser = host)]
    host: Vec<String>,
    /// What protects the sales: none, mutex (of this process), a store's URL, store (that of --store or
    /// $LOCKKEEPER_STORE), or a naive lock on the Redis server of --store, such as no-expiry
    #[arg(long, value_name = "KIND", default_value = "store")]
    lock: String,
    /// Where the stock is: sqlite:PATH or redis://HOST:PORT/DB [default: $LOCKKEEPER_SHOP_STOCK, or a SQLite
    /// file in your state folder]
    #[arg(long, value_name = "URL")]
    stock: Option<String>,
    /// How much of the inventory there is if the stock is new
    #[arg(long, value_name = "N", default_value_t = USUAL_SIZE)]
    stock_size: u32,
    /// The lease of locks that have one: for so long is a killed instance's lock in the way
    #[arg(long, value_name = "D", default_value = "5s", value_parser = duration::parse)]
    lease: Duration,
    /// How long a customer waits for a lock
    #[arg(long, value_name = "D", default_value = "10s", value_parser = duration::parse)]
    wait: Duration,
    /// How long a decision takes, between reading the stock and writing it
    #[arg(long, value_name = "D", default_value = "0s", value_parser = duration::parse)]
    work: Duration,
    /// End when standard input does
    #[arg(long, hide = true)]
    pub(super) leashed: bool,
    /// Decide nothing before standard input has a line
    #[arg(long, hide = true, requires = "leashed")]
    held_back: bool,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    let stock = stock_url(args.stock.as_deref())?;
    let options = ServeOptions {
        listen: args.listen,
        hosts: args.host.clone(),
        lock: lock(&args.lock, store, &stock)?,
        stock,
        size: args.stock_size,
        lease: args.lease,
        wait: args.wait,
        work: args.work,
        held_back: args.held_back,
    };
    let (go_on, decides) = watch::channel(!args.held_back);
    if !args.listen.ip().is_loopback() {
        say(words::SHOP_FOR_OTHERS.get(store.lang()));
    }
    let mut signals = Signals::listen()?;
    let leashed = args.leashed;
    let stop = async move {
        tokio::select! {
            _ = signals.next_fatal() => {}
            () = end_of_input(go_on), if leashed => {}
        }
    };
    let opened = |opened: &Opened| {
        if store.json {
            print_json(opened)
        } else {
            let text = words::shop_is_open(&opened.url, &opened.lock, &opened.stock);
            print(text.get(store.lang()))
        }
    };
    serve(options, decides, opened, stop).await.map_err(failure)
}

/// The lock that an argument names.
fn lock(kind: &str, store: &StoreArgs, stock: &str) -> Result<LockKind, Failure> {
    if kind.contains(':') {
        without_password(kind, &words::instead_of_lock(STORE_VARIABLE))?;
    }
    let named = match &store.store {
        Some(url) => {
            check(url)?;
            Some(url.clone())
        }
        None => std::env::var(STORE_VARIABLE)
            .ok()
            .filter(|url| !url.is_empty()),
    };
    if kind == "store" {
        // Without any, the embedded default: it has no password to lose.
        let url = match named {
            Some(url) => url,
            None => StoreUrl::from_environment()?.to_string(),
        };
        return Ok(LockKind::Ours(url));
    }
    let is_redis = |url: &&str| url.starts_with("redis://");
    let redis = named.as_deref().filter(is_redis);
    let redis = redis.or_else(|| Some(stock).filter(is_redis));
    LockKind::parse(kind, redis).map_err(|error| match error.downcast::<lockkeeper::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::new(USAGE, told(&error)),
    })
}

/// An address to listen on: a port of this machine, or an address and a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| format!("{error}; write 8080, 127.0.0.1:8080 or [::1]:8080"))?;
    found.next().ok_or_else(|| "it has no address".into())
}

/// A name of this machine, as it stands in a URL.
fn host(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !text.is_empty() && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("write a name without a port, such as shop.example".into())
    }
}

/// The program that started us holds the other end, and may say by a line that we go on.
async fn end_of_input(go_on: watch::Sender<bool>) {
    let (sender, ended) = tokio::sync::oneshot::channel();
    // A thread of its own: nothing waits for a read that never ends.
    std::thread::spawn(move || {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            for _ in stdin.lock().split(b'\n').map_while(Result::ok) {
                go_on.send_replace(true);
            }
        }
        let _ = sender.send(());
    });
    let _ = ended.await;
}
