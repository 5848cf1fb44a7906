-- Opens the scripts that publish: a server by itself, or a cluster without sharded channels (before Redis 7).
local PUBLISH, NUMSUB, SHARDED = 'PUBLISH', 'NUMSUB', false
