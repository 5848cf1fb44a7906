-- When a break counts as made. Follows `time`.

-- As far as a token may be ahead of a clock that was not set back, in microseconds.
local MAX_SKEW = 60000000

-- At the token that the break took, if it took one: no hold that it ends has a later one.
local function break_micros(token)
  return string.format('%.0f', token and token <= us + MAX_SKEW and token or us)
end
