local id, mode, lease, label = ARGV[3], string.lower(ARGV[4]), tonumber(ARGV[5]), ARGV[12]
local wanted = tonumber(ARGV[6])
local limit, count, beside = tonumber(ARGV[9] or '0'), tonumber(ARGV[10] or '0'), ARGV[11] or ''

if alien then return { err = alien } end

local function answer(hold)
  prolong(hold, lease)
  -- An older version may have made it the holder, and left its label behind.
  if label and not hold[LABEL] then
    hold[LEASE], hold[LABEL], changed = hold[LEASE] or lease, label, true
  end
  save()
  return { 1, hold[TOKEN], hold[RUN], us }
end

local hold = find(id)
if hold then return answer(hold) end
local wait = standing_back(id)
if wait == 0 then
  -- Of another verb in the same batch.
  spent = nil
  local first = settle(id)
  -- Only an exclusive hold of the same keeper excuses anything, and only a reader. It may have been granted just now.
  local stands = beside ~= '' and mode == 'r' and find(beside)
  if not stands or stands[MODE] == 'r' or stands[MODE] == 'p'
    or string.match(beside, '^[^:]*') ~= string.match(id, '^[^:]*') then
    stands = nil
  end
  local excused = stands and beside or nil
  first = first or stands
  hold = find(id)
  if hold then return answer(hold) end
  if first and not spent and admits(mode, limit, count, excused) and not (mode == 'f' and foreign_fair_head()) then
    hold = grant(id, mode, lease, wanted, limit, count, who, label)
    -- It may have waited before it had a hold to stand beside; any other is not in the line now.
    if hold and stands then drop_waiter(id, mode) end
  end
  if hold or spent then
    save()
    return hold and { 1, hold[TOKEN], hold[RUN], us } or { err = spent }
  end
end
-- A number of which nobody has a permit is no lock: data of an application, or a latch or permits of Redisson's clients. It
-- may stay for ever, and there is no holder to wait for.
if mode ~= 'p' and pool and made == 0 and aside == 0 and #holds == 0 and foreign_permits == 0 then
  save()
  return { err = 'NOTALOCK ' .. home .. ' is a number' }
end
-- What can never be granted must not keep others waiting.
if ARGV[8] and ARGV[8] ~= '0' and beside == '' and count <= limit then
  enqueue(id, mode, lease, wanted, limit, count, who, ARGV[8], label)
end
save()
local theirs = wait > 0 or foreign or foreign_permits > 0 or (pool and made == 0) or foreign_fair_head()
return { 0, wait > 0 and wait or free_in(), theirs and 1 or 0, us }
