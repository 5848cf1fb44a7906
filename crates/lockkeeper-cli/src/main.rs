//! The `lockkeeper` command: runs programs under a lock, and shows and manages locks.
//!
//! # Layout
//! One file a verb: [`run`], [`ls`], [`show`], [`watch`], [`break_`], [`stores`], [`schema`], [`completions`], [`man`].
//! Under `run`: [`waiting`] is what it does until it has the lock, [`supervise`] runs the command, [`guardian`] is the second process that ends it in time,
//! [`plan`] is the rule both follow, [`label`] names it for others, [`ending`] says what became of it; [`group`], [`signals`], [`terminal`] and
//! [`notes`] are its tools.
//! [`bench`] is a folder. [`lab`] starts `lockkeeper-lab`, which has the laboratory and the shop.
//! [`view`] is a lock as JSON shows it. What the laboratory's program needs as well is in the library beside this file.

mod bench;
mod break_;
mod completions;
mod ending;
mod group;
mod guardian;
mod lab;
mod label;
mod ls;
mod man;
mod plan;
mod run;
mod schema;
mod show;
mod stores;
mod supervise;
mod terminal;
mod view;
mod waiting;
mod watch;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};

use lockkeeper::url::STORE_VARIABLE;
use lockkeeper_cli::exit;
use lockkeeper_cli::lang::Lang;
use lockkeeper_cli::store::StoreArgs;
use lockkeeper_cli::warnings::{self, Manner};
use lockkeeper_cli::{block_on, secrecy};

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
    Schema(schema::Args),
    Bench(bench::Args),
    Lab(lab::LabArgs),
    Shop(lab::ShopArgs),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// The language in which it speaks to people. Most verbs have texts in English only.
    fn lang(&self, store: &StoreArgs) -> Lang {
        match self {
            Verb::Run(_) | Verb::Lab(_) | Verb::Shop(_) => store.lang(),
            _ => Lang::En,
        }
    }

    /// How it tells what is wrong with how a store is set up, if at all.
    fn warns(&self, json: bool, lang: Lang) -> Option<Manner> {
        match self {
            Verb::Lab(_) | Verb::Shop(_) => None,
            Verb::Run(_) if json => Some(Manner::Kept),
            Verb::Run(run) if run.quiet => None,
            _ if json => Some(Manner::Json),
            _ => Some(Manner::Text(lang)),
        }
    }
}

fn main() -> ExitCode {
    secrecy::keep(&[STORE_VARIABLE]);
    // Before clap: the hidden verbs show in no help, completion or manual page.
    let mut args = std::env::args_os().skip(1);
    let verb = args.next();
    if verb.as_deref() == Some(OsStr::new(guardian::VERB)) {
        return guardian::main(args.next().as_deref());
    }
    if verb.as_deref() == Some(OsStr::new(bench::WORKER_VERB)) {
        return bench::worker();
    }
    let cli = Cli::try_parse_from(flock_style(std::env::args_os().collect()))
        .unwrap_or_else(|error| with_hint(error).exit());
    let (json, lang) = (cli.store.json, cli.verb.lang(&cli.store));
    if let Some(manner) = cli.verb.warns(json, lang) {
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
        Verb::Schema(args) => schema::run(args).map(|()| 0),
        Verb::Bench(args) => bench::run(args, &cli.store).map(|()| 0),
        Verb::Lab(_) | Verb::Shop(_) => Err(lab::become_it()),
        Verb::Completions(args) => completions::run(args).map(|()| 0),
        Verb::Man(args) => man::run(args, json).map(|()| 0),
    };
    ExitCode::from(result.unwrap_or_else(|failure| exit::tell(failure, json, lang)))
}

/// `run NAME -c LINE`, as flock(1) is called, as `run NAME -c -- LINE`. Without the two dashes there is no command, so nothing else
/// can be meant.
fn flock_style(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_run = args.iter().skip(1).any(|arg| arg == "run");
    if let [.., option, line] = &args[..]
        && !line.as_encoded_bytes().starts_with(b"-")
        && (option == "-c" || option == "--command" || option == "--shell")
        && is_run
        && !args.iter().any(|arg| arg == "--")
    {
        let end = args.len() - 2;
        args[end] = "-c".into();
        args.insert(end + 1, "--".into());
    }
    args
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
        let hint = if word.starts_with('-') {
            "for how long to wait for the lock is --wait".to_owned()
        } else {
            format!("write -- before the command: lockkeeper run NAME -- {word} …")
        };
        let hint = ContextValue::StyledStrs(vec![hint.into()]);
        error.insert(ContextKind::Suggested, hint);
    }
    error
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
