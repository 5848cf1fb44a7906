-- The common case of `acquire`, before the rest is even set up: nobody holds, nothing is wrong with the token, and the
-- fence is kept for ever, as it is unless told otherwise. A list as an answer takes as long as two calls.
local us, first = time[1] * 1000000 + time[2], ARGV[6] + 0
if ARGV[4] == 'x' and ARGV[2] == '0' and ARGV[8] ~= '' and (ARGV[12] == '0' or us <= ARGV[12] + 0)
  and ARGV[7] - ARGV[8] <= us and us < 9e15 and first > ARGV[11] + 0 and redis.call('EXISTS', KEYS[1]) == 0 then
  -- Half as long as SET with GET.
  local before = redis.call('GETSET', KEYS[2], ARGV[7])
  if not before or first > (tonumber(before) or 0) then
    redis.call('HSET', KEYS[1], ARGV[3], '1', 'lockkeeper:' .. ARGV[3], ARGV[1])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    return us
  end
  redis.call('SET', KEYS[2], before)
end
