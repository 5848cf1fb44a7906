-- Renews several holds on one node (dialect redisson).
--
-- KEYS  the names
-- ARGV  for each name: claim, round or 0 for any, lease in ms or 0 to ask only, node time in us past which to do nothing or 0
--       for never; and as `stay` has it
-- Result  for each name: whether it was held until now: 0 1, or 2 too late; then us
-- Invariant: never shortens a lease, and never brings back one that ended. A key that became something else ends its
--            own hold, and none of the others.
local function renew(key, claim, round, lease, not_after)
  if not_after ~= '0' and us > not_after + 0 then return 2 end
  local held = redis.call('HMGET', key, 'lockkeeper:' .. claim, claim, claim .. ':write', 'mode')
  local has = held[1] and string.match(held[1], '^%d+ %d+ (%d+) ')
  if not has or not (held[2] or held[3]) or (round ~= '0' and round ~= has) then return 0 end
  local tag = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  if held[4] then
    -- A reader or a writer.
    local timeout = tag .. ':' .. claim .. ':rwlock_timeout:1'
    local left = redis.call('PTTL', timeout)
    if left == -2 then return 0 end
    if lease > 0 and left < lease then
      local label = string.match(redis.call('GET', timeout) or '', '^%d+( .+)$') or ''
      redis.call('SET', timeout, lease .. label, 'PX', lease)
    end
  end
  if lease > 0 and redis.call('PTTL', key) < lease then
    redis.call('PEXPIRE', key, lease)
    local count = not held[4] and '1 ' .. lease .. (string.match(held[2], '^1 %d+( .+)$') or '')
    if count and count ~= held[2] then redis.call('HSET', key, claim, count) end
  end
  stay('redisson_lock_token:' .. tag)
  return 1
end

local answers = {}
for number, key in ipairs(KEYS) do
  local at = 4 * number
  local done, answer = pcall(renew, key, ARGV[at - 3], ARGV[at - 2], tonumber(ARGV[at - 1]), ARGV[at])
  if not done then
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    if not string.find(text, 'WRONGTYPE', 1, true) then error(answer, 0) end
    answer = 0
  end
  answers[number] = answer
end
answers[#answers + 1] = us
return answers
