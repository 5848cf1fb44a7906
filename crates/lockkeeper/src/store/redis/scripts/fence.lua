-- The fence. Follows `time`.
-- Invariant: tokens of a name only grow, and are at least the server's time in microseconds.

-- The furthest that a reserved run may be ahead of the clock, in microseconds.
local MAX_LEAD = 1000000

-- Moves the fence, and answers where it was. `keep`: for how long it stays after its last use in ms, 0 for ever.
local function move(fence, text, keep)
  if keep == '0' then return redis.call('SET', fence, text, 'GET') end
  return redis.call('SET', fence, text, 'GET', 'PX', keep)
end

-- Takes a run of tokens. Answers its first, how many there are, and its last as text if the run starts now.
local function reserve(fence, wanted, keep)
  local run = math.min(wanted, MAX_LEAD)
  -- Nearly always one token is wanted and the clock is ahead of the last: one call does, and the clock's digits
  -- are the token. %.0f, or Lua would write 1.8e+15; it takes longer than the call.
  local text = run == 1 and time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
    or string.format('%.0f', us + run - 1)
  local last = tonumber(move(fence, text, keep) or '0') or 0
  if last < us then return us, run, text end
  local first = last + 1
  run = math.max(1, math.min(wanted, us + MAX_LEAD - first))
  move(fence, string.format('%.0f', first + run - 1), keep)
  return first, run
end
