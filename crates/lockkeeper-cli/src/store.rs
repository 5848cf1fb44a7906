//! Which store a verb works on.

use lockkeeper::url::{STORE_VARIABLE, StoreUrl};
use lockkeeper::{Builder, Lockkeeper};

use crate::exit::{Failure, USAGE};
use crate::lang::{Lang, Text};
use crate::words;

/// What every verb takes.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// The store, for instance sqlite:/var/lib/app/locks.db [default: $LOCKKEEPER_STORE, or a SQLite file in
    /// your state folder]
    // Not clap's own handling of variables: it would not tell an argument, which others can see, from them.
    #[arg(long, global = true, value_name = "URL")]
    pub store: Option<String>,
    /// Print JSON; for `lockkeeper run`, about the run at its end, on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// The language in which `run`, `lab` and `shop` speak to people [default: Chinese where LC_ALL, LC_MESSAGES or LANG says zh,
    /// else English]
    #[arg(long, global = true, value_name = "LANGUAGE")]
    lang: Option<Lang>,
}

impl StoreArgs {
    /// The language for people.
    pub fn lang(&self) -> Lang {
        self.lang.unwrap_or_else(Lang::of_environment)
    }
}

/// `--store` of a verb that works on no store: not in its help.
pub fn unused() -> clap::Arg {
    clap::Arg::new("store")
        .long("store")
        .value_name("URL")
        .global(true)
        .hide(true)
}

/// Refuses a store's URL that must not stand in an argument.
pub fn check(url: &str) -> Result<(), Failure> {
    without_password(url, &words::instead_of(STORE_VARIABLE, "--store"))
}

/// Refuses a URL that must not stand in an argument, and says which variable is `better`. What is wrong with it is told
/// without repeating it.
pub fn without_password(url: &str, better: &Text) -> Result<(), Failure> {
    if !StoreUrl::parse(url)?.has_password() {
        return Ok(());
    }
    Err(Failure::new(USAGE, words::password_in_an_argument(better)))
}

/// The URL of the store.
///
/// # Errors
/// When it holds a password and stands in an argument, and when nothing names a store inside a command of `run` that had one.
pub fn url(store: &StoreArgs) -> Result<StoreUrl, Failure> {
    if let Some(url) = &store.store {
        check(url)?;
        return Ok(StoreUrl::parse(url)?);
    }
    Ok(StoreUrl::from_environment()?)
}

/// Opens the store.
pub async fn open(store: &StoreArgs) -> Result<Lockkeeper, Failure> {
    Ok(builder(&url(store)?).connect().await?)
}

/// Says which store to open.
pub fn builder(url: &StoreUrl) -> Builder {
    Lockkeeper::builder().url(&format!("{}:{}", url.scheme(), url.rest()))
}
