-- One try to hold a name (dialect plain): SET name value NX PX, with a fence.
--
-- KEYS  1 the name  2 fence
-- ARGV  1 who: channel, a space and its label if it has one, and process  2 how long the fence is kept in ms, 0 for ever
--       3 claim  4 lease in ms  5 tokens wanted, or the one token that is proposed, of 16 digits
--       6 server time in us past which to do nothing, 0 for never
-- Result  1: granted the token that was proposed · us: granted, and that is its only token · {1, token, tokens, us}
--         granted · {0, ms until it is free or -1, 0, us} busy · {2, 0, 0, us} too late
-- Invariant: as for the other dialect, without a queue. The value starts with the claim, and no two claims
--            are the same, so that it is as unique as this recipe asks for. It goes on with first token, tokens, since in us,
--            `<lease>ms` and who.
-- The commonest case: nobody holds, and one token is wanted, for which the client proposes the server's time as it knows
-- it; see acquire_proposed.
local proposed = ARGV[a + 5]
if #proposed == 16 and string.sub(proposed, 1, 10) == time[1] then
  local value = ARGV[a + 3] .. ' ' .. proposed .. ' 1 ' .. proposed .. ' ' .. ARGV[a + 4] .. 'ms ' .. ARGV[1]
  if redis.call('SET', KEYS[k + 1], value, 'NX', 'PX', ARGV[a + 4]) then
    local last
    if ARGV[2] == '0' then
      last = redis.call('GETSET', KEYS[k + 2], proposed)
    else
      last = redis.call('SET', KEYS[k + 2], proposed, 'GET', 'PX', ARGV[2])
    end
    if not last or #last < 16 or #last == 16 and last < proposed then return 1 end
    redis.call('SET', KEYS[k + 2], last, 'KEEPTTL')
    redis.call('DEL', KEYS[k + 1])
  end
end
