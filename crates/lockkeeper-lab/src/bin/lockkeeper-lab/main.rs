//! The `lockkeeper-lab` program: the verbs `lab` and `shop` of the command, which starts it for them.
//!
//! # Layout
//! [`lab`] plays the laboratory's chapters, or opens its page; [`shop`] has a file a verb. What it shares with the command is in
//! `lockkeeper_cli`.

mod lab;
mod shop;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use lockkeeper::url::STORE_VARIABLE;
use lockkeeper_cli::lang::Lang;
use lockkeeper_cli::store::StoreArgs;
use lockkeeper_cli::warnings::{self, Manner};
use lockkeeper_cli::{block_on, exit, secrecy};
use lockkeeper_lab::scene::process;
use lockkeeper_lab::shop::stock::STOCK_VARIABLE;

/// Shows with real processes and real servers why each simpler lock fails
// Without a name of its own in usages: `lockkeeper lab` starts it as `lockkeeper`.
#[derive(Debug, Parser)]
#[command(name = "lockkeeper-lab", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    store: StoreArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Lab(lab::Args),
    Shop(shop::Args),
}

impl Verb {
    /// How it tells what is wrong with how a store is set up, if at all.
    fn warns(&self, json: bool, lang: Lang) -> Option<Manner> {
        match self {
            // Its chapters set servers up wrongly on purpose.
            Verb::Lab(_) => None,
            Verb::Shop(args) if args.is_leashed() => None,
            Verb::Shop(_) if json => Some(Manner::Json),
            Verb::Shop(_) => Some(Manner::Text(lang)),
        }
    }
}

fn main() -> ExitCode {
    secrecy::keep(&[STORE_VARIABLE, STOCK_VARIABLE]);
    // Before clap: the hidden verb shows in no help.
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(process::VERB)) {
        return process::main();
    }
    let cli = Cli::parse();
    let (json, lang) = (cli.store.json, cli.store.lang());
    if let Some(manner) = cli.verb.warns(json, lang) {
        warnings::tell(manner);
    }
    let result = match &cli.verb {
        Verb::Lab(args) => block_on(lab::run(args, &cli.store)),
        Verb::Shop(args) => block_on(shop::run(args, &cli.store)),
    };
    ExitCode::from(result.unwrap_or_else(|failure| exit::tell(failure, json, lang)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
