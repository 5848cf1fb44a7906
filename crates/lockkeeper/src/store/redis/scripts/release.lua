local hold, index = find(ARGV[2])
if not hold then
  save()
  return { 0, 0, 0, us }
end
finish(hold, index)
local next_id, regrant = ARGV[3], nil
if next_id ~= '' and tonumber(ARGV[9]) <= tonumber(ARGV[8]) and (ARGV[7] == '0' or us <= tonumber(ARGV[7])) then
  enqueue(next_id, ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[8]), tonumber(ARGV[9]),
    ARGV[10], ARGV[11] == '1')
end
if not leave_to_others() then
  settle()
  regrant = find(next_id)
  if regrant then prolong(regrant, tonumber(ARGV[5])) end
end
save()
announce(hold[MODE])
return { 1, regrant and regrant[TOKEN] or 0, regrant and regrant[RUN] or 0, us }
