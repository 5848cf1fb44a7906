-- An administrator's release (dialect plain).
--
-- KEYS  1 the name  2 fence  3 broken
-- ARGV  1 reason  2 how long to remember it, in ms  3 how long the fence is kept in ms, 0 for ever
-- Result  {value that ended or nothing, ms it had left}
-- Invariant: ends the hold, of whatever client, moves the fence past it, and tells the keeper that held.
local held, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
local claim, channel = string.match(held or '', '^(%S+) %d+ %d+ %d+ ([^\n]*)')
if claim then redis.call('PUBLISH', channel, '! ' .. claim) end
reserve(KEYS[2], 1, ARGV[3])
redis.call('HSET', KEYS[3], 'reason', ARGV[1], 'at', string.format('%.0f', us))
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return { held, left }
