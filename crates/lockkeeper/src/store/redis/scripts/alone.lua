-- Opens a script that runs one verb: where its keys and arguments begin, and whether it has the least of them. A batch
-- says so for each of its verbs.
local k, a, least = 0, 0, not ARGV[4]
