-- Opens the scripts that need the time: it is one for the whole script. And the fence.
-- Invariant: tokens of a name only grow, and are at least the server's time in microseconds.
-- A double holds integers up to 2^53 exactly; microseconds since 1970 stay below that until the year 2255.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

-- The furthest that a reserved run may be ahead of the clock, in microseconds.
local MAX_LEAD = 1000000

-- Takes a run of tokens. Answers its first, how many there are, and its last as text if the run starts now.
local function reserve(fence, wanted)
  local run = math.min(wanted, MAX_LEAD)
  -- %.0f, or Lua would write 1.8e+15. Nearly always the clock is ahead of the last token: one call does.
  local text = string.format('%.0f', us + run - 1)
  local last = tonumber(redis.call('SET', fence, text, 'GET') or '0') or 0
  if last < us then return us, run, text end
  local first = last + 1
  run = math.max(1, math.min(wanted, us + MAX_LEAD - first))
  redis.call('SET', fence, string.format('%.0f', first + run - 1))
  return first, run
end
