-- An administrator's release (dialect redisson).
--
-- KEYS  as in acquire, 5 broken
-- ARGV  1 who  2 how long the fence is kept  3 reason  4 how long to remember it, in ms
--       5 server time in us past which to do nothing, 0 for never  6 claim whose hold is meant, or empty
--       7 token of the hold that is meant, or empty; without either all are
-- Result  {2, us} too late · {1, us, holds of ours that ended as in inspect, fields of others that ended, the mode of those
--         others or '', ms they had left, permits of others as in inspect} · {0, us, the same of those that hold} the hold that
--         is meant is not there
-- Invariant: ends what is meant, of whatever client, moves the fence past it, and tells the keepers that held. Where
--            nothing is meant that is there, only what time has ended ends, and no record of a break is left.
if ARGV[5] ~= '0' and us > tonumber(ARGV[5]) then
  save()
  return { 2, us }
end
if alien then return { err = alien } end
local claim, token = ARGV[6], tonumber(ARGV[7])
local named = claim ~= '' or token ~= nil

local function is_meant(hold)
  if token then return hold[TOKEN] <= token and token < hold[TOKEN] + hold[RUN] end
  return not named or hold[ID] == claim
end

-- The claim that a field belongs to, unless it is a hold of ours.
local function other(field)
  local id = string.gsub(field, ':write$', '')
  return field ~= 'mode' and not find(id) and id or nil
end

-- What is going to be deleted has to be certain to be a lock: a client of Redisson's is a UUID.
for field in pairs(fields) do
  local id = other(field)
  if id and not string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') then
    return { err = 'NOTALOCK ' .. home .. ' is a hash with a field that no lock has' }
  end
end

-- Those that are meant, or all.
local function describe(all)
  local ours, others = {}, {}
  for _, hold in ipairs(holds) do
    if all or is_meant(hold) then
      ours[#ours + 1] = shown(hold)
    end
  end
  for field in pairs(kind == 'hash' and fields or {}) do
    local id = other(field)
    if id and (all or not named or id == claim) then others[#others + 1] = field end
  end
  return ours, others, foreign or '', foreign and redis.call('PTTL', home) or 0, (all or not named) and permits_of_others()
end

local ours, others, theirs, left, permits = describe(false)
if #ours == 0 and #others == 0 and (named or foreign_permits == 0) then
  settle()
  save()
  return { named and 0 or 1, us, describe(true) }
end

-- Ends what another client has under an id. Those that are left may all be readers then.
local function finish_other(id)
  if fields.mode then
    for number = 1, tonumber(fields[id]) or 0 do redis.call('DEL', timeout_key(id, number)) end
  end
  redis.call('HDEL', home, id, id .. ':write')
  fields[id], fields[id .. ':write'], foreign, changed = nil, nil, nil, true
  local writes = false
  for field in pairs(fields) do
    writes = writes or string.find(field, ':write$')
    if other(field) then foreign = not fields.mode and 'x' or string.find(field, ':write$') and 'w' or foreign or 'r' end
  end
  if #holds == 0 and not foreign then
    redis.call('DEL', home)
    fields = {}
  elseif fields.mode == 'write' and not writes then
    redis.call('HSET', home, 'mode', 'read')
    fields.mode = 'read'
  end
end

local mode = foreign
for index = #holds, 1, -1 do
  local hold = holds[index]
  if is_meant(hold) then
    mode = hold[MODE]
    -- To the process, wherever in a cluster it is connected: always an ordinary channel.
    redis.call('PUBLISH', string.match(hold[WHO], '^[^\n]*'), '! ' .. hold[ID])
    finish(hold, index)
  end
end
if named then
  if #others > 0 then
    mode = fields[claim .. ':write'] and 'w' or fields.mode and 'r' or 'x'
    finish_other(claim)
  end
elseif kind == 'hash' then
  redis.call('DEL', home)
  fields, foreign = {}, nil
elseif pool and foreign_permits > 0 then
  redis.call('DEL', PERMITS)
  pool = redis.call('INCRBY', home, foreign_permits)
  foreign_permits = 0
end
redis.call('HSET', KEYS[5], 'reason', ARGV[3], 'at', break_micros(reserve(FENCE, 1, keep)))
redis.call('PEXPIRE', KEYS[5], ARGV[4])
settle()
save()
if mode then announce(mode) end
return { 1, us, ours, others, theirs, left, permits }
