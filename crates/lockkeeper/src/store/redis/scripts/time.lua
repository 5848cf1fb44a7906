-- Opens the scripts that need the time: it is one for the whole script.
-- A double holds integers up to 2^53 exactly; microseconds since 1970 stay below that until the year 2255.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

