-- Lets go of a hold, and may queue another claim in the same step (dialect redisson).
--
-- KEYS  as in acquire
-- ARGV  1 tag  2 claim  3 the claim to queue, or empty; of that one: 4 mode  5 lease in ms  6 tokens wanted
--       7 server time in us past which to leave it  8 limit  9 count  10 who
--       11 whether nobody listens for it: 0 1
-- Result  {whether it was held: 0 1, token of the queued claim if it was granted at once or 0, tokens,
--          us or 0}
-- Invariant: changes nothing unless exactly this claim holds. Whoever waits first becomes the holder in the
--            same step; with nobody of ours waiting, Redisson's clients are told.
local record = redis.call('GET', KEYS[2])
if not record then
  return { 0, 0, 0, 0 }
end
-- The common case: it is alone, and nobody waits. Not even the time is needed.
if ARGV[3] == '' and string.byte(record) == 120 and string.find(record, ' ' .. ARGV[2] .. ' ', 1, true)
  and redis.call('EXISTS', KEYS[3], KEYS[4]) == 0 then
  redis.call('DEL', KEYS[2])
  -- Its only field: the key goes with it. If a Redisson client forced it open, there is none.
  if redis.call('HDEL', KEYS[1], ARGV[2]) == 0 then
    return { 0, 0, 0, 0 }
  end
  redis.call(PUBLISH, 'redisson_lock__channel:' .. ARGV[1], 0)
  return { 1, 0, 0, 0 }
end
