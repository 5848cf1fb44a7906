-- An administrator's release on one node (dialect redisson).
--
-- KEYS  1 the name  2 fence  3 broken
-- ARGV  1 reason  2 how long to remember it, in ms  3 how long the fence is kept in ms, 0 for ever
--       4 node time in us past which to do nothing, 0 for never  5 claim whose hold is meant, or empty
--       6 token of the hold that is meant, or empty; without either all are
-- Result  {2, us} too late · {1, us, holds of ours that ended: {claim, mode, ms left, record, note or nothing}, fields of others
--         that ended, the mode of those others or '', ms they had left} · {0, us, the same of those that hold} the hold that is meant is
--         not there
-- Invariant: ends what is meant, of whatever client, moves the fence past it, and tells the keepers that held and those
--            who wait.
if ARGV[4] ~= '0' and us > tonumber(ARGV[4]) then return { 2, us } end
if alien then return { err = 'NOTALOCK ' .. MAIN .. ' is ' .. alien } end
local claim, token = ARGV[5], tonumber(ARGV[6])
local named = claim ~= '' or token ~= nil

local function is_meant(id)
  if token then
    local last, run = string.match(records[id], '^(%d+) (%d+) ')
    return last - run < token and token <= last + 0
  end
  return not named or id == claim
end

-- The claim that a field belongs to, unless it is a hold of ours.
local function other(field)
  local id = string.gsub(field, ':write$', '')
  return field ~= 'mode' and not modes[id] and id or nil
end

-- What is going to be deleted has to be certain to be a lock: a client of Redisson's is a UUID.
for field in pairs(fields) do
  local id = other(field)
  if id and string.sub(field, 1, #RECORD) ~= RECORD and not string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') then
    return { err = 'NOTALOCK ' .. MAIN .. ' is a hash with a field that no lock has' }
  end
end

-- Those that are meant, or all.
local function describe(all)
  local ours, others = {}, {}
  for id, mode in pairs(modes) do
    if all or is_meant(id) then ours[#ours + 1] = { id, mode, left(id), records[id], note(id) } end
  end
  for field in pairs(fields) do
    local id = other(field)
    if id and (all or not named or id == claim) then others[#others + 1] = field end
  end
  return ours, others, foreign or '', foreign and redis.call('PTTL', MAIN) or 0
end

local ours, others, theirs, theirs_left = describe(false)
if named and #ours == 0 and #others == 0 then return { 0, us, describe(true) } end

for _, hold in ipairs(ours) do
  local channel = string.match(hold[4], '^%d+ %d+ %d+ %d+ ([^\n]*)')
  if channel then redis.call('PUBLISH', channel, '! ' .. hold[1]) end
  if named then finish(hold[1]) else redis.call('DEL', timeout_key(hold[1], 1)) end
end
if not named then
  local mode = ours[1] and ours[1][2] or foreign
  if kind == 'hash' then
    redis.call('DEL', MAIN)
    modes, foreign = {}, nil
  end
  if mode then announce(mode) end
elseif #others > 0 then
  -- What another client has under this id. Those that are left may all be readers then.
  local mode = fields[claim .. ':write'] and 'w' or fields.mode and 'r' or 'x'
  if fields.mode then
    for number = 1, tonumber(fields[claim]) or 0 do redis.call('DEL', timeout_key(claim, number)) end
  end
  redis.call('HDEL', MAIN, claim, claim .. ':write')
  fields[claim], fields[claim .. ':write'], foreign = nil, nil, nil
  for field in pairs(fields) do
    if other(field) then foreign = not fields.mode and 'x' or string.find(field, ':write$') and 'w' or foreign or 'r' end
  end
  tidy()
  announce(mode)
end
local taken = math.max(last_token(KEYS[2], 0) + 1, us)
move_fence(KEYS[2], string.format('%.0f', taken), ARGV[3])
redis.call('HSET', KEYS[3], 'reason', ARGV[1], 'at', break_micros(taken))
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return { 1, us, ours, others, theirs, theirs_left }
