//! `lockkeeper man`: the manual pages.

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::CommandFactory;

use lockkeeper_cli::exit::{Failure, INTERNAL};
use lockkeeper_cli::output::{print, print_json};

/// Prints the manual page, or writes all of them into a folder
#[derive(Debug, clap::Args)]
#[command(arg = lockkeeper_cli::store::unused())]
pub struct Args {
    /// The folder, for instance ~/.local/share/man/man1
    folder: Option<PathBuf>,
}

pub fn run(args: &Args, json: bool) -> Result<(), Failure> {
    let command = crate::Cli::command();
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return Ok(print(&String::from_utf8_lossy(&page))?);
    };
    let failed = |error| Failure::new(INTERNAL, format!("{}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    separate_the_command(&folder.join("lockkeeper-run.1")).map_err(failed)?;
    if json {
        return Ok(print_json(&serde_json::json!({ "folder": folder }))?);
    }
    Ok(())
}

/// Writes the two dashes before the command of `run` into its synopsis, where the generator leaves them out.
fn separate_the_command(page: &Path) -> io::Result<()> {
    let command = r"<\fICMD\fR>";
    let text = fs::read_to_string(page)?;
    fs::write(
        page,
        text.replacen(command, &format!(r"\-\- {command}..."), 1),
    )
}
