-- Takes a claim back (dialect plain).
--
-- KEYS  1 the name  2 fence
-- ARGV  1 claim  2 how long the fence is kept in ms, 0 for ever
-- Result  0
-- Invariant: nobody else's hold changes. A claim that does not hold may still be on its way: the fence goes above what
--            it proposed.
local held = redis.call('GET', KEYS[1])
if held and string.find(held, ARGV[1] .. ' ', 1, true) == 1 then
  redis.call('DEL', KEYS[1])
else
  reserve(KEYS[2], 1, ARGV[2])
end
return 0
