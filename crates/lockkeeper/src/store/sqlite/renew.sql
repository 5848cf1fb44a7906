-- Prolongs one live lease, and never shortens it.
-- ?1 name, ?2 claim, ?3 the new end, ?4 now, ?5 the new length.
-- Returns a row if the claim holds: whether anyone may wait for the name, who may then be due.

UPDATE lock SET lease=iif(?3>expires,?5,lease),expires=max(expires,?3) WHERE name=?1 AND claim=?2 AND expires>?4
RETURNING (SELECT waited FROM lock WHERE name=?1 AND claim=x'')
