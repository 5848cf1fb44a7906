-- One try to hold a name (dialect redisson).
--
-- KEYS  1 the name  2 holders  3 queue  4 fence; the others follow from these
-- ARGV  1 who: channel and process  2 how long the fence is kept in ms, 0 for ever: so in all of these scripts
--       3 claim  4 mode: x f r w p, or X: x with a label, which takes no short way  5 lease in ms
--       6 tokens wanted, or the one token that is proposed, of 16 digits
--       7 server time in us past which to do nothing, 0 for never
--       or also 8 whether to queue: 0 not, or else as `waiter_of` has it  9 limit  10 count
--       11 claim to stand beside, or empty  12 label, if there is one
-- Result  1: granted the token that was proposed · us: granted, and that is its only token · {1, token, tokens, us}
--         granted · {0, ms until it may be free or -1, whether a holder that is not ours is in the way, us} busy ·
--         {2, 0, 0, us} too late
-- Invariant: a claim is granted once, and never past a live claim that waits. Asking again as the holder
--            answers the same tokens and never shortens the lease.
-- The commonest case: nobody holds, nobody waits, and one token is wanted, for which the client proposes the server's
-- time as it knows it. Above the fence that is as good as the time itself, and no arithmetic is needed: of the same
-- length, texts compare as the numbers do. What comes in another second than it says goes the long way: it may be too
-- late, or the fence lost or ended since, and then only the clock is above what was granted before; or it is so far ahead
-- of the clock that its fence has to be kept longer.
local proposed = ARGV[a + 6]
if #proposed == 16 and ARGV[a + 4] == 'x' and string.sub(proposed, 1, 10) == time[1]
  and redis.call('EXISTS', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]) == 0 then
  local last
  if ARGV[2] == '0' then
    last = redis.call('GETSET', KEYS[k + 4], proposed)
  else
    last = redis.call('SET', KEYS[k + 4], proposed, 'GET', 'PX', ARGV[2])
  end
  if not last or #last < 16 or #last == 16 and last < proposed then
    local key, claim = KEYS[k + 1], ARGV[a + 3]
    local lease = ARGV[a + 5]
    redis.call('HSET', key, claim, '1 ' .. lease, 'lockkeeper:' .. claim, proposed .. ' 1 ' .. ARGV[1])
    redis.call('PEXPIRE', key, lease)
    return 1
  end
  -- It cannot be late within this second, so the rest of the script moves the fence, and says how long it is kept.
  redis.call('SET', KEYS[k + 4], last, 'KEEPTTL')
end
