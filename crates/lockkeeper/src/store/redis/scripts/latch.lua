-- Reads or changes a count-down latch (dialect redisson).
--
-- KEYS  1 the name  2 holders  3 latch
-- ARGV  1 what: read set down open  2 claim  3 count to set  4 server time in us past which to do nothing
--       5 Redisson's channel of the latch
-- Result  {count, whether this changed it: 0 1, us}
-- Invariant: one claim counts down once. The count is at the name, where Redisson has it, unless a lock has
--            the name: then it is aside, in `latch`, which also has the claims that counted down.
local at = redis.call('HGET', KEYS[3], 'at')
local kind = redis.call('TYPE', KEYS[1]).ok
if at == 'name' and kind ~= 'string' then
  -- A Redisson client has deleted it. A lock may have the name since.
  redis.call('DEL', KEYS[3])
  at = nil
end
if not at then
  at = 'name'
  if kind == 'string' then
    -- The permits of ours are no latch.
    local record = redis.call('GET', KEYS[2])
    record = record and cmsgpack.unpack(record)
    if record and record[1] == 0 and record[3][1] and record[3][1][2] == 'p' then at = 'aside' end
  elseif kind ~= 'none' then
    at = 'aside'
  end
end
local count
if at == 'name' then
  count = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
else
  count = tonumber(redis.call('HGET', KEYS[3], 'count') or '0')
end
-- A Redisson client may have opened it, or set it anew.
if count <= 0 then
  count = 0
  redis.call('DEL', KEYS[3])
end

local what, changed = ARGV[1], 0
if ARGV[4] ~= '0' and us > tonumber(ARGV[4]) then what = 'read' end
if what == 'set' and count == 0 and tonumber(ARGV[3]) > 0 then
  -- Whether the name is free may have changed since the latch was last closed.
  at = redis.call('EXISTS', KEYS[1]) == 0 and 'name' or 'aside'
  count, changed = tonumber(ARGV[3]), 1
elseif what == 'down' and count > 0 and redis.call('HSETNX', KEYS[3], ARGV[2], 1) == 1 then
  count, changed = count - 1, 1
elseif what == 'open' and count > 0 then
  count, changed = 0, 1
end
if changed == 1 then
  if count > 0 then
    if at == 'name' then
      redis.call('SET', KEYS[1], ARGV[1] == 'set' and ARGV[3] or string.format('%.0f', count))
      redis.call('HSET', KEYS[3], 'at', at)
    else
      redis.call('HSET', KEYS[3], 'at', at, 'count', string.format('%.0f', count))
    end
  else
    redis.call('DEL', KEYS[3])
    if at == 'name' then redis.call('DEL', KEYS[1]) end
  end
  -- As Redisson: 0 opens, 1 is a new count. It says nothing in between; nor do we.
  if count == 0 then
    redis.call(PUBLISH, ARGV[5], 0)
  elseif what == 'set' then
    redis.call(PUBLISH, ARGV[5], 1)
  end
end
return { count, changed, us }
