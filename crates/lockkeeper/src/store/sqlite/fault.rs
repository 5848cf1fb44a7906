//! SQLite's errors, and what they mean to a user.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use super::file_status;
use crate::Error;

/// The name of this kind of store in errors.
pub(super) const STORE: &str = "sqlite";

/// Why a transaction did not happen. Nothing was changed.
#[derive(Debug)]
pub(super) enum Fault {
    /// Another connection is writing. The same may succeed soon.
    Locked,
    /// An error of SQLite's, not yet explained.
    Sqlite(rusqlite::Error),
    /// An error that a user understands.
    Explained(Error),
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
    /// The error that a user is shown, for the file at `path`.
    pub fn explain(self, path: &Path) -> Error {
        match self {
            Fault::Locked => unavailable(file_status::describe_writer(path).unwrap_or_else(|| {
                format!(
                    "another program keeps {path:?} locked; find it (for instance with `fuser`) and let it finish"
                )
            })),
            Fault::Explained(error) => error,
            Fault::Sqlite(error) => match system_error(&error) {
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

/// The system's error below SQLite's, without a type of SQLite's in it.
fn system_error(error: &rusqlite::Error) -> Option<io::Error> {
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
