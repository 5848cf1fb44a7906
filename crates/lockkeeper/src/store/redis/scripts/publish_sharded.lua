-- Opens the scripts that publish: a cluster with sharded channels. Redisson's clients choose in the same way.
local PUBLISH, NUMSUB, SHARDED = 'SPUBLISH', 'SHARDNUMSUB', true
