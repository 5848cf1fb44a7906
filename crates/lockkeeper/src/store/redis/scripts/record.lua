-- What the lock scripts share: who holds a name, who waits, and how both show in Redisson's keys.
--
-- `holders` has a record of every hold of ours; Redisson's keys have the same holds as its clients read them. An
-- exclusive hold that stands alone has its record in the field `lockkeeper:<claim>` of Redisson's hash instead, and its
-- lease and label behind Redisson's count, which nobody else reads: `1 <lease in ms> <label>`.
-- A hold counts while both say so: our record knows each lease, and whatever a Redisson client deletes
-- (forceUnlock, delete) is gone.
local MAIN, HOLDERS, QUEUE = KEYS[1], KEYS[2], KEYS[3]
local who, keep = ARGV[1], ARGV[2]
local tag = string.find(MAIN, '{', 1, true) and MAIN or '{' .. MAIN .. '}'
local FAIR, FENCE = 'redisson_lock_queue:' .. tag, 'redisson_lock_token:' .. tag
local own = string.sub(KEYS[2], #'lockkeeper_holders:' + 1)
local WAITERS, ASIDE = 'lockkeeper_waiters:' .. own, 'lockkeeper_aside:' .. own
local LATCH, TURN = 'lockkeeper_latch:' .. own, 'lockkeeper_turn:' .. own
local FAIR_TIMEOUTS, PERMITS = 'redisson_lock_timeout:' .. tag, tag .. ':timeout'

-- Parts of a hold. An older version knows the first nine, and keeps the others as they are.
local ID, MODE, EXPIRES, TOKEN, RUN, SINCE, LIMIT, COUNT, WHO, LEASE, LABEL = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
-- Parts of a waiter. An older version knows all but the last.
local W_MODE, W_LEASE, W_WANTED, W_LIMIT, W_COUNT, W_WHO, W_UNTIL, W_DEAF, W_ASKED, W_LABEL = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10

-- In ms: what is left of a hold whose key has no end, because somebody took that away. Longer than most holders take to
-- renew.
local ENDLESS = 60000
-- Redisson's default fairLockWaitTimeout: its clients subtract it from every waiter's score as they acquire.
local FAIR_WAIT = 300000
-- In ms: how much longer than its last waiter's time Redisson's line stays while ours are in it, and the longest that
-- any key is given.
local FAIR_SPARE, LONGEST = 3600000, 1e13
-- How many waiters whose process does not listen keep their places at once.
local PASSED_OVER = 64
-- While Redisson's clients wait as well, the sides take turns: after so many releases of ours one is a real one, and
-- ours stand back until those have had as many, but no longer than STAND_BACK. Clients that do not make use of it
-- get the next chance TURN_EVERY later.
local TURNS, TURN_EVERY, STAND_BACK = 4, 100, 10

local lock_channel = 'redisson_lock__channel:' .. tag
local rw_channel = 'redisson_rwlock:' .. tag
local permit_channel = 'redisson_sc:' .. tag

-- Where the lock is: at the name, or aside when a latch of ours has the name. Whether we set the number of
-- permits, and so remove it. The holds of ours.
local aside, made, holds = 0, 0, {}
local packed = redis.call('GET', HOLDERS)
if packed then
  local record = cmsgpack.unpack(packed)
  aside, made, holds = record[1], record[2], record[3]
end
-- A record without holds: it was let go of less than STAND_BACK ago, and somebody listened.
local offered = packed and #holds == 0
local changed = false
-- The field that has the record of a hold.
local noted

-- The strongest mode held by others than us: r w x.
local foreign
-- The free permits as Redisson keeps them, and how many are taken by others than us.
local pool
local foreign_permits = 0
local fields = {}

local function timeout_key(id, number)
  return tag .. ':' .. id .. ':rwlock_timeout:' .. number
end

local function field_of(hold)
  return hold[MODE] == 'w' and hold[ID] .. ':write' or hold[ID]
end

-- Redisson's permit ids are 16 bytes. Ours follow from the claim, so that they need not be stored. One claim may have
-- a thousand, and many claims share a script: few calls for all of them.
local function permit_ids(hold)
  local ids, hex = {}, string.sub(redis.sha1hex(hold[ID]), 1, 24)
  local claim = string.gsub(hex, '..', function(byte) return string.char(tonumber(byte, 16)) end)
  for number = 1, hold[COUNT] do ids[number] = claim .. struct.pack('>I4', number) end
  return ids
end

-- For ZADD: when each permit ends, and its id.
local function permit_ends(hold)
  local ends = {}
  for number, id in ipairs(permit_ids(hold)) do
    ends[2 * number - 1], ends[2 * number] = hold[EXPIRES], id
  end
  return unpack(ends)
end

local home = aside == 1 and ASIDE or MAIN
local kind = redis.call('TYPE', home).ok
if kind == 'string' and aside == 0 and redis.call('HGET', LATCH, 'at') == 'name' then
  home, aside = ASIDE, 1
  kind = redis.call('TYPE', home).ok
end

-- The free permits that a claim of ours set go with the last permit, at once: what is granted next in the same script
-- finds the name free, and not a key of another kind.
local function forget_permits()
  if made == 1 and #holds == 0 and foreign_permits == 0 then
    redis.call('DEL', home, PERMITS)
    made, pool = 0, nil
  end
end

-- Permits are free again. Those that a claim of ours set are counted by `write_down`.
local function free_permits(count)
  pool = made == 0 and redis.call('INCRBY', home, count) or pool + count
  changed = true
end

-- Why the key is no lock at all, but data of an application most likely: then nothing of it is changed. It counts as held,
-- and verbs that a user waits for are refused.
local alien

local function load_permits()
  pool = tonumber(redis.call('GET', home))
  if not pool then
    alien = 'a string that is no number'
    return
  end
  local over = redis.call('ZREMRANGEBYSCORE', PERMITS, '-inf', now)
  if over > 0 then free_permits(over) end
  local ours = 0
  local kept = {}
  for _, hold in ipairs(holds) do
    if hold[MODE] == 'p' and hold[EXPIRES] > now then
      kept[#kept + 1] = hold
      ours = ours + hold[COUNT]
    else
      changed = true
    end
  end
  local all = redis.call('ZCARD', PERMITS)
  if all < ours then
    -- Somebody removed permits of ours: find out whose.
    ours, holds = 0, kept
    kept = {}
    for _, hold in ipairs(holds) do
      local left = 0
      for _, id in ipairs(permit_ids(hold)) do
        left = left + (redis.call('ZSCORE', PERMITS, id) and 1 or 0)
      end
      if left == hold[COUNT] then
        kept[#kept + 1] = hold
        ours = ours + left
      elseif left > 0 then
        redis.call('ZREM', PERMITS, unpack(permit_ids(hold)))
        free_permits(left)
      end
    end
    changed = true
    all = redis.call('ZCARD', PERMITS)
  end
  holds = kept
  foreign_permits = all - ours
  forget_permits()
end

local function load_hash()
  local flat = redis.call('HGETALL', home)
  for i = 1, #flat, 2 do
    -- Holds have a client, a colon and a number, and how often they were entered.
    local field, value = flat[i], flat[i + 1]
    local is_hold = (string.find(field, ':%d+$') or string.find(field, ':%d+:write$')) and string.find(value, '^%d+')
    if not is_hold and not (field == 'mode' and (value == 'read' or value == 'write'))
      and string.sub(field, 1, #'lockkeeper:') ~= 'lockkeeper:' then
      alien = 'a hash with a field that no lock has'
      return
    end
  end
  for i = 1, #flat, 2 do
    local field, value = flat[i], flat[i + 1]
    if string.sub(field, 1, #'lockkeeper:') == 'lockkeeper:' then
      noted = field
      -- Its lease is that of the key, and its first token the time it was granted.
      local last, run, holder = string.match(value, '^(%d+) (%d+) (.*)$')
      local first, left = last - run + 1, redis.call('PTTL', home)
      if left < 0 then
        left = ENDLESS
        -- pcall: where that is forbidden it may be why there is no end.
        redis.pcall('PEXPIRE', home, left)
      end
      local id = string.sub(field, #'lockkeeper:' + 1)
      holds[#holds + 1] = { id, 'x', now + left, first, tonumber(run), first, 0, 0, holder }
    else
      fields[field] = value
    end
  end
  local kept, ours = {}, {}
  for _, hold in ipairs(holds) do
    local field = field_of(hold)
    if fields[field] and hold[EXPIRES] > now then
      if not hold[LEASE] then
        local lease, label = string.match(fields[field], '^1 (%d+) ?(.*)$')
        hold[LEASE], hold[LABEL] = tonumber(lease), label ~= '' and label or nil
      end
      kept[#kept + 1] = hold
      ours[field] = true
    else
      redis.call('HDEL', home, field)
      redis.call('DEL', timeout_key(hold[ID], 1))
      fields[field] = nil
      changed = true
    end
  end
  holds = kept
  for field, count in pairs(fields) do
    if field ~= 'mode' and not ours[field] then
      if fields.mode == 'read' then
        -- A reader that died without a word: none of its timeouts is left.
        local keys = {}
        for number = 1, tonumber(count) or 1 do keys[number] = timeout_key(field, number) end
        if redis.call('EXISTS', unpack(keys)) == 0 then
          redis.call('HDEL', home, field)
          fields[field] = nil
          changed = true
        else
          foreign = foreign or 'r'
        end
      else
        foreign = fields.mode == 'write' and 'w' or 'x'
      end
    end
  end
  if #holds == 0 and not foreign then
    redis.call('DEL', home)
    fields = {}
  elseif fields.mode == 'write' and not foreign then
    -- The writer's lease ended and a reader that stood beside it goes on.
    local writer = false
    for _, hold in ipairs(holds) do writer = writer or hold[MODE] == 'w' end
    if not writer then
      redis.call('HSET', home, 'mode', 'read')
      fields.mode = 'read'
    end
  end
end

-- Whatever is there instead of our permits is not ours to remove.
if kind ~= 'string' then made = 0 end
if kind == 'string' then
  load_permits()
elseif kind == 'hash' then
  load_hash()
elseif kind ~= 'none' then
  alien = 'a ' .. kind
end
if alien or kind == 'none' then
  for _, hold in ipairs(holds) do
    if hold[MODE] == 'r' then redis.call('DEL', timeout_key(hold[ID], 1)) end
    changed = true
  end
  holds = {}
  if alien then
    foreign, pool, made, fields = 'x', nil, 0, {}
    alien = 'NOTALOCK ' .. home .. ' is ' .. alien
  end
end

local function find(id)
  for index, hold in ipairs(holds) do
    if hold[ID] == id then return hold, index end
  end
end

local function admits(mode, limit, count, beside)
  if mode == 'p' then
    if foreign then return false end
    local taken, smallest = foreign_permits + count, limit
    for _, hold in ipairs(holds) do
      if hold[MODE] ~= 'p' then return false end
      taken = taken + hold[COUNT]
      smallest = math.min(smallest, hold[LIMIT])
    end
    return taken <= smallest and (pool == nil or made == 1 or pool >= count)
  end
  if pool and made == 0 then return false end
  if foreign and not (mode == 'r' and foreign == 'r') then return false end
  for _, hold in ipairs(holds) do
    if hold[ID] ~= beside and not (mode == 'r' and hold[MODE] == 'r') then return false end
  end
  return true
end

-- Nothing if there are no more tokens.
local function grant(id, mode, lease, wanted, limit, count, who, label)
  local first, run = reserve(FENCE, wanted, keep)
  if not first then return end
  local hold = { id, mode, now + lease, first, run, us, limit, count, who, lease, label }
  if mode == 'p' then
    -- Nobody has said how many permits there are: this claim does.
    if pool == nil then made, pool = 1, limit end
    redis.call('ZADD', PERMITS, permit_ends(hold))
    if made == 0 then pool = redis.call('DECRBY', home, count) end
  elseif mode == 'r' then
    if next(fields) == nil then
      redis.call('HSET', home, 'mode', 'read')
      fields.mode = 'read'
    end
    redis.call('HSET', home, id, 1)
    redis.call('SET', timeout_key(id, 1), 1, 'PX', lease)
  elseif mode == 'w' then
    redis.call('HSET', home, 'mode', 'write', id .. ':write', 1)
    fields.mode = 'write'
  else
    redis.call('HSET', home, id, 1)
  end
  if mode ~= 'p' then fields[field_of(hold)] = 1 end
  holds[#holds + 1] = hold
  changed = true
  return hold
end

local function prolong(hold, lease)
  if now + lease <= hold[EXPIRES] then return end
  hold[EXPIRES], hold[LEASE] = now + lease, lease
  changed = true
  if hold[MODE] == 'r' then
    redis.call('SET', timeout_key(hold[ID], 1), 1, 'PX', lease)
  elseif hold[MODE] == 'p' then
    redis.call('ZADD', PERMITS, 'XX', permit_ends(hold))
  end
end

-- Ends a hold of ours.
local function finish(hold, index)
  table.remove(holds, index)
  changed = true
  if hold[MODE] == 'p' then
    redis.call('ZREM', PERMITS, unpack(permit_ids(hold)))
    free_permits(hold[COUNT])
    forget_permits()
    return
  end
  local field = field_of(hold)
  redis.call('HDEL', home, field)
  fields[field] = nil
  if hold[MODE] == 'r' then
    redis.call('DEL', timeout_key(hold[ID], 1))
  elseif #holds > 0 then
    -- The reader that stood beside it goes on as an ordinary one.
    redis.call('HSET', home, 'mode', 'read')
    fields.mode = 'read'
  end
  if #holds == 0 and not foreign then
    redis.call('DEL', home)
    fields = {}
  end
end

-- The first in Redisson's fair line if it is not ours, after those whose time is over.
local function foreign_fair_head()
  while true do
    local head = redis.call('LINDEX', FAIR, 0)
    if not head then return nil end
    if redis.call('HEXISTS', WAITERS, head) == 1 then return nil end
    local score = tonumber(redis.call('ZSCORE', FAIR_TIMEOUTS, head) or '0')
    if score > now then return head end
    redis.call('LPOP', FAIR)
    redis.call('ZREM', FAIR_TIMEOUTS, head)
  end
end

local function leave_fair_line(id)
  redis.call('LREM', FAIR, 1, id)
  redis.call('ZREM', FAIR_TIMEOUTS, id)
end

local function drop_waiter(id, mode)
  redis.call('ZREM', QUEUE, id)
  redis.call('HDEL', WAITERS, id)
  if mode == 'f' then leave_fair_line(id) end
  -- Without us Redisson's line is its own again, which has no end.
  if redis.call('EXISTS', QUEUE) == 0 and foreign_fair_head() then
    redis.call('PERSIST', FAIR)
    redis.call('PERSIST', FAIR_TIMEOUTS)
  end
end

-- Redisson gives its line no end: if all in it die, it stays for ever. So a line that ours stand in has one, FAIR_SPARE
-- after the latest time of any waiter. Past its time a waiter counts as gone to Redisson's clients as well, so the end
-- drops nobody who stands in the line now. It is never brought forward. A client of theirs that comes later is safe too
-- while one of ours gives a sign of life, which moves the end, or leaves, which takes it away. If all of ours die
-- instead, FAIR_SPARE is how long theirs would have to fill the line without a gap before they lose their places, and
-- have to join it again.
local function keep_fair_line()
  local last = tonumber(redis.call('ZRANGE', FAIR_TIMEOUTS, -1, -1, 'WITHSCORES')[2] or '0')
  -- Their clients may wait for as long as they like.
  local stays = math.min(math.max(last - now, 0) + FAIR_SPARE, LONGEST)
  for _, key in ipairs({ FAIR, FAIR_TIMEOUTS }) do
    if redis.call('PTTL', key) < stays then redis.call('PEXPIRE', key, string.format('%.0f', stays)) end
  end
end

-- Puts a claim at the end of the queue, or keeps its place. A fair claim stands in Redisson's line as well,
-- with the score its clients would give it.
local function enqueue(id, mode, lease, wanted, limit, count, who, ears, label)
  local new = line_up(QUEUE, WAITERS, id, waiter_of(mode, lease, wanted, limit, count, who, ears, label))
  if mode == 'f' then
    local score = tonumber(redis.call('ZSCORE', FAIR_TIMEOUTS, id) or '0')
    if new and score ~= 0 then
      leave_fair_line(id)
      score = 0
    end
    if score == 0 then
      local last = redis.call('LINDEX', FAIR, -1)
      local before = last and tonumber(redis.call('ZSCORE', FAIR_TIMEOUTS, last) or '0') or 0
      redis.call('RPUSH', FAIR, id)
      redis.call('ZADD', FAIR_TIMEOUTS, string.format('%.0f', math.max(before, now) + FAIR_WAIT), id)
    else
      -- A claim that waits long must not be taken for gone by Redisson's clients.
      local enough = now + FAIR_WAIT * redis.call('LLEN', FAIR)
      if score < enough then
        redis.call('ZADD', FAIR_TIMEOUTS, string.format('%.0f', enough), id)
      end
    end
    keep_fair_line()
  end
  -- In Redisson's line a dead waiter of ours is known by our record of it: that has to last as long.
  local line = redis.call('LLEN', FAIR)
  local stays = line > 0 and FAIR_WAIT * (line + 1) or 2 * QUEUE_TTL
  keep_line(QUEUE, WAITERS, stays)
end

-- The waiter of ours at a place of the line, from 0 on, without those whose time is over.
local function waiter_at(place)
  while true do
    local id = redis.call('ZRANGE', QUEUE, place, place)[1]
    if not id then return nil end
    local waiter = redis.call('HGET', WAITERS, id)
    if waiter then
      waiter = cmsgpack.unpack(waiter)
      if waiter[W_UNTIL] > now then return id, waiter end
      drop_waiter(id, waiter[W_MODE])
    else
      drop_waiter(id, 'f')
    end
  end
end

-- Whether a waiter may live: somebody listens on its channel, or never did.
local function may_live(waiter)
  return waiter[W_DEAF] or redis.call('PUBSUB', NUMSUB, wake_channel(own, waiter[W_WHO]))[2] > 0
end

-- What is to be said once all is written down: channel and message.
local news = {}

-- Tells a waiter to try. One that was made the holder, alone, and knows when it asked, need not: its tokens come with it.
local function hint(id, waiter, hold)
  local what = id
  if hold and hold[MODE] == 'x' and waiter[W_ASKED] then
    local last = hold[TOKEN] + hold[RUN] - 1
    what = string.format('%s/%.0f/%.0f/%s', id, last, hold[RUN], waiter[W_ASKED])
  end
  news[#news + 1] = { wake_channel(own, waiter[W_WHO]), what .. ' ' .. MAIN }
end

-- When ours last stood back, how often the head of our queue has looked since, and how many grants ours had since.
local function last_turn()
  local began, looks, grants = string.match(redis.call('GET', TURN) or '', '^(%d+) (%d+) (%d+)$')
  return tonumber(began) or 0, tonumber(looks) or 0, tonumber(grants) or 0
end

local function note_turn(began, looks, grants)
  local text = string.format('%.0f %.0f %.0f', began, looks, grants)
  redis.call('SET', TURN, text, 'PX', 100 * TURN_EVERY)
end

-- The looks of a head that stands back for nobody: when it is told to, and when it begins to listen.
local IDLE_LOOKS = 2

-- Whether a lock that just became free goes to Redisson's clients: they wait as well, and have had no turn for a while.
-- Else it counts as a grant of ours. Our subscriptions to these channels are patterns, which NUMSUB leaves out. Sharded
-- channels have no patterns: there each process of ours that listens to the three also listens to a fourth.
local function give_turn()
  local subscribers = redis.call('PUBSUB', NUMSUB, lock_channel, rw_channel, permit_channel,
    'lockkeeper_listen:' .. own)
  if subscribers[2] + subscribers[4] + subscribers[6] <= 3 * subscribers[8] and not foreign_fair_head() then
    return false
  end
  local began, looks, grants = last_turn()
  local due = grants >= TURNS and looks > IDLE_LOOKS
  if began <= now and now - began < TURN_EVERY and not due then
    note_turn(began, looks, grants + 1)
    return false
  end
  -- Where there is no head to be told, it has just looked.
  note_turn(now, offered and 1 or 0, 0)
  return true
end

-- For how long ours leave a free lock to Redisson's clients, in ms; `id` is who asks.
local function standing_back(id)
  local free = #holds == 0 and not foreign
  local began, looks, grants = last_turn()
  local left = began + STAND_BACK - now
  local stands = left > 0 and left <= STAND_BACK
  if offered and free and not stands and give_turn() then
    -- For as long as that: others of ours may try.
    redis.call('PEXPIRE', HOLDERS, STAND_BACK)
    return STAND_BACK
  end
  if (stands or foreign) and began > 0 and redis.call('ZRANGE', QUEUE, 0, 0)[1] == id then
    -- One of theirs is there; or the head, which was told to wait, is back already, because one of them left.
    looks = math.max(looks, foreign and IDLE_LOOKS or 0) + 1
    note_turn(began, looks, grants)
  end
  if not stands or not free or looks > IDLE_LOOKS + TURNS then return 0 end
  return left
end

-- Makes the head of the queue the holder for as long as it fits, and tells it. A process that does not listen is passed
-- over at once, so that a dead one costs nobody any time. It keeps its place until its QUEUE_TTL is over: it may have lost
-- its connection for a moment only. It leaves Redisson's line, or Redisson's clients would wait for it. The claim that is
-- `asking` lives, whether anybody listens for it or not.
-- Returns whether nobody is left who would go before a claim that comes now.
local function settle(asking)
  local place = 0
  while true do
    local id, waiter = waiter_at(place)
    if not id then return true end
    local mode = waiter[W_MODE]
    if not admits(mode, waiter[W_LIMIT], waiter[W_COUNT]) then return false end
    if id ~= asking and not may_live(waiter) then
      if place < PASSED_OVER then
        if mode == 'f' then leave_fair_line(id) end
        -- Once Redisson's line is empty, nobody needs to know the dead in ours for as long as that.
        if mode == 'f' and redis.call('EXISTS', FAIR) == 0 then
          keep_line(QUEUE, WAITERS, 2 * QUEUE_TTL)
        end
        place = place + 1
      else
        drop_waiter(id, mode)
      end
    else
      local head = mode == 'f' and foreign_fair_head()
      if head then
        redis.call(PUBLISH, lock_channel .. ':' .. head, 0)
        return false
      end
      local hold = grant(id, mode, math.min(waiter[W_LEASE], GRANT_LEASE), waiter[W_WANTED], waiter[W_LIMIT],
        waiter[W_COUNT], waiter[W_WHO], waiter[W_LABEL])
      if not hold then return false end
      drop_waiter(id, mode)
      hint(id, waiter, hold)
    end
  end
end

-- Whether a lock that just became free while ours wait goes to Redisson's clients.
local function leave_to_others()
  if #holds > 0 or foreign or redis.call('EXISTS', QUEUE) == 0 or not give_turn() then return false end
  local place = 0
  local id, waiter = waiter_at(place)
  while id and place < PASSED_OVER and not may_live(waiter) do
    place = place + 1
    id, waiter = waiter_at(place)
  end
  if id then hint(id, waiter) end
  return true
end

-- Tells Redisson's clients, in their words, that a hold of this mode ended and nobody of ours took its place.
-- Follows `save`, which counts the free permits.
local function announce(mode)
  if mode == 'p' then
    if pool and pool > 0 and (made == 0 or #holds > 0) then
      redis.call(PUBLISH, permit_channel, string.format('%.0f', pool))
    end
  elseif #holds == 0 and not foreign then
    local channel = (mode == 'w' or mode == 'r') and rw_channel or lock_channel
    if redis.call(PUBLISH, channel, mode == 'w' and 1 or 0) > 0 and mode ~= 'f' then
      -- At the name, wherever it was: the latch may be gone by the next try.
      redis.call('SET', HOLDERS, cmsgpack.pack({ 0, 0, {} }), 'PX', STAND_BACK)
    end
    local head = foreign_fair_head()
    if head then redis.call(PUBLISH, lock_channel .. ':' .. head, 0) end
  elseif mode == 'w' and fields.mode == 'read' then
    -- Became a reader: readers that wait may join. Redisson itself stays silent here.
    redis.call(PUBLISH, rw_channel, 1)
  end
end

-- Our records, and until when they and Redisson's keys stay.
local function write_down()
  if not changed then return end
  -- Written anew below, here or there.
  if noted then redis.call('HDEL', home, noted) end
  if #holds == 0 then
    redis.call('DEL', HOLDERS)
    -- Others have permits of those that a claim of ours set: they go on with what is free.
    if made == 1 then redis.call('SET', home, string.format('%.0f', math.max(0, pool))) end
    return
  end
  local last, taken, smallest = 0, foreign_permits, math.huge
  for _, hold in ipairs(holds) do
    last = math.max(last, hold[EXPIRES])
    taken = taken + hold[COUNT]
    smallest = math.min(smallest, hold[LIMIT])
  end
  local left, only = last - now, #holds == 1 and holds[1]
  if only and only[MODE] == 'x' and only[TOKEN] == only[SINCE] and aside == 0 and not foreign then
    -- Exclusive again, and granted when its first token says: short ways know it by the hash.
    local record = string.format('%.0f %.0f ', only[TOKEN] + only[RUN] - 1, only[RUN]) .. only[WHO]
    local count = only[LEASE] and string.format('1 %.0f', only[LEASE]) or '1'
    if only[LABEL] then count = count .. ' ' .. only[LABEL] end
    redis.call('HSET', home, only[ID], count, 'lockkeeper:' .. only[ID], record)
    redis.call('DEL', HOLDERS)
    redis.call('PEXPIRE', home, left)
    return
  end
  redis.call('SET', HOLDERS, cmsgpack.pack({ aside, made, holds }), 'PX', left)
  if holds[1][MODE] == 'p' then
    if made == 1 then
      pool = math.max(0, smallest - taken)
      redis.call('SET', home, string.format('%.0f', pool))
      if foreign_permits == 0 then
        redis.call('PEXPIRE', home, left)
        redis.call('PEXPIRE', PERMITS, left)
      else
        redis.call('PERSIST', PERMITS)
      end
    end
    return
  end
  if foreign then
    local theirs = redis.call('PTTL', home)
    if theirs == -1 or theirs >= left then return end
  end
  redis.call('PEXPIRE', home, left)
end

-- Writes down what changed, and then tells those whom it concerns.
local function save()
  write_down()
  for _, one in ipairs(news) do redis.call(PUBLISH, one[1], one[2]) end
  news = {}
end

-- A hold of ours as people see it.
local function shown(hold)
  return { hold[ID], hold[MODE], hold[EXPIRES] - now, hold[TOKEN], hold[SINCE], hold[LIMIT], hold[COUNT], hold[WHO],
    hold[LEASE] or false, hold[LABEL] or false }
end

-- When the earliest lease in the way ends, in ms from now; -1 if it is not known.
local function free_in()
  local first = -1
  for _, hold in ipairs(holds) do
    local left = hold[EXPIRES] - now
    if first < 0 or left < first then first = left end
  end
  if first < 0 and foreign then first = redis.call('PTTL', home) end
  return math.max(first, -1)
end
