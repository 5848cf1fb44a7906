if modes[claim] then
  local _, has = read(records[claim])
  local round = tonumber(ARGV[9])
  if has == round then
    if not votes then prolong(claim, lease, ARGV[13] or '') end
    return { 1, us }
  elseif has > round then
    return { 2, us }
  elseif votes then
    -- It was refused, or there would be no later one.
    forget(claim)
    tidy()
  end
end
-- Only an exclusive hold of the same keeper excuses anything, and only a reader.
local beside = ARGV[10]
local excused = mode == 'r' and modes[beside] and modes[beside] ~= 'r'
  and string.match(beside, '^[^:]*') == string.match(claim, '^[^:]*') and beside or nil
if not admits(mode, excused) then
  local free_in, holder = foreign and redis.call('PTTL', MAIN) or 0, 0
  for id in pairs(modes) do
    if id ~= excused then
      local ends = left(id)
      free_in = (free_in < 0 or ends < 0) and -1 or math.max(free_in, ends)
      holder = math.max(holder, (read(records[id])))
    end
  end
  return { 0, us, free_in, holder }
end
local refused = refusal()
if refused then return refused end
if excused then make_room(excused) end
hold(claim, mode, lease, ARGV[1], ARGV[13] or '')
return voted()
