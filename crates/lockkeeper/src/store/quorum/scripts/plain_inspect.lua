-- Describes a name as one node knows it (dialect plain).
--
-- KEYS  1 the name  2 fence  3 broken
-- Result  {value or nothing, ms left, fence or 0, why and when in us it was broken, or nothing}
-- Invariant: changes nothing.
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  held = '?'
end
return { held, redis.call('PTTL', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0') or 0,
  redis.call('HMGET', KEYS[3], 'reason', 'at') }
