-- Lets go of a round of a claim on one node: a release, or a withdrawal (dialect redisson).
--
-- KEYS  1 the name  2 fence
-- ARGV  1 claim  2 round, 0 for any  3 its last token, 0 if that is not known
--       4 how far ahead of this node's clock a token may be in us  5 how long the fence is kept in ms, 0 for ever
-- Result  whether it was held until now: 0 1
-- Invariant: ends this round and earlier ones of the claim, and nothing else. What it undoes and arrives later is
--            refused. The waiters are told.
local claim, round = ARGV[1], ARGV[2]
local record = redis.pcall('HGET', KEYS[1], 'lockkeeper:' .. claim)
if type(record) == 'table' then
  if not string.find(record.err, 'WRONGTYPE', 1, true) then return record end
  record = nil
end
local has = record and string.match(record, '^%d+ %d+ (%d+) ')
-- Whether it is this round, or an earlier one of the claim, which ends with it.
local held = has and (round == '0' or has == round) and 1 or 0
local ends = held == 1 or has and has + 0 < round + 0
-- The common case: an exclusive hold, whose two fields are all there is. Not even the time is needed.
if held == 1 and redis.call('HLEN', KEYS[1]) == 2 then
  if redis.call('HDEL', KEYS[1], claim, 'lockkeeper:' .. claim) ~= 2 then return 0 end
  local tag = string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}'
  redis.call('PUBLISH', 'redisson_lock__channel:' .. tag, '0')
  return 1
end
