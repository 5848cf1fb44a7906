-- One try to hold a name (dialect redisson).
--
-- KEYS  1 the name  2 holders  3 queue  4 fence; the others follow from these
-- ARGV  1 who: channel and process  2 how long the fence is kept in ms, 0 for ever: so in all of these scripts
--       3 claim  4 mode: x f r w p, or X: x with a label, which takes no short way  5 lease in ms  6 tokens wanted
--       7 server time in us past which to do nothing, 0 for never
--       or also 8 whether to queue: 0 not, or else as `waiter_of` has it  9 limit  10 count
--       11 claim to stand beside, or empty  12 label, if there is one
-- Result  us: granted, and that is its only token · {1, token, tokens, us} granted · {0, ms until it may be free or -1,
--         whether a holder that is not ours is in the way, us} busy · {2, 0, 0, us} too late
-- Invariant: a claim is granted once, and never past a live claim that waits. Asking again as the holder
--            answers the same tokens and never shortens the lease.
if ARGV[a + 7] ~= '0' and us > ARGV[a + 7] + 0 then
  return { 2, 0, 0, us }
end
local wanted = ARGV[a + 6] + 0
-- The common case, before the rest is even set up: nobody holds and nobody waits. Its record
-- is a field beside Redisson's, which costs less than a key of its own: last token, tokens, who. Redisson's own field has
-- its count, and the lease behind it.
if ARGV[a + 4] == 'x' and redis.call('EXISTS', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]) == 0 then
  local key, claim, lease = KEYS[k + 1], ARGV[a + 3], ARGV[a + 5]
  local first, run, text = reserve(KEYS[k + 4], wanted, ARGV[2])
  if not first then return { err = spent } end
  if text then
    -- Numbers go as text: Lua takes as long as a call to turn one into text.
    local record = text .. (run == 1 and ' 1 ' or ' ' .. run .. ' ') .. ARGV[1]
    redis.call('HSET', key, claim, '1 ' .. lease, 'lockkeeper:' .. claim, record)
  else
    local hold = { claim, 'x', now + lease, first, run, us, 0, 0, ARGV[1], lease + 0 }
    redis.call('HSET', key, claim, '1')
    redis.call('SET', KEYS[k + 2], cmsgpack.pack({ 0, 0, { hold } }), 'PX', lease)
  end
  redis.call('PEXPIRE', key, lease)
  -- A list takes as long as two calls.
  if run == 1 and text then return us end
  return { 1, first, run, us }
end
