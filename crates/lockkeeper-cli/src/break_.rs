//! `lockkeeper break`: takes a lock from its holders, or from the one that is named.

use lockkeeper::Token;
use lockkeeper::store::{BreakOutcome, BreakTarget, ClaimId, Holder};
use serde::Serialize;

use crate::view::{HolderView, owner};
use lockkeeper_cli::exit::{Failure, NOT_THE_HOLDER, USAGE};
use lockkeeper_cli::output::{ago, human, plain, print, print_json, who};
use lockkeeper_cli::store::{self, StoreArgs};

/// Takes a lock from its holders
///
/// The holder is told at once, but may go on working until it hears it, at its next renewal at the latest:
/// break a lock when its holder is known to be dead or stuck. Fencing tokens of the broken hold are out of date at once.
///
/// Between `show` and `break` a lock may change hands. Name the hold that is meant, by its token or its owner, and no
/// other is touched: if others hold by then, nothing is broken, they are named, and the exit code is 77. A
/// request that reaches the store late does nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lock
    name: String,
    /// Why; shown to others
    #[arg(long)]
    reason: String,
    /// Only the hold that has this fencing token: what `show` prints as its token, or CMD of `run` has as
    /// LOCKKEEPER_TOKEN
    #[arg(long, value_name = "T", conflicts_with = "claim", value_parser = clap::value_parser!(u64).range(1..))]
    token: Option<u64>,
    /// Only the hold of this claim: what `show` prints as its owner, also of a Redisson client
    #[arg(long, value_name = "ID")]
    claim: Option<ClaimId>,
}

impl Args {
    fn target(&self) -> BreakTarget {
        match (self.token, self.claim) {
            (Some(token), _) => BreakTarget::Token(Token::new(token)),
            (_, Some(claim)) => BreakTarget::Claim(claim),
            _ => BreakTarget::All,
        }
    }
}

#[derive(Serialize)]
struct Done<'a> {
    name: &'a str,
    reason: &'a str,
    broken: Vec<HolderView<'a>>,
    /// Of a semaphore whose holders leave no record, so that nobody can be broken: how many permits are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_permits: Option<u32>,
    /// Those who hold instead of the one that was named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held_by: Vec<HolderView<'a>>,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    if args.reason.trim().is_empty() {
        let message = "--reason is empty; say why the lock is broken";
        return Err(Failure::new(USAGE, message));
    }
    let keeper = store::open(store).await?;
    let target = args.target();
    let outcome = keeper.break_hold(&args.name, target, &args.reason).await?;
    let (broken, held_by) = match &outcome {
        BreakOutcome::Ended(ended) => (&ended[..], &[][..]),
        BreakOutcome::NotHeld(others) => (&[][..], &others[..]),
        _ => (&[][..], &[][..]),
    };
    // Only for people: nothing depends on it.
    let info = if broken.is_empty() && held_by.is_empty() {
        keeper.inspect(&args.name).await.ok().flatten()
    } else {
        None
    };
    let free_permits = info.and_then(|info| info.free_permits);
    if store.json {
        print_json(&Done {
            free_permits,
            name: &args.name,
            reason: &args.reason,
            broken: broken.iter().map(HolderView::new).collect(),
            held_by: held_by.iter().map(HolderView::new).collect(),
        })?;
    }
    if !held_by.is_empty() {
        let others: Vec<String> = held_by.iter().map(described).collect();
        let message = format!(
            "nothing was broken: {} is held by {}",
            plain(&args.name),
            others.join(", and by ")
        );
        return Err(Failure::new(NOT_THE_HOLDER, message));
    }
    if store.json {
        return Ok(());
    }
    if broken.is_empty() {
        return Ok(print(&why_nothing(&plain(&args.name), free_permits))?);
    }
    for holder in broken {
        let mut line = format!("took {} from {}", plain(&args.name), of(holder));
        // Of clients of other projects it is not known.
        if let Some(since) = holder.since {
            line += &format!(", which held it for {}", human(ago(since)));
        }
        print(&line)?;
    }
    Ok(())
}

fn why_nothing(name: &str, free_permits: Option<u32>) -> String {
    match free_permits {
        None => format!("nothing was broken: nobody held {name}"),
        Some(free) => format!(
            "nothing was broken: {name} is a number alone, such as the {free} free permits of Java's RSemaphore, which keeps no \
             record of its holders"
        ),
    }
}

fn of(holder: &Holder) -> String {
    let who = who(&holder.process, holder.label.as_ref());
    format!("{who} ({})", holder.mode)
}

/// With what names its hold.
fn described(holder: &Holder) -> String {
    let mut text = of(holder);
    if let Some(token) = holder.token {
        text += &format!(", token {token}");
    }
    if let Some(owner) = owner(holder.claim) {
        text += &format!(", owner {owner}");
    }
    text
}
