-- Many tries at once (dialect plain), of which this does the commonest: those for which plain_proposed would answer 1. The
-- names and fences are read in one call, and the fences moved in one, first: whatever goes wrong after that, no token comes
-- twice. The fence of a name that is held stays.
local function acquire_many(k, a, many)
  if ARGV[2] ~= '0' then return end
  local fences, answers, moves, tries, seen = {}, {}, {}, {}, {}
  for number = 1, many do fences[number], fences[many + number] = KEYS[k + 2 * number], KEYS[k + 2 * number - 1] end
  local last, who, now, moved = redis.call('MGET', unpack(fences)), ' ' .. ARGV[1], time[1], 0
  for number = 1, many do
    local before, fence, proposed = last[number], fences[number], ARGV[a + 4 * number + 1]
    -- Of two tries for one name the second sees what became of the first.
    if before and not last[many + number] and not seen[fence] and #proposed == 16 and now <= proposed
      and (#before < 16 or #before == 16 and before < proposed) then
      moves[moved + 1], moves[moved + 2] = fence, proposed
      moved = moved + 2
      tries[number] = proposed
    end
    seen[fence] = true
  end
  if moved == 0 then return end
  redis.call('MSET', unpack(moves))
  for number = 1, many do
    local proposed, at = tries[number], a + 4 * number
    if proposed and redis.call('SET', KEYS[k + 2 * number - 1],
      ARGV[at - 1] .. ' ' .. proposed .. ' 1 ' .. proposed .. who, 'NX', 'PX', ARGV[at]) then
      answers[number] = 1
    end
  end
  return answers
end
