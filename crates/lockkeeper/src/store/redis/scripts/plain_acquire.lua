-- One try to hold a name (dialect plain): SET name value NX PX, with a fence.
--
-- KEYS  1 the name  2 fence
-- ARGV  1 claim  2 lease in ms  3 tokens wanted  4 server time in us past which to do nothing, 0 for never
--       5 process
-- Result  {1, token, tokens, us} granted · {0, ms until it is free or -1, 0, us} busy · {2, 0, 0, us} too late
-- Invariant: as for the other dialect, without a queue. The value starts with the claim, and no two claims
--            are the same, so that it is as unique as this recipe asks for.
if ARGV[4] ~= '0' and us > tonumber(ARGV[4]) then
  return { 2, 0, 0, us }
end
local held = redis.call('GET', KEYS[1])
if held then
  local claim, token, run = string.match(held, '^(%S+) (%d+) (%d+) ')
  if claim ~= ARGV[1] then
    return { 0, redis.call('PTTL', KEYS[1]), 0, us }
  end
  if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
  end
  return { 1, tonumber(token), tonumber(run), us }
end
local first, run = reserve(KEYS[2], tonumber(ARGV[3]))
local value = string.format('%s %.0f %.0f %.0f ', ARGV[1], first, run, us) .. ARGV[5]
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
return { 1, first, run, us }
