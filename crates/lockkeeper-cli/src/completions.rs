//! `lockkeeper completions`: what makes the Tab key work.

use clap::CommandFactory;

use lockkeeper_cli::exit::Failure;
use lockkeeper_cli::output::print;

/// Prints shell completions
///
/// For instance: lockkeeper completions bash > ~/.local/share/bash-completion/completions/lockkeeper
#[derive(Debug, clap::Args)]
#[command(arg = lockkeeper_cli::store::unused())]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "lockkeeper",
        &mut text,
    );
    Ok(print(&String::from_utf8_lossy(&text))?)
}
