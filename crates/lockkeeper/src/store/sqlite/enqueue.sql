-- Puts a claim at the end of the queue of a name. The caller has made sure that it is not in it.
-- ?1 name, ?2 claim, ?3 process, ?4 mode, ?5 permits, ?6 taken, ?7 lease, ?8 reserve, ?9 until.

INSERT INTO waiter (name, seq, claim, process, mode, permits, taken, lease, reserve, until)
VALUES (?1, (SELECT coalesce(max(seq), 0) + 1 FROM waiter WHERE name = ?1), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
