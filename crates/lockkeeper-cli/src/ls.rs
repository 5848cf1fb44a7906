//! `lockkeeper ls`: the locks that are held or waited for.

use lockkeeper::store::LockInfo;

use crate::exit::Failure;
use crate::output::{ago, human, plain, print, print_json, table, table_text};
use crate::store::{self, StoreArgs};
use crate::view::LockView;

/// Lists the locks that are held or waited for
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    let keeper = store::open(store).await?;
    let locks = keeper.list(&args.prefix).await?;
    if store.json {
        return Ok(print_json(
            &locks.iter().map(LockView::new).collect::<Vec<_>>(),
        )?);
    }
    if locks.is_empty() {
        return Ok(print("no lock is held or waited for")?);
    }
    let mut table = table(&[
        "NAME", "MODE", "HOLDER", "SINCE", "LEASE", "TOKEN", "WAITING",
    ]);
    for lock in &locks {
        for row in rows(lock) {
            table.add_row(row);
        }
    }
    Ok(print(&table_text(&table))?)
}

/// One row a holder; a lock that is only waited for has a row as well.
fn rows(lock: &LockInfo) -> Vec<[String; 7]> {
    let name = plain(&lock.name);
    let waiting = lock.waiters.to_string();
    if lock.holders.is_empty() {
        let none = || "-".to_owned();
        return vec![[name, none(), none(), none(), none(), none(), waiting]];
    }
    let row = |holder: &lockkeeper::store::Holder| {
        [
            name.clone(),
            holder.mode.to_string(),
            plain(&holder.process.to_string()),
            format!("{} ago", human(ago(holder.since))),
            human(holder.remaining),
            holder.token.get().to_string(),
            waiting.clone(),
        ]
    };
    lock.holders.iter().map(row).collect()
}
