//! The statements, and how a request is put into words.
//!
//! A request is one simple-query message of `EXECUTE`s: one that arrives in part does nothing, while a pipelined one would keep its
//! rows locked. Behind a pooler there are no prepared statements, and the same text is sent with its values in it.
//!
//! In a statement `{s}` is the schema, `{t}` the clock as it is when that place is reached, and `now.t` the clock at its
//! beginning. `{alive}` is [`ALIVE`], `{own}` is [`OWN`], and `{ready_at}` from when on the server may grant: always, to a client that
//! is told never to sit out. `{q}` is the schema inside a literal. Each statement that has an answer returns rows `(kind, a, b, t)`.

use std::fmt::Write;

use super::super::sql::engine::claim_bytes;
use crate::store::ClaimId;

/// The tables, as an administrator can make them too. The version is in the row of `meta`.
const SCHEMA: &str = include_str!("schema.sql");
/// The version of the tables.
pub(super) const VERSION: i64 = 1;

const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/// The tables that hold grants, as the server numbers them: a table that was made again has another number. The numbers are those of the
/// tables that the statement uses, if it has named these before: it has locked them then. Its snapshot may be older.
const TABLES: &str = "E'{q}.lock'::regclass::oid::text || '/' || E'{q}.hold'::regclass::oid::text";
/// The row of `alive`. It names the tables whose numbers [`OWN`] asks for.
const ALIVE: &str = "{s}.alive a LEFT JOIN ({s}.lock CROSS JOIN {s}.hold) ON false";
/// Whether the row of `alive` is no copy, and of these tables.
const OWN: &str = "a.born = a.xmin::text::bigint AND a.system = '{system}/' || {tables}";

