-- The next common case: a hold with its record in the hash goes to whoever waits first, or else to the claim to be
-- queued; all of them exclusive, and no client of Redisson's waits. Whatever is not so, the rest of the script sees to.
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
  local heir = {
    id = next_id, lease = ARGV[6], wanted = ARGV[7], who = ARGV[1],
    fence = 'redisson_lock_token:' .. tag, waiters = 'lockkeeper_waiters:' .. own,
  }
  local first, listen = redis.call('ZRANGE', KEYS[3], 0, 0)[1], 'lockkeeper_listen:' .. own
  local deaf = true
  if first then
    local packed = redis.call('HGET', heir.waiters, first)
    local waiter = packed and cmsgpack.unpack(packed)
    if not waiter or waiter[1] ~= 'x' or waiter[7] <= now then return end
    heir.id, heir.lease, heir.wanted, heir.who = first, math.min(waiter[2], GRANT_LEASE), waiter[3], waiter[6]
    heir.channel, heir.asked, deaf = wake_channel(own, waiter[6]), waiter[9], waiter[8]
  elseif not next_id then
    return
  end
  local heard = redis.call('PUBSUB', NUMSUB, 'redisson_lock__channel:' .. tag, 'redisson_rwlock:' .. tag,
    'redisson_sc:' .. tag, listen, heir.channel or listen)
  if heard[2] + heard[4] + heard[6] > 3 * heard[8] or heard[10] == 0 and not deaf then return end
  return heir
end

local function pass(heir)
  -- First what frees memory: what follows is done then, even if there is too little.
  redis.call('DEL', KEYS[1])
  if heir.channel then
    redis.call('ZREM', KEYS[3], heir.id)
    redis.call('HDEL', heir.waiters, heir.id)
  end
  local token, run, text = reserve(heir.fence, tonumber(heir.wanted), ARGV[2])
  if text then
    local record = text .. ' ' .. run .. ' ' .. heir.who
    redis.call('HSET', KEYS[1], heir.id, '1', 'lockkeeper:' .. heir.id, record)
  else
    local hold = { heir.id, 'x', now + heir.lease, token, run, us, 0, 0, heir.who }
    redis.call('HSET', KEYS[1], heir.id, '1')
    redis.call('SET', KEYS[2], cmsgpack.pack({ 0, 0, { hold } }), 'PX', heir.lease)
  end
  redis.call('PEXPIRE', KEYS[1], heir.lease)
  if not heir.channel then return { 1, token, run, us } end
  -- With its tokens, as in the record; or that it may ask for them.
  local news = text and heir.asked and heir.id .. '/' .. text .. '/' .. run .. '/' .. heir.asked or heir.id
  redis.call(PUBLISH, heir.channel, news .. ' ' .. KEYS[1])
  if ARGV[4] then
    local waiter = waiter_of('x', tonumber(ARGV[6]), tonumber(ARGV[7]), 0, 0, ARGV[1], ARGV[11])
    line_up(KEYS[3], heir.waiters, ARGV[4], waiter, true)
    keep_line(KEYS[3], heir.waiters, 2 * QUEUE_TTL)
  end
  return { 1, 0, 0, us }
end

-- pcall: the key may be of another kind, or something be forbidden, and nothing has been changed yet.
local found, heir = pcall(find_heir)
if found and heir then return pass(heir) end
