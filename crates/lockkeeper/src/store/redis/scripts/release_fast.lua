-- Lets go of a hold, and may queue another claim in the same step (dialect redisson).
--
-- KEYS  as in acquire
-- ARGV  1 who  2 how long the fence is kept  3 claim
--       or also a claim to queue: 4 claim  5 mode  6 lease in ms  7 tokens wanted
--       8 server time in us past which to leave it  9 limit  10 count
-- Result  {whether it was held: 0 1, token of the queued claim if it was granted at once or 0, tokens,
--          us or 0}
-- Invariant: changes nothing unless exactly this claim holds. Whoever waits first becomes the holder in the
--            same step; with nobody of ours waiting, Redisson's clients are told.
local record = redis.call('GET', KEYS[2])
if not record then
  return { 0, 0, 0, 0 }
end
-- The common case: it is alone, and nobody waits. Not even the time is needed.
if not ARGV[4] and string.byte(record) == 120 and string.find(record, ' ' .. ARGV[3] .. ' ', 1, true)
  and redis.call('EXISTS', KEYS[3], KEYS[4]) == 0 then
  redis.call('DEL', KEYS[2])
  -- Its only field: the key goes with it. If a Redisson client forced it open, there is none.
  if redis.call('HDEL', KEYS[1], ARGV[3]) == 0 then
    return { 0, 0, 0, 0 }
  end
  redis.call('PUBLISH', 'redisson_lock__channel:' .. string.sub(KEYS[5], 21), '0')
  return { 1, 0, 0, 0 }
end
