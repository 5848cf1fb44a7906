-- Our line of waiters.

-- In ms: the contract's GRANT_LEASE and QUEUE_TTL.
local GRANT_LEASE, QUEUE_TTL = 1000, 5000

-- A waiter, as it is written down. `ears`: 1 it listens, 2 it listens to no channel; or it listens, and this is when it
-- asked, on its own clock, which a grant tells it again. Its label comes last, if it has one.
local function waiter_of(mode, lease, wanted, limit, count, who, ears, label)
  local asked = #ears > 1 and ears
  return { mode, lease, wanted, limit, count, who, now + QUEUE_TTL, ears == '2', asked, label }
end

-- Puts a claim at the end of the line, or keeps its place unless it is `new` there, and says that it lives. One that said
-- nothing for QUEUE_TTL has left the line. Returns whether it has a new place.
local function line_up(queue, waiters, id, waiter, new)
  local known = not new and redis.call('HGET', waiters, id)
  redis.call('HSET', waiters, id, cmsgpack.pack(waiter))
  if known and cmsgpack.unpack(known)[7] > now and redis.call('ZSCORE', queue, id) then return false end
  -- Behind everyone, also if the clock was set back.
  local last = tonumber(redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or '0')
  redis.call('ZADD', queue, last < us and digits or string.format('%.0f', last + 1), id)
  return true
end

-- The channel where a waiter hears of its turn: that of its process. In a cluster with sharded channels a process has
-- one for each name it waits for, in the name's slot.
local function wake_channel(own, who)
  local channel = string.match(who, '^[^\n]*')
  if SHARDED then channel = 'lockkeeper_wake:' .. own .. string.sub(channel, #'lockkeeper_wake' + 1) end
  return channel
end

-- For how long the line is kept after its last sign of life.
local function keep_line(queue, waiters, stays)
  redis.call('PEXPIRE', queue, stays)
  redis.call('PEXPIRE', waiters, stays)
end
