-- The shop's stock. Invariant: a change of stock and its line in the ledger are one transaction.
CREATE TABLE IF NOT EXISTS inventory (
    item  TEXT PRIMARY KEY,
    stock INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS good (
    id          INTEGER PRIMARY KEY,
    good_name   TEXT NOT NULL,
    good_counts INTEGER NOT NULL,
    create_time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;
-- No uniqueness on purpose: that a family has one reward is what the lock is for.
CREATE TABLE IF NOT EXISTS family_reward_record (
    id          INTEGER PRIMARY KEY,
    family_id   INTEGER NOT NULL,
    reward_type INTEGER NOT NULL DEFAULT 1,
    state       INTEGER NOT NULL DEFAULT 0,
    create_time TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;
CREATE INDEX IF NOT EXISTS family_reward_of ON family_reward_record (family_id, reward_type);
-- The highest token that was shown for an item.
CREATE TABLE IF NOT EXISTS fence (
    item  TEXT PRIMARY KEY,
    token INTEGER NOT NULL
) STRICT;
-- How many there were at the start.
CREATE TABLE IF NOT EXISTS opening (
    item TEXT PRIMARY KEY,
    size INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS ledger (
    id        INTEGER PRIMARY KEY,
    item      TEXT NOT NULL,
    port      INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    token     INTEGER,
    sold_at   TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) STRICT;
CREATE INDEX IF NOT EXISTS ledger_of ON ledger (item);
