-- Lets go of a round of a claim on one node (dialect plain): compare and delete.
--
-- KEYS  1 the name  2 fence
-- ARGV  as in release, 6 a channel of ours, where those who wait listen
-- Result  whether it was held until now: 0 1
-- Invariant: as in release.
local held, round = redis.pcall('GET', KEYS[1]), tonumber(ARGV[2])
if type(held) == 'table' then
  if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  held = nil
end
local holder, has = string.match(held or '', '^(%S+) %d+ %d+ (%d+) ')
has = tonumber(has)
if holder ~= ARGV[1] or (round ~= 0 and has > round) then
  use_up(KEYS[2], ARGV[3], ARGV[4], ARGV[5])
  return 0
end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[6], '0')
if round == 0 or has == round then return 1 end
-- An earlier round of the claim ends with it.
use_up(KEYS[2], ARGV[3], ARGV[4], ARGV[5])
return 0
