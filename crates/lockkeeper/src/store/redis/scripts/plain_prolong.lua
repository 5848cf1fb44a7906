-- Has a hold go on for at least `lease` from now, in ms as text (dialect plain). Its value has the whole lease, `<ms>ms`
-- after the numbers, unless an older version wrote it.
local function prolong(key, held, lease)
  if redis.call('PTTL', key) >= lease + 0 then return end
  local head, noted, tail = string.match(held, '^(%S+ [%d ]+ )(%d+)(ms .*)$')
  if noted and noted ~= lease then
    redis.call('SET', key, head .. lease .. tail, 'PX', lease)
  else
    redis.call('PEXPIRE', key, lease)
  end
end

