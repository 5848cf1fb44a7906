-- Ends some leases of a dead process.
-- ?1 process, ?2 how many at most.
-- Rows: the names of the leases, and whether anyone may wait for each.

DELETE FROM lock WHERE (name, claim) IN (SELECT name, claim FROM lock WHERE process = ?1 LIMIT ?2)
RETURNING name, (SELECT waited FROM lock AS fence WHERE fence.name = lock.name AND fence.claim = x'')
