-- The next common case: the claim was made the holder, and asks for its grant.
if ARGV[4] == 'x' and ARGV[8] and ARGV[8] ~= '0' then
  -- pcall: the key may be of another kind.
  local both = redis.pcall('HMGET', KEYS[1], ARGV[3], 'lockkeeper:' .. ARGV[3])
  if both[1] and both[2] then
    local last, run = string.match(both[2], '^(%d+) (%d+) ')
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[5]) then redis.call('PEXPIRE', KEYS[1], ARGV[5]) end
    return { 1, last - run + 1, tonumber(run), us }
  end
end
