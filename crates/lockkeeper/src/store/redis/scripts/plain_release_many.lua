-- Lets go of many holds at once (dialect plain), of those that are held. MGET answers nothing for a key of another kind.
local function release_many(k, a, many)
  local held, answers, gone, found = redis.call('MGET', unpack(KEYS, k + 1, k + many)), {}, {}, 0
  for number = 1, many do
    local value = held[number]
    if value and not gone[KEYS[k + number]] and string.find(value, ARGV[a + 2 + number] .. ' ', 1, true) == 1 then
      found = found + 1
      gone[found], gone[KEYS[k + number]] = KEYS[k + number], true
      answers[number] = 1
    end
  end
  if found > 0 then redis.call('DEL', unpack(gone)) end
  return answers
end
