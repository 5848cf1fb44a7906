-- The next common case: one claim of ours holds, with its record in the hash. If it is the one that asks, it was made
-- the holder and confirms that; any other waits, if it wants to. Whatever is not so, the rest of the script sees to.
local function try_held()
  if ARGV[4] ~= 'x' or ARGV[11] and ARGV[11] ~= '' then return end
  -- pcall: the key may be of another kind. A third field would be somebody else's.
  local main, id, fields = KEYS[1], ARGV[3], redis.pcall('HGETALL', KEYS[1])
  if #fields ~= 4 then return end
  -- A record counts beside its hold only.
  local held, count, note, record = fields[1], fields[2], fields[3], fields[4]
  if note ~= 'lockkeeper:' .. held then held, count, note, record = fields[3], fields[4], fields[1], fields[2] end
  if note ~= 'lockkeeper:' .. held then return end
  local left = redis.call('PTTL', main)
  if note == 'lockkeeper:' .. id then
    if left < tonumber(ARGV[5]) then
      redis.call('HSET', main, id, '1 ' .. ARGV[5] .. (string.match(count, '^1 %d+(.*)$') or ''))
      redis.call('PEXPIRE', main, ARGV[5])
    end
    local last, run = string.match(record, '^(%d+) (%d+) ')
    return { 1, last - run + 1, tonumber(run), us }
  end
  local tag = string.find(main, '{', 1, true) and main or '{' .. main .. '}'
  local own = string.sub(KEYS[2], #'lockkeeper_holders:' + 1)
  -- With Redisson's clients there is more to think of.
  if left < 0 or redis.call('EXISTS', KEYS[2], 'redisson_lock_queue:' .. tag, 'lockkeeper_turn:' .. own) > 0 then
    return
  end
  if ARGV[8] and ARGV[8] ~= '0' then
    local waiters = 'lockkeeper_waiters:' .. own
    line_up(KEYS[3], waiters, id, waiter_of('x', tonumber(ARGV[5]), tonumber(ARGV[6]), 0, 0, ARGV[1], ARGV[8]))
    keep_line(KEYS[3], waiters, 2 * QUEUE_TTL)
  end
  return { 0, left, 0, us }
end

local tried = try_held()
if tried then return tried end
