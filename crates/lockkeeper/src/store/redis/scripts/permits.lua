-- Permits as people see them. Follows `record`.

-- How many ids are looked at: one claim of ours may have a thousand.
local PERMITS_LOOKED = 1000

-- In ms: until the last permit of others ends; -1 if it never does, or that is not known.
local function permits_end()
  local ours = {}
  for _, hold in ipairs(holds) do
    for _, id in ipairs(permit_ids(hold)) do ours[id] = true end
  end
  local ends = redis.call('ZRANGE', PERMITS, -PERMITS_LOOKED, -1, 'WITHSCORES')
  for at = #ends - 1, 1, -2 do
    -- Redisson gives a permit without a lease an end that never comes.
    local left = tonumber(ends[at + 1]) - now
    if not ours[ends[at]] then return left < LONGEST and left or -1 end
  end
  return -1
end

-- {how many others have, how many there are, how many are free or -1 where a claim of ours said how many there are, ms until the
-- last of the others' ends or -1}; false where there are no permits. A client may have permits that it wrote down nowhere.
local function permits_of_others()
  if not pool then return false end
  local taken = foreign_permits
  for _, hold in ipairs(holds) do taken = taken + hold[COUNT] end
  -- Redisson counts below nothing where permits are taken away.
  local free = made == 0 and math.max(pool, 0) or -1
  return { foreign_permits, pool + taken, free, foreign_permits > 0 and permits_end() or -1 }
end
