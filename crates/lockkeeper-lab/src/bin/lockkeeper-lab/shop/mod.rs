//! `lockkeeper shop`: a shop that oversells unless a lock keeps it from that. One file a verb.

mod load;
mod reset;
mod serve;

use lockkeeper_lab::shop::stock::{self, STOCK_VARIABLE};
use lockkeeper_lab::told;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use lockkeeper_cli::exit::{Failure, UNAVAILABLE, USAGE};
use lockkeeper_cli::store::{StoreArgs, without_password};
use lockkeeper_cli::words::instead_of;

pub use serve::address;

/// Sells from a stock that only a lock keeps from being oversold
///
/// Start some instances with `shop serve`, on one stock, and let `shop load` send them customers: it tells how many
/// were sold, and how many too many. docs/shop.md has more.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Serve(serve::Args),
    Load(load::Args),
    Reset(reset::Args),
}

impl Args {
    /// Whether it serves for another program of ours.
    pub fn is_leashed(&self) -> bool {
        matches!(&self.verb, Verb::Serve(args) if args.leashed)
    }
}

pub async fn run(args: &Args, store: &StoreArgs) -> Result<u8, Failure> {
    allow_many_connections();
    match &args.verb {
        Verb::Serve(args) => serve::run(args, store).await.map(|()| 0),
        Verb::Load(args) => load::run(args, store).await,
        Verb::Reset(args) => reset::run(args, store).await.map(|()| 0),
    }
}

/// Lets us have as many connections as the system allows: each customer is one, at each instance.
fn allow_many_connections() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If not, those that are too many are told.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// The stock's URL, from the argument or elsewhere.
fn stock_url(argument: Option<&str>) -> Result<String, Failure> {
    let usage = |error: anyhow::Error| Failure::new(USAGE, told(&error));
    let url = match argument {
        Some(url) => {
            let advice = instead_of(STOCK_VARIABLE, "--stock");
            without_password(url, &advice)?;
            url.to_owned()
        }
        None => stock::usual().map_err(usage)?,
    };
    stock::check(&url).map_err(usage)?;
    Ok(url)
}

/// What of the shop, or of the laboratory's page, went wrong.
pub fn failure(error: anyhow::Error) -> Failure {
    match error.downcast::<lockkeeper::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::new(UNAVAILABLE, told(&error)),
    }
}
