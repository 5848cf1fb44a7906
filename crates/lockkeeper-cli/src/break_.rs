//! `lockkeeper break`: takes a lock from whoever holds it.

use serde::Serialize;

use crate::exit::Failure;
use crate::output::{ago, human, plain, print, print_json};
use crate::store::{self, StoreArgs};
use crate::view::HolderView;

/// Takes a lock from whoever holds it
///
/// The holder is told at once, but may go on working until it hears it, at its next renewal at the latest:
/// break a lock when its holder is known to be dead or stuck. Fencing tokens of the broken hold are out of date at once.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lock
    name: String,
    /// Why; shown to others
    #[arg(long)]
    reason: String,
}

#[derive(Serialize)]
struct Done<'a> {
    name: &'a str,
    reason: &'a str,
    broken: Vec<HolderView<'a>>,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    if args.reason.trim().is_empty() {
        let message = "--reason is empty; say why the lock is broken";
        return Err(Failure::new(crate::exit::USAGE, message));
    }
    let keeper = store::open(store).await?;
    let holders = keeper.break_lock(&args.name, &args.reason).await?;
    if store.json {
        return Ok(print_json(&Done {
            name: &args.name,
            reason: &args.reason,
            broken: holders.iter().map(HolderView::new).collect(),
        })?);
    }
    if holders.is_empty() {
        return Ok(print(&format!("nobody held {}", plain(&args.name)))?);
    }
    for holder in &holders {
        print(&format!(
            "took {} from {} ({}), which held it for {}",
            plain(&args.name),
            plain(&holder.process.to_string()),
            holder.mode,
            human(ago(holder.since)),
        ))?;
    }
    Ok(())
}
