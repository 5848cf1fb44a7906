-- Several verbs in one script: what each costs on its own is shared. Follows VERBS: for each letter how many keys and
-- arguments it has, its function for the common case if there is one, and its function for all cases. They are made
-- of the same source as its own script.
--
-- KEYS  the keys of all, one after the other
-- ARGV  1 who  2 how long the fence is kept; then for each: its letter and its arguments from the third on
-- Result  the answers, in the same order
-- Invariant: each is as if it came alone at this time. What goes wrong with one is the answer of that one.
local answers, key, arg, last = {}, 0, 2, #ARGV
while arg < last do
  local verb = VERBS[ARGV[arg + 1]]
  local keys, args, common, all = verb[1], verb[2], verb[3], verb[4]
  local done, answer = true, nil
  if common then
    done, answer = pcall(common, key, arg - 1, args == 1)
  end
  if done and answer == nil then
    done, answer = pcall(all, { unpack(KEYS, key + 1, key + keys) },
      { ARGV[1], ARGV[2], unpack(ARGV, arg + 2, arg + 1 + args) })
  end
  if not done then
    -- pcall answers a server's error as its text; a fault of the script has no code in front.
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    answer = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
  end
  answers[#answers + 1] = answer
  key, arg = key + keys, arg + 1 + args
end
return answers
