local hold, index = find(ARGV[3])
if not hold then
  save()
  return { 0, 0, 0, us }
end
finish(hold, index)
local next_id, regrant = ARGV[4], nil
if next_id and tonumber(ARGV[10]) <= tonumber(ARGV[9]) and (ARGV[8] == '0' or us <= tonumber(ARGV[8])) then
  enqueue(next_id, ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[9]), tonumber(ARGV[10]), who,
    ARGV[11], ARGV[12])
end
if not leave_to_others() then
  settle(next_id)
  regrant = next_id and find(next_id)
  if regrant then prolong(regrant, tonumber(ARGV[6])) end
end
save()
announce(hold[MODE])
return { 1, regrant and regrant[TOKEN] or 0, regrant and regrant[RUN] or 0, us }
