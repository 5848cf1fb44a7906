-- Several verbs in one script: what each costs on its own is shared. Follows VERBS: for each letter how many keys and
-- arguments it has, its function for the common case of many at once and of one, if there are such, and its function for
-- all cases. They are made of the same source as its own script.
--
-- KEYS  the keys of all, one after the other
-- ARGV  1 who  2 how long the fence is kept; then for each run of the same verb: its letter, how many there are, and
--       their arguments from the third on
-- Result  the answers, in the same order
-- Invariant: each is as if it came alone at this time. What goes wrong with one is the answer of that one.
local answers, key, arg, last = {}, 0, 2, #ARGV
while arg < last do
  local verb, many = VERBS[ARGV[arg + 1]], ARGV[arg + 2] + 0
  local keys, args, together, common, all = verb[1], verb[2], verb[3], verb[4], verb[5]
  local alike = false
  arg = arg + 2
  if together and many > 1 then
    -- Whatever goes wrong here goes wrong again with the one whose fault it is.
    local done, some = pcall(together, key, arg - 2, many)
    alike = done and some
  end
  for number = 1, many do
    local done, answer = true, alike and alike[number] or nil
    if common and answer == nil then
      done, answer = pcall(common, key, arg - 2, args == 1)
    end
    if done and answer == nil then
      done, answer = pcall(all, { unpack(KEYS, key + 1, key + keys) },
        { ARGV[1], ARGV[2], unpack(ARGV, arg + 1, arg + args) })
    end
    if not done then
      -- pcall answers a server's error as its text; a fault of the script has no code in front.
      local text = type(answer) == 'table' and answer.err or tostring(answer)
      answer = { err = string.find(text, '^%u+ ') and text or 'ERR ' .. text }
    end
    answers[#answers + 1] = answer
    key, arg = key + keys, arg + args
  end
end
return answers
