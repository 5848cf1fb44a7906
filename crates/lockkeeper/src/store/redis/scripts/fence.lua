-- The fence. Follows `time`.
-- Invariant: tokens of a name only grow, and are at least the server's time in microseconds.

-- The furthest that a reserved run may be ahead of the clock, in microseconds.
local MAX_LEAD = 1000000
-- Lua counts exactly up to 2^53: beyond, one more is the same number. No token comes near it before the year 2255, unless
-- the clock is wrong or somebody else wrote to the fence.
local HIGHEST = 9007199254740992 - MAX_LEAD
-- Why no token can be given out, once that was found.
local spent

-- Moves the fence, and returns where it was. `keep`: for how long it stays after its last use in ms, 0 for ever. A fence
-- that is ahead of the clock stays longer by that `lead`, in us: once it has ended, the clock alone keeps tokens growing.
local function move(fence, text, keep, lead)
  local last
  if keep == '0' then
    -- Half as long as SET with GET.
    last = redis.call('GETSET', fence, text)
  else
    if lead > 0 then keep = keep + math.ceil(lead / 1000) end
    last = redis.call('SET', fence, text, 'GET', 'PX', keep)
  end
  return last and tonumber(last) or 0, last
end

local function refuse(fence, last)
  spent = 'FENCE ' .. fence .. ' has ' .. (last or 'nothing') .. ' and the clock shows ' .. digits .. ' us'
end

-- Takes a run of tokens. Returns its first, how many there are, and its last as text if the run starts now. Returns
-- nothing if tokens cannot grow any more, and `spent` says why. Then the fence keeps its value; one that is too high stays
-- until it is put right, as it may have had no end.
local function reserve(fence, wanted, keep)
  if us >= HIGHEST then return refuse(fence, redis.call('GET', fence)) end
  -- Nearly always one token is wanted and the clock is ahead of the last: one call does, and the clock's digits
  -- are the token. %.0f, or Lua would write 1.8e+15.
  local run, text = 1, digits
  if wanted > 1 then
    run = math.min(wanted, MAX_LEAD)
    text = string.format('%.0f', us + run - 1)
  end
  local last, was = move(fence, text, keep, run - 1)
  if last < us then return us, run, text end
  -- Not so, or not even a number.
  if not (last < HIGHEST) then
    redis.call('SET', fence, was)
    return refuse(fence, was)
  end
  local first = last + 1
  run = math.max(1, math.min(wanted, us + MAX_LEAD - first))
  move(fence, string.format('%.0f', first + run - 1), keep, first + run - 1 - us)
  return first, run
end
