-- A slice of the fences in the order of names, for forgetting the idle ones. Bounded, because it runs
-- while it keeps everyone else from writing.
-- ?1 the name after which to go on, ?2 how many.
-- Rows: name, last token, whether anyone holds or waits.

SELECT name, last,
    EXISTS (SELECT 1 FROM lease WHERE lease.name = fence.name) OR EXISTS (SELECT 1 FROM waiter WHERE waiter.name = fence.name)
FROM fence WHERE name > ?1 ORDER BY name LIMIT ?2
