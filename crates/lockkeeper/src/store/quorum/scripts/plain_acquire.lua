-- One node's vote for a round of a claim, or a hold that is re-added (dialect plain): SET name value NX PX, with a fence.
--
-- KEYS  1 the name  2 fence
-- ARGV  as in acquire; the mode is x, and nothing stands beside
-- Result  as in acquire
-- Invariant: as in acquire. The value is the claim and its record; no two claims are the same, so that it is as unique
--            as this recipe asks for.
if ARGV[12] ~= '0' and us > ARGV[12] + 0 then
  return { 2, us }
end
local claim, lease, votes, last = ARGV[3], ARGV[5], ARGV[8] ~= '', ARGV[7] + 0
local value = claim .. ' ' .. ARGV[1]

local fence = last_token(KEYS[2], ARGV[11])
local why = votes and spent(KEYS[2], fence, last)
if why then return { err = why } end
local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  -- A key that is no lock of this kind counts as held.
  if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  return { 0, us, redis.call('PTTL', KEYS[1]), 0 }
end
if held then
  local holder, its, run, round = string.match(held, '^(%S+) (%d+) (%d+) (%d+) ')
  round = tonumber(round)
  local ours = holder == claim and tonumber(ARGV[9])
  if ours and round == ours then
    if not votes and redis.call('PTTL', KEYS[1]) < lease + 0 then redis.call('PEXPIRE', KEYS[1], lease) end
    return { 1, us }
  elseif ours and round > ours then
    return { 2, us }
  elseif not ours or not votes then
    return { 0, us, redis.call('PTTL', KEYS[1]), holder and its - run + 1 or 0 }
  end
  -- An earlier round: it was refused, or there would be no later one.
  redis.call('DEL', KEYS[1])
end
if votes then
  local least = least_token(fence, ARGV[6] + 0)
  if ARGV[6] + 0 <= least then return { 3, us, least } end
  if last > us + ARGV[8] then return { 4, us, fence } end
end
redis.call('SET', KEYS[1], value, 'PX', lease)
if last > fence then move_fence(KEYS[2], ARGV[7], ARGV[2]) end
return { 1, us }
