-- Describes a name as one node knows it (dialect redisson).
--
-- KEYS  1 the name  2 fence  3 broken
-- Result  {holds of ours: {claim, mode, ms left, record, note or nothing}, fields of others, the mode of others or '', ms left for
--          others, fence or 0, why and when in us it was broken, or nothing}
-- Invariant: ends what time has ended, and nothing else.
local ours, others = {}, {}
for id, mode in pairs(modes) do ours[#ours + 1] = { id, mode, left(id), records[id], note(id) } end
if foreign then
  for field in pairs(fields) do
    if field ~= 'mode' and not modes[string.gsub(field, ':write$', '')] then others[#others + 1] = field end
  end
end
return { ours, others, foreign or '', foreign and redis.call('PTTL', MAIN) or 0,
  tonumber(redis.call('GET', KEYS[2]) or '0') or 0, redis.call('HMGET', KEYS[3], 'reason', 'at') }
