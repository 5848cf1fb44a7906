//! Where programs of this user keep their state.

use std::path::PathBuf;

/// Where programs of this user keep their state: `$XDG_STATE_HOME`, by default `~/.local/state`; on macOS
/// `~/Library/Application Support`. `None` when no home folder is known.
pub fn state_folder() -> Option<PathBuf> {
    // A relative XDG_STATE_HOME is to be ignored, says its specification.
    if let Some(folder) = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from)
        && folder.is_absolute()
    {
        return Some(folder);
    }
    let home = std::env::home_dir().filter(|home| home.is_absolute())?;
    Some(if cfg!(target_os = "macos") {
        home.join("Library/Application Support")
    } else {
        home.join(".local/state")
    })
}
