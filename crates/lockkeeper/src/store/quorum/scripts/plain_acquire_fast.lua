-- The common case of `plain_acquire`, as in `acquire_fast`.
local us, first = time[1] * 1000000 + time[2], ARGV[6] + 0
if ARGV[2] == '0' and ARGV[8] ~= '' and (ARGV[12] == '0' or us <= ARGV[12] + 0)
  and ARGV[7] - ARGV[8] <= us and us < 9e15 and first > ARGV[11] + 0
  and redis.call('SET', KEYS[1], ARGV[3] .. ' ' .. ARGV[1], 'NX', 'PX', ARGV[5]) then
  local before = redis.pcall('GETSET', KEYS[2], ARGV[7])
  local failed = type(before) == 'table'
  if not failed and (not before or first > (tonumber(before) or 0)) then return us end
  redis.call('DEL', KEYS[1])
  if failed then return before end
  redis.call('SET', KEYS[2], before)
end
