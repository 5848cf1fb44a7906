-- Lets go of a hold (dialect plain): compare and delete.
--
-- KEYS  1 the name
-- ARGV  1 who  2 how long a fence is kept, neither of which matters here  3 claim
-- Result  whether it was held: 0 1
-- Invariant: changes nothing unless exactly this claim holds.
local held = redis.call('GET', KEYS[k + 1])
if held and string.find(held, ARGV[a + 3] .. ' ', 1, true) == 1 then
  return redis.call('DEL', KEYS[k + 1])
end
return 0
