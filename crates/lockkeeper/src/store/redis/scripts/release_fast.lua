-- Lets go of a hold, and may queue another claim in the same step (dialect redisson).
--
-- KEYS  as in acquire, but 4 Redisson's fair queue
-- ARGV  1 who  2 how long the fence is kept  3 claim
--       or also a claim to queue: 4 claim  5 mode  6 lease in ms  7 tokens wanted
--       8 server time in us past which to leave it  9 limit  10 count
--       11 who listens for it, as `waiter_of` has it  12 its label, if it has one
-- Result  whether it was held: 0 1, or {that, token of the queued claim if it was granted at once or 0, tokens, us}
-- Invariant: changes nothing unless exactly this claim holds. The first waiter becomes the holder in the
--            same step; with nobody of ours waiting, Redisson's clients are told.
-- The common case: there are no holds but one with its record in the hash, and nobody waits. Not even the time is
-- needed.
if least and redis.call('EXISTS', KEYS[k + 2], KEYS[k + 3], KEYS[k + 4]) == 0 then
  local key, claim = KEYS[k + 1], ARGV[a + 3]
  -- Its only fields: the key goes with them. If a Redisson client forced it open, there are none; pcall, as the key
  -- may be of another kind then. Any other error is one: nothing is known of the hold.
  local gone = redis.pcall('HDEL', key, claim, 'lockkeeper:' .. claim)
  if type(gone) == 'table' and not string.find(gone.err, 'WRONGTYPE', 1, true) then
    gone = redis.call('HDEL', key, claim, 'lockkeeper:' .. claim)
  end
  if gone ~= 2 then return 0 end
  local tag = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  if redis.call(PUBLISH, 'redisson_lock__channel:' .. tag, '0') > 0 then
    -- Most likely a client of Redisson's, which is about to try. The next try of ours finds out whose turn it is: a
    -- record without holds keeps it from the short ways, for STAND_BACK as record.lua has it.
    redis.call('SET', KEYS[k + 2], cmsgpack.pack({ 0, 0, {} }), 'PX', 10)
  end
  return 1
end
