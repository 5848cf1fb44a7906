-- The next common case: a hold with its record in the hash goes to the first waiter, or else to the claim to be
-- queued; all of them exclusive, and no client of Redisson's waits. Whatever is not so, the rest of the script sees to.
-- The next holder; of one that waited also where it listens, and when it asked.
local heir, lease, wanted, heir_who, label, channel, asked
local fence, waiters

-- Whether there is such an heir. Changes nothing.
local function find_heir()
  local main, next_id = KEYS[1], ARGV[4]
  if next_id and (ARGV[5] ~= 'x' or ARGV[8] ~= '0' and us > tonumber(ARGV[8])) then return end
  if redis.call('EXISTS', KEYS[2], KEYS[4]) > 0 then return end
  -- Any other field would be somebody else's.
  local fields, held = redis.call('HGETALL', main), ARGV[3]
  if #fields ~= 4 or fields[1] ~= held and fields[3] ~= held then return end
  if fields[1] ~= 'lockkeeper:' .. held and fields[3] ~= 'lockkeeper:' .. held then return end
  local tag = string.find(main, '{', 1, true) and main or '{' .. main .. '}'
  local own = string.sub(KEYS[2], #'lockkeeper_holders:' + 1)
  fence, waiters = 'redisson_lock_token:' .. tag, 'lockkeeper_waiters:' .. own
  heir = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  local listen, deaf = 'lockkeeper_listen:' .. own, true
  if heir then
    local packed = redis.call('HGET', waiters, heir)
    local waiter = packed and cmsgpack.unpack(packed)
    if not waiter or waiter[1] ~= 'x' or waiter[7] <= now then return end
    lease, wanted, heir_who, deaf, asked = math.min(waiter[2], GRANT_LEASE), waiter[3], waiter[6], waiter[8], waiter[9]
    label, channel = waiter[10], wake_channel(own, heir_who)
  else
    heir, lease, wanted, heir_who, label = next_id, ARGV[6], tonumber(ARGV[7]), ARGV[1], ARGV[12]
  end
  local heard = redis.call('PUBSUB', NUMSUB, 'redisson_lock__channel:' .. tag, 'redisson_rwlock:' .. tag,
    'redisson_sc:' .. tag, listen, channel or listen)
  if heard[2] + heard[4] + heard[6] > 3 * heard[8] or heard[10] == 0 and not deaf then return end
  return heir
end

local function pass()
  -- First what frees memory: what follows is done then, even if there is too little.
  redis.call('DEL', KEYS[1])
  if channel then
    if ARGV[4] then
      local waiter = waiter_of('x', tonumber(ARGV[6]), tonumber(ARGV[7]), 0, 0, ARGV[1], ARGV[11], ARGV[12])
      line_up(KEYS[3], waiters, ARGV[4], waiter, true)
      keep_line(KEYS[3], waiters, 2 * QUEUE_TTL)
    end
  end
  local token, run, text = reserve(fence, wanted, ARGV[2])
  -- The hold has ended all the same. The next that asks is told.
  if not token then return { 1, 0, 0, us } end
  if channel then
    redis.call('ZREM', KEYS[3], heir)
    redis.call('HDEL', waiters, heir)
  end
  if text then
    local count = '1 ' .. lease .. (label and ' ' .. label or '')
    redis.call('HSET', KEYS[1], heir, count, 'lockkeeper:' .. heir, text .. ' ' .. run .. ' ' .. heir_who)
  else
    local hold = { heir, 'x', now + lease, token, run, us, 0, 0, heir_who, lease + 0, label }
    redis.call('HSET', KEYS[1], heir, '1')
    redis.call('SET', KEYS[2], cmsgpack.pack({ 0, 0, { hold } }), 'PX', lease)
  end
  redis.call('PEXPIRE', KEYS[1], lease)
  if not channel then return { 1, token, run, us } end
  -- With its tokens, as in the record; or that it may ask for them.
  local news = text and asked and heir .. '/' .. text .. '/' .. run .. '/' .. asked or heir
  redis.call(PUBLISH, channel, news .. ' ' .. KEYS[1])
  return { 1, 0, 0, us }
end

-- pcall: the key may be of another kind, or something be forbidden, and nothing has been changed yet.
local found, is_there = pcall(find_heir)
if found and is_there then return pass() end
