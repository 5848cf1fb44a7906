//! The folder in which programs of this user keep their state.

use std::path::{Path, PathBuf};

/// The folder in which programs of this user keep their state: `$XDG_STATE_HOME`, by default `~/.local/state`; on macOS
/// `~/Library/Application Support`. Without a home folder it is the folder that systemd gives a service with
/// `StateDirectory=`. Returns `None` if there is none either.
pub fn state_folder() -> Option<PathBuf> {
    // A relative XDG_STATE_HOME is to be ignored, says its specification.
    if let Some(folder) = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from)
        && folder.is_absolute()
    {
        return Some(folder);
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    // A user for a service often has a home folder that does not exist.
    if !home.as_deref().is_some_and(Path::is_dir)
        && let Some(folder) = of_service()
    {
        return Some(folder);
    }
    let home = home?;
    Some(if cfg!(target_os = "macos") {
        home.join("Library/Application Support")
    } else {
        home.join(".local/state")
    })
}

/// The first folder of `$STATE_DIRECTORY`. A service with a home folder shares the store of its user instead.
fn of_service() -> Option<PathBuf> {
    let folders = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&folders).find(|folder| folder.is_absolute())
}
