//! `lockkeeper shop load`: customers for the shop.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lockkeeper::duration;
use lockkeeper_lab::shop::load::{self, LoadOptions, Report, Tally};
use lockkeeper_lab::{Text, told, words};

use super::failure;
use lockkeeper_cli::exit::{Failure, UNAVAILABLE, USAGE};
use lockkeeper_cli::lang::Lang;
use lockkeeper_cli::output::{plain, print, print_json, table, table_text};
use lockkeeper_cli::store::StoreArgs;

/// More was sold than there was.
const OVERSOLD: u8 = 1;

/// Sends customers to the instances and tells how many were sold, and how many too many
///
/// Ends with 1 if more were sold than there were, or if the stock does not know of a sale that the ledger has.
#[derive(Debug, clap::Args)]
#[command(arg = lockkeeper_cli::store::unused())]
pub struct Args {
    /// The instances, such as http://127.0.0.1:8080
    #[arg(required = true, value_name = "URL")]
    instances: Vec<String>,
    /// How many requests in all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    requests: u64,
    /// How many at a time
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// What to ask for
    #[arg(long, value_name = "PATH", default_value = "/inventory/sale")]
    path: String,
    /// How long to wait for an answer
    #[arg(long, value_name = "D", default_value = "60s", value_parser = duration::parse)]
    timeout: Duration,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<u8, Failure> {
    let lang = store.lang();
    let options = LoadOptions {
        instances: args.instances.clone(),
        path: args.path.clone(),
        requests: args.requests,
        concurrency: args.concurrency as usize,
        timeout: args.timeout,
    };
    let sense = options.check();
    sense.map_err(|error| Failure::new(USAGE, told(&error)))?;
    let bar = bar(args.requests);
    let report = load::run(&options, |tally| show(&bar, tally, lang)).await;
    bar.finish_and_clear();
    let report = report.map_err(failure)?;
    if store.json {
        print_json(&report)?
    } else {
        print(&text(&report, lang))?
    }
    match &report.books {
        None => Err(Failure::new(UNAVAILABLE, words::NO_BOOKS)),
        Some(books) if !report.held() => Err(Failure::new(OVERSOLD, words::did_not_hold(books))),
        // What nobody tried has not held.
        Some(_) if report.requests > 0 && report.tally.answered() == 0 => {
            Err(Failure::new(UNAVAILABLE, words::NOBODY_SERVED))
        }
        Some(_) => Ok(0),
    }
}

/// On a terminal's error stream; hidden elsewhere.
fn bar(requests: u64) -> ProgressBar {
    let bar = ProgressBar::new(requests);
    let template = "{bar:30} {pos}/{len} {elapsed} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, tally: &Tally, lang: Lang) {
    bar.set_position(tally.requests());
    bar.set_message(words::so_far(tally).get(lang).to_owned());
}

fn text(report: &Report, lang: Lang) -> String {
    let said = |text: Text| text.get(lang).to_owned();
    let mut lines = vec![said(words::requests(report))];
    if report.latency_ms.max > 0.0 {
        lines.push(said(words::latency(&report.latency_ms)));
    }
    let counts = words::COLUMNS.each_ref().map(|text| text.get(lang));
    let mut parts = table(&[&[""], &counts[..], &[""]].concat());
    let mut row = |title: &str, tally: &Tally, trouble: &str| {
        let counts = [
            tally.sold,
            tally.refused,
            tally.busy,
            tally.fenced,
            tally.failed,
            tally.unknown,
        ];
        let counts = counts.iter().map(u64::to_string);
        let cells = std::iter::once(plain(title)).chain(counts);
        parts.add_row(cells.chain([plain(trouble)]));
    };
    for instance in &report.instances {
        let trouble = match (&instance.gone, &instance.trouble) {
            (Some(why), _) => said(words::gone(why)),
            (None, Some(why)) => said(words::first_trouble(why)),
            (None, None) => String::new(),
        };
        row(&instance.url, &instance.tally, &trouble);
    }
    row(words::ALL.get(lang), &report.tally, "");
    lines.push(table_text(&parts));
    if let Some(books) = &report.books {
        lines.push(said(words::account(books)));
        lines.push(said(words::faults(books)));
    }
    lines.join("\n")
}
