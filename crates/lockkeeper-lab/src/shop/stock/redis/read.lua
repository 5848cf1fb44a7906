-- 1 and how many there are of an item; 0 and the highest token if a higher one was shown before.
-- KEYS: item, its fence. ARGV: what it is (inventory, good or reward), token or nothing.
-- A token is remembered with the read: a client that read before with a lower one cannot write any more.
if ARGV[2] ~= '' then
    local highest = redis.call('GET', KEYS[2])
    if highest and tonumber(highest) > tonumber(ARGV[2]) then
        return {0, highest}
    end
    redis.call('SET', KEYS[2], ARGV[2])
end
if ARGV[1] == 'reward' then
    return {1, 1 - redis.call('LLEN', KEYS[1])}
end
local count
if ARGV[1] == 'good' then
    count = redis.call('HGET', KEYS[1], 'good_counts')
else
    count = redis.call('GET', KEYS[1])
end
-- What is not there is sold out.
count = tonumber(count or '0')
if not count then
    return redis.error_reply('ERR ' .. KEYS[1] .. ' is not a number; delete it or set it to one')
end
return {1, count}
