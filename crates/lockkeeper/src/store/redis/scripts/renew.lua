-- Renews several holds (dialect redisson).
--
-- KEYS  for each hold: the name, holders, aside, permits
-- ARGV  for each hold: tag, claim, lease in ms or 0 to ask only, server time in us past which to do nothing or 0 for never;
--       and as `stay` has it
-- Result  for each hold: 1 renewed, 0 not held, 2 too late; then us
-- Invariant: never shortens a lease, and never brings back one that ended. A key that became something else ends its
--            own hold, and none of the others.
local function renew(number)
  local key, arg = 4 * (number - 1), 4 * (number - 1)
  if ARGV[arg + 4] ~= '0' and us > ARGV[arg + 4] + 0 then return 2 end
  local tag, id, lease = ARGV[arg + 1], ARGV[arg + 2], tonumber(ARGV[arg + 3])
  local packed = redis.call('GET', KEYS[key + 2])
  local record = packed and cmsgpack.unpack(packed)
  local last, found = 0, nil
  for _, hold in ipairs(record and record[3] or {}) do
    if hold[1] == id and hold[3] > now then
      found = hold
      if now + lease > hold[3] then hold[3], hold[10] = now + lease, lease end
    end
    last = math.max(last, hold[3])
  end
  local home = record and record[1] == 1 and KEYS[key + 3] or KEYS[key + 1]
  local mode, renewed = found and found[2], false
  if not record then
    -- An exclusive hold with its record in the hash, whose lease is that of the key.
    local both = redis.call('HMGET', home, id, 'lockkeeper:' .. id)
    renewed = both[1] and both[2]
    if renewed and lease > 0 and redis.call('PTTL', home) < lease then
      redis.call('PEXPIRE', home, lease)
      local count = '1 ' .. ARGV[arg + 3] .. (string.match(both[1], '^1 %d+(.*)$') or '')
      if count ~= both[1] then redis.call('HSET', home, id, count) end
    end
  elseif mode == 'p' then
    -- Ids as in the other scripts.
    local permits, count, hex = KEYS[key + 4], found[8], string.sub(redis.sha1hex(id), 1, 24)
    local claim = string.gsub(hex, '..', function(byte) return string.char(tonumber(byte, 16)) end)
    local ends = {}
    for permit = 1, count do
      ends[2 * permit - 1], ends[2 * permit] = found[3], claim .. struct.pack('>I4', permit)
    end
    renewed = redis.call('ZADD', permits, 'XX', 'CH', unpack(ends)) == count
    if not renewed then
      -- Some are gone, or all last as long already.
      renewed = true
      for permit = 1, count do
        renewed = renewed and redis.call('ZSCORE', permits, ends[2 * permit])
      end
    end
    -- Only where we said how many permits there are do the keys have an end.
    for _, expiring in ipairs({ home, KEYS[key + 4] }) do
      local left = redis.call('PTTL', expiring)
      if renewed and left >= 0 and left < last - now then redis.call('PEXPIRE', expiring, last - now) end
    end
  elseif mode and redis.call('HEXISTS', home, mode == 'w' and id .. ':write' or id) == 1 then
    renewed = true
    local left = redis.call('PTTL', home)
    if left >= 0 and left < last - now then redis.call('PEXPIRE', home, last - now) end
    if mode == 'r' then
      redis.call('SET', tag .. ':' .. id .. ':rwlock_timeout:1', 1, 'PX', found[3] - now)
    end
  end
  if renewed and record then
    redis.call('SET', KEYS[key + 2], cmsgpack.pack(record), 'PX', last - now)
  end
  if renewed then stay('redisson_lock_token:' .. tag) end
  return renewed and 1 or 0
end

local answers = {}
for number = 1, #ARGV / 4 do
  local done, answer = pcall(renew, number)
  if not done then
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    if not string.find(text, 'WRONGTYPE', 1, true) then error(answer, 0) end
    answer = 0
  end
  answers[number] = answer
end
answers[#answers + 1] = us
return answers
