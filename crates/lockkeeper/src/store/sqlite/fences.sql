-- A slice of the fences in the order of names, to forget the idle ones. Bounded, because no other process can write
-- while it runs.
-- ?1 the name after which to go on, ?2 how many.
-- Rows: name, last token, whether anyone holds or waits.

SELECT name, token,
    EXISTS (SELECT 1 FROM lock AS lease WHERE lease.name = fence.name AND lease.claim > x'')
    OR EXISTS (SELECT 1 FROM waiter WHERE waiter.name = fence.name)
FROM lock AS fence WHERE name > ?1 AND claim = x'' ORDER BY name LIMIT ?2
