-- Describes a name (dialect plain).
--
-- KEYS  1 the name  2 fence  3 broken
-- Result  {value or nothing, ms left, last token or 0, why and when in us it was broken, or nothing}
-- Invariant: changes nothing.
local last = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), last,
  redis.call('HMGET', KEYS[3], 'reason', 'at') }
