-- Many tries at once (dialect plain), of which this does the commonest: nobody holds, one token is wanted, and the clock is
-- above the fence. Of the same length, texts compare as the numbers do. The fences are read in one call, and moved in one
-- if they are kept for ever.
local function acquire_many(k, a, many)
  local keep = ARGV[2] ~= '0' and ARGV[2]
  local fences, answers, moves, granted, seen = {}, {}, {}, {}, {}
  for number = 1, many do fences[number] = KEYS[k + 2 * number] end
  if #digits ~= 16 or us >= HIGHEST then return answers end
  local last, who, moved = redis.call('MGET', unpack(fences)), 'ms ' .. ARGV[1], 0
  for number = 1, many do
    local before, fence, at = last[number], fences[number], a + 4 * number
    local key, not_after = KEYS[k + 2 * number - 1], ARGV[at + 2]
    -- Of two tries for one name the second sees what became of the first.
    if before and not seen[fence] and ARGV[at + 1] == '1' and (not_after == '0' or us <= not_after + 0)
      and (#before < 16 or #before == 16 and before < digits) then
      local value = ARGV[at - 1] .. ' ' .. digits .. ' 1 ' .. digits .. ' ' .. ARGV[at] .. who
      -- pcall: those before it have no fence yet, or no answer.
      local set = redis.pcall('SET', key, value, 'NX', 'PX', ARGV[at])
      if set and set.ok and keep then
        if redis.pcall('SET', fence, digits, 'PX', keep).ok then
          answers[number] = us
        else
          -- No token without its fence. What is wrong it learns by itself.
          redis.call('DEL', key)
        end
      elseif set and set.ok then
        moves[2 * moved + 1], moves[2 * moved + 2] = fence, digits
        moved = moved + 1
        granted[moved], answers[number] = key, us
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
