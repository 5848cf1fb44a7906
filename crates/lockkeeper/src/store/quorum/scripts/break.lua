-- An administrator's release on one node (dialect redisson).
--
-- KEYS  1 the name  2 fence  3 broken
-- ARGV  1 reason  2 how long to remember it, in ms
--       3 how long the fence is kept in ms, 0 for ever
-- Result  the holds of ours that ended: {claim, mode, ms left, record}
-- Invariant: ends every hold of the name, of whatever client, moves the fence past them, and tells the keepers that
--            held and whoever waits.
local ended, mode = {}, foreign
for id, held in pairs(modes) do
  ended[#ended + 1] = { id, held, left(id), records[id] }
  mode = held
  local channel = string.match(records[id], '^%d+ %d+ %d+ %d+ ([^\n]*)')
  if channel then redis.call('PUBLISH', channel, '! ' .. id) end
  redis.call('DEL', timeout_key(id, 1))
end
if kind == 'hash' then
  redis.call('DEL', MAIN)
  modes, foreign = {}, nil
end
move_fence(KEYS[2], string.format('%.0f', math.max(last_token(KEYS[2], 0) + 1, us)), ARGV[3])
redis.call('HSET', KEYS[3], 'reason', ARGV[1], 'at', string.format('%.0f', us))
redis.call('PEXPIRE', KEYS[3], ARGV[2])
if mode then announce(mode) end
return ended
