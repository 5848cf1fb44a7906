-- The tables of Lockkeeper, version 1. Times are microseconds since 1970 by the server's clock.
-- One row: the version of these tables, the fence of forgotten names, which server made the grants, and when these tables were made. It is
-- written last. Tables that are not new have a row without the time, or with the wrong one: the server sits out.
CREATE TABLE IF NOT EXISTS {meta} (
  one TINYINT NOT NULL PRIMARY KEY, version INT NOT NULL, floor BIGINT NOT NULL, max_lease BIGINT NOT NULL,
  server VARBINARY(255) NOT NULL, started BIGINT NOT NULL, ready_at BIGINT NOT NULL, breaks BIGINT NOT NULL,
  made VARBINARY(64) NOT NULL
) ENGINE=InnoDB;
-- One row a name: its fence, who holds it alone, and how many share it or wait for it.
CREATE TABLE IF NOT EXISTS {lock} (
  name VARBINARY(512) NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL, tail BIGINT NOT NULL, waited TINYINT NOT NULL, shared INT NOT NULL,
  token BIGINT NOT NULL,
  claim VARBINARY(24), mode TINYINT, first BIGINT, tokens BIGINT, lease BIGINT, expires BIGINT, since BIGINT,
  label VARBINARY(256), reason BLOB, broken BIGINT
) ENGINE=InnoDB;
-- Readers and permits.
CREATE TABLE IF NOT EXISTS {hold} (
  name VARBINARY(512) NOT NULL, claim VARBINARY(24) NOT NULL,
  mode TINYINT NOT NULL, permits BIGINT NOT NULL, taken BIGINT NOT NULL,
  first BIGINT NOT NULL, tokens BIGINT NOT NULL, lease BIGINT NOT NULL, expires BIGINT NOT NULL,
  since BIGINT NOT NULL, label VARBINARY(256),
  PRIMARY KEY (name, claim)
) ENGINE=InnoDB;
-- The queues.
CREATE TABLE IF NOT EXISTS {waiter} (
  name VARBINARY(512) NOT NULL, seq BIGINT NOT NULL, claim VARBINARY(24) NOT NULL,
  mode TINYINT NOT NULL, permits BIGINT NOT NULL, taken BIGINT NOT NULL,
  lease BIGINT NOT NULL, reserve BIGINT NOT NULL, since BIGINT NOT NULL, until BIGINT NOT NULL,
  label VARBINARY(256),
  PRIMARY KEY (name, seq), UNIQUE KEY claim (name, claim)
) ENGINE=InnoDB;
-- The process behind a claim, for people.
CREATE TABLE IF NOT EXISTS {keeper} (
  id BINARY(16) NOT NULL PRIMARY KEY,
  host VARBINARY(255) NOT NULL, pid BIGINT NOT NULL, program VARBINARY(255) NOT NULL,
  account VARBINARY(255) NOT NULL, seen BIGINT NOT NULL,
  KEY seen (seen)
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS {latch} (
  name VARBINARY(512) NOT NULL PRIMARY KEY, version BIGINT NOT NULL, remaining BIGINT NOT NULL
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS {arrival} (
  name VARBINARY(512) NOT NULL, id VARBINARY(24) NOT NULL, PRIMARY KEY (name, id)
) ENGINE=InnoDB;
INSERT IGNORE INTO {meta} SELECT 1, 1, IF(used, {now} + 1000000, 0), 0, '', 0, 0, 0, IF(used, '', {made})
  FROM (SELECT {lost} OR EXISTS(SELECT 1 FROM {lock}) OR EXISTS(SELECT 1 FROM {hold}) AS used) AS x;
