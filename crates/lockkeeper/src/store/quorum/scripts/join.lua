-- Agrees with a node on the longest lease.
--
-- KEYS  1 where it is recorded
-- ARGV  1 the longest lease of this client in ms, or empty to look only
-- Result  what is recorded, or nothing
-- Invariant: a record is written where there is none, and never changed. To look needs no memory.
local recorded = redis.call('GET', KEYS[1])
if not recorded and ARGV[1] ~= '' then
  redis.call('SET', KEYS[1], ARGV[1])
  recorded = ARGV[1]
end
return recorded
