-- A slice of the fences in the order of names, for forgetting the idle ones. Bounded, because it runs
-- while it keeps everyone else from writing.
-- ?1 the name after which to go on, ?2 how many.
-- Rows: name, last token, whether anyone holds or waits.

SELECT name, token,
    EXISTS (SELECT 1 FROM lock AS lease WHERE lease.name = fence.name AND lease.claim > x'')
    OR EXISTS (SELECT 1 FROM waiter WHERE waiter.name = fence.name)
FROM lock AS fence WHERE name > ?1 AND claim = x'' ORDER BY name LIMIT ?2
