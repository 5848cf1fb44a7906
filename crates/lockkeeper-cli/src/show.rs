//! `lockkeeper show`: everything the store knows about one lock.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use lockkeeper::Token;
use lockkeeper::store::{Holder, LockInfo, NodeStatus};

use crate::view::{LockView, NodeView, is_held, owner};
use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::{UNKNOWN, ago, human, or_unknown, plain, print, print_json, who};
use lockkeeper_cli::store::{self, StoreArgs};

/// Shows who holds a lock, since when and for how long still, and who waits for it
///
/// Exits with 0 whether the lock is held, free or unknown to the store.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lock
    name: String,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    let keeper = store::open(store).await?;
    let info = keeper.inspect(&args.name).await?;
    if store.json {
        let view = info.as_ref().map(LockView::inspected);
        let mut view = view.unwrap_or_else(|| LockView::unknown(&args.name));
        view.nodes = keeper.nodes().iter().map(NodeView::new).collect();
        return Ok(print_json(&view)?);
    }
    let known = match &info {
        Some(info) => text(info),
        None => {
            let name = plain(&args.name);
            format!("{name} is free; the store knows nothing about it")
        }
    };
    Ok(print(&(known + &nodes(&keeper.nodes())))?)
}

/// How the nodes of a quorum are.
fn nodes(nodes: &[NodeStatus]) -> String {
    let mut text = String::new();
    for status in nodes {
        let node = NodeView::new(status);
        let _ = write!(text, "\n  {:<10} {} {}", "node", node.node, node.text);
    }
    text
}

fn known(text: Option<String>) -> String {
    text.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// What is left of a lease, and how long it is as a whole.
fn lease(holder: &Holder) -> String {
    let whole = holder.lease.map(|lease| format!(" of {}", human(lease)));
    match holder.remaining {
        Some(left) => format!("{} left{}", human(left), whole.unwrap_or_default()),
        None => "no end, or unknown".to_owned(),
    }
}

/// The free permits of a semaphore, and why nobody has one of the others.
fn permits(free: u32, is_nobody_known: bool) -> String {
    if is_nobody_known {
        format!(
            "{free} free, if it is an RSemaphore of Java's, which keeps no record of its holders"
        )
    } else {
        format!("{free} free")
    }
}

fn text(info: &LockInfo) -> String {
    let mut text = plain(&info.name);
    let mut line = |label: &str, value: String| {
        let _ = write!(text, "\n  {label:<10} {value}");
    };
    match is_held(info) {
        Some(true) => {}
        Some(false) => line("state", "free".into()),
        None => line("state", UNKNOWN.into()),
    }
    for holder in &info.holders {
        line("held by", plain(&holder.process.to_string()));
        if let Some(label) = &holder.label {
            line("label", plain(label.as_str()));
        }
        line("mode", holder.mode.to_string());
        let since = holder
            .since
            .map(|since| format!("{} ago", human(ago(since))));
        line("since", known(since));
        line("lease", lease(holder));
        line("token", or_unknown(holder.token.map(Token::get)));
        line("owner", known(owner(holder.claim)));
        if let Some(depth) = holder.depth {
            line("depth", depth.to_string());
        }
    }
    if let Some(free) = info.free_permits {
        line("permits", permits(free, info.holders.is_empty()));
    }
    line("waiting", info.waiters.to_string());
    for (place, waiter) in info.queue.iter().enumerate() {
        let who = who(&waiter.process, waiter.label.as_ref());
        let since = waiter
            .since
            .map(|since| format!(", for {}", human(ago(since))));
        let text = format!("{who}, {}{}", waiter.mode, since.unwrap_or_default());
        line(&format!("  {}", place + 1), text);
    }
    // Where a store lists none it only counts them.
    let more = info.waiters.saturating_sub(info.queue.len());
    if more > 0 && !info.queue.is_empty() {
        line("", format!("and {more} more"));
    }
    // A holder may have it, where it is not known whose it is.
    if info.holders.iter().all(|holder| holder.token.is_none())
        && let Some(token) = info.last_token
    {
        line("last token", token.get().to_string());
    }
    if let Some(broken) = &info.broken {
        let when = human(ago(broken.at));
        // A break counts as made at the token that it took, which may be ahead of the clock.
        let by_token = |token: Token| UNIX_EPOCH + Duration::from_micros(token.get());
        let older = info
            .holders
            .iter()
            .any(|holder| holder.since.max(holder.token.map(by_token)) > Some(broken.at));
        let which = if older { ", before this hold" } else { "" };
        let reason = plain(&broken.reason);
        line("broken", format!("{when} ago{which}: {reason}"));
    }
    text
}
