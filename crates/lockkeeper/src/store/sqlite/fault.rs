//! What SQLite answers when it cannot, and what that means to a user.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use super::users;
use crate::Error;

/// How the store calls itself in errors.
pub(super) const STORE: &str = "sqlite";

/// Why a transaction did not happen. Nothing was changed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Another connection writes just now: try again soon.
    Locked,
    /// SQLite's own words, not yet put into ours.
    Sqlite(rusqlite::Error),
    /// Ours.
    Told(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Fault::Locked,
            _ => Fault::Sqlite(error),
        }
    }
}

impl Fault {
    /// The fault in words, for the file at `path`.
    pub fn explain(self, path: &Path) -> Error {
        match self {
            Fault::Locked => unavailable(users::who_writes(path).unwrap_or_else(|| {
                format!(
                    "another program keeps {path:?} locked; find it (for instance with `fuser`) and let it finish"
                )
            })),
            Fault::Told(error) => error,
            Fault::Sqlite(error) => match system(&error) {
                Some(system) => explain(&error, path).caused_by(system),
                None => explain(&error, path),
            },
        }
    }
}

fn explain(error: &rusqlite::Error, path: &Path) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => unavailable(format!(
            "the disk of {path:?} is full, so nothing was changed; free some space"
        )),
        Some(ErrorCode::SystemIoFailure) => unavailable(format!(
            "reading or writing {path:?} failed ({error}), so nothing was changed; check its disk"
        )),
        Some(ErrorCode::OutOfMemory) => unavailable("there is no memory left".into()),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => refused(format!(
            "{path:?} cannot be written; give this user write access to the file and its folder"
        )),
        Some(ErrorCode::CannotOpen) => refused(format!(
            "{path:?} or a file next to it cannot be opened; give this user write access to the file and \
             its folder"
        )),
        Some(ErrorCode::NotADatabase) => refused(format!(
            "{path:?} is not a SQLite database; name another file"
        )),
        Some(ErrorCode::DatabaseCorrupt) => refused(format!(
            "{path:?} is damaged ({error}); stop the programs that use it and delete it: it will be made \
             anew, and fencing tokens go on by the clock"
        )),
        _ => refused(format!(
            "{path:?} does not answer as a Lockkeeper file should ({error}); if another program changed \
             it, move it away"
        )),
    }
}

/// What the system said below SQLite, without SQLite's own type.
fn system(error: &rusqlite::Error) -> Option<io::Error> {
    let kind = match error.sqlite_error_code()? {
        ErrorCode::DiskFull => io::ErrorKind::StorageFull,
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => io::ErrorKind::Other,
        ErrorCode::OutOfMemory => io::ErrorKind::OutOfMemory,
        ErrorCode::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
        ErrorCode::PermissionDenied => io::ErrorKind::PermissionDenied,
        _ => return None,
    };
    Some(io::Error::new(kind, error.to_string()))
}

pub(super) fn unavailable(reason: String) -> Error {
    Error::unavailable(STORE, reason)
}

pub(super) fn refused(reason: String) -> Error {
    Error::refused(STORE, reason)
}
