-- Opens every lock script: the time of the whole script, and the fence.
-- Invariant: tokens of a name only grow, and are at least the server's time in microseconds.
-- A double holds integers up to 2^53 exactly; microseconds since 1970 stay below that until the year 2255.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

-- The furthest that a reserved run may be ahead of the clock, in microseconds.
local MAX_LEAD = 1000000

local function reserve(fence, wanted)
  local last = tonumber(redis.call('GET', fence) or '0') or 0
  local first = math.max(last + 1, us)
  local run = math.max(1, math.min(wanted, us + MAX_LEAD - first))
  -- %.0f, or Lua would write 1.8e+15.
  redis.call('SET', fence, string.format('%.0f', first + run - 1))
  return first, run
end
