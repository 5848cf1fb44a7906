-- Writes what is left after a sale and its line in the ledger; answers 1 and what is left, or 0 and the highest token if a
-- higher one was shown before.
-- KEYS: item, its fence, its ledger, the set of all rewards.
-- ARGV: what it is (inventory, good or reward), token or nothing, how many were read, port.
-- How many were read is not compared with how many there are: that they are the same is what the lock is for.
if ARGV[2] ~= '' then
    local highest = redis.call('GET', KEYS[2])
    if highest and tonumber(highest) > tonumber(ARGV[2]) then
        return {0, highest}
    end
    redis.call('SET', KEYS[2], ARGV[2])
end
local left
if ARGV[1] == 'reward' then
    left = 1 - redis.call('RPUSH', KEYS[1], ARGV[4])
    redis.call('SADD', KEYS[4], KEYS[1])
elseif ARGV[1] == 'good' then
    left = redis.call('HINCRBY', KEYS[1], 'good_counts', -1)
else
    left = tonumber(ARGV[3]) - 1
    redis.call('SET', KEYS[1], string.format('%d', left))
end
redis.call('RPUSH', KEYS[3], cjson.encode({port = tonumber(ARGV[4]), remaining = left, token = ARGV[2]}))
return {1, left}
