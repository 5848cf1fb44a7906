-- One try to hold a name (dialect plain): SET name value NX PX, with a fence.
--
-- KEYS  1 the name  2 fence
-- ARGV  1 who: channel and process  2 how long the fence is kept in ms, 0 for ever
--       3 claim  4 lease in ms  5 tokens wanted  6 server time in us past which to do nothing, 0 for never
-- Result  {1, token, tokens, us} granted · {0, ms until it is free or -1, 0, us} busy · {2, 0, 0, us} too late
-- Invariant: as for the other dialect, without a queue. The value starts with the claim, and no two claims
--            are the same, so that it is as unique as this recipe asks for.
if ARGV[6] ~= '0' and us > tonumber(ARGV[6]) then
  return { 2, 0, 0, us }
end
local held = redis.call('GET', KEYS[1])
if held then
  local claim, token, run = string.match(held, '^(%S+) (%d+) (%d+) ')
  if claim ~= ARGV[3] then
    return { 0, redis.call('PTTL', KEYS[1]), 0, us }
  end
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[4])
  end
  return { 1, tonumber(token), tonumber(run), us }
end
local first, run, text = reserve(KEYS[2], tonumber(ARGV[5]), ARGV[2])
local value
if run == 1 and text then
  -- The token is the time: no number has to become text, which takes as long as a call.
  value = ARGV[3] .. ' ' .. text .. ' 1 ' .. text .. ' ' .. ARGV[1]
else
  value = string.format('%s %.0f %.0f %.0f ', ARGV[3], first, run, us) .. ARGV[1]
end
redis.call('SET', KEYS[1], value, 'PX', ARGV[4])
return { 1, first, run, us }
