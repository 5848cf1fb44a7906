-- An administrator's release (dialect redisson).
--
-- KEYS  as in acquire, 6 broken
-- ARGV  1 tag  2 reason  3 how long to remember it, in ms
-- Result  the holds of ours that ended, as in inspect
-- Invariant: ends every hold of the name, of whatever client, moves the fence past them, and tells the keepers
--            that held.
local ended, mode = {}, foreign
for number, hold in ipairs(holds) do
  ended[number] = { hold[ID], hold[MODE], hold[EXPIRES] - now, hold[TOKEN], hold[SINCE], hold[LIMIT], hold[COUNT],
    hold[WHO] }
  mode = hold[MODE]
  -- To the process, wherever in a cluster it is connected: always an ordinary channel.
  redis.call('PUBLISH', string.match(hold[WHO], '^[^\n]*'), '! ' .. hold[ID])
end
while #holds > 0 do finish(holds[1], 1) end
if kind == 'hash' then
  redis.call('DEL', home)
  fields, foreign = {}, nil
elseif pool and foreign_permits > 0 then
  redis.call('DEL', PERMITS)
  pool = redis.call('INCRBY', home, foreign_permits)
  foreign_permits = 0
end
reserve(FENCE, 1)
redis.call('HSET', KEYS[6], 'reason', ARGV[2], 'at', string.format('%.0f', us))
redis.call('PEXPIRE', KEYS[6], ARGV[3])
settle()
save()
if mode then announce(mode) end
return ended
