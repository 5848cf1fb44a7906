-- Our line of waiters.

-- In ms: the contract's GRANT_LEASE and QUEUE_TTL.
local GRANT_LEASE, QUEUE_TTL = 1000, 5000

-- Puts a claim at the end of the line, or keeps its place, and says that it lives.
local function line_up(queue, waiters, id, waiter)
  redis.call('HSET', waiters, id, cmsgpack.pack(waiter))
  if not redis.call('ZSCORE', queue, id) then
    -- Behind everyone, also if the clock was set back.
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', queue, string.format('%.0f', math.max(us, (tonumber(last) or 0) + 1)), id)
  end
end

-- For how long the line is kept after its last sign of life.
local function keep_line(queue, waiters, stays)
  redis.call('PEXPIRE', queue, stays)
  redis.call('PEXPIRE', waiters, stays)
end
