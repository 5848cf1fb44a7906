//! Statements as text. Every value is a number or a literal of hexadecimal digits, so that nothing in a name is special.

use std::fmt::Write;
use std::time::Duration;

use crate::store::record::{Hold, Queued};
use crate::store::sql::engine::{claim_bytes, length, micros, mode_columns};
use crate::store::{Claim, ClaimId, KeeperId};
use crate::{Label, Name};

/// The server's clock in microseconds, as it is when it is read. `NOW()` would be the time at which the statement began.
///
/// In a session that is not [as it was made](super::session::settle) it is NULL, and so nothing is done that depends on the time: a proxy
/// that resets the session puts the clock into the server's time zone.
pub(super) const NOW: &str =
    "IF(@lk=@@time_zone,TIMESTAMPDIFF(MICROSECOND,'1970-01-01',SYSDATE(6)),NULL)";

/// When a server may grant that begins to sit out now, by a row of `meta`.
pub(super) fn later() -> String {
    format!("{NOW}+CAST(max_lease*1.01 AS SIGNED)+1000000")
}

/// Whether a row of `meta` has the server sit out for longer than it can: the clock was set back.
pub(super) fn too_late() -> String {
    format!("(ready_at>{}+1000000)", later())
}

/// When a table was made, in seconds: 0 if it is not there, or the server does not say. A dump that is loaded makes it anew, and so does
/// a copy of its file.
pub(super) fn made(table: &str) -> String {
    format!(
        "COALESCE((SELECT UNIX_TIMESTAMP(create_time) FROM information_schema.tables WHERE table_schema=DATABASE() AND \
         table_name='{table}'),0)"
    )
}

/// Whether a table is no newer than it was known to be. MariaDB takes the time from the table's file when it opens the table, and it has the
/// table open several times: after the file was touched it says now the one time, now the other.
pub(super) fn is_same(known: i64, made: i64) -> bool {
    (known.min(1)..=known).contains(&made)
}

/// The same in SQL.
pub(super) fn same(table: &str, known: i64) -> String {
    format!("{} BETWEEN {} AND {known}", made(table), known.min(1))
}

/// Bytes as a literal.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2 + 3);
    text.push_str("x'");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\'');
    text
}

pub(super) fn name(name: &Name) -> String {
    hex(name.as_str().as_bytes())
}

pub(super) fn claim(claim: ClaimId) -> String {
    hex(&claim_bytes(claim))
}

pub(super) fn claims(claims: &[ClaimId]) -> String {
    let claims: Vec<String> = claims.iter().map(|one| claim(*one)).collect();
    claims.join(",")
}

pub(super) fn keeper(keeper: KeeperId) -> String {
    hex(&keeper.to_bits().to_be_bytes())
}

pub(super) fn label(label: Option<&Label>) -> String {
    label.map_or("NULL".into(), |label| hex(label.as_str().as_bytes()))
}

pub(super) fn lease(lease: Duration) -> i64 {
    length(lease)
}

/// `claim,mode,permits,taken,first,tokens,lease,expires,since,label` of a hold.
pub(super) fn hold(hold: &Hold) -> String {
    let (mode, permits, taken) = mode_columns(hold.mode);
    format!(
        "{},{mode},{permits},{taken},{},{},{},{},{},{}",
        claim(hold.claim),
        hold.grant.token.get(),
        hold.grant.tokens,
        lease(hold.lease),
        micros(hold.expires),
        hold.since_micros,
        label(hold.label.as_ref()),
    )
}

/// `claim,mode,permits,taken,lease,reserve,since,until,label` of an entry of the queue.
pub(super) fn queued(entry: &Queued) -> String {
    let (mode, permits, taken) = mode_columns(entry.mode);
    format!(
        "{},{mode},{permits},{taken},{},{},{},{},{}",
        claim(entry.claim),
        lease(entry.lease),
        entry.reserve,
        entry.since_micros,
        micros(entry.until),
        label(entry.label.as_ref()),
    )
}

/// The same of a claim that joins the queue now, which is `@t`.
pub(super) fn joining(one: &Claim, ttl: Duration) -> String {
    let (mode, permits, taken) = mode_columns(one.mode);
    format!(
        "{},{mode},{permits},{taken},{},{},@t,@t+{},{}",
        claim(one.id),
        lease(one.lease),
        one.reserve,
        lease(ttl),
        label(one.label.as_ref()),
    )
}

/// A condition: the request is not late. 0 means that it never is.
pub(super) fn in_time(not_after: u64) -> String {
    match not_after {
        0 => String::new(),
        end => format!(" AND {NOW}<={end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_the_same_unless_it_is_newer_or_gone() {
        assert!(is_same(7, 7) && is_same(7, 6));
        assert!(!is_same(7, 8) && !is_same(7, 0));
        // Where the server does not say.
        assert!(is_same(0, 0) && !is_same(0, 1));
    }

    #[test]
    fn nothing_of_a_name_is_in_the_text() {
        let hostile = Name::new("a'; DROP TABLE x; -- \\\"`%🔒").expect("a name");
        let text = name(&hostile);
        let inner = text
            .strip_prefix("x'")
            .and_then(|text| text.strip_suffix('\''));
        let inner = inner.expect("a literal");
        assert!(inner.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
        assert_eq!(inner.len(), hostile.len() * 2);
        assert_eq!(hex(&[]), "x''");
    }
}
