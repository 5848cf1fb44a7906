-- Ends some leases of a process that is gone.
-- ?1 process, ?2 how many at most.
-- Rows: the names they were of.

DELETE FROM lock WHERE (name, claim) IN (SELECT name, claim FROM lock WHERE process = ?1 LIMIT ?2) RETURNING name
