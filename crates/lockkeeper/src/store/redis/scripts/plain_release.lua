-- Lets go of a hold (dialect plain): compare and delete.
--
-- KEYS  1 the name
-- ARGV  1 claim
-- Result  whether it was held: 0 1
-- Invariant: changes nothing unless exactly this claim holds.
local held = redis.call('GET', KEYS[1])
if held and string.match(held, '^%S+') == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
