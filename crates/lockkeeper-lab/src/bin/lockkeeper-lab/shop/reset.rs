//! `lockkeeper shop reset`: puts a stock back to its start.

use lockkeeper_lab::shop::stock::{self, USUAL_SIZE};
use lockkeeper_lab::words;

use super::{failure, stock_url};
use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::{print, print_json};
use lockkeeper_cli::store::StoreArgs;

/// Puts the stock back to its start: full shelves, no rewards given, an empty ledger
#[derive(Debug, clap::Args)]
#[command(arg = lockkeeper_cli::store::unused())]
pub struct Args {
    /// Where the stock is [default: $LOCKKEEPER_SHOP_STOCK, or a SQLite file in your state folder]
    #[arg(long, value_name = "URL")]
    stock: Option<String>,
    /// How much of the inventory there is
    #[arg(long, value_name = "N", default_value_t = USUAL_SIZE)]
    stock_size: u32,
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<(), Failure> {
    let url = stock_url(args.stock.as_deref())?;
    let size = args.stock_size;
    stock::reset(&url, size).await.map_err(failure)?;
    if store.json {
        print_json(&serde_json::json!({ "stock_size": size }))?
    } else {
        print(words::stock_is_full(size).get(store.lang()))?
    }
    Ok(())
}
