-- Several verbs in one script: what each costs on its own is shared. Follows a function for each verb, made of the
-- same source as its own script, and VERBS: for each letter its function, keys and arguments.
--
-- KEYS  the keys of all, one after the other
-- ARGV  1 who  2 how long the fence is kept; then for each: its letter and its arguments from the third on
-- Result  the answers, in the same order
-- Invariant: each is as if it came alone at this time. What goes wrong with one is the answer of that one.
local answers, key, arg = {}, 0, 2
while arg < #ARGV do
  local verb = VERBS[ARGV[arg + 1]]
  local run, keys, args = verb[1], verb[2], verb[3]
  local done, answer = pcall(run, { unpack(KEYS, key + 1, key + keys) },
    { ARGV[1], ARGV[2], unpack(ARGV, arg + 2, arg + 1 + args) })
  if not done then
    -- pcall answers a server's error as its text; a fault of the script has no code in front.
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    answer = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
  end
  answers[#answers + 1] = answer
  key, arg = key + keys, arg + 1 + args
end
return answers
