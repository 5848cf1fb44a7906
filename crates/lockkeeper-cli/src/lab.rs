//! `lockkeeper lab` and `lockkeeper shop`: verbs of `lockkeeper-lab`, a program of its own that becomes this process.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_cli::exit::{CANNOT_RUN, Failure, NOT_FOUND};
use lockkeeper_cli::words;
use nix::unistd::{AccessFlags, access};

/// The program.
const PROGRAM: &str = "lockkeeper-lab";
/// What gets it.
const GET: &str = "cargo install --locked --path crates/lockkeeper-lab";

/// See locks fail, and ours hold, with real processes and real servers
///
/// This is a program of its own, lockkeeper-lab, which is looked for beside this one and on the path. In the project's folder
/// `cargo install --locked --path crates/lockkeeper-lab` gets it. Then `lockkeeper lab --help` has its options.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct LabArgs {
    #[command(flatten)]
    rest: Rest,
}

/// Sells from a stock that only a lock keeps from being oversold
///
/// This is a program of its own, lockkeeper-lab, which is looked for beside this one and on the path. In the project's folder
/// `cargo install --locked --path crates/lockkeeper-lab` gets it. Then `lockkeeper shop --help` has its options.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct ShopArgs {
    #[command(flatten)]
    rest: Rest,
}

#[derive(Debug, clap::Args)]
struct Rest {
    /// What lockkeeper-lab takes
    #[arg(
        value_name = "ARG",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    args: Vec<OsString>,
}

/// Becomes `lockkeeper-lab`, with the arguments of this process: its input, output, signals and exit code are its own.
///
/// Returns only if that fails.
pub fn become_it() -> Failure {
    let Some(program) = find() else {
        return Failure::new(NOT_FOUND, words::program_not_found(PROGRAM, GET));
    };
    let error = Command::new(&program)
        // So that its help names what was typed.
        .arg0("lockkeeper")
        .args(env::args_os().skip(1))
        .exec();
    Failure::new(CANNOT_RUN, format!("{}: {error}", program.display()))
}

/// Where the program is: beside this one, else on the path.
fn find() -> Option<PathBuf> {
    let this = env::current_exe().ok();
    let beside = this.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(env::split_paths(&path));
    folders
        // An empty entry is the current folder, where anybody may have put anything.
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(PROGRAM))
        .find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}
