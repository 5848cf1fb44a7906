//! The `lockkeeper` command: runs programs under a lock, and shows and manages locks.
//!
//! # Layout
//! One file a verb: [`run`], [`ls`], [`show`], [`watch`], [`break_`], [`stores`], [`completions`], [`man`].
//! Under `run`: [`supervise`] runs the command, [`guardian`] is the second process that ends it in time,
//! [`plan`] is the rule both follow, [`label`] names it for others, [`ending`] says what became of it; [`group`], [`signals`], [`terminal`] and
//! [`notes`] are its tools.
//! [`bench`] and [`shop`] are folders. [`lab`] plays the laboratory's chapters.
//! Shared by verbs: [`store`] opens a store, [`secrecy`] keeps its password from other programs, [`warnings`] tells what is wrong with how it is set up, [`output`] and
//! [`view`] print, [`exit`] has the exit codes.

mod bench;
mod break_;
mod completions;
mod ending;
mod exit;
mod group;
mod guardian;
mod lab;
mod label;
mod ls;
mod man;
mod notes;
mod output;
mod plan;
mod run;
mod secrecy;
mod shop;
mod show;
mod signals;
mod store;
mod stores;
mod supervise;
mod terminal;
mod view;
mod warnings;
mod watch;

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use exit::Failure;
use store::StoreArgs;
use warnings::Manner;

/// Runs programs under a lock that holds across processes, and shows and manages such locks
#[derive(Debug, Parser)]
#[command(name = "lockkeeper", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    store: StoreArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(run::Args),
    Ls(ls::Args),
    Show(show::Args),
    Watch(watch::Args),
    Break(break_::Args),
    Stores(stores::Args),
    Bench(bench::Args),
    Lab(lab::Args),
    Shop(shop::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// How it tells what is wrong with how a store is set up, if at all.
    fn warns(&self, json: bool) -> Option<Manner> {
        match self {
            // Its chapters set servers up wrongly on purpose.
            Verb::Lab(_) => None,
            Verb::Shop(args) if args.is_leashed() => None,
            Verb::Run(_) if json => Some(Manner::Kept),
            _ if json => Some(Manner::Json),
            _ => Some(Manner::Text),
        }
    }
}

fn main() -> ExitCode {
    secrecy::keep();
    // Before clap: the hidden verbs show in no help, completion or manual page.
    let mut args = std::env::args_os().skip(1);
    let verb = args.next();
    if verb.as_deref() == Some(OsStr::new(guardian::VERB)) {
        return guardian::main(args.next().is_some_and(|flag| flag == "--quiet"));
    }
    if verb.as_deref() == Some(OsStr::new(bench::WORKER_VERB)) {
        return bench::worker();
    }
    if verb.as_deref() == Some(OsStr::new(lockkeeper_lab::scene::process::VERB)) {
        return lockkeeper_lab::scene::process::main();
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| with_hint(error).exit());
    let json = cli.store.json;
    if let Some(manner) = cli.verb.warns(json) {
        warnings::tell(manner);
    }
    let result = match &cli.verb {
        Verb::Run(args) => {
            // Before the runtime starts a thread, so that it goes for all of them.
            terminal::use_from_background();
            terminal::put_stops_off();
            block_on(run::run(args, &cli.store))
        }
        Verb::Ls(args) => block_on(ls::run(args, &cli.store)).map(|()| 0),
        Verb::Show(args) => block_on(show::run(args, &cli.store)).map(|()| 0),
        Verb::Watch(args) => {
            terminal::put_stops_off();
            block_on(watch::run(args, &cli.store))
        }
        Verb::Break(args) => block_on(break_::run(args, &cli.store)).map(|()| 0),
        Verb::Stores(stores::Args {}) => block_on(stores::run(&cli.store)).map(|()| 0),
        Verb::Bench(args) => bench::run(args, &cli.store).map(|()| 0),
        Verb::Lab(args) => block_on(lab::run(args, &cli.store)),
        Verb::Shop(args) => block_on(shop::run(args, &cli.store)),
        Verb::Completions(args) => completions::run(args).map(|()| 0),
        Verb::Man(args) => man::run(args, json).map(|()| 0),
    };
    ExitCode::from(result.unwrap_or_else(|failure| tell(failure, json)))
}

/// Says, where that may be the matter, that `run` wants its command after `--`.
fn with_hint(mut error: clap::Error) -> clap::Error {
    let of_run = error
        .get(ContextKind::Usage)
        .is_some_and(|usage| usage.to_string().contains("lockkeeper run "));
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && of_run
        && (!word.starts_with('-') || word == "--timeout")
    {
        let hint = match word.starts_with('-') {
            true => "for how long to wait for the lock is --wait".to_owned(),
            false => format!("write -- before the command: lockkeeper run NAME -- {word} …"),
        };
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
}

fn block_on<T>(verb: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(verb)
}

/// Tells why it went wrong, on standard error, and returns the exit code.
fn tell(failure: Failure, json: bool) -> u8 {
    if let Some(message) = failure.message {
        let message = if json {
            let code = failure.code;
            let error = serde_json::json!({ "error": message, "exit_code": code });
            output::json(&error).unwrap_or_default()
        } else {
            format!("lockkeeper: {message}")
        };
        notes::write_line(&message);
    }
    failure.code
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
