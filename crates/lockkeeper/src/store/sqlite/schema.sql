-- The tables of a Lockkeeper file, version 2. Run once, in the transaction that also marks the file with
-- its application id and version.
--
-- Times called `expires` and `until` are nanoseconds of the clock since boot; `meta.boot` names the boot
-- they belong to. `lease` is a length in nanoseconds. Times called `since` and `broken` are wall-clock microseconds, for display alone.
-- `claim` is 24 bytes: the keeper's 16, then the claim's number, both big-endian.
-- No index stands on `process`: it would cost a page in every acquire, and is only wanted when one dies.

-- One row. `floor` is at least every token of a fence row that was forgotten; `turns` counts how often the
-- write-ahead log started over.
CREATE TABLE meta (
    only  INTEGER PRIMARY KEY CHECK (only = 1),
    boot  TEXT    NOT NULL,
    floor INTEGER NOT NULL,
    turns INTEGER NOT NULL
);

-- One row for each open store. Ids are never used twice, so what a store remembers of one stays true.
CREATE TABLE process (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    instance TEXT    NOT NULL UNIQUE,
    host     TEXT    NOT NULL,
    pid      INTEGER NOT NULL,
    program  TEXT    NOT NULL,
    socket   BLOB
);

-- The holds, and the last token of each name: rows that change together stand together, so that an
-- acquire writes a single page.
-- * A row with a claim is a lease. Past its `expires` it counts as absent.
-- * The row with an empty claim is the *fence* of the name and outlives its leases: `token` is the last one
--   given out, `waited` is 0 only if nobody waits, `reason` and `broken` tell when it was last broken.
--   Idle fences are forgotten once there are many.
CREATE TABLE lock (
    name    TEXT    NOT NULL,
    claim   BLOB    NOT NULL,
    token   INTEGER NOT NULL,
    process INTEGER,
    mode    INTEGER,
    permits INTEGER,
    taken   INTEGER,
    tokens  INTEGER,
    expires INTEGER,
    since   INTEGER,
    waited  INTEGER,
    reason  TEXT,
    broken  INTEGER,
    lease   INTEGER,
    label   TEXT,
    PRIMARY KEY (name, claim)
) WITHOUT ROWID;

-- The claims that wait, in the order of `seq`. A row past its `until` counts as absent. Wherever there is a
-- row, the fence of its name has `waited` set.
CREATE TABLE waiter (
    name    TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    claim   BLOB    NOT NULL,
    process INTEGER NOT NULL,
    mode    INTEGER NOT NULL,
    permits INTEGER NOT NULL,
    taken   INTEGER NOT NULL,
    lease   INTEGER NOT NULL,
    reserve INTEGER NOT NULL,
    until   INTEGER NOT NULL,
    since   INTEGER NOT NULL DEFAULT 0,
    label   TEXT,
    PRIMARY KEY (name, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX waiter_claim ON waiter (name, claim);

-- Latches that are not open, and which arrivals were counted.
CREATE TABLE latch (
    name  TEXT    NOT NULL PRIMARY KEY,
    count INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE arrival (
    name TEXT NOT NULL,
    id   BLOB NOT NULL,
    PRIMARY KEY (name, id)
) WITHOUT ROWID;
