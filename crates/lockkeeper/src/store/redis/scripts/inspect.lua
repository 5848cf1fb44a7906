-- Describes a name (dialect redisson).
--
-- KEYS  as in acquire, 5 broken
-- ARGV  1 who  2 how long the fence is kept  3 how many waiters to list
-- Result  {holds of ours: {claim, mode, ms left, token, us since, limit, count, who, lease in ms or nothing, label or
--          nothing}, fields of others, the mode of others or '', ms left for others, how many wait, last token or 0,
--          why and when in us it was broken, or nothing, the first who wait: {claim, mode, us since, limit, count, who, label
--          or nothing}, or {claim} of a client of Redisson's, permits of others as in permits_of_others}
-- Invariant: ends what time has ended, and makes the next in line the holder; nothing else.
if alien then return { err = alien } end
settle()
save()
local ours = {}
for number, hold in ipairs(holds) do ours[number] = shown(hold) end
local others = {}
if kind == 'hash' then
  for field in pairs(fields) do
    if field ~= 'mode' and not find(string.gsub(field, ':write$', '')) then others[#others + 1] = field end
  end
end

-- How much of a line is looked at, however long it is. Beyond that a waiter that died counts until its turn comes.
local LOOKED = 1000

-- The values of these ids, or false.
local function records(ids)
  return #ids > 0 and redis.call('HMGET', WAITERS, unpack(ids)) or {}
end

-- How many wait, and the first of them. Redisson's own fair waiters stand in the same line: right before the first fair
-- waiter of ours that came later, or at the end.
local function line(most)
  local scored, ids = redis.call('ZRANGE', QUEUE, 0, LOOKED - 1, 'WITHSCORES'), {}
  for at = 1, #scored, 2 do ids[#ids + 1] = scored[at] end
  local all, fair = redis.call('ZCARD', QUEUE), redis.call('LRANGE', FAIR, 0, LOOKED - 1)
  local known, place, both = records(fair), {}, 0
  for number, id in ipairs(fair) do
    if known[number] then place[id], both = number, both + 1 end
  end
  local waiting, first, at = all, {}, 1
  local function add(waiter)
    if #first < most then first[#first + 1] = waiter end
  end
  local function add_theirs(before)
    while at < before do
      if not known[at] then
        waiting = waiting + 1
        add({ fair[at] })
      end
      at = at + 1
    end
  end
  for number, packed in ipairs(records(ids)) do
    local id, waiter = ids[number], packed and cmsgpack.unpack(packed)
    if waiter and waiter[W_UNTIL] > now then
      if waiter[W_MODE] == 'f' then add_theirs(place[id] or 0) end
      add({ id, waiter[W_MODE], tonumber(scored[2 * number]), waiter[W_LIMIT], waiter[W_COUNT], waiter[W_WHO],
        waiter[W_LABEL] or false })
    else
      waiting = waiting - 1
    end
  end
  add_theirs(#fair + 1)
  -- Of the rest of Redisson's line, at least those that are more than all of ours.
  local rest = #fair == LOOKED and redis.call('LLEN', FAIR) - LOOKED or 0
  return waiting + math.max(0, rest - (all - both)), first
end

local waiting, first = line(tonumber(ARGV[3]))
local last = tonumber(redis.call('GET', FENCE) or '0') or 0
return { ours, others, foreign or '', foreign and redis.call('PTTL', home) or 0, waiting, last,
  redis.call('HMGET', KEYS[5], 'reason', 'at'), first, permits_of_others() }
