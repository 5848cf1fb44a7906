-- An administrator's release (dialect plain).
--
-- KEYS  1 the name  2 fence  3 broken
-- ARGV  1 reason  2 how long to remember it, in ms  3 how long the fence is kept in ms, 0 for ever
--       4 server time in us past which to do nothing, 0 for never  5 claim whose hold is meant, or empty
--       6 token of the hold that is meant, or empty; without either whichever there is
-- Result  {2, us} too late · {1, us, value that ended or nothing, ms it had left} · {0, us, the same of the one that holds}
--         the hold that is meant is not there
-- Invariant: ends the hold that is meant, of whatever client, moves the fence past it, and tells the keeper that held. Where
--            nobody holds nothing is changed.
if ARGV[4] ~= '0' and us > tonumber(ARGV[4]) then return { 2, us } end
local held, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local claim, first, run, line = string.match(held or '', '^(%S+) (%d+) (%d+) %d+ ([^\n]*)')
local token = tonumber(ARGV[6])
if held and not is_lock(held, left) then
  return { err = 'NOTALOCK ' .. KEYS[1] .. ' is a string that no lock has as its value' }
end
if ARGV[5] ~= '' and claim ~= ARGV[5]
  or token and not (claim and first + 0 <= token and token < first + run) then
  return { 0, us, held, left }
end
if not held then return { 1, us, held, left } end
redis.call('DEL', KEYS[1])
local channel = string.match(line or '', 'lockkeeper_wake:%S+')
if channel then redis.call('PUBLISH', channel, '! ' .. claim) end
redis.call('HSET', KEYS[3], 'reason', ARGV[1], 'at', break_micros(reserve(KEYS[2], 1, ARGV[3])))
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return { 1, us, held, left }
