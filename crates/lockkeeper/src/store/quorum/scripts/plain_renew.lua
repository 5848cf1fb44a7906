-- Renews several holds on one node (dialect plain): compare and expire.
--
-- KEYS  the names
-- ARGV  for each name: claim, round or 0 for any, lease in ms or 0 to ask only, node time in us past which to do nothing or 0
--       for never; and as `stay` has it
-- Result  for each name: whether it was held until now: 0 1, or 2 too late; then us
-- Invariant: as in renew.
local answers = {}
for number, key in ipairs(KEYS) do
  local at = 4 * number
  local claim, round, lease, not_after = ARGV[at - 3], ARGV[at - 2], ARGV[at - 1], ARGV[at]
  local held = redis.pcall('GET', key)
  if type(held) == 'table' then
    held = not string.find(held.err, 'WRONGTYPE', 1, true) and redis.call('GET', key)
  end
  local holder, has = string.match(held or '', '^(%S+) %d+ %d+ (%d+) ')
  answers[number] = 0
  if not_after ~= '0' and us > not_after + 0 then
    answers[number] = 2
  elseif holder == claim and (round == '0' or round == has) then
    if lease ~= '0' then prolong(key, held, lease) end
    stay('lockkeeper_token:' .. (string.find(key, '{', 1, true) and ':' .. key or '{' .. key .. '}'))
    answers[number] = 1
  end
end
answers[#answers + 1] = us
return answers
