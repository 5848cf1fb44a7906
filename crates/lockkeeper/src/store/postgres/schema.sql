CREATE TABLE IF NOT EXISTS {s}.meta (
    one smallint PRIMARY KEY CHECK (one = 1),
    version integer NOT NULL,
    floor bigint NOT NULL,
    max_lease bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.lock (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    tail bigint NOT NULL,
    waited boolean NOT NULL,
    shared bigint NOT NULL,
    token bigint NOT NULL,
    claim bytea,
    mode bigint,
    first bigint,
    tokens bigint,
    lease bigint,
    expires bigint,
    since bigint,
    label text,
    reason text,
    broken bigint
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS {s}.hold (
    name text COLLATE "C" NOT NULL,
    claim bytea NOT NULL,
    mode bigint NOT NULL,
    permits bigint NOT NULL,
    taken bigint NOT NULL,
    first bigint NOT NULL,
    tokens bigint NOT NULL,
    lease bigint NOT NULL,
    expires bigint NOT NULL,
    since bigint NOT NULL,
    label text,
    PRIMARY KEY (name, claim)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.waiter (
    name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    claim bytea NOT NULL,
    mode bigint NOT NULL,
    permits bigint NOT NULL,
    taken bigint NOT NULL,
    lease bigint NOT NULL,
    reserve bigint NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    label text,
    PRIMARY KEY (name, seq),
    UNIQUE (name, claim)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {s}.keeper (
    id bytea PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    program text NOT NULL,
    seen bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.latch (
    name text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    count bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS {s}.arrival (
    name text COLLATE "C" NOT NULL,
    id bytea NOT NULL,
    PRIMARY KEY (name, id)
);
-- Empty after a crash and on a promoted standby: the server may have forgotten grants then. So it has if the row is a copy, which a dump
-- brought back, or if `lock` or `hold` was made again. `system` names the server, the database and these two tables. `born` is the
-- transaction that wrote the row, and a copy was written by another.
CREATE UNLOGGED TABLE IF NOT EXISTS {s}.alive (
    one smallint PRIMARY KEY CHECK (one = 1),
    system text NOT NULL,
    ready_at bigint NOT NULL,
    born bigint NOT NULL
);
-- Tokens of forgotten names are above the floor, whatever it was.
INSERT INTO {s}.meta SELECT 1, 1, CASE WHEN {new} THEN 0 ELSE {t} + 1000000 END, {max_lease} ON CONFLICT DO NOTHING;
-- Without a row the server sits out: somebody may hold what tables said that are gone.
INSERT INTO {s}.alive SELECT 1, system_identifier || '/' || oid || '/' || {tables}, 0, txid_current() & 4294967295
    FROM pg_control_system(), pg_database WHERE datname = current_database() AND {new} ON CONFLICT DO NOTHING;
