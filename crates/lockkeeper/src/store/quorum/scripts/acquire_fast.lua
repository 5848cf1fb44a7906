-- The common case of `acquire`, before the rest is even set up: nobody holds, and nothing is wrong with the token. A list
-- as an answer takes as long as two calls.
local us, first, keep = time[1] * 1000000 + time[2], ARGV[6] + 0, ARGV[2]
if ARGV[4] == 'x' and ARGV[8] ~= '' and (ARGV[12] == '0' or us <= ARGV[12] + 0)
  and ARGV[7] - ARGV[8] <= us and us < 9e15 and first > ARGV[11] + 0 and first >= us - LAG
  and redis.call('EXISTS', KEYS[1]) == 0 then
  local before
  if keep == '0' then
    -- Half as long as SET with GET.
    before = redis.call('GETSET', KEYS[2], ARGV[7])
  else
    -- As move_fence does.
    local lead = ARGV[7] - us
    before = redis.call('SET', KEYS[2], ARGV[7], 'GET', 'PX', lead > 0 and keep + math.ceil(lead / 1000) or keep)
  end
  if not before or first > (tonumber(before) or 0) then
    local count = '1 ' .. ARGV[5] .. (ARGV[13] or '')
    redis.call('HSET', KEYS[1], ARGV[3], count, 'lockkeeper:' .. ARGV[3], ARGV[1])
    redis.call('PEXPIRE', KEYS[1], ARGV[5])
    return us
  end
  if keep == '0' then
    redis.call('SET', KEYS[2], before)
  else
    redis.call('SET', KEYS[2], before, 'PX', keep + math.max(0, math.ceil((before - us) / 1000)))
  end
end
