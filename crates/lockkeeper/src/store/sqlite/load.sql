-- Everything a verb needs to know about a name, in one go.
-- ?1 name.
-- Rows: first column 0 is a lease, 1 the first of the queue (live or not), 2 the fence.

SELECT 0, claim, process, mode, permits, taken, token, tokens, expires, since FROM lease WHERE name = ?1
UNION ALL
SELECT * FROM (SELECT 1, claim, process, mode, permits, taken, lease, reserve, until, seq FROM waiter WHERE name = ?1 ORDER BY seq LIMIT 1)
UNION ALL
SELECT 2, NULL, 0, 0, 0, 0, last, 0, 0, 0 FROM fence WHERE name = ?1
