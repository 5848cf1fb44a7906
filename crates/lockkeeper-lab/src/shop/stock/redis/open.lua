-- Fills an item that is new. One that somebody else has filled, as in `SET inventory001 5000`, starts with that.
-- KEYS: item, its opening, its ledger. ARGV: what it is (inventory or good), size, name, 1 to fill it anew.
if ARGV[4] == '1' then
    redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
end
if redis.call('EXISTS', KEYS[2]) == 1 then
    return 0
end
local found
if ARGV[1] == 'good' then
    redis.call('HSETNX', KEYS[1], 'good_name', ARGV[3])
    redis.call('HSETNX', KEYS[1], 'good_counts', ARGV[2])
    found = redis.call('HGET', KEYS[1], 'good_counts')
else
    redis.call('SETNX', KEYS[1], ARGV[2])
    found = redis.call('GET', KEYS[1])
end
if not tonumber(found) then
    return redis.error_reply('ERR ' .. KEYS[1] .. ' is not a number; delete it or set it to one')
end
redis.call('SET', KEYS[2], found)
return 1
