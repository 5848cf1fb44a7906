-- Agrees with a node on the longest lease.
--
-- KEYS  1 where it is recorded
-- ARGV  1 the longest lease that this client uses, in ms
-- Result  the longest lease that is recorded, in ms
-- Invariant: whoever comes first records it; nobody changes it. A restarted node votes when it is older than that.
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return tonumber(redis.call('GET', KEYS[1]))
