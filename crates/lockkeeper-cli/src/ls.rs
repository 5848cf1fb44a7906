//! `lockkeeper ls`: the locks that are held or waited for.

use comfy_table::{ContentArrangement, Table};
use lockkeeper::Token;
use lockkeeper::store::{Holder, LockInfo};

use crate::view::LockView;
use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::{
    UNKNOWN, ago, cut, human, or_unknown, plain, print, print_json, table, table_text,
};
use lockkeeper_cli::store::{self, StoreArgs};

/// Lists the locks that are held or waited for
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only names that start with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    let url = store::url(store)?;
    let keeper = store::builder(&url).connect().await?;
    let locks = keeper.list(&args.prefix).await?;
    if store.json {
        return Ok(print_json(
            &locks.iter().map(LockView::listed).collect::<Vec<_>>(),
        )?);
    }
    let place = plain(&url.to_string());
    let is_partial = matches!(keeper.capabilities().store, "redis" | "redlock");
    if locks.is_empty() {
        return Ok(print(&if is_partial {
            format!("found no lock in {place}; ls does not find {UNFENCED}")
        } else {
            format!("no lock is held or waited for in {place}")
        })?);
    }
    let unlisted = if is_partial {
        format!("; not listed is {UNFENCED}")
    } else {
        String::new()
    };
    print(&format!("store {place}{unlisted}"))?;
    Ok(print(&table_text(&fitting(&locks)))?)
}

/// What no list can find where a lock of another client is a key like any other: only one that is fenced has a key of a known name.
const UNFENCED: &str =
    "what other clients hold without a fence, such as Java's RLock: lockkeeper show NAME shows it";

/// A column for labels is worth it from this width on.
const LEAST_LABEL: usize = 8;

/// What the table puts around a column.
const MARGIN: usize = 2;

const HEADER: [&str; 8] = [
    "NAME", "MODE", "HOLDER", "SINCE", "LEASE", "TOKEN", "WAITING", "LABEL",
];
const TOKEN: usize = 5;
const LABEL: usize = 7;

/// What of each lock a table shows.
#[derive(Clone, Copy)]
struct Shown {
    token: bool,
    /// A holder with its program.
    program: bool,
}

/// All of them, as much as the terminal has room for: the token goes first, then the program where a label says which job it is,
/// and the label last. A name is never broken.
fn fitting(locks: &[LockInfo]) -> Table {
    let holders = || locks.iter().flat_map(|lock| &lock.holders);
    let labelled = holders().any(|holder| holder.label.is_some());
    let tries = [
        (true, true, labelled),
        (false, true, labelled),
        (false, false, labelled),
        (false, true, false),
        (false, false, false),
    ];
    let mut narrowest = None;
    for (token, program, label) in tries {
        let shown = Shown { token, program };
        let table = of_locks(locks, shown, 0);
        let Some(width) = table.width() else {
            return of_locks(locks, shown, usize::MAX);
        };
        let room = usize::from(width).checked_sub(natural_width(&table));
        match room {
            Some(_) if !label => return table,
            Some(room) if room >= LEAST_LABEL + MARGIN => {
                return of_locks(locks, shown, room - MARGIN);
            }
            _ => narrowest = Some(table),
        }
    }
    let mut table = narrowest.unwrap_or_else(|| table(&HEADER));
    // The terminal folds lines that are too long; we would break words.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// All of them, with labels of at most so many columns of the terminal; 0 leaves the column out.
fn of_locks(locks: &[LockInfo], shown: Shown, label: usize) -> Table {
    let is_shown = |&(column, _): &(usize, _)| match column {
        TOKEN => shown.token,
        LABEL => label > 0,
        _ => true,
    };
    let header: Vec<&str> = HEADER
        .into_iter()
        .enumerate()
        .filter(is_shown)
        .map(|(_, name)| name)
        .collect();
    let mut table = table(&header);
    for mut row in locks.iter().flat_map(|lock| rows(lock, shown.program)) {
        row[LABEL] = cut(&row[LABEL], label);
        let row = row.into_iter().enumerate();
        table.add_row(
            row.filter(|(column, _)| is_shown(&(*column, "")))
                .map(|(_, cell)| cell),
        );
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

/// A holder; without its program if its label says more than that.
fn holder_of(holder: &Holder, program: bool) -> String {
    let process = &holder.process;
    plain(&if program || holder.label.is_none() || process.pid == 0 {
        process.to_string()
    } else {
        format!("[{}] on {}", process.pid, process.host)
    })
}

/// One row a holder; a lock that is only waited for has a row as well.
fn rows(lock: &LockInfo, program: bool) -> Vec<[String; 8]> {
    let name = plain(&lock.name);
    let waiting = lock.waiters.to_string();
    let none = || "-".to_owned();
    let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    if lock.holders.is_empty() {
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
    let row = |holder: &Holder| {
        [
            name.clone(),
            holder.mode.to_string(),
            holder_of(holder, program),
            known(
                holder
                    .since
                    .map(|since| format!("{} ago", human(ago(since)))),
            ),
            holder.remaining.map_or_else(none, human),
            or_unknown(holder.token.map(Token::get)),
            waiting.clone(),
            holder
                .label
                .as_ref()
                .map_or_else(none, |label| plain(label.as_str())),
        ]
    };
    lock.holders.iter().map(row).collect()
}
