-- One try to hold a name (dialect redisson).
--
-- KEYS  1 the name  2 holders  3 queue  4 Redisson's fair queue  5 fence; the others follow from these
-- ARGV  1 tag  2 claim  3 mode: x f r w p  4 lease in ms  5 tokens wanted
--       6 server time in us past which to do nothing, 0 for never  7 who: channel and process
--       8 whether to queue: 0 1, 2 if nobody listens for it  9 limit  10 count  11 claim to stand beside, or empty
-- Result  {1, token, tokens, us} granted · {0, ms until it may be free or -1, whether a holder that is not
--         ours is in the way, us} busy · {2, 0, 0, us} too late
-- Invariant: a claim is granted once, and never past a live claim that waits. Asking again as the holder
--            answers the same tokens and never shortens the lease.
if ARGV[6] ~= '0' and us > tonumber(ARGV[6]) then
  return { 2, 0, 0, us }
end
-- The common case, before the rest is even set up: nobody holds and nobody waits. Its record is plain text,
-- which costs less than a packed one: mode, last token, tokens, claim, who.
if ARGV[3] == 'x' and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0 then
  local first, run, text = reserve(KEYS[5], tonumber(ARGV[5]))
  local record
  if text then
    record = 'x ' .. text .. ' ' .. run .. ' ' .. ARGV[2] .. ' ' .. ARGV[7]
  else
    local hold = { ARGV[2], 'x', now + ARGV[4], first, run, us, 0, 0, ARGV[7] }
    record = cmsgpack.pack({ 0, 0, { hold } })
  end
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('SET', KEYS[2], record, 'PX', ARGV[4])
  return { 1, first, run, us }
end
