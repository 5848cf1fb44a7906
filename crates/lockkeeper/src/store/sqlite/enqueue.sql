-- Puts a claim at the end of the queue of a name, and removes an entry of the same claim that lapsed.
-- ?1 name, ?2 claim, ?3 process, ?4 mode, ?5 permits, ?6 taken, ?7 lease, ?8 reserve, ?9 until, ?10 since, ?11 label.

INSERT OR REPLACE INTO waiter (name, seq, claim, process, mode, permits, taken, lease, reserve, until, since, label)
VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM waiter WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
