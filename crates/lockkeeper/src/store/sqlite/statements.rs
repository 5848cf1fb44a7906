//! The statements. Longer ones have files of their own.
//!
//! A prepared statement is found by the hash of its text each time that it runs. So the comment at the head of a file is
//! cut off when the program is compiled.

pub(super) const SCHEMA: &str = include_str!("schema.sql");
pub(super) const UPGRADE: &str = include_str!("upgrade.sql");
/// Version 1 did not keep the length of a lease. What is left of it is taken for the whole.
pub(super) const UPGRADE_LEASES: &str = "UPDATE lock SET lease=max(expires-?1,0) WHERE claim>x''";

pub(super) const LOAD: &str = body(include_str!("load.sql"));
pub(super) const RELEASE: &str = body(include_str!("release.sql"));
pub(super) const ENQUEUE: &str = body(include_str!("enqueue.sql"));
pub(super) const FENCES: &str = body(include_str!("fences.sql"));
pub(super) const RECLAIM: &str = body(include_str!("reclaim.sql"));

pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

pub(super) const LEASE_START: &str = "INSERT INTO lock \
     (name,claim,token,process,mode,permits,taken,tokens,expires,since,lease,label) \
     VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)";
pub(super) const LEASE_MOVE: &str =
    "UPDATE lock SET expires=?3,lease=?4 WHERE name=?1 AND claim=?2";
pub(super) const LEASE_END: &str = "DELETE FROM lock WHERE name=?1 AND claim=?2";

pub(super) const FENCE_START: &str =
    "INSERT INTO lock (name,claim,token,waited) VALUES (?1,x'',?2,?3)";
pub(super) const FENCE_MOVE: &str =
    "UPDATE lock SET token=?2,waited=?3 WHERE name=?1 AND claim=x''";
pub(super) const FENCE_BREAK: &str =
    "UPDATE lock SET reason=?2,broken=?3 WHERE name=?1 AND claim=x''";
pub(super) const FENCE_BROKEN: &str = "SELECT reason,broken FROM lock WHERE name=?1 AND claim=x''";
pub(super) const FENCE_FORGET: &str = "DELETE FROM lock WHERE name=?1 AND claim=x''";
/// How many more fences than leases there are: about how many are idle.
pub(super) const FENCES_IDLE: &str =
    "SELECT count(*) FILTER (WHERE claim=x'') - count(*) FILTER (WHERE claim>x'') FROM lock";
pub(super) const FLOOR: &str = "SELECT floor FROM meta";
pub(super) const FLOOR_RAISE: &str = "UPDATE meta SET floor=max(floor,?1)";

/// The query has no `LIMIT`: with a bound one SQLite prepares the statement anew each time, and a contended lock took 50 µs instead
/// of 33 µs. Rows are read one by one, in the order of the key.
pub(super) const QUEUE_PAGE: &str = "SELECT seq,claim,process,mode,permits,taken,lease,reserve,until,since,label \
     FROM waiter WHERE name=?1 AND seq>?2 ORDER BY seq";
pub(super) const QUEUE_LIVE: &str = "SELECT seq,claim,process,mode,permits,taken,lease,reserve,until,since,label \
     FROM waiter WHERE name=?1 AND until>?2 ORDER BY seq";
pub(super) const QUEUE_KEEP: &str =
    "UPDATE waiter SET until=?3 WHERE name=?1 AND claim=?2 AND until>?4";
pub(super) const QUEUE_LEAVE: &str = "DELETE FROM waiter WHERE name=?1 AND claim=?2";
pub(super) const QUEUE_LEAVE_ALL: &str = "DELETE FROM waiter WHERE name=?1 AND process=?2";
pub(super) const QUEUE_EXPIRE: &str = "DELETE FROM waiter WHERE name=?1 AND until<=?2";
pub(super) const QUEUE_COUNT: &str = "SELECT count(*) FROM waiter WHERE name=?1 AND until>?2";
/// Names in use that start with a prefix. No byte of a name is FF, so that ends the range.
pub(super) const NAMES: &str = "\
     SELECT name FROM lock WHERE name>=?1 AND name<?1||CAST(x'FF' AS TEXT) AND claim>x'' \
     UNION SELECT name FROM waiter WHERE name>=?1 AND name<?1||CAST(x'FF' AS TEXT) ORDER BY 1";

pub(super) const LATCH: &str = "SELECT count,\
     EXISTS (SELECT 1 FROM arrival WHERE name=?1 AND id=?2) FROM latch WHERE name=?1";
pub(super) const LATCH_SET: &str = "INSERT INTO latch VALUES (?1,?2)";
pub(super) const LATCH_DOWN: &str = "UPDATE latch SET count=count-1 WHERE name=?1";
pub(super) const LATCH_ARRIVE: &str = "INSERT INTO arrival VALUES (?1,?2)";
pub(super) const LATCH_OPEN: &str = "DELETE FROM latch WHERE name=?1";
pub(super) const LATCH_FORGET: &str = "DELETE FROM arrival WHERE name=?1";

pub(super) const PROCESS: &str =
    "SELECT id,instance,host,pid,program,socket FROM process WHERE id=?1";
pub(super) const PROCESSES: &str =
    "SELECT id,instance,host,pid,program,socket FROM process ORDER BY id";
pub(super) const PROCESS_ADD: &str =
    "INSERT INTO process (instance,host,pid,program,socket) VALUES (?1,?2,?3,?4,?5)";
pub(super) const PROCESS_REMOVE: &str = "DELETE FROM process WHERE id=?1";
/// Forgets a process that neither holds nor waits.
pub(super) const PROCESS_REMOVE_IDLE: &str = "DELETE FROM process WHERE id=?1 \
     AND NOT EXISTS (SELECT 1 FROM lock WHERE process=?1) \
     AND NOT EXISTS (SELECT 1 FROM waiter WHERE process=?1)";
pub(super) const WAITERS_REMOVE: &str = "DELETE FROM waiter WHERE process=?1 RETURNING name";

pub(super) const BOOT: &str = "SELECT boot FROM meta";
pub(super) const BOOT_SET: &str = "UPDATE meta SET boot=?1";
pub(super) const META_START: &str = "INSERT INTO meta VALUES (1,?1,0,0)";
/// Ends what an earlier boot left: no process of it still runs.
pub(super) const CLEAR: &str = "DELETE FROM lock WHERE claim>x''; DELETE FROM waiter;";

pub(super) const DATA_VERSION: &str = "PRAGMA data_version";
/// Writes a page, and changes nothing that matters.
pub(super) const LOG_RESTART: &str = "UPDATE meta SET turns=turns+1";

/// What follows the first empty line.
const fn body(text: &'static str) -> &'static str {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at + 1 < bytes.len() {
        if bytes[at] == b'\n' && bytes[at + 1] == b'\n' {
            return text.split_at(at + 2).1;
        }
        at += 1;
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_comments_of_statement_files_are_cut_off() {
        for statement in [
            super::LOAD,
            super::RELEASE,
            super::ENQUEUE,
            super::FENCES,
            super::RECLAIM,
        ] {
            assert!(!statement.contains("--"), "{statement}");
        }
        assert!(super::LOAD.starts_with("SELECT"));
    }
}
