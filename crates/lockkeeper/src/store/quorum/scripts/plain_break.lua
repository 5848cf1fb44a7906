-- An administrator's release on one node (dialect plain).
--
-- KEYS  1 the name  2 fence  3 broken
-- ARGV  as in break, 7 a channel of ours, where those who wait listen
-- Result  {2, us} too late · {1, us, value that ended or nothing, ms it had left} · {0, us, the same of the one that holds}
--         the hold that is meant is not there
-- Invariant: ends the hold that is meant, of whatever client, moves the fence past it, and tells the keeper that held and
--            those who wait.
if ARGV[4] ~= '0' and us > tonumber(ARGV[4]) then return { 2, us } end
local held, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
local claim, last, run, line = string.match(held or '', '^(%S+) (%d+) (%d+) %d+ %d+ ([^\n]*)')
local token = tonumber(ARGV[6])
if held and not is_lock(held, left) then
  return { err = 'NOTALOCK ' .. KEYS[1] .. ' is a string that no lock has as its value' }
end
if ARGV[5] ~= '' and claim ~= ARGV[5]
  or token and not (claim and last - run < token and token <= last + 0) then
  return { 0, us, held, left }
end
redis.call('DEL', KEYS[1])
local channel = string.match(line or '', 'lockkeeper_wake:%S+')
if channel then redis.call('PUBLISH', channel, '! ' .. claim) end
redis.call('PUBLISH', ARGV[7], '0')
local taken = math.max(last_token(KEYS[2], 0) + 1, us)
move_fence(KEYS[2], string.format('%.0f', taken), ARGV[3])
redis.call('HSET', KEYS[3], 'reason', ARGV[1], 'at', break_micros(taken))
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return { 1, us, held, left }
