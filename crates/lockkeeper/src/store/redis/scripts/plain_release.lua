-- Lets go of a hold (dialect plain): compare and delete.
--
-- KEYS  1 the name
-- ARGV  1 who  2 how long a fence is kept, neither of which matters here  3 claim
-- Result  whether it was held: 0 1
-- Invariant: changes nothing unless exactly this claim holds.
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, #ARGV[3] + 1) == ARGV[3] .. ' ' then
  return redis.call('DEL', KEYS[1])
end
return 0
