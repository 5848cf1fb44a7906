//! `lockkeeper show`: everything the store knows about one lock.

use std::fmt::Write;

use lockkeeper::store::{LockInfo, NodeStatus};

use crate::exit::Failure;
use crate::output::{ago, human, plain, print, print_json};
use crate::store::{self, StoreArgs};
use crate::view::{LockView, NodeView};

/// Shows who holds a lock, since when and for how long still
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
        let view = info.as_ref().map(LockView::new);
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

fn text(info: &LockInfo) -> String {
    let mut text = plain(&info.name);
    let mut line = |label: &str, value: String| {
        let _ = write!(text, "\n  {label:<10} {value}");
    };
    if info.holders.is_empty() {
        line("state", "free".into());
    }
    for holder in &info.holders {
        line("held by", plain(&holder.process.to_string()));
        line("mode", holder.mode.to_string());
        line("since", format!("{} ago", human(ago(holder.since))));
        line("lease", format!("{} left", human(holder.remaining)));
        line("token", holder.token.get().to_string());
        line("owner", holder.claim.to_string());
        if let Some(depth) = holder.depth {
            line("depth", depth.to_string());
        }
    }
    line("waiting", info.waiters.to_string());
    if info.holders.is_empty()
        && let Some(token) = info.last_token
    {
        line("last token", token.get().to_string());
    }
    if let Some(broken) = &info.broken {
        let when = human(ago(broken.at));
        let older = info.holders.iter().any(|holder| holder.since > broken.at);
        let which = if older { ", before this hold" } else { "" };
        let reason = plain(&broken.reason);
        line("broken", format!("{when} ago{which}: {reason}"));
    }
    text
}
