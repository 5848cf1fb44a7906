-- The rest of a try.
if ARGV[a + 7] ~= '0' and us > ARGV[a + 7] + 0 then
  return { 2, 0, 0, us }
end
local wanted = #ARGV[a + 6] == 16 and 1 or ARGV[a + 6] + 0
-- The common case where no token was proposed, before the rest is even set up: nobody holds and nobody waits. Its record
-- is a field beside Redisson's, which costs less than a key of its own: last token, tokens, who. Redisson's own field has
-- its count, and the lease behind it.
if ARGV[a + 4] == 'x' and redis.call('EXISTS', KEYS[k + 1], KEYS[k + 2], KEYS[k + 3]) == 0 then
  local key, claim, lease = KEYS[k + 1], ARGV[a + 3], ARGV[a + 5]
  local first, run, text = reserve(KEYS[k + 4], wanted, ARGV[2])
  if not first then return { err = spent } end
  if text then
    -- Numbers go as text: Lua takes as long as a call to turn one into text.
    local record = text .. (run == 1 and ' 1 ' or ' ' .. run .. ' ') .. ARGV[1]
    redis.call('HSET', key, claim, '1 ' .. lease, 'lockkeeper:' .. claim, record)
  else
    local hold = { claim, 'x', now + lease, first, run, us, 0, 0, ARGV[1], lease + 0 }
    redis.call('HSET', key, claim, '1')
    redis.call('SET', KEYS[k + 2], cmsgpack.pack({ 0, 0, { hold } }), 'PX', lease)
  end
  redis.call('PEXPIRE', key, lease)
  -- A list takes as long as two calls.
  if run == 1 and text then return us end
  return { 1, first, run, us }
end
