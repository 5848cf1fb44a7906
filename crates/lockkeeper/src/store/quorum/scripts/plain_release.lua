-- Lets go of a round of a claim on one node (dialect plain): compare and delete.
--
-- KEYS  1 the name  2 fence
-- ARGV  as in release, 6 a channel of ours, where those who wait listen
-- Result  whether it was held until now: 0 1
-- Invariant: as in release.
local value, round = redis.pcall('GET', KEYS[1]), ARGV[2]
if type(value) == 'table' then
  if not string.find(value.err, 'WRONGTYPE', 1, true) then return value end
  value = nil
end
local holder, has = string.match(value or '', '^(%S+) %d+ %d+ (%d+) ')
local ours = holder == ARGV[1]
-- Whether it is this round, or an earlier one of the claim, which ends with it.
local held = ours and (round == '0' or has == round) and 1 or 0
if held == 1 or ours and has + 0 < round + 0 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[6], '0')
end
if held == 1 then return 1 end
local ends = false
