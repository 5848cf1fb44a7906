-- What the scripts of a node share: who holds a name, in Redisson's hash.
--
-- A hold of ours is what Redisson's clients write, and a field `lockkeeper:<claim>` beside it with its record: `<last
-- token> <tokens> <round> <since in us> <who>`. The lease of a reader is that of its own timeout key, as in Redisson; so
-- is that of a writer of ours, as a reader may stand beside it. An exclusive hold is alone: its lease is that of the
-- hash. A hold counts while both fields are there: what a Redisson client removes is gone.
--
-- `<lease in ms>`, and a space and the label of a hold that has one, are its note. It is the value of the timeout key, and of
-- an exclusive hold it follows the count in Redisson's field: Redisson's clients and older versions of ours read neither.
local MAIN = KEYS[1]
local tag = string.find(MAIN, '{', 1, true) and MAIN or '{' .. MAIN .. '}'
local RECORD = 'lockkeeper:'

local function timeout_key(id, number)
  return tag .. ':' .. id .. ':rwlock_timeout:' .. number
end

-- Our holds by claim: mode x r w, and their records. The strongest mode held by others: r w x.
local modes, records, foreign = {}, {}, nil
local fields = {}

local function forget(id)
  redis.call('HDEL', MAIN, id, id .. ':write', RECORD .. id)
  redis.call('DEL', timeout_key(id, 1))
  fields[id], fields[id .. ':write'], modes[id], records[id] = nil, nil, nil, nil
end

-- Its first token, and its round.
local function read(record)
  local last, run, round = string.match(record, '^(%d+) (%d+) (%d+) ')
  return last - run + 1, tonumber(round)
end

local function nobody()
  return next(modes) == nil and not foreign
end

local function writer_left()
  for _, mode in pairs(modes) do
    if mode ~= 'r' then return false end
  end
  return foreign ~= 'w' and foreign ~= 'x'
end

-- Nobody holds any longer, or only those who read.
local function tidy()
  if nobody() then
    redis.call('DEL', MAIN)
    fields = {}
  elseif fields.mode == 'write' and writer_left() then
    redis.call('HSET', MAIN, 'mode', 'read')
    fields.mode = 'read'
  end
end

-- Why the key is no lock at all, but data of an application most likely: then nothing of it is changed. It counts as held.
local alien

local function load()
  local flat = redis.call('HGETALL', MAIN)
  for i = 1, #flat, 2 do
    -- Holds have a client, a colon and a number, and how often they were entered.
    local field, value = flat[i], flat[i + 1]
    local is_hold = (string.find(field, ':%d+$') or string.find(field, ':%d+:write$')) and string.find(value, '^%d+')
    if not is_hold and not (field == 'mode' and (value == 'read' or value == 'write'))
      and string.sub(field, 1, #RECORD) ~= RECORD then
      alien = 'a hash with a field that no lock has'
      return
    end
  end
  for i = 1, #flat, 2 do
    -- A record of another kind is a hold of others.
    if string.sub(flat[i], 1, #RECORD) == RECORD and string.find(flat[i + 1], '^%d+ %d+ %d+ ') then
      records[string.sub(flat[i], #RECORD + 1)] = flat[i + 1]
    else
      fields[flat[i]] = flat[i + 1]
    end
  end
  local gone = {}
  for id in pairs(records) do
    if fields[id] and not fields.mode then
      modes[id] = 'x'
    elseif redis.call('EXISTS', timeout_key(id, 1)) == 1 then
      modes[id] = fields[id .. ':write'] and 'w' or fields[id] and 'r' or nil
    end
    if not modes[id] then
      gone[#gone + 1] = id
    end
  end
  for _, id in ipairs(gone) do forget(id) end
  for field, count in pairs(fields) do
    local id = string.gsub(field, ':write$', '')
    if field ~= 'mode' and not modes[id] then
      if fields.mode ~= 'read' then
        foreign = fields.mode == 'write' and 'w' or 'x'
      else
        -- A reader that died without a word: none of its timeouts is left.
        local keys = {}
        for number = 1, tonumber(count) or 1 do keys[number] = timeout_key(field, number) end
        if redis.call('EXISTS', unpack(keys)) > 0 then
          foreign = foreign or 'r'
        else
          redis.call('HDEL', MAIN, field)
          fields[field] = nil
        end
      end
    end
  end
  tidy()
end

local kind = redis.call('TYPE', MAIN).ok
if kind == 'hash' then
  load()
elseif kind ~= 'none' then
  alien = 'a ' .. kind
end
if alien then foreign = 'x' end

-- When a hold of ours ends, in ms from now.
local function left(id)
  return redis.call('PTTL', modes[id] == 'x' and MAIN or timeout_key(id, 1))
end

-- Whether a claim may hold beside all others but `excused`.
local function admits(mode, excused)
  if foreign and not (mode == 'r' and foreign == 'r') then return false end
  for id, held in pairs(modes) do
    if id ~= excused and not (mode == 'r' and held == 'r') then return false end
  end
  return true
end

-- The note of a hold of ours, or false.
local function note(id)
  if modes[id] == 'x' then return string.match(fields[id], '^1 (.+)$') or false end
  local noted = redis.call('GET', timeout_key(id, 1))
  return noted ~= '1' and noted
end

-- The lease runs for at least so long: never shorter than it did.
local function prolong(id, lease, label)
  local more = redis.call('PTTL', MAIN) < lease + 0
  if more then redis.call('PEXPIRE', MAIN, lease) end
  if modes[id] == 'x' then
    if more then redis.call('HSET', MAIN, id, '1 ' .. lease .. label) end
  elseif left(id) < lease + 0 then
    redis.call('SET', timeout_key(id, 1), lease .. label, 'PX', lease)
  end
end

local function hold(id, mode, lease, record, label)
  if mode == 'w' then
    redis.call('HSET', MAIN, 'mode', 'write', id .. ':write', 1, RECORD .. id, record)
  elseif mode == 'r' then
    if not fields.mode then redis.call('HSET', MAIN, 'mode', 'read') end
    redis.call('HSET', MAIN, id, 1, RECORD .. id, record)
  else
    redis.call('HSET', MAIN, id, 1, RECORD .. id, record)
  end
  modes[id], records[id] = mode, record
  prolong(id, lease, label)
end

-- An exclusive hold that a reader is to stand beside becomes a writer's, which has a lease apart from the hash's.
local function make_room(id)
  if modes[id] ~= 'x' then return end
  local noted = note(id) or 1
  redis.call('HDEL', MAIN, id)
  redis.call('HSET', MAIN, 'mode', 'write', id .. ':write', 1)
  redis.call('SET', timeout_key(id, 1), noted, 'PX', math.max(1, redis.call('PTTL', MAIN)))
  fields.mode, fields[id], fields[id .. ':write'], modes[id] = 'write', nil, 1, 'w'
end

-- Tells the waiters, in Redisson's words, that a hold of this mode ended.
local function announce(mode)
  if mode == 'x' then
    redis.call('PUBLISH', 'redisson_lock__channel:' .. tag, 0)
  elseif mode == 'w' then
    redis.call('PUBLISH', 'redisson_rwlock:' .. tag, 1)
  elseif nobody() then
    redis.call('PUBLISH', 'redisson_rwlock:' .. tag, 0)
  end
end

-- Ends a hold of ours. What is left of the hash ends with the last of those who are left.
local function finish(id)
  local mode = modes[id]
  forget(id)
  tidy()
  if next(modes) and not foreign then
    local longest = 1
    for other in pairs(modes) do longest = math.max(longest, left(other)) end
    redis.call('PEXPIRE', MAIN, longest)
  end
  announce(mode)
end

