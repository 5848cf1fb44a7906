//! `lockkeeper ls`: the locks that are held or waited for.

use comfy_table::Table;
use lockkeeper::store::LockInfo;

use crate::view::LockView;
use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::{ago, cut, human, plain, print, print_json, table, table_text};
use lockkeeper_cli::store::{self, StoreArgs};

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
            &locks.iter().map(LockView::listed).collect::<Vec<_>>(),
        )?);
    }
    if locks.is_empty() {
        return Ok(print("no lock is held or waited for")?);
    }
    let plain = of_locks(&locks, 0);
    let columns = plain.width();
    let room = columns.map_or(usize::MAX, |width| {
        usize::from(width).saturating_sub(natural_width(&plain) + MARGIN)
    });
    let labelled = locks.iter().flat_map(|lock| &lock.holders);
    let labelled = labelled.into_iter().any(|holder| holder.label.is_some());
    let table = match labelled && room >= LEAST_LABEL {
        true => of_locks(&locks, room),
        false => plain,
    };
    Ok(print(&table_text(&table))?)
}

/// A column for labels is worth it from this width on.
const LEAST_LABEL: usize = 8;

/// What the table puts around a column.
const MARGIN: usize = 2;

const HEADER: [&str; 8] = [
    "NAME", "MODE", "HOLDER", "SINCE", "LEASE", "TOKEN", "WAITING", "LABEL",
];

/// All of them, with labels of at most so many columns of the terminal.
fn of_locks(locks: &[LockInfo], label: usize) -> Table {
    let columns = if label == 0 {
        HEADER.len() - 1
    } else {
        HEADER.len()
    };
    let mut table = table(&HEADER[..columns]);
    for row in locks.iter().flat_map(rows) {
        let [cells @ .., last] = row;
        let row = cells.into_iter().chain([cut(&last, label)]);
        table.add_row(row.take(columns));
    }
    table
}

/// How wide the table is where nothing has to be broken into lines.
fn natural_width(table: &Table) -> usize {
    let widths = table.column_max_content_widths();
    widths
        .iter()
        .map(|width| usize::from(*width) + MARGIN)
        .sum()
}

/// One row a holder; a lock that is only waited for has a row as well.
fn rows(lock: &LockInfo) -> Vec<[String; 8]> {
    let name = plain(&lock.name);
    let waiting = lock.waiters.to_string();
    if lock.holders.is_empty() {
        let none = || "-".to_owned();
        return vec![[
            name,
            none(),
            none(),
            none(),
            none(),
            none(),
            waiting,
            none(),
        ]];
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
            holder
                .label
                .as_ref()
                .map_or("-".to_owned(), |label| plain(label.as_str())),
        ]
    };
    lock.holders.iter().map(row).collect()
}
