-- What a token has to be above. Follows `lag` and `time`. One that is too far behind the clock is too old, whatever is known
-- of the name: a fence that ended was kept for twice as long at least. The next has to be above the clock, as what is too old
-- moves on.
local function least_token(last, first)
  return first < us - LAG and math.max(last, us) or last
end

