-- Renews several holds (dialect plain): compare and expire.
--
-- KEYS  the names
-- ARGV  for each name: claim, lease in ms, or 0 to ask only; and as `stay` has it
-- Result  for each name: 1 renewed, 0 not held
-- Invariant: never shortens a lease, and never brings back one that ended. A key that became something else ends its
--            own hold, and none of the others.
local answers = {}
for number, key in ipairs(KEYS) do
  local claim, lease = ARGV[2 * number - 1], tonumber(ARGV[2 * number])
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    held = not string.find(held.err, 'WRONGTYPE', 1, true) and redis.call('GET', key)
  end
  answers[number] = 0
  if held and string.match(held, '^%S+') == claim then
    if lease > 0 and redis.call('PTTL', key) < lease then redis.call('PEXPIRE', key, lease) end
    stay('lockkeeper_token:' .. (string.find(key, '{', 1, true) and ':' .. key or '{' .. key .. '}'))
    answers[number] = 1
  end
end
return answers
