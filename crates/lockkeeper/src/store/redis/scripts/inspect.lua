-- Describes a name (dialect redisson).
--
-- KEYS  as in acquire, 5 broken
-- ARGV  1 who  2 how long the fence is kept
-- Result  {holds of ours: {claim, mode, ms left, token, us since, limit, count, who},
--          fields of others, the mode of others or '', ms left for others, how many wait, last token or 0,
--          why and when in us it was broken, or nothing}
-- Invariant: ends what time has ended, and makes whoever is next the holder; nothing else.
settle()
save()
local ours = {}
for number, hold in ipairs(holds) do
  ours[number] = { hold[ID], hold[MODE], hold[EXPIRES] - now, hold[TOKEN], hold[SINCE], hold[LIMIT], hold[COUNT],
    hold[WHO] }
end
local others = {}
if kind == 'hash' then
  for field in pairs(fields) do
    if field ~= 'mode' and not find(string.gsub(field, ':write$', '')) then others[#others + 1] = field end
  end
end
local waiting = 0
for _, waiter in ipairs(redis.call('HVALS', WAITERS)) do
  if cmsgpack.unpack(waiter)[W_UNTIL] > now then waiting = waiting + 1 end
end
-- Redisson's own fair waiters stand in the same line.
for _, id in ipairs(redis.call('LRANGE', FAIR, 0, -1)) do
  if redis.call('HEXISTS', WAITERS, id) == 0 then waiting = waiting + 1 end
end
local last = tonumber(redis.call('GET', FENCE) or '0') or 0
return { ours, others, foreign or '', foreign and redis.call('PTTL', home) or 0, waiting, last,
  redis.call('HMGET', KEYS[5], 'reason', 'at') }
