-- One try to hold a name (dialect redisson).
--
-- KEYS  1 the name  2 holders  3 queue  4 Redisson's fair queue  5 fence  6 aside  7 waiters
--       8 Redisson's fair timeouts  9 permits  10 latch  11 turn
-- ARGV  1 tag  2 claim  3 mode: x f r w p  4 lease in ms  5 tokens wanted
--       6 server time in us past which to do nothing, 0 for never  7 whether to queue: 0 1
--       8 claim to stand beside, or empty  9 limit  10 count  11 process  12 its channel
-- Result  {1, token, tokens, us} granted · {0, ms until it may be free or -1, whether a holder that is not
--         ours is in the way, us} busy · {2, 0, 0, us} too late
-- Invariant: a claim is granted once, and never past a live claim that waits. Asking again as the holder
--            answers the same tokens and never shortens the lease.
if ARGV[6] ~= '0' and us > tonumber(ARGV[6]) then
  return { 2, 0, 0, us }
end
-- The common case, before the rest is even set up: nobody holds and nobody waits.
if (ARGV[3] == 'x' or ARGV[3] == 'f')
  and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]) == 0 then
  local first, run = reserve(KEYS[5], tonumber(ARGV[5]))
  local hold = { ARGV[2], ARGV[3], now + ARGV[4], first, run, us, 0, 0, ARGV[11] }
  redis.call('HSET', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('SET', KEYS[2], cmsgpack.pack({ 0, 0, { hold } }), 'PX', ARGV[4])
  return { 1, first, run, us }
end
