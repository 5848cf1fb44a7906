-- Lets go of a hold, and may queue another claim in the same step (dialect redisson).
--
-- KEYS  as in acquire
-- ARGV  1 tag  2 claim  3 the claim to queue, or empty; of that one: 4 mode  5 lease in ms  6 tokens wanted
--       7 server time in us past which to leave it  8 limit  9 count  10 process  11 its channel
-- Result  {whether it was held: 0 1, token of the queued claim if it was granted at once or 0, tokens, us}
-- Invariant: changes nothing unless exactly this claim holds. Whoever waits first becomes the holder in the
--            same step; with nobody of ours waiting, Redisson's clients are told.
local packed_record = redis.call('GET', KEYS[2])
if not packed_record then
  return { 0, 0, 0, us }
end
-- The common case: it is alone, and nobody waits.
if ARGV[3] == '' then
  local record = cmsgpack.unpack(packed_record)
  local hold = record[3][1]
  if #record[3] == 1 and hold[1] == ARGV[2] and record[1] == 0 and (hold[2] == 'x' or hold[2] == 'f')
    and redis.call('EXISTS', KEYS[3], KEYS[4]) == 0 then
    redis.call('DEL', KEYS[2])
    -- Its only field: the key goes with it. If a Redisson client forced it open, there is none.
    if redis.call('HDEL', KEYS[1], ARGV[2]) == 0 then
      return { 0, 0, 0, us }
    end
    redis.call('PUBLISH', 'redisson_lock__channel:' .. ARGV[1], 0)
    return { 1, 0, 0, us }
  end
end
