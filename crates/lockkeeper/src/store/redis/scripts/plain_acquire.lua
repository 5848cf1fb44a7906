-- One try to hold a name (dialect plain): SET name value NX PX, with a fence.
--
-- KEYS  1 the name  2 fence
-- ARGV  1 who: channel, a space and its label if it has one, and process  2 how long the fence is kept in ms, 0 for ever
--       3 claim  4 lease in ms  5 tokens wanted  6 server time in us past which to do nothing, 0 for never
-- Result  us: granted, and that is its only token · {1, token, tokens, us} granted · {0, ms until it is free or -1, 0, us}
--         busy · {2, 0, 0, us} too late
-- Invariant: as for the other dialect, without a queue. The value starts with the claim, and no two claims
--            are the same, so that it is as unique as this recipe asks for. It goes on with first token, tokens, since in us,
--            `<lease>ms` and who.
if ARGV[a + 6] ~= '0' and us > ARGV[a + 6] + 0 then
  return { 2, 0, 0, us }
end
local key, claim, lease = KEYS[k + 1], ARGV[a + 3], ARGV[a + 4]
local held = redis.call('GET', key)
if held then
  local holder, token, run = string.match(held, '^(%S+) (%d+) (%d+) ')
  if holder ~= claim then
    return { 0, redis.call('PTTL', key), 0, us }
  end
  prolong(key, held, lease)
  return { 1, tonumber(token), tonumber(run), us }
end
local first, run, text = reserve(KEYS[k + 2], ARGV[a + 5] + 0, ARGV[2])
if not first then return { err = spent } end
if run == 1 and text then
  -- The token is the time: no number has to become text, and no list an answer. Each takes as long as a call.
  redis.call('SET', key, claim .. ' ' .. text .. ' 1 ' .. text .. ' ' .. lease .. 'ms ' .. ARGV[1], 'PX', lease)
  return us
end
redis.call('SET', key, string.format('%s %.0f %.0f %.0f %sms ', claim, first, run, us, lease) .. ARGV[1], 'PX', lease)
return { 1, first, run, us }
