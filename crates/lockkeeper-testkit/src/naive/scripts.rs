//! What the steps run on the server.

/// Takes a free lock and answers its token. KEYS: lock, token. ARGV: id, lease in ms, or 0 for no end.
pub const TAKE: &str = "
    if redis.call('EXISTS', KEYS[1]) == 1 then return false end
    redis.call('SET', KEYS[1], ARGV[1])
    if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
    return redis.call('INCR', KEYS[2])";

/// [`TAKE`], but who has it already gets it again.
pub const TAKE_OR_OWN: &str = "
    local owner = redis.call('GET', KEYS[1])
    if owner and owner ~= ARGV[1] then return false end
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return redis.call('INCR', KEYS[2])";

/// [`TAKE`], but who does not get it is put in line. KEYS: lock, token, line.
pub const TAKE_OR_QUEUE: &str = "
    redis.call('LREM', KEYS[3], 0, ARGV[1])
    if redis.call('EXISTS', KEYS[1]) == 1 then
        redis.call('RPUSH', KEYS[3], ARGV[1])
        redis.call('PEXPIRE', KEYS[3], 60000)
        return false
    end
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return redis.call('INCR', KEYS[2])";

/// Compare and delete. KEYS: lock. ARGV: id.
pub const RELEASE: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1])";

/// [`RELEASE`], and the token's counter with it. KEYS: lock, token.
pub const RELEASE_WITH_FENCE: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('DEL', KEYS[1], KEYS[2])";

/// [`RELEASE`] to the next in line, who is told on a list of its own. KEYS: lock, token, line. ARGV: id, lease.
pub const RELEASE_TO_NEXT: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    local next = redis.call('LPOP', KEYS[3])
    if not next then return redis.call('DEL', KEYS[1]) end
    redis.call('SET', KEYS[1], next, 'PX', ARGV[2])
    redis.call('RPUSH', KEYS[1] .. ':wake:' .. next, redis.call('INCR', KEYS[2]))
    redis.call('PEXPIRE', KEYS[1] .. ':wake:' .. next, 60000)
    return 1";

/// Compare and expire. KEYS: lock. ARGV: id, lease.
pub const RENEW: &str = "
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])";

/// [`RENEW`] that makes the key again. KEYS: lock. ARGV: id, lease.
pub const RENEW_OR_RECREATE: &str = "
    local owner = redis.call('GET', KEYS[1])
    if owner and owner ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
    return 1";

/// Takes a lock that its owner may take again; answers token and depth. KEYS: lock, token. ARGV: id, lease.
pub const ENTER: &str = "
    local mine = redis.call('HEXISTS', KEYS[1], ARGV[1])
    if mine == 0 and redis.call('EXISTS', KEYS[1]) == 1 then return false end
    if mine == 0 then redis.call('HSET', KEYS[1], 'token', redis.call('INCR', KEYS[2])) end
    local depth = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return {redis.call('HGET', KEYS[1], 'token'), depth}";

/// Leaves it once, and frees it at depth 1 instead of 0; answers the depth, or -1. KEYS: lock. ARGV: id.
pub const LEAVE: &str = "
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
    local depth = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
    if depth <= 1 then redis.call('DEL', KEYS[1]) return 0 end
    return depth";