/// What a statement is called, the types of its values, and its text.
type Statement = (&'static str, &'static [&'static str], &'static str);

const TEXT: &str = "text";
const BYTES: &str = "bytea";
const INT: &str = "bigint";
const BOOL: &str = "boolean";

/// `$7`: not after. A name without a row gets one.
pub(super) const TAKE: Statement = (
    "take",
    &[TEXT, BYTES, INT, INT, INT, TEXT, INT, INT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     may AS MATERIALIZED (SELECT t FROM now WHERE EXISTS (SELECT FROM {alive} WHERE {own} AND {ready_at} <= t)),
     u AS (UPDATE {s}.lock l SET version = l.version + 1, first = greatest(l.token + 1, may.t),
         tokens = least($5, greatest(may.t + 1000000 - greatest(l.token + 1, may.t), 1)),
         token = greatest(l.token + 1, may.t)
             + least($5, greatest(may.t + 1000000 - greatest(l.token + 1, may.t), 1)) - 1,
         claim = $2, mode = $3, lease = $4, expires = may.t + $4, since = may.t, label = $6
       FROM may WHERE l.name = $1 AND NOT l.waited AND l.shared = 0 AND (l.claim IS NULL OR l.expires <= may.t)
         AND ($7 = 0 OR {t} <= $7)
       RETURNING l.first, l.tokens),
     i AS (INSERT INTO {s}.lock (name, version, tail, waited, shared, first, tokens, token, claim, mode, lease, expires, since, label)
       SELECT $1, $8, 0, false, 0, greatest(floor + 1, t), least($5, greatest(t + 1000000 - greatest(floor + 1, t), 1)),
         greatest(floor + 1, t) + least($5, greatest(t + 1000000 - greatest(floor + 1, t), 1)) - 1,
         $2, $3, $4, t + $4, t, $6
       FROM may, {s}.meta WHERE NOT EXISTS (SELECT FROM {s}.lock WHERE name = $1) AND ($7 = 0 OR {t} <= $7)
       ON CONFLICT DO NOTHING RETURNING first, tokens)
     SELECT 'g', first, tokens, t FROM u, now UNION ALL SELECT 'g', first, tokens, t FROM i, now
     UNION ALL SELECT 'h', l.expires - t, 0, t FROM now, {s}.lock l
       WHERE l.name = $1 AND l.claim <> $2 AND l.shared = 0 AND l.expires > t AND l.expires <= t + l.lease + 1000000
     UNION ALL SELECT 't', 0, 0, t FROM now",
);

pub(super) const APPEND: Statement = (
    "append",
    &[TEXT, BYTES, INT, INT, INT, INT, INT, TEXT, INT, INT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (UPDATE {s}.lock l SET tail = l.tail + 1, waited = true FROM now
       WHERE l.name = $1 AND l.claim <> $2 AND l.shared = 0 AND l.expires > now.t AND l.expires <= now.t + l.lease + 1000000
         AND ($9 = 0 OR {t} <= $9)
       RETURNING l.tail, l.expires - now.t AS rest),
     w AS (INSERT INTO {s}.waiter AS w (name, seq, claim, mode, permits, taken, lease, reserve, since, until, label)
       SELECT $1, u.tail, $2, $3, $4, $5, $6, $7, t, t + $10, $8 FROM u, now
       ON CONFLICT (name, claim) DO UPDATE SET until = EXCLUDED.until,
         seq = CASE WHEN w.until > EXCLUDED.since THEN w.seq ELSE EXCLUDED.seq END,
         since = CASE WHEN w.until > EXCLUDED.since THEN w.since ELSE EXCLUDED.since END)
     SELECT 'h', rest, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);

pub(super) const FREE: Statement = (
    "free",
    &[TEXT, BYTES],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (UPDATE {s}.lock l SET version = l.version + 1, claim = NULL, label = NULL FROM now
       WHERE l.name = $1 AND l.claim = $2 AND l.expires > now.t AND NOT l.waited AND l.shared = 0 RETURNING 1)
     SELECT 'd', 0, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);

/// The row of the lock first, then that of a reader or a permit. A longer lease that moves no end still makes the lease longer: after the
/// clock was set back, a hold is cut to its length.
pub(super) const PROLONG: Statement = (
    "prolong",
    &[TEXT, BYTES, INT, INT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (UPDATE {s}.lock l SET version = l.version + 1,
         expires = CASE WHEN l.claim = $2 THEN greatest(l.expires, now.t + $3) ELSE l.expires END,
         lease = CASE WHEN l.claim <> $2 OR l.claim IS NULL THEN l.lease
           WHEN now.t + $3 > l.expires THEN $3 ELSE greatest(l.lease, $3) END
       FROM now WHERE l.name = $1 AND ($4 = 0 OR {t} <= $4)
         AND CASE WHEN l.claim = $2 THEN l.expires > now.t ELSE l.shared > 0
           AND EXISTS (SELECT FROM {s}.hold h WHERE h.name = $1 AND h.claim = $2 AND h.expires > now.t) END
       RETURNING l.claim, l.first, l.tokens),
     h AS (UPDATE {s}.hold h SET expires = greatest(h.expires, now.t + $3),
         lease = CASE WHEN now.t + $3 > h.expires THEN $3 ELSE greatest(h.lease, $3) END
       FROM u, now WHERE h.name = $1 AND h.claim = $2 AND h.expires > now.t RETURNING h.first, h.tokens)
     SELECT 'g', first, tokens, t FROM u, now WHERE u.claim = $2 UNION ALL SELECT 'g', first, tokens, t FROM h, now
     UNION ALL SELECT 't', 0, 0, t FROM now",
);

/// Rows `(kind, a, b, t, c, d, claim, mode, permits, taken, first, tokens, lease, expires, since, label, reason)`.
pub(super) const LOAD: Statement = (
    "load",
    &[TEXT, INT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t), l AS MATERIALIZED (SELECT * FROM {s}.lock WHERE name = $1)
     SELECT 'm', (SELECT {ready_at} FROM {alive} WHERE {own}), (SELECT floor FROM {s}.meta), t, NULL::bigint, NULL::bigint, NULL, NULL::bigint,
       NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL, NULL FROM now
     UNION ALL SELECT 'l', version, tail, 0, token, broken, encode(claim, 'hex'), mode, 0, 0, first, tokens, lease, expires, since,
       label, reason FROM l
     UNION ALL SELECT 'h', 0, 0, 0, 0, 0, encode(h.claim, 'hex'), h.mode, h.permits, h.taken, h.first, h.tokens, h.lease, h.expires,
       h.since, h.label, NULL FROM {s}.hold h WHERE h.name = $1 AND (SELECT shared > 0 FROM l)
     UNION ALL (SELECT 'w', w.seq, 0, 0, 0, 0, encode(w.claim, 'hex'), w.mode, w.permits, w.taken, 0, w.reserve, w.lease, w.until,
       w.since, w.label, NULL FROM {s}.waiter w WHERE w.name = $1 AND (SELECT waited FROM l) ORDER BY w.seq LIMIT $2)",
);

/// `$2`, `$3`: version and tail as seen; `$4`: the tail must be the same; `$5`: it grants; `$6`: not after; `$21`: how many join the
/// queue.
pub(super) const SAVE: Statement = (
    "save",
    &[
        TEXT, INT, INT, BOOL, BOOL, INT, INT, INT, BYTES, INT, INT, INT, INT, INT, INT, TEXT, INT,
        BOOL, TEXT, INT, INT,
    ],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (UPDATE {s}.lock l SET version = $7, token = $8, claim = $9, mode = $10, first = $11, tokens = $12, lease = $13,
         expires = $14, since = $15, label = $16, shared = $17, waited = $18 OR l.tail > $3 OR $21 > 0, reason = $19,
         broken = $20, tail = l.tail + $21
       FROM now WHERE l.name = $1 AND l.version = $2 AND (NOT $4 OR l.tail = $3) AND ($6 = 0 OR {t} <= $6)
         AND (NOT $5 OR EXISTS (SELECT FROM {alive} WHERE {own} AND {ready_at} <= now.t)) RETURNING 1)
     SELECT 'd', 0, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);

/// The same values; the row is new.
pub(super) const SAVE_NEW: Statement = (
    "save_new",
    SAVE.1,
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (INSERT INTO {s}.lock (name, version, tail, waited, shared, token, claim, mode, first, tokens, lease, expires, since, label,
         reason, broken)
       SELECT $1, $7, $21, $18 OR $21 > 0, $17, $8, $9, $10, $11, $12, $13, $14, $15, $16, $19, $20 FROM now
       WHERE $2 = 0 AND $3 = 0 AND NOT $4 IS NULL AND ($6 = 0 OR {t} <= $6)
         AND (NOT $5 OR EXISTS (SELECT FROM {alive} WHERE {own} AND {ready_at} <= t))
         AND EXISTS (SELECT FROM {s}.meta WHERE floor < $8 OR NOT $5)
       ON CONFLICT DO NOTHING RETURNING 1)
     SELECT 'd', 0, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);

pub(super) const HOLD_END: Statement = (
    "hold_end",
    &[TEXT, INT, BYTES],
    "DELETE FROM {s}.hold WHERE name = $1 AND claim = $3
       AND EXISTS (SELECT FROM {s}.lock WHERE name = $1 AND version = $2)",
);
pub(super) const HOLD_PUT: Statement = (
    "hold_put",
    &[
        TEXT, INT, BYTES, INT, INT, INT, INT, INT, INT, INT, INT, TEXT,
    ],
    "INSERT INTO {s}.hold (name, claim, mode, permits, taken, first, tokens, lease, expires, since, label)
       SELECT $1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
       WHERE EXISTS (SELECT FROM {s}.lock WHERE name = $1 AND version = $2)
       ON CONFLICT (name, claim) DO UPDATE SET lease = EXCLUDED.lease, expires = EXCLUDED.expires",
);
pub(super) const LAPSE: Statement = (
    "lapse",
    &[TEXT, INT, INT],
    "DELETE FROM {s}.waiter WHERE name = $1 AND until <= $3
       AND EXISTS (SELECT FROM {s}.lock WHERE name = $1 AND version = $2)",
);
pub(super) const LEAVE: Statement = (
    "leave",
    &[TEXT, INT, BYTES],
    "DELETE FROM {s}.waiter WHERE name = $1 AND claim = $3
       AND EXISTS (SELECT FROM {s}.lock WHERE name = $1 AND version = $2)",
);
pub(super) const KEEP: Statement = (
    "keep",
    &[TEXT, INT, BYTES, INT],
    "UPDATE {s}.waiter SET until = $4 WHERE name = $1 AND claim = $3
       AND EXISTS (SELECT FROM {s}.lock WHERE name = $1 AND version = $2)",
);
pub(super) const ENQUEUE: Statement = (
    "enqueue",
    &[
        TEXT, INT, BYTES, INT, INT, INT, INT, INT, INT, INT, TEXT,
    ],
    "INSERT INTO {s}.waiter AS w (name, seq, claim, mode, permits, taken, lease, reserve, since, until, label)
       SELECT $1, l.tail, $3, $4, $5, $6, $7, $8, $9, $10, $11 FROM {s}.lock l WHERE l.name = $1 AND l.version = $2
       ON CONFLICT (name, claim) DO UPDATE SET until = EXCLUDED.until,
         seq = CASE WHEN w.until > EXCLUDED.since THEN w.seq ELSE EXCLUDED.seq END,
         since = CASE WHEN w.until > EXCLUDED.since THEN w.since ELSE EXCLUDED.since END",
);
pub(super) const NOTIFY: Statement = (
    "notify",
    &[TEXT, INT, TEXT, TEXT],
    "SELECT pg_notify($3, $4) WHERE EXISTS (SELECT FROM {s}.lock WHERE name = $1 AND version = $2)",
);

pub(super) const COUNT: Statement = (
    "count",
    &[TEXT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t)
     SELECT 'c', (SELECT count(*) FROM {s}.waiter w WHERE w.name = $1 AND w.until > t), 0, t FROM now",
);
/// Rows `(kind, waiters, 0, t, name)`.
pub(super) const NAMES: Statement = (
    "names",
    &[TEXT, TEXT, INT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t)
     SELECT 'n', CASE WHEN l.waited THEN (SELECT count(*) FROM {s}.waiter w WHERE w.name = l.name AND w.until > t) ELSE 0 END, 0, t,
       l.name FROM now, {s}.lock l WHERE l.name >= $1 AND starts_with(l.name, $1) AND l.name > $2
       AND (l.claim IS NOT NULL OR l.waited OR l.shared > 0) ORDER BY l.name LIMIT $3",
);
/// Rows `(kind, pid, 0, t, id, host, program)`. The keepers are a list of 32 digits each.
pub(super) const PROCESSES: Statement = (
    "processes",
    &[TEXT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t)
     SELECT 'p', pid, 0, t, encode(id, 'hex'), host, program FROM now, {s}.keeper
       WHERE id = ANY (SELECT decode(part, 'hex') FROM unnest(string_to_array($1, ',')) AS part)",
);
pub(super) const ENLIST: Statement = (
    "enlist",
    &[BYTES, TEXT, INT, TEXT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     gone AS (DELETE FROM {s}.keeper WHERE id IN (SELECT k.id FROM {s}.keeper k, now
       WHERE k.seen < t - 86400000000 AND k.id <> $1 FOR UPDATE OF k SKIP LOCKED)),
     u AS (INSERT INTO {s}.keeper SELECT $1, $2, $3, $4, t FROM now
       ON CONFLICT (id) DO UPDATE SET host = $2, pid = $3, program = $4, seen = EXCLUDED.seen RETURNING 1)
     SELECT 'd', 0, 0, t FROM u, now",
);
/// Rows `(kind, version, tail, t, name, token, unused)`. The number is written out: the server plans for as few rows.
pub(super) const LOOK: Statement = (
    "look",
    &[TEXT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t)
     SELECT 'i', l.version, l.tail, t, l.name, l.token,
       l.token < t - 3600000000 AND l.broken IS NULL AND (l.claim IS NULL OR l.expires <= t)
       AND NOT (l.shared > 0 AND EXISTS (SELECT FROM {s}.hold h WHERE h.name = l.name AND h.expires > t))
       AND NOT (l.waited AND EXISTS (SELECT FROM {s}.waiter w WHERE w.name = l.name AND w.until > t))
     FROM now, (SELECT * FROM {s}.lock WHERE name > $1 ORDER BY name LIMIT 64) l ORDER BY l.name",
);
/// Before names are forgotten. It does nothing if somebody keeps the row.
pub(super) const FLOOR: Statement = (
    "floor",
    &[INT],
    "WITH free AS MATERIALIZED (SELECT one FROM {s}.meta WHERE floor < $1 FOR UPDATE SKIP LOCKED)
     UPDATE {s}.meta m SET floor = $1 FROM free WHERE m.one = free.one AND m.floor < $1",
);
/// Every change of a name, of its holds and of its queue moves its version or its tail, so none of these rows is in use. A name above the
/// floor stays.
pub(super) const FORGET: Statement = (
    "forget",
    &[TEXT, INT, INT],
    "WITH free AS MATERIALIZED (SELECT name FROM {s}.lock WHERE name = $1 AND version = $2 AND tail = $3
       AND token <= (SELECT floor FROM {s}.meta) FOR UPDATE SKIP LOCKED),
     gone AS (DELETE FROM {s}.lock l USING free WHERE l.name = free.name RETURNING l.name),
     h AS (DELETE FROM {s}.hold h USING gone WHERE h.name = gone.name),
     w AS (DELETE FROM {s}.waiter w USING gone WHERE w.name = gone.name)
     SELECT 'd', 0, 0, 0 FROM gone",
);

/// Rows `(kind, version, count, t, arrived)`.
pub(super) const LATCH: Statement = (
    "latch",
    &[TEXT, BYTES],
    "WITH now AS MATERIALIZED (SELECT {t} AS t)
     SELECT 'a', version, count, t, EXISTS (SELECT FROM {s}.arrival WHERE name = $1 AND id = $2)
       FROM now, {s}.latch WHERE name = $1
     UNION ALL SELECT 't', 0, 0, t, false FROM now",
);
/// `$1` name, `$2` id, `$3` seen, `$4` new version, `$5` count, `$6` not after.
pub(super) const LATCH_SET: Statement = (
    "latch_set",
    &[TEXT, BYTES, INT, INT, INT, INT],
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (INSERT INTO {s}.latch SELECT $1, $4, $5 FROM now
       WHERE ($6 = 0 OR {t} <= $6) AND $2 IS NOT NULL AND $3 = 0 ON CONFLICT DO NOTHING RETURNING 1)
     SELECT 'd', 0, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);
pub(super) const LATCH_ARRIVE: Statement = (
    "latch_arrive",
    LATCH_SET.1,
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (UPDATE {s}.latch SET version = $4, count = count - 1 WHERE name = $1 AND version = $3
       AND ($6 = 0 OR {t} <= $6) AND $5 = 0 RETURNING 1),
     a AS (INSERT INTO {s}.arrival SELECT $1, $2 FROM u ON CONFLICT DO NOTHING)
     SELECT 'd', 0, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);
pub(super) const LATCH_OPEN: Statement = (
    "latch_open",
    LATCH_SET.1,
    "WITH now AS MATERIALIZED (SELECT {t} AS t),
     u AS (DELETE FROM {s}.latch WHERE name = $1 AND version = $3 AND ($6 = 0 OR {t} <= $6)
       AND $2 IS NOT NULL AND $4 > 0 AND $5 = 0 RETURNING 1),
     a AS (DELETE FROM {s}.arrival USING u WHERE name = $1)
     SELECT 'd', 0, 0, t FROM u, now UNION ALL SELECT 't', 0, 0, t FROM now",
);

/// Statements that are prepared.
const PREPARED: &[Statement] = &[
    TAKE, APPEND, FREE, PROLONG, LOAD, SAVE, SAVE_NEW, HOLD_END, HOLD_PUT, LAPSE, LEAVE, KEEP,
    ENQUEUE, NOTIFY, COUNT, NAMES, LOOK, FLOOR, FORGET,
];
/// Statements that are not prepared: locks are there without their tables.
const UNPREPARED: &[Statement] = &[
    PROCESSES,
    ENLIST,
    LATCH,
    LATCH_SET,
    LATCH_ARRIVE,
    LATCH_OPEN,
];

/// A value of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    Claim(ClaimId),
    Int(i64),
    Bool(bool),
    Null,
}

impl Value<'_> {
    fn write(&self, text: &mut String) {
        match self {
            // Read alike whatever the server's setting of standard_conforming_strings.
            Value::Text(value) => {
                text.push_str("E'");
                for c in value.chars() {
                    match c {
                        '\'' => text.push_str("''"),
                        '\\' => text.push_str("\\\\"),
                        // No text of the server can have it.
                        '\0' => text.push(' '),
                        c => text.push(c),
                    }
                }
                text.push('\'');
            }
            Value::Bytes(bytes) => {
                text.push_str("E'\\\\x");
                for byte in *bytes {
                    let _ = write!(text, "{byte:02x}");
                }
                text.push('\'');
            }
            Value::Claim(claim) => Value::Bytes(&claim_bytes(*claim)).write(text),
            Value::Int(value) => {
                let _ = write!(text, "{value}");
            }
            Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Value::Null => text.push_str("NULL"),
        }
    }
}

/// How the statements of one connection are said.
#[derive(Clone, Debug)]
pub(super) struct Dialect {
    /// The schema, quoted.
    pub schema: String,
    /// Whether statements are prepared.
    pub prepared: bool,
    /// Whether a server that may have forgotten grants sits out.
    pub sits_out: bool,
    /// The server and the database, as `alive` names them.
    pub system: String,
}

impl Dialect {
    /// Fills in all that is in braces.
    pub fn fill(&self, sql: &str) -> String {
        let ready_at = if self.sits_out {
            "a.ready_at"
        } else {
            "0::bigint"
        };
        let sql = sql.replace("{alive}", ALIVE).replace("{own}", OWN);
        let sql = sql
            .replace("{ready_at}", ready_at)
            .replace("{system}", &self.system);
        in_schema(&sql, &self.schema)
    }

    /// Prepares the statements of locks.
    pub fn prepare(&self) -> String {
        let mut text = String::new();
        for (name, types, sql) in PREPARED {
            let (types, sql) = (types.join(","), self.fill(sql));
            let _ = writeln!(text, "PREPARE lk_{name} ({types}) AS {sql};");
        }
        text
    }

    /// Adds a statement with its values to a message.
    pub fn say(&self, text: &mut String, statement: Statement, values: &[Value<'_>]) {
        let (name, types, sql) = statement;
        debug_assert_eq!(types.len(), values.len(), "{name}");
        let is_prepared = self.prepared && UNPREPARED.iter().all(|other| other.0 != name);
        if is_prepared {
            let _ = write!(text, "EXECUTE lk_{name}(");
            for (number, value) in values.iter().enumerate() {
                if number > 0 {
                    text.push(',');
                }
                value.write(text);
            }
            text.push_str(");\n");
            return;
        }
        // Parameters first: a schema may have a dollar in its name.
        let mut rest = sql;
        while let Some(at) = rest.find('$') {
            text.push_str(&self.fill(&rest[..at]));
            let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit);
            let end = at + 1 + digits.count();
            let number: usize = rest[at + 1..end].parse().unwrap_or(1);
            match values.get(number - 1) {
                Some(value) => {
                    text.push('(');
                    value.write(text);
                    let _ = write!(text, ")::{}", types[number - 1]);
                }
                None => text.push_str("NULL"),
            }
            rest = &rest[end..];
        }
        text.push_str(&self.fill(rest));
        text.push_str(";\n");
    }
}

/// A message that notifies, on channels, without waiting for the disk.
pub(super) fn notifications(messages: &[(String, String)]) -> String {
    let mut text = "SET LOCAL synchronous_commit TO off;\n".to_owned();
    for (channel, payload) in messages {
        text.push_str("SELECT pg_notify(");
        Value::Text(channel).write(&mut text);
        text.push(',');
        Value::Text(payload).write(&mut text);
        text.push_str(");\n");
    }
    text
}

/// A text of SQL.
pub(super) fn quoted(value: &str) -> String {
    let mut text = String::new();
    Value::Text(value).write(&mut text);
    text
}

/// An identifier of SQL.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Fills in the clock, the numbers of the tables and the schema.
fn in_schema(sql: &str, schema: &str) -> String {
    let sql = sql.replace("{tables}", TABLES).replace("{t}", CLOCK);
    // The schema last: its name may look like one of the others.
    let inside = schema.replace('\\', "\\\\").replace('\'', "''");
    let parts = sql.split("{q}").map(|part| part.replace("{s}", schema));
    parts.collect::<Vec<_>>().join(&inside)
}

/// The tables of a schema, as far as they are not there. `new` says, as SQL, whether nobody can hold anything by such tables.
pub(super) fn tables(schema: &str, max_lease: i64, new: &str) -> String {
    let text = SCHEMA.replace("{max_lease}", &max_lease.to_string());
    in_schema(&text.replace("{new}", new), &identifier(schema))
}

/// Whether nobody can hold anything by tables in a schema, as SQL: there is no such schema, no session has [marked](mark) it, and the server
/// was never a standby, which may not have heard of it. The control file names the timeline only after a checkpoint.
pub(super) fn is_new(schema: &str) -> String {
    let schema = quoted(schema);
    format!(
        "NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {schema}) AND pg_try_advisory_xact_lock({USED}, hashtext({schema})) \
         AND pg_walfile_name(pg_current_wal_lsn()) LIKE '00000001%'"
    )
}

/// Marks a schema as one that a session uses, for as long as the session lives.
pub(super) fn mark(schema: &str) -> String {
    format!(
        "SELECT pg_advisory_lock_shared({USED}, hashtext({}))",
        quoted(schema)
    )
}

/// Of those who make tables, one does at a time.
pub(super) const INSTALLING: &str = "SELECT pg_advisory_xact_lock(1818979947, 1)";
/// The class of the advisory locks that mark schemas.
const USED: i32 = 1_818_979_948;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_leave_their_quotes() {
        let mut text = String::new();
        Value::Text(r"a'b\'c\").write(&mut text);
        assert_eq!(text, r"E'a''b\\''c\\'");
        text.clear();
        Value::Bytes(&[0, 255]).write(&mut text);
        assert_eq!(text, r"E'\\x00ff'");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn every_statement_has_as_many_values_as_it_names() {
        for (name, types, sql) in PREPARED.iter().chain(UNPREPARED) {
            for number in 1..=types.len() {
                assert!(sql.contains(&format!("${number}")), "{name} ${number}");
            }
            assert!(!sql.contains(&format!("${}", types.len() + 1)), "{name}");
        }
    }

    #[test]
    fn behind_a_pooler_values_are_in_the_text() {
        let dialect = Dialect {
            schema: "s".into(),
            prepared: false,
            sits_out: true,
            system: String::new(),
        };
        let mut text = String::new();
        dialect.say(&mut text, COUNT, &[Value::Text("$1; DROP")]);
        assert!(text.contains("w.name = (E'$1; DROP')::text"), "{text}");
    }

    #[test]
    fn a_schema_is_never_taken_for_a_parameter_or_a_template() {
        for name in [
            "a$b", "a$1", "{t}", "{own}", "{s}", "{q}", "{tables}", "{new}",
        ] {
            let dialect = Dialect {
                schema: identifier(name),
                prepared: false,
                sits_out: true,
                system: "1/2".into(),
            };
            let mut text = String::new();
            dialect.say(&mut text, COUNT, &[Value::Text("it's")]);
            let waiters = format!("\"{name}\".waiter");
            assert!(text.contains(&waiters), "{text}");
            assert!(text.contains("w.name = (E'it''s')::text"), "{text}");
            assert!(dialect.prepare().contains(&waiters));
            assert!(tables(name, 7, "true").contains(&waiters));
        }
        assert!(tables("{max_lease}", 7, "true").contains("\"{max_lease}\".meta"));
    }

    #[test]
    fn a_look_is_as_long_as_the_store_believes() {
        let limit = format!("LIMIT {})", crate::store::sql::engine::LOOK);
        assert!(LOOK.2.contains(&limit));
    }
}
