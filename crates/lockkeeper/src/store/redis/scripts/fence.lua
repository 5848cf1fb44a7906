-- The fence. Follows `time`.
-- Invariant: tokens of a name only grow, and are at least the server's time in microseconds.

-- The furthest that a reserved run may be ahead of the clock, in microseconds.
local MAX_LEAD = 1000000

-- Moves the fence, and answers where it was. `keep`: for how long it stays after its last use in ms, 0 for ever.
local function move(fence, text, keep)
  local last
  if keep == '0' then
    -- Half as long as SET with GET.
    last = redis.call('GETSET', fence, text)
  else
    last = redis.call('SET', fence, text, 'GET', 'PX', keep)
  end
  return last and tonumber(last) or 0
end

-- Takes a run of tokens. Answers its first, how many there are, and its last as text if the run starts now.
local function reserve(fence, wanted, keep)
  -- Nearly always one token is wanted and the clock is ahead of the last: one call does, and the clock's digits
  -- are the token. %.0f, or Lua would write 1.8e+15.
  local run, text = 1, digits
  if wanted > 1 then
    run = math.min(wanted, MAX_LEAD)
    text = string.format('%.0f', us + run - 1)
  end
  local last = move(fence, text, keep)
  if last < us then return us, run, text end
  local first = last + 1
  run = math.max(1, math.min(wanted, us + MAX_LEAD - first))
  move(fence, string.format('%.0f', first + run - 1), keep)
  return first, run
end
