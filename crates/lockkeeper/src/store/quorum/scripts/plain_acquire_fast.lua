-- The common case of `plain_acquire`, as in `acquire_fast`.
local us, first, keep = time[1] * 1000000 + time[2], ARGV[6] + 0, ARGV[2]
if ARGV[8] ~= '' and (ARGV[12] == '0' or us <= ARGV[12] + 0)
  and ARGV[7] - ARGV[8] <= us and us < 9e15 and first > ARGV[11] + 0 and first >= us - LAG
  and redis.call('SET', KEYS[1], ARGV[3] .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[5]) then
  local before
  if keep == '0' then
    before = redis.pcall('GETSET', KEYS[2], ARGV[7])
  else
    local lead = ARGV[7] - us
    before = redis.pcall('SET', KEYS[2], ARGV[7], 'GET', 'PX', lead > 0 and keep + math.ceil(lead / 1000) or keep)
  end
  local failed = type(before) == 'table'
  if not failed and (not before or first > (tonumber(before) or 0)) then return us end
  redis.call('DEL', KEYS[1])
  if failed then return before end
  if keep == '0' then
    redis.call('SET', KEYS[2], before)
  else
    redis.call('SET', KEYS[2], before, 'PX', keep + math.max(0, math.ceil((before - us) / 1000)))
  end
end
