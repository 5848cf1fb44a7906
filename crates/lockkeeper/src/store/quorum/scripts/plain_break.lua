-- An administrator's release on one node (dialect plain).
--
-- KEYS  1 the name  2 fence  3 broken
-- ARGV  as in break, 4 a channel of ours, where those who wait listen
-- Result  {value that ended or nothing, ms it had left}
-- Invariant: ends the hold, of whatever client, moves the fence past it, and tells the keeper that held and whoever waits.
local held, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
local claim, channel = string.match(held or '', '^(%S+) %d+ %d+ %d+ %d+ ([^\n]*)')
if claim then redis.call('PUBLISH', channel, '! ' .. claim) end
redis.call('PUBLISH', ARGV[4], '0')
move_fence(KEYS[2], string.format('%.0f', math.max(last_token(KEYS[2], 0) + 1, us)), ARGV[3])
redis.call('HSET', KEYS[3], 'reason', ARGV[1], 'at', string.format('%.0f', us))
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return { held, left }
