//! What the server says when it cannot, and what that means.

use tokio_postgres::error::{DbError, SqlState};

use super::config::KIND;
use crate::Error;
use crate::store::sql::engine::{Fault, Op};

/// Why a transaction failed, and whether the connection is of no more use.
pub(super) fn of_transaction(
    error: &tokio_postgres::Error,
    ops: &[Op],
    schema: &str,
) -> (Fault, bool) {
    let Some(said) = error.as_db_error() else {
        // The connection ended, and the request may have been on it.
        return (
            Fault::Unknown(format!("the connection ended: {error}")),
            true,
        );
    };
    match said.code().code() {
        // Others were in the way.
        "40001" | "40P01" | "55P03" | "57014" => (Fault::Undone(unavailable(said)), false),
        // The server ends, or ended this session: perhaps after the commit.
        "57P01" | "57P02" | "57P03" | "57P05" => (Fault::Unknown(said.message().into()), true),
        // It is no primary any more, or another session answers: nothing was done.
        "25006" | "26000" | "25P03" => (Fault::Failed(unavailable(said)), true),
        "0A000" if said.message().contains("recovery") => (Fault::Failed(unavailable(said)), true),
        code if code.starts_with("08") => (Fault::Unknown(said.message().into()), true),
        code if code.starts_with("53") => (Fault::Failed(unavailable(said)), false),
        // Steps that need what is not there fail, and none of the others.
        _ if explains(said) && ops.len() > 1 => (Fault::Undone(refused(said, schema)), false),
        // The next connection makes what is missing, or is refused.
        "42P01" if ops.iter().all(Op::is_of_locks) => (Fault::Failed(unavailable(said)), true),
        _ if explains(said) => (Fault::Failed(refused(said, schema)), false),
        _ => (Fault::Undone(refused(said, schema)), false),
    }
}

/// Whether the server could not take a notification: a session that listens has not read any for very long, and the queue of all is full.
/// Nothing was done.
pub(super) fn is_without_notifications(error: &tokio_postgres::Error) -> bool {
    let said = error.as_db_error();
    said.is_some_and(|said| *said.code() == SqlState::PROGRAM_LIMIT_EXCEEDED)
}

/// Whether a table is missing.
pub(super) fn misses_table(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::UNDEFINED_TABLE)
}

/// Why there is no connection.
pub(super) fn of_connecting(error: &tokio_postgres::Error, schema: &str) -> Error {
    let Some(said) = error.as_db_error() else {
        return KIND.unavailable(error.to_string());
    };
    match said.code().code() {
        "28P01" | "28000" => KIND.refused(format!(
            "{}; check the user and the password of the URL, and pg_hba.conf",
            said.message()
        )),
        "3D000" => KIND.refused(format!("{}; create it", said.message())),
        "53300" => KIND.unavailable(format!(
            "{}; a keeper needs one connection: raise max_connections",
            said.message()
        )),
        _ if explains(said) => refused(said, schema),
        _ => unavailable(said),
    }
}

fn explains(said: &DbError) -> bool {
    let code = said.code();
    [
        &SqlState::INSUFFICIENT_PRIVILEGE,
        &SqlState::INVALID_SCHEMA_NAME,
        &SqlState::UNDEFINED_TABLE,
        &SqlState::UNDEFINED_COLUMN,
        &SqlState::UNDEFINED_FUNCTION,
    ]
    .contains(&code)
}

fn unavailable(said: &DbError) -> Error {
    KIND.unavailable(format!("{} ({})", said.message(), said.code().code()))
}

fn refused(said: &DbError, schema: &str) -> Error {
    let (code, message) = (said.code(), said.message());
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        return KIND.refused(format!(
            "{message}; let an administrator run what `lockkeeper schema postgres --schema {schema}` prints, with the GRANTs \
             for this user"
        ));
    }
    if explains(said) {
        return KIND.refused(format!(
            "{message}; the tables in schema {schema:?} are not those of Lockkeeper, or not all there: let an administrator run what \
             `lockkeeper schema postgres --schema {schema}` prints, or name another schema with schema=NAME"
        ));
    }
    KIND.refused(format!("the server says: {message} ({})", code.code()))
}
