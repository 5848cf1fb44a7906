-- Renews several holds (dialect plain): compare and expire.
--
-- KEYS  the names
-- ARGV  for each name: claim, lease in ms or 0 to ask only, server time in us past which to do nothing or 0 for never;
--       and as `stay` has it
-- Result  for each name: 1 renewed, 0 not held, 2 too late; then us
-- Invariant: never shortens a lease, and never brings back one that ended. A key that became something else ends its
--            own hold, and none of the others.
local answers = {}
for number, key in ipairs(KEYS) do
  local claim, lease, not_after = ARGV[3 * number - 2], ARGV[3 * number - 1], ARGV[3 * number]
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    held = not string.find(held.err, 'WRONGTYPE', 1, true) and redis.call('GET', key)
  end
  answers[number] = 0
  if not_after ~= '0' and us > not_after + 0 then
    answers[number] = 2
  elseif held and string.match(held, '^%S+') == claim then
    if lease ~= '0' then prolong(key, held, lease) end
    stay('lockkeeper_token:' .. (string.find(key, '{', 1, true) and ':' .. key or '{' .. key .. '}'))
    answers[number] = 1
  end
end
answers[#answers + 1] = us
return answers
