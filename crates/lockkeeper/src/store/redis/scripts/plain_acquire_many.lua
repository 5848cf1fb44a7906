-- Many tries at once (dialect plain), of which this does the commonest: those for which plain_proposed would answer 1. The
-- fences are read in one call, and moved in one if they are kept for ever.
local function acquire_many(k, a, many)
  local keep = ARGV[2] ~= '0' and ARGV[2]
  local fences, answers, moves, granted, seen = {}, {}, {}, {}, {}
  for number = 1, many do fences[number] = KEYS[k + 2 * number] end
  local last, who, now, moved = redis.call('MGET', unpack(fences)), 'ms ' .. ARGV[1], time[1], 0
  for number = 1, many do
    local before, fence, at = last[number], fences[number], a + 4 * number
    local key, proposed = KEYS[k + 2 * number - 1], ARGV[at + 1]
    -- Of two tries for one name the second sees what became of the first.
    if before and not seen[fence] and #proposed == 16 and now == string.sub(proposed, 1, 10)
      and (#before < 16 or #before == 16 and before < proposed) then
      local value = ARGV[at - 1] .. ' ' .. proposed .. ' 1 ' .. proposed .. ' ' .. ARGV[at] .. who
      -- pcall: those before it have no fence yet, or no answer.
      local set = redis.pcall('SET', key, value, 'NX', 'PX', ARGV[at])
      if set and set.ok and keep then
        if redis.pcall('SET', fence, proposed, 'PX', keep).ok then
          answers[number] = 1
        else
          -- No token without its fence. What is wrong it learns by itself.
          redis.call('DEL', key)
        end
      elseif set and set.ok then
        moves[2 * moved + 1], moves[2 * moved + 2] = fence, proposed
        moved = moved + 1
        granted[moved], answers[number] = key, 1
      end
    end
    seen[fence] = true
  end
  if moved == 0 then return answers end
  local done, why = pcall(redis.call, 'MSET', unpack(moves))
  if not done then
    -- No token without its fence.
    redis.call('DEL', unpack(granted))
    error(why, 0)
  end
  return answers
end
